/* Corruption: bits of a rank that are wrong, although nothing failed: a flipped bit in memory, or a
 * processor that computes wrongly.
 *
 * The ranks find it together (train/inspect.h), and rank 0's engine reports what they found.  Here
 * it becomes an event and a line of the log.  If the state cannot be mended, the job ends.  A rank
 * that is proven to compute wrongly leaves like one that was drained.  If it is rank 0, the driver
 * hands over to the standby.  Where the job needs that rank it stays, until others have come.  Its
 * follower is told, and says so to a driver that leads the run after this one. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

void corruption_say(const struct driver *d, int rank, const char *host, int64_t step,
                    const struct corruption_told *told, const char *text)
{
    driver_event(d, &(struct session_event){.kind = EVENT_CORRUPTION,
                                            .rank = rank,
                                            .host = host ? xstrdup(host) : NULL,
                                            .step = step,
                                            .phase = PHASE_COUNT,
                                            .corruption = *told,
                                            .text = xstrdup(text)});
}

/* 1: the rank's number may be another follower's since it was found, because the rank at fault has
 * failed and a spare has its seat, or the rest goes on. */
static int corruption_is_of_before(const struct driver *d, const struct report *r)
{
    return r->corruption.rank > 0 &&
           (r->generation < d->formation.generation || !d->seats[r->corruption.rank].is_member);
}

/* 1: it was found before an update was made with it. */
static int corruption_is_unapplied(const struct report *r)
{
    return r->corruption.what == CORRUPTION_GRADIENT || r->corruption.what == CORRUPTION_BATCH;
}

/* 1: the job ends, even if a rank was lost at the same time: the next formation might go on from
 * the wrong state.  Where no update was made, it goes on from the right one. */
static int corruption_is_final(const struct report *r)
{
    return r->corruption.ends &&
           (r->corruption.what == CORRUPTION_STATE || r->corruption.what == CORRUPTION_UPDATE);
}

/* 1: it is told of alone, because the formation in which it was found is over. */
static int corruption_is_past(const struct driver *d, const struct report *r)
{
    return d->stage >= STAGE_ENDING || d->stage == STAGE_GATHER || d->stage == STAGE_WAIT ||
           corruption_is_of_before(d, r);
}

static char *corruption_label(const struct driver *d, const struct report *r)
{
    return corruption_is_of_before(d, r)
               ? xasprintf("rank %d of the formation before", r->corruption.rank)
               : driver_label(d, r->corruption.rank);
}

/* The share of the batch that was computed, such as " of rank 2's share", or ""; for free(). */
static char *corruption_share(const struct report *r)
{
    return r->corruption.share >= 0 ? xasprintf(" of rank %d's share", r->corruption.share)
                                    : xstrdup("");
}

/* The end of the message if it was not mended. */
static const char *corruption_unhealed(const struct report *r)
{
    if (corruption_is_unapplied(r))
        return r->corruption.ends ? "no update was made with it, and the job ends"
                                  : "it could not be mended, and no update was made with it";
    return r->corruption.ends ? "the job ends, and this state is not saved"
                              : "it could not be mended";
}

/* The whole message, for free(). */
static char *corruption_text(const struct driver *d, const struct report *r)
{
    static const struct {
        const char *says, *than, *when, *healed; /* the share stands between the first two */
    } of[] = {
        [CORRUPTION_STATE] = {"holds a state", " that differs from that of other ranks", "after",
                              "it took the state of most ranks"},
        [CORRUPTION_UPDATE] = {"made another update",
                               " of the same state by the same gradients than other ranks", "in",
                               "it took the state of most ranks"},
        [CORRUPTION_GRADIENT] = {"computed a gradient", " that another rank does not get", "in",
                                 "it was mended, and no wrong update was made"},
        [CORRUPTION_BATCH] = {"read samples", " that another rank does not read alike", "in",
                              "it was mended, and no wrong update was made"},
        [CORRUPTION_CHECKPOINT] = {"wrote a checkpoint",
                                   " of which the disk gives back other bytes", "after",
                                   "it was written again"},
    };
    const enum corruption what = r->corruption.what;
    const char *tensor = r->corruption.tensor;
    char *who = corruption_label(d, r), *share = corruption_share(r);
    char *text = xasprintf("%s %s%s%s%s, %s step %lld%s%s: %s", who,
                           r->corruption.is_proven ? "" : "perhaps ", of[what].says, share,
                           of[what].than, of[what].when, (long long)r->corruption.step,
                           tensor ? ", first in " : "", tensor ? tensor : "",
                           r->corruption.is_healed ? of[what].healed : corruption_unhealed(r));

    free(who);
    free(share);
    return text;
}

/* 1: enough ranks are left when it and `n` others have gone. */
static int corruption_leaves_enough(const struct driver *d, int n)
{
    return recover_n_ready(d) - n >= recover_min_ranks(d);
}

static const char corruption_why[] = "was drained, because its bits were wrong";

/* The rank leaves after this step, if the job can do without it.  1: it does.  The standby makes a
 * rank 0 of its own, but the children of this driver go with it. */
static int corruption_lets_go(struct driver *d, int rank)
{
    int goes;

    if (rank == 0)
        return corruption_leaves_enough(d, d->o.n_children) &&
               notice_hand_over(d, "its bits were wrong");
    if (!corruption_leaves_enough(d, 1))
        return 0;
    goes = drain_seat(&d->formation, rank, corruption_why);
    if (goes)
        driver_let_leave(d);
    return goes;
}

/* 1: it leaves already, or the whole job is about to end. */
static int corruption_is_settled(const struct driver *d, int rank)
{
    return !d->seats[rank].is_member || d->seats[rank].leaving || d->ending.n_stops > 0 ||
           (rank == 0 && d->ending.hands_over);
}

/* 1: it leaves, which is said. */
static int corruption_part(struct driver *d, int rank)
{
    char *who = driver_label(d, rank);
    const int goes = corruption_lets_go(d, rank);

    if (goes)
        queue_log(d->out, LOG_WARN,
                  "%s %s, because its bits are wrong: test its memory and its processor", who,
                  rank == 0 ? "hands over" : "is drained");
    free(who);
    return goes;
}

/* The rank's bits were wrong.  The seat keeps that, as what makes the rank leave may be taken back.
 */
static void corruption_try_to_part(struct driver *d, int rank)
{
    char *who;

    d->formation.seats[rank].is_wrong = 1;
    if (corruption_is_settled(d, rank) || corruption_part(d, rank))
        return;
    if (rank > 0)
        drain_tell_wrong(d, rank);
    who = driver_label(d, rank);
    queue_log(d->out, LOG_WARN, "%s stays for now, although its bits were wrong: %s", who,
              rank == 0 ? "the driver runs there, and no standby can lead (dpdriver standby); or "
                          "go on elsewhere by --resume"
                        : "the job needs it (cluster.min_ranks, cluster.spares)");
    free(who);
}

void corruption_joined(struct driver *d, int rank)
{
    char *who = driver_label(d, rank);

    ASSERT(rank > 0 && d->seats[rank].is_taken);
    d->formation.seats[rank].is_wrong = 1;
    queue_log(d->out, LOG_WARN,
              "bits of %s were found wrong before: it leaves once the job can do without it", who);
    free(who);
}

/* It takes no rank's place, so it goes at once. */
static void corruption_release_spare(struct driver *d, int spare)
{
    char *who = driver_label(d, spare);

    queue_log(d->out, LOG_WARN,
              "%s goes, because its bits are wrong: test its memory and its processor", who);
    free(who);
    driver_release(d, spare, corruption_why,
                   "its bits were wrong: test its memory and its processor");
}

void corruption_check(struct driver *d)
{
    if (d->stage < STAGE_TRAIN || d->stage >= STAGE_ENDING)
        return;
    for (int k = d->membership.n_ranks; k < d->membership.n_seats; k++)
        if (d->seats[k].is_wrong && d->seats[k].is_taken && !d->seats[k].is_member)
            corruption_release_spare(d, k);
    for (int k = 0; k < d->membership.n_ranks; k++)
        if (d->seats[k].is_wrong && !corruption_is_settled(d, k))
            corruption_part(d, k);
}

/* 1: rank 0 was proven to be wrong in every round of a step, and fails. */
static int corruption_fails_driver(const struct report *r)
{
    return r->corruption.rank == 0 && r->corruption.is_proven && !r->corruption.is_healed &&
           corruption_is_unapplied(r);
}

static void corruption_end(struct driver *d, const struct report *r, const char *text)
{
    const int is_of_before = corruption_is_of_before(d, r);

    end_accuse(d,
               (struct cause){.rank = is_of_before ? -1 : r->corruption.rank,
                              .code = ERR_NUMERIC,
                              .phase = PHASE_COUNT,
                              .step = r->corruption.step,
                              .is_final = 1,
                              .is_unapplied = corruption_is_unapplied(r)},
               0, "%s", text);
}

/* The followers hold the state before this step, from which the standby goes on. */
static void corruption_lose_driver(struct driver *d, const struct report *r, const char *text)
{
    char *ends;

    if (notice_hands_over(d) || notice_hand_over(d, "its bits were wrong")) {
        end_handed_over(d);
        return;
    }
    ends = xasprintf("%s; the job ends, as the driver runs there and no standby can lead", text);
    corruption_end(d, r, ends);
    free(ends);
}

void corruption_note(struct driver *d, int rank, struct report *r)
{
    const int at_fault = r->corruption.rank;
    const struct corruption_told told = {r->corruption.what, r->corruption.share,
                                         r->corruption.is_healed};
    char *text;

    (void)rank;
    ASSERT(at_fault >= 0 && at_fault < d->membership.n_seats);
    text = corruption_text(d, r);
    queue_log(d->out, LOG_WARN, "%s", text);
    corruption_say(d, at_fault, corruption_is_of_before(d, r) ? "?" : NULL, r->corruption.step,
                   &told, text);
    if (corruption_is_past(d, r) && !corruption_is_final(r))
        ;
    else if (corruption_fails_driver(r))
        corruption_lose_driver(d, r, text);
    else if (r->corruption.ends)
        corruption_end(d, r, text);
    else if (r->corruption.leaves)
        corruption_try_to_part(d, at_fault);
    free(text);
}
