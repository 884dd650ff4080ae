/* trainer - prepares for a formation, forms, leaves and closes.
 *
 * The order of calls is in trainer.h.  Opening a job is in open.c, an epoch in epoch.c, a
 * checkpoint in checkpoint.c, a validation in validate.c, and a step in step/. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "ckpt/rows_file.h"
#include "coll/device.h"
#include "state/shards.h"
#include "train/dump.h"
#include "train/kinds.h"
#include "train/meet.h"
#include "train/trainer_impl.h"

struct trainer *trainer_new(const struct trainer_options *o, const struct trainer_hooks *hooks)
{
    struct trainer *t = xcalloc(1, sizeof *t);

    t->o = *o;
    t->o.run_dir = o->run_dir ? xstrdup(o->run_dir) : NULL;
    t->hooks = *hooks;
    t->ring = ring_new();
    tracing_new(&t->tracing, t);
    t->warned_step = t->met_step = -1;
    t->joint = joint_new(hooks->arg, hooks->canceled);
    if (t->o.run_dir)
        t->saver = saver_new(t->o.run_dir,
                             &(struct saver_hooks){hooks->arg, hooks->report, hooks->canceled,
                                                   spans_track(t->tracing.spans, SPANS_DISK)});
    return t;
}

void trainer_leave(struct trainer *t)
{
    step_disband(&t->step);
    trainer_give_up_checkpoint(t);
}

void trainer_close(struct trainer *t)
{
    trainer_leave(t);
    if (t->saver)
        saver_finish(t->saver); /* the last checkpoint is written from the state itself */
    rows_file_free(t->predictions);
    t->predictions = NULL;
    feed_free(t->valid_feed);
    t->valid_feed = NULL;
    step_close(&t->step);
    if (t->state)
        t->closed_at = t->state->at.step;
    state_free(t->state);
    t->state = NULL;
    backend_close(t->backend);
    t->backend = NULL;
}

void trainer_free(struct trainer *t)
{
    if (!t)
        return;
    trainer_close(t);     /* what is being written has copies of all that it needs */
    joint_free(t->joint); /* before the saver, which it needs */
    saver_free(t->saver);
    balance_reset(t);
    inspect_free(&t->inspect);
    layout_free(t->layout);
    dataset_close(t->train_set);
    dataset_close(t->valid_set);
    job_free(t->job);
    ring_free(t->ring);
    tracing_free(&t->tracing);
    free((char *)t->o.run_dir);
    free(t);
}

struct backend *trainer_backend(const struct trainer *t) { return t->backend; }
const struct job *trainer_job(const struct trainer *t) { return t->job; }
const char *trainer_job_name(const struct trainer *t) { return t->job->name; }

struct ring *trainer_ring(struct trainer *t) { return t->ring; }

int trainer_took_checkpoint(const struct trainer *t) { return t->took_checkpoint; }

int64_t trainer_step(const struct trainer *t)
{
    return t->state ? t->state->at.step : t->closed_at;
}

/* ---- prepare, form ---- */

static int fit_feeds(struct trainer *t, struct err *err)
{
    int accumulate = (int)t->job->train.accumulate;
    const int64_t largest = max_i64(sampler_largest_micro(&t->sampler, t->n_ranks, accumulate),
                                    programs_statistics_batch(t->step.programs));
    int rc = feed_fit(t->step.feed, largest, err);

    if (rc == 0 && t->valid_feed)
        rc = feed_fit(t->valid_feed, programs_validation_batch(t->step.programs), err);
    return rc;
}

int trainer_make_programs(struct trainer *t, struct err *err)
{
    const struct programs_options o = {
        .job = t->job,
        .spec = t->spec,
        .sampler = &t->sampler,
        .n_validation = t->valid_set ? t->valid_set->n_samples : 0,
        .rank = t->rank,
        .n_ranks = t->n_ranks,
        .n_threads = t->n_threads,
        .former = t->step.programs,
        .gathers = t->layout->gathers,
        .audits = t->job->train.audit > 0 && !inspect_obstacle(t),
        .statistics = average_has_statistics(t->job, t->layout),
    };
    int rc;

    t->step.programs = NULL; /* the former ones are the new ones' now */
    rc = programs_new(&o, t->backend, t->state, t->step.buffers, &t->step.programs, err);
    return rc == 0 ? fit_feeds(t, err) : rc;
}

int trainer_prepare(struct trainer *t, int rank, int n_ranks, int n_local, int n_container,
                    struct err *err)
{
    const int n_threads = t->n_threads;

    ASSERT(t->state);
    trainer_leave(t);
    balance_reset(t);
    t->rank = rank;
    t->n_ranks = n_ranks;
    t->has_stepped = 0;
    t->n_threads = trainer_n_threads(t, n_local, n_container);
    t->n_processors = trainer_n_processors();
    if (t->saver && saver_settle(t->saver, err) < 0)
        return err->code;
    if (t->n_threads != n_threads)
        trainer_say_quota(t, n_local);
    backend_set_threads(t->backend, t->n_threads);
    return trainer_make_programs(t, err);
}

void trainer_take_coll(struct trainer *t, struct coll *coll)
{
    ASSERT(!t->step.coll && coll_size(coll) == t->n_ranks);
    t->step.coll = coll;
    reducer_join(t->step.reducer, coll);
}

/* 1: this rank may record its steps.  It may not if it has faults on purpose, because these happen
 * between kernels; agree_to_record then keeps all ranks from recording.  Nor may it if the
 * strategy's collectives may differ from rank to rank, because all ranks must launch the same ones
 * together. */
static int may_record(const struct trainer *t)
{
    return t->job->train.record && !faults_n(t->o.faults) &&
           (t->n_ranks == 1 || reducer_promises(t->step.reducer)->collectives_are_equal);
}

static int agree_to_record(struct trainer *t, int *records, struct err *err)
{
    const size_t size = (size_t)t->n_ranks;
    const uint8_t mine = (uint8_t)*records;
    uint8_t *all;
    int rc;

    if (!coll_is_device(t->step.coll))
        return 0;
    all = xcalloc(size, 1);
    rc = coll_allgather(t->step.coll, &mine, 1, all, err);
    *records = rc == 0 && !memchr(all, 0, size);
    free(all);
    return rc < 0 ? err_wrap(err, "agreeing on whether steps are recorded") : 0;
}

static void tell_back(struct trainer *t, const char *lost, const char *to, int64_t step)
{
    char *text = step > 0
                     ? xasprintf("%s: training goes back to %s %lld", lost, to, (long long)step)
                     : xasprintf("%s: there is no checkpoint yet, so training begins again", lost);

    trainer_warn_at(t, step, text);
    free(text);
}

/* On rank 0, which holds nothing that is newer: hold the whole state of the checkpoint; of step 0
 * if that is NULL.  `lost` says why. */
static int hold_earlier_state(struct trainer *t, const struct ckpt *c, const char *lost,
                              struct err *err)
{
    int rc = shards_hold_all(t->state, err);

    if (rc == 0 && c) {
        rc = state_load(t->state, c, err);
        t->took_checkpoint = 1;
    } else if (rc == 0) {
        t->state->at = trainer_beginning(t);
        rc = state_init(t->state, t->job, err);
    }
    if (rc < 0)
        return rc;
    tell_back(t, lost, "the checkpoint of step", t->state->at.step);
    return 0;
}

/* On rank 0: take the newest checkpoint, or begin again if there is none yet; but not if a newer
 * step than that is left whole on some rank. */
static int load_earlier_state(struct trainer *t, const char *lost, struct err *err)
{
    const int64_t whole = t->state->shards->older_step; /* -1: none */
    struct ckpt *c = NULL;
    int rc = t->o.run_dir ? ckpt_load_latest(t->o.run_dir, trainer_warn, t, &c, err) : CKPT_NONE;

    if (rc >= 0 && (c ? c->state.step : 0) > whole)
        rc = hold_earlier_state(t, c, lost, err);
    else if (rc >= 0)
        tell_back(t, lost, "step", whole);
    ckpt_close(c);
    return rc < 0 ? err_wrap(err, "%s", lost) : 0;
}

/* The ranks that are left do not hold the whole state of the newest step.  So all ranks go on from
 * the newest checkpoint, or from an older step that they hold, if that is newer. */
static int go_back(struct trainer *t, int source, struct err *err)
{
    const struct err lost = *err;
    int rc = 0;

    if (t->saver)
        saver_finish(t->saver);
    if (t->rank == 0)
        rc = load_earlier_state(t, lost.msg, err);
    t->state->shards->takes_older = 1;
    if (rc == 0)
        rc = state_broadcast(t->state, t->step.coll, source, err);
    t->state->shards->takes_older = 0;
    return rc == SHARDS_LOST ? err->code : rc; /* rank 0 could not, and its failure says why */
}

/* All ranks write a divided state together, so all must know whether a checkpoint is due: rank 0
 * tells them. */
static int agree_on_checkpoint(struct trainer *t, struct err *err)
{
    uint8_t due = (uint8_t)t->is_checkpoint_due;
    const int rc = coll_broadcast(t->step.coll, &due, sizeof due, 0, err);

    if (due)
        trainer_make_checkpoint_due(t, t->state->at.step);
    else
        t->is_checkpoint_due = 0;
    return rc;
}

/* Bring all ranks to one state.  Either one rank's state is enough and is broadcast, or the holders
 * of shards send them, or the strategy does it in its function `form`. */
static int take_source(struct trainer *t, int source, struct err *err)
{
    int rc = meet_again(t, source, err);

    if (rc == 0)
        rc = inspect_source(t, &source, err);
    if (rc == 0 && (t->state->shards ||
                    reducer_promises(t->step.reducer)->recovery == STRATEGY_NEEDS_ONE_RANK))
        rc = state_broadcast(t->state, t->step.coll, source, err);
    rc = inspect_took(t, rc, source, err);
    if (rc == SHARDS_LOST)
        rc = go_back(t, source, err);
    if (rc == 0 && t->state->shards)
        rc = agree_on_checkpoint(t, err);
    if (rc == 0 && t->state->shards)
        rc = shards_equip(t->state, err);
    return rc == 0 ? reducer_form(t->step.reducer, source, err) : rc;
}

/* These collectives make no entries in the record, so all of them together get one. */
static int take_state(struct trainer *t, int source, int *records, struct err *err)
{
    int64_t id = ring_hand(t->ring, t->state->at.step, RING_STATE, 0, PHASE_FORM, RING_OF_STATE);
    int rc;

    ring_run(t->ring, id, clock_mono_ns());
    rc = take_source(t, source, err);
    if (rc == 0)
        rc = agree_to_record(t, records, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    return rc;
}

static int register_reduced(struct trainer *t, struct err *err)
{
    /* Divided gradients are reduced in memory that is not registered. */
    if (!t->step.buffers->grad)
        return 0;
    return coll_device_register(t->step.coll, t->step.buffers->grad,
                                layout_grad_bytes(t->layout, t->layout->grad_dtype), err);
}

/* Read the loss scale for the first step.  Later scales come with each step's result. */
static int read_loss_scale(struct trainer *t, struct err *err)
{
    float scaler[SCALER_LEN] = {0};
    int rc = t->layout->has_scaler
                 ? backend_copy_out(t->backend, scaler, state_data(t->state, &slot_scaler),
                                    sizeof scaler, err)
                 : 0;

    t->step.loss_scale = (double)scaler[SCALER_SCALE];
    return rc;
}

/* Make the update and the average anew, because each formation has other shards. */
static int remake_update(struct trainer *t, struct err *err)
{
    int rc;

    average_free(t->step.average);
    t->step.average = NULL;
    rc = trainer_make_update(t, err);
    return rc == 0 && average_is_wanted(t->job) ? trainer_make_average(t, err) : rc;
}

int trainer_make_update(struct trainer *t, struct err *err)
{
    update_free(t->step.update);
    t->step.update = NULL;
    return update_new(t->job, t->backend, t->state, t->step.buffers, &t->step.update, err);
}

int trainer_start_feed(struct trainer *t, int64_t last, struct err *err)
{
    return feed_start_train(t->step.feed, &t->sampler, (int)t->job->train.accumulate, t->n_ranks,
                            t->rank, t->state->at.step, last, err);
}

int trainer_make_average(struct trainer *t, struct err *err)
{
    return average_new(t->job, t->state, t->step.buffers, t->steps_per_epoch,
                       schedule_total(&t->job->schedule, t->total_steps), &t->step.average, err);
}

int trainer_reread(struct trainer *t, struct err *err)
{
    int rc = read_loss_scale(t, err);

    if (rc == 0)
        rc = loop_read(&t->loop, t->state, err);
    return rc == 0 ? update_refresh(t->step.update, err) : rc;
}

int trainer_form(struct trainer *t, int source, struct err *err)
{
    const int64_t before = t->state->at.step;
    int records = may_record(t);
    int rc;

    t->took_checkpoint = 0;
    t->hooks.at(t->hooks.arg, PHASE_FORM, 0, t->state->at.step, -1);
    if (t->n_ranks > 1 && coll_is_device(t->step.coll) && register_reduced(t, err) < 0)
        return err->code;
    rc = t->n_ranks == 1 && !t->state->shards ? reducer_form(t->step.reducer, 0, err)
                                              : take_state(t, source, &records, err);
    if (rc == 0)
        rc = buffers_clear(t->step.buffers, t->layout, err);
    if (rc == 0 && (t->state->shards || (t->step.average && average_is_stale(t->step.average))))
        rc = remake_update(t, err);
    if (rc == 0)
        rc = buckets_form(t, err);
    if (rc < 0)
        return rc;
    dump_missed(t, before);
    balance_begin(t);
    t->step.tapes = tapes_new(t->backend, reducer_exchange(t->step.reducer), records);
    rc = inspect_form(t, err);
    if (rc == 0)
        rc = kinds_form(t, err);
    if (rc == 0)
        rc = trainer_reread(t, err);
    return rc == 0 ? meet_is_over(t, err) : rc;
}

/* Open the checkpoint of this step, or if it is not there the newest one. */
static int open_checkpoint(struct trainer *t, int64_t step, struct ckpt **out, struct err *err)
{
    char *folder = xasprintf("%s/checkpoints/step-%08lld", t->o.run_dir, (long long)step);
    int rc = ckpt_load_folder(folder, out, err);

    if (rc < 0) {
        trainer_warn_at(t, t->state->at.step, err->msg);
        rc = ckpt_load_latest(t->o.run_dir, trainer_warn, t, out, err);
    }
    free(folder);
    return rc;
}

/* Rank 0 loads what all ranks go back to. */
static int load_back(struct trainer *t, int64_t step, struct err *err)
{
    struct ckpt *c = NULL;
    int rc = CKPT_NONE;

    if (t->saver)
        saver_finish(t->saver);
    if (t->o.run_dir && step > 0)
        rc = open_checkpoint(t, step, &c, err);
    if (rc == 0)
        rc = state_load(t->state, c, err);
    else if (rc == CKPT_NONE) {
        t->state->at = trainer_beginning(t);
        rc = state_init(t->state, t->job, err);
    }
    ckpt_close(c);
    return rc;
}

int trainer_go_back(struct trainer *t, int64_t step, int *is_loaded, struct err *err)
{
    const int64_t id =
        ring_hand(t->ring, t->state->at.step, RING_STATE, 0, PHASE_UPDATE, RING_OF_STATE);
    int rc = t->rank == 0 ? load_back(t, step, err) : 0;

    *is_loaded = t->rank == 0 && rc == 0;
    t->met_step = -1; /* unless all ranks get there, they hold different states at one step */
    ring_run(t->ring, id, clock_mono_ns());
    if (rc == 0 && t->n_ranks > 1)
        rc = state_broadcast(t->state, t->step.coll, 0, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    if (rc == 0 && t->step.average && average_is_stale(t->step.average))
        rc = remake_update(t, err);
    return rc == 0 ? trainer_reread(t, err) : rc;
}

/* ---- memory ---- */

double rss_mib(void)
{
    char line[256] = "";
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0, resident = 0;

    if (f && fgets(line, sizeof line, f) && sscanf(line, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1048576.0;
}

double peak_rss_mib(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024.0;
}
