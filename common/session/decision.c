/* Decisions: making them, with their texts.  driver_apply.c carries them out, and frees what they
 * own. */
#include "session/decision.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

struct decision decide_accuse(struct cause c, const char *fmt, ...)
{
    va_list ap;
    ASSERT(c.rank >= -1 && c.code < 0);
    va_start(ap, fmt);
    c.text = xvasprintf(fmt, ap);
    va_end(ap);
    return (struct decision){.kind = DECIDE_ACCUSE, .cause = c};
}

struct decision decide_misbehaved(int rank, const char *fmt, ...)
{
    va_list ap;
    ASSERT(rank >= 0);
    va_start(ap, fmt);
    struct decision x = {.kind = DECIDE_MISBEHAVED, .rank = rank, .text = xvasprintf(fmt, ap)};
    va_end(ap);
    return x;
}

struct decision decide_stop(Wire__Outcome outcome, int status, const char *fmt, ...)
{
    va_list ap;
    ASSERT(status >= STATUS_OK && status <= STATUS_STOPPED);
    va_start(ap, fmt);
    struct decision x = {.kind = DECIDE_STOP, .outcome = outcome, .status = status};
    x.text = xvasprintf(fmt, ap);
    va_end(ap);
    return x;
}

struct decision decide_finished(const struct session_event *done, const char *fmt, ...)
{
    va_list ap;
    ASSERT(done->kind == EVENT_DONE);
    va_start(ap, fmt);
    struct decision x = {.kind = DECIDE_FINISHED, .text = xvasprintf(fmt, ap)};
    va_end(ap);
    x.done = xcalloc(1, sizeof *x.done);
    *x.done = *done;
    return x;
}
