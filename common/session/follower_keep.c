/* Keeping the state without a driver.
 *
 * Happy path: the driver dies.  The engine leaves the formation, as it does when another rank is
 * lost, and holds its last applied step.  ACTION_SEEK makes the caller dial.  The new Hello names
 * the run of the state, its step, and the leader that the follower obeyed last.  A driver that goes
 * on with this run welcomes the follower.  Ready is sent again, and Prepare of a later generation
 * follows.
 *
 * Otherwise:
 *   - A driver that cannot use the state refuses it with REASON_STALE: the follower comes again as
 * a new one.
 *   - A driver has no place for it yet (the seat's old connection may still be open), or a process
 *     answers that is no driver of this run: the follower asks again, each time after a longer
 *     pause.  Only a new reason is logged.
 *   - cluster.driver_timeout passes: the follower ends as if it had kept nothing. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/follower_impl.h"

int keep_is_possible(const struct follower *f)
{
    int has_failed = f->fault && !f->is_consequence;
    return f->has_engine && f->kept.run && f->kept.timeout_ms > 0 && !f->leaving && !f->n_stops &&
           !f->is_drained && !f->is_gpu_lost && !has_failed;
}

/* Have the engine leave the formation.  Before its first formation it goes on opening its data. */
static void leave_formation(struct follower *f)
{
    if (f->generation > 0 && !f->is_waiting)
        follower_abort(f);
}

static void note_place(struct follower *f)
{
    f->kept.step = f->generation > 0 ? max_i64(f->at.step, 0) : 0;
    f->kept.is_in_step = !f->is_waiting && f->generation > 0 && phase_is_step(f->at.phase);
}

static void follower_keep_seek(struct follower *f, int is_again)
{
    const char *other = f->kept.standby ? f->kept.standby : f->kept.leader;
    queue_put(&f->out, &(struct action){
                           .kind = ACTION_SEEK,
                           .seek = {.is_again = is_again, .other = other ? xstrdup(other) : NULL}});
}

void keep_seek(struct follower *f, int is_closed, const char *why)
{
    struct kept *k = &f->kept;
    ASSERT(f->stage == STAGE_JOINED && keep_is_possible(f));
    note_place(f);
    k->until_ms = f->now_ms + k->timeout_ms;
    free(k->why);
    free(k->said);
    k->why = xstrdup(why);
    k->said = NULL;
    queue_log(&f->out, LOG_WARN,
              "lost the driver at %s in %s%s %lld: %s; keeping the state and looking for it for "
              "%g s (cluster.driver_timeout)",
              f->o.driver, phase_name(f->at.phase), phase_of(f->at.phase), (long long)f->at.step,
              why, 1e-3 * (double)k->timeout_ms);
    leave_formation(f);
    if (!is_closed)
        queue_close(&f->out, CONN, why);
    follower_set_stage(f, STAGE_SEEK);
    follower_keep_seek(f, 0);
}

void keep_seek_on(struct follower *f, int is_closed, const char *why)
{
    ASSERT(f->stage == STAGE_HELLO && f->has_engine);
    queue_log_useless(&f->out, f->o.driver, why, &f->kept.said);
    if (!is_closed)
        queue_close(&f->out, CONN, why);
    follower_set_stage(f, STAGE_SEEK);
    follower_keep_seek(f, 1);
}

void keep_check(struct follower *f)
{
    if (f->stage != STAGE_SEEK || f->now_ms < f->kept.until_ms)
        return;
    follower_finish(
        f,
        (struct ending){
            .status = STATUS_FAILED, .retry = RETRY_SOON, .is_closed = 1, .is_abort = 1},
        "lost the driver at %s: %s; none that goes on with the run was found within %g s "
        "(cluster.driver_timeout)",
        f->o.driver, f->kept.why, 1e-3 * (double)f->kept.timeout_ms);
}

void keep_note_welcome(struct follower *f, const Wire__Welcome *w)
{
    struct kept *k = &f->kept;
    k->term = w->term;
    k->timeout_ms = f->o.keeps_state ? w->driver_timeout_ms : 0;
    free(k->leader);
    k->leader = xstrdup(f->o.driver);
    keep_note_standby(f, w->standby);
    if (k->run || !*w->run)
        return;
    k->run = xstrdup(w->run);
    hash_to_text(hash_of(w->job.data, w->job.len), k->job);
}

void keep_note_standby(struct follower *f, const char *address)
{
    free(f->kept.standby);
    f->kept.standby = *address ? xstrdup(address) : NULL;
}

/* Note Prepare and Form.  From its Form on, a rank names this formation in its Hello; until then it
 * names the one before.  The driver relies on that when it counts votes. */
void keep_note_command(struct follower *f, const struct cmd *c)
{
    struct kept *k = &f->kept;
    ASSERT(c->kind != CMD_FORM || f->n_ranks >= 1);
    if (c->kind == CMD_PREPARE) {
        free(k->votes_for);
        k->votes_for = c->prepare.standby ? xstrdup(c->prepare.standby) : NULL;
    } else if (c->kind == CMD_FORM) {
        k->form = voters_of(k->term, c->generation, f->n_ranks, k->votes_for);
        k->form_rank = f->rank;
    }
}

void keep_note_opened(struct follower *f, struct frame *ready)
{
    ASSERT(ready);
    frame_unref(f->kept.ready);
    f->kept.ready = frame_ref(ready);
}

void keep_rejoin(struct follower *f, const Wire__Welcome *w)
{
    ASSERT(f->has_engine && f->stage == STAGE_JOINED);
    queue_log(&f->out, LOG_INFO,
              "joined the driver at %s (%s) again, %s; the state of step %lld is kept", f->o.driver,
              w->host, w->spare ? "as a spare" : "as a rank", (long long)f->at.step);
    if (f->kept.ready)
        queue_send(&f->out, CONN, frame_ref(f->kept.ready));
}

void keep_fini(struct follower *f)
{
    free(f->kept.run);
    free(f->kept.leader);
    free(f->kept.why);
    free(f->kept.said);
    free(f->kept.standby);
    free(f->kept.votes_for);
    frame_unref(f->kept.ready);
}
