/* Corruption: bits of a rank that are wrong, although nothing failed: a flipped bit in memory, or a
 * processor that computes wrongly.
 *
 * The ranks find it together (train/inspect.h), and rank 0's engine reports what they found.  Here
 * it becomes an event and a line of the log.  If the state cannot be mended, the job ends.  A rank
 * that is proven to compute wrongly leaves like one that was drained, if enough ranks are left
 * without it. */
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
 * failed and a spare has its seat, or the rest goes on.  A checkpoint is rank 0's, which does not
 * change. */
static int corruption_is_of_before(const struct driver *d, const struct report *r)
{
    return r->corruption.what != CORRUPTION_CHECKPOINT &&
           (r->generation < d->formation.generation || !d->seats[r->corruption.rank].is_member);
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
                           r->corruption.is_healed ? of[what].healed
                           : r->corruption.ends    ? "the job ends, and this state is not saved"
                                                   : "it could not be mended");

    free(who);
    free(share);
    return text;
}

/* 1: enough ranks are left without it. */
static int corruption_lets_go(const struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];

    return rank > 0 && s->is_member && !s->leaving &&
           recover_n_ready(d) - 1 >= recover_min_ranks(d);
}

static void corruption_part(struct driver *d, int rank)
{
    char *who = driver_label(d, rank);

    if (corruption_lets_go(d, rank)) {
        queue_log(d->out, LOG_WARN,
                  "%s is drained, because its bits are wrong: test its memory "
                  "and its processor",
                  who);
        if (drain_seat(&d->formation, rank, "was drained, because its bits were wrong"))
            driver_let_leave(d);
    } else if (!d->seats[rank].leaving) {
        queue_log(d->out, LOG_WARN, "%s stays, although its bits were wrong: %s", who,
                  rank == 0 ? "the driver runs there; go on elsewhere by --resume"
                            : "the job needs it (cluster.min_ranks, cluster.spares)");
    }
    free(who);
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
    else if (r->corruption.ends)
        end_accuse(d,
                   (struct cause){.rank = corruption_is_of_before(d, r) ? -1 : at_fault,
                                  .code = ERR_NUMERIC,
                                  .phase = PHASE_COUNT,
                                  .step = r->corruption.step,
                                  .is_final = 1},
                   0, "%s", text);
    else if (r->corruption.leaves)
        corruption_part(d, at_fault);
    free(text);
}
