/* 20 steps of training from the same weights, on the same samples, as PyTorch's; and where the
 * backend can record, the same bits by launching a recorded step.
 *
 *     test_golden [GOLDEN.JSON] */
#include "../test.h"

#include <jansson.h>
#include <math.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "golden_backend.h"
#include "golden_data.h"
#include "model/model.h"
#include "op/control.h"
#include "program/program.h"
#include "train/update.h"

/* Relative, of every step's loss; PyTorch's own float32 is within 1e-6 of its float64. */
#define LOSS_TOLERANCE 1e-4

static const struct golden_case {
    const char *name;
    const char *model; /* what the job file says of it */
    const char *extra; /* more of the job file */
} cases[] = {
    {"lenet", "{arch: lenet}", ""},
    {"lenet5", "{arch: lenet5}", ""},
    {"mlp", "{arch: mlp}", ""},
    {"mlp_momentum", "{arch: mlp}", ""},
    {"mlp_nesterov", "{arch: mlp}", ""},
    {"mlp_weight_decay", "{arch: mlp}", ""},
    {"mlp_weight_decay_momentum", "{arch: mlp}", ""},
    {"mlp_clip_norm", "{arch: mlp}", "train: {clip_norm: 0.5}\n"},
    {"mlp_label_smoothing", "{arch: mlp}", "train: {label_smoothing: 0.1}\n"},
    {"mlp_mean_squared_error", "{arch: mlp, loss: mse}", ""},
    {"mlp_tanh", "{arch: mlp, activation: tanh}", ""},
    {"mlp_sigmoid", "{arch: mlp, activation: sigmoid}", ""},
    {"mlp_gelu", "{arch: mlp, activation: gelu}", ""},
    {"mlp_batch_norm", "{arch: mlp, batch_norm: true}", ""},
};

static const struct model_input input = {{28, 28, 1}, GOLDEN_CLASSES};

/* One model in training, without a trainer: its parts, put together by hand. */
struct rig {
    struct job *job;
    struct backend *backend;
    struct layout *layout;
    struct state *state;
    struct buffers *buffers;
    struct update *update;
    struct program *training, *evaluation;
    struct recording *step; /* NULL: kernels are run one by one */
    double losses[GOLDEN_STEPS];
};

static json_t *golden;

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->msg);
}

/* `fields` of the golden run, as they are named in the job file. */
static struct job *make_job(const struct golden_case *c, json_t *run)
{
    static const char *const fields[] = {"lr", "momentum", "weight_decay"};
    struct buf text = {0};
    struct job *job;
    struct err err;

    buf_printf(&text, "model: %s\ndata: {format: digits}\n%soptimizer: {", c->model, c->extra);
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (json_object_get(run, fields[i]))
            buf_printf(&text, "%s: %.17g, ", fields[i],
                       json_number_value(json_object_get(run, fields[i])));
    buf_printf(&text, "nesterov: %s}\n",
               json_is_true(json_object_get(run, "nesterov")) ? "true" : "false");
    must(job_parse((const char *)text.data, text.len, c->name, NULL, &job, &err), &err);
    buf_fini(&text);
    return job;
}

static struct graph *make_graph(const struct rig *r, int64_t batch, int training)
{
    struct graph *g;
    struct err err;

    must(model_build(r->job, &input, batch, training, 0, &g, &err), &err);
    if (training)
        must(program_differentiate(g, &err), &err);
    return g;
}

static struct program *make_program(struct rig *r, int64_t batch, int training)
{
    struct program *p;
    struct err err;

    must(program_new(r->backend, make_graph(r, batch, training), r->layout, &p, &err), &err);
    must(buffers_fit(r->buffers, program_arena_bytes(p), &err), &err);
    return p;
}

static void rig_init(struct rig *r, const struct golden_case *c, json_t *run)
{
    struct program_spaces spaces;
    struct graph *g;
    struct err err;

    r->job = make_job(c, run);
    must(golden_backend_open(&r->backend, &err), &err);
    g = make_graph(r, 1, 1);
    must(layout_new(g, 1 << 20, &r->layout, &err), &err);
    graph_free(g);
    must(state_new(r->backend, r->layout, r->job->optimizer.momentum > 0, &r->state, &err), &err);
    must(state_init(r->state, r->job, &err), &err); /* running statistics */
    must(buffers_new(r->backend, r->state, 0, &r->buffers, &err), &err);
    must(update_new(r->job, r->backend, r->state, r->buffers, &r->update, &err), &err);
    r->training = make_program(r, GOLDEN_BATCH, 1);
    r->evaluation = make_program(r, 4, 0);
    spaces = buffers_spaces(r->buffers, r->state);
    must(program_bind(r->training, &spaces, r->buffers->arena, &err), &err);
    must(program_bind(r->evaluation, &spaces, r->buffers->arena, &err), &err);
}

static void rig_fini(struct rig *r)
{
    backend_recording_free(r->backend, r->step);
    program_free(r->training);
    program_free(r->evaluation);
    update_free(r->update);
    buffers_free(r->buffers);
    state_free(r->state);
    layout_free(r->layout);
    backend_close(r->backend);
    job_free(r->job);
}

static const struct segment *segment_of(const struct rig *r, const char *name)
{
    for (int i = 0; i < r->layout->n_params; i++)
        if (!strcmp(r->layout->param[i].name, name))
            return &r->layout->param[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void put(const struct rig *r, void *to, const void *from, size_t n_bytes)
{
    struct err err;

    must(backend_copy_in(r->backend, to, from, n_bytes, &err), &err);
}

static void get(const struct rig *r, void *to, const void *from, size_t n_bytes)
{
    struct err err;

    must(backend_copy_out(r->backend, to, from, n_bytes, &err), &err);
}

static void put_weights(struct rig *r, json_t *run)
{
    json_t *list = json_object_get(run, "parameters"), *p;
    size_t t;

    assert_int_equal(json_array_size(list), r->layout->n_params);
    json_array_foreach(list, t, p)
    {
        const struct segment *s = segment_of(r, json_string_value(json_object_get(p, "name")));
        json_t *value = json_object_get(p, "value");
        float *w = xmalloc(sizeof *w * (size_t)s->length);

        if (!value)
            golden_weight(w, s->length, t, (float)json_real_value(json_object_get(p, "bound")));
        for (int64_t i = 0; value && i < s->length; i++)
            w[i] = (float)json_number_value(value);
        put(r, r->state->param + s->offset, w, sizeof *w * (size_t)s->length);
        free(w);
    }
}

static void put_samples(const struct rig *r, struct program *p, uint64_t first)
{
    static float x[GOLDEN_BATCH * GOLDEN_PIXELS];
    static int32_t y[GOLDEN_BATCH];
    const int64_t n = program_batch(p);

    for (int64_t i = 0; i < n; i++) {
        golden_image(x + i * GOLDEN_PIXELS, first + (uint64_t)i);
        y[i] = golden_label(first + (uint64_t)i);
    }
    put(r, program_x(p), x, sizeof *x * (size_t)n * GOLDEN_PIXELS);
    put(r, program_labels(p), y, sizeof *y * (size_t)n);
}

static void run_all(struct program *p)
{
    struct err err;

    for (int i = 0; i < program_n_stages(p); i++)
        must(program_run_stage(p, i, &err), &err);
}

static void queue_step(struct rig *r)
{
    struct err err;

    run_all(r->training);
    must(update_pack(r->update, &err), &err);
    must(update_apply(r->update, &err), &err);
}

static void record_step(struct rig *r)
{
    struct err err;

    must(backend_record_begin(r->backend, &err), &err);
    queue_step(r);
    must(backend_record_end(r->backend, &r->step, &err), &err);
}

/* The mean loss of step k, which is then applied. */
static double train_step(struct rig *r, int k)
{
    static const double zero[METRIC_COUNT];
    float sums[CONTROL_LEN];
    struct control control;
    struct err err;
    struct step_scalars scalars = {
        .seed = 1,
        .step = (uint64_t)k,
        .loss_scale = 1.0f / GOLDEN_BATCH,
        .rate = (float)r->job->optimizer.lr,
        .clip_norm = (float)r->job->train.clip_norm,
        .first_update = k == 0,
    };

    put(r, r->buffers->outcome->metrics, zero, sizeof zero);
    put(r, r->buffers->scalars, &scalars, sizeof scalars);
    put_samples(r, r->training, (uint64_t)k * GOLDEN_BATCH);
    if (r->step)
        must(backend_launch(r->backend, r->step, &err), &err);
    else
        queue_step(r);
    get(r, sums, r->buffers->control, sizeof sums);
    control_read(sums, &control);
    assert_int_equal(control.n_samples, GOLDEN_BATCH);
    return control_loss(control.loss) / GOLDEN_BATCH;
}

static void assert_near(const char *run, const char *what, size_t i, double seen, double want,
                        double tolerance)
{
    if (!(fabs(seen - want) <= tolerance))
        fail_msg("%s: %s %zu is %.9g, PyTorch's %.9g", run, what, i, seen, want);
}

static void check_norm(const struct rig *r, const char *run, json_t *norms, size_t k)
{
    double want = json_real_value(json_array_get(norms, k)), check[2];

    get(r, check, r->buffers->outcome->check, sizeof check);
    if (norms)
        assert_near(run, "gradient norm", k, sqrt(check[0]), want, 1e-4 * want);
}

static void check_logits(struct rig *r, const char *run, json_t *want)
{
    float seen[4 * GOLDEN_CLASSES];

    put_samples(r, r->evaluation, 0);
    run_all(r->evaluation);
    get(r, seen, program_logits(r->evaluation), sizeof seen);
    for (size_t n = 0; n < 4; n++)
        for (size_t c = 0; c < GOLDEN_CLASSES; c++)
            assert_near(run, "logit", n * GOLDEN_CLASSES + c, (double)seen[n * GOLDEN_CLASSES + c],
                        json_real_value(json_array_get(json_array_get(want, n), c)), 2e-4);
}

static void check_running(struct rig *r, const char *run, json_t *want, const char *name)
{
    const struct segment *s = NULL;

    for (int i = 0; i < r->layout->n_states && want; i++)
        if (!strcmp(r->layout->state[i].name, name))
            s = &r->layout->state[i];
    assert_true(!want || s);
    for (size_t i = 0; i < json_array_size(want); i++) {
        float seen;

        get(r, &seen, r->state->stats + s->offset + (int64_t)i, sizeof seen);
        assert_near(run, name, i, (double)seen, json_real_value(json_array_get(want, i)), 1e-5);
    }
}

/* From the beginning, by launches: every loss has the same bits. */
static void check_recorded(const struct rig *eager, const struct golden_case *c, json_t *run)
{
    struct rig r = {0};

    rig_init(&r, c, run);
    record_step(&r);
    put_weights(&r, run);
    for (int k = 0; k < GOLDEN_STEPS; k++) {
        r.losses[k] = train_step(&r, k);
        if (memcmp(&r.losses[k], &eager->losses[k], sizeof *r.losses) != 0)
            fail_msg("%s: loss %d is %.17g by a recorded step, %.17g by its kernels", c->name, k,
                     r.losses[k], eager->losses[k]);
    }
    rig_fini(&r);
}

static void test_case(void **state)
{
    const struct golden_case *c = *state;
    json_t *run = json_object_get(json_object_get(golden, "runs"), c->name);
    json_t *losses = json_object_get(run, "losses");
    struct rig r = {0};

    assert_int_equal(json_array_size(losses), GOLDEN_STEPS);
    rig_init(&r, c, run);
    put_weights(&r, run);
    for (int k = 0; k < GOLDEN_STEPS; k++) {
        double want = json_real_value(json_array_get(losses, (size_t)k));

        r.losses[k] = train_step(&r, k);
        assert_near(c->name, "loss", (size_t)k, r.losses[k], want, LOSS_TOLERANCE * want);
        check_norm(&r, c->name, json_object_get(run, "gradient_norms"), (size_t)k);
    }
    check_logits(&r, c->name, json_object_get(run, "logits"));
    check_running(&r, c->name, json_object_get(run, "running_mean"), "bn1.running_mean");
    check_running(&r, c->name, json_object_get(run, "running_var"), "bn1.running_var");
    if (backend_can_record(r.backend))
        check_recorded(&r, c, run);
    rig_fini(&r);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : GOLDEN_JSON;
    struct CMUnitTest tests[ARRAY_LEN(cases)];
    json_error_t error;
    int rc;

    rc = golden_backend_find();
    if (rc != 0)
        return rc;
    golden = json_load_file(path, 0, &error);
    if (!golden) {
        fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_case, .initial_state = (void *)&cases[i]};
    rc = cmocka_run_group_tests_name("golden", tests, NULL, NULL);
    json_decref(golden);
    return rc;
}
