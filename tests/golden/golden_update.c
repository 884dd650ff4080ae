/* golden_update - opens a backend, builds the job's network and its update, and compares what came
 * out with PyTorch's numbers. */
#include "golden_update.h"

#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "golden_backend.h"
#include "golden_data.h"
#include "optim/groups.h"
#include "program/program.h"

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->msg);
}

static uint64_t stream_of(const struct golden_update *t, const char *name)
{
    for (uint64_t i = 0; t->order[i]; i++)
        if (!strcmp(t->order[i], name))
            return i;
    fail_msg("no parameter %s", name);
    return 0;
}

static size_t space_bytes(const struct golden_update *t, const struct slot_def *slot)
{
    const int64_t n = slot == &slot_parameters ? t->layout->n_total : t->layout->n_trained;

    return sizeof(float) * (size_t)n;
}

static void put(struct golden_update *t, void *to, const void *from, size_t n_bytes)
{
    struct err err;

    must(backend_copy_in(t->backend, to, from, n_bytes, &err), &err);
}

void golden_update_get(struct golden_update *t, const struct slot_def *slot)
{
    struct err err;

    must(backend_copy_out(t->backend, t->values, state_data(t->state, slot), space_bytes(t, slot),
                          &err),
         &err);
}

/* ---- life ---- */

static void make_layout(struct golden_update *t)
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

static void draw_parameters(struct golden_update *t)
{
    for (int i = 0; i < t->layout->n_params; i++) {
        const struct segment *s = &t->layout->param[i];

        golden_weight(t->values + s->offset, s->length, stream_of(t, s->name), 1);
    }
    put(t, state_data(t->state, &slot_parameters), t->values, space_bytes(t, &slot_parameters));
}

void golden_update_open(struct golden_update *t, const char *yaml, const char *const *order,
                        const struct slot_def *more)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS + 1];
    struct err err;
    int n;

    *t = (struct golden_update){.order = order};
    must(job_parse(yaml, strlen(yaml), "golden", NULL, &t->job, &err), &err);
    must(golden_backend_open(&t->backend, &err), &err);
    make_layout(t);
    n = optimizer_slots(&t->job->optimizer, slot);
    if (more)
        slot[n++] = more;
    must(state_new(t->backend, t->layout, slot, n, &t->state, &err), &err);
    must(buffers_new(t->backend, NULL, t->state, 0, &t->buffers, &err), &err);
    must(update_new(t->job, t->backend, t->state, t->buffers, &t->update, &err), &err);
    t->values = xcalloc((size_t)t->layout->n_total, sizeof(float));
    t->grad = xcalloc((size_t)t->layout->n_total, sizeof(float));
    draw_parameters(t);
}

void golden_update_close(struct golden_update *t)
{
    update_free(t->update);
    buffers_free(t->buffers);
    state_free(t->state);
    layout_free(t->layout);
    backend_close(t->backend);
    job_free(t->job);
    free(t->values);
    free(t->grad);
}

/* ---- updates ---- */

/* The gradient of step k pulls each parameter half of the way to a target, with noise. */
static void make_gradients(struct golden_update *t, int k)
{
    golden_update_get(t, &slot_parameters);
    for (int i = 0; i < t->layout->n_params && !t->layout->param[i].info.frozen; i++) {
        const struct segment *s = &t->layout->param[i];
        const uint64_t stream = stream_of(t, s->name);
        float target[64], noise[64];

        assert_in_range(s->length, 1, 64);
        golden_weight(target, s->length, 100 + stream, 1);
        golden_weight(noise, s->length, 1000 + 16 * (uint64_t)k + stream, 1);
        for (int64_t e = 0; e < s->length; e++)
            t->grad[s->offset + e] = 0.5f * (t->values[s->offset + e] - target[e]) + noise[e];
    }
}

void golden_update_step(struct golden_update *t, int k, double rate)
{
    const struct step_scalars scalars = {.step = (uint64_t)k,
                                         .n_updates = k,
                                         .rate = (float)rate,
                                         .clip_norm = (float)t->job->train.clip_norm,
                                         .stamp = step_stamp(k)};
    struct err err;

    make_gradients(t, k);
    put(t, t->buffers->grad, t->grad, sizeof(float) * (size_t)t->layout->n_trained);
    put(t, &t->buffers->numbers->scalars, &scalars, sizeof scalars);
    must(update_apply(t->update, &err), &err);
}

void golden_update_compare(const struct golden_update *t, json_t *want, double tolerance,
                           int is_relative)
{
    assert_int_equal(json_object_size(want), t->layout->n_params);
    for (int i = 0; i < t->layout->n_params; i++) {
        const struct segment *s = &t->layout->param[i];
        json_t *values = json_object_get(want, s->name);
        double largest = 0, worst = 0;

        assert_int_equal(json_array_size(values), s->length);
        for (int64_t e = 0; e < s->length; e++) {
            const double v = json_number_value(json_array_get(values, (size_t)e));
            const double off = fabs((double)t->values[s->offset + e] - v);

            largest = fmax(largest, fabs(v));
            worst = isnan(off) ? INFINITY : fmax(worst, off);
        }
        if (!(worst <= tolerance * (is_relative ? largest : 1)))
            fail_msg("%s is up to %g away from PyTorch's; its largest element is %g", s->name,
                     worst, largest);
    }
}
