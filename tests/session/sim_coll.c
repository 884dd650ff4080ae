/* Collectives of the fake engines: the ranks of a formation meet, or notice that some have left.
 * In most collectives all ranks meet.  In some parts of a step (sim_way.c) a rank waits for a few
 * others only.  Two nodes that cannot reach each other (struct cut) hold up all that wait for both.
 */
#include "base/util.h"
#include "sim_impl.h"

/* Each node that waits for one that has left notices it in its own time. */
static void notice(struct sim *s, int k)
{
    s->nodes[k].e.is_released = -1;
    engine_wake(s, k, sim_random(s, 0, 400 * MS));
}

/* The number of nodes that have left this formation.  *n_here: the number that wait for `key`. */
static int n_left(const struct sim *s, int64_t g, int64_t key, int *n_here)
{
    int n = 0;
    *n_here = 0;
    for (int r = 0; r < s->group_size[g]; r++) {
        int i = s->group[g][r];
        if (i < 0)
            continue; /* not prepared yet */
        const struct fake_engine *e = &s->nodes[i].e;
        n += !s->nodes[i].is_alive || e->left >= g || e->generation != g;
        *n_here += e->generation == g && e->is_waiting && e->key == key;
    }
    return n;
}

static struct fake_engine *member(struct sim *s, int64_t g, int rank)
{
    return &s->nodes[s->group[g][rank]].e;
}

/* Rank 0 loads the newest checkpoint; one that is being written is waited for. */
static const struct weights *load(struct sim *s, int64_t g)
{
    const struct fake_engine *zero = member(s, g, 0);
    return !s->is_disk_full && zero->copied.n > s->run.saved.n ? &zero->copied : &s->run.saved;
}

static void take_shards(struct sim *s, int64_t g, struct weights *out)
{
    struct way_rank rank[MAX_NODES];
    int64_t newest = s->newest_step - 1; /* the step after it may be lost with one rank */
    int n = s->group_size[g], best;
    for (int r = 0; r < n; r++) {
        rank[r] = (struct way_rank){member(s, g, r)->step, member(s, g, r)->shard};
        newest = max_i64(newest, rank[r].step);
    }
    best = way_newest_whole(&s->way, rank, n);
    *out = best >= 0 ? member(s, g, best)->w : *load(s, g);
    if (newest > out->n) { /* epochs after it are told again */
        sim_say(s, "no step newer than %d is whole", out->n);
        s->is_back = 1;
        s->n_epoch_events = (int)min_i64(s->n_epoch_events, out->n / s->spe);
    }
}

/* The state that the ranks of generation g go on from.  They divide it anew. */
static void find_state(struct sim *s, int64_t g, struct weights *out)
{
    int n = s->group_size[g];
    if (s->way.kind == WAY_SHARDS)
        take_shards(s, g, out);
    else
        *out = member(s, g, member(s, g, 0)->source)->w;
    for (int r = 0; r < n; r++)
        member(s, g, r)->shard = (struct shard){.lineage = g, .size = n, .rank = r, .prepared = -1};
}

/* All nodes take the source's state, or what is left of the newest one. */
static void take_state(struct sim *s, int64_t g)
{
    const struct fake_engine *from = &s->nodes[s->group[g][s->nodes[s->group[g][0]].e.source]].e;
    const int source = replica_source(s, g, s->nodes[s->group[g][0]].e.source);
    struct weights w;
    for (int r = 0; r < s->group_size[g]; r++)
        if (s->nodes[s->group[g][r]].e.step > from->step)
            sim_fail(s, "the source holds step %lld, rank %d step %lld", (long long)from->step, r,
                     (long long)s->nodes[s->group[g][r]].e.step);
    if (source < 0)
        return;
    find_state(s, g, &w);
    if (s->newest_step > w.n + 1 && !s->is_back)
        sim_fail(s, "step %lld was applied, and %d is where it goes on", (long long)s->newest_step,
                 w.n);
    s->newest_step = w.n;
    replica_form(s, g, source);
    for (int r = 0; r < s->group_size[g]; r++) {
        s->nodes[s->group[g][r]].e.w = w;
        s->nodes[s->group[g][r]].e.step = w.n;
    }
}

/* The ranks on each machine have different local numbers. */
static void check_places(struct sim *s, int64_t g)
{
    for (int r = 0; r < s->group_size[g]; r++) {
        int k = s->group[g][r], n = 0, n_before = 0;
        for (int q = 0; q < s->group_size[g]; q++) {
            int other = s->group[g][q], is_here = k == other || (k % 2 == 0 && other % 2 == 0);
            n += is_here;
            n_before += is_here && q < r;
        }
        const struct fake_engine *e = &s->nodes[k].e;
        if (e->n_local != n || e->local != n_before)
            sim_fail(s, "node %d is %d of %d on its machine, want %d of %d", k, e->local,
                     e->n_local, n_before, n);
    }
}

/* The number of a collective in its step; -1: it is a formation's. */
static int64_t number_of(int64_t key)
{
    return key % KEYS == 0 ? -1 : (key % KEYS - 1) % STEP_KEYS;
}

static int is_of_audit(int64_t key) { return number_of(key) >= 0 && number_of(key) < FIRST_PART; }

static int is_of_check(int64_t key) { return number_of(key) >= FIRST_CHECK; }

/* The part of a step that the key is of; PART_SUM for a formation, an audit and a comparison, in
 * which all meet, too. */
static enum way_part part_of(int64_t key)
{
    return number_of(key) < FIRST_PART || is_of_check(key)
               ? PART_SUM
               : (enum way_part)(number_of(key) - FIRST_PART);
}

/* All that have arrived may go on. */
static void release(struct sim *s, int64_t g, int64_t key)
{
    int stop = 0, regroup = 0, is_form = key % KEYS == 0, is_sum;
    is_sum = part_of(key) == PART_SUM && !is_of_audit(key) && !is_of_check(key);
    if (g < s->newest_generation)
        sim_fail(s, "generation %lld computes after generation %lld", (long long)g,
                 (long long)s->newest_generation);
    s->newest_generation = g;
    for (int r = 0; r < s->group_size[g]; r++) {
        stop |= s->nodes[s->group[g][r]].e.wants_stop;
        regroup |= s->nodes[s->group[g][r]].e.wants_regroup;
    }
    if (is_form) {
        check_places(s, g);
        take_state(s, g);
    } else if (is_of_audit(key)) {
        audit_gather(s, g);
    } else if (is_of_check(key)) {
        replica_gather(s, g);
    } else if (is_sum) {
        audit_sum(s, g);
    }
    for (int r = 0; r < s->group_size[g]; r++) {
        int i = s->group[g][r];
        struct fake_engine *e = &s->nodes[i].e;
        e->is_released = 1;
        if (is_sum) { /* the ranks agree on what follows the step */
            e->is_last = !is_form && (stop || regroup || s->is_nonfinite);
            e->end = s->is_nonfinite ? EPOCH_NONFINITE : stop ? EPOCH_STOPPED : EPOCH_REGROUP;
        }
        engine_wake(s, i, sim_random(s, 0, 3 * MS));
    }
}

static int is_cut_between(const struct sim *s, int a, int b)
{
    for (int i = 0; i < s->n_cuts; i++)
        if (s->cuts[i].until > s->now &&
            ((s->cuts[i].a == a && s->cuts[i].b == b) || (s->cuts[i].a == b && s->cuts[i].b == a)))
            return 1;
    return 0;
}

/* 1: two of the nodes cannot reach each other, so all wait. */
static int is_cut(const struct sim *s, int64_t g)
{
    for (int i = 0; i < s->n_cuts; i++) {
        int n = 0;
        for (int r = 0; r < s->group_size[g]; r++)
            n += s->group[g][r] == s->cuts[i].a || s->group[g][r] == s->cuts[i].b;
        if (n == 2 && s->cuts[i].until > s->now)
            return 1;
    }
    return 0;
}

/* 1: engine e waits for node i, or would if node i had not come yet. */
static int waits_for(const struct sim *s, const struct fake_engine *e, int i)
{
    const struct fake_engine *o = &s->nodes[i].e;
    enum way_part part = part_of(e->key);
    if (part == PART_SUM || o->generation != e->generation || o->n_ranks != e->n_ranks)
        return 1;
    return way_meets(&s->way, part, (e->key % KEYS - 1) / STEP_KEYS, e->n_ranks, e->rank, o->rank);
}

/* Node k is in a part of a step in which it waits for some ranks only.  It goes on once these have
 * come as far; one that has left is noticed, if it had not come. */
static void meet_some(struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;
    int64_t g = e->generation;
    for (int r = 0; r < s->group_size[g]; r++) {
        int i = s->group[g][r];
        const struct fake_engine *o = &s->nodes[i].e;
        if (i == k || !waits_for(s, e, i))
            continue;
        if (!s->nodes[i].is_alive || o->left >= g || o->generation != g) {
            notice(s, k);
            return;
        }
        if (o->key < e->key || is_cut_between(s, i, k))
            return;
    }
    s->nodes[k].e.is_released = 1;
    engine_wake(s, k, sim_random(s, 0, 3 * MS));
}

/* Node k has come, and those that wait for it may go on. */
static void meet_partly(struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;
    int64_t g = e->generation;
    for (int r = 0; r < s->group_size[g]; r++) {
        const struct fake_engine *o = &s->nodes[s->group[g][r]].e;
        if (s->group[g][r] == k || (o->is_waiting && !o->is_released && o->generation == g &&
                                    part_of(o->key) != PART_SUM && waits_for(s, o, k)))
            meet_some(s, s->group[g][r]);
    }
}

/* Node k has come to its collective.  If some nodes have left, node k notices that.  If node k was
 * the last to come, all go on. */
static void meet(struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;
    int n_here;
    if (!way_is_of_all(&s->way, part_of(e->key))) {
        meet_partly(s, k);
        return;
    }
    if (n_left(s, e->generation, e->key, &n_here) > 0)
        notice(s, k);
    else if (n_here == s->group_size[e->generation] && !is_cut(s, e->generation))
        release(s, e->generation, e->key);
}

void coll_arrive(struct sim *s, int k, int64_t key)
{
    struct fake_engine *e = &s->nodes[k].e;
    e->is_waiting = 1;
    e->is_released = 0;
    e->key = key;
    e->n_handed++;
    e->phase = key % KEYS == 0 ? PHASE_FORM : PHASE_REDUCE;
    e->since = s->now;
    meet(s, k);
}

void coll_heal(struct sim *s)
{
    for (int k = 0; k < s->n_nodes; k++)
        if (s->nodes[k].is_alive && s->nodes[k].e.is_waiting && !s->nodes[k].e.is_released)
            meet(s, k);
}

void coll_leave(struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;
    for (int i = 0; i < s->n_nodes; i++) {
        struct fake_engine *o = &s->nodes[i].e;
        if (i != k && s->nodes[i].is_alive && o->is_waiting && !o->is_released &&
            o->generation == e->generation && o->generation > 0 && waits_for(s, o, k))
            notice(s, i);
    }
}
