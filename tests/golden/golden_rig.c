/* golden_rig - puts the parts of a training together as the trainer does, and runs the golden
 * steps: inputs by golden_data.h, kernels one by one or one launch of a recorded step. */
#include "golden_rig.h"

#include "../test.h"

#include "base/alloc.h"
#include "op/control.h"
#include "optim/groups.h"
#include "optim/optimizer.h"
#include "step/programs.h"
#include "tensor/half.h"

static const struct sample_spec input = SAMPLE_IMAGES(28, 28, 1, GOLDEN_CLASSES);

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->msg);
}

static void put(struct golden_rig *r, void *to, const void *from, size_t n_bytes)
{
    struct err err;

    must(backend_copy_in(r->backend, to, from, n_bytes, &err), &err);
}

static void get(struct golden_rig *r, void *to, const void *from, size_t n_bytes)
{
    struct err err;

    must(backend_copy_out(r->backend, to, from, n_bytes, &err), &err);
}

void golden_rig_read(struct golden_rig *r, const void *from, enum dtype type, int64_t n, float *to)
{
    const size_t n_bytes = dtype_size(type) * (size_t)n;
    void *raw = xmalloc(n_bytes);

    get(r, raw, from, n_bytes);
    for (int64_t i = 0; i < n; i++)
        to[i] = real_get(raw, type, i);
    free(raw);
}

/* The job: the model, `extra`, and `fields` of the golden run, which have the job file's names. */
static struct job *make_job(const char *model, const char *extra, json_t *run)
{
    static const char *const fields[] = {"lr", "momentum", "weight_decay"};
    struct buf text = {0};
    struct job *job;
    struct err err;

    buf_printf(&text, "model: %s\ndata: {format: digits}\n%soptimizer: {", model, extra);
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (json_object_get(run, fields[i]))
            buf_printf(&text, "%s: %.17g, ", fields[i],
                       json_number_value(json_object_get(run, fields[i])));
    buf_printf(&text, "nesterov: %s}\n",
               json_is_true(json_object_get(run, "nesterov")) ? "true" : "false");
    must(job_parse((const char *)text.data, text.len, "golden", NULL, &job, &err), &err);
    buf_fini(&text);
    return job;
}

static struct graph *make_graph(const struct golden_rig *r, int64_t batch, int training)
{
    struct graph *g;
    struct err err;

    must(model_build(&r->job->model, &input, batch, training, 0, &g, &err), &err);
    if (training) {
        must(groups_freeze(&r->job->optimizer, g, &err), &err);
        must(program_differentiate(g, &err), &err);
    }
    must(program_set_precision(g, programs_precision(r->job, 0), &err), &err);
    return g;
}

static struct program *make_program(struct golden_rig *r, int64_t batch, int training)
{
    struct program *p;
    struct err err;

    must(program_new(r->backend, make_graph(r, batch, training), r->layout, &p, &err), &err);
    must(buffers_fit(r->buffers, program_arena_bytes(p), &err), &err);
    return p;
}

static const struct segment *segment_of(const struct golden_rig *r, const char *name)
{
    for (int i = 0; i < r->layout->n_params; i++)
        if (!strcmp(r->layout->param[i].name, name))
            return &r->layout->param[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void put_weights(struct golden_rig *r, json_t *run)
{
    json_t *list = json_object_get(run, "parameters"), *p;
    struct err err;
    size_t t;

    assert_int_equal(json_array_size(list), r->layout->n_params);
    json_array_foreach(list, t, p)
    {
        const struct segment *s = segment_of(r, json_string_value(json_object_get(p, "name")));
        float *to = xmalloc(sizeof *to * (size_t)s->length);
        json_t *value = json_object_get(p, "value");

        if (!value)
            golden_weight(to, s->length, t, (float)json_real_value(json_object_get(p, "bound")));
        for (int64_t i = 0; value && i < s->length; i++)
            to[i] = (float)json_number_value(value);
        put(r, (float *)state_data(r->state, &slot_parameters) + s->offset, to,
            sizeof *to * (size_t)s->length);
        free(to);
    }
    must(update_refresh(r->update, &err), &err);
}

void golden_rig_open(struct golden_rig *r, struct backend *b, const char *model, const char *extra,
                     json_t *run)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS];
    struct program_spaces spaces;
    struct graph *g;
    struct err err;

    *r = (struct golden_rig){.backend = b, .job = make_job(model, extra, run)};
    g = make_graph(r, 1, 1);
    must(layout_new(g, 1 << 20, &r->layout, &err), &err);
    graph_free(g);
    must(state_new(r->backend, r->layout, slot, optimizer_slots(&r->job->optimizer, slot),
                   &r->state, &err),
         &err);
    must(state_init(r->state, r->job, &err), &err); /* running statistics */
    must(buffers_new(r->backend, NULL, r->state, 0, &r->buffers, &err), &err);
    must(update_new(r->job, r->backend, r->state, r->buffers, &r->update, &err), &err);
    r->training = make_program(r, GOLDEN_BATCH, 1);
    r->evaluation = make_program(r, GOLDEN_EVALUATED, 0);
    spaces = buffers_spaces(r->buffers, r->state);
    must(program_bind(r->training, &spaces, r->buffers->arena, &err), &err);
    must(program_bind(r->evaluation, &spaces, r->buffers->arena, &err), &err);
    put_weights(r, run);
}

void golden_rig_close(struct golden_rig *r)
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

static void put_samples(struct golden_rig *r, struct program *p, uint64_t first)
{
    static float x[GOLDEN_BATCH * GOLDEN_PIXELS];
    int32_t y[GOLDEN_BATCH];
    const int64_t n = program_batch(p);

    for (int64_t i = 0; i < n; i++) {
        golden_image(x + i * GOLDEN_PIXELS, first + (uint64_t)i);
        y[i] = golden_label(first + (uint64_t)i);
        if (y[i] == r->job->data.ignore_index)
            y[i] = SAMPLE_IGNORED;
    }
    put(r, program_input(p, 0), x, sizeof *x * GOLDEN_PIXELS * (size_t)n);
    put(r, program_input(p, 1), y, sizeof *y * (size_t)n);
}

static void run_all(struct program *p)
{
    struct err err;

    for (int i = 0; i < program_n_stages(p); i++)
        must(program_run_stage(p, i, &err), &err);
}

static void queue_step(struct golden_rig *r)
{
    struct err err;

    run_all(r->training);
    must(update_pack(r->update, &err), &err);
    must(update_apply(r->update, &err), &err);
}

void golden_rig_record(struct golden_rig *r, json_t *run)
{
    struct err err;

    must(backend_record_begin(r->backend, &err), &err);
    queue_step(r);
    must(backend_record_end(r->backend, &r->step, &err), &err);
    put_weights(r, run);
}

double golden_rig_step(struct golden_rig *r, int k, int *applied)
{
    const struct step_scalars scalars = {
        .seed = 1,
        .step = (uint64_t)k,
        .n_targets = GOLDEN_BATCH,
        .loss_scale = 1.0f / GOLDEN_BATCH,
        .rate = (float)optimizer_lr(&r->job->optimizer),
        .clip_norm = (float)r->job->train.clip_norm,
        .n_updates = k,
        .stamp = step_stamp(k),
    };
    static const double zero[METRIC_COUNT];
    float vector[CONTROL_LEN];
    struct control control;
    double check[2];
    struct err err;

    put(r, r->buffers->numbers->metrics, zero, sizeof zero);
    put(r, &r->buffers->numbers->scalars, &scalars, sizeof scalars);
    put_samples(r, r->training, (uint64_t)k * GOLDEN_BATCH);
    if (r->step)
        must(backend_launch(r->backend, r->step, &err), &err);
    else
        queue_step(r);
    get(r, vector, r->buffers->control, sizeof vector);
    get(r, check, r->buffers->numbers->check, sizeof check);
    control_read(vector, &control);
    assert_true(control.n_targets <= GOLDEN_BATCH);
    assert_true(r->job->data.ignore_index >= 0 || control.n_targets == GOLDEN_BATCH);
    *applied = control.n_nonfinite == 0 && check[1] == 0;
    return control_loss(control.loss) / control_weight(vector);
}

void golden_rig_logits(struct golden_rig *r, float *to)
{
    const enum dtype type = programs_precision(r->job, 0).compute;

    put_samples(r, r->evaluation, 0);
    run_all(r->evaluation);
    golden_rig_read(r, program_logits(r->evaluation), type, GOLDEN_EVALUATED * GOLDEN_CLASSES, to);
}
