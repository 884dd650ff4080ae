/* A follower leaves: by a signal, or because its machine goes away.
 *
 * In the middle of training it says Goodbye, and goes on until the driver lets it go, at the end of
 * the step.  Where there is nothing to wait for, or a second signal comes, it leaves at once. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/follower_impl.h"

enum { POLITE_MS = 30000 }; /* the time for the driver to let it go at the end of a step */

/* 1: the engine can go on until the driver lets this rank go. */
static int can_leave_politely(const struct follower *f)
{
    return f->stage == STAGE_JOINED && f->generation > 0 && !f->is_waiting && !f->fault &&
           !f->leaving;
}

/* Go on until the driver lets this rank go, at the end of the step.  Takes `why`. */
static void leave_politely(struct follower *f, char *why, int64_t within_ms)
{
    f->leaving = why;
    f->leave_until_ms = f->now_ms + within_ms;
    follower_send_goodbye(f, f->leaving, 1);
}

static void leave_at_once(struct follower *f, const char *why)
{
    if (f->stage == STAGE_JOINED)
        follower_send_goodbye(f, why, 0);
    follower_finish(f,
                    (struct ending){.status = STATUS_STOPPED,
                                    .is_abort = 1,
                                    .is_closed = f->stage == STAGE_SEEK},
                    "%s", why);
}

static void follower_signalled(struct follower *f, const char *why)
{
    f->n_stops++;
    if (can_leave_politely(f) && f->n_stops == 1) {
        queue_log(&f->out, LOG_INFO, "%s: leaving after this step; once more to leave at once",
                  why);
        leave_politely(f, xasprintf("stopped by %s", why), POLITE_MS);
    } else if (f->stage < STAGE_ENDING) {
        char *text = xasprintf("stopped by %s", why);
        leave_at_once(f, text);
        free(text);
    } else {
        f->retry = RETRY_NOT; /* the job ends for another reason, and the next one is not joined */
        if (f->n_stops > 1 + (f->leaving != NULL))
            f->engine_until_ms = min_i64(f->engine_until_ms, f->now_ms + ENGINE_ABORT_MS);
    }
}

void follower_stop(struct follower *f, int64_t now_ns, const char *why)
{
    follower_enter(f, now_ns);
    if (*f->source && !f->is_notice_copied) {
        f->is_notice_copied = 1;
        queue_log(&f->out, LOG_INFO, "%s: this follower leaves already; once more to leave at once",
                  why);
    } else {
        follower_signalled(f, why);
    }
    follower_leave(f);
}

/* The time that the driver has to let this rank go: all but the last moments of the machine. */
static int64_t notice_patience_ms(const struct notice *n)
{
    enum { LAST_MS = 2000 };
    return n->seconds < 0 ? POLITE_MS
                          : max_i64(1000 * min_i64(n->seconds, 86400) - LAST_MS, LAST_MS);
}

void follower_notice(struct follower *f, int64_t now_ns, const struct notice *n)
{
    follower_enter(f, now_ns);
    if (f->stage < STAGE_ENDING && !*f->source && f->n_stops == 0) {
        char *why = xasprintf("its machine goes away (notice of %s)", n->source);
        snprintf(f->source, sizeof f->source, "%s", n->source);
        f->goes_in_s = n->seconds;
        queue_log(&f->out, LOG_WARN, "notice of %s: this machine goes away: leaving %s", n->source,
                  can_leave_politely(f) ? "after this step" : "at once");
        if (can_leave_politely(f)) {
            leave_politely(f, why, notice_patience_ms(n));
        } else {
            leave_at_once(f, why);
            free(why);
        }
    } else if (f->stage >= STAGE_ENDING) {
        f->retry = RETRY_NOT;
    }
    follower_leave(f);
}
