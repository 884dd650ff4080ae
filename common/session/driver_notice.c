/* Machines that are about to go away, and the hand-over to the standby.
 *
 * A follower tells of its notice in its Goodbye, and leaves like one that a signal stopped
 * (driver_recover.c).
 *
 * The driver's own machine goes away: rank 0's engine asks for a regroup, and all ranks end
 * training at the same step.  Then the driver closes its connections without a word.  To followers
 * and standby this is the loss of a driver, which came between two steps, so none is lost.
 *
 * If the standby could not lead, because there is none, or because too few followers stay, the
 * driver stops as by a signal, with a checkpoint.  That is decided anew until the ranks have ended
 * training, since all machines of a job may go away together, each with a notice of its own.
 *
 * A driver whose own bits were wrong (driver_corruption.c) hands over in the same way, but goes on
 * if the standby cannot lead. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

static char *notice_text(const struct notice *n)
{
    if (n->seconds < 0)
        return xasprintf("goes away soon (notice of %s)", n->source);
    return xasprintf("goes away in %lld s (notice of %s)", (long long)n->seconds, n->source);
}

void notice_say(const struct driver *d, int seat, const struct notice *n)
{
    char *who = driver_label(d, seat), *text = notice_text(n);
    ASSERT(d->seats[seat].is_taken && n->source);
    queue_log(d->out, LOG_WARN, "the machine of %s %s", who, text);
    driver_event(d, &(struct session_event){.kind = EVENT_NOTICE,
                                            .rank = seat < d->membership.n_ranks ? seat : -1,
                                            .host = xstrdup(d->seats[seat].host),
                                            .notice = {.seconds = n->seconds},
                                            .step = -1,
                                            .phase = PHASE_COUNT,
                                            .text = xstrdup(n->source)});
    free(text);
    free(who);
}

/* The ranks that are left when this driver and its children have gone. */
static int n_staying(const struct driver *d)
{
    int n = -d->o.n_children;
    for (int k = 1; k < d->membership.n_ranks; k++)
        n += d->seats[k].is_taken && !d->seats[k].leaving;
    return n;
}

/* A rank's part of a divided state is also held by one other rank, so only one of them may go. */
static int can_hand_over(const struct driver *d)
{
    int n = n_staying(d);
    if (d->o.is_divided && (d->o.is_only_holder || n < d->membership.n_ranks - 1))
        return 0;
    return !d->o.evaluate && succession_would_lead(d, n);
}

/* While the ranks form again, it is not known yet who will stay. */
static int may_hand_over(const struct driver *d)
{
    if (!d->formation.has_formed)
        return 0;
    return d->stage < STAGE_TRAIN ? d->membership.succession.conn != NULL : can_hand_over(d);
}

static void stop_for_notice(struct driver *d)
{
    ASSERT(d->ending.n_stops == 0 && !d->ending.stop_why);
    d->ending.n_stops = 1;
    d->ending.stop_why = xstrdup(d->ending.notice);
    end_stop_first(d);
}

int notice_hand_over(struct driver *d, const char *why)
{
    if (d->stage >= STAGE_ENDING || d->ending.n_stops > 0 || d->ending.hands_over ||
        !may_hand_over(d))
        return 0;
    d->ending.hands_over = xstrdup(why);
    queue_log(d->out, LOG_INFO, "the standby at %s is to lead after this step",
              d->membership.succession.told);
    driver_let_leave(d);
    return 1;
}

int notice_hands_over(const struct driver *d) { return d->ending.hands_over && may_hand_over(d); }

void notice_check(struct driver *d)
{
    if (!d->ending.hands_over || d->stage >= STAGE_ENDING || may_hand_over(d))
        return;
    free(d->ending.hands_over);
    d->ending.hands_over = NULL;
    queue_log(d->out, LOG_WARN, "no standby can lead any more");
    if (d->ending.notice)
        stop_for_notice(d);
}

int notice_takes_signal(struct driver *d, const char *why)
{
    if (!d->ending.notice || d->ending.is_notice_copied)
        return 0;
    d->ending.is_notice_copied = 1;
    queue_log(d->out, LOG_INFO, "%s: this driver ends already; once more to hasten that", why);
    return 1;
}

void driver_notice(struct driver *d, int64_t now_ns, const struct notice *n)
{
    driver_enter(d, now_ns);
    if (d->stage >= STAGE_ENDING || d->ending.notice) {
        driver_leave(d);
        return;
    }
    notice_say(d, 0, n);
    d->ending.notice = xasprintf("the notice that this machine goes away (%s)", n->source);
    d->ending.is_notice_copied = d->ending.n_stops > 0;
    if (d->ending.n_stops == 0 && !d->ending.hands_over && !notice_hand_over(d, d->ending.notice))
        stop_for_notice(d);
    driver_leave(d);
}
