/* After 20 updates averaged weights are those of torch.optim.swa_utils.AveragedModel
 * (make_averages.py).
 *
 *     test_averages AVERAGES.JSON */
#include "../test.h"

#include <jansson.h>
#include <math.h>

#include "base/alloc.h"
#include "golden_backend.h"
#include "golden_data.h"
#include "golden_main.h"
#include "optim/groups.h"
#include "program/program.h"
#include "train/average.h"
#include "train/update.h"

#define TOLERANCE 1e-6

/* The model's parameters in PyTorch's order, which numbers the streams of values. */
static const char *const order[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};

static json_t *golden;

struct bench {
    struct backend *b;
    struct job *job;
    struct layout *layout;
    struct state *state;
    struct buffers *buffers;
    struct update *update;
    struct average *average;
    float *values, *grad; /* whole spaces, in host memory */
};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->msg);
}

static int64_t number(const char *key) { return json_integer_value(json_object_get(golden, key)); }

static uint64_t stream_of(const char *name)
{
    for (size_t t = 0; t < ARRAY_LEN(order); t++)
        if (!strcmp(order[t], name))
            return t;
    fail_msg("no parameter %s", name);
    return 0;
}

static size_t space_bytes(const struct bench *t)
{
    return sizeof(float) * (size_t)t->layout->n_trained;
}

static void put(struct bench *t, void *to, const void *from, size_t n_bytes)
{
    struct err err;

    must(backend_copy_in(t->b, to, from, n_bytes, &err), &err);
}

static void get(struct bench *t, const struct slot_def *slot)
{
    struct err err;

    must(backend_copy_out(t->b, t->values, state_data(t->state, slot), space_bytes(t), &err), &err);
}

static struct job *make_job(json_t *run)
{
    struct buf text = {0};
    struct job *job;
    struct err err;

    buf_printf(&text,
               "model: {arch: mlp, hidden: [5]}\ndata: {format: digits}\n"
               "train: {average: %s}\noptimizer: {lr: %.17g}\n",
               json_string_value(json_object_get(run, "average")),
               json_real_value(json_object_get(golden, "lr")));
    must(job_parse((const char *)text.data, text.len, "golden", NULL, &job, &err), &err);
    buf_fini(&text);
    return job;
}

static void make_layout(struct bench *t)
{
    const struct sample_spec input = SAMPLE_IMAGES(2, 3, 1, 4);
    struct graph *g;
    struct err err;

    must(model_build(&t->job->model, &input, 1, 1, 0, &g, &err), &err);
    must(program_differentiate(g, &err), &err);
    must(layout_new(g, 1 << 20, &t->layout, &err), &err);
    graph_free(g);
}

static void open_bench(struct bench *t, json_t *run)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS + 1];
    struct err err;
    int n;

    *t = (struct bench){.job = make_job(run)};
    must(golden_backend_open(&t->b, &err), &err);
    make_layout(t);
    n = optimizer_slots(&t->job->optimizer, slot);
    slot[n++] = &slot_average;
    must(state_new(t->b, t->layout, slot, n, &t->state, &err), &err);
    must(buffers_new(t->b, NULL, t->state, 0, &t->buffers, &err), &err);
    must(update_new(t->job, t->b, t->state, t->buffers, &t->update, &err), &err);
    must(average_new(t->job, t->state, t->buffers, number("steps_per_epoch"), number("steps"),
                     &t->average, &err),
         &err);
    t->values = xcalloc(1, space_bytes(t));
    t->grad = xcalloc(1, space_bytes(t));
    for (int i = 0; i < t->layout->n_params; i++) {
        const struct segment *s = &t->layout->param[i];

        golden_weight(t->values + s->offset, s->length, stream_of(s->name), 1);
    }
    put(t, state_data(t->state, &slot_parameters), t->values, space_bytes(t));
}

static void close_bench(struct bench *t)
{
    average_free(t->average);
    update_free(t->update);
    buffers_free(t->buffers);
    state_free(t->state);
    layout_free(t->layout);
    backend_close(t->b);
    job_free(t->job);
    free(t->values);
    free(t->grad);
}

/* The gradient of step k, by make_optimizers.py's formula. */
static void make_gradients(struct bench *t, int k)
{
    get(t, &slot_parameters);
    for (int i = 0; i < t->layout->n_params; i++) {
        const struct segment *s = &t->layout->param[i];
        const uint64_t stream = stream_of(s->name);
        float target[64], noise[64];

        assert_in_range(s->length, 1, 64);
        golden_weight(target, s->length, 100 + stream, 1);
        golden_weight(noise, s->length, 1000 + 16 * (uint64_t)k + stream, 1);
        for (int64_t e = 0; e < s->length; e++)
            t->grad[s->offset + e] = 0.5f * (t->values[s->offset + e] - target[e]) + noise[e];
    }
}

static void step(struct bench *t, int k)
{
    const struct step_scalars scalars = {
        .n_updates = k, .rate = (float)t->job->optimizer.lr, .stamp = step_stamp(k)};
    struct err err;

    make_gradients(t, k);
    put(t, t->buffers->grad, t->grad, space_bytes(t));
    put(t, &t->buffers->numbers->scalars, &scalars, sizeof scalars);
    must(update_apply(t->update, &err), &err);
    must(average_update(t->average, &err), &err);
}

static void test_run(void **state)
{
    json_t *run = *state, *want = json_object_get(run, "parameters");
    struct bench t;

    open_bench(&t, run);
    for (int k = 0; k < number("steps"); k++)
        step(&t, k);
    get(&t, &slot_average);
    assert_int_equal(json_object_size(want), t.layout->n_params);
    for (int i = 0; i < t.layout->n_params; i++) {
        const struct segment *s = &t.layout->param[i];
        json_t *values = json_object_get(want, s->name);

        assert_int_equal(json_array_size(values), s->length);
        for (int64_t e = 0; e < s->length; e++) {
            const double v = json_number_value(json_array_get(values, (size_t)e));

            if (!(fabs((double)t.values[s->offset + e] - v) <= TOLERANCE))
                fail_msg("%s[%d] is %.9g, PyTorch's %.9g", s->name, (int)e,
                         (double)t.values[s->offset + e], v);
        }
    }
    close_bench(&t);
}

int main(int argc, char **argv)
{
    return golden_main(argc, argv, "averages", &golden, test_run, (struct CMUnitTest){0});
}
