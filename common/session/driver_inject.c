/* Faults on purpose (inject/inject.h): sending them to the ranks, and reporting them.
 *
 * Happy path: Welcome carries the faults that are due until Ready, and each Prepare those that are
 * due after that.  A rank says Injected before the fault happens.  Then the fault is spent: the
 * next holder of the rank does not get it.
 *
 * At the point `stop` a follower's connection is closed already.  So the driver reports such a
 * fault, and marks it as spent, when it sends Stop. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

static char *select_text(const struct driver *d, int rank, enum injection_point first,
                         enum injection_point last)
{
    char text[INJECTION_MAX_TEXT];

    inject_select(&d->o.inject, rank, first, last, text);
    return *text ? xstrdup(text) : NULL;
}

char *inject_for_opening(const struct driver *d, int rank)
{
    return rank < 0 ? select_text(d, -1, INJECTION_AT_GATHER, INJECTION_AT_STOP)
                    : select_text(d, rank, INJECTION_AT_GATHER, INJECTION_AT_READY);
}

char *inject_for_training(const struct driver *d, int rank)
{
    ASSERT(rank >= 0);
    return select_text(d, rank, INJECTION_AT_PREPARE, INJECTION_AT_STOP);
}

void inject_announce(const struct driver *d)
{
    char *all = select_text(d, -1, INJECTION_AT_GATHER, INJECTION_AT_STOP);

    if (all)
        queue_log(d->out, LOG_WARN, "--inject: this job will be disturbed on purpose: %s", all);
    free(all);
}

static void inject_say_line(const struct driver *d, int rank, const struct session_event *what,
                            const char *text)
{
    struct session_event e = *what;
    char *who = driver_label(d, rank);

    e.kind = EVENT_INJECT;
    e.rank = rank;
    e.text = xstrdup(text);
    queue_log(d->out, LOG_WARN, "injected fault %s: %s: %s", e.inject.spec, who, text);
    driver_event(d, &e);
    free(who);
}

void inject_happens(struct driver *d, int rank, struct report *r)
{
    struct session_event e = {.phase = r->inject.phase, .step = r->inject.step};

    if (rank > 0) { /* this is newer than the rank's last heartbeat */
        struct progress p = d->seats[rank].at;
        p.generation = r->generation;
        p.phase = r->inject.phase;
        p.step = r->inject.step;
        driver_moved(d, rank, &p);
    }
    memcpy(e.inject.spec, r->inject.fault.text, sizeof e.inject.spec);
    inject_spend(&d->o.inject, e.inject.spec);
    inject_say_line(d, rank, &e, r->inject.text);
    if (rank == 0)
        queue_inject(d->out, &r->inject.fault);
}

void inject_at_stop(struct driver *d)
{
    ASSERT(d->stage < STAGE_ENDING);
    for (int i = 0; i < d->o.inject.n; i++) {
        struct injection *f = &d->o.inject.item[i];
        struct session_event e = {.phase = PHASE_COUNT, .step = d->run.step};
        char text[INJECTION_SAY];

        if (f->point != INJECTION_AT_STOP || f->is_spent || f->rank == 0 ||
            f->rank >= d->membership.n_ranks || !d->seats[f->rank].is_taken)
            continue;
        f->is_spent = 1;
        memcpy(e.inject.spec, f->text, sizeof e.inject.spec);
        inject_say_line(d, f->rank, &e, inject_say(f, text));
    }
}

void inject_say_unspent(const struct driver *d)
{
    for (int i = 0; i < d->o.inject.n; i++) {
        const struct injection *f = &d->o.inject.item[i];

        if (!f->is_spent && f->point != INJECTION_AT_STOP)
            queue_log(d->out, LOG_WARN, "--inject %s: did not happen: rank %d never came %s",
                      f->text, f->rank,
                      inject_is_of_bucket(f) ? "to that bucket of that step" : "there");
    }
}
