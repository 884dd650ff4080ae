/* Which seat a follower gets, so that the ranks of a machine follow one another: large sums then go
 * through a machine's shared memory, and between two machines once (coll/sparse.h).
 *
 * Happy path: before the first formation the ranks are put in order, machine by machine, as no
 * follower has a state yet.  Later a free seat goes to a follower of a machine beside it.
 * Otherwise: a rank that takes part is never renumbered for this, so a lost machine whose
 * replacements are of several machines may leave a job whose ranks are mixed. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* A job may have a hundred thousand ranks, and lose thousands at once. */
enum { MOST_SPARES_SEEN = 256, MOST_SEATS_SEEN = 4096 };

/* 1: this rank is of that machine; -1: it is of another one; 0: there is no such rank now. */
static int neighbour_is(const struct membership *m, int rank, const char *host_id)
{
    if (rank >= m->n_ranks || !m->seats[rank].is_taken)
        return 0;
    return strcmp(m->seats[rank].host_id, host_id) ? -1 : 1;
}

/* Seats are filled from the lowest on, so the rank before this one is settled, and counts more than
 * the one behind. */
int neighbour_spare(const struct membership *m, int rank)
{
    int first = -1, before_next = -1, n = 0;
    ASSERT(rank > 0 && rank <= m->n_ranks);
    for (int k = m->n_ranks; k < m->n_seats && n < MOST_SPARES_SEEN; k++) {
        if (!seat_is_ready(&m->seats[k]))
            continue;
        if (neighbour_is(m, rank - 1, m->seats[k].host_id) > 0)
            return k;
        if (before_next < 0 && neighbour_is(m, rank + 1, m->seats[k].host_id) > 0)
            before_next = k;
        first = n++ ? first : k;
    }
    return before_next < 0 ? first : before_next;
}

/* A seat between two machines is left to the other one if there is a better seat. */
int neighbour_free_rank(struct membership *m, const char *host_id)
{
    const int first = seats_free_rank(m), end = (int)min_i64(m->n_ranks, first + MOST_SEATS_SEEN);
    int best = first, most = INT_MIN;
    if (first < 0 || m->d->stage == STAGE_GATHER)
        return first;
    for (int k = first; k < end; k++) {
        if (m->seats[k].is_taken)
            continue;
        const int before = neighbour_is(m, k - 1, host_id),
                  behind = neighbour_is(m, k + 1, host_id);
        if ((before > 0 || behind > 0) && before + behind > most) {
            most = before + behind;
            best = k;
        }
    }
    return best;
}

/* ---- before the first formation ---- */

struct neighbour {
    const char *host_id;
    int rank, first; /* first: the lowest rank of its machine */
};

static int neighbour_by_machine(const void *a, const void *b)
{
    const struct neighbour *x = a, *y = b;
    const int c = strcmp(x->host_id, y->host_id);
    return c ? c : x->rank - y->rank;
}

static int neighbour_by_first(const void *a, const void *b)
{
    const struct neighbour *x = a, *y = b;
    return x->first != y->first ? x->first - y->first : x->rank - y->rank;
}

/* 1: all followers take any rank, and have no state that a rank's number belongs to. */
static int neighbours_may_move(const struct membership *m)
{
    for (int k = 1; k < m->n_ranks; k++)
        if (!m->seats[k].is_any || m->seats[k].has_state)
            return 0;
    return 1;
}

void neighbours_gather(struct membership *m)
{
    const size_t n = (size_t)m->n_ranks;
    struct neighbour *all;
    struct seat *was;
    ASSERT(m->d->stage == STAGE_GATHER && m->n_here == m->n_ranks);
    if (!neighbours_may_move(m))
        return;
    all = xcalloc(n, sizeof *all);
    was = xcalloc(n, sizeof *was);
    memcpy(was, m->seats, n * sizeof *was);
    for (int k = 0; k < m->n_ranks; k++)
        all[k] = (struct neighbour){.host_id = was[k].host_id, .rank = k};
    qsort(all, n, sizeof *all, neighbour_by_machine);
    for (int i = 0; i < m->n_ranks; i++)
        all[i].first =
            i > 0 && !strcmp(all[i].host_id, all[i - 1].host_id) ? all[i - 1].first : all[i].rank;
    qsort(all, n, sizeof *all, neighbour_by_first);
    ASSERT(all[0].rank == 0);
    for (int k = 1; k < m->n_ranks; k++) {
        m->seats[k] = was[all[k].rank];
        m->seats[k].conn->rank = k;
    }
    free(all);
    free(was);
}
