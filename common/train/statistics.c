/* statistics - the pass of the training data.
 *
 * Happy path: the averaged weights take the parameters' place.  The batches are dealt out to the
 * ranks in turn.  In each round every rank runs its batch through a program whose batch norms have
 * momentum 1 and are not synchronised, so that the next running statistics are the batch's.  Then
 * all ranks gather those of the round and add them in the order of the batches, so that the sums
 * are the same on every rank, for any number of ranks.  In the end the parameters are the trained
 * ones again, and the mean goes to its slot.
 *
 * Failure: if a rank is lost, gathering fails on the others.  They put the trained parameters back
 * and have written nothing else, so they hold the state of the epoch's last step.  The next
 * formation ends the epoch once more. */
#include "train/statistics.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "train/trainer_impl.h"

struct pass {
    struct trainer *t;
    int64_t epoch, batch, n_batches; /* batch: samples of each */
    int64_t n;                       /* statistics */
    float *own, *all;                /* [n], [n_ranks][n]: of one round */
    double *sum;                     /* [n] */
};

static struct sampler sampler_of(const struct pass *p)
{
    struct sampler s = p->t->sampler;

    s.global_batch = p->batch;
    s.drop_last = 1;
    s.n_shares = 0;
    s.bound = NULL;
    return s;
}

static int64_t count_batches(const struct pass *p)
{
    const struct sampler s = sampler_of(p);
    const int64_t whole = sampler_steps_per_epoch(&s);
    const int64_t wanted = p->t->job->train.average.statistics_samples;

    return wanted > 0 ? min_i64(whole, ceil_div_i64(wanted, p->batch)) : whole;
}

/* Dropout draws by the batch's number and the places in it, as in a step of this number. */
static int statistics_send_scalars(struct trainer *t, const struct batch *b, struct err *err)
{
    struct step_numbers *from = &t->step.buffers->sent[t->step.n_sent++ % BUFFERS_SENT];
    const int64_t n_targets = b->n * sample_n_predictions(t->spec);

    from->scalars = (struct step_scalars){.seed = (uint64_t)t->job->train.seed,
                                          .step = (uint64_t)b->step,
                                          .first_position = b->first,
                                          .n_targets = n_targets,
                                          .loss_scale = 1 / (float)n_targets,
                                          .stamp = step_stamp(b->step)};
    return backend_put(t->backend, LANE_MAIN, t->step.buffers->numbers, from, STEP_NUMBERS_SENT,
                       err);
}

static int run_program(struct trainer *t, struct program *p, struct err *err)
{
    int rc = feed_put(t->step.feed, p, err);

    if (rc == 0)
        rc = feed_gather(t->step.feed, p, err);
    for (int i = 0; i < program_n_stages(p) && rc == 0; i++)
        rc = program_run_stage(p, i, err);
    feed_ahead(t->step.feed);
    return rc;
}

/* Write the next batch's statistics to p->own. */
static int run_batch(struct pass *p, struct err *err)
{
    struct trainer *t = p->t;
    struct batch b;
    int rc = feed_next(t->step.feed, &b, err);

    ASSERT(rc <= 0 && (rc < 0 || b.n == p->batch)); /* the loader was given exactly these batches */
    if (rc < 0)
        return err_wrap(err, "training data");
    rc = statistics_send_scalars(t, &b, err);
    if (rc == 0)
        rc = run_program(t, programs_statistics(t->step.programs), err);
    if (rc == 0)
        rc = step_wait(&t->step, err);
    if (rc == 0)
        feed_done(t->step.feed);
    return rc == 0 ? backend_copy_out(t->backend, p->own, t->step.buffers->shadow,
                                      sizeof *p->own * (size_t)p->n, err)
                   : rc;
}

static int statistics_gather(struct pass *p, struct err *err)
{
    return step_allgather(&p->t->step, PHASE_VALIDATE, p->own, sizeof *p->own * (size_t)p->n,
                          p->all, err);
}

/* Add up the statistics of the batches from `first` on: one batch of each rank, or of fewer ranks
 * at the end. */
static int statistics_run_round(struct pass *p, int64_t first, struct err *err)
{
    struct trainer *t = p->t;
    const int64_t n = min_i64(p->n_batches - first, t->n_ranks);
    int rc = 0;

    t->hooks.at(t->hooks.arg, PHASE_VALIDATE, p->epoch, t->state->at.step, first);
    if (t->hooks.canceled(t->hooks.arg))
        return err_set(err, ERR_CANCELED, "the pass was canceled");
    if (t->rank < n)
        rc = run_batch(p, err);
    if (rc == 0)
        rc = statistics_gather(p, err);
    for (int64_t k = 0; k < n && rc == 0; k++)
        for (int64_t i = 0; i < p->n; i++)
            p->sum[i] += (double)p->all[k * p->n + i];
    return rc;
}

static int statistics_run_rounds(struct trainer *t, void *arg, struct err *err)
{
    struct pass *p = arg;
    const struct sampler s = sampler_of(p);
    int rc = feed_start_turns(t->step.feed, &s, t->n_ranks, t->rank, p->n_batches, err);

    for (int64_t first = 0; first < p->n_batches && rc == 0; first += t->n_ranks)
        rc = statistics_run_round(p, first, err);
    return rc;
}

static int put_mean(struct pass *p, struct err *err)
{
    for (int64_t i = 0; i < p->n; i++)
        p->own[i] = (float)(p->sum[i] / (double)p->n_batches);
    return backend_copy_in(p->t->backend, state_data(p->t->state, &slot_average_statistics), p->own,
                           sizeof *p->own * (size_t)p->n, err);
}

static int statistics_run_pass(struct trainer *t, int64_t epoch, struct err *err)
{
    struct pass p = {.t = t,
                     .epoch = epoch,
                     .batch = programs_statistics_batch(t->step.programs),
                     .n = t->layout->n_state_total};
    const size_t n = (size_t)p.n, n_floats = n * (size_t)(t->n_ranks + 1);
    int rc = try_alloc((void **)&p.sum, sizeof *p.sum * n + sizeof *p.own * n_floats,
                       "statistics of batches", err);

    if (rc < 0)
        return rc;
    p.own = (float *)(p.sum + n);
    p.all = p.own + n;
    p.n_batches = count_batches(&p);
    rc = trainer_with_average(t, 0, statistics_run_rounds, &p, err);
    if (rc == 0)
        rc = put_mean(&p, err);
    free(p.sum);
    return rc;
}

int statistics_renew(struct trainer *t, int64_t epoch, struct err *err)
{
    void *slot = state_data(t->state, &slot_average_statistics);
    int rc;

    if (!slot)
        return 0;
    faults_reach(t->o.faults, INJECTION_AT_STATISTICS, epoch);
    rc = average_has_begun(t->step.average)
             ? statistics_run_pass(t, epoch, err)
             : backend_copy(t->backend, slot, state_data(t->state, &slot_statistics),
                            sizeof(float) * (size_t)t->layout->n_state_total, err);
    return rc < 0 ? err_wrap(err, "statistics of averaged weights") : 0;
}

/* Put the averaged weights in the parameters' place.  If they are divided, all ranks gather them,
 * and the record of collectives gets an entry for that. */
static int statistics_enter(struct trainer *t, int with_statistics, struct err *err)
{
    int64_t id;
    int rc;

    if (!t->state->shards)
        return average_enter(t->step.average, with_statistics, NULL, err);
    id = ring_hand(t->ring, t->state->at.step, RING_STATE, 0, PHASE_VALIDATE, RING_OF_STATE);
    ring_run(t->ring, id, clock_mono_ns());
    rc = average_enter(t->step.average, with_statistics, t->step.coll, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    return rc;
}

/* However this ends, the parameters are the trained ones again. */
int trainer_with_average(struct trainer *t, int with_statistics,
                         int (*work)(struct trainer *t, void *arg, struct err *err), void *arg,
                         struct err *err)
{
    struct err later;
    int back, rc = statistics_enter(t, with_statistics, err);

    if (rc == 0)
        rc = update_refresh(t->step.update, err);
    if (rc == 0)
        rc = work(t, arg, err);
    back = average_leave(t->step.average, &later);
    if (back == 0)
        back = update_refresh(t->step.update, &later);
    if (rc == 0 && back < 0)
        *err = later;
    return rc < 0 ? rc : back;
}
