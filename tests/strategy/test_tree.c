/* tree: whoever holds the leaves, the pieces of all ranks become the same sum, which is that of the
 * definition. */
#include "../test.h"

#include "strategy/tree.h"

enum { MOST_LEAVES = 70 };

/* An addition that is neither commutative nor associative, so that each tree has its own result. */
static uint64_t sum(uint64_t a, uint64_t b) { return (a * 31 + b) * 0x9E3779B97F4A7C15 + 1; }

static uint64_t leaf(int64_t i) { return (uint64_t)i + 1000; }

/* The node (level, at) of `n` leaves, by the words of tree.h. */
static uint64_t by_definition(int64_t n, int64_t at, int level)
{
    const int64_t half = level ? (int64_t)1 << (level - 1) : 0;
    uint64_t first;

    if (level == 0)
        return leaf(at);
    first = by_definition(n, at, level - 1);
    return at + half < n ? sum(first, by_definition(n, at + half, level - 1)) : first;
}

static int levels_of(int64_t n)
{
    int level = 0;

    while ((int64_t)1 << level < n)
        level++;
    return level;
}

struct pieces {
    struct tree_pile pile;
    uint64_t value[TREE_MOST_NODES];
};

static void push(struct pieces *p, struct tree_node node, uint64_t value)
{
    int at = p->pile.n;
    const int n_sums = tree_push(&p->pile, node);

    p->value[at] = value;
    for (int i = 0; i < n_sums; i++, at--)
        p->value[at - 1] = sum(p->value[at - 1], p->value[at]);
    assert_int_equal(at + 1, p->pile.n);
}

/* Push the leaves in groups, cut where `cuts` has a bit, and then the pieces of all groups. */
static uint64_t by_groups(int64_t n, uint64_t cuts)
{
    struct pieces all = {.pile.n_leaves = n}, group = {.pile.n_leaves = n};

    for (int64_t i = 0; i < n; i++) {
        push(&group, (struct tree_node){i, 0}, leaf(i));
        assert_true(group.pile.n <= 2 * levels_of(n) + 1);
        if (i + 1 < n && !(cuts >> i % 64 & 1))
            continue;
        for (int k = 0; k < group.pile.n; k++)
            push(&all, group.pile.node[k], group.value[k]);
        group.pile.n = 0;
    }
    assert_int_equal(all.pile.n, 1);
    assert_int_equal(all.pile.node[0].at, 0);
    return all.value[0];
}

static void test_any_groups(void **state)
{
    uint64_t cuts = 88172645463325252;

    (void)state;
    for (int64_t n = 1; n <= MOST_LEAVES; n++) {
        const uint64_t want = by_definition(n, 0, levels_of(n));

        assert_int_equal(by_groups(n, 0), want);
        assert_int_equal(by_groups(n, UINT64_MAX), want);
        for (int i = 0; i < 50; i++) {
            cuts ^= cuts << 13; /* Marsaglia's xorshift */
            cuts ^= cuts >> 7;
            cuts ^= cuts << 17;
            assert_int_equal(by_groups(n, cuts), want);
            assert_int_equal(by_groups(n, cuts & cuts >> 9 & cuts >> 23), want);
        }
    }
}

/* A contiguous range has no more pieces than this, at a time or in the end. */
static void test_the_most_nodes(void **state)
{
    struct pieces p = {.pile.n_leaves = TREE_MOST_LEAVES};

    (void)state;
    for (int64_t i = 1; i < TREE_MOST_LEAVES - 1; i++)
        push(&p, (struct tree_node){i, 0}, leaf(i));
    assert_int_equal(p.pile.n, 2 * 15);
    push(&p, (struct tree_node){TREE_MOST_LEAVES - 1, 0}, leaf(TREE_MOST_LEAVES - 1));
    assert_int_equal(p.pile.n, 16);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_groups),
        cmocka_unit_test(test_the_most_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
