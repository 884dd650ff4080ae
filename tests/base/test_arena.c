/* Tests of arena: its pieces are aligned, zeroed and disjoint, and it can be used again after it
 * was emptied. */
#include "../test.h"

#include "base/arena.h"

static void pieces_are_aligned_zeroed_and_apart(void **state)
{
    static const size_t sizes[] = {1, 15, 16, 17, 0, 1000, 16 << 10, (16 << 10) + 1, 100000, 3};
    enum { N = 400 };
    struct arena a;
    uint8_t *piece[N];

    (void)state;
    arena_init(&a);
    for (int i = 0; i < N; i++) {
        size_t n = sizes[(size_t)i % ARRAY_LEN(sizes)];

        piece[i] = arena_alloc(&a, n);
        assert_int_equal((uintptr_t)piece[i] % 16, 0);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(piece[i][k], 0);
        memset(piece[i], i & 0xFF, n);
    }
    for (int i = 0; i < N; i++) /* no piece overlaps another */
        for (size_t k = 0; k < sizes[(size_t)i % ARRAY_LEN(sizes)]; k++)
            assert_int_equal(piece[i][k], i & 0xFF);
    arena_fini(&a);
}

static void strings_and_copies(void **state)
{
    struct arena a = {0};
    int numbers[] = {1, 2, 3};

    (void)state;
    assert_string_equal(arena_strdup(&a, ""), "");
    assert_string_equal(arena_strdup(&a, "conv1.weight"), "conv1.weight");
    assert_string_equal(arena_printf(&a, "%s.%d", "layer", 12), "layer.12");
    assert_string_equal(arena_printf(&a, "%s", ""), "");
    assert_memory_equal(arena_copy(&a, numbers, sizeof numbers), numbers, sizeof numbers);
    assert_non_null(arena_copy(&a, NULL, 0));
    assert_int_equal(strlen(arena_printf(&a, "%*d", 50000, 1)), 50000);
    arena_fini(&a);
}

static void fini_allows_use_again_and_twice_is_fine(void **state)
{
    struct arena a;
    uint8_t *p;

    (void)state;
    arena_init(&a);
    memset(arena_alloc(&a, 5000), 0xAA, 5000);
    arena_fini(&a);
    p = arena_alloc(&a, 5000);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(p[i], 0);
    arena_fini(&a);
    arena_fini(&a);
    assert_null(a.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_zeroed_and_apart),
        cmocka_unit_test(strings_and_copies),
        cmocka_unit_test(fini_allows_use_again_and_twice_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
