/* Log lines and events about connections that are not let in: a peer sends garbage, is silent, or
 * is refused.  Without a secret anybody can connect, so a flood of connections must not become a
 * flood of log lines.  Each such connection is an event for the audit. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "session/driver_impl.h"

enum { STRANGER_SAYS = 10, STRANGER_WINDOW_MS = 10000 };

void stranger_say_rest(struct membership *m)
{
    if (m->strangers.n_unsaid)
        queue_log(m->d->out, LOG_WARN, "%d more connections came to nothing within %d s",
                  m->strangers.n_unsaid, STRANGER_WINDOW_MS / 1000);
    m->strangers.n_said = m->strangers.n_unsaid = 0;
}

void stranger_check(struct membership *m)
{
    if (m->d->now_ms - m->strangers.since_ms >= STRANGER_WINDOW_MS)
        stranger_say_rest(m);
}

void stranger_say(struct membership *m, const char *fmt, ...)
{
    va_list ap;
    char *text;

    va_start(ap, fmt);
    text = xvasprintf(fmt, ap);
    va_end(ap);
    stranger_check(m);
    if (m->strangers.n_said == STRANGER_SAYS) {
        m->strangers.n_unsaid++;
    } else {
        if (m->strangers.n_said++ == 0)
            m->strangers.since_ms = m->d->now_ms;
        queue_log(m->d->out, LOG_WARN, "%s", text);
    }
    driver_event(
        m->d, &(struct session_event){.kind = EVENT_REFUSED, .rank = -1, .step = -1, .text = text});
}

/* Log strangers at the data port of a rank.  For rank 0 its engine does that by a warning. */
void stranger_at_data_port(struct membership *m, int rank, int64_t n)
{
    const struct driver *d = m->d;
    struct seat *s = &m->seats[rank];
    if (n == 0 || rank == 0 || s->strangers_in == d->formation.generation)
        return;
    s->strangers_in = d->formation.generation;
    char *who = driver_label(d, rank);
    char *text = xasprintf("%lld connection%s to the data port of %s came to nothing: they did not "
                           "prove to be of a rank of this job",
                           (long long)n, n == 1 ? "" : "s", who);
    queue_log(d->out, LOG_WARN, "%s", text);
    driver_event(d, &(struct session_event){.kind = EVENT_WARNING,
                                            .rank = rank,
                                            .step = s->at.step,
                                            .phase = PHASE_COUNT,
                                            .text = text});
    free(who);
}

/* A follower that was told no launcher's job joins any.  One that keeps the state of a run names
 * that run, which is a better proof. */
int stranger_is_of_launch(struct membership *m, struct conn *c, const Wire__Hello *h)
{
    const struct driver *d = m->d;
    const char *own = d->o.launch ? d->o.launch : "";
    if (!*h->launch || *h->run || !strcmp(h->launch, own))
        return 1;
    char *text = xasprintf("the driver on %s is of the launcher's job \"%s\", and the follower of "
                           "\"%s\"",
                           d->o.host, own, h->launch);
    gather_refuse(m, c, WIRE__REASON__REASON_OTHER_JOB, text);
    free(text);
    return 0;
}
