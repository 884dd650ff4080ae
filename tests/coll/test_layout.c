/* coll/layout: places host by host, and a tree that crosses from host to host as seldom as it can.
 */
#include "../test.h"

#include <string.h>

#include "base/util.h"
#include "coll/layout.h"

enum { MOST = 70 };

/* Hosts as they come: `spread` ranks of a host follow one another, then come those of the next of
 * `n_hosts`, and so on round. */
static int make_hosts(int size, int n_hosts, int spread, int host[MOST])
{
    int n = 0;

    for (int r = 0; r < size; r++) {
        host[r] = r / spread % n_hosts;
        n = host[r] >= n ? host[r] + 1 : n;
    }
    return n;
}

static void check_places(const struct layout *l, const int *host)
{
    for (int p = 0; p < l->size; p++)
        assert_int_equal(l->place[l->order[p]], p);
    for (int p = 1; p < l->size; p++) {
        const int before = l->order[p - 1], r = l->order[p];

        assert_true(host[r] == host[before] ? r > before : host[r] == host[before] + 1);
    }
}

static int depth_of(const struct layout *l, int place)
{
    int n = 0;

    for (; place > 0; place = l->parent[place])
        n++;
    return n;
}

static int bits_of(int n)
{
    int bits = 0;

    for (; n > 0; n /= 2)
        bits++;
    return bits;
}

static void check_tree(const struct layout *l, const int *host, int n_hosts)
{
    int child[LAYOUT_CHILDREN], n_crossings = 0, n_children = 0;

    assert_int_equal(l->parent[0], -1);
    assert_int_equal(l->n_below[0], l->size);
    for (int p = 0; p < l->size; p++) {
        const int n = layout_children(l, p, child);
        int end = p + 1;

        for (int i = 0; i < n; i++) { /* their subtrees fill the run of this one */
            assert_int_equal(child[i], end);
            assert_int_equal(l->parent[child[i]], p);
            end += l->n_below[child[i]];
        }
        assert_int_equal(end, p + l->n_below[p]);
        n_children += n;
        n_crossings += p > 0 && host[l->order[p]] != host[l->order[l->parent[p]]];
        assert_true(depth_of(l, p) <= bits_of(n_hosts - 1) + bits_of(l->size - 1));
    }
    assert_int_equal(n_children, l->size - 1);
    assert_int_equal(n_crossings, n_hosts - 1);
}

static void test_trees(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST; size++)
        for (int n_hosts = 1; n_hosts <= 9; n_hosts++)
            for (int spread = 1; spread <= 8; spread += 3) {
                int host[MOST];
                const int n = make_hosts(size, n_hosts, spread, host);
                struct layout l;

                layout_init(&l, size, host);
                check_places(&l, host);
                check_tree(&l, host, n);
                layout_fini(&l);
            }
}

/* Four hosts, of which the first has lost a rank whose place a spare of the last has taken. */
static void test_a_spare_elsewhere(void **state)
{
    static const int host[] = {0, 0, 1, 0, 2, 2, 2, 2, 3, 3, 3, 3, 1, 1, 1, 1};
    static const int order[] = {0, 1, 3, 2, 12, 13, 14, 15, 4, 5, 6, 7, 8, 9, 10, 11};
    static const int parent[] = {-1, 0, 0, 0, 3, 3, 5, 3, 0, 8, 8, 10, 8, 12, 12, 14};
    struct layout l;

    (void)state;
    layout_init(&l, ARRAY_LEN(host), host);
    assert_memory_equal(l.order, order, sizeof order);
    assert_memory_equal(l.parent, parent, sizeof parent);
    assert_true(layout_is_kin(&l, 2, 0));
    assert_true(layout_is_kin(&l, 4, 0));
    assert_true(layout_is_kin(&l, 8, 4));
    assert_false(layout_is_kin(&l, 2, 3));
    assert_false(layout_is_kin(&l, 5, 5));
    layout_fini(&l);
}

/* One host: the tree of the ranks' numbers. */
static void test_one_host(void **state)
{
    static const int host[MOST];
    struct layout l;

    (void)state;
    layout_init(&l, MOST, host);
    for (int r = 1; r < MOST; r++) {
        assert_int_equal(l.order[r], r);
        assert_int_equal(l.parent[r], r & (r - 1));
    }
    layout_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_a_spare_elsewhere),
        cmocka_unit_test(test_one_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
