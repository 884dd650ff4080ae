/* From Prepare to the last checkpoint.
 *
 * Each stage sends one command to all engines, rank 0's included, collects one answer from each,
 * and the last answer decides what comes next:
 *
 *   prepare -> form -> train -> [validate] -> [checkpoint] -> train ... -> Stop
 *
 * Reports come in through driver_report.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "session/driver_impl.h"

/* ---- commands ---- */

static void enter_stage(struct driver *d, enum stage stage, enum phase phase)
{
    d->stage = stage;
    d->stage_ms = d->now_ms;
    d->n_answers = 0;
    d->is_engine_busy = 1;
    for (int k = 0; k < d->n_ranks; k++) {
        struct seat *s = &d->seats[k];
        report_free(s->answer);
        s->answer = NULL;
        s->moved_ms = s->since_ms = d->now_ms;
        s->at.phase = phase; /* until it says something newer */
    }
}

static void send_command(struct driver *d, int rank, const struct cmd *c)
{
    struct err err;
    struct frame *f = convert_command(c, &err);
    if (f)
        queue_send(&d->out, d->seats[rank].conn->id, f);
    else
        end_accuse(d, (struct cause){.rank = 0, .code = err.code, .phase = PHASE_COUNT, .step = -1},
                   0, "%s", err.msg);
}

/* The same command to all; takes c. */
static void command_all(struct driver *d, struct cmd *c)
{
    struct err err;
    struct frame *f = convert_command(c, &err);
    for (int k = 1; f && k < d->n_ranks; k++)
        queue_send(&d->out, d->seats[k].conn->id, frame_ref(f));
    queue_command(&d->out, c);
    if (!f)
        end_accuse(d, (struct cause){.rank = 0, .code = err.code, .phase = PHASE_COUNT, .step = -1},
                   0, "%s", err.msg);
    frame_unref(f);
}

/* ---- prepare ---- */

static int is_loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

/* The driver's own address, as remote ranks reach it; without any, as the first one does. */
static const char *own_address(const struct driver *d)
{
    const char *found = NULL;
    if (d->o.advertise)
        return d->o.advertise;
    for (int k = 1; k < d->n_ranks; k++) {
        const struct conn *c = d->seats[k].conn;
        if (!is_loopback(c->peer))
            return c->local;
        found = found ? found : c->local;
    }
    return found ? found : "127.0.0.1";
}

static const char *address_of(const struct driver *d, int rank, const char *own)
{
    const struct seat *s = &d->seats[rank];
    if (rank == 0)
        return own;
    if (s->advertise)
        return s->advertise;
    return is_loopback(s->conn->peer) ? own : s->conn->peer;
}

struct place {
    const char *host_id;
    int rank;
    int local, n_local;
};

static int by_host(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int c = strcmp(x->host_id, y->host_id);
    return c ? c : x->rank - y->rank;
}

static int by_rank(const void *a, const void *b)
{
    return ((const struct place *)a)->rank - ((const struct place *)b)->rank;
}

/* Which of the ranks on its host each one is; [n_ranks], for free(). */
static struct place *place_ranks(const struct driver *d)
{
    int n = d->n_ranks;
    struct place *p = xcalloc((size_t)n, sizeof(*p));
    for (int k = 0; k < n; k++)
        p[k] = (struct place){.host_id = d->seats[k].host_id, .rank = k};
    qsort(p, (size_t)n, sizeof(*p), by_host);
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && !strcmp(p[end].host_id, p[first].host_id); end++)
            p[end].local = end - first;
        for (int i = first; i < end; i++)
            p[i].n_local = end - first;
    }
    qsort(p, (size_t)n, sizeof(*p), by_rank);
    return p;
}

static void say_joined(struct driver *d)
{
    for (int k = 1; k < d->n_ranks; k++) {
        if (d->seats[k].is_said)
            continue;
        d->seats[k].is_said = 1;
        driver_event(d, &(struct session_event){
                            .kind = EVENT_JOIN, .rank = k, .step = -1, .phase = PHASE_COUNT});
    }
}

void run_prepare(struct driver *d)
{
    struct place *places = place_ranks(d);
    const char *own = own_address(d);

    say_joined(d);
    d->generation++;
    d->form_ns = d->now_ns;
    enter_stage(d, STAGE_PREPARE, PHASE_PREPARE);
    for (int k = 0; k < d->n_ranks; k++) {
        d->seats[k].is_member = 1;
        struct cmd *c = cmd_new(CMD_PREPARE, d->generation);
        c->prepare.rank = k;
        c->prepare.n_ranks = d->n_ranks;
        c->prepare.local = places[k].local;
        c->prepare.n_local = places[k].n_local;
        c->prepare.address = xstrdup(address_of(d, k, own));
        c->prepare.inject = inject_for_training(d, k);
        if (k == 0) {
            queue_command(&d->out, c);
        } else {
            send_command(d, k, c);
            cmd_free(c);
        }
    }
    free(places);
}

/* ---- form ---- */

static int newest_rank(const struct driver *d)
{
    int best = 0;
    for (int k = 1; k < d->n_ranks; k++)
        if (d->seats[k].answer->prepared.step > d->seats[best].answer->prepared.step)
            best = k;
    return best;
}

/* 1: all ranks communicate by the same library; 0: the job has failed. */
static int are_libraries_equal(struct driver *d)
{
    const char *own = d->seats[0].answer->prepared.library;
    for (int k = 1; k < d->n_ranks; k++) {
        const char *other = d->seats[k].answer->prepared.library;
        if (!strcmp(own ? own : "", other ? other : ""))
            continue;
        char *who = driver_label(d, k);
        end_accuse(d,
                   (struct cause){.rank = k,
                                  .code = ERR_UNSUPPORTED,
                                  .phase = PHASE_COUNT,
                                  .step = -1,
                                  .is_final = 1},
                   0, "%s communicates by %s, rank 0 by %s: install the same version on all", who,
                   other ? other : "something else", own ? own : "something else");
        free(who);
        return 0;
    }
    return 1;
}

/* Rank 0's ids stand for all endpoints, so that Form does not grow with the ranks. */
static void gather_endpoints(struct driver *d, struct cmd *c)
{
    struct report *own = d->seats[0].answer;
    c->form.ids = own->prepared.ids;
    own->prepared.ids = (struct blob){0};
    if (c->form.ids.len)
        return;
    c->form.n_endpoints = d->n_ranks;
    c->form.endpoint = xcalloc((size_t)d->n_ranks, sizeof(struct blob));
    for (int k = 0; k < d->n_ranks; k++) { /* moved, not copied: a large job's are megabytes */
        c->form.endpoint[k] = d->seats[k].answer->prepared.endpoint;
        d->seats[k].answer->prepared.endpoint = (struct blob){0};
    }
}

void run_form(struct driver *d)
{
    struct cmd *c;
    if (!are_libraries_equal(d))
        return;
    c = cmd_new(CMD_FORM, d->generation);
    c->form.source = newest_rank(d);
    gather_endpoints(d, c);
    enter_stage(d, STAGE_FORM, PHASE_FORM);
    command_all(d, c);
}

/* ---- train ---- */

int run_nothing_to_do(const struct driver *d, int64_t step)
{
    return step / d->steps_per_epoch >= d->o.n_epochs ||
           (d->o.max_steps > 0 && step >= d->o.max_steps);
}

/* All that the job asks for is trained. */
static int is_complete(const struct driver *d)
{
    return d->last.end == EPOCH_MAX_STEPS || run_nothing_to_do(d, d->step);
}

void run_train(struct driver *d)
{
    struct cmd *c = cmd_new(CMD_TRAIN, d->generation);
    /* Broken off after its last step, which not all knew of: its end is still to be told. */
    int is_at_end = d->is_epoch_open && d->step == d->epoch * d->steps_per_epoch;
    if (!is_at_end)
        d->epoch = d->step / d->steps_per_epoch + 1;
    d->is_epoch_open = 1;
    c->train.epoch = d->epoch;
    enter_stage(d, STAGE_TRAIN, PHASE_LOAD);
    for (int k = 0; k < d->n_ranks; k++)
        d->seats[k].at.step = d->step;
    command_all(d, c);
}

static void stop_politely(struct driver *d)
{
    const char *how = d->o.how_to_resume;
    if (d->save_error)
        end_stop(d, WIRE__OUTCOME__OUTCOME_FAILED, STATUS_FAILED,
                 "stopped by %s after step %lld, and the checkpoint could not be written: %s",
                 d->stop_why, (long long)d->step, d->save_error);
    else
        end_stop(d, WIRE__OUTCOME__OUTCOME_STOPPED, STATUS_STOPPED,
                 "stopped by %s after step %lld (epoch %lld)%s%s", d->stop_why, (long long)d->step,
                 (long long)d->last.epoch, how ? "; resume with: " : "", how ? how : "");
}

static void begin_validation(struct driver *d)
{
    struct cmd *c = cmd_new(CMD_VALIDATE, d->generation);
    c->validate.epoch = d->epoch;
    enter_stage(d, STAGE_VALIDATE, PHASE_VALIDATE);
    command_all(d, c);
}

/* The last one is to be on disk before the next thing happens. */
static void begin_checkpoint(struct driver *d)
{
    struct cmd *c = cmd_new(CMD_CHECKPOINT, d->generation);
    c->checkpoint.step = d->step;
    c->checkpoint.is_last = d->is_saving_last = d->is_final || d->n_stops > 0;
    enter_stage(d, STAGE_CHECKPOINT, PHASE_CHECKPOINT);
    command_all(d, c);
}

void run_formed(struct driver *d)
{
    int64_t step = d->seats[0].answer->formed.step;
    for (int k = 1; k < d->n_ranks; k++) {
        int64_t other = d->seats[k].answer->formed.step;
        if (other != step) {
            end_misbehaved(d, k, "it holds step %lld after forming, rank 0 step %lld",
                           (long long)other, (long long)step);
            return;
        }
    }
    d->step = step;
    driver_event(d, &(struct session_event){.kind = EVENT_FORM,
                                            .rank = -1,
                                            .step = step,
                                            .phase = PHASE_COUNT,
                                            .generation = d->generation,
                                            .n_ranks = d->n_ranks,
                                            .seconds = 1e-9 * (double)(d->now_ns - d->form_ns)});
    recover_formed(d);
    if (d->recovery.resume == STAGE_VALIDATE)
        begin_validation(d);
    else if (d->recovery.resume == STAGE_CHECKPOINT)
        begin_checkpoint(d);
    else
        run_train(d);
}

/* ---- the end of an epoch ---- */

/* The first rank whose report does not say what rank 0's says: -1 none. */
static int differing_end(const struct driver *d)
{
    const struct report *own = d->seats[0].answer;
    for (int k = 1; k < d->n_ranks; k++) {
        const struct report *r = d->seats[k].answer;
        if (r->epoch.step != own->epoch.step || r->epoch.end != own->epoch.end)
            return k;
    }
    return -1;
}

/* The replica that most ranks have (of equally many, rank 0's side): a rank that has it. */
static int majority_rank(const struct driver *d)
{
    int best = 0, best_votes = 0, n = d->n_ranks;
    for (int k = 0; k < n && best_votes <= n / 2; k++) {
        int votes = 0;
        for (int j = 0; j < n; j++)
            votes +=
                hash_equal(d->seats[j].answer->epoch.replica, d->seats[k].answer->epoch.replica);
        if (votes > best_votes) {
            best_votes = votes;
            best = k;
        }
    }
    return best;
}

static const char *differing_tensor(const struct report *a, const struct report *b)
{
    for (int i = 0; i < a->epoch.n_tensors && i < b->epoch.n_tensors; i++)
        if (strcmp(a->epoch.tensor[i].name, b->epoch.tensor[i].name) ||
            !hash_equal(a->epoch.tensor[i].hash, b->epoch.tensor[i].hash))
            return a->epoch.tensor[i].name;
    return "none of the tensors, their hash as a whole";
}

/* The answer that has the tensors of this one: its own, or an equal one's (driver_report.c). */
static const struct report *detailed(const struct driver *d, const struct report *r)
{
    const struct report *first = d->seats[d->first_answer].answer;
    return hash_equal(r->epoch.replica, first->epoch.replica) ? first : r;
}

/* 1: all hold the same bits; 0: the job has failed. */
static int are_replicas_equal(struct driver *d)
{
    int good = majority_rank(d);
    const struct report *want = d->seats[good].answer;
    for (int k = 0; k < d->n_ranks; k++) {
        const struct report *r = d->seats[k].answer;
        if (hash_equal(r->epoch.replica, want->epoch.replica))
            continue;
        char *who = driver_label(d, k), *other = driver_label(d, good);
        end_accuse(d,
                   (struct cause){.rank = k,
                                  .code = ERR_NUMERIC,
                                  .phase = PHASE_COUNT,
                                  .step = want->epoch.step,
                                  .is_final = 1},
                   0, "the replicas differ after epoch %lld (step %lld): %s differs from %s in %s",
                   (long long)want->epoch.epoch, (long long)want->epoch.step, who, other,
                   differing_tensor(detailed(d, want), detailed(d, r)));
        free(other);
        free(who);
        return 0;
    }
    return 1;
}

static void note_epoch(struct driver *d)
{
    const struct report *r = d->seats[0].answer;
    d->step = r->epoch.step;
    d->last = (struct session_epoch){
        .epoch = r->epoch.epoch,
        .step = r->epoch.step,
        .end = r->epoch.end,
        .train_loss = r->epoch.train_loss,
        .train_accuracy = r->epoch.train_accuracy,
        .train_seconds = r->epoch.train_seconds,
        .samples_per_second = r->epoch.samples_per_second,
        .step_ms_median = r->epoch.step_ms_median,
        .comm_exposed_ms_median = r->epoch.comm_exposed_ms_median,
        .validation_loss = NOT_MEASURED,
        .validation_accuracy = NOT_MEASURED,
        .n_samples = r->epoch.n_samples,
        .n_skipped = r->epoch.n_skipped,
        .loss_scale = r->epoch.loss_scale,
    };
    d->is_last_said = d->is_epoch_open = 0;
    for (int k = 0; k < d->n_ranks; k++) {
        const struct report *e = d->seats[k].answer;
        run_stepped(d, k, e->epoch.rss_mib);
        d->seats[k].peak_rss_mib = e->epoch.peak_rss_mib;
    }
}

/* Which rank saw something that is not finite, and what: in the step after the last one applied. */
static void note_nonfinite(struct driver *d)
{
    int k = 0;
    while (k < d->n_ranks - 1 && !d->seats[k].answer->epoch.note)
        k++;
    const char *note = d->seats[k].answer->epoch.note;
    char *who = driver_label(d, k);
    d->nonfinite_rank = note ? k : -1;
    d->nonfinite =
        note ? xasprintf("step %lld was not applied: %s: %s", (long long)d->step, who, note)
             : xasprintf("step %lld was not applied: the loss or a gradient is not finite",
                         (long long)d->step);
    free(who);
}

static int is_epoch_due(int64_t epoch, int64_t every) { return every > 0 && epoch % every == 0; }

static void finish(struct driver *d)
{
    double *peak = xcalloc((size_t)d->n_ranks, sizeof(*peak));
    for (int k = 0; k < d->n_ranks; k++)
        peak[k] = d->seats[k].peak_rss_mib;
    if (d->save_error) {
        free(peak);
        end_stop(d, WIRE__OUTCOME__OUTCOME_FAILED, STATUS_FAILED,
                 "trained to step %lld, but the final checkpoint could not be written: %s",
                 (long long)d->step, d->save_error);
        return;
    }
    driver_event(d, &(struct session_event){.kind = EVENT_DONE,
                                            .rank = -1,
                                            .step = d->step,
                                            .phase = PHASE_COUNT,
                                            .n_ranks = d->n_ranks,
                                            .per_rank = peak,
                                            .epoch = d->last,
                                            .seconds = 1e-9 * (double)(d->now_ns - d->o.start_ns)});
    end_stop(d, WIRE__OUTCOME__OUTCOME_FINISHED, STATUS_OK, "finished: epoch %lld, step %lld",
             (long long)d->last.epoch, (long long)d->step);
}

/* Training cannot go on; the state before the step that went wrong has been written. */
static void fail_nonfinite(struct driver *d)
{
    struct cause c = {.rank = d->nonfinite_rank,
                      .code = ERR_NUMERIC,
                      .phase = PHASE_UPDATE, /* which refused the step */
                      .step = d->step};
    if (d->saved_step == d->step && d->saved_path)
        end_accuse(d, c, 0, "%s; the state before it is in %s", d->nonfinite, d->saved_path);
    else
        end_accuse(d, c, 0, "%s; its state before could not be written: %s", d->nonfinite,
                   d->save_error ? d->save_error : "no checkpoint was reported");
}

/* An epoch, its validation and its checkpoint are done. */
static void next_epoch(struct driver *d)
{
    if (d->nonfinite)
        fail_nonfinite(d);
    else if (is_complete(d))
        finish(d);
    else if (d->is_final || d->n_stops > 0)
        stop_politely(d);
    else if (recover_wants_regroup(d))
        recover_regroup(d);
    else
        run_train(d);
}

static void after_validation(struct driver *d)
{
    int is_last = d->is_final || d->n_stops > 0;
    run_say_epoch(d);
    d->is_final = is_last;
    if (d->saved_step == d->step ||
        (!is_last && !is_epoch_due(d->epoch, d->o.checkpoint_every_epochs))) {
        next_epoch(d);
        return;
    }
    begin_checkpoint(d);
}

void run_epoch_done(struct driver *d)
{
    const struct report *own = d->seats[0].answer;
    int k = differing_end(d);
    if (own->epoch.end == EPOCH_WHOLE && own->epoch.step != d->epoch * d->steps_per_epoch) {
        end_misbehaved(d, 0, "a whole epoch %lld ended at step %lld, want %lld",
                       (long long)d->epoch, (long long)own->epoch.step,
                       (long long)(d->epoch * d->steps_per_epoch));
        return;
    }
    if (k > 0) {
        const struct report *r = d->seats[k].answer;
        end_misbehaved(d, k, "it ended epoch %lld at step %lld (%s), rank 0 at step %lld (%s)",
                       (long long)d->epoch, (long long)r->epoch.step, epoch_end_name(r->epoch.end),
                       (long long)own->epoch.step, epoch_end_name(own->epoch.end));
        return;
    }
    recover_done(d);
    if (own->epoch.end != EPOCH_REGROUP)
        note_epoch(d);
    if (!are_replicas_equal(d))
        return;
    if (own->epoch.end == EPOCH_REGROUP) {
        d->step = own->epoch.step;
        recover_regroup(d); /* even if nobody wants it any more: Prepare ends the request */
        return;
    }
    if (d->last.end == EPOCH_NONFINITE)
        note_nonfinite(d);
    int is_cut =
        d->nonfinite || (!is_complete(d) && (d->n_stops > 0 || d->last.end == EPOCH_STOPPED));
    d->is_final = is_cut || is_complete(d);
    if (!is_cut && d->seats[0].opened->opened.n_validation > 0 &&
        (is_epoch_due(d->epoch, d->o.validate_every) || (d->is_final && d->o.validate_every > 0))) {
        begin_validation(d);
        return;
    }
    after_validation(d);
}

void run_validated(struct driver *d)
{
    recover_done(d);
    double loss_sum = 0;
    int64_t n_correct = 0, n_samples = 0, n_nonfinite = 0;
    for (int k = 0; k < d->n_ranks; k++) { /* in rank order: the same sum every time */
        const struct report *r = d->seats[k].answer;
        loss_sum += r->validated.loss_sum;
        n_correct += r->validated.n_correct;
        n_samples += r->validated.n_samples;
        n_nonfinite += r->validated.n_nonfinite;
    }
    int64_t want = d->seats[0].opened->opened.n_validation;
    if (n_samples != want) {
        end_accuse(d,
                   (struct cause){
                       .rank = 0, .code = ERR_NUMERIC, .phase = PHASE_VALIDATE, .step = d->step},
                   0, "validation saw %lld samples, the set has %lld", (long long)n_samples,
                   (long long)want);
        return;
    }
    d->last.is_validated = 1;
    if (n_nonfinite > 0)
        queue_log(&d->out, LOG_WARN, "validation: the loss of %lld of %lld samples is not finite",
                  (long long)n_nonfinite, (long long)n_samples);
    d->last.validation_loss = n_nonfinite > 0 ? NAN : loss_sum / (double)n_samples;
    d->last.validation_accuracy = (double)n_correct / (double)n_samples;
    after_validation(d);
}

void run_say_epoch(struct driver *d)
{
    if (d->last.epoch == 0 || d->is_last_said)
        return;
    d->is_last_said = 1;
    driver_event(d, &(struct session_event){.kind = EVENT_EPOCH,
                                            .rank = -1,
                                            .step = d->last.step,
                                            .phase = PHASE_COUNT,
                                            .epoch = d->last});
}

/* ---- checkpoints ---- */

static void checkpoint_failed(struct driver *d, int rank, const struct report *r)
{
    char *text = xasprintf("the checkpoint of step %lld could not be written: %s",
                           (long long)r->checkpoint.step, r->checkpoint.error);
    queue_log(&d->out, LOG_ERROR, "%s", text);
    driver_event(d, &(struct session_event){.kind = EVENT_ERROR,
                                            .rank = rank,
                                            .step = r->checkpoint.step,
                                            .phase = PHASE_CHECKPOINT,
                                            .text = text});
}

void run_note_checkpoint(struct driver *d, int rank, const struct report *r)
{
    if (r->checkpoint.error) {
        checkpoint_failed(d, rank, r);
    } else if (r->checkpoint.path) {
        d->saved_step = r->checkpoint.step;
        free(d->saved_path);
        d->saved_path = xstrdup(r->checkpoint.path);
        driver_event(d, &(struct session_event){.kind = EVENT_CHECKPOINT,
                                                .rank = rank,
                                                .step = r->checkpoint.step,
                                                .phase = PHASE_COUNT,
                                                .text = xstrdup(r->checkpoint.path),
                                                .seconds = r->checkpoint.seconds,
                                                .exposed_seconds = r->checkpoint.exposed_seconds});
    }
}

void run_checkpoint_done(struct driver *d)
{
    recover_done(d);
    for (int k = 0; k < d->n_ranks; k++) {
        const struct report *r = d->seats[k].answer;
        run_note_checkpoint(d, k, r);
        if (r->checkpoint.error && !d->save_error &&
            (d->is_final || d->n_stops > 0)) /* an earlier one: the job goes on */
            d->save_error = xstrdup(r->checkpoint.error);
    }
    if (!d->is_saving_last && d->n_stops > 0 && d->saved_step != d->step)
        begin_checkpoint(d); /* it became the last one while the state was copied */
    else
        next_epoch(d);
}
