/* Reports of the engine: most are passed on to the driver, some change the follower's own state.
 * A report of a formation that is over is dropped. */
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/follower_impl.h"

enum { EXPLAIN_MS = 5000 }; /* the time in which the driver must react to a fault */

/* A CUDA context that a kernel or a call broke stays broken for the process (sticky errors).
 * The process must not go on to the next formation or driver, which would fail as well. */
static void follower_report_check_gpu(struct follower *f, const struct report *r)
{
    if (f->is_gpu_lost || !r->fault.is_gpu_lost)
        return;
    f->is_gpu_lost = 1;
    queue_log(&f->out, LOG_WARN, "%s failed: this process ends, and a new one may use it again",
              f->device);
}

static void on_fault(struct follower *f, const struct report *r)
{
    const char *why = *r->fault.err.msg ? r->fault.err.msg : err_code_text(r->fault.err.code);
    ASSERT(r->kind == REPORT_FAULT);
    if (f->doing == CMD_OPEN) { /* this rank does not fit the job: the driver goes on without it */
        int is_shortage = r->fault.err.code == ERR_NOMEM; /* a service manager may try again */
        follower_finish(f, (struct ending){.status = is_shortage ? STATUS_FAILED : STATUS_USAGE},
                        "%s", why);
        return;
    }
    f->doing = 0;
    follower_report_check_gpu(f, r);
    if (f->fault)
        return;
    f->fault = xstrdup(why);
    f->is_consequence = r->fault.is_consequence;
    f->fault_until_ms = f->now_ms + f->timeout_ms + EXPLAIN_MS;
}

/* 1: the report is of a formation that is over.  A fault of this engine itself counts at any time,
 * and so does what it recorded. */
static int follower_report_is_past(const struct follower *f, const struct report *r)
{
    const int is_lasting =
        r->kind == REPORT_SPANS || (r->kind == REPORT_FAULT && !r->fault.is_consequence);

    return r->generation <= f->aborted && !is_lasting;
}

static void follower_report_forward(struct follower *f, const struct report *r)
{
    struct err err;
    struct frame *frame = convert_report(r, &err);
    ASSERT(f->stage == STAGE_JOINED);
    if (!frame) {
        follower_finish(
            f, (struct ending){.status = STATUS_FAILED, .retry = RETRY_SOON, .is_abort = 1}, "%s",
            err.msg);
        return;
    }
    if (r->kind == REPORT_OPENED)
        keep_note_opened(f, frame);
    if (r->kind == REPORT_FORMED) {
        f->kept.entered = r->generation;
        f->at.step = r->formed.step; /* which may be an older one, if the newest state was lost */
    }
    queue_send(&f->out, CONN, frame);
    if (r->kind == REPORT_FORMED && (r->formed.step > 0 || f->aborted >= 0))
        queue_log(&f->out, LOG_INFO, "this rank holds the state of step %lld",
                  (long long)r->formed.step);
    if (r->kind == REPORT_FAULT)
        on_fault(f, r);
    else if (report_answers(r->kind) == f->doing)
        f->doing = 0;
}

static void follower_take_report(struct follower *f, const struct report *r)
{
    if (r->kind == REPORT_STEP) {
        if (!r->step.first || f->has_stepped)
            return;
        f->has_stepped = 1;
        f->rss_mib = r->step.rss_mib;
        follower_send_beat(f);
    } else if (r->kind == REPORT_WARNING) {
        queue_log(&f->out, LOG_WARN, "%s", r->warning.text ? r->warning.text : "no text");
    } else if (r->kind != REPORT_STOPPED && !follower_report_is_past(f, r)) {
        follower_report_forward(f, r);
    }
}

/* A report that comes while there is no driver.  That the engine has opened is kept for the next
 * driver.  After a fault of the engine itself there is no state to keep any more. */
static void on_report_alone(struct follower *f, const struct report *r)
{
    struct err err;
    ASSERT(f->stage == STAGE_HELLO || f->stage == STAGE_SEEK);
    if (r->kind == REPORT_OPENED) {
        struct frame *frame = convert_report(r, &err);
        if (frame)
            keep_note_opened(f, frame);
        frame_unref(frame);
        f->doing = 0;
    } else if (r->kind == REPORT_FAULT && !r->fault.is_consequence) {
        int is_opening = f->doing == CMD_OPEN;
        follower_report_check_gpu(f, r);
        follower_finish(f,
                        (struct ending){.status = is_opening ? STATUS_USAGE : STATUS_FAILED,
                                        .retry = is_opening ? RETRY_NOT : RETRY_SOON,
                                        .is_abort = 1,
                                        .is_closed = f->stage == STAGE_SEEK},
                        "%s",
                        *r->fault.err.msg ? r->fault.err.msg : err_code_text(r->fault.err.code));
    }
}

/* Report a fault on purpose before it happens.  This is done in any stage, because the engine waits
 * for it. */
static void follower_report_inject(struct follower *f, const struct report *r)
{
    queue_log(&f->out, LOG_WARN, "injected fault %s: %s", r->inject.fault.text, r->inject.text);
    if (f->stage == STAGE_JOINED)
        follower_report_forward(f, r);
    queue_inject(&f->out, &r->inject.fault);
}

void follower_report(struct follower *f, int64_t now_ns, struct report *r)
{
    follower_enter(f, now_ns);
    if (r->kind == REPORT_STOPPED)
        f->is_engine_stopped = 1;
    if (r->kind == REPORT_INJECT)
        follower_report_inject(f, r);
    else if (f->stage == STAGE_JOINED)
        follower_take_report(f, r);
    else if (f->stage < STAGE_ENDING)
        on_report_alone(f, r);
    report_free(r);
    follower_leave(f);
}

void follower_progress(struct follower *f, int64_t now_ns, const struct progress *p)
{
    follower_enter(f, now_ns);
    if (p->phase != f->at.phase || p->step != f->at.step)
        f->moved_ms = f->now_ms;
    f->at = *p;
    follower_leave(f);
}

void follower_ring(struct follower *f, int64_t now_ns, const struct collective *c, int n)
{
    struct collective ring[RING_LEN];
    struct err err;
    follower_enter(f, now_ns);
    ASSERT(n <= RING_LEN);
    if (n > 0)
        memcpy(ring, c, (size_t)n * sizeof *ring);
    ring_rebase(ring, n, now_ns);
    struct frame *frame =
        convert_ring(&(struct ring_answer){f->inspected, ring, n}, f->generation, &err);
    if (frame && f->stage == STAGE_JOINED)
        queue_send(&f->out, CONN, frame);
    else
        frame_unref(frame);
    follower_leave(f);
}
