/* 200 updates of each optimizer end where torch.optim's do (make_optimizers.py): with settings of
 * single parameters, frozen ones, and clipping.  Momentum follows a rate that changes.
 *
 *     test_optimizers OPTIMIZERS.JSON */
#include "../test.h"

#include <jansson.h>
#include <math.h>

#include "base/alloc.h"
#include "golden_backend.h"
#include "golden_data.h"
#include "golden_main.h"
#include "op/control.h"
#include "optim/groups.h"
#include "optim/schedule.h"
#include "program/program.h"
#include "train/programs.h"
#include "train/update.h"

#define TOLERANCE 1e-5 /* of a tensor's largest element */

/* The model's parameters in PyTorch's order, which numbers the streams of values. */
static const char *const order[] = {"fc1.weight", "fc1.bias",   "bn1.weight",
                                    "bn1.bias",   "fc2.weight", "fc2.bias"};

static json_t *golden;

struct bench {
    struct backend *b;
    struct job *job;
    struct layout *layout;
    struct state *state;
    struct buffers *buffers;
    struct update *update;
    float *param, *grad; /* the whole spaces, in host memory */
};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->msg);
}

static uint64_t stream_of(const char *name)
{
    for (size_t t = 0; t < ARRAY_LEN(order); t++)
        if (!strcmp(order[t], name))
            return t;
    fail_msg("no parameter %s", name);
    return 0;
}

static void put(struct bench *t, void *to, const void *from, size_t n_bytes)
{
    struct err err;

    must(backend_copy_in(t->b, to, from, n_bytes, &err), &err);
}

static void get_params(struct bench *t)
{
    struct err err;

    must(backend_copy_out(t->b, t->param, state_data(t->state, &slot_parameters),
                          sizeof(float) * (size_t)t->layout->n_total, &err),
         &err);
}

static void make_layout(struct bench *t)
{
    const struct sample_spec input = SAMPLE_IMAGES(2, 3, 1, 4);
    struct graph *g;
    struct err err;

    must(model_build(&t->job->model, &input, 1, 1, 0, &g, &err), &err);
    must(groups_freeze(&t->job->optimizer, g, &err), &err);
    must(program_differentiate(g, &err), &err);
    must(layout_new(g, 1 << 20, &t->layout, &err), &err);
    graph_free(g);
}

static struct job *make_job(json_t *run)
{
    struct buf text = {0};
    struct job *job;
    struct err err;

    buf_printf(&text,
               "model: {arch: mlp, hidden: [5], batch_norm: true}\ndata: {format: digits}\n"
               "train: {clip_norm: %.17g}\noptimizer: %s\n",
               json_number_value(json_object_get(run, "clip_norm")),
               json_string_value(json_object_get(run, "optimizer")));
    must(job_parse((const char *)text.data, text.len, "golden", NULL, &job, &err), &err);
    buf_fini(&text);
    return job;
}

static void open_bench(struct bench *t, json_t *run)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS];
    struct err err;
    int n;

    *t = (struct bench){.job = make_job(run)};
    must(golden_backend_open(&t->b, &err), &err);
    make_layout(t);
    n = optimizer_slots(&t->job->optimizer, slot);
    must(state_new(t->b, t->layout, slot, n, &t->state, &err), &err);
    must(buffers_new(t->b, NULL, t->state, 0, &t->buffers, &err), &err);
    must(update_new(t->job, t->b, t->state, t->buffers, &t->update, &err), &err);
    t->param = xcalloc((size_t)t->layout->n_total, sizeof(float));
    t->grad = xcalloc((size_t)t->layout->n_total, sizeof(float));
    for (int i = 0; i < t->layout->n_params; i++) {
        const struct segment *s = &t->layout->param[i];

        golden_weight(t->param + s->offset, s->length, stream_of(s->name), 1);
    }
    put(t, state_data(t->state, &slot_parameters), t->param,
        sizeof(float) * (size_t)t->layout->n_total);
}

static void close_bench(struct bench *t)
{
    update_free(t->update);
    buffers_free(t->buffers);
    state_free(t->state);
    layout_free(t->layout);
    backend_close(t->b);
    job_free(t->job);
    free(t->param);
    free(t->grad);
}

/* The gradient of step k, by make_optimizers.py's formula. */
static void make_gradients(struct bench *t, int k)
{
    for (int i = 0; i < t->layout->n_params && !t->layout->param[i].info.frozen; i++) {
        const struct segment *s = &t->layout->param[i];
        const uint64_t stream = stream_of(s->name);
        float target[64], noise[64];

        assert_in_range(s->length, 1, 64);
        golden_weight(target, s->length, 100 + stream, 1);
        golden_weight(noise, s->length, 1000 + 16 * (uint64_t)k + stream, 1);
        for (int64_t e = 0; e < s->length; e++)
            t->grad[s->offset + e] = 0.5f * (t->param[s->offset + e] - target[e]) + noise[e];
    }
}

static void step(struct bench *t, int k, double rate)
{
    const struct step_scalars scalars = {.n_updates = k,
                                         .rate = (float)rate,
                                         .clip_norm = (float)t->job->train.clip_norm,
                                         .stamp = step_stamp(k)};
    struct err err;

    get_params(t);
    make_gradients(t, k);
    put(t, t->buffers->grad, t->grad, sizeof(float) * (size_t)t->layout->n_trained);
    put(t, &t->buffers->numbers->scalars, &scalars, sizeof scalars);
    must(update_apply(t->update, &err), &err);
}

static void compare(const struct bench *t, json_t *want)
{
    assert_int_equal(json_object_size(want), t->layout->n_params);
    for (int i = 0; i < t->layout->n_params; i++) {
        const struct segment *s = &t->layout->param[i];
        json_t *values = json_object_get(want, s->name);
        double largest = 0, worst = 0;

        assert_int_equal(json_array_size(values), s->length);
        for (int64_t e = 0; e < s->length; e++) {
            const double v = json_number_value(json_array_get(values, (size_t)e));

            largest = fmax(largest, fabs(v));
            worst = fmax(worst, fabs((double)t->param[s->offset + e] - v));
        }
        if (!(worst <= TOLERANCE * largest))
            fail_msg("%s is up to %g away from PyTorch's; its largest element is %g", s->name,
                     worst, largest);
    }
}

static void test_run(void **state)
{
    json_t *run = *state;
    struct bench t;

    open_bench(&t, run);
    for (int k = 0; k < json_integer_value(json_object_get(golden, "steps")); k++)
        step(&t, k, t.job->optimizer.lr);
    get_params(&t);
    compare(&t, json_object_get(run, "parameters"));
    close_bench(&t);
}

/* Keras' form of momentum, in which velocities contain the rate, with Horovod's momentum
 * correction:  v = momentum * new rate / old rate * v - new rate * g;  w = w + v. */
static void keras_step(const struct bench *t, double momentum, double rate, double old_rate,
                       double *v, double *w)
{
    for (int64_t i = 0; i < t->layout->n_trained; i++) {
        v[i] = momentum * rate / old_rate * v[i] - rate * (double)t->grad[i];
        w[i] += v[i];
    }
}

static void test_momentum_is_corrected(void **state)
{
    static const char text[] = "{momentum: 0.9, lr: 0.01, scale_lr_by_ranks: true}\n"
                               "schedule: {warmup_epochs: 2, warmup_from_one_rank: true}";
    json_t *run = json_pack("{s:s, s:i}", "optimizer", text, "clip_norm", 0);
    const struct schedule_span span = {20, 60, 4, NULL};
    double *v, *w, old_rate = 1;
    struct bench t;

    (void)state;
    open_bench(&t, run);
    v = xcalloc((size_t)t.layout->n_total, sizeof *v);
    w = xcalloc((size_t)t.layout->n_total, sizeof *w);
    for (int64_t i = 0; i < t.layout->n_total; i++)
        w[i] = (double)t.param[i];
    for (int k = 0; k < 60; k++) {
        const double rate = schedule_rate(&t.job->schedule, &t.job->optimizer, &span, k);

        step(&t, k, rate);
        keras_step(&t, 0.9, rate, old_rate, v, w);
        old_rate = rate;
    }
    get_params(&t);
    for (int64_t i = 0; i < t.layout->n_total; i++)
        if (!(fabs((double)t.param[i] - w[i]) <= TOLERANCE))
            fail_msg("element %d: %g, want %g", (int)i, (double)t.param[i], w[i]);
    free(v);
    free(w);
    close_bench(&t);
    json_decref(run);
}

int main(int argc, char **argv)
{
    return golden_main(argc, argv, "optimizers", &golden, test_run,
                       (struct CMUnitTest)cmocka_unit_test(test_momentum_is_corrected));
}
