/* ranks - one thread for each rank: opens, forms, trains, validates, and notes what the tests
 * look at. */
#include "ranks.h"

#include "../test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "op/control.h"
#include "train/engine.h"
#include "train/trainer_impl.h"

struct job_run {
    const struct run_plan *plan;
    struct run_result *result;
    struct coll_group *group, *again; /* again: for the second formation */
    pthread_barrier_t all_failed;
    pthread_mutex_t lock; /* guards the result's validation sums, note, warnings and saved */
    int64_t n_correct;
};

struct rank_run {
    struct job_run *job;
    int rank;
    struct faults *faults;
    struct trainer *trainer;
    struct coll *coll;
    int n_reports;
    int64_t first_step, last_loss, last_samples;
    /* Of validation; added up in rank order, so that equal runs give equal bits. */
    double loss_sum, weight;
    int64_t begun; /* the step that began last, or -1 */
    atomic_uint requests;
};

/* ---- hooks that do nothing ---- */

static void free_report(void *arg, struct report *r) { (void)arg, report_free(r); }

static unsigned request_nothing(void *arg) { return (void)arg, 0; }

static int never(void *arg) { return (void)arg, 0; }

static void at_any(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket)
{
    (void)arg, (void)phase, (void)epoch, (void)step, (void)bucket;
}

static void stepped_in(void *arg, int64_t wall_ns, int64_t busy_ns)
{
    (void)arg, (void)wall_ns, (void)busy_ns;
}

struct trainer_hooks run_idle_hooks(void *arg)
{
    return (struct trainer_hooks){arg, free_report, request_nothing, never, at_any, stepped_in};
}

/* ---- hooks ---- */

static void note_found(struct found *f, const struct report *r)
{
    *f = (struct found){.step = r->corruption.step,
                        .rank = r->corruption.rank,
                        .share = r->corruption.share,
                        .is_proven = r->corruption.is_proven,
                        .is_healed = r->corruption.is_healed,
                        .ends = r->corruption.ends,
                        .leaves = r->corruption.leaves,
                        .what = r->corruption.what};
    snprintf(f->tensor, sizeof f->tensor, "%s", r->corruption.tensor ? r->corruption.tensor : "");
}

static void take_report(void *arg, struct report *r)
{
    struct rank_run *k = arg;
    struct run_result *out = k->job->result;

    if (r->kind == REPORT_STEP || r->kind == REPORT_ROW)
        k->n_reports++;
    if (r->kind == REPORT_ROW && out->n_rows++ < MOST_ROWS)
        out->row[out->n_rows - 1] = r->row;
    if (r->kind == REPORT_WARNING) {
        pthread_mutex_lock(&k->job->lock);
        strncat(out->warning, r->warning.text, sizeof out->warning - strlen(out->warning) - 1);
        pthread_mutex_unlock(&k->job->lock);
    }
    if (r->kind == REPORT_REBALANCE) {
        assert_int_equal(k->rank, 0);
        for (int i = 0; i < r->rebalance.n_ranks; i++)
            out->share[i] = llrint(r->rebalance.share[i]);
        out->n_rebalanced++;
    }
    if (r->kind == REPORT_BUCKETS) {
        assert_int_equal(k->rank, 0);
        out->n_cut++;
        out->cut_step = r->buckets.step;
        out->cut_bytes = r->buckets.bucket_bytes;
        out->n_buckets = r->buckets.n_buckets;
    }
    if (r->kind == REPORT_CORRUPTION) {
        assert_int_equal(k->rank, 0);
        assert_true(out->n_found < MOST_FOUND);
        note_found(&out->found[out->n_found++], r);
    }
    if (r->kind == REPORT_INJECT) {
        pthread_mutex_lock(&k->job->lock);
        strncat(out->injected, r->inject.text, sizeof out->injected - strlen(out->injected) - 1);
        pthread_mutex_unlock(&k->job->lock);
        faults_announced(k->faults);
    }
    if (r->kind == REPORT_CHECKPOINT && r->checkpoint.path) {
        pthread_mutex_lock(&k->job->lock);
        out->saved[out->n_saved++ % MOST_STEPS] = r->checkpoint.step;
        pthread_mutex_unlock(&k->job->lock);
    }
    if (r->kind == REPORT_CHECKPOINT && r->checkpoint.error) {
        pthread_mutex_lock(&k->job->lock);
        strncat(out->unsaved, r->checkpoint.error, sizeof out->unsaved - strlen(out->unsaved) - 1);
        pthread_mutex_unlock(&k->job->lock);
    }
    report_free(r);
}

static void stepped(void *arg, int64_t wall_ns, int64_t busy_ns)
{
    struct rank_run *k = arg;

    k->job->result->ring[k->rank].n_timed++;
    k->job->result->ring[k->rank].wall_ns += wall_ns;
    k->job->result->ring[k->rank].busy_ns += busy_ns;
}

static unsigned requests(void *arg) { return atomic_load(&((struct rank_run *)arg)->requests); }

/* Note what the step before added.  Called at the start of each step, and after the last one. */
static void note_step(struct rank_run *k, int64_t step)
{
    const struct ckpt_state *at = &k->trainer->state->at;
    struct run_result *out = k->job->result;
    int64_t i = step - k->first_step - 1;

    if (i >= 0 && i < MOST_STEPS && i == out->n_steps) {
        int64_t n = at->epoch_samples - k->last_samples;

        out->step_loss[i] = n > 0 ? control_loss(at->epoch_loss - k->last_loss) / (double)n : 0;
        out->step_samples[i] = n;
        out->n_steps++;
    }
    k->last_loss = at->epoch_loss;
    k->last_samples = at->epoch_samples;
    if (i + 1 >= 0 && i + 1 < MOST_STEPS) {
        out->allocs[i + 1] = alloc_count();
        out->reports[i + 1] = k->n_reports;
    }
}

static void at(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket)
{
    struct rank_run *k = arg;
    const struct run_plan *p = k->job->plan;

    (void)epoch;
    if (k->rank == 0 && phase == PHASE_BACKWARD && (bucket == 0 || bucket == 1))
        k->job->result->n_shown[bucket]++;
    /* On a device a step may be loaded before the one ahead of it is done.  Such a step begins
     * later. */
    if (k->rank == 0 && (phase == PHASE_LOAD || phase == PHASE_STEP) &&
        step == trainer_step(k->trainer) && step != k->begun) {
        k->begun = step;
        note_step(k, step);
        if (p->on_step)
            p->on_step(p->arg, k->trainer, step);
    }
    if (k->rank == p->n_ranks - 1 && p->stop_at && phase == PHASE_LOAD &&
        k->trainer->step.queued->step == p->stop_at)
        atomic_store(&k->requests, ENGINE_REQUEST_STOP);
    if (k->rank == p->n_ranks - 1 && p->save_at && phase == PHASE_LOAD)
        atomic_store(&k->requests,
                     k->trainer->step.queued->step == p->save_at ? ENGINE_REQUEST_CHECKPOINT : 0);
}

/* ---- one rank's life ---- */

static int form(struct rank_run *k, int64_t generation, int source, struct err *err)
{
    const int n = k->job->plan->n_ranks;

    if (trainer_prepare(k->trainer, k->rank, n, n, n, err) < 0)
        return err->code;
    ring_begin(trainer_ring(k->trainer), generation);
    trainer_take_coll(k->trainer, k->coll);
    k->coll = NULL;
    return trainer_form(k->trainer, source, err);
}

static int open_rank(struct rank_run *k, struct err *err)
{
    const struct run_plan *p = k->job->plan;
    struct cmd *c = cmd_new(CMD_OPEN, 1);
    struct report *r = report_new(REPORT_OPENED, 1);
    int rc;

    c->open.rank = k->rank;
    c->open.n_ranks = p->n_ranks;
    c->open.job = blob_of(p->job, strlen(p->job));
    if (p->resume && k->rank == 0)
        c->open.resume = xstrdup(p->run_dir);
    rc = trainer_open(k->trainer, c, r, err);
    cmd_free(c);
    report_free(r);
    return rc;
}

static void keep_epoch(struct rank_run *k, const struct report *r, int64_t i)
{
    struct run_result *out = k->job->result;

    out->replica[k->rank] = r->epoch.replica;
    pthread_mutex_lock(&k->job->lock);
    if (r->epoch.note)
        snprintf(out->note, sizeof out->note, "%s", r->epoch.note);
    pthread_mutex_unlock(&k->job->lock);
    if (k->rank != 0 || i >= MOST_EPOCHS)
        return;
    /* The epoch's last step has no next step at whose begin it could be noted, but the epoch's sums
     * are still there. */
    note_step(k, k->trainer->state->at.step);
    k->last_loss = k->last_samples = 0;
    out->epoch[i] = *r;
    out->epoch[i].epoch.tensor = NULL;
    out->epoch[i].epoch.note = NULL;
}

/* As after CMD_VALIDATE and CMD_CHECKPOINT, while training goes on. */
static int save_between(struct rank_run *k, int64_t epoch, struct err *err)
{
    struct report *validated = report_new(REPORT_VALIDATED, 1);
    struct report *saved = report_new(REPORT_CHECKPOINT, 1);
    int rc = trainer_validate(k->trainer, epoch, validated, err);

    if (rc == 0)
        rc = trainer_checkpoint(k->trainer, 0, saved, err);
    report_free(validated);
    report_free(saved);
    return rc;
}

static int train(struct rank_run *k, struct err *err)
{
    const struct run_plan *p = k->job->plan;
    struct ckpt_state *at_ = &k->trainer->state->at;

    k->first_step = at_->step;
    k->begun = -1;
    k->last_loss = at_->epoch_loss;
    k->last_samples = at_->epoch_samples;
    for (int64_t i = 0; i < p->n_epochs; i++) {
        struct report *r = report_new(REPORT_EPOCH, 1);
        int rc = trainer_train(k->trainer, at_->step / k->trainer->steps_per_epoch + 1, r, err);
        enum epoch_end end = r->epoch.end;

        if (rc == 0)
            keep_epoch(k, r, i);
        report_free(r);
        if (rc < 0)
            return rc;
        if (end != EPOCH_WHOLE)
            break;
        if (p->saves_epochs && i + 1 < p->n_epochs)
            rc = save_between(k, i + 1, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int validate_and_save(struct rank_run *k, struct err *err)
{
    struct report *r = report_new(REPORT_VALIDATED, 1);
    int rc = trainer_validate(k->trainer, 1, r, err);

    pthread_mutex_lock(&k->job->lock);
    k->loss_sum = r->validated.loss_sum;
    k->job->n_correct += r->validated.n_correct;
    k->job->result->n_validated += r->validated.n_samples;
    k->weight = r->validated.weight;
    if (k->rank == 0)
        k->job->result->best_score = k->trainer->loop.v[LOOP_BEST + 1];
    pthread_mutex_unlock(&k->job->lock);
    report_free(r);
    if (rc == 0 && k->job->plan->run_dir) {
        r = report_new(REPORT_CHECKPOINT, 1);
        rc = trainer_checkpoint(k->trainer, 1, r, err);
        if (rc == 0 && r->checkpoint.error)
            rc = err_set(err, ERR_IO, "%s", r->checkpoint.error);
        report_free(r);
    }
    return rc;
}

struct hash128 run_state_hash(struct trainer *t)
{
    struct report *r = report_new(REPORT_EPOCH, 1);
    struct hash128 all = {0, 0};
    struct err err;

    r->epoch.n_tensors = state_n_hashes(t->state);
    assert_int_equal(state_hash(t->state, &r->epoch.tensor, &all, &err), 0);
    report_free(r);
    return all;
}

static void copy_parameters(const struct rank_run *k, float *to)
{
    const int64_t n = k->trainer->layout->n_trained;

    assert_true(n <= MOST_LIVES);
    if (k->rank == 0)
        k->job->plan->lives->n = n;
    memcpy(to, state_data(k->trainer->state, &slot_parameters), sizeof *to * (size_t)n);
}

/* All ranks have failed.  The last one is gone, and a new one takes its place. */
static int live_again(struct rank_run *k, const struct trainer_options *o,
                      const struct trainer_hooks *hooks, struct err *err)
{
    struct run_lives *lives = k->job->plan->lives;
    int rc = 0;

    if (k->rank == k->job->plan->n_ranks - 1) {
        trainer_free(k->trainer);
        k->trainer = trainer_new(o, hooks);
        rc = open_rank(k, err);
    } else {
        copy_parameters(k, lives->before[k->rank]);
        k->trainer->state->at.step -= k->rank == 1 ? lives->n_back : 0;
        lives->step[k->rank] = trainer_step(k->trainer);
        if (lives->change)
            lives->change(k->trainer, k->rank);
    }
    pthread_barrier_wait(&k->job->all_failed);
    if (rc == 0)
        rc = coll_new_local(k->job->again, k->rank, &k->coll, err);
    if (rc == 0)
        rc = form(k, 2, lives->step[1] > lives->step[0], err);
    if (k->trainer->state)
        copy_parameters(k, lives->after[k->rank]);
    pthread_barrier_wait(&k->job->all_failed);
    lives->step[k->rank] = trainer_step(k->trainer);
    lives->bucket_bytes[k->rank] = k->trainer->layout->bucket_bytes;
    return rc;
}

static void *rank_main(void *arg)
{
    struct rank_run *k = arg;
    const struct run_plan *p = k->job->plan;
    const int is_other = k->rank == p->n_ranks - 1 && p->last_threads > 0;
    struct run_result *out = k->job->result;
    struct trainer_options o = {.plugin = p->plugin,
                                .strategy = p->strategy,
                                .bucket_bytes = p->bucket_bytes,
                                .bucket_choice = p->bucket_choice,
                                .window_bytes = p->window_bytes,
                                .keep_bytes = p->keep_bytes,
                                .n_threads = is_other       ? p->last_threads
                                             : p->n_threads ? p->n_threads
                                                            : 1,
                                .run_dir = k->rank == 0 ? p->run_dir : NULL};
    struct trainer_hooks hooks = run_idle_hooks(k);
    struct err *err = &out->err[k->rank];
    int rc;

    hooks.report = take_report;
    hooks.requests = requests;
    hooks.at = at;
    hooks.stepped = stepped;
    if (p->inject) {
        k->faults = o.faults = faults_new(take_report, k);
        faults_take(k->faults, p->inject, k->rank);
    }
    k->trainer = trainer_new(&o, &hooks);
    rc = open_rank(k, err);
    if (rc == 0)
        rc = form(k, 1, 0, err);
    if (rc == 0) {
        rc = train(k, err);
        if (rc == 0)
            rc = validate_and_save(k, err);
        if (rc < 0)
            out->held[k->rank] = run_state_hash(k->trainer);
    }
    if (rc < 0 && p->lives)
        rc = live_again(k, &o, &hooks, err);
    ring_head(trainer_ring(k->trainer), &out->ring[k->rank].head);
    out->ring[k->rank].n_newest = ring_read(trainer_ring(k->trainer), out->ring[k->rank].newest);
    out->rc[k->rank] = rc;
    out->step[k->rank] = trainer_step(k->trainer);
    coll_free(k->coll);
    trainer_free(k->trainer);
    faults_free(k->faults);
    return NULL;
}

void run_job(const struct run_plan *plan, struct run_result *r)
{
    struct job_run job = {.plan = plan,
                          .result = r,
                          .group = coll_group_new(plan->n_ranks),
                          .again = coll_group_new(plan->n_ranks)};
    struct rank_run rank[MOST_RANKS] = {0};
    pthread_t thread[MOST_RANKS];
    struct err err;

    *r = (struct run_result){0};
    pthread_mutex_init(&job.lock, NULL);
    pthread_barrier_init(&job.all_failed, NULL, (unsigned)plan->n_ranks);
    coll_local_inject(job.group, 0, plan->own_fault);
    coll_local_inject(job.group, plan->n_ranks - 1, plan->fault);
    if (plan->lives)
        coll_local_inject(job.again, plan->n_ranks - 1, plan->lives->fault);
    for (int i = 0; i < plan->n_ranks; i++) {
        rank[i] = (struct rank_run){.job = &job, .rank = i};
        assert_int_equal(coll_new_local(job.group, i, &rank[i].coll, &err), 0);
    }
    for (int i = 0; i < plan->n_ranks; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, rank_main, &rank[i]), 0);
    for (int i = 0; i < plan->n_ranks; i++)
        pthread_join(thread[i], NULL);
    if (r->n_validated > 0) {
        double loss_sum = 0, weight = 0;

        for (int i = 0; i < plan->n_ranks; i++) {
            loss_sum += rank[i].loss_sum;
            weight += rank[i].weight;
        }
        r->validation_loss = loss_sum / weight;
        r->validation_accuracy = (double)job.n_correct / (double)r->n_validated;
    }
    coll_group_free(job.group);
    coll_group_free(job.again);
    pthread_barrier_destroy(&job.all_failed);
    pthread_mutex_destroy(&job.lock);
}

void run_job_ok(const struct run_plan *plan, struct run_result *r)
{
    run_job(plan, r);
    for (int i = 0; i < plan->n_ranks; i++) {
        if (r->rc[i] < 0)
            fail_msg("rank %d: %s", i, r->err[i].msg);
        if (!hash_equal(r->replica[i], r->replica[0]) || r->step[i] != r->step[0])
            fail_msg("rank %d differs from rank 0", i);
    }
}
