/* sampler: the permutation, the parts of ranks and micro-batches, and the plan of epochs are
 * compared with their definitions in data/sampler.h. */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "data/sampler.h"

/* ---- the permutation ---- */

static void check_permutation(int64_t n, int64_t epoch, uint8_t *seen)
{
    struct perm p;

    perm_init(&p, n, 7, epoch);
    memset(seen, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = perm_at(&p, i);

        if (at < 0 || at >= n || seen[at] || perm_find(&p, at) != i)
            fail_msg("n %lld: position %lld goes to %lld", (long long)n, (long long)i,
                     (long long)at);
        seen[at] = 1;
    }
}

static void every_small_size_is_permuted(void **state)
{
    uint8_t seen[4096];

    (void)state;
    for (int64_t n = 1; n <= 4096; n++)
        check_permutation(n, n % 5, seen);
}

static void larger_sizes_are_permuted(void **state)
{
    static const int64_t sizes[] = {4097, 60000, 65536, 65537, 99991, (1 << 20) - 1, 1 << 20};
    uint8_t *seen = xmalloc(1 << 20);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        check_permutation(sizes[i], 3, seen);
    free(seen);
}

static void huge_sizes_invert(void **state)
{
    static const int64_t sizes[] = {1000000000000, 1000000000039, ((int64_t)1 << 61) + 1,
                                    (int64_t)1 << 62};
    struct rng_stream r;

    (void)state;
    rng_stream_init(&r, 1, RNG_TEST, 0);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct perm p;

        perm_init(&p, sizes[i], 5, 2);
        for (int k = 0; k < 20000; k++) {
            int64_t x = (int64_t)rng_next_below(&r, (uint64_t)sizes[i]);
            int64_t y = perm_at(&p, x);

            assert_in_range(y, 0, sizes[i] - 1);
            assert_int_equal(perm_find(&p, y), x);
            assert_int_equal(perm_at(&p, perm_find(&p, x)), x);
        }
    }
}

/* Runs of a released version must stay repeatable. */
static void values_stay_as_they_are(void **state)
{
    static const int64_t small[8] = {34945, 12828, 49925, 7048, 25006, 21642, 20459, 1377};
    static const int64_t large[4] = {484723155307, 248981674311, 844676586511, 977666713114};
    struct perm p;

    (void)state;
    perm_init(&p, 60000, 1, 1);
    for (int i = 0; i < 8; i++)
        assert_int_equal(perm_at(&p, i), small[i]);
    perm_init(&p, 1000000000000, 1, 2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(perm_at(&p, i), large[i]);
}

/* The chi-square of `count`, which should be uniform, in standard deviations from its
 * expectation. */
static double excess(const int *count, int n_bins, double expected)
{
    double chi2 = 0;

    for (int i = 0; i < n_bins; i++)
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    return (chi2 - (n_bins - 1)) / sqrt(2.0 * (n_bins - 1));
}

/* Over many epochs each sample comes to each position equally often. */
static void positions_are_uniform(void **state)
{
    static const int sizes[] = {2, 3, 4, 5, 8, 10, 17, 64, 100};
    enum { N_EPOCHS = 20000 };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        int n = sizes[k];
        int *count = xcalloc((size_t)(n * n), sizeof *count);
        double e;

        for (int epoch = 1; epoch <= N_EPOCHS; epoch++) {
            struct perm p;

            perm_init(&p, n, 11, epoch);
            for (int i = 0; i < n; i++)
                count[i * n + perm_at(&p, i)]++;
        }
        for (int i = 0; i < n; i++) {
            e = excess(count + i * n, n, (double)N_EPOCHS / n);
            if (e > 6)
                fail_msg("n %d, position %d: %.1f standard deviations from uniform", n, i, e);
        }
        free(count);
    }
}

/* A sample does not depend on the one before it: differences of neighbours are uniform. */
static void neighbours_are_independent(void **state)
{
    enum { N = 1000, N_EPOCHS = 200 };
    int count[N] = {0};
    double e;

    (void)state;
    for (int epoch = 1; epoch <= N_EPOCHS; epoch++) {
        struct perm p;

        perm_init(&p, N, 3, epoch);
        for (int i = 0; i + 1 < N; i++)
            count[(perm_at(&p, i + 1) - perm_at(&p, i) + N) % N]++;
    }
    assert_int_equal(count[0], 0);
    e = excess(count + 1, N - 1, (double)N_EPOCHS);
    assert_true(fabs(e) < 6);
}

/* One changed bit of position, seed or epoch changes half of the result's bits. */
static void one_bit_changes_half(void **state)
{
    enum { BITS = 32, N = 2000 };
    const int64_t n = (int64_t)1 << BITS;
    struct rng_stream r;
    double changed[3] = {0};

    (void)state;
    rng_stream_init(&r, 2, RNG_TEST, 0);
    for (int k = 0; k < N; k++) {
        int64_t x = (int64_t)rng_next_below(&r, (uint64_t)n), y;
        uint64_t seed = rng_next_u32(&r);
        struct perm p, other_seed, other_epoch;

        perm_init(&p, n, seed, 8);
        perm_init(&other_seed, n, seed ^ 1u << k % 32, 8);
        perm_init(&other_epoch, n, seed, 9);
        y = perm_at(&p, x);
        changed[0] += __builtin_popcountll((uint64_t)(y ^ perm_at(&p, x ^ (int64_t)1 << k % BITS)));
        changed[1] += __builtin_popcountll((uint64_t)(y ^ perm_at(&other_seed, x)));
        changed[2] += __builtin_popcountll((uint64_t)(y ^ perm_at(&other_epoch, x)));
    }
    for (int i = 0; i < 3; i++)
        assert_true(fabs(changed[i] / N - BITS / 2.0) < 6 * sqrt(BITS / 4.0 / N));
}

/* ---- the plan ---- */

static void parts_cover_and_differ_by_one(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= 40; n++)
        for (int64_t parts = 1; parts <= 9; parts++) {
            int64_t next = 100, least = n / parts;

            for (int64_t i = 0; i < parts; i++) {
                struct span s = span_part((struct span){100, n}, parts, i);

                assert_int_equal(s.first, next);
                assert_in_range(s.n, least, least + 1);
                if (i > 0)
                    assert_true(s.n <= span_part((struct span){100, n}, parts, i - 1).n);
                next += s.n;
            }
            assert_int_equal(next, 100 + n);
        }
}

static void pieces_end_short(void **state)
{
    const struct span whole = {10, 7};

    (void)state;
    assert_int_equal(span_piece(whole, 3, 0).first, 10);
    assert_int_equal(span_piece(whole, 3, 1).n, 3);
    assert_int_equal(span_piece(whole, 3, 2).first, 16);
    assert_int_equal(span_piece(whole, 3, 2).n, 1);
    assert_int_equal(span_piece(whole, 3, 3).n, 0);
}

static const struct plan_case {
    int64_t n, batch;
    int drop_last;
    int64_t step;                             /* global */
    int64_t per_epoch, epoch, in_epoch, left; /* wanted */
} plan_cases[] = {
    {60000, 256, 0, 0, 235, 1, 0, 256},
    {60000, 256, 0, 234, 235, 1, 234, 96},
    {60000, 256, 0, 235, 235, 2, 0, 256},
    {60000, 256, 1, 234, 234, 2, 0, 256},
    {60000, 256, 1, 233, 234, 1, 233, 256},
    {60000, 256, 0, 2349, 235, 10, 234, 96},
    {64, 64, 0, 3, 1, 4, 0, 64},
    {64, 64, 1, 3, 1, 4, 0, 64},
    {10, 64, 0, 3, 1, 4, 0, 10},
    {1, 1, 0, 5, 1, 6, 0, 1},
    {1000000000000, 3, 0, 333333333333, 333333333334, 1, 333333333333, 1},
};

static void steps_fall_into_epochs(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(plan_cases); i++) {
        const struct plan_case *c = &plan_cases[i];
        const struct sampler s = {
            .n_samples = c->n, .global_batch = c->batch, .drop_last = c->drop_last};
        struct sampler_step at = sampler_at(&s, c->step);

        assert_int_equal(sampler_steps_per_epoch(&s), c->per_epoch);
        assert_int_equal(at.step, c->step);
        assert_int_equal(at.epoch, c->epoch);
        assert_int_equal(at.in_epoch, c->in_epoch);
        assert_int_equal(at.n, c->left);
    }
}

/* Without shuffling each epoch is the samples by their numbers. */
static void samples_may_come_in_order(void **state)
{
    const struct sampler s = {.n_samples = 10, .global_batch = 4, .seed = 3, .in_order = 1};
    int64_t index[4];

    (void)state;
    for (int64_t step = 0; step < 9; step++) {
        struct sampler_step at = sampler_at(&s, step);

        sampler_list(&s, &at, (struct span){1, at.n - 1}, index);
        for (int64_t i = 1; i < at.n; i++)
            assert_int_equal(index[i - 1], step % 3 * 4 + i);
    }
}

/* Collect the samples of one epoch, for n_ranks ranks with `accumulate` micro-batches, in rank
 * order. */
static void collect_epoch(const struct sampler *s, int64_t epoch, int n_ranks, int accumulate,
                          int64_t *out)
{
    int64_t n_steps = sampler_steps_per_epoch(s), most = 0, n = 0;

    for (int64_t g = (epoch - 1) * n_steps; g < epoch * n_steps; g++) {
        struct sampler_step at = sampler_at(s, g);
        int64_t in_step = 0;

        for (int rank = 0; rank < n_ranks; rank++)
            for (int m = 0; m < sampler_n_micros(&at, n_ranks, rank, accumulate); m++) {
                struct span part = sampler_micro(&at, n_ranks, rank, accumulate, m);

                assert_int_equal(part.first, in_step);
                sampler_list(s, &at, part, out + n + part.first);
                in_step += part.n;
                most = max_i64(most, part.n);
            }
        assert_int_equal(in_step, at.n);
        n += at.n;
    }
    assert_int_equal(most, sampler_largest_micro(s, n_ranks, accumulate));
}

/* Fixed shares are cut in the same way for any number of ranks, into as many micro-batches. */
static void fixed_shares(void **state)
{
    const struct sampler s = {.n_samples = 1003, .global_batch = 48, .seed = 9, .n_shares = 7};
    struct sampler with_ranks = s;
    int64_t alone[1003], together[1003];

    (void)state;
    with_ranks.n_shares = 0;
    for (int accumulate = 1; accumulate <= 3; accumulate++) {
        collect_epoch(&with_ranks, 2, 7, accumulate, alone);
        for (int n_ranks = 1; n_ranks <= 7; n_ranks++) {
            const struct sampler_step at = sampler_at(&s, 3), plain = sampler_at(&with_ranks, 3);
            int share = 0;

            collect_epoch(&s, 2, n_ranks, accumulate, together);
            assert_memory_equal(together, alone, sizeof alone);
            for (int rank = 0; rank < n_ranks; rank++)
                for (int m = 0; m < sampler_n_micros(&at, n_ranks, rank, accumulate); m++) {
                    const struct span got = sampler_micro(&at, n_ranks, rank, accumulate, m);
                    const struct span want = sampler_micro(&plain, 7, share / accumulate,
                                                           accumulate, share % accumulate);

                    assert_int_equal(got.first, want.first);
                    assert_int_equal(got.n, want.n);
                    share++;
                }
            assert_int_equal(share, 7 * accumulate);
        }
    }
}

/* Micro-batches that would be empty on all ranks do not exist.  Those that do exist are the first
 * of all, and their number is the same on all ranks. */
static void micros_without_samples(void **state)
{
    static const int64_t bound[] = {0, 1, 8, 10};
    static const struct {
        int64_t n;
        const int64_t *bound;
        int n_ranks, accumulate, want;
    } cases[] = {
        {10, NULL, 3, 1, 1},   {10, NULL, 3, 3, 3},      {10, NULL, 3, 4, 4},  {10, NULL, 3, 5, 4},
        {1, NULL, 3, 1000, 1}, {8, NULL, 1, 1000000, 8}, {10, bound, 3, 9, 7},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int n_ranks = cases[i].n_ranks, accumulate = cases[i].accumulate;
        const struct sampler s = {
            .n_samples = cases[i].n, .global_batch = 10, .bound = cases[i].bound};
        const struct sampler_step at = sampler_at(&s, 0);

        for (int rank = 0; rank < n_ranks; rank++) {
            assert_int_equal(sampler_n_micros(&at, n_ranks, rank, accumulate), cases[i].want);
            for (int m = cases[i].want; m < accumulate; m++)
                assert_int_equal(sampler_micro(&at, n_ranks, rank, accumulate, m).n, 0);
        }
    }
}

/* Given parts are those of a full batch; of a smaller one ranks have as much less. */
static void given_parts(void **state)
{
    static const int64_t bound[] = {0, 20, 20, 47, 48};
    const struct sampler s = {.n_samples = 1003, .global_batch = 48, .seed = 9, .bound = bound};
    const struct sampler_step full = sampler_at(&s, 0), last = sampler_at(&s, 20);

    (void)state;
    assert_int_equal(last.n, 43);
    for (int rank = 0; rank < 4; rank++) {
        struct span part = sampler_micro(&full, 4, rank, 1, 0);

        assert_int_equal(part.first, bound[rank]);
        assert_int_equal(part.n, bound[rank + 1] - bound[rank]);
        part = sampler_micro(&last, 4, rank, 1, 0);
        assert_int_equal(part.first, bound[rank] * 43 / 48);
        assert_int_equal(part.first + part.n, bound[rank + 1] * 43 / 48);
    }
    assert_int_equal(sampler_micro(&full, 4, 2, 2, 1).n, 13);
    assert_int_equal(sampler_largest_micro(&s, 4, 1), 27);
    assert_int_equal(sampler_largest_micro(&s, 4, 2), 14);
}

/* The parts follow each other, and all but the last one end with a whole piece. */
static void parts_of_whole_pieces(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= 40; n++)
        for (int64_t size = 1; size <= 7; size++)
            for (int64_t n_parts = 1; n_parts <= 9; n_parts++) {
                int64_t at = 5;

                for (int64_t i = 0; i < n_parts; i++) {
                    const struct span part =
                        span_part_of_pieces((struct span){5, n}, size, n_parts, i);

                    assert_int_equal(part.first, at);
                    at += part.n;
                    assert_true(part.n % size == 0 || at == 5 + n);
                }
                assert_int_equal(at, 5 + n);
            }
}

static void ranks_do_not_change_the_order(void **state)
{
    static const int ways[][2] = {{2, 1}, {3, 1}, {4, 2}, {7, 3}, {1, 5}, {50, 1}, {9, 9}};
    const struct sampler s = {.n_samples = 1003, .global_batch = 48, .seed = 9};
    int64_t alone[1003], together[1003];

    (void)state;
    for (int64_t epoch = 1; epoch <= 3; epoch++) {
        collect_epoch(&s, epoch, 1, 1, alone);
        for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
            collect_epoch(&s, epoch, ways[w][0], ways[w][1], together);
            assert_memory_equal(together, alone, sizeof alone);
        }
    }
}

static void an_epoch_has_each_sample_once(void **state)
{
    const struct sampler s = {.n_samples = 1003, .global_batch = 48, .seed = 9};
    int64_t order[2][1003];

    (void)state;
    for (int64_t epoch = 1; epoch <= 2; epoch++) {
        uint8_t seen[1003] = {0};

        collect_epoch(&s, epoch, 1, 1, order[epoch - 1]);
        for (int i = 0; i < 1003; i++)
            assert_int_equal(seen[order[epoch - 1][i]]++, 0);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
}

static const struct {
    struct sampler s;
    const char *want;
} refused[] = {
    {{.n_samples = 0, .global_batch = 1}, "0 samples, want at least 1"},
    {{.n_samples = 5, .global_batch = 0}, "global batch is 0, want at least 1"},
    {{.n_samples = 5, .global_batch = 6, .drop_last = 1},
     "global batch 6 is more than the 5 samples, so dropping the partial last step leaves none; "
     "take "
     "a smaller global_batch or drop_last: false"},
};

static void impossible_plans_are_refused(void **state)
{
    const struct sampler fine = {.n_samples = 5, .global_batch = 6};
    struct err err;

    (void)state;
    assert_int_equal(sampler_check(&fine, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        assert_int_equal(sampler_check(&refused[i].s, &err), ERR_ARG);
        assert_string_equal(err.msg, refused[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_size_is_permuted),
        cmocka_unit_test(larger_sizes_are_permuted),
        cmocka_unit_test(huge_sizes_invert),
        cmocka_unit_test(values_stay_as_they_are),
        cmocka_unit_test(positions_are_uniform),
        cmocka_unit_test(neighbours_are_independent),
        cmocka_unit_test(one_bit_changes_half),
        cmocka_unit_test(parts_cover_and_differ_by_one),
        cmocka_unit_test(pieces_end_short),
        cmocka_unit_test(steps_fall_into_epochs),
        cmocka_unit_test(samples_may_come_in_order),
        cmocka_unit_test(ranks_do_not_change_the_order),
        cmocka_unit_test(fixed_shares),
        cmocka_unit_test(micros_without_samples),
        cmocka_unit_test(given_parts),
        cmocka_unit_test(parts_of_whole_pieces),
        cmocka_unit_test(an_epoch_has_each_sample_once),
        cmocka_unit_test(impossible_plans_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
