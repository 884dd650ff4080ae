/* Tests of our GPU kernels, compiled for the simulator, on every operator case, and of the backend
 * around them over the fake runtime. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/latch.h"
#include "library_ops.h"
#include "runner.h"
#include "sim.h"
#include "tensor/half.h"

static int is_ours(int op) { return !is_library_op(op); }

/* Opens a backend with at most max_blocks blocks; 0: the backend decides. */
static struct backend *open_sim(int max_blocks)
{
    struct backend *b;
    struct err err;

    assert_int_equal(cuda_open(0, &b, &err), 0);
    if (max_blocks)
        container_of(b, struct cuda, base)->max_blocks = max_blocks;
    return b;
}

/* The number of times that each case runs.  ASan looks for what is read or written out of place,
 * which the first run shows; it takes ten times as long. */
#ifdef __SANITIZE_ADDRESS__
enum { TURNS = 2, HALF_TURNS = 1 };
#else
enum { TURNS = 4, HALF_TURNS = 3 };
#endif

/* The threads run in order, in reverse and at random; the bytes must not depend on that. */
static void test_cases(void **state)
{
    static const int max_blocks[] = {2, 1000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(max_blocks); i++) {
        const struct op_runner r = {.b = open_sim(max_blocks[i]),
                                    .n_turns = TURNS,
                                    .before_run = sim_set_seed,
                                    .has = is_ours};

        assert_true(op_runner_cases(&r, i == 0) > 100);
        backend_close(r.b);
        assert_int_equal(sim_open_things(), 0);
    }
}

/* Half precision, with the parameters' gradients in F32 and in the same type. */
static void test_half_precision(void **state)
{
    static const struct case_types types[] = {
        {DTYPE_BF16, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F32}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct op_runner r = {.b = open_sim(i ? 1000 : 2),
                                    .n_turns = HALF_TURNS,
                                    .before_run = sim_set_seed,
                                    .has = is_ours,
                                    .types = types[i]};

        assert_true(op_runner_cases(&r, 0) > 80);
        backend_close(r.b);
        assert_int_equal(sim_open_things(), 0);
    }
}

static void test_out_of_memory(void **state)
{
    const struct op_runner r = {.b = open_sim(0), .has = is_ours};

    (void)state;
    op_runner_out_of_memory(&r);
    backend_close(r.b);
}

static int n_warnings;

static void count_warning(void *arg, const char *text)
{
    n_warnings++;
    assert_non_null(strstr(text, arg));
}

/* Make the kernel of one attention with samples of so many rows. */
static void make_attention(struct backend *b, int64_t length, float p)
{
    const union node_attr attr = {.attention = {.length = length, .heads = 1, .p = p}};
    struct graph *g = graph_new(1, 1);
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(length, 24), "qkv"),
                      p > 0 ? g->scalars : NO_VALUE};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT};
    struct kernel *k;
    struct err err;

    assert_int_equal(graph_node(g, OP_attention, &attr, in, 2, out, "attention", &err), 0);
    assert_int_equal(backend_make_kernel(b, g, &g->node[0], &k, &err), 0);
    k->ops->free(k);
    graph_free(g);
}

/* A slow attention is told once, and only where samples are long. */
static void test_slow_attention(void **state)
{
    static const struct {
        int64_t length;
        float p;
        const char *remedy; /* NULL: nothing is told */
    } rows[] = {
        {1024, 0.1f, "model.dropout: 0"}, {1024, 0, "precision: bfloat16"}, {64, 0.1f, NULL}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct plugin_choices c = {.warn = count_warning,
                                         .warn_arg = (void *)(uintptr_t)rows[i].remedy};
        struct backend *b = open_sim(0);

        n_warnings = 0;
        cuda_configure(b, &c);
        make_attention(b, rows[i].length, rows[i].p);
        make_attention(b, rows[i].length, rows[i].p);
        assert_int_equal(n_warnings, rows[i].remedy != NULL);
        backend_close(b);
    }
}

enum { ODD_LEN = 37, ODD_ROOM = ODD_LEN + 1 };

/* y = a + b, of which bit i of `odd` moves operand i by one element. */
static void add_at(struct backend *b, struct kernel *k, enum dtype type, unsigned odd)
{
    const size_t size = dtype_size(type);
    unsigned char *at[3], seen[ODD_ROOM * sizeof(float)];
    void *in[NODE_MAX_IN] = {0}, *out[NODE_MAX_OUT] = {0};
    struct err err;

    for (int i = 0; i < 3; i++) {
        for (int e = 0; e < ODD_ROOM; e++)
            real_put(seen, type, e, (float)(i == 2 ? -1 : e - (int)(odd >> i & 1)));
        assert_int_equal(backend_alloc(b, ODD_ROOM * size, "a test", (void **)&at[i], &err), 0);
        assert_int_equal(backend_copy_in(b, at[i], seen, ODD_ROOM * size, &err), 0);
    }
    in[ADD_A] = at[0] + (odd & 1) * size;
    in[ADD_B] = at[1] + (odd >> 1 & 1) * size;
    out[ADD_Y] = at[2] + (odd >> 2 & 1) * size;
    assert_int_equal(k->ops->bind(k, in, out, NULL, &err), 0);
    assert_int_equal(k->ops->run(k, &err), 0);
    assert_int_equal(backend_copy_out(b, seen, at[2], ODD_ROOM * size, &err), 0);
    for (int e = 0; e < ODD_ROOM; e++) {
        const int i = e - (int)(odd >> 2 & 1);

        assert_true(real_get(seen, type, e) == (float)(i >= 0 && i < ODD_LEN ? 2 * i : -1));
    }
    for (int i = 0; i < 3; i++)
        backend_free(b, at[i]);
}

/* Spans of shards may begin at any element, and `add` takes them. */
static void test_odd_addresses(void **state)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    struct backend *b = open_sim(0);

    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        const union node_attr attr = {0};
        struct graph *g = graph_new(1, 1);
        int in[2], out[NODE_MAX_OUT] = {NODE_NEW_OUT};
        struct kernel *k;
        struct err err;

        for (int i = 0; i < 2; i++)
            in[i] = graph_value(g, VALUE_INPUT, types[t], SHAPE(ODD_LEN), i ? "b" : "a");
        assert_int_equal(graph_node(g, OP_add, &attr, in, 2, out, "add", &err), 0);
        assert_int_equal(backend_make_kernel(b, g, &g->node[0], &k, &err), 0);
        for (unsigned odd = 0; odd < 8; odd++)
            add_at(b, k, types[t], odd);
        k->ops->free(k);
        graph_free(g);
    }
    backend_close(b);
    assert_int_equal(sim_open_things(), 0);
}

enum { SUM_ROWS = 139, SUM_COLS = 36 };

/* The statistics of [SUM_ROWS,c], of which the first SUM_COLS columns are the same for each c. */
static void sum_columns(struct backend *b, int c, double *sums)
{
    const union node_attr attr = {0};
    struct graph *g = graph_new(1, 1);
    const size_t n_bytes[] = {(size_t)SUM_ROWS * (size_t)c * sizeof(float),
                              (size_t)c * sizeof(float), (2 * (size_t)c + 1) * sizeof *sums};
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(SUM_ROWS, c), "x"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(c), "mean")};
    float *x = calloc((size_t)SUM_ROWS * (size_t)c, sizeof *x);
    void *at[4], *to_in[NODE_MAX_IN] = {0}, *to_out[NODE_MAX_OUT] = {0};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    struct kernel *k;
    struct err err;

    for (int i = 0; i < SUM_ROWS * c; i++) /* in double, each order has its own bits */
        x[i] = ldexpf(1.0f / (float)(i % c + i / c + 3), i / c * 7 % 40);
    assert_int_equal(graph_node(g, OP_batch_norm_stats, &attr, in, 2, out, "stats", &err), 0);
    assert_int_equal(backend_make_kernel(b, g, &g->node[0], &k, &err), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(backend_alloc(b, n_bytes[i], "a test", &at[i], &err), 0);
    assert_int_equal(backend_alloc(b, k->scratch_bytes, "a test", &at[3], &err), 0);
    assert_int_equal(backend_copy_in(b, at[0], x, n_bytes[0], &err), 0);
    to_in[BATCH_NORM_STATS_X] = at[0];
    to_in[BATCH_NORM_STATS_RUNNING_MEAN] = at[1]; /* fresh memory is zero */
    to_out[BATCH_NORM_STATS_SUMS] = at[2];
    assert_int_equal(k->ops->bind(k, to_in, to_out, at[3], &err), 0);
    assert_int_equal(k->ops->run(k, &err), 0);
    assert_int_equal(backend_copy_out(b, sums, at[2], n_bytes[2], &err), 0);
    k->ops->free(k);
    for (int i = 0; i < 4; i++)
        backend_free(b, at[i]);
    free(x);
    graph_free(g);
}

/* A column's sums have the same bits whether a thread adds up one column or four. */
static void test_bits_of_columns(void **state)
{
    double wide[2 * SUM_COLS + 1], single[2 * (SUM_COLS + 1) + 1];
    struct backend *b = open_sim(0);

    (void)state;
    sum_columns(b, SUM_COLS, wide);
    sum_columns(b, SUM_COLS + 1, single);
    assert_memory_equal(wide, single, SUM_COLS * sizeof *wide);
    assert_memory_equal(wide + SUM_COLS, single + SUM_COLS + 1, SUM_COLS * sizeof *wide);
    backend_close(b);
    assert_int_equal(sim_open_things(), 0);
}

/* Only a poison that is set writes the veto; an earlier veto stays. */
static void test_latch(void **state)
{
    static const struct {
        uint32_t poison;
        float before, after;
    } rows[] = {{0, 0, 0}, {1, 0, 1}, {7, 0, 1}, {0, 3, 3}, {1, 3, 1}};
    struct backend *b = open_sim(0);
    struct err err;
    float *veto;
    void *p;

    (void)state;
    assert_int_equal(backend_alloc(b, sizeof *veto, "a test", &p, &err), 0);
    veto = p;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        float seen = -1;

        assert_int_equal(backend_copy_in(b, veto, &rows[i].before, sizeof seen, &err), 0);
        assert_int_equal(
            latch_queue(container_of(b, struct cuda, base), &rows[i].poison, veto, &err), 0);
        assert_int_equal(backend_copy_out(b, &seen, veto, sizeof seen, &err), 0);
        assert_true(seen == rows[i].after);
    }
    backend_free(b, p);
    backend_close(b);
}

/* The stopwatch adds up its times.  The simulator's clock goes on by a microsecond at each read. */
static void test_stopwatch(void **state)
{
    struct backend *b = open_sim(0);
    int64_t seen[2];
    struct err err;
    void *watch;

    (void)state;
    assert_int_equal(backend_alloc(b, sizeof seen, "a test", &watch, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(backend_stopwatch(b, watch, 0, &err), 0);
        assert_int_equal(backend_stopwatch(b, watch, 1, &err), 0);
    }
    assert_int_equal(backend_copy_out(b, seen, watch, sizeof seen, &err), 0);
    assert_int_equal(seen[1], 3000);
    backend_free(b, watch);
    backend_close(b);
}

/* Copies go through both slots several times, and to odd addresses. */
static void test_copies(void **state)
{
    const size_t slot = (size_t)4 << 20;
    const size_t sizes[] = {1, slot - 1, slot, slot + 1, 5 * slot + 12345};
    struct backend *b = open_sim(0);
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        unsigned char *from = malloc(sizes[i]), *to = malloc(sizes[i]);
        void *p;

        for (size_t k = 0; k < sizes[i]; k++)
            from[k] = (unsigned char)(k * 2654435761u >> 13);
        assert_int_equal(backend_alloc(b, sizes[i] + 3, "a test", &p, &err), 0);
        assert_int_equal(backend_copy_out(b, to, p, sizes[i], &err), 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(to[k], 0); /* fresh memory is zero */
        assert_int_equal(backend_copy_in(b, (char *)p + 3, from, sizes[i], &err), 0);
        memcpy(to, from, sizes[i]);
        memset(from, 0, sizes[i]); /* copy_in has returned, so this may change */
        assert_int_equal(backend_copy_out(b, from, (char *)p + 3, sizes[i], &err), 0);
        assert_memory_equal(from, to, sizes[i]);
        backend_free(b, p);
        free(from);
        free(to);
    }
    backend_close(b);
    assert_int_equal(sim_open_things(), 0);
}

enum { N_BATCHES = 7, BATCH = 1000, LOADED = 0, TAKEN = 2 };

/* LANE_COPY brings batches into two buffers, and LANE_MAIN takes them from there.  Only marks order
 * the two: a wrong mark changes what arrives. */
static void test_lanes(void **state)
{
    struct backend *b = open_sim(0);
    float *pinned, *back, *stage[2], *all;
    struct err err;

    (void)state;
    assert_true(backend_queues(b) && backend_is_apart(b));
    assert_int_equal(backend_host_alloc(b, N_BATCHES * BATCH * 4, "in", (void **)&pinned, &err), 0);
    assert_int_equal(backend_host_alloc(b, N_BATCHES * BATCH * 4, "out", (void **)&back, &err), 0);
    assert_int_equal(backend_alloc(b, N_BATCHES * BATCH * 4, "all", (void **)&all, &err), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(backend_alloc(b, BATCH * 4, "stage", (void **)&stage[i], &err), 0);
    for (int i = 0; i < N_BATCHES * BATCH; i++)
        pinned[i] = (float)i;
    assert_int_equal(backend_passed(b, LOADED, &err), 0); /* never set */
    for (int i = 0; i < N_BATCHES; i++) {
        const int k = i % 2;

        assert_int_equal(backend_follow(b, LANE_COPY, TAKEN + k, &err), 0);
        assert_int_equal(backend_put(b, LANE_COPY, stage[k], pinned + i * BATCH, BATCH * 4, &err),
                         0);
        assert_int_equal(backend_mark(b, LANE_COPY, LOADED + k, &err), 0);
        assert_int_equal(backend_follow(b, LANE_MAIN, LOADED + k, &err), 0);
        assert_int_equal(backend_copy(b, all + i * BATCH, stage[k], BATCH * 4, &err), 0);
        assert_int_equal(backend_zero(b, stage[k], BATCH * 4, &err), 0);
        assert_int_equal(backend_mark(b, LANE_MAIN, TAKEN + k, &err), 0);
        assert_int_equal(backend_passed(b, TAKEN + k, &err), 1);
    }
    while (backend_passed(b, TAKEN + (N_BATCHES - 1) % 2, &err) == 1)
        continue;
    while (backend_poll(b, &err) == 1)
        continue;
    assert_int_equal(backend_copy_out(b, back, all, N_BATCHES * BATCH * 4, &err), 0);
    assert_memory_equal(back, pinned, N_BATCHES * BATCH * 4);
    backend_host_free(b, pinned);
    backend_host_free(b, back);
    backend_free(b, all);
    backend_free(b, stage[0]);
    backend_free(b, stage[1]);
    backend_close(b);
    assert_int_equal(sim_open_things(), 0);
}

/* Records nothing, launches that recording, and waits for it by polling. */
static int record(struct backend *b, struct err *err)
{
    struct recording *r = NULL;
    int rc = backend_record_begin(b, err);

    if (rc == 0)
        rc = backend_record_end(b, &r, err);
    if (rc == 0)
        rc = backend_launch(b, r, err);
    if (rc == 0)
        while ((rc = backend_poll(b, err)) == 1)
            continue;
    backend_recording_free(b, r);
    return rc;
}

static int use_lanes(struct backend *b, void *p, size_t n_bytes, void **pinned, struct err *err)
{
    int rc = backend_host_alloc(b, n_bytes, "a test", pinned, err);

    if (rc == 0)
        rc = backend_put(b, LANE_COPY, p, *pinned, n_bytes, err);
    if (rc == 0)
        rc = backend_mark(b, LANE_COPY, 1, err);
    if (rc == 0)
        rc = backend_follow(b, LANE_MAIN, 1, err);
    if (rc == 0)
        rc = backend_copy(b, (char *)p + n_bytes / 2, p, n_bytes / 2, err);
    if (rc == 0)
        rc = backend_zero(b, p, n_bytes, err);
    if (rc == 0)
        while ((rc = backend_passed(b, 1, err)) == 1)
            continue;
    return rc;
}

static int use_all(struct backend *b, struct err *err)
{
    float in[100] = {1}, out[100];
    void *p = NULL, *pinned = NULL;
    int rc = backend_alloc(b, sizeof in, "a test", &p, err);

    if (rc == 0)
        rc = use_lanes(b, p, sizeof in, &pinned, err);

    if (rc == 0)
        rc = backend_copy_in(b, p, in, sizeof in, err);
    if (rc == 0)
        rc = backend_copy_out(b, out, p, sizeof out, err);
    if (rc == 0)
        rc = backend_sync(b, err);
    if (rc == 0)
        rc = record(b, err);
    backend_host_free(b, pinned);
    backend_free(b, p);
    return rc;
}

/* Each call of the runtime fails once: there is an error each time, and never a leak. */
static void test_every_call_fails(void **state)
{
    int n_failed = 0, rc = -1;

    (void)state;
    for (uint64_t n = 1; rc < 0; n++) {
        struct backend *b = NULL;
        struct err err = {0};

        sim_fail_at(n);
        rc = cuda_open(0, &b, &err);
        if (rc == 0)
            rc = use_all(b, &err);
        sim_fail_at(0);
        backend_close(b);
        assert_int_equal(sim_open_things(), 0);
        if (rc == 0)
            break;
        n_failed++;
        assert_true(err.code == ERR_DEVICE || err.code == ERR_NOMEM);
        assert_true(strlen(err.msg) > 10);
    }
    assert_in_range(n_failed, 40, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_attention),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_half_precision),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_odd_addresses),
        cmocka_unit_test(test_bits_of_columns),
        cmocka_unit_test(test_latch),
        cmocka_unit_test(test_stopwatch),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_every_call_fails),
    };

    sim_limit_index(3000);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
