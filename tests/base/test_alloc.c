/* Tests of alloc: memory is counted, aligned and zeroed, the n-th try_alloc fails when told to, and
 * the x*() functions abort if there is no memory. */
#include "../test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"

/* The sanitizers' allocators end the process instead of returning NULL, unless told otherwise. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }

static void try_alloc_is_aligned_and_zeroed(void **state)
{
    static const size_t sizes[] = {0, 1, 63, 64, 1000, (4u << 20) - 1, 4u << 20, (5u << 20) + 3};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct err err;
        void *p = NULL;
        size_t align = sizes[i] >= 4u << 20 ? 2u << 20 : 64;

        assert_int_equal(try_alloc(&p, sizes[i], "a test", &err), 0);
        assert_int_equal((uintptr_t)p % align, 0);
        for (size_t k = 0; k < sizes[i]; k += 61)
            assert_int_equal(((char *)p)[k], 0);
        memset(p, 0xFF, sizes[i]);
        free(p);
    }
}

static int n_resident(char *p, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_pages = n_bytes / page;
    unsigned char *is_resident = xcalloc(n_pages, 1);
    int n = 0;

    assert_int_equal(mincore(p, n_bytes, is_resident), 0);
    for (size_t i = 0; i < n_pages; i++)
        n += is_resident[i] & 1;
    free(is_resident);
    return n;
}

/* Once the first block is free, the C library takes smaller ones from its heap, so that the third
 * lies where the second was filled. */
static void large_blocks_take_memory_as_they_are_used(void **state)
{
    static const size_t sizes[] = {24 << 20, (5 << 20) + 3, (5 << 20) + 3, 4 << 20};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const size_t whole = sizes[i] >> 21 << 21;
        struct err err;
        void *p = NULL;

        assert_int_equal(try_alloc(&p, sizes[i], "a test", &err), 0);
        assert_int_equal(n_resident(p, whole), 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(((char *)p)[k], 0);
        memset(p, 0xFF, sizes[i]);
        assert_true(n_resident(p, whole) > 0);
        free(p);
    }
}

static void impossible_sizes_are_refused(void **state)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 2, (size_t)1 << 62};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct err err;
        void *p = &err;
        char want[128];

        assert_int_equal(try_alloc(&p, sizes[i], "the weights", &err), ERR_NOMEM);
        assert_ptr_equal(p, &err); /* set only on success */
        snprintf(want, sizeof want, "out of memory: %zu bytes wanted for the weights", sizes[i]);
        assert_string_equal(err.msg, want);
    }
}

static void the_nth_fails_and_only_it(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 5; n++) {
        alloc_fail_at(n);
        for (uint64_t i = 1; i <= 8; i++) {
            struct err err;
            void *p = NULL;

            assert_int_equal(try_alloc(&p, 10, "x", &err), i == n ? ERR_NOMEM : 0);
            free(p);
        }
    }
    alloc_fail_at(1);
    alloc_fail_at(0); /* switched off again */
    struct err err;
    void *p = NULL;

    assert_int_equal(try_alloc(&p, 10, "x", &err), 0);
    free(p);
}

static void *allocate_many(void *arg)
{
    intptr_t failed = 0;

    (void)arg;
    for (int i = 0; i < 2000; i++) {
        struct err err;
        void *p = NULL;

        failed += try_alloc(&p, 16, "x", &err) < 0;
        free(p);
    }
    return (void *)failed;
}

static void one_failure_among_threads(void **state)
{
    pthread_t thread[4];
    intptr_t failed = 0;

    (void)state;
    alloc_fail_at(3000);
    for (size_t i = 0; i < ARRAY_LEN(thread); i++)
        assert_int_equal(pthread_create(&thread[i], NULL, allocate_many, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(thread); i++) {
        void *result;

        pthread_join(thread[i], &result);
        failed += (intptr_t)result;
    }
    assert_int_equal(failed, 1);
}

static void each_allocation_counts_once(void **state)
{
    uint64_t before = alloc_count();
    void *p[6] = {xmalloc(0),    xmalloc(10),    xcalloc(3, 5),
                  xcalloc(0, 5), xstrdup("abc"), xasprintf("%d-%s", 12, "x")};

    (void)state;
    assert_int_equal(alloc_count() - before, 6);
    assert_string_equal(p[4], "abc");
    assert_string_equal(p[5], "12-x");
    for (int i = 0; i < 15; i++)
        assert_int_equal(((char *)p[2])[i], 0);
    p[1] = xrealloc(p[1], 100);
    assert_int_equal(alloc_count() - before, 7);
    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        assert_non_null(p[i]);
        free(p[i]);
    }
}

static void try_realloc_keeps_what_was(void **state)
{
    void *p = NULL;
    struct err err;

    (void)state;
    assert_int_equal(try_realloc(&p, 3, "it", &err), 0);
    memcpy(p, "ab", 3);
    alloc_fail_at(2);
    assert_int_equal(try_realloc(&p, 100, "it", &err), 0);
    assert_int_equal(try_realloc(&p, 200, "it", &err), ERR_NOMEM);
    assert_string_equal(err.msg, "out of memory: 200 bytes wanted for it");
    assert_int_equal(try_realloc(&p, SIZE_MAX, "it", &err), ERR_NOMEM);
    assert_string_equal(p, "ab");
    free(p);
}

static void too_large(void) { free(xmalloc(SIZE_MAX / 2)); }
static void product_overflows(void) { free(xcalloc(SIZE_MAX / 2 + 1, 2)); }

/* Runs in a child, which must die by SIGABRT even if the product of the sizes overflows. */
static void assert_aborts(void (*run)(void))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        signal(SIGABRT, SIG_DFL);
        fclose(stderr);
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void x_functions_never_return_null(void **state)
{
    (void)state;
    assert_aborts(too_large);
    assert_aborts(product_overflows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(try_alloc_is_aligned_and_zeroed),
        cmocka_unit_test(large_blocks_take_memory_as_they_are_used),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(the_nth_fails_and_only_it),
        cmocka_unit_test(one_failure_among_threads),
        cmocka_unit_test(each_allocation_counts_once),
        cmocka_unit_test(try_realloc_keeps_what_was),
        cmocka_unit_test(x_functions_never_return_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
