/* Tests of the feed on the simulated GPU: every field of every batch reaches its program, in all
 * three ways to bring it there.  The host does not wait for the device in between, and the streams
 * run in any order. */
#include "../test.h"

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "data/memory_set.h"
#include "sim.h"
#include "step/feed.h"

enum { N = 2500, BATCH = 4, N_BATCHES = 12, KEEP_ALL = 1 << 30 };

/* A program whose inputs are the samples' fields, and which computes nothing. */
struct target {
    struct program *program;
    void *arena;
};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->msg);
}

static void target_new(struct target *t, struct backend *b, const struct sample_spec *spec)
{
    const struct program_spaces none = {0};
    struct graph *g = graph_new(BATCH, 0);
    struct err err;

    for (int i = 0; i < spec->n_fields; i++)
        (void)graph_input(g, spec->field[i].dtype, sample_batch_shape(&spec->field[i], BATCH),
                          spec->field[i].name);
    must(program_new(b, g, NULL, &t->program, &err), &err);
    must(backend_alloc(b, program_arena_bytes(t->program), "inputs", &t->arena, &err), &err);
    must(program_bind(t->program, &none, t->arena, &err), &err);
}

static void check_target(const struct target *t, struct backend *b, const struct memory_set *m,
                         const int64_t *index)
{
    for (int i = 0; i < m->base.spec.n_fields; i++) {
        const size_t n_bytes = BATCH * sample_field_bytes(&m->base.spec.field[i]);
        void *seen = xcalloc(1, n_bytes);
        struct err err;

        must(backend_copy_out(b, seen, program_input(t->program, i), n_bytes, &err), &err);
        memory_set_check(m, i, seen, index, BATCH);
        free(seen);
    }
}

/* Brings the batches of steps [0, N_BATCHES) to the device, each into its own program, and only
 * then looks at them. */
static void run(struct backend *b, struct memory_set *m, int64_t keep_bytes, enum feed_kind kind)
{
    const struct sampler s = {.n_samples = N, .global_batch = BATCH, .seed = 3, .drop_last = 1};
    struct target target[N_BATCHES];
    int64_t index[N_BATCHES][BATCH];
    struct feed *f;
    struct err err;

    for (int k = 0; k < N_BATCHES; k++)
        target_new(&target[k], b, &m->base.spec);
    must(feed_new(b, &m->base, 0, keep_bytes, &f, &err), &err);
    assert_int_equal(feed_kind(f), kind);
    must(feed_fit(f, BATCH, &err), &err);
    must(feed_start_train(f, &s, 1, 1, 0, 0, N_BATCHES, &err), &err);
    for (int k = 0; k < N_BATCHES; k++) {
        struct sampler_step at = sampler_at(&s, k);
        struct batch batch;

        must(feed_next(f, &batch, &err), &err);
        sampler_list(&s, &at, (struct span){0, BATCH}, index[k]);
        must(feed_put(f, target[k].program, &err), &err);
        must(feed_gather(f, target[k].program, &err), &err);
        if (k % 3)
            feed_ahead(f);
        if (k == 5) /* the loader fills all its slots again, a batch that was ahead included */
            must(feed_start_train(f, &s, 1, 1, 0, k + 1, N_BATCHES, &err), &err);
        if (k % 6 == 3) /* new memory, while the loader has the next batch ready */
            must(feed_fit(f, BATCH, &err), &err);
    }
    must(backend_sync(b, &err), &err);
    for (int k = 0; k < N_BATCHES; k++)
        check_target(&target[k], b, m, index[k]);
    feed_free(f);
    for (int k = 0; k < N_BATCHES; k++) {
        program_free(target[k].program);
        backend_free(b, target[k].arena);
    }
}

static struct memory_set *set_of(int which)
{
    return which == 0 ? regression_set(N) : which == 1 ? token_set(N) : image_set(N);
}

static void copied(void **state)
{
    struct backend *b;
    struct err err;

    (void)state;
    must(backend_open_cpu(1, &b, &err), &err);
    for (int which = 0; which < 3; which++) {
        struct memory_set *m = set_of(which);

        run(b, m, -1, FEED_COPY);
        dataset_close(&m->base);
    }
    backend_close(b);
}

static void on_device(int64_t keep_bytes, int is_slow, enum feed_kind kind)
{
    struct backend *b;
    struct err err;

    must(cuda_open(0, &b, &err), &err);
    for (int which = 0; which < 3; which++)
        for (uint64_t seed = 0; seed < 40; seed++) {
            struct memory_set *m = set_of(which);

            m->base.is_slow = is_slow;
            sim_set_order(seed);
            run(b, m, keep_bytes, kind);
            sim_set_order(0);
            dataset_close(&m->base);
        }
    backend_close(b);
    assert_int_equal(sim_open_things(), 0);
}

static void streamed(void **state)
{
    (void)state;
    on_device(0, 0, FEED_STREAM);
}

static void resident(void **state)
{
    (void)state;
    on_device(KEEP_ALL, 0, FEED_RESIDENT);
}

static void slow_sets_are_streamed(void **state)
{
    (void)state;
    on_device(KEEP_ALL, 1, FEED_STREAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copied),
        cmocka_unit_test(streamed),
        cmocka_unit_test(resident),
        cmocka_unit_test(slow_sets_are_streamed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
