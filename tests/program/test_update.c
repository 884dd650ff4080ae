/* test_update - a program of optimizer nodes over the engine's memory, and the search for the node
 * that made a number which is not finite. */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "op/control.h"
#include "op/op.h"
#include "op/update.h"
#include "ref_backend.h"
#include "rig.h"

enum { N = 37, N_STATE = 5 };

/* grad_check, sgd on two segments with their own decay, commit: as the engine builds it. */
struct update {
    struct backend *backend;
    struct program *program;
    struct step_scalars scalars;
    float param[N], grad[N], momentum[N], state[N_STATE], shadow[N_STATE], control[CONTROL_LEN];
    double check[2], segments[2][SEGMENT_COLUMNS];
    void *arena;
};

static struct err err;

static int input(struct graph *g, enum dtype dtype, int64_t n, const char *name)
{
    return graph_value(g, VALUE_INPUT, dtype, SHAPE(n), name);
}

static void open_update(struct update *u, float momentum, float decay, int nesterov)
{
    struct graph *g = graph_new(1, 1);
    union node_attr attr = {.number = {[SGD_ATTR_MOMENTUM] = (double)momentum,
                                       [SGD_ATTR_DAMPENING] = nesterov ? 0 : (double)0.2F,
                                       [SGD_ATTR_NESTEROV] = nesterov}};
    int rows = graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(2, SEGMENT_COLUMNS), "segments");
    int p = input(g, DTYPE_F32, N, "param"), d = input(g, DTYPE_F32, N, "grad");
    int m = momentum != 0 ? input(g, DTYPE_F32, N, "momentum") : NO_VALUE;
    int check = input(g, DTYPE_F64, 2, "check"), control = input(g, DTYPE_F32, CONTROL_LEN, "ctl");
    int shadow = input(g, DTYPE_F32, N_STATE, "shadow"), st = input(g, DTYPE_F32, N_STATE, "state");
    int out[NODE_MAX_OUT] = {check};
    struct program_spaces spaces = {.scalars = &u->scalars};

    *u = (struct update){.scalars = {.rate = 0.25F},
                         .segments = {{N / 3, 1, (double)decay}, {N, 1, (double)decay / 2}}};
    assert_int_equal(graph_node(g, OP_grad_check, NULL, &d, 1, out, "check", &err), 0);
    assert_int_equal(
        graph_node(g, OP_sgd, &attr,
                   (int[]){p, d, check, control, g->scalars, rows, NO_VALUE, NO_VALUE, NO_VALUE, m},
                   10, NULL, "sgd", &err),
        0);
    out[0] = st;
    assert_int_equal(graph_node(g, OP_commit, NULL, (int[]){shadow, check, control, g->scalars}, 4,
                                out, "commit", &err),
                     0);
    assert_int_equal(ref_open(REF_FUSE_ALL, &u->backend), 0);
    assert_int_equal(program_new(u->backend, g, NULL, &u->program, &err), 0);
    program_place(u->program, p, u->param);
    program_place(u->program, d, u->grad);
    if (m != NO_VALUE)
        program_place(u->program, m, u->momentum);
    program_place(u->program, check, u->check);
    program_place(u->program, rows, u->segments);
    program_place(u->program, control, u->control);
    program_place(u->program, shadow, u->shadow);
    program_place(u->program, st, u->state);
    assert_true(program_arena_bytes(u->program) <= 512); /* none of these lies in the arena */
    assert_int_equal(try_alloc(&u->arena, program_arena_bytes(u->program), "arena", &err), 0);
    assert_int_equal(program_bind(u->program, &spaces, u->arena, &err), 0);
    for (int i = 0; i < N; i++) {
        u->param[i] = test_uniform(1, (uint64_t)i);
        u->grad[i] = test_uniform(2, (uint64_t)i);
    }
    for (int i = 0; i < N_STATE; i++)
        u->shadow[i] = 10 + (float)i;
}

static void close_update(struct update *u)
{
    program_free(u->program);
    free(u->arena);
    backend_close(u->backend);
}

static void run_update(struct update *u)
{
    for (int i = 0; i < program_n_stages(u->program); i++) {
        assert_int_equal(program_stage(u->program, i)->kind, STAGE_RUN);
        assert_int_equal(program_run_stage(u->program, i, &err), 0);
    }
}

/* Two steps give the numbers of torch.optim.SGD's formula. */
static void sgd_steps(void **state)
{
    static const struct {
        float momentum, decay;
        int nesterov;
        float clip;
    } cases[] = {{0, 0, 0, 0},       {0, 0.1F, 0, 0},     {0.9F, 0, 0, 0},
                 {0.9F, 0.1F, 1, 0}, {0.5F, 0.01F, 0, 1}, {0, 0, 0, 1000}};

    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        struct update u;
        double p[N], buf[N], norm = 0, clip = 1;
        const double m = cases[c].momentum, dampening = cases[c].nesterov ? 0 : 0.2;

        open_update(&u, cases[c].momentum, cases[c].decay, cases[c].nesterov);
        u.scalars.clip_norm = cases[c].clip;
        for (int i = 0; i < N; i++) {
            p[i] = u.param[i];
            norm += (double)u.grad[i] * u.grad[i];
        }
        if (cases[c].clip > 0)
            clip = fmin(1, cases[c].clip / (sqrt(norm) + 1e-6));
        for (int step = 0; step < 2; step++) {
            u.scalars.n_updates = step;
            run_update(&u);
            for (int i = 0; i < N; i++) {
                double g = u.grad[i] * clip + u.segments[i >= N / 3][SEGMENT_DECAY] * p[i];

                if (m != 0) {
                    buf[i] = step == 0 ? g : m * buf[i] + (1 - dampening) * g;
                    g = cases[c].nesterov ? g + m * buf[i] : buf[i];
                }
                p[i] -= 0.25 * g;
                assert_true(fabs(u.param[i] - p[i]) < 1e-6);
            }
        }
        assert_true(fabs(u.check[0] - norm) < 1e-9 && u.check[1] == 0);
        for (int i = 0; i < N_STATE; i++)
            assert_true(u.state[i] == 10 + (float)i);
        close_update(&u);
    }
}

/* A gradient that is not finite, or another rank's loss that is not, changes nothing. */
static void bad_steps_are_not_applied(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct update u;

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct update before;

        open_update(&u, 0.9F, 0, 0);
        if (i < 3)
            u.grad[N - 1] = bad[i];
        else
            u.control[CONTROL_NONFINITE] = 1;
        before = u;
        run_update(&u);
        assert_true(u.check[1] == (i < 3));
        assert_memory_equal(u.param, before.param, sizeof u.param);
        assert_memory_equal(u.momentum, before.momentum, sizeof u.momentum);
        assert_memory_equal(u.state, before.state, sizeof u.state);
        close_update(&u);
    }
}

/* --- non-finite numbers --- */

static const struct sample_spec small = SAMPLE_IMAGES(14, 14, 1, 5);

static void open_lenet(struct rig *r, unsigned fusions)
{
    struct rig_model model = rig_model(&arch_lenet);

    rig_open(r, fusions, rig_graph(&model, &small, 2, 1, 1), NULL);
    rig_init(r, 1);
    rig_fill(r, 0);
}

static void expect_found(struct rig *r, const char *want)
{
    double metrics[METRIC_COUNT];
    char text[256] = "";

    rig_run(r);
    memcpy(metrics, r->metrics, sizeof metrics);
    assert_int_equal(program_find_nonfinite(r->program, text, sizeof text, &err), 1);
    if (!strstr(text, want))
        fail_msg("\"%s\" does not hold \"%s\"", text, want);
    assert_memory_equal(metrics, r->metrics, sizeof metrics);
}

static void finite_is_found_finite(void **state)
{
    char text[64];
    float *control;
    struct rig r;

    (void)state;
    open_lenet(&r, REF_FUSE_ALL);
    rig_run(&r);
    control = (float *)r.spaces.grad + r.layout->n_trained;
    control[CONTROL_STOP] = 3; /* the reduced vector must not change */
    assert_int_equal(program_find_nonfinite(r.program, text, sizeof text, &err), 0);
    assert_true(control[CONTROL_STOP] == 3);
    rig_close(&r);
}

static void nonfinite_is_named(void **state)
{
    char text[128];
    struct rig r;

    (void)state;
    open_lenet(&r, REF_FUSE_ALL);
    rig_param(&r, "conv2.weight", NULL)[3] = NAN;
    expect_found(&r, "conv2 (conv2d): input conv2.weight [50,20,5,5] element 3 is nan");
    rig_close(&r);

    open_lenet(&r, REF_FUSE_ALL);
    for (int i = 0; i < 128 * 50; i++)
        rig_param(&r, "fc1.weight", NULL)[i] = 3e38F;
    for (int i = 0; i < 128; i++)
        rig_param(&r, "fc1.bias", NULL)[i] = 3e38F;
    expect_found(&r, "fc1 (linear): output [2,128] element");
    rig_close(&r);

    open_lenet(&r, REF_FUSE_ALL);
    rig_param(&r, "conv2.bias", NULL)[0] = -INFINITY;
    expect_found(&r, "conv2.bias [50] element 0 is -inf");
    rig_close(&r);

    open_lenet(&r, REF_FUSE_NONE);
    rig_run(&r);
    ((float *)program_input(r.program, 0))[200] = INFINITY;
    assert_int_equal(program_find_nonfinite(r.program, text, sizeof text, &err), 1);
    assert_string_equal(text, "conv1 (conv2d): input x [2,14,14,1] element 200 is inf");
    rig_close(&r);
}

static void layout_must_fit(void **state)
{
    struct rig_model model = rig_model(&arch_lenet), other = rig_model(&arch_lenet5);
    struct graph *g = rig_graph(&model, &small, 2, 1, 1);
    struct program *p;
    struct layout *l;
    struct backend *b;

    (void)state;
    assert_int_equal(layout_new(g, 1, &l, &err), 0);
    graph_free(g);
    assert_int_equal(ref_open(0, &b), 0);
    assert_int_equal(program_new(b, rig_graph(&other, &small, 2, 1, 1), l, &p, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "conv1.weight is [6,1,5,5], the layout has [20,1,3,3]"));
    layout_free(l);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_steps),
        cmocka_unit_test(bad_steps_are_not_applied),
        cmocka_unit_test(finite_is_found_finite),
        cmocka_unit_test(nonfinite_is_named),
        cmocka_unit_test(layout_must_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
