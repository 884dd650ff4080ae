/* Comparisons of replicas: fake engines hold a few tensors each, and the real ballot
 * (audit/ballot.h) says whose are wrong.
 *
 * A flawed node has wrong bits in its sum of gradients, in its update, or in what it holds between
 * two steps.  After some steps the ranks compare one tensor, which the step's number chooses, and
 * with cluster.on_divergence heal all tensors at an epoch's end.  Where state is divided, they
 * compare parameters in the same way, and each shard with its copy.
 *
 * The invariants: a comparison finds a difference exactly if there is one; if fewer than half of
 * the ranks are wrong, these are named, with the first wrong tensor and what went wrong, and no
 * other one is; if not, nothing is proven; the ranks then take a right state, or the job ends; a
 * state that was found to be wrong is never gone on with; no epoch is told of whose ranks differ.
 *
 * When ranks form again, those that hold the newest step compare their states first.  Wrong bits of
 * a source with which no other rank could be compared are all ranks' then.  They count as right
 * from then on (struct fake_engine, base), as nobody can know better. */
#include <string.h>

#include "base/util.h"
#include "sim_impl.h"

static const char *const tensor_names[TENSORS] = {"conv1.weight", "fc.weight",
                                                  "conv1.weight.exp_avg", "fc.weight.exp_avg"};

static int is_divided(const struct sim *s) { return s->way.kind == WAY_SHARDS; }

/* The number of tensors that each rank holds as a whole. */
static int n_whole(const struct sim *s) { return is_divided(s) ? TENSORS / 2 : TENSORS; }

static struct rng_block draw_of(const struct sim *s, int64_t step)
{
    return rng_draw(s->seed, RNG_TEST, (uint64_t)step, 2);
}

/* The tensor that is compared once `step` steps are done. */
static int tensor_of(const struct sim *s, int64_t step)
{
    return (int)(draw_of(s, step).v[1] % (uint32_t)n_whole(s));
}

/* ---- what is wrong ---- */

/* The first tensor that differs from the one with which the formation began; -1: none does. */
static int first_wrong(const struct sim *s, const struct fake_engine *e)
{
    for (int i = 0; i < n_whole(s); i++)
        if (e->replica.wrong[i] != e->base.wrong[i])
            return i;
    return -1;
}

static int is_replica_wrong(const struct sim *s, int k)
{
    return first_wrong(s, &s->nodes[k].e) >= 0;
}

/* 1: all ranks of this formation are as they were when they met last.  Where the driver was frozen
 * meanwhile, some may have gone on. */
static int is_together(const struct sim *s, int64_t g)
{
    int is = 1;

    for (int r = 0; r < s->group_size[g]; r++)
        is &= s->nodes[s->group[g][r]].e.generation == g;
    return is;
}

static int count_wrong(const struct sim *s, int64_t g)
{
    int n = 0;

    for (int r = 0; r < s->group_size[g]; r++)
        n += is_replica_wrong(s, s->group[g][r]);
    return n;
}

static void forget_flips(struct node *n) { memset(n->e.flips, 0, sizeof n->e.flips); }

/* The flips of this node have been found. */
static void note_found(struct sim *s, int k)
{
    for (int i = 0; i < FLIP_PLACES; i++)
        s->r->n_found[i] += s->nodes[k].e.flips[i];
    forget_flips(&s->nodes[k]);
}

/* A verdict on the states of n ranks.  A job whose driver is lost has one wrong state at most. */
static void replica_count(struct sim *s, int n, int heals)
{
    s->r->n_differed++;
    s->r->n_healed += heals;
    s->n_split += !heals;
    if (s->mode == SIM_LEADERS && heals != (n > 2))
        sim_fail(s, "one of %d states is wrong, and %s", n, heals ? "is mended" : "is not mended");
}

/* ---- a step ---- */

/* A node that is wrong loses its state, if the others are lost before it has taken theirs.  In a
 * job whose driver is lost one follower at most loses its state. */
static int may_lose_state(const struct sim *s)
{
    return s->mode != SIM_LEADERS || s->run.n_follower_kills == 0;
}

static uint64_t draw_bits(struct sim *s, int k)
{
    const struct flaw *f = &s->nodes[k].flaw;
    const int is_seen = !is_divided(s) || s->way.has_buddies || f->place == FLIP_PARAM;

    if (f->place < FLIP_SUM || !is_seen || !may_lose_state(s) || !audit_strikes(s, k))
        return 0;
    s->run.n_follower_kills += s->mode == SIM_LEADERS;
    s->nodes[k].e.flips[f->place]++;
    sim_say(s, "node %d (rank %d): a bit flips in step %lld, place %d", k, s->nodes[k].e.rank,
            (long long)s->nodes[k].e.step, f->place);
    sim_show(s, SHOW_FAULT, "node %d (rank %d) holds wrong bits from step %lld on", k,
             s->nodes[k].e.rank, (long long)s->nodes[k].e.step);
    /* no two nodes are wrong alike */
    return (uint64_t)(k + 1) << 32 | (uint64_t)sim_random(s, 1, INT32_MAX);
}

/* Wrong bits get into the state. */
static void spoil(struct sim *s, int k, uint64_t bits)
{
    struct replica *p = &s->nodes[k].e.replica;
    const enum flip_place place = s->nodes[k].flaw.place;
    const int tensor = (int)sim_random(s, 0, TENSORS / 2 - 1), half = TENSORS / 2;

    if (!bits)
        return;
    if (is_divided(s) && place != FLIP_PARAM)
        *(place == FLIP_SLOT && sim_random(s, 0, 1) ? &p->copy : &p->own) ^= bits;
    else if (place == FLIP_PARAM || (place == FLIP_UPDATE && sim_random(s, 0, 1)))
        p->wrong[tensor] ^= bits;
    else
        p->wrong[half + tensor] ^= bits;
    if (place == FLIP_SUM && !is_divided(s))
        p->wrong[tensor] ^= bits;
}

static struct hash128 hash_tensor(const struct fake_engine *e, int64_t step, int i)
{
    const uint64_t of[] = {(uint64_t)step, (uint64_t)i, e->replica.wrong[i]};

    return hash_of(of, sizeof of);
}

void replica_update(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    const int part = tensor_of(s, e->step + 1);
    uint64_t bits, of[2] = {(uint64_t)e->step, 0};
    const int is_sum = s->nodes[k].flaw.place == FLIP_SUM && !is_divided(s);

    if (!s->has_audits || e->n_ranks == 1)
        return;
    bits = draw_bits(s, k);
    if (s->nodes[k].flaw.place >= FLIP_PARAM)
        spoil(s, k, bits);
    e->mine.part.before = hash_tensor(e, e->step, part);
    e->is_early = e->replica.wrong[part] != e->base.wrong[part];
    if (is_sum) { /* of divided state each rank has other sums, which are not compared here */
        of[1] = bits;
        e->is_early |= bits != 0;
    }
    e->mine.part.summed = hash_of(of, sizeof of);
    if (s->nodes[k].flaw.place < FLIP_PARAM)
        spoil(s, k, bits);
}

/* ---- forming ---- */

/* The nodes of the formation that hold the source's step; returns their number.  holder: ranks. */
static int replica_holders(const struct sim *s, int64_t g, int source, int *holder)
{
    const struct fake_engine *from = &s->nodes[s->group[g][source]].e;
    int n = 0;

    for (int r = 0; r < s->group_size[g] && from->has_formed; r++) {
        const struct fake_engine *e = &s->nodes[s->group[g][r]].e;

        if (e->has_formed && e->step == from->step)
            holder[n++] = r;
    }
    return n;
}

/* Compare the verdict with what has happened, if all have formed together before. */
static void check_holders(struct sim *s, int64_t g, const struct ballot *b, const int *holder)
{
    const struct fake_engine *first = &s->nodes[s->group[g][holder[0]]].e;
    int n_wrong = 0, are_of_one = 1;

    for (int i = 0; i < b->n_ranks; i++) {
        const struct fake_engine *e = &s->nodes[s->group[g][holder[i]]].e;

        n_wrong += first_wrong(s, e) >= 0;
        are_of_one &= !memcmp(&e->base, &first->base, sizeof e->base);
    }
    if (are_of_one && ballot_has_majority(b) != (2 * n_wrong < b->n_ranks))
        sim_fail(s, "%d of %d states to go on from are wrong, and %d ranks agree", n_wrong,
                 b->n_ranks, b->n_votes);
    for (int i = 0; i < b->n_ranks; i++) {
        const int is_wrong = is_replica_wrong(s, s->group[g][holder[i]]);

        if (are_of_one && ballot_has_majority(b) && ballot_names(b, i) != is_wrong)
            sim_fail(s, "rank %d's state to go on from is %s, and it is %s", holder[i],
                     is_wrong ? "wrong" : "right", is_wrong ? "not named" : "named");
        if (is_wrong)
            note_found(s, s->group[g][holder[i]]);
    }
}

static int replica_vote(struct sim *s, int64_t g, const int *holder, int n)
{
    const int teller = s->group[g][0];
    struct hash128 compared[MAX_NODES];
    struct ballot b;
    int heals, good;

    ballot_begin(&b, n, TENSORS);
    for (int i = 0; i < n; i++) {
        const struct fake_engine *e = &s->nodes[s->group[g][holder[i]]].e;

        for (int j = 0; j < TENSORS; j++)
            b.told[i * TENSORS + j] = hash_tensor(e, e->step, j);
        compared[i] = hash_of(e->replica.wrong, sizeof e->replica.wrong);
    }
    ballot_count(&b, compared);
    heals = ballot_has_majority(&b) && s->heals;
    good = holder[b.good];
    check_holders(s, g, &b, holder);
    replica_count(s, n, heals);
    for (int i = 0; i < n; i++)
        if (ballot_names(&b, i)) {
            struct report *r =
                ballot_report(&b, i, CORRUPTION_STATE, s->nodes[s->group[g][holder[i]]].e.step,
                              heals, tensor_names[max_i64(ballot_tensor(&b, i), 0)]);

            r->corruption.rank = holder[i];
            r->generation = g;
            engine_report(s, teller, r);
        }
    ballot_fini(&b);
    return heals ? good : -1;
}

int replica_source(struct sim *s, int64_t g, int source)
{
    int holder[MAX_NODES], n, differs = 0;

    if (!s->has_audits || is_divided(s) || s->group_size[g] == 1)
        return source;
    n = replica_holders(s, g, source, holder);
    for (int i = 1; i < n; i++)
        differs |= memcmp(s->nodes[s->group[g][holder[i]]].e.replica.wrong,
                          s->nodes[s->group[g][holder[0]]].e.replica.wrong,
                          sizeof s->nodes[0].e.replica.wrong) != 0;
    if (differs)
        source = replica_vote(s, g, holder, n);
    for (int r = 0; r < s->group_size[g]; r++) {
        s->nodes[s->group[g][r]].e.is_split = source < 0;
        s->nodes[s->group[g][r]].e.source = source < 0 ? 0 : source;
    }
    return source;
}

/* Divided state comes from the holders of its shards, and counts as right from then on. */
void replica_form(struct sim *s, int64_t g, int source)
{
    const struct node *from = &s->nodes[s->group[g][source]];
    const struct replica taken = is_divided(s) ? (struct replica){{0}} : from->e.replica;

    if (!s->has_audits)
        return;
    if (from->e.check.is_wrong && !is_divided(s))
        sim_fail(s, "all go on from the state of node %d, which was found to be wrong",
                 s->group[g][source]);
    s->r->n_spread += !is_divided(s) && is_replica_wrong(s, s->group[g][source]);
    for (int r = 0; r < s->group_size[g]; r++) {
        struct node *n = &s->nodes[s->group[g][r]];

        n->e.replica = n->e.base = taken;
        n->e.check = (struct check){0};
        n->e.has_formed = 1;
        forget_flips(n);
    }
}

int replica_is_condemned(const struct sim *s, int k)
{
    const struct check *c = &s->nodes[k].e.check;

    return c->is_wrong && c->turn == CHECK_HEAL;
}

/* ---- turns ---- */

int replica_is_due(const struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;

    return s->has_audits && e->n_ranks > 1 &&
           draw_of(s, e->step).v[0] % (uint32_t)s->audit_part == 0;
}

/* Time passes until the hashes, or the state, are ready.  While the ranks vote, or take the state
 * of most, a fault may come. */
static void replica_turn(struct sim *s, int k, enum check_turn turn)
{
    struct fake_engine *e = &s->nodes[k].e;

    e->check.turn = turn;
    e->phase = PHASE_UPDATE;
    e->since = s->now;
    if (turn != CHECK_PART && e->rank == 0) {
        sim_show(s, k,
                 turn == CHECK_VOTE ? "the ranks vote on the state of step %lld"
                                    : "the state of most ranks is taken after step %lld",
                 (long long)e->step);
        if (s->strikes_in_vote)
            sim_schedule(s, (struct sim_event){.kind = EV_STRIKE, .node = -1},
                         s->now + sim_random(s, 0, s->step_ms) * MS);
    }
    engine_wake(s, k, sim_random(s, MS, s->step_ms * MS));
}

static void replica_begin(struct sim *s, int k, int is_whole)
{
    struct fake_engine *e = &s->nodes[k].e;
    const uint64_t own[] = {(uint64_t)e->step, e->replica.own},
                   copy[] = {(uint64_t)e->step, e->replica.copy};

    e->check = (struct check){.is_open = 1, .is_whole = is_whole};
    for (int i = 0; i < n_whole(s); i++)
        e->mine.tensor[i] = hash_tensor(e, e->step, i);
    e->mine.part.after = is_whole ? hash_of(e->mine.tensor, sizeof e->mine.tensor)
                                  : e->mine.tensor[tensor_of(s, e->step)];
    e->mine.own = hash_of(own, sizeof own);
    e->mine.copy = hash_of(copy, sizeof copy);
    replica_turn(s, k, CHECK_PART);
}

void replica_open(struct sim *s, int k) { replica_begin(s, k, 0); }

int replica_open_whole(struct sim *s, int k, enum epoch_end end)
{
    if (!s->has_audits || !s->heals || is_divided(s) || s->nodes[k].e.n_ranks == 1)
        return 0;
    replica_begin(s, k, 1);
    s->nodes[k].e.check.end = end;
    return 1;
}

void replica_gather(struct sim *s, int64_t g)
{
    const struct check *c = &s->nodes[s->group[g][0]].e.check;
    const struct replica good = s->nodes[s->group[g][c->good]].e.replica;

    for (int r = 0; r < s->group_size[g]; r++) {
        struct node *n = &s->nodes[s->group[g][r]];

        for (int q = 0; q < s->group_size[g] && c->turn != CHECK_HEAL; q++)
            n->told[q] = s->nodes[s->group[g][q]].e.mine;
        if (c->turn == CHECK_HEAL)
            n->e.replica = good;
        if (c->turn == CHECK_HEAL && is_replica_wrong(s, s->group[g][r]))
            sim_fail(s, "the ranks take a wrong state, that of rank %d", c->good);
    }
}

static void replica_end(struct sim *s, int k)
{
    struct check *c = &s->nodes[k].e.check;

    c->is_open = c->is_wrong = 0;
    if (c->is_whole)
        engine_end_epoch(s, k, c->end);
    else
        engine_end_step(s, k);
}

static void replica_report(struct sim *s, int k, struct report *r)
{
    r->generation = s->nodes[k].e.generation;
    engine_report(s, k, r);
}

/* ---- votes ---- */

/* The word that the ranks should find for what went wrong. */
static enum corruption want_what(const struct sim *s, const struct node *judge)
{
    int is_update = !judge->e.check.is_whole;

    for (int r = 0; r < judge->e.n_ranks; r++)
        is_update &= !s->nodes[s->group[judge->e.generation][r]].e.is_early;
    return is_update ? CORRUPTION_UPDATE : CORRUPTION_STATE;
}

/* Compare the verdict with what has happened. */
static void check_ballot(struct sim *s, const struct node *judge, const struct ballot *b)
{
    const int64_t g = judge->e.generation, step = judge->e.step;
    const int n_wrong = count_wrong(s, g), is_sure = 2 * n_wrong < b->n_ranks;

    if (ballot_has_majority(b) != is_sure || n_wrong == 0)
        sim_fail(s, "step %lld: %d of %d replicas are wrong, and %d ranks agree", (long long)step,
                 n_wrong, b->n_ranks, b->n_votes);
    if (judge->e.check.what != want_what(s, judge))
        sim_fail(s, "step %lld: the wrong bits are said to be of the %s", (long long)step,
                 corruption_name(judge->e.check.what));
    for (int r = 0; r < b->n_ranks; r++) {
        const struct node *n = &s->nodes[s->group[g][r]];
        const int wrong = first_wrong(s, &n->e), is_wrong = wrong >= 0;

        if (is_sure && ballot_names(b, r) != is_wrong)
            sim_fail(s, "step %lld: rank %d is %s, and it is %s", (long long)step, r,
                     is_wrong ? "wrong" : "right", is_wrong ? "not named" : "named");
        if (!is_sure && !ballot_names(b, r))
            sim_fail(s, "step %lld: nobody can know that rank %d is right", (long long)step, r);
        if (is_sure && is_wrong && ballot_tensor(b, r) != wrong)
            sim_fail(s, "step %lld: rank %d is wrong from tensor %d on, not %d", (long long)step, r,
                     wrong, ballot_tensor(b, r));
        if (is_wrong)
            note_found(s, s->group[g][r]);
    }
}

static void replica_tell(struct sim *s, int k, const struct ballot *b, int heals)
{
    const struct node *n = &s->nodes[k];

    if (is_together(s, n->e.generation))
        check_ballot(s, n, b);
    replica_count(s, b->n_ranks, heals);
    for (int r = 0; r < b->n_ranks; r++)
        if (ballot_names(b, r))
            replica_report(s, k,
                           ballot_report(b, r, n->e.check.what, n->e.step, heals,
                                         tensor_names[max_i64(ballot_tensor(b, r), 0)]));
}

static void replica_judge(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct hash128 compared[MAX_NODES];
    struct ballot b;
    int heals;

    ballot_begin(&b, n->e.n_ranks, n_whole(s));
    for (int r = 0; r < b.n_ranks; r++) {
        memcpy(b.told + r * b.n_tensors, n->told[r].tensor, sizeof *b.told * (size_t)b.n_tensors);
        compared[r] = ballot_compared(&n->told[r].part);
    }
    ballot_count(&b, compared);
    heals = ballot_has_majority(&b) && !is_divided(s) && s->heals;
    if (n->e.rank == 0)
        replica_tell(s, k, &b, heals);
    n->e.check.is_wrong = ballot_has_majority(&b) && ballot_names(&b, n->e.rank);
    n->e.check.good = b.good;
    ballot_fini(&b);
    if (heals)
        replica_turn(s, k, CHECK_HEAL);
    else
        engine_fault(s, k, 1, "the ranks hold different states");
}

/* ---- comparing ---- */

/* Compare what was found with what has happened; in a step's or an epoch's comparison all ranks
 * have the same `base`. */
static void check_difference(struct sim *s, const struct node *judge, int differs)
{
    const int part = tensor_of(s, judge->e.step);
    int n_wrong = 0, n_of_part = 0;

    for (int r = 0; r < judge->e.n_ranks; r++) {
        const struct fake_engine *e = &s->nodes[s->group[judge->e.generation][r]].e;
        const int is_wrong = first_wrong(s, e) >= 0;

        n_wrong += is_wrong || e->replica.own || e->replica.copy;
        n_of_part +=
            judge->e.check.is_whole ? is_wrong : e->replica.wrong[part] != e->base.wrong[part];
    }
    s->r->n_calm += n_wrong == 0;
    if (differs != (n_of_part > 0))
        sim_fail(s, "step %lld: %d replicas are wrong where they are compared, and %s",
                 (long long)judge->e.step, n_of_part, differs ? "they differ" : "are all equal");
}

/* Name the holders of shards that differ from their copies.  Returns their number. */
static int replica_pairs(struct sim *s, int k)
{
    const struct node *n = &s->nodes[k];
    const int size = n->e.n_ranks;
    int differs[MAX_NODES], n_named = 0;

    for (int r = 0; r < size; r++)
        differs[r] = !hash_equal(n->told[r].copy, n->told[(r + size - 1) % size].own);
    for (int r = 0; r < size; r++) {
        const int i = s->group[n->e.generation][r],
                  is_named = ballot_names_holder(differs, size, r);

        n_named += is_named;
        if (n->e.rank != 0)
            continue;
        if (!is_named && is_together(s, n->e.generation) &&
            (s->nodes[i].e.replica.own || s->nodes[i].e.replica.copy))
            sim_fail(s, "step %lld: rank %d has a wrong shard, and is not named",
                     (long long)n->e.step, r);
        if (is_named) {
            note_found(s, i);
            replica_report(s, k, ballot_report_holder(differs, size, r, n->e.step));
        }
    }
    s->r->n_differed += n->e.rank == 0 && n_named > 0;
    return n_named;
}

static void replica_compare(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct compared all[MAX_NODES];
    int differs;

    for (int r = 0; r < n->e.n_ranks; r++)
        all[r] = n->told[r].part;
    differs = ballot_differs(all, n->e.n_ranks);
    if (n->e.rank == 0 && is_together(s, n->e.generation))
        check_difference(s, n, differs);
    if (differs) {
        n->e.check.what = ballot_what(all, n->e.n_ranks, !n->e.check.is_whole);
        replica_turn(s, k, CHECK_VOTE);
    } else if (is_divided(s) && s->way.has_buddies && replica_pairs(s, k) > 0) {
        engine_fault(s, k, 1, "copies of parts of the state differ from their originals");
    } else {
        replica_end(s, k);
    }
}

void replica_advance(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    const struct check *c = &e->check;

    if (!e->is_released) {
        coll_arrive(s, k,
                    e->generation * KEYS + 1 + (e->step - 1) * STEP_KEYS + FIRST_CHECK +
                        c->is_whole * CHECK_TURNS + c->turn);
        return;
    }
    e->is_waiting = e->is_released = 0;
    e->n_ended++;
    if (c->turn == CHECK_PART)
        replica_compare(s, k);
    else if (c->turn == CHECK_VOTE)
        replica_judge(s, k);
    else
        replica_end(s, k);
}

/* ---- what the driver tells ---- */

uint64_t replica_content(const struct sim *s, int k)
{
    return hash_of(s->nodes[k].e.replica.wrong, sizeof(uint64_t) * (size_t)n_whole(s)).lo;
}

void replica_epoch(struct sim *s)
{
    const int64_t g = s->newest_generation;

    if (!s->has_audits || s->n_errors > 0)
        return; /* a job that ends because of that tells of its last epoch, too */
    for (int r = 0; r < s->group_size[g]; r++) {
        const int k = s->group[g][r];

        if (s->nodes[k].is_alive && s->nodes[k].e.generation == g && is_replica_wrong(s, k))
            sim_fail(s, "an epoch is told of, and the replica of node %d is wrong", k);
    }
}

int replica_is_odd(const struct sim *s, int k)
{
    const int64_t g = s->newest_generation;
    const int n_wrong = count_wrong(s, g);

    return n_wrong > 0 && (2 * n_wrong >= s->group_size[g] || is_replica_wrong(s, k));
}
