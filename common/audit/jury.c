/* jury - compares the answers of the ranks, counts their votes, and keeps the names of those at
 * fault.
 *
 * Happy path: all pairs of opinions are equal in the first round, and nobody votes.
 *
 * One rank is wrong once: its share, or the one that it looks at, has two answers.  One vote finds
 * the rank, and the second round agrees.  A rank that stays wrong is found in each round, until the
 * last one fails. */
#include "audit/jury.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

/* ---- who looks at whom ---- */

static int jury_from(const struct jury *j, int k, int by)
{
    for (int i = 1; i < j->n_ranks; i++) {
        const int r = (k + by * i + j->n_ranks * i) % j->n_ranks;

        if (j->kind[r] == j->kind[k])
            return r;
    }
    return -1;
}

int jury_next(const struct jury *j, int k) { return jury_from(j, k, 1); }
int jury_before(const struct jury *j, int k) { return jury_from(j, k, -1); }

void jury_begin(struct jury *j, const int *kind, int n_ranks)
{
    jury_fini(j);
    j->n_ranks = n_ranks;
    j->kind = xcalloc((size_t)n_ranks, sizeof *j->kind);
    j->all = xcalloc((size_t)n_ranks, sizeof *j->all);
    j->found = xcalloc((size_t)n_ranks, sizeof *j->found);
    memcpy(j->kind, kind, sizeof *kind * (size_t)n_ranks);
}

void jury_fini(struct jury *j)
{
    free(j->kind);
    free(j->all);
    free(j->found);
    *j = (struct jury){0};
}

void jury_open(struct jury *j, int64_t step)
{
    j->step = step;
    j->turn = JURY_LOOK;
    j->round = j->n_found = j->differs = 0;
}

/* ---- answers ---- */

static int is_same_answer(const struct answer *a, const struct answer *b)
{
    return hash_equal(a->batch, b->batch) && hash_equal(a->gradient, b->gradient);
}

static enum corruption what_differs(const struct answer *a, const struct answer *b)
{
    return hash_equal(a->batch, b->batch) ? CORRUPTION_GRADIENT : CORRUPTION_BATCH;
}

/* The answer of more than half of the ranks of this kind; NULL: there is none. */
static const struct answer *find_majority(const struct jury *j, const struct answer *vote, int kind)
{
    const struct answer *most = NULL;
    int n_kind = 0, n_most = 0;

    for (int k = 0; k < j->n_ranks; k++) {
        int n = 0;

        for (int r = 0; r < j->n_ranks && j->kind[k] == kind; r++)
            n += j->kind[r] == kind && is_same_answer(&vote[r], &vote[k]);
        n_kind += j->kind[k] == kind;
        if (n > n_most) {
            n_most = n;
            most = &vote[k];
        }
    }
    return 2 * n_most > n_kind ? most : NULL;
}

/* ---- who is at fault ---- */

/* 1: the finding stays, and the new one, with such a tensor, tells less. */
static int says_more(const struct jury_finding *f, int is_proven, const char *tensor)
{
    return f->is_proven && (!is_proven || (f->tensor && !tensor));
}

/* A rank is at fault, or may be, with its answer about the owner's share. */
static void jury_note(struct jury *j, int rank, int is_proven, enum corruption what,
                      const char *tensor)
{
    struct jury_finding *f = NULL;
    const char *known = NULL; /* from an earlier finding about the same share */

    for (int i = 0; i < j->n_found && !f; i++)
        if (j->found[i].rank == rank)
            f = &j->found[i];
    if (f && says_more(f, is_proven, tensor)) {
        f->round = j->round;
        return;
    }
    if (f)
        known = f->share == j->owner ? f->tensor : NULL;
    else
        f = &j->found[j->n_found++];
    *f = (struct jury_finding){.step = j->step,
                               .rank = rank,
                               .is_proven = is_proven,
                               .what = what,
                               .share = j->owner,
                               .tensor = tensor ? tensor : known,
                               .round = j->round};
}

/* The first answer of a rank about the owner's share; NULL: it gave none. */
static const struct answer *jury_first(const struct jury *j, int rank)
{
    if (rank == j->owner)
        return &j->all[rank].own;
    return rank == jury_before(j, j->owner) ? &j->all[rank].other : NULL;
}

/* All ranks that had another answer than the right one, first or now, are at fault. */
static void judge_by_majority(struct jury *j, const struct answer *vote, const struct answer *right,
                              const char *tensor)
{
    for (int k = 0; k < j->n_ranks; k++) {
        const struct answer *first = jury_first(j, k);

        if (j->kind[k] != j->kind[j->owner])
            continue;
        if (first && !is_same_answer(first, right))
            jury_note(j, k, 1, what_differs(first, right), tensor);
        else if (!is_same_answer(&vote[k], right))
            jury_note(j, k, 1, what_differs(&vote[k], right), NULL);
    }
}

/* Nobody knows the right answer.  One of the two contradicts itself, or nothing is proven. */
static void judge_by_repetition(struct jury *j, const struct answer *vote, const char *tensor)
{
    const int owner = j->owner, auditor = jury_before(j, owner);
    const struct answer *own = jury_first(j, owner), *other = jury_first(j, auditor);
    const enum corruption what = what_differs(own, other);
    const int owner_fails = !is_same_answer(own, &vote[owner]);
    const int auditor_fails = !is_same_answer(other, &vote[auditor]);
    const int is_proven = owner_fails != auditor_fails;

    if (owner_fails || !is_proven)
        jury_note(j, owner, is_proven, what, tensor);
    if (auditor_fails || !is_proven)
        jury_note(j, auditor, is_proven, what, tensor);
}

/* ---- turns ---- */

/* The ranks have agreed, or failed: complete the findings. */
static enum jury_turn jury_close(struct jury *j, enum jury_turn turn)
{
    struct jury_finding *last = NULL;
    int is_proven = 0;

    for (int i = 0; i < j->n_found; i++) {
        struct jury_finding *f = &j->found[i];

        f->is_healed = turn == JURY_AGREED || f->round < j->round;
        if (f->is_healed)
            continue;
        is_proven |= f->is_proven;
        last = f;
    }
    if (last && !is_proven)
        last->ends = 1;
    return j->turn = turn;
}

/* Go on behind the share of rank `from` - 1. */
static enum jury_turn jury_go_on(struct jury *j, int from)
{
    for (int k = from; k < j->n_ranks; k++) {
        const int auditor = jury_before(j, k);

        if (auditor < 0 || is_same_answer(&j->all[k].own, &j->all[auditor].other))
            continue;
        j->differs = 1;
        j->owner = k;
        return j->turn = JURY_VOTE;
    }
    if (!j->differs)
        return jury_close(j, JURY_AGREED);
    if (j->round == JURY_ROUNDS - 1)
        return jury_close(j, JURY_FAILED);
    j->round++;
    j->differs = 0;
    return j->turn = JURY_LOOK;
}

enum jury_turn jury_hear_opinions(struct jury *j, const struct opinion *all)
{
    ASSERT(j->turn == JURY_LOOK);
    memcpy(j->all, all, sizeof *all * (size_t)j->n_ranks);
    return jury_go_on(j, 0);
}

enum jury_turn jury_hear_votes(struct jury *j, const struct answer *vote, const char *tensor)
{
    const struct answer *right = find_majority(j, vote, j->kind[j->owner]);

    ASSERT(j->turn == JURY_VOTE);
    if (right)
        judge_by_majority(j, vote, right, tensor);
    else
        judge_by_repetition(j, vote, tensor);
    return jury_go_on(j, j->owner + 1);
}

struct report *jury_report(const struct jury_finding *f, int64_t generation)
{
    struct report *r = report_new(REPORT_CORRUPTION, generation);

    r->corruption.step = f->step;
    r->corruption.rank = f->rank;
    r->corruption.is_proven = f->is_proven;
    r->corruption.what = f->what;
    r->corruption.share = f->share;
    r->corruption.is_healed = f->is_healed;
    r->corruption.ends = f->ends;
    r->corruption.leaves = f->is_proven && f->is_healed;
    r->corruption.tensor = f->tensor ? xstrdup(f->tensor) : NULL;
    return r;
}

int jury_condemns(const struct jury *j, int rank)
{
    for (int i = 0; i < j->n_found; i++)
        if (j->found[i].rank == rank && j->found[i].is_proven && !j->found[i].is_healed)
            return j->turn == JURY_FAILED;
    return 0;
}
