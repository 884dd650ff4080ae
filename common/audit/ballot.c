/* ballot - counts how many ranks hold each state, and names those that differ from most.
 *
 * Happy path: ballot_differs() finds all hashes equal, and nothing is counted.
 *
 * With two ranks, or where as many ranks are wrong as right, no state has a majority. */
#include "audit/ballot.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

/* ---- what the ranks compared ---- */

struct hash128 ballot_compared(const struct compared *c)
{
    struct hash128 h = c->after;

    hash_chain(&h, &c->control, sizeof c->control);
    return h;
}

int ballot_differs(const struct compared *all, int n_ranks)
{
    int differs = 0;

    for (int k = 1; k < n_ranks; k++)
        differs |=
            !hash_equal(all[k].after, all[0].after) || !hash_equal(all[k].control, all[0].control);
    return differs;
}

enum corruption ballot_what(const struct compared *all, int n_ranks, int knows_before)
{
    int is_update = knows_before;

    for (int k = 1; k < n_ranks; k++)
        is_update &= hash_equal(all[k].before, all[0].before) &&
                     hash_equal(all[k].summed, all[0].summed) &&
                     hash_equal(all[k].control, all[0].control);
    return is_update ? CORRUPTION_UPDATE : CORRUPTION_STATE;
}

/* ---- votes ---- */

void ballot_begin(struct ballot *b, int n_ranks, int n_tensors)
{
    *b = (struct ballot){.n_ranks = n_ranks, .n_tensors = n_tensors};
    b->told = xcalloc((size_t)n_ranks * (size_t)n_tensors, sizeof *b->told);
    b->digest = xcalloc((size_t)n_ranks, sizeof *b->digest);
}

void ballot_fini(struct ballot *b)
{
    free(b->told);
    free(b->digest);
    *b = (struct ballot){0};
}

static const struct hash128 *ballot_of(const struct ballot *b, int k)
{
    return b->told + (size_t)k * (size_t)b->n_tensors;
}

static int ballot_votes_for(const struct ballot *b, int rank)
{
    int n = 0;

    for (int k = 0; k < b->n_ranks; k++)
        n += hash_equal(b->digest[k], b->digest[rank]);
    return n;
}

void ballot_count(struct ballot *b, const struct hash128 *compared)
{
    for (int k = 0; k < b->n_ranks; k++) {
        b->digest[k] = compared[k];
        hash_chain(&b->digest[k], ballot_of(b, k), sizeof *b->told * (size_t)b->n_tensors);
    }
    for (int k = 0; k < b->n_ranks; k++) {
        const int n = ballot_votes_for(b, k);

        if (n > b->n_votes) {
            b->good = k;
            b->n_votes = n;
        }
    }
}

/* ---- the verdict ---- */

int ballot_has_majority(const struct ballot *b) { return b->n_votes > b->n_ranks / 2; }

int ballot_names(const struct ballot *b, int k)
{
    return !ballot_has_majority(b) || !hash_equal(b->digest[k], b->digest[b->good]);
}

int ballot_tensor(const struct ballot *b, int k)
{
    const int is_like_good = hash_equal(b->digest[k], b->digest[b->good]);

    for (int r = 0; r < b->n_ranks; r++) {
        const struct hash128 *mine = ballot_of(b, k);
        const struct hash128 *other = ballot_of(b, is_like_good ? r : b->good);

        for (int i = 0; i < b->n_tensors; i++)
            if (!hash_equal(mine[i], other[i]))
                return i;
    }
    return -1;
}

static int ballot_last(const struct ballot *b)
{
    int last = -1;

    for (int k = 0; k < b->n_ranks; k++)
        if (ballot_names(b, k))
            last = k;
    return last;
}

struct report *ballot_report(const struct ballot *b, int k, enum corruption what, int64_t step,
                             int heals, const char *tensor)
{
    struct report *r = report_new(REPORT_CORRUPTION, 0);

    ASSERT(ballot_names(b, k));
    r->corruption.step = step - (what == CORRUPTION_UPDATE);
    r->corruption.rank = k;
    r->corruption.is_proven = ballot_has_majority(b);
    r->corruption.what = what;
    r->corruption.share = -1;
    r->corruption.is_healed = heals;
    r->corruption.ends = !heals && k == ballot_last(b);
    r->corruption.tensor = tensor ? xstrdup(tensor) : NULL;
    return r;
}

/* ---- divided state ---- */

int ballot_names_holder(const int *differs, int n_ranks, int k)
{
    return differs[k] || differs[(k + 1) % n_ranks];
}

struct report *ballot_report_holder(const int *differs, int n_ranks, int k, int64_t step)
{
    struct report *r = report_new(REPORT_CORRUPTION, 0);
    int is_last = 1;

    ASSERT(ballot_names_holder(differs, n_ranks, k));
    for (int later = k + 1; later < n_ranks; later++)
        is_last &= !ballot_names_holder(differs, n_ranks, later);
    r->corruption.step = step;
    r->corruption.rank = k;
    r->corruption.what = CORRUPTION_STATE;
    r->corruption.share = -1;
    r->corruption.ends = is_last;
    return r;
}
