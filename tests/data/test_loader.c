/* loader: batches follow the sampler's plan, hold each field, and errors come in their place. */
#include "../test.h"

#include "base/alloc.h"
#include "data/loader.h"
#include "memory_set.h"
#include "number_set.h"

static void check_run(struct loader *l, const struct sampler *s, int accumulate, int n_ranks,
                      int rank, int64_t first, int64_t end)
{
    start_ok(l, s, accumulate, n_ranks, rank, first, end);
    for (int64_t step = first; step < end; step++) {
        const struct sampler_step at = sampler_at(s, step);

        for (int m = 0; m < sampler_n_micros(&at, n_ranks, rank, accumulate); m++) {
            check_batch(next_ok(l), s, step, n_ranks, rank, accumulate, m);
            loader_release(l);
        }
    }
    expect_end(l);
}

static const struct {
    int64_t batch;
    int drop_last, accumulate, n_ranks;
    int64_t first, end;
} runs[] = {
    {16, 0, 1, 1, 0, 14}, {16, 0, 1, 3, 5, 16}, {16, 1, 2, 3, 0, 13},  {16, 0, 4, 5, 6, 8},
    {200, 0, 1, 2, 0, 3}, {1, 0, 1, 2, 0, 110}, {10, 0, 3, 40, 9, 12}, {103, 1, 1, 4, 0, 2},
    {10, 0, 7, 2, 9, 13}, {16, 0, 1, 2, 7, 7}, /* nothing to do */
};

/* One loader goes through all cases, so it also changes ranks, steps and sizes. */
static void check_all_runs(int n_workers, int is_slow)
{
    struct fake f = FAKE;
    struct loader *l;

    f.base.n_workers = n_workers;
    f.base.is_slow = is_slow;
    l = new_loader(&f, 4, 3);
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        const struct sampler s = {.n_samples = N,
                                  .global_batch = runs[i].batch,
                                  .seed = SEED,
                                  .drop_last = runs[i].drop_last};

        for (int rank = 0; rank < runs[i].n_ranks; rank++)
            check_run(l, &s, runs[i].accumulate, runs[i].n_ranks, rank, runs[i].first, runs[i].end);
    }
    loader_free(l);
}

/* Whatever the number of workers. */
static void batches_follow_the_plan(void **state)
{
    (void)state;
    for (int n_workers = 0; n_workers < 6; n_workers++)
        for (int is_slow = 0; is_slow < 2; is_slow++)
            check_all_runs(n_workers, is_slow);
}

/* Given parts, which the caller may forget once the work has begun. */
static void parts_may_be_given(void **state)
{
    struct fake f = FAKE;
    struct loader *l = new_loader(&f, 4, 3);
    const int64_t bound[] = {0, 9, 9, 16};
    int64_t given[ARRAY_LEN(bound)];
    struct sampler s = {.n_samples = N, .global_batch = 16, .seed = SEED, .bound = given};

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        memcpy(given, bound, sizeof given);
        s.bound = given;
        start_ok(l, &s, 1, 3, rank, 0, 7);
        memset(given, 0, sizeof given);
        s.bound = bound;
        for (int64_t step = 0; step < 7; step++) {
            check_batch(next_ok(l), &s, step, 3, rank, 1, 0);
            loader_release(l);
        }
        expect_end(l);
    }
    loader_free(l);
}

/* With fixed shares ranks have different numbers of batches. */
static void shares_may_be_fixed(void **state)
{
    struct fake f = FAKE;
    struct loader *l = new_loader(&f, 4, 3);
    const struct sampler s = {.n_samples = N, .global_batch = 16, .seed = SEED, .n_shares = 5};

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        start_ok(l, &s, 2, 3, rank, 5, 8);
        for (int64_t step = 5; step < 8; step++)
            for (int m = 0; m < (rank < 2 ? 4 : 2); m++) {
                check_batch(next_ok(l), &s, step, 3, rank, 2, m);
                loader_release(l);
            }
        expect_end(l);
    }
    loader_free(l);
}

/* The parts of all ranks are whole batches, but for the last one. */
static void a_pass_of_whole_batches(void **state)
{
    struct fake f = FAKE;
    struct loader *l = new_loader(&f, 0, 0);
    int64_t at = 0;
    const struct batch *b;
    struct err err;

    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(loader_start_pass(l, 10, 10, 4, rank, &err), 0);
        while (loader_next(l, &b, &err) == 0) {
            assert_int_equal(b->first, at);
            assert_int_equal(b->n, at + 10 <= N ? 10 : N - at);
            at += b->n;
            loader_release(l);
        }
    }
    assert_int_equal(at, N);
    loader_free(l);
}

/* All ranks' passes together: each sample once, in order. */
static void a_pass_has_each_sample_once(void **state)
{
    struct fake f = FAKE;
    struct loader *l = new_loader(&f, 0, 0);
    struct err err;

    (void)state;
    for (int n_ranks = 1; n_ranks <= 120; n_ranks += 17) {
        int64_t next = 0;

        for (int rank = 0; rank < n_ranks; rank++) {
            const struct batch *b;

            assert_int_equal(loader_start_pass(l, 10, 1, n_ranks, rank, &err), 0);
            for (int64_t k = 0; loader_next(l, &b, &err) == 0; k++) {
                assert_in_range(b->n, 1, 10);
                assert_int_equal(b->step, k);
                assert_int_equal(b->first, next);
                assert_int_equal(b->n_global, N);
                assert_int_equal(b->epoch, 0);
                for (int64_t i = 0; i < b->n; i++)
                    assert_int_equal(b->index[i], next++);
                check_values(b);
                loader_release(l);
            }
        }
        assert_int_equal(next, N);
    }
    loader_free(l);
}

/* Whole global batches of the first epoch go to the ranks in turn, as far as is wanted. */
static void batches_are_dealt_out(void **state)
{
    enum { BATCH = 10, END = 8, RANKS = 3 };
    const struct sampler s = {.n_samples = N, .global_batch = BATCH, .seed = SEED};
    const struct fake f = FAKE;
    struct loader *l = new_loader(&f, 1, 0);
    struct err err;

    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(loader_start_turns(l, &s, RANKS, rank, END, &err), 0);
        for (int64_t k = rank; k < END; k += RANKS) {
            const struct sampler_step at = sampler_at(&s, k);
            const struct batch *b = next_ok(l);
            int64_t index[BATCH];

            sampler_list(&s, &at, (struct span){0, BATCH}, index);
            assert_int_equal(b->n, BATCH);
            assert_int_equal(b->step, k);
            assert_int_equal(b->epoch, 1);
            assert_int_equal(b->first, 0);
            assert_memory_equal(b->index, index, sizeof index);
            loader_release(l);
        }
        expect_end(l);
    }
    assert_int_equal(loader_start_turns(l, &s, RANKS, 2, 1, &err),
                     0); /* fewer batches than ranks */
    expect_end(l);
    assert_int_equal(loader_start_turns(l, &s, RANKS, 3, END, &err), ERR_ARG);
    loader_free(l);
}

/* Several batches may be held; they stay as they are until released. */
static void held_batches_stay(void **state)
{
    struct fake f = FAKE;
    struct loader *l = new_loader(&f, 8, 3);
    const struct sampler s = {.n_samples = N, .global_batch = 8, .seed = SEED};
    const struct batch *held[3];

    (void)state;
    start_ok(l, &s, 1, 1, 0, 0, 100);
    for (int64_t step = 0; step < 99; step += 3) {
        for (int i = 0; i < 3; i++)
            held[i] = next_ok(l);
        for (int i = 0; i < 3; i++) {
            check_batch(held[i], &s, step + i, 1, 0, 1, 0);
            assert_int_equal((uintptr_t)held[i]->field[0] % 64, 0);
        }
        for (int i = 0; i < 3; i++)
            loader_release(l);
    }
    loader_free(l);
}

static void nothing_is_allocated_per_batch(void **state)
{
    struct fake f = FAKE;
    struct loader *l = new_loader(&f, 8, 0);
    const struct sampler s = {.n_samples = N, .global_batch = 8, .seed = SEED};
    uint64_t before;

    (void)state;
    before = alloc_count();
    start_ok(l, &s, 1, 1, 0, 0, 500);
    for (int i = 0; i < 500; i++) {
        next_ok(l);
        loader_release(l);
    }
    expect_end(l);
    assert_int_equal(alloc_count(), before);
    start_ok(l, &s, 1, 1, 0, 0, 500); /* fits as well */
    assert_int_equal(alloc_count(), before);
    loader_free(l);
}

/* The batches before the bad sample are delivered, then the error, until the next start. */
static void check_errors(int n_workers)
{
    struct fake f = FAKE;
    struct loader *l;
    const struct sampler s = {.n_samples = N, .global_batch = 8, .seed = SEED};
    struct sampler_step at = sampler_at(&s, 4);
    const struct batch *b;
    struct err err;

    f.base.n_workers = n_workers;
    f.base.is_slow = n_workers > 1;
    l = new_loader(&f, 8, 0);
    sampler_list(&s, &at, (struct span){3, 1}, &f.fail_at);
    sampler_list(&s, &at, (struct span){5, 1}, &f.also);
    start_ok(l, &s, 1, 1, 0, 0, 13);
    for (int64_t step = 0; step < 4; step++) {
        check_batch(next_ok(l), &s, step, 1, 0, 1, 0);
        loader_release(l);
    }
    for (int twice = 0; twice < 2; twice++) {
        char *want = xasprintf("sample %lld cannot be read", (long long)f.fail_at);

        assert_int_equal(loader_next(l, &b, &err), ERR_IO);
        assert_string_equal(err.msg, want);
        free(want);
    }
    check_run(l, &s, 1, 1, 0, 5, 12);
    loader_free(l);
}

/* The first sample of the batch that fails is named, also where workers read several at once. */
static void errors_come_out_of_next(void **state)
{
    (void)state;
    for (int n_workers = 1; n_workers < 5; n_workers++)
        check_errors(n_workers);
}

static const struct {
    struct sampler s;
    int accumulate, n_ranks, rank;
    int64_t first, end;
    const char *want;
} refused[] = {
    {{N, 8}, 1, 2, 2, 0, 1, "rank 2 of 2, want 0 to 1"},
    {{N, 8}, 1, 2, -1, 0, 1, "rank -1 of 2, want 0 to 1"},
    {{N + 1, 8}, 1, 1, 0, 0, 1, "the sampler has 104 samples, the data set 103"},
    {{N, 0}, 1, 1, 0, 0, 1, "global batch is 0, want at least 1"},
    {{N, 8}, 0, 1, 0, 0, 1, "0 micro-batches a step, want at least 1"},
    {{N, 8}, 1, 1, 0, 3, 2, "steps from 3 up to 2, want a range from 0 on"},
};

static void impossible_work_is_refused(void **state)
{
    struct fake f = FAKE;
    struct loader *l = new_loader(&f, 8, 0);
    const struct loader_options bad = {.dataset = &f.base, .n_slots = 1};
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        assert_int_equal(loader_start_train(l, &refused[i].s, refused[i].accumulate,
                                            refused[i].n_ranks, refused[i].rank, refused[i].first,
                                            refused[i].end, &err),
                         ERR_ARG);
        assert_string_equal(err.msg, refused[i].want);
        expect_end(l);
    }
    assert_int_equal(loader_start_pass(l, 0, 1, 1, 0, &err), ERR_ARG);
    assert_int_equal(loader_start_pass(l, 1, 0, 1, 0, &err), ERR_ARG);
    assert_int_equal(loader_start_pass(l, 1, 1, 1, 1, &err), ERR_ARG);
    loader_free(l);
    assert_int_equal(loader_new(&l, &bad, &err), ERR_ARG);
    assert_string_equal(err.msg, "1 batches ahead, want 2 to 64");
}

static void no_memory_is_an_error(void **state)
{
    struct fake f = FAKE;
    const struct loader_options o = {.dataset = &f.base, .max_batch = 8};
    const struct sampler s = {.n_samples = N, .global_batch = 16, .seed = SEED};
    struct loader *l;
    struct err err;

    (void)state;
    alloc_fail_at(1);
    assert_int_equal(loader_new(&l, &o, &err), ERR_NOMEM);
    l = new_loader(&f, 8, 0);
    alloc_fail_at(1);
    assert_int_equal(loader_start_train(l, &s, 1, 1, 0, 0, 9, &err), ERR_NOMEM);
    expect_end(l);
    check_run(l, &s, 1, 1, 0, 0, 9);
    loader_free(l);
}

/* Two sets: two rows of numbers with a target of numbers, and tokens with a class at each position.
 * Each field is there, in the type of its spec, and of the sample that the index names. */
static void batches_have_every_field(void **state)
{
    struct memory_set *sets[] = {regression_set(N), token_set(N)};
    const struct sampler s = {.n_samples = N, .global_batch = 8, .seed = SEED};
    struct err err;

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(sets); k++) {
        const struct loader_options o = {.dataset = &sets[k]->base, .max_batch = 2};
        const struct batch *b;
        struct loader *l;

        assert_int_equal(loader_new(&l, &o, &err), 0);
        start_ok(l, &s, 1, 1, 0, 0, 26); /* twice over the set */
        while (loader_next(l, &b, &err) == 0) {
            for (int i = 0; i < sets[k]->base.spec.n_fields; i++) {
                assert_int_equal((uintptr_t)b->field[i] % SAMPLE_ALIGN, 0);
                memory_set_check(sets[k], i, b->field[i], b->index, b->n);
            }
            loader_release(l);
        }
        loader_free(l);
        dataset_close(&sets[k]->base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_follow_the_plan),
        cmocka_unit_test(parts_may_be_given),
        cmocka_unit_test(shares_may_be_fixed),
        cmocka_unit_test(a_pass_of_whole_batches),
        cmocka_unit_test(a_pass_has_each_sample_once),
        cmocka_unit_test(batches_are_dealt_out),
        cmocka_unit_test(held_batches_stay),
        cmocka_unit_test(nothing_is_allocated_per_batch),
        cmocka_unit_test(errors_come_out_of_next),
        cmocka_unit_test(impossible_work_is_refused),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(batches_have_every_field),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
