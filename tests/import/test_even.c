/* test_even - parameters that are one number throughout in their file, and what they begin as. */
#include "../test.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "import/even.h"
#include "import/pack.h"

enum { EVEN_MOST = 200 };

/* A file of one tensor: of 200 elements, all `number` but for the one at `other`. */
struct even_file {
    enum import_role role;
    enum import_type type;
    int64_t n;
    double number;
    int64_t other; /* -1: none */
    int same_as, is_lost;
    int want;
};

static void even_put(const struct even_file *f, int64_t i, char *to)
{
    const double v = f->number + (i == f->other);
    const float single = (float)v;
    uint32_t bits;

    memcpy(&bits, &single, sizeof bits);
    if (f->type == IMPORT_F64)
        memcpy(to, &v, sizeof v);
    else if (f->type == IMPORT_F32)
        memcpy(to, &single, sizeof single);
    else
        memcpy(to, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
}

static int even_elements(void *from, const struct import_tensor *t, int64_t first, int64_t n,
                         void *to, struct err *err)
{
    const struct even_file *f = from;

    if (f->is_lost)
        return err_set(err, ERR_CORRUPT, "it is lost");
    assert_true(first >= 0 && n > 0 && first + n <= f->n);
    for (int64_t i = 0; i < n; i++)
        even_put(f, first + i, (char *)to + (size_t)i * import_type_size(t->type));
    return 0;
}

#define P IMPORT_PARAMETER
static const struct even_file files[] = {
    {P, IMPORT_F32, EVEN_MOST, 1.0 / 1024, -1, -1, 0, 1},
    {P, IMPORT_F64, EVEN_MOST, 1e-6, -1, -1, 0, 1},
    {P, IMPORT_BF16, EVEN_MOST, -2, -1, -1, 0, 1},
    {P, IMPORT_F32, EVEN_MOST, 0, -1, -1, 0, 1},
    {P, IMPORT_F32, 1, 2.5, -1, -1, 0, 1},
    {P, IMPORT_F32, EVEN_MOST, 1, 1, -1, 0, 0},
    {P, IMPORT_F32, EVEN_MOST, 1, 64, -1, 0, 0},
    {P, IMPORT_F32, EVEN_MOST, 1, EVEN_MOST - 1, -1, 0, 0},
    {P, IMPORT_F32, EVEN_MOST, INFINITY, -1, -1, 0, 0},
    {P, IMPORT_F32, EVEN_MOST, NAN, -1, -1, 0, 0},
    {P, IMPORT_F32, 0, 1, -1, -1, 0, 0},
    {P, IMPORT_F32, EVEN_MOST, 1, -1, -1, 1, 0},
    {P, IMPORT_F32, EVEN_MOST, 1, -1, 0, 0, 0}, /* tied: the first one tells */
    {IMPORT_BUFFER, IMPORT_F32, EVEN_MOST, 1, -1, -1, 0, 0},
};

/* A network of the tensor, twice: the second one may be tied to the first. */
static struct import_network *even_network(const struct even_file *f)
{
    struct import_network *n = import_network_new("net.pt2");

    n->n_tensors = 2;
    n->tensor = arena_alloc(&n->arena, 2 * sizeof *n->tensor);
    for (int i = 0; i < 2; i++)
        n->tensor[i] = (struct import_tensor){.name = i ? "b" : "a",
                                              .role = f->role,
                                              .type = f->type,
                                              .n_dims = 1,
                                              .dim = {f->n},
                                              .stride = {1},
                                              .same_as = i ? f->same_as : -1};
    return n;
}

static void test_find(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(files); k++) {
        struct even_file f = files[k];
        struct import_network *n = even_network(&f);

        import_find_even(n, even_elements, &f);
        assert_int_equal(n->tensor[1].is_even, f.want);
        if (f.want && f.type != IMPORT_F32)
            assert_true(n->tensor[1].even == f.number);
        if (!f.want)
            assert_true(n->tensor[1].even == 0);
        import_network_free(n);
    }
}

/* Followers get the number with the network. */
static void test_packed(void **state)
{
    struct even_file f = files[1];
    struct import_network *n = even_network(&f), *again;
    struct buf packed = {0};
    struct err err;

    (void)state;
    import_find_even(n, even_elements, &f);
    assert_int_equal(import_pack(n, &packed, &err), 0);
    assert_int_equal(import_unpack(packed.data, packed.len, &again, &err), 0);
    assert_int_equal(again->tensor[0].is_even, 1);
    assert_true(again->tensor[0].even == 1e-6);
    import_network_free(again);
    buf_fini(&packed);
    n->tensor[0].even = NAN; /* no reader makes it */
    assert_int_equal(import_pack(n, &packed, &err), 0);
    assert_int_equal(import_unpack(packed.data, packed.len, &again, &err), ERR_CORRUPT);
    import_network_free(n);
    buf_fini(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_packed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
