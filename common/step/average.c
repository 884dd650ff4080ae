/* average - one operator over the flat space of trained parameters (op/average.c), and the exchange
 * of what is trained and what is averaged.
 *
 * Where the state is divided (state/shards.h), each rank averages the shards that it holds, right
 * after it has updated them.  So a rank holds a shard's average of the same step as the shard's
 * other slots, whatever is lost.  The averaged weights are gathered before they are used. */
#include "step/average.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "op/control.h"
#include "op/op.h"
#include "program/sketch.h"
#include "state/shards.h"
#include "strategy/cut.h"

const struct slot_def slot_average = {.name = "averaged weights",
                                      .suffix = ".average",
                                      .scope = SLOT_PER_TRAINED,
                                      .dtype = DTYPE_F32,
                                      .file = SLOT_IN_AVERAGE,
                                      .is_hashed = 1,
                                      .is_broadcast = 1};

static void average_init_statistic(const struct job *job, const struct layout *l, int i, void *to)
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
                                                 .init = average_init_statistic};

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
    void *of;       /* what is trained; NULL: there is no such thing */
    const void *by; /* what is averaged; NULL: it is gathered from all ranks, or nothing */
    void *copy;     /* of what is trained */
    size_t n_bytes;
};

enum { PARAMETERS, STATISTICS, N_ASIDE };

struct average {
    struct state *state;
    struct program **part; /* [n_parts]; NULL for an empty span */
    int n_parts;           /* 1, or the spans of the shards held */
    void *arena;
    int64_t first; /* the step with whose weights the average begins, counted from 1 */
    struct aside aside[N_ASIDE];
};

/* 1: other ranks hold other parts of the average. */
static int is_divided(const struct state *s) { return s->shards && s->shards->now.size > 1; }

/* The row of a slot that the state has. */
static int average_row_of(const struct state *s, const struct slot_def *d)
{
    int k = 0;

    while (s->slot[k].def != d)
        k++;
    return k;
}

/* The part of a bucket, in a divided slot, that the h-th shard of this rank has. */
static void *in_shard(const struct state *s, const struct slot_def *d, int h, int bucket)
{
    const struct shard_set *set = &s->shards->now;
    const int k = average_row_of(s, d);

    return (char *)set->data[k][h] + shard_offset(s, k, set->size, shard_owner(set, h), bucket);
}

/* ---- the update ---- */

/* The number of steps before a mean begins.  A moving average begins at once. */
static int64_t start_of(const struct job_average *o, int64_t steps_per_epoch, int64_t total_steps)
{
    if (o->name != AVERAGE_SWA)
        return 0;
    return llround(o->start < 1 ? o->start * (double)total_steps
                                : o->start * (double)steps_per_epoch);
}

static int64_t every_of(const struct job_average *o, int64_t steps_per_epoch)
{
    return o->every > 0 ? o->every : o->name == AVERAGE_SWA ? steps_per_epoch : 1;
}

int64_t average_first_step(const struct job *job, int64_t steps_per_epoch, int64_t total_steps)
{
    const struct job_average *o = &job->train.average;

    return start_of(o, steps_per_epoch, total_steps) + every_of(o, steps_per_epoch);
}

static union node_attr average_numbers(const struct job_average *o, int64_t steps_per_epoch,
                                       int64_t first)
{
    union node_attr attr = {.number = {0}};

    attr.number[AVERAGE_ATTR_FIRST] = (double)first;
    attr.number[AVERAGE_ATTR_EVERY] = (double)every_of(o, steps_per_epoch);
    attr.number[AVERAGE_ATTR_DECAY] = o->name == AVERAGE_SWA ? -1 : o->decay;
    return attr;
}

/* Weights, and their average. */
struct range {
    void *param, *average;
    int64_t n;
};

/* The range of the i-th part: of a bucket in a shard, or of everything. */
static struct range average_range_of(const struct state *s, int i)
{
    const struct layout *l = s->layout;
    const struct shard_set *set;
    struct coll_span span;
    int h, b;

    if (!is_divided(s))
        return (struct range){state_data(s, &slot_parameters), state_data(s, &slot_average),
                              l->n_trained};
    set = &s->shards->now;
    h = i / l->n_buckets;
    b = i % l->n_buckets;
    span = cut_span(l, b, set->size, shard_owner(set, h));
    return (struct range){
        .param = shard_params(s, h, b), .average = in_shard(s, &slot_average, h, b), .n = span.n};
}

static int average_make_part(struct average *a, int i, const struct buffers *m,
                             const union node_attr *attr, struct err *err)
{
    struct state *st = a->state;
    const struct range r = average_range_of(st, i);
    struct sketch s = sketch_begin(err);
    int in[] = {[AVERAGE_PARAM] = sketch_place(&s, DTYPE_F32, SHAPE(r.n), r.param, "param"),
                [AVERAGE_CHECK] = sketch_place(&s, DTYPE_F64, SHAPE(2), m->numbers->check, "check"),
                [AVERAGE_CONTROL] =
                    sketch_place(&s, DTYPE_F32, SHAPE(CONTROL_LEN), m->control, "control"),
                [AVERAGE_SCALARS] = s.g->scalars,
                [AVERAGE_AVERAGE] = sketch_place(&s, DTYPE_F32, SHAPE(r.n), r.average, "average")};
    int out[] = {[AVERAGE_NEW_AVERAGE] = in[AVERAGE_AVERAGE]};

    sketch_node(&s, OP_average, attr, in, 5, out, "average");
    return sketch_end(&s, st->backend, st->layout, &a->part[i]);
}

static int average_make_parts(struct average *a, const struct buffers *m,
                              const union node_attr *attr, struct err *err)
{
    struct state *s = a->state;
    const struct program_spaces spaces = buffers_spaces(m, s);
    size_t n_bytes = 0;
    int rc = 0;

    a->n_parts = is_divided(s) ? s->shards->now.n_held * s->layout->n_buckets : 1;
    a->part = xcalloc((size_t)a->n_parts, sizeof *a->part);
    for (int i = 0; i < a->n_parts && rc == 0; i++) {
        if (average_range_of(s, i).n > 0)
            rc = average_make_part(a, i, m, attr, err);
        if (rc == 0 && a->part[i] && program_arena_bytes(a->part[i]) > n_bytes)
            n_bytes = program_arena_bytes(a->part[i]);
    }
    if (rc == 0)
        rc = backend_alloc(s->backend, n_bytes, "the average's scratch", &a->arena, err);
    for (int i = 0; i < a->n_parts && rc == 0; i++)
        rc = a->part[i] ? program_bind(a->part[i], &spaces, a->arena, err) : 0;
    return rc;
}

/* ---- life ---- */

/* Lists the arrays that are exchanged.  Where parameters are divided, the network gathers them from
 * the ranks' own shards, so the averages in these take their place there. */
static void list_asides(struct average *a)
{
    struct state *s = a->state;
    const struct layout *l = s->layout;
    struct aside *p = &a->aside[PARAMETERS], *stats = &a->aside[STATISTICS];

    *p = (struct aside){.of = state_data(s, &slot_parameters),
                        .by = state_data(s, &slot_average),
                        .n_bytes = sizeof(float) * (size_t)l->n_trained};
    if (is_divided(s) && s->shards->divides_params)
        *p = (struct aside){.of = in_shard(s, &slot_parameters, SHARD_OWN, 0),
                            .by = in_shard(s, &slot_average, SHARD_OWN, 0),
                            .n_bytes = sizeof(float) * (size_t)cut_shard(l, s->shards->now.size,
                                                                         s->shards->now.rank)};
    if (state_data(s, &slot_average_statistics))
        *stats = (struct aside){.of = state_data(s, &slot_statistics),
                                .by = state_data(s, &slot_average_statistics),
                                .n_bytes = sizeof(float) * (size_t)l->n_state_total};
}

int average_new(const struct job *job, struct state *s, const struct buffers *m,
                int64_t steps_per_epoch, int64_t total_steps, struct average **out, struct err *err)
{
    const int64_t begun = s->at.average_first;
    const int64_t first = begun ? begun : average_first_step(job, steps_per_epoch, total_steps);
    const union node_attr attr = average_numbers(&job->train.average, steps_per_epoch, first);
    struct average *a = xcalloc(1, sizeof *a);
    int rc;

    a->state = s;
    a->first = first;
    list_asides(a);
    rc = average_make_parts(a, m, &attr, err);
    for (int i = 0; i < N_ASIDE && rc == 0; i++)
        if (a->aside[i].of)
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
    for (int i = 0; i < a->n_parts; i++)
        program_free(a->part[i]);
    free(a->part);
    backend_free(a->state->backend, a->arena);
    for (int i = 0; i < N_ASIDE; i++)
        backend_free(a->state->backend, a->aside[i].copy);
    free(a);
}

int average_update(struct average *a, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < a->n_parts && rc == 0; i++)
        rc = sketch_run(a->part[i], err);
    return rc;
}

void average_note(const struct average *a)
{
    if (average_has_begun(a))
        a->state->at.average_first = a->first;
}

int average_is_stale(const struct average *a)
{
    const int64_t begun = a->state->at.average_first;

    return begun > 0 && begun != a->first;
}

int average_has_begun(const struct average *a) { return a->state->at.step >= a->first; }

/* ---- the exchange ---- */

/* 1: the averages of all ranks are gathered where the parameters lie. */
static int is_gathered(const struct state *s)
{
    return is_divided(s) && !s->shards->divides_params;
}

/* The averages of all shards take the parameters' place.  This does not wait for a device: what
 * reads them, and what puts the trained ones back, is queued behind the all-gathers.  An all-gather
 * that breaks off, which nothing may wait for any more, writes to other ranks' spans alone; their
 * owners send those parameters in the next formation (state/reshard.c). */
static int average_gather(struct state *s, struct coll *c, struct err *err)
{
    const struct layout *l = s->layout;
    const struct shard_set *set = &s->shards->now;
    int rc = 0;

    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        float *to = (float *)state_data(s, &slot_parameters) + l->bucket[b].offset;
        const struct coll_span own = cut_span(l, b, set->size, set->rank);
        int64_t ticket;

        if (cut_bucket(l, b) == 0)
            continue;
        if (own.n > 0)
            rc = backend_copy(s->backend, to + own.at, in_shard(s, &slot_average, SHARD_OWN, b),
                              sizeof *to * (size_t)own.n, err);
        if (rc < 0)
            break;
        ticket =
            coll_allgather_spans(c, COLL_BULK, to, cut_bucket(l, b), DTYPE_F32, COLL_TAG_NONE, err);
        rc = ticket < 0 ? (int)ticket : coll_wait(c, ticket, err);
    }
    return rc;
}

int average_enter(struct average *a, int with_statistics, struct coll *c, struct err *err)
{
    struct state *s = a->state;
    int rc = 0;

    for (int i = 0; i < N_ASIDE && rc == 0; i++)
        if (a->aside[i].of)
            rc = backend_copy(s->backend, a->aside[i].copy, a->aside[i].of, a->aside[i].n_bytes,
                              err);
    for (int i = 0; i < N_ASIDE && rc == 0; i++)
        if (a->aside[i].by && (i == PARAMETERS || with_statistics))
            rc = backend_copy(s->backend, a->aside[i].of, a->aside[i].by, a->aside[i].n_bytes, err);
    return rc == 0 && is_gathered(s) ? average_gather(s, c, err) : rc;
}

int average_leave(struct average *a, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < N_ASIDE && rc == 0; i++)
        if (a->aside[i].of)
            rc = backend_copy(a->state->backend, a->aside[i].of, a->aside[i].copy,
                              a->aside[i].n_bytes, err);
    return rc;
}
