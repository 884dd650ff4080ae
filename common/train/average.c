/* average - one operator over the flat space of trained parameters (op/average.c), and the exchange
 * of parameters and average. */
#include "train/average.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "op/op.h"
#include "program/sketch.h"

const struct slot_def slot_average = {.name = "averaged weights",
                                      .suffix = ".average",
                                      .scope = SLOT_PER_TRAINED,
                                      .dtype = DTYPE_F32,
                                      .file = SLOT_IN_AVERAGE,
                                      .is_hashed = 1,
                                      .is_broadcast = 1};

int average_is_wanted(const struct job *job) { return job->train.average.name != AVERAGE_NONE; }

struct average {
    struct state *state;
    struct program *update;
    void *arena;
    void *aside; /* F32 [n_trained]: the parameters, while the average is in their place */
    size_t n_bytes;
};

/* ---- the update ---- */

/* The number of updates before the averaging begins, for a mean; a moving average begins at once.
 */
static int64_t start_of(const struct job_average *o, int64_t steps_per_epoch, int64_t total_steps)
{
    if (o->name != AVERAGE_SWA)
        return 0;
    return llround(o->start < 1 ? o->start * (double)total_steps
                                : o->start * (double)steps_per_epoch);
}

static union node_attr numbers(const struct job_average *o, int64_t steps_per_epoch,
                               int64_t total_steps)
{
    const int64_t each = o->name == AVERAGE_SWA ? steps_per_epoch : 1;
    const int64_t every = o->every > 0 ? o->every : each;
    union node_attr attr = {.number = {0}};

    attr.number[AVERAGE_ATTR_FIRST] = (double)(start_of(o, steps_per_epoch, total_steps) + every);
    attr.number[AVERAGE_ATTR_EVERY] = (double)every;
    attr.number[AVERAGE_ATTR_DECAY] = o->name == AVERAGE_SWA ? -1 : o->decay;
    return attr;
}

static int make_update(struct average *a, const struct buffers *m, const union node_attr *attr,
                       struct err *err)
{
    struct state *st = a->state;
    const struct layout *l = st->layout;
    struct program_spaces spaces = buffers_spaces(m, st);
    struct sketch s = sketch_begin(err);
    int in[] = {[AVERAGE_PARAM] = sketch_place(&s, DTYPE_F32, SHAPE(l->n_trained),
                                               state_data(st, &slot_parameters), "param"),
                [AVERAGE_CHECK] = sketch_place(&s, DTYPE_F64, SHAPE(2), m->numbers->check, "check"),
                [AVERAGE_CONTROL] =
                    sketch_place(&s, DTYPE_F32, SHAPE(CONTROL_LEN), m->control, "control"),
                [AVERAGE_SCALARS] = s.g->scalars,
                [AVERAGE_AVERAGE] = sketch_place(&s, DTYPE_F32, SHAPE(l->n_trained),
                                                 state_data(st, &slot_average), "average")};
    int out[] = {[AVERAGE_NEW_AVERAGE] = in[AVERAGE_AVERAGE]};
    int rc;

    sketch_node(&s, OP_average, attr, in, 5, out, "average");
    rc = sketch_end(&s, st->backend, l, &a->update);
    if (rc == 0)
        rc = backend_alloc(st->backend, program_arena_bytes(a->update), "the average's scratch",
                           &a->arena, err);
    return rc == 0 ? program_bind(a->update, &spaces, a->arena, err) : rc;
}

int average_new(const struct job *job, struct state *s, const struct buffers *m,
                int64_t steps_per_epoch, int64_t total_steps, struct average **out, struct err *err)
{
    const union node_attr attr = numbers(&job->train.average, steps_per_epoch, total_steps);
    struct average *a;
    int rc;

    if (job->train.average.name == AVERAGE_SWA && s->layout->n_states > 0)
        return err_set(err, ERR_CONFIG,
                       "train.average.name is swa, and this network has running statistics (%s), "
                       "which a mean of weights would need anew: want ema",
                       s->layout->state[0].name);
    a = xcalloc(1, sizeof *a);
    a->state = s;
    a->n_bytes = sizeof(float) * (size_t)s->layout->n_trained;
    rc = make_update(a, m, &attr, err);
    if (rc == 0)
        rc = backend_alloc(s->backend, a->n_bytes, "the parameters beside their average", &a->aside,
                           err);
    if (rc < 0) {
        average_free(a);
        return err_wrap(err, "train.average");
    }
    *out = a;
    return 0;
}

void average_free(struct average *a)
{
    if (!a)
        return;
    program_free(a->update);
    backend_free(a->state->backend, a->arena);
    backend_free(a->state->backend, a->aside);
    free(a);
}

int average_update(struct average *a, struct err *err) { return sketch_run(a->update, err); }

/* ---- validation ---- */

static int copy(struct average *a, void *to, const void *from, struct err *err)
{
    return backend_copy(a->state->backend, to, from, a->n_bytes, err);
}

int average_enter(struct average *a, struct err *err)
{
    void *param = state_data(a->state, &slot_parameters);
    int rc = copy(a, a->aside, param, err);

    return rc == 0 ? copy(a, param, state_data(a->state, &slot_average), err) : rc;
}

int average_leave(struct average *a, struct err *err)
{
    return copy(a, state_data(a->state, &slot_parameters), a->aside, err);
}
