/* test_equation - equations of einsum, spelt out for operands of so many dimensions. */
#include "../test.h"

#include "import/equation.h"

static const struct {
    const char *given;
    int n, n_dims[3];
    const char *want; /* NULL: refused */
} cases[] = {
    {"b i j, b j k -> b i k", 2, {3, 3}, "bij,bjk->bik"},
    {"...ij,...jk->...ik", 2, {4, 4}, "yzij,yzjk->yzik"},
    {"...ij,jk->...ik", 2, {4, 2}, "yzij,jk->yzik"},
    {"...i,...i->...", 2, {3, 2}, "yzi,zi->yz"}, /* aligned at their ends */
    {"z...,...y->...", 2, {2, 2}, "zx,xy->x"},
    {"...i,ij", 2, {3, 2}, "yzi,ij->yzj"},
    {"ba", 1, {2}, "ba->ab"},
    {"aB,bA", 2, {2, 2}, "aB,bA->ABab"},
    {"ij,jk", 2, {2, 2}, "ij,jk->ik"},
    {"i...", 1, {1}, "i->i"},
    {"...->", 1, {2}, "yz->"},
    {"ij,jk->ik", 2, {2, 3}, NULL},
    {"...ij,jk->ik", 2, {1, 2}, NULL},
    {"i.j,jk->ik", 2, {3, 2}, NULL},
    {"......,jk->ik", 2, {3, 2}, NULL},
    {"ij->i", 2, {2, 2}, NULL},
    {"ij,jk,kl->il", 2, {2, 2}, NULL},
    {"ij,jk,kl->il", 3, {2, 2, 2}, "ij,jk,kl->il"},
    {"...i,...i,i", 3, {3, 2, 1}, "yzi,zi,i->yz"},
    {"bii->bi", 1, {3}, "bii->bi"},
    {"bii", 1, {3}, "bii->b"},
    {"1j,jk->1k", 2, {2, 2}, NULL},
    {"...abcdefghijklmnopqrstuvwxy,z->a", 2, {27, 1}, NULL}, /* no letter is left */
};

static void spelt(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char to[EQUATION_ROOM];
        const int rc = equation_spell(cases[i].given, cases[i].n_dims, cases[i].n, to);

        if (rc < 0 ? cases[i].want != NULL : !cases[i].want || strcmp(to, cases[i].want) != 0)
            fail_msg("%s: %s, want %s", cases[i].given, rc < 0 ? "refused" : to,
                     cases[i].want ? cases[i].want : "refused");
    }
}

/* Of any length, it fits or is refused. */
static void long_ones(void **state)
{
    char given[2 * EQUATION_ROOM], to[EQUATION_ROOM];

    (void)state;
    for (int n = 1; n < (int)sizeof given; n++) {
        memset(given, 'a', (size_t)n);
        given[n] = 0;
        assert_int_equal(equation_spell(given, &n, 1, to) < 0, n + 2 >= EQUATION_ROOM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spelt), cmocka_unit_test(long_ones)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
