/* meet - takes the mean of the slots over the ranks that take part.
 *
 * A window at a time, the values are copied to a buffer of doubles, summed over the ranks in rank
 * order, and divided by the number of ranks that take part.  In double the mean of equal floats is
 * that float, so values that are equal on all ranks do not change.
 *
 * Of a device's slots the host makes the doubles and the means, since meetings are rare. */
#include "train/meet.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "session/ring.h"
#include "train/trainer_impl.h"

enum { WINDOW = 1 << 20 }; /* elements */

/* A rank's replica, as the rank describes it at the start of a meeting. */
enum brings {
    BRINGS_NOTHING, /* the rank has no replica, or one that is too old */
    BRINGS_OWN,     /* the rank has made own updates since all ranks held the same state */
    BRINGS_SAME,    /* the rank has made no step since all ranks held the same state */
};

struct meeting {
    struct trainer *t;
    double *window; /* [WINDOW] */
    int takes_part, n;
    /* With a device: [WINDOW] floats of the host, and a window in the device's memory. */
    float *aside;
    double *sums;
};

static int has_own_updates(const struct trainer *t)
{
    return reducer_promises(t->step.reducer)->updates_are_own;
}

static int is_of_strategy(const struct trainer *t, const struct slot_def *d)
{
    const struct strategy_ops *s = reducer_strategy(t->step.reducer);

    for (int i = 0; i < s->n_slots; i++)
        if (s->slot[i] == d)
            return 1;
    return 0;
}

static int is_averaged(const struct trainer *t, const struct slot_def *d)
{
    return d->scope != SLOT_PER_JOB && d->dtype == DTYPE_F32 && slot_is_broadcast(d) &&
           !is_of_strategy(t, d);
}

static int sum_window(struct meeting *m, double *x, int64_t n, struct err *err)
{
    const int64_t ticket =
        coll_allreduce(m->t->step.coll, COLL_BULK, x, n, DTYPE_F64, COLL_TAG_NONE, err);

    return ticket < 0 ? (int)ticket : coll_wait(m->t->step.coll, ticket, err);
}

/* Replace n elements at x, in the host's memory, by their mean. */
static int average_here(struct meeting *m, float *x, int64_t n, struct err *err)
{
    const size_t n_bytes = (size_t)n * sizeof *m->window;
    struct backend *b = m->t->backend;
    double *sum = m->window;
    int rc;

    for (int64_t i = 0; i < n; i++)
        sum[i] = m->takes_part ? (double)x[i] : 0;
    rc = m->sums ? backend_copy_in(b, m->sums, sum, n_bytes, err) : 0;
    if (rc == 0)
        rc = sum_window(m, m->sums ? m->sums : sum, n, err);
    if (rc == 0 && m->sums)
        rc = step_wait(&m->t->step, err);
    if (rc == 0 && m->sums)
        rc = backend_copy_out(b, sum, m->sums, n_bytes, err);
    for (int64_t i = 0; i < n && rc == 0; i++)
        x[i] = (float)(sum[i] / m->n);
    return rc;
}

/* The same in the backend's memory. */
static int meet_average(struct meeting *m, float *x, int64_t n, struct err *err)
{
    const size_t n_bytes = (size_t)n * sizeof *x;
    struct backend *b = m->t->backend;
    int rc;

    if (!m->sums)
        return average_here(m, x, n, err);
    rc = backend_copy_out(b, m->aside, x, n_bytes, err);
    if (rc == 0)
        rc = average_here(m, m->aside, n, err);
    return rc == 0 ? backend_copy_in(b, x, m->aside, n_bytes, err) : rc;
}

static int average_slot(struct meeting *m, const struct slot *slot, struct err *err)
{
    const int64_t n = (int64_t)(slot->n_bytes / sizeof(float));
    int rc = 0;

    for (int64_t at = 0; at < n && rc == 0; at += WINDOW)
        rc = meet_average(m, (float *)slot->data + at, min_i64(WINDOW, n - at), err);
    return rc;
}

static int make_windows(struct meeting *m, struct err *err)
{
    static const char what[] = "means over ranks";
    int rc = try_alloc((void **)&m->window, WINDOW * sizeof *m->window, what, err);

    if (rc < 0 || !backend_is_apart(m->t->backend))
        return rc;
    rc = try_alloc((void **)&m->aside, WINDOW * sizeof *m->aside, what, err);
    return rc == 0 ? backend_alloc(m->t->backend, WINDOW * sizeof *m->sums, what, (void **)&m->sums,
                                   err)
                   : rc;
}

static int average_slots(struct meeting *m, struct err *err)
{
    const struct state *s = m->t->state;
    int rc = make_windows(m, err);

    for (int k = 0; k < s->n_slots && rc == 0; k++)
        if (is_averaged(m->t, s->slot[k].def))
            rc = average_slot(m, &s->slot[k], err);
    if (rc < 0 && m->sums)
        coll_abort(m->t->step.coll); /* the memory is free once the device does not wait in it */
    free(m->window);
    free(m->aside);
    backend_free(m->t->backend, m->sums);
    return rc < 0 ? err_wrap(err, "mean of the ranks' parameters") : 0;
}

int meet_is_over(struct trainer *t, struct err *err)
{
    struct ring_head head;

    ring_head(t->ring, &head);
    t->met_generation = head.generation;
    t->met_step = t->state->at.step;
    return reducer_met(t->step.reducer, err);
}

int meet(struct trainer *t, struct err *err)
{
    struct meeting m = {.t = t, .takes_part = 1, .n = t->n_ranks};
    const int64_t step = t->state->at.step;
    int64_t id;
    int rc;

    if (!has_own_updates(t) || t->met_step == step)
        return 0;
    if (t->n_ranks == 1)
        return meet_is_over(t, err);
    id = ring_hand(t->ring, step, RING_STATE, 0, PHASE_REDUCE, RING_OF_STATE);
    ring_run(t->ring, id, clock_mono_ns());
    t->hooks.at(t->hooks.arg, PHASE_REDUCE, 0, step, -1);
    rc = average_slots(&m, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    if (rc == 0)
        rc = update_refresh(t->step.update, err);
    return rc == 0 ? meet_is_over(t, err) : rc;
}

/* ---- a formation ---- */

static enum brings meet_brings(const struct trainer *t, int64_t newest)
{
    const int64_t step = t->state->at.step;

    if (step == 0 || step < newest - 1)
        return BRINGS_NOTHING;
    return step == newest && t->met_step == step ? BRINGS_SAME : BRINGS_OWN;
}

/* Count the ranks that have a replica, and see whether there is anything to average. */
static int meet_count(struct meeting *m, enum brings mine, int *is_needed, struct err *err)
{
    const size_t size = (size_t)m->t->n_ranks;
    const uint8_t byte = (uint8_t)mine;
    uint8_t *all = xcalloc(size, 1);
    int rc = coll_allgather(m->t->step.coll, &byte, 1, all, err);

    m->takes_part = mine != BRINGS_NOTHING;
    for (size_t k = 0; k < size && rc == 0; k++)
        m->n += all[k] != BRINGS_NOTHING;
    *is_needed = rc == 0 && m->n > 1 && memchr(all, BRINGS_OWN, size);
    free(all);
    return rc;
}

int meet_again(struct trainer *t, int source, struct err *err)
{
    struct meeting m = {.t = t};
    int64_t newest = t->state->at.step;
    int is_needed = 0, rc;

    if (!has_own_updates(t))
        return 0;
    rc = coll_broadcast(t->step.coll, &newest, sizeof newest, source, err);
    if (rc == 0)
        rc = meet_count(&m, meet_brings(t, newest), &is_needed, err);
    return rc == 0 && is_needed ? average_slots(&m, err) : rc;
}
