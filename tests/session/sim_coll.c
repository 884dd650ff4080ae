/* Collectives of the fake engines: all ranks of a formation meet, or notice that some have left.
 * Two nodes that cannot reach each other (struct cut) hold up all. */
#include "base/util.h"
#include "sim_impl.h"

/* Each node that waits for one that has left notices it in its own time. */
static void notice(struct sim *s, int k)
{
    s->nodes[k].e.is_released = -1;
    engine_wake(s, k, sim_random(s, 0, 400 * MS));
}

/* How many nodes have left this formation.  *n_here: how many wait for `key`. */
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

/* The broadcast: all nodes take the source's state. */
static void take_state(struct sim *s, int64_t g)
{
    const struct fake_engine *from = &s->nodes[s->group[g][s->nodes[s->group[g][0]].e.source]].e;
    for (int r = 0; r < s->group_size[g]; r++)
        if (s->nodes[s->group[g][r]].e.step > from->step)
            sim_fail(s, "the source holds step %lld, rank %d step %lld", (long long)from->step, r,
                     (long long)s->nodes[s->group[g][r]].e.step);
    if (s->newest_step > from->step + 1)
        sim_fail(s, "step %lld was applied, and %lld is where it goes on",
                 (long long)s->newest_step, (long long)from->step);
    s->newest_step = from->step;
    struct weights w = from->w;
    int64_t step = from->step;
    for (int r = 0; r < s->group_size[g]; r++) {
        s->nodes[s->group[g][r]].e.w = w;
        s->nodes[s->group[g][r]].e.step = step;
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

/* All that have arrived may go on. */
static void release(struct sim *s, int64_t g, int is_form)
{
    int stop = 0, regroup = 0;
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
    }
    for (int r = 0; r < s->group_size[g]; r++) {
        int i = s->group[g][r];
        struct fake_engine *e = &s->nodes[i].e;
        e->is_released = 1;
        e->is_last = !is_form && (stop || regroup || s->is_nonfinite);
        e->end = s->is_nonfinite ? EPOCH_NONFINITE : stop ? EPOCH_STOPPED : EPOCH_REGROUP;
        engine_wake(s, i, sim_random(s, 0, 3 * MS));
    }
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

/* Node k has come to its collective.  If some nodes have left, node k notices that.  If node k was
 * the last to come, all go on. */
static void meet(struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;
    int n_here;
    if (n_left(s, e->generation, e->key, &n_here) > 0)
        notice(s, k);
    else if (n_here == s->group_size[e->generation] && !is_cut(s, e->generation))
        release(s, e->generation, e->key % 1000000 == 0);
}

void coll_arrive(struct sim *s, int k, int64_t key)
{
    struct fake_engine *e = &s->nodes[k].e;
    e->is_waiting = 1;
    e->is_released = 0;
    e->key = key;
    e->n_handed++;
    e->phase = key % 1000000 == 0 ? PHASE_FORM : PHASE_REDUCE;
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
            o->generation == e->generation && o->generation > 0)
            notice(s, i);
    }
}
