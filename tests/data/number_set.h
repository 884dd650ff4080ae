/* number_set - a data set whose sample i is the number i, for the tests of the loader; it can fail,
 * and be made to wait.  And loaders over it, whose batches follow from the sampler's definition. */
#ifndef TESTS_DATA_NUMBER_SET_H
#define TESTS_DATA_NUMBER_SET_H

#include <semaphore.h>

#include "../test.h"

#include "data/loader.h"

struct fake {
    struct dataset base;
    int64_t fail_at;        /* sample that cannot be read, -1: none */
    int64_t also;           /* another one; 0: none */
    sem_t *started, *go_on; /* not NULL: tell that a row was asked for; wait before giving it */
};

static inline int fake_row(const struct dataset *ds, int64_t i, int field, void *room,
                           const void **row, struct err *err)
{
    const struct fake *f = container_of(ds, struct fake, base);
    const float x[2] = {(float)i, -(float)i};

    if (f->started && field == 0)
        sem_post(f->started);
    while (f->go_on && field == 0 && sem_wait(f->go_on) != 0)
        ;
    if (i == f->fail_at || (f->also && i == f->also))
        return err_set(err, ERR_IO, "sample %lld cannot be read", (long long)i);
    if (field == 0)
        memcpy(room, x, sizeof x);
    else
        *(uint8_t *)room = (uint8_t)(i % 7);
    *row = room;
    return 0;
}

static inline void fake_close(struct dataset *ds) { (void)ds; }

static const struct dataset_ops fake_ops = {.name = "fake", .row = fake_row, .close = fake_close};

enum { N = 103, SEED = 5 };

#define FAKE                                                                                       \
    {                                                                                              \
        .base = {.ops = &fake_ops,                                                                 \
                 .n_samples = N,                                                                   \
                 .room_bytes = 2 * sizeof(float),                                                  \
                 .spec = {2,                                                                       \
                          {{"x", SAMPLE_INPUT, DTYPE_F32, {1, {2}}, 0, DTYPE_F32, SAMPLE_AS_IS},   \
                           {"y", SAMPLE_CLASS, DTYPE_I32, {0, {0}}, 7, DTYPE_U8, SAMPLE_AS_IS}}}}, \
        .fail_at = -1                                                                              \
    }

static inline struct loader *new_loader(const struct fake *f, int64_t max_batch, int n_slots)
{
    const struct loader_options o = {
        .dataset = &f->base, .max_batch = max_batch, .n_slots = n_slots};
    struct loader *l = NULL;
    struct err err;

    assert_int_equal(loader_new(&l, &o, &err), 0);
    return l;
}

static inline void start_ok(struct loader *l, const struct sampler *s, int accumulate, int n_ranks,
                            int rank, int64_t first, int64_t end)
{
    struct err err;

    if (loader_start_train(l, s, accumulate, n_ranks, rank, first, end, &err) < 0)
        fail_msg("%s", err.msg);
}

static inline const struct batch *next_ok(struct loader *l)
{
    const struct batch *b = NULL;
    struct err err;
    int rc = loader_next(l, &b, &err);

    if (rc)
        fail_msg("loader_next returned %d", rc);
    return b;
}

static inline void expect_end(struct loader *l)
{
    const struct batch *b;
    struct err err;

    for (int twice = 0; twice < 2; twice++)
        assert_int_equal(loader_next(l, &b, &err), LOADER_END);
}

static inline void check_values(const struct batch *b)
{
    const float *x = b->field[0];
    const int32_t *y = b->field[1];

    for (int64_t i = 0; i < b->n; i++) {
        assert_true(x[2 * i] == (float)b->index[i]);
        assert_true(x[2 * i + 1] == -(float)b->index[i]);
        assert_int_equal(y[i], b->index[i] % 7);
    }
}

/* All fields of a batch follow from the sampler's definition. */
static inline void check_batch(const struct batch *b, const struct sampler *s, int64_t step,
                               int n_ranks, int rank, int accumulate, int micro)
{
    struct sampler_step at = sampler_at(s, step);
    struct span part = sampler_micro(&at, n_ranks, rank, accumulate, micro);
    int64_t index[N];

    assert_int_equal(b->step, step);
    assert_int_equal(b->micro, micro);
    assert_int_equal(b->epoch, at.epoch);
    assert_int_equal(b->n_global, at.n);
    assert_int_equal(b->n, part.n);
    assert_int_equal(b->first, part.first);
    sampler_list(s, &at, part, index);
    assert_memory_equal(b->index, index, (size_t)b->n * sizeof *index);
    check_values(b);
}

#endif
