/* Audited steps: fake engines look at shares, and the real jury (audit/jury.h) says what follows.
 * sim_replica.c has wrong bits of the state.
 *
 * A flawed node answers wrongly: about its own share, about the one that it looks at, or in a vote.
 * The invariants: no wrong bit is applied; whoever is proven to be at fault was wrong in that step,
 * about the share that is named; if those who were wrong are fewer than half of their kind, all of
 * them are proven to be, and no other rank is named; and of any others at least one is named. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "sim_impl.h"

enum { MAX_FLAWS = 2 };

/* ---- what the seed decides ---- */

/* Where a bit flips.  A job whose driver is lost goes on to its end, so a state that nobody can
 * mend is none of its flaws: two wrong states at once, divided ones, and that of the driver's rank.
 * Of two followers one may be wrong.  If the driver is lost before that is found, they are left
 * without a third when they form again, and the job ends. */
static enum flip_place choose_place(struct sim *s, int k, int n_before)
{
    const int is_of_leaders = s->mode == SIM_LEADERS;
    const int answers_only = is_of_leaders && (n_before > 0 || k == 0 || s->way.kind == WAY_SHARDS);

    return (enum flip_place)sim_random(s, 0, answers_only ? FLIP_BATCH : FLIP_PLACES - 1);
}

static void choose_flaw(struct sim *s, int64_t from, int n_before)
{
    const int k = (int)sim_random(s, 0, s->n - 1);
    struct node *n = &s->nodes[k];

    n->flaw = (struct flaw){.from = from,
                            .n_left = (int)sim_random(s, 1, s->mode == SIM_LEADERS ? 1 : 4),
                            .is_steady = (int)sim_random(s, 0, 1),
                            .place = choose_place(s, k, n_before)};
    /* Each recovery may lose all steps since the checkpoint, and then they never end. */
    if (s->mode != SIM_LEADERS && (s->way.kind != WAY_SHARDS || s->way.has_buddies) &&
        sim_random(s, 0, 3) == 0)
        n->flaw.n_left = -1;
}

void audit_choose(struct sim *s)
{
    const int64_t n_steps = s->n_epochs * s->spe, from = sim_random(s, 0, n_steps - 1);
    const int n_flaws = (int)sim_random(s, 0, MAX_FLAWS), has_kinds = sim_random(s, 0, 3) == 0;

    s->audit_part = sim_random(s, 0, 2) ? 1 : 3;
    s->heals = s->mode == SIM_LEADERS || sim_random(s, 0, 2) > 0;
    for (int i = 0; i < n_flaws; i++)
        choose_flaw(s, sim_random(s, 0, 1) ? from : sim_random(s, 0, n_steps - 1), i);
    for (int k = 0; k < s->n_nodes && has_kinds; k++)
        s->nodes[k].kind = (int)sim_random(s, 0, 1);
    s->strikes_in_vote = n_flaws > 0 && sim_random(s, 0, 2) > 0;
    if (s->strikes_in_vote)
        s->inject_at = INT64_MAX;
}

/* ---- one audit ---- */

static int64_t audit_key(const struct fake_engine *e) { return e->generation * KEYS + 1 + e->step; }

void audit_form(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    int kind[MAX_NODES];

    if (!s->has_audits)
        return;
    for (int r = 0; r < n->e.n_ranks; r++)
        kind[r] = s->nodes[s->group[n->e.generation][r]].kind;
    jury_begin(&n->jury, kind, n->e.n_ranks);
    n->e.audit = (struct audit){0};
}

int audit_is_due(const struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;

    return s->has_audits && e->n_ranks > 1 && e->audit.done != e->step + 1 &&
           rng_draw(s->seed, RNG_TEST, (uint64_t)e->step, 1).v[0] % (uint32_t)s->audit_part == 0;
}

int audit_strikes(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];

    if (n->flaw.n_left == 0 || n->e.step < n->flaw.from || sim_random(s, 0, 2) == 0)
        return 0;
    if (n->flaw.n_left > 0)
        n->flaw.n_left--;
    s->n_struck += !(s->struck[k] >> INJECT_FLIP & 1);
    s->struck[k] |= 1u << INJECT_FLIP;
    s->r->n_flips[n->flaw.place]++;
    return 1;
}

/* The node computes a share.  *error: how it is wrong; 0: it is right. */
static struct answer compute_share(struct sim *s, int k, int share, uint64_t *error)
{
    struct node *n = &s->nodes[k];
    const int64_t of[] = {n->e.step, share, n->e.n_ranks, n->kind}, mine[] = {k, share, n->e.step};
    struct answer a = {.batch = hash_of(of, 3 * sizeof *of), .gradient = hash_of(of, sizeof of)};

    *error = 0;
    if (jury_next(&n->jury, n->e.rank) < 0 || n->flaw.place > FLIP_BATCH || !audit_strikes(s, k))
        return a;
    if (n->wrong_at != audit_key(&n->e))
        memset(n->wrong_about, 0, sizeof n->wrong_about);
    n->wrong_at = audit_key(&n->e);
    n->wrong_about[share] = 1;
    *error = (n->flaw.is_steady ? hash_of(mine, sizeof mine).lo
                                : (uint64_t)sim_random(s, 1, INT32_MAX)) |
             1;
    a.gradient.lo ^= *error;
    if (n->flaw.place == FLIP_BATCH)
        a.batch.lo ^= *error;
    sim_say(s, "node %d (rank %d): its answer about the share of rank %d in step %lld is wrong", k,
            n->e.rank, share, (long long)n->e.step);
    sim_show(s, SHOW_FAULT, "node %d (rank %d) computes a wrong %s for rank %d's share, step %lld",
             k, n->e.rank, n->flaw.place == FLIP_BATCH ? "batch" : "gradient", share,
             (long long)n->e.step);
    return a;
}

/* Time passes until the shares are computed.  While ranks vote, a fault may come. */
static void audit_turn(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];

    n->e.phase = PHASE_BACKWARD;
    n->e.since = s->now;
    if (n->jury.turn == JURY_VOTE && n->e.rank == 0) {
        sim_show(s, k, "the ranks vote on the share of rank %d in step %lld", n->jury.owner,
                 (long long)n->e.step);
        if (s->strikes_in_vote)
            sim_schedule(s, (struct sim_event){.kind = EV_STRIKE, .node = -1},
                         s->now + sim_random(s, 0, s->step_ms) * MS);
    }
    engine_wake(s, k, sim_random(s, MS, s->step_ms * MS));
}

void audit_open(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];

    jury_open(&n->jury, n->e.step);
    n->e.audit.is_open = 1;
    n->e.audit.n_gathered = 0;
    n->wrong_at = n->wrong_at == audit_key(&n->e) ? 0 : n->wrong_at;
    audit_turn(s, k);
}

void audit_leave(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];

    s->r->n_broken += n->e.rank == 0 && ((n->e.audit.is_open && n->jury.turn == JURY_VOTE) ||
                                         (n->e.check.is_open && n->e.check.turn != CHECK_PART));
    n->e.audit.is_open = n->e.check.is_open = 0;
}

static void audit_answer(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct audit *a = &n->e.audit;
    const int next = jury_next(&n->jury, n->e.rank), owner = n->jury.owner;
    uint64_t error;

    if (n->jury.turn == JURY_VOTE) {
        if (n->jury.kind[n->e.rank] == n->jury.kind[owner])
            a->mine.own = compute_share(s, k, owner, &error);
    } else {
        if (next >= 0)
            a->mine.other = compute_share(s, k, next, &error);
        a->mine.own = compute_share(s, k, n->e.rank, &a->error);
    }
    coll_arrive(s, k, n->e.generation * KEYS + 1 + n->e.step * STEP_KEYS + a->n_gathered++);
}

void audit_gather(struct sim *s, int64_t g)
{
    for (int r = 0; r < s->group_size[g]; r++)
        for (int q = 0; q < s->group_size[g]; q++)
            s->nodes[s->group[g][r]].answers[q] = s->nodes[s->group[g][q]].e.audit.mine;
}

void audit_sum(struct sim *s, int64_t g)
{
    uint64_t sum = 0;

    for (int r = 0; r < s->group_size[g]; r++)
        sum += s->nodes[s->group[g][r]].e.audit.error;
    for (int r = 0; r < s->group_size[g]; r++)
        s->nodes[s->group[g][r]].e.audit.sum = sum;
}

/* ---- the verdict ---- */

static const struct jury_finding *finding_of(const struct jury *j, int rank)
{
    for (int i = 0; i < j->n_found; i++)
        if (j->found[i].rank == rank)
            return &j->found[i];
    return NULL;
}

/* Compare the verdict on ranks of this kind with what has happened. */
static void check_kind(struct sim *s, const struct node *judge, int kind)
{
    const struct jury *j = &judge->jury;
    int n_kind = 0, n_wrong = 0, n_hit = 0, n_proven = 0, n_named = 0;

    for (int r = 0; r < j->n_ranks; r++) {
        const int i = s->group[judge->e.generation][r];
        const int is_wrong = s->nodes[i].wrong_at == audit_key(&judge->e);
        const struct jury_finding *f = finding_of(j, r);

        if (j->kind[r] != kind)
            continue;
        n_kind++;
        n_wrong += is_wrong;
        n_named += f != NULL;
        n_hit += f && is_wrong;
        n_proven += f && is_wrong && f->is_proven;
        if (f && f->is_proven && !is_wrong)
            sim_fail(s, "rank %d is said to be at fault in step %lld, and was right", r,
                     (long long)j->step);
        if (f && f->is_proven && is_wrong && !s->nodes[i].wrong_about[f->share])
            sim_fail(s, "rank %d was not wrong about the share of rank %d in step %lld", r,
                     f->share, (long long)j->step);
    }
    if (2 * n_wrong < n_kind && (n_proven != n_wrong || n_named != n_wrong))
        sim_fail(s,
                 "step %lld: %d of %d ranks were wrong, %d of them and %d others are named, %d "
                 "are proven to be at fault",
                 (long long)j->step, n_wrong, n_kind, n_hit, n_named - n_hit, n_proven);
    if (n_wrong > 0 && n_hit == 0)
        sim_fail(s, "step %lld: %d of %d ranks were wrong, and none of them is named",
                 (long long)j->step, n_wrong, n_kind);
}

static void audit_tell(struct sim *s, int k)
{
    const struct node *n = &s->nodes[k];

    for (int r = 0; r < n->jury.n_ranks; r++)
        if (jury_before(&n->jury, r) > r) /* the first of its kind, which has others */
            check_kind(s, n, n->jury.kind[r]);
    s->r->n_verdicts += n->jury.n_found > 0;
    s->r->n_calm += n->jury.n_found == 0;
    for (int i = 0; i < n->jury.n_found; i++)
        engine_report(s, k, jury_report(&n->jury.found[i], n->e.generation));
}

/* The ranks have agreed, or failed. */
static void audit_end(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    const int is_agreed = n->jury.turn == JURY_AGREED;

    if (n->e.rank == 0)
        audit_tell(s, k);
    n->e.audit.is_open = 0;
    n->e.audit.done = n->e.step + 1;
    if (is_agreed)
        engine_next_part(s, k);
    else if (jury_condemns(&n->jury, n->e.rank))
        engine_fault(s, k, 0, "this rank computes wrong gradients");
    else
        engine_fault(s, k, 1, "the ranks do not agree on a gradient");
}

void audit_advance(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct answer vote[MAX_NODES];

    if (!n->e.is_released) {
        audit_answer(s, k);
        return;
    }
    n->e.is_waiting = n->e.is_released = 0;
    n->e.n_ended++;
    for (int r = 0; r < n->e.n_ranks; r++)
        vote[r] = n->answers[r].own;
    if (n->jury.turn == JURY_VOTE)
        jury_hear_votes(&n->jury, vote, "fc.weight");
    else
        jury_hear_opinions(&n->jury, n->answers);
    if (n->jury.turn <= JURY_VOTE)
        audit_turn(s, k);
    else
        audit_end(s, k);
}

/* ---- what the driver tells ---- */

void audit_event(struct sim *s, const struct session_event *e)
{
    const int k = e->host && !strncmp(e->host, "host", 4) ? atoi(e->host + 4) : -1;
    const int is_drivers = strstr(e->text, "the replicas differ at the end of the epoch") != NULL;

    s->n_corruptions += !is_drivers;
    s->r->n_differed += is_drivers;
    if (is_drivers && !replica_is_odd(s, k))
        sim_fail(s, "node %d is named, and its replica is right: %s", k, e->text);
    if (!sim_was_struck(s, INJECT_FLIP))
        sim_fail(s, "all bits were right: %s", e->text);
    if (!is_drivers && k >= 0 && !strstr(e->text, "perhaps") && !(s->struck[k] >> INJECT_FLIP & 1))
        sim_fail(s, "node %d is named, and its bits were right: %s", k, e->text);
}

void audit_check(struct sim *s)
{
    if (s->n_corruptions != s->n_told)
        sim_fail(s, "%d findings were reported, and %d told", s->n_told, s->n_corruptions);
}
