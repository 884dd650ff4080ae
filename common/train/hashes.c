/* hashes - makes a row of hashes.csv from the state, the last step's loss and the sampler.
 *
 * The row of an epoch's last step is told once the epoch has ended, since that changes the state of
 * this step (means over ranks, statistics), and a checkpoint of it has the changes.  When a run
 * goes on, the row of the step that it holds is told again: the driver before may not have written
 * it.  The file takes each step once. */
#include "train/hashes.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/util.h"
#include "state/digest.h"
#include "train/trainer_impl.h"

int hashes_are_due(const struct trainer *t, int64_t n_steps)
{
    const int64_t every = t->job->checkpoint.hashes;

    return every > 0 && n_steps > 0 && n_steps % every == 0;
}

/* Of the numbers of the samples of the step before n_steps were done, 64 bits each. */
static int hash_samples(const struct trainer *t, int64_t n_steps, uint64_t *out, struct err *err)
{
    const struct sampler_step at = sampler_at(&t->sampler, n_steps - 1);
    int64_t *index;
    const int rc =
        try_alloc((void **)&index, (size_t)at.n * sizeof *index, "the numbers of samples", err);

    if (rc < 0)
        return rc;
    sampler_list(&t->sampler, &at, (struct span){0, at.n}, index);
    *out = hash_of(index, (size_t)at.n * sizeof *index).lo;
    free(index);
    return 0;
}

/* 0: the ranks' replicas differ now. */
static int has_one_state(const struct trainer *t)
{
    return t->n_ranks == 1 || !reducer_promises(t->step.reducer)->updates_are_own ||
           t->met_step == t->state->at.step;
}

/* With divided state this is a collective, which gets an entry in the record. */
static int hash_all(struct trainer *t, uint64_t *out, struct err *err)
{
    int64_t id;
    int rc;

    if (!trainer_is_divided(t))
        return t->rank == 0 ? state_digest(t->state, NULL, out, err) : 0;
    id = ring_hand(t->ring, t->state->at.step, RING_STATE, 0, PHASE_UPDATE, RING_OF_STATE);
    ring_run(t->ring, id, clock_mono_ns());
    rc = state_digest(t->state, t->step.coll, out, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    return rc;
}

int hashes_tell(struct trainer *t, struct err *err)
{
    const struct ckpt_state *at = &t->state->at;
    struct hashes_row row = {.step = at->step, .has_state = has_one_state(t)};
    struct report *r;
    int rc = 0;

    if (!hashes_are_due(t, at->step) || at->step_weight < 0)
        return 0;
    if (row.has_state)
        rc = hash_all(t, &row.state, err);
    if (rc == 0 && t->rank == 0)
        rc = hash_samples(t, at->step, &row.samples, err);
    if (rc < 0)
        return err_wrap(err, "hash of step %lld", (long long)at->step);
    if (t->rank != 0)
        return 0;
    row.loss = control_mean_loss(at->step_loss, at->step_weight);
    r = report_new(REPORT_HASHES, 0);
    r->hashes = row;
    t->hooks.report(t->hooks.arg, r);
    return 0;
}
