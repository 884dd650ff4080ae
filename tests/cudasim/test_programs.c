/* Whole models run as programs on the simulated GPU, and their logits, metrics, gradients and next
 * states are compared with those of the naive backend.
 *
 * Device memory is closed to the host all the while, and no work is done before the end of a run.
 * So program/ must not look into a buffer, and must not rely on an order that a stream does not
 * give. */
#include "../test.h"

#include <math.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "ref_backend.h"
#include "rig.h"
#include "sim.h"

static void expect_near(struct backend *b, const void *device, const void *want, int64_t n,
                        double most, const char *what)
{
    float *seen = xmalloc((size_t)n * sizeof *seen + 1);
    const float *w = want;

    rig_must(backend_copy_out(b, seen, device, (size_t)n * sizeof *seen, &rig_err));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)seen[i] - (double)w[i]) <= 5e-5 * most))
            fail_msg("%s[%lld] is %g, want %g", what, (long long)i, (double)seen[i], (double)w[i]);
    free(seen);
}

static double largest(const float *v, int64_t n)
{
    double most = 1e-2;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)v[i]));
    return most;
}

struct device {
    struct backend *b;
    struct program *p;
    struct program_spaces s;
    void *arena;
};

static void open_device(struct device *d, const struct rig *ref, struct graph *g)
{
    const struct layout *l = ref->layout;
    unsigned char *ones;
    size_t n_bytes;

    rig_must(cuda_open(0, &d->b, &rig_err));
    container_of(d->b, struct cuda, base)->max_blocks = 3;
    rig_must(program_new(d->b, g, l, &d->p, &rig_err));
    n_bytes = program_arena_bytes(d->p);
    ones = xmalloc(n_bytes + 1);
    memset(ones, 0xff, n_bytes);
    d->arena = rig_put(d->b, ones, n_bytes);
    free(ones);
    d->s = (struct program_spaces){
        .param = rig_put(d->b, ref->spaces.param, (size_t)l->n_total * 4),
        .grad = rig_put(d->b, ref->spaces.grad, (size_t)l->n_grad * 4),
        .state = rig_put(d->b, ref->spaces.state, (size_t)l->n_state_total * 4),
        .shadow = rig_put(d->b, ref->spaces.shadow, (size_t)l->n_state_total * 4),
        .metrics = rig_put(d->b, ref->metrics, sizeof ref->metrics),
        .scalars = rig_put(d->b, &ref->scalars, sizeof ref->scalars),
    };
    rig_must(program_bind(d->p, &d->s, d->arena, &rig_err));
}

static void close_device(struct device *d)
{
    program_free(d->p);
    backend_free(d->b, d->arena);
    backend_free(d->b, d->s.param);
    backend_free(d->b, d->s.grad);
    backend_free(d->b, d->s.state);
    backend_free(d->b, d->s.shadow);
    backend_free(d->b, d->s.metrics);
    backend_free(d->b, d->s.scalars);
    backend_close(d->b);
    assert_int_equal(sim_open_things(), 0);
}

static void run_stages(const struct device *d)
{
    for (int i = 0; i < program_n_stages(d->p); i++)
        rig_must(program_run_stage(d->p, i, &rig_err));
}

/* There is one rank, so nothing is added between stages. */
static void run_device(const struct device *d, const struct rig *ref)
{
    const struct graph *g = ref->graph;
    const uint64_t launches = sim_launches();

    rig_must(backend_copy_in(d->b, program_input(d->p, 0), program_input(ref->program, 0),
                             (size_t)shape_elements(&g->value[g->input[0]].shape) * 4, &rig_err));
    rig_must(backend_copy_in(d->b, program_input(d->p, 1), program_input(ref->program, 1),
                             (size_t)g->batch * 4, &rig_err));
    run_stages(d);
    rig_must(backend_sync(d->b, &rig_err));
    assert_true(sim_launches() > launches);
}

static void compare(const struct device *d, struct rig *ref)
{
    const struct graph *g = ref->graph;
    const int64_t n_logits = shape_elements(&g->value[g->logits].shape);
    const float *logits = program_logits(ref->program);
    double metrics[METRIC_COUNT], most;

    if (!g->n_forward)
        expect_near(d->b, program_logits(d->p), logits, n_logits, largest(logits, n_logits),
                    "logits");
    rig_must(backend_copy_out(d->b, metrics, d->s.metrics, sizeof metrics, &rig_err));
    for (int i = 0; i < METRIC_COUNT; i++)
        assert_true(fabs(metrics[i] - ref->metrics[i]) <= 1e-5 * (1 + ref->metrics[i]));
    if (!g->training)
        return;
    expect_near(d->b, d->s.shadow, ref->spaces.shadow, ref->layout->n_state_total, 1, "states");
    most = 0;
    for (int i = 0; i < ref->layout->n_params; i++)
        most = fmax(
            most, largest(rig_grad(ref, ref->layout->param[i].name), ref->layout->param[i].length));
    for (int i = 0; i < ref->layout->n_params; i++) {
        const struct segment *seg = &ref->layout->param[i];

        expect_near(d->b, (float *)d->s.grad + seg->offset, rig_grad(ref, seg->name), seg->length,
                    most, seg->name);
    }
}

/* A run is recorded once and launched twice.  Each launch gives the same numbers, by one call of
 * the runtime. */
static void check_recording(const struct device *d, struct rig *ref)
{
    static const double zero[METRIC_COUNT];
    const uint64_t before = sim_launches();
    struct recording *r = NULL;
    uint64_t calls;

    rig_must(backend_record_begin(d->b, &rig_err));
    run_stages(d);
    rig_must(backend_record_end(d->b, &r, &rig_err));
    rig_must(backend_sync(d->b, &rig_err));
    assert_true(sim_launches() == before); /* recording did no work */
    for (int turn = 0; turn < 2; turn++) {
        int busy = 0, rc;

        rig_must(backend_copy_in(d->b, d->s.metrics, zero, sizeof zero, &rig_err));
        calls = sim_calls();
        rig_must(backend_launch(d->b, r, &rig_err));
        assert_true(sim_calls() == calls + 1);
        while ((rc = backend_poll(d->b, &rig_err)) == 1)
            busy++;
        rig_must(rc);
        assert_true(busy > 2);
        compare(d, ref);
    }
    backend_recording_free(d->b, r);
}

static void check(const struct rig_model *model, const struct sample_spec *in, int64_t batch,
                  int training, uint64_t seed)
{
    struct device d;
    struct rig ref, layout; /* evaluation shares the layout of training */

    rig_open(&layout, REF_FUSE_NONE, rig_graph(model, in, 1, 1, 1), NULL);
    rig_open(&ref, REF_FUSE_NONE, rig_graph(model, in, batch, training, 1), layout.layout);
    rig_init(&ref, 8);
    rig_fill(&ref, 5);
    sim_set_seed(seed);
    open_device(&d, &ref, rig_graph(model, in, batch, training, 1));
    rig_run(&ref);
    run_device(&d, &ref);
    compare(&d, &ref);
    check_recording(&d, &ref);
    close_device(&d);
    rig_close(&ref);
    rig_close(&layout);
}

static void test_models(void **state)
{
    static const struct sample_spec small = SAMPLE_IMAGES(14, 14, 1, 5),
                                    colour = SAMPLE_IMAGES(5, 3, 2, 4);
    struct rig_model lenet = rig_model(&arch_lenet), mlp = rig_model(&arch_mlp);

    (void)state;
    mlp.mlp.hidden.n = 2;
    mlp.mlp.hidden.v[0] = 9;
    mlp.mlp.hidden.v[1] = 6;
    for (int training = 0; training < 2; training++) {
        check(&lenet, &small, 5, training, 2);
        for (int a = ACT_RELU; a <= ACT_LEAKY_RELU; a++) {
            mlp.mlp.activation = (enum activation)a;
            mlp.mlp.dropout = a % 2 ? 0.25 : 0;
            mlp.mlp.batch_norm = a == ACT_SIGMOID || a == ACT_GELU;
            mlp.o.loss = a == ACT_TANH ? LOSS_MSE : LOSS_CROSS_ENTROPY;
            check(&mlp, &colour, 6, training, (uint64_t)a);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
