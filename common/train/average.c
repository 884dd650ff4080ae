/* average - one operator over the flat space of trained parameters (op/average.c), and the exchange
 * of what is trained and what is averaged. */
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

static void init_statistic(const struct job *job, const struct layout *l, int i, void *to)
{
    float *x = to;

    (void)job;
    for (int64_t e = 0; e < l->state[i].length; e++)
        x[e] = l->state[i].init_state;
}

const struct slot_def slot_average_statistics = {.name = "running statistics of averaged weights",
                                                 .suffix = ".average",
                                                 .scope = SLOT_PER_STATISTIC,
                                                 .dtype = DTYPE_F32,
                                                 .file = SLOT_IN_AVERAGE,
                                                 .is_hashed = 1,
                                                 .is_broadcast = 1,
                                                 .init = init_statistic};

int average_is_wanted(const struct job *job) { return job->train.average.name != AVERAGE_NONE; }

int average_has_statistics(const struct job *job, const struct layout *l)
{
    return job->train.average.name == AVERAGE_SWA && l->n_states > 0;
}

int average_list_slots(const struct job *job, const struct layout *l,
                       const struct slot_def *slot[AVERAGE_MOST_SLOTS])
{
    int n = 0;

    if (average_is_wanted(job))
        slot[n++] = &slot_average;
    if (average_has_statistics(job, l))
        slot[n++] = &slot_average_statistics;
    return n;
}

/* One thing that the average replaces while it is there. */
struct aside {
    const struct slot_def *of, *by;
    void *copy; /* of the first slot; NULL: this is not exchanged */
    size_t n_bytes;
};

enum { PARAMETERS, STATISTICS, N_ASIDE };

struct average {
    struct state *state;
    struct program *update;
    void *arena;
    int64_t first; /* the update with whose weights the average begins */
    struct aside aside[N_ASIDE];
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
    const struct layout *l = s->layout;
    struct average *a = xcalloc(1, sizeof *a);
    int rc;

    a->state = s;
    a->first = llround(attr.number[AVERAGE_ATTR_FIRST]);
    a->aside[PARAMETERS] =
        (struct aside){&slot_parameters, &slot_average, NULL, sizeof(float) * (size_t)l->n_trained};
    a->aside[STATISTICS] = (struct aside){&slot_statistics, &slot_average_statistics, NULL,
                                          sizeof(float) * (size_t)l->n_state_total};
    rc = make_update(a, m, &attr, err);
    for (int i = 0; i < N_ASIDE && rc == 0; i++)
        if (state_data(s, a->aside[i].by))
            rc = backend_alloc(s->backend, a->aside[i].n_bytes, "the trained beside the averaged",
                               &a->aside[i].copy, err);
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
    for (int i = 0; i < N_ASIDE; i++)
        backend_free(a->state->backend, a->aside[i].copy);
    free(a);
}

int average_update(struct average *a, struct err *err) { return sketch_run(a->update, err); }

int average_has_begun(const struct average *a) { return a->state->at.n_updates >= a->first; }

/* ---- the exchange ---- */

int average_enter(struct average *a, int with_statistics, struct err *err)
{
    struct state *s = a->state;
    int rc = 0;

    for (int i = 0; i < N_ASIDE && rc == 0; i++)
        if (a->aside[i].copy)
            rc = backend_copy(s->backend, a->aside[i].copy, state_data(s, a->aside[i].of),
                              a->aside[i].n_bytes, err);
    for (int i = 0; i < N_ASIDE && rc == 0; i++)
        if (a->aside[i].copy && (i == PARAMETERS || with_statistics))
            rc = backend_copy(s->backend, state_data(s, a->aside[i].of),
                              state_data(s, a->aside[i].by), a->aside[i].n_bytes, err);
    return rc;
}

int average_leave(struct average *a, struct err *err)
{
    struct state *s = a->state;
    int rc = 0;

    for (int i = 0; i < N_ASIDE && rc == 0; i++)
        if (a->aside[i].copy)
            rc = backend_copy(s->backend, state_data(s, a->aside[i].of), a->aside[i].copy,
                              a->aside[i].n_bytes, err);
    return rc;
}
