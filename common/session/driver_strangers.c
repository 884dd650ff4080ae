/* Log lines about connections that come to nothing: a peer sends garbage, is silent, or is refused.
 * Anybody can connect where there is no secret, so a flood of connections must not become a flood
 * of lines.  Each of them is an event for the audit. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "session/driver_impl.h"

enum { STRANGER_SAYS = 10, STRANGER_WINDOW_MS = 10000 };

void stranger_say_rest(struct driver *d)
{
    if (d->strangers.n_unsaid)
        queue_log(&d->out, LOG_WARN, "%d more connections came to nothing within %d s",
                  d->strangers.n_unsaid, STRANGER_WINDOW_MS / 1000);
    d->strangers.n_said = d->strangers.n_unsaid = 0;
}

void stranger_check(struct driver *d)
{
    if (d->now_ms - d->strangers.since_ms >= STRANGER_WINDOW_MS)
        stranger_say_rest(d);
}

void stranger_say(struct driver *d, const char *fmt, ...)
{
    va_list ap;
    char *text;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        ASSERT(!"out of memory");
    va_end(ap);
    stranger_check(d);
    if (d->strangers.n_said == STRANGER_SAYS) {
        d->strangers.n_unsaid++;
    } else {
        if (d->strangers.n_said++ == 0)
            d->strangers.since_ms = d->now_ms;
        queue_log(&d->out, LOG_WARN, "%s", text);
    }
    driver_event(
        d, &(struct session_event){.kind = EVENT_REFUSED, .rank = -1, .step = -1, .text = text});
}
