/* Replicas: all ranks must end an epoch in the same way, at the same step and with the same bits.
 * If they do not, the error names the minority, and the first tensor that differs. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "session/driver_impl.h"

int replicas_differing_end(const struct driver *d)
{
    const struct report *own = d->seats[0].answer;
    for (int k = 1; k < d->membership.n_ranks; k++) {
        const struct report *r = d->seats[k].answer;
        if (r->epoch.step != own->epoch.step || r->epoch.end != own->epoch.end)
            return k;
    }
    return -1;
}

/* A rank that holds the replica of most ranks.  If two replicas have equally many ranks, that of
 * rank 0 is taken. */
static int majority_rank(const struct driver *d)
{
    int best = 0, best_votes = 0, n = d->membership.n_ranks;
    for (int k = 0; k < n && best_votes <= n / 2; k++) {
        int votes = 0;
        for (int j = 0; j < n; j++)
            votes +=
                hash_equal(d->seats[j].answer->epoch.replica, d->seats[k].answer->epoch.replica);
        if (votes > best_votes) {
            best_votes = votes;
            best = k;
        }
    }
    return best;
}

static const char *differing_tensor(const struct report *a, const struct report *b)
{
    for (int i = 0; i < a->epoch.n_tensors && i < b->epoch.n_tensors; i++)
        if (strcmp(a->epoch.tensor[i].name, b->epoch.tensor[i].name) != 0 ||
            !hash_equal(a->epoch.tensor[i].hash, b->epoch.tensor[i].hash))
            return a->epoch.tensor[i].name;
    return "none of the tensors, their hash as a whole";
}

/* An answer with the list of tensors of `r`: r itself, or an equal answer that kept its list
 * (driver_report.c). */
static const struct report *replicas_detailed(const struct driver *d, const struct report *r)
{
    const struct report *first = d->seats[d->formation.first_answer].answer;
    ASSERT(d->seats[d->formation.first_answer].answer);
    return hash_equal(r->epoch.replica, first->epoch.replica) ? first : r;
}

/* An event for each rank that differs from rank `good`; for all ranks, if no more than half of them
 * agree with it, because then it may be wrong itself. */
static void say_differing(const struct driver *d, int good)
{
    const struct report *want = d->seats[good].answer;
    const int n = d->membership.n_ranks;
    int votes = 0;
    for (int k = 0; k < n; k++)
        votes += hash_equal(d->seats[k].answer->epoch.replica, want->epoch.replica);
    for (int k = 0; k < n; k++)
        if (votes <= n / 2 || !hash_equal(d->seats[k].answer->epoch.replica, want->epoch.replica))
            corruption_say(d, k, NULL, want->epoch.step,
                           &(struct corruption_told){.what = CORRUPTION_STATE, .share = -1},
                           "the replicas differ at the end of the epoch");
}

struct decision replicas_compare(const struct driver *d)
{
    int good = majority_rank(d);
    const struct report *want = d->seats[good].answer;
    ASSERT(d->formation.n_answers == d->membership.n_ranks);
    for (int k = 0; k < d->membership.n_ranks; k++) {
        const struct report *r = d->seats[k].answer;
        if (hash_equal(r->epoch.replica, want->epoch.replica))
            continue;
        char *who = driver_label(d, k), *other = driver_label(d, good);
        say_differing(d, good);
        struct decision x = decide_accuse(
            (struct cause){.rank = k,
                           .code = ERR_NUMERIC,
                           .phase = PHASE_COUNT,
                           .step = want->epoch.step,
                           .is_final = 1},
            "the replicas differ after epoch %lld (step %lld): %s differs from %s in %s",
            (long long)want->epoch.epoch, (long long)want->epoch.step, who, other,
            differing_tensor(replicas_detailed(d, want), replicas_detailed(d, r)));
        free(other);
        free(who);
        return x;
    }
    return decide(DECIDE_NOTHING);
}
