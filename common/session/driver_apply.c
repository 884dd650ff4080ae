/* Carrying out decisions: what is done in which order, and by which machines.
 *
 * A machine decides about its own part of the job (decision.h).  Here is the rest: each function is
 * a list of steps, in which one machine after the other does its part. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

static void begin_stage(struct driver *d, enum stage stage, enum phase phase)
{
    stage_enter(d, stage);
    form_ask(&d->formation);
    d->is_engine_busy = 1;
    watch_begin(&d->watch, phase);
    driver_check_ranks(d);
}

void driver_moved(struct driver *d, int rank, const struct progress *p)
{
    if (!watch_moved(&d->watch, rank, p))
        return;
    stranger_at_data_port(&d->membership, rank, p->n_strangers);
    recover_moved(&d->formation, rank);
}

/* ---- opening ---- */

/* 1: the state that rank 0 has opened is one where the job ends, or stops. */
static int is_at_its_end(const struct driver *d)
{
    return run_nothing_to_do(d, d->run.step) ? !lead_lacks_validation(d) : run_is_past_stop(d);
}

/* Rank 0 has opened the job, so the size of the run is known now. */
static void own_opened(struct driver *d)
{
    run_opened(&d->run);
    struct decision x = gather_own_opened(d);
    if (x.kind == DECIDE_NOTHING && !d->o.evaluate && is_at_its_end(d))
        x = lead_nothing_to_do(&d->membership);
    driver_apply(d, x);
    if (d->stage == STAGE_GATHER)
        gather_compare_all(&d->membership);
}

void driver_opened(struct driver *d, int rank, struct report *r)
{
    ASSERT(r->kind == REPORT_OPENED);
    seat_open(&d->membership, rank, r);
    if (rank == 0) {
        d->is_engine_busy = 0;
        ledger_turn(d);
        own_opened(d);
    } else {
        gather_opened(&d->membership, rank);
    }
    driver_apply(d, gather_check(&d->membership));
    if (d->stage == STAGE_WAIT)
        driver_try(d);
}

/* ---- a stage is done ---- */

void done_prepare(struct driver *d)
{
    struct decision x = form_compare_libraries(d);
    if (x.kind == DECIDE_NOTHING)
        x = lead_check_claims(&d->membership);
    if (x.kind == DECIDE_NOTHING)
        x = succession_lets_form(&d->membership);
    driver_apply(d, x);
}

void done_form(struct driver *d)
{
    struct decision x = form_compare_steps(d);
    if (x.kind != DECIDE_NOTHING) {
        driver_apply(d, x);
        return;
    }
    if (run_formed(&d->run))
        recover_resume_training(&d->formation);
    ledger_formed(d);
    run_take_live(&d->run);
    form_say(d);
    trace_formed(&d->watch);
    succession_formed(&d->membership);
    if (lead_formed(&d->membership)) {
        recover_taken_over(&d->formation, lead_newest(d), lead_source(d));
        if (lead_ends_epoch_again(d))
            run_end_again(&d->run);
    }
    form_done(&d->formation);
    recover_formed(&d->formation);
    driver_apply(d, run_choose(d));
}

void done_train(struct driver *d)
{
    struct decision x = run_check_epoch(d);
    if (x.kind == DECIDE_NOTHING) {
        ledger_trained(d);
        recover_done(&d->formation);
        x = run_trained(&d->run);
    }
    driver_apply(d, x);
}

void done_validate(struct driver *d)
{
    recover_done(&d->formation);
    driver_apply(d, run_validated(&d->run));
}

void done_checkpoint(struct driver *d)
{
    recover_done(&d->formation);
    driver_apply(d, run_checkpointed(&d->run));
}

/* ---- losing ranks, and letting them go ---- */

void driver_farewell(struct driver *d, struct conn *c, const char *text)
{
    end_send_stop(d, WIRE__OUTCOME__OUTCOME_STOPPED, text, c);
    conn_leave(&d->membership, c, REFUSED_MS);
    ASSERT(c->state == CONN_LEAVING);
}

void driver_lose(struct driver *d, int rank, const char *why)
{
    ASSERT(rank > 0 && d->seats[rank].is_taken);
    conn_unseat(&d->membership, d->seats[rank].conn);
    if (!d->seats[rank].is_member)
        gather_leave(&d->membership, rank, why);
    else
        end_lost(d, rank, why);
}

/* Free the seat of a lost rank.  If its connection is still there, it is told why it has to go. */
static void remove_lost(struct driver *d, const struct cause *c)
{
    const struct seat *s = &d->seats[c->rank];
    struct conn *conn = s->conn;
    ASSERT(c->rank > 0 && s->is_taken && s->is_member);

    recover_say_lost(d, c->rank, seat_is_here(d, s) ? s->pid : 0, c->step, c->text);
    if (conn->state == CONN_MEMBER)
        end_send_abort(d, c->text, conn, ABORT_FAILED);
    conn_unseat(&d->membership, conn);
    seat_clear(&d->membership, c->rank);
    ASSERT(!d->seats[c->rank].is_taken);
}

static void let_go_of(struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];
    char *who = driver_label(d, rank);
    struct cause c = {
        .rank = rank, .code = ERR_CANCELED, .phase = PHASE_COUNT, .step = d->run.step};
    ASSERT(s->leaving && s->is_member && s->conn->state == CONN_MEMBER);
    c.text = xasprintf("%s %s", who, s->leaving);
    queue_log(d->out, LOG_INFO, "%s, after step %lld", c.text, (long long)d->run.step);
    recover_note(&d->formation, &c);
    recover_say_lost(d, rank, 0, d->run.step, c.text);
    driver_farewell(d, s->conn,
                    !s->is_drained ? "stopped: its place in the job is free now"
                    : s->is_wrong  ? "drained, because its bits were wrong"
                                   : "drained by the operator of the driver");
    conn_unseat(&d->membership, s->conn);
    seat_clear(&d->membership, rank);
    free(c.text);
    free(who);
}

/* Let the leaving ranks go.  No other rank needs them at this moment. */
static void let_go(struct driver *d)
{
    drain_take_back(&d->formation);
    for (int k = 1; k < d->membership.n_ranks; k++)
        if (d->seats[k].leaving)
            let_go_of(d, k);
}

void driver_try(struct driver *d)
{
    struct decision x = decide(DECIDE_NOTHING);
    ASSERT(d->stage == STAGE_WAIT);
    if (d->now_ms < d->formation.recovery.settled_ms && d->ending.n_stops == 0)
        return;
    let_go(d);
    seats_fill(&d->membership);
    if (pause_holds(&d->formation))
        return;
    if (!succession_holds_up(&d->membership, &x))
        x = recover_choose(&d->formation);
    driver_apply(d, x);
}

/* Wait for replacements.  is_orderly: the missing ranks left in order, or were about to. */
static void enter_wait(struct driver *d, int is_orderly)
{
    if (d->stage != STAGE_WAIT) { /* else driver_try does it, once losses have settled */
        drain_take_back(&d->formation);
        gather_wait(&d->membership);
    }
    recover_wait(&d->formation, is_orderly);
    stage_enter(d, STAGE_WAIT);
    driver_try(d);
}

int driver_recover(struct driver *d, const struct cause *c, char **why_not)
{
    int is_blamed = c->rank > 0 && !c->is_consequence;
    if (!recover_may(d, c))
        return 0;
    if (recover_is_fruitless(&d->formation, c)) {
        *why_not = xasprintf("given up after %d recoveries without a completed step",
                             d->formation.recovery.n_fruitless - 1);
        return 0;
    }
    queue_log(d->out, LOG_WARN, "%s", c->text);
    recover_note(&d->formation, c);
    recover_note_progress(&d->formation);
    int is_orderly = d->stage != STAGE_WAIT && (!is_blamed || d->seats[c->rank].leaving);
    if (is_blamed)
        remove_lost(d, c);
    recover_settle(&d->formation);
    if (d->stage != STAGE_WAIT) {
        end_send_abort(d, c->text, NULL, ABORT_RECOVERS);
        queue_abort(d->out);
    }
    end_forget_pending(d);
    enter_wait(d, is_orderly);
    return 1;
}

void driver_let_leave(struct driver *d)
{
    if (d->stage == STAGE_WAIT)
        driver_try(d);
    else
        recover_ask_regroup(d);
}

/* ---- decisions ---- */

static void apply_accuse(struct driver *d, const struct decision *x)
{
    if (x->is_suspect)
        recover_suspect(&d->formation, d->run.step);
    end_accuse(d, x->cause, 0, "%s", x->cause.text);
}

static void apply_misbehaved(struct driver *d, const struct decision *x)
{
    end_misbehaved(d, x->rank, "%s", x->text);
}

static void apply_deposed(struct driver *d, const struct decision *x) { end_deposed(d, x->text); }

static void apply_unelected(struct driver *d, const struct decision *x)
{
    end_unelected(d, x->text, x->remedy);
}

static void apply_at_once(struct driver *d, const struct decision *x)
{
    (void)x;
    end_at_once(d);
}

static void apply_stop(struct driver *d, const struct decision *x)
{
    end_stop(d, x->outcome, x->status, "%s", x->text);
}

static void apply_finished(struct driver *d, const struct decision *x)
{
    end_finished(d, x->done, "%s", x->text);
}

static void apply_release(struct driver *d, const struct decision *x)
{
    (void)x;
    driver_apply(d, lead_release_now(&d->membership));
}

static void apply_joined(struct driver *d, const struct decision *x)
{
    ASSERT(x->rank < 0 || d->seats[x->rank].is_taken);
    form_saw(&d->formation, x->generation);
    if (x->rank < 0)
        driver_apply(d, succession_welcome(&d->membership));
    else
        watch_joined(&d->watch, x->rank);
    if (x->is_wrong)
        corruption_joined(d, x->rank);
}

static void apply_answered(struct driver *d, const struct decision *x)
{
    (void)x;
    stage_done(d);
}

static void apply_try(struct driver *d, const struct decision *x)
{
    (void)x;
    driver_try(d);
}

static void apply_absent(struct driver *d, const struct decision *x)
{
    struct cause c = recover_absent(d);
    (void)x;
    recover_note(&d->formation, &c);
    recover_settle(&d->formation);
    enter_wait(d, 0);
    free(c.text);
}

/* Close up to the ranks that are ready; `why` says that fewer go on. */
static void close_up(struct driver *d, const char *why)
{
    int *was = xcalloc((size_t)d->n_seats, sizeof *was);
    seats_shrink(&d->membership, was);
    recover_renumber(&d->formation, was);
    queue_log(d->out, LOG_WARN, "%s", why);
    free(was);
}

static void apply_prepare(struct driver *d, const struct decision *x)
{
    if (x->text)
        close_up(d, x->text);
    seats_grow(&d->membership, recover_n_wanted(d));
    if (d->stage == STAGE_GATHER)
        neighbours_gather(&d->membership);
    form_say_joined(&d->formation);
    seats_say_moved(&d->membership);
    form_begin(&d->formation);
    succession_prepare(&d->membership);
    begin_stage(d, STAGE_PREPARE, PHASE_PREPARE);
    form_send_prepare(d);
    ASSERT(d->stage == STAGE_PREPARE);
}

static void apply_form(struct driver *d, const struct decision *x)
{
    struct cmd *c = form_command(&d->formation);
    (void)x;
    begin_stage(d, STAGE_FORM, PHASE_FORM);
    stage_tell_all(d, c);
}

static void apply_train(struct driver *d, const struct decision *x)
{
    struct cmd *c = run_train(&d->run);
    (void)x;
    begin_stage(d, STAGE_TRAIN, PHASE_LOAD);
    watch_at_step(&d->watch, d->run.step);
    stage_tell_all(d, c);
}

static void apply_validate(struct driver *d, const struct decision *x)
{
    struct cmd *c = run_validate(&d->run);
    (void)x;
    begin_stage(d, STAGE_VALIDATE, PHASE_VALIDATE);
    stage_tell_all(d, c);
}

static void apply_checkpoint(struct driver *d, const struct decision *x)
{
    struct cmd *c = run_checkpoint(&d->run);
    (void)x;
    begin_stage(d, STAGE_CHECKPOINT, PHASE_CHECKPOINT);
    stage_tell_all(d, c);
}

static void apply_regroup(struct driver *d, const struct decision *x)
{
    (void)x;
    notice_check(d);
    if (notice_hands_over(d)) {
        end_handed_over(d);
        return;
    }
    recover_resume_training(&d->formation);
    enter_wait(d, 1);
}

void driver_apply(struct driver *d, struct decision x)
{
    static void (*const appliers[])(struct driver *, const struct decision *) = {
#define X(KIND, name) [DECIDE_##KIND] = apply_##name,
        DECISION_LIST(X)
#undef X
    };
    ASSERT((size_t)x.kind < ARRAY_LEN(appliers));
    if (x.kind == DECIDE_NOTHING)
        return;
    appliers[x.kind](d, &x);
    free(x.cause.text);
    free(x.text);
    free(x.done);
}
