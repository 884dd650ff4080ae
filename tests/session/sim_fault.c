/* The faults of the simulated world: which happens, to which node, and when.
 * The seed decides all of it. */
#include <stdio.h>

#include "base/util.h"
#include "sim_impl.h"

static const char *const inject_names[INJECT_COUNT] = {
    "nothing",     "kill",       "kill-driver",  "drop",          "silence",     "silence-in",
    "silence-out", "freeze",     "freeze-short", "freeze-driver", "fault",       "hang",
    "stop",        "stop-twice", "leave",        "replica",       "nonfinite",   "disk",
    "garbage",     "drain",      "partition",    "clock-leap",    "clock-stall", "flip",
};

/* Behind "node 3": what befalls it. */
static const char *const inject_words[INJECT_COUNT] = {
    [INJECT_KILL] = "is killed",
    [INJECT_KILL_DRIVER] = "is killed",
    [INJECT_DROP] = "loses its connection, and both ends notice",
    [INJECT_SILENCE] = "is cut off: all that is sent either way vanishes, and no end notices",
    [INJECT_SILENCE_IN] = "hears nothing any more, and no end notices",
    [INJECT_SILENCE_OUT] = "is heard no more, and no end notices",
    [INJECT_FREEZE] = "is frozen",
    [INJECT_FREEZE_SHORT] = "is frozen for less than the heartbeat's timeout",
    [INJECT_FREEZE_DRIVER] = "is frozen for longer than the heartbeat's timeout",
    [INJECT_FAULT] = "has an engine that fails",
    [INJECT_HANG] = "has an engine that makes no more progress",
    [INJECT_STOP] = "is told to stop",
    [INJECT_STOP_TWICE] = "is told to stop, and will be told again",
    [INJECT_LEAVE] = "is told to stop",
    [INJECT_REPLICA] = "holds another state than the others from now on",
    [INJECT_NONFINITE] = "has a next step that is not finite",
    [INJECT_DISK] = "has a full disk from now on",
    [INJECT_GARBAGE] = "delivers bytes that are no message",
    [INJECT_DRAIN] = "is to be drained, by the driver's operator",
    [INJECT_PARTITION] = "cannot reach another node, though the driver reaches both",
    [INJECT_CLOCK_LEAP] = "has a clock that jumps ahead",
    [INJECT_CLOCK_STALL] = "has a clock that stands still for a while",
    [INJECT_FLIP] = "computes wrong bits",
};

const char *sim_inject_name(enum inject i) { return inject_names[i]; }

static void break_both(struct sim *s, int64_t id)
{
    struct link *l = &s->links[id];
    int node = l->node;
    if (l->is_open[0])
        sim_schedule(s, (struct sim_event){.kind = EV_CLOSED, .link = id, .node = 0},
                     s->now + sim_delay(s));
    if (l->is_open[1])
        sim_schedule(s, (struct sim_event){.kind = EV_CLOSED, .link = id, .node = node},
                     s->now + sim_delay(s));
    l->is_cut[0] = l->is_cut[1] = 1;
}

static void fire_at_follower(struct sim *s, struct node *v)
{
    struct link *l = &s->links[v->link];
    switch (s->inject) {
    case INJECT_KILL:
        sim_process_gone(s, s->victim);
        if (s->is_elastic ? s->is_restarting : !s->is_forever) {
            v->is_restarted = 1;
            sim_schedule(s, (struct sim_event){.kind = EV_START, .node = s->victim},
                         s->now + sim_random(s, 200, 2500) * MS);
        }
        break;
    case INJECT_DROP:
        break_both(s, v->link);
        break;
    case INJECT_SILENCE:
        l->is_cut[0] = l->is_cut[1] = 1;
        if (s->is_forever) /* the machine is gone: the other ranks notice, the driver does not */
            sim_process_gone(s, s->victim);
        break;
    case INJECT_SILENCE_IN:
        l->is_cut[0] = 1;
        break;
    case INJECT_SILENCE_OUT:
        l->is_cut[1] = 1;
        break;
    case INJECT_LEAVE:
        follower_stop(v->f, sim_clock(s, s->victim), "SIGTERM");
        sim_drain(s, s->victim);
        break;
    case INJECT_GARBAGE:
        if (l->is_open[0])
            sim_schedule(s, (struct sim_event){.kind = EV_CLOSED, .link = v->link, .is_bad = 1},
                         s->now + sim_delay(s));
        break;
    default:
        break;
    }
}

/* The follower's rank (or place among the spares) as the driver sees it; -1: none. */
static int seat_of(const struct sim *s, int k)
{
    const struct driver *d = s->nodes[0].d;
    for (int i = 1; i < d->n_seats && d->stage < STAGE_ENDING; i++)
        if (d->seats[i].is_taken && s->links[d->seats[i].conn->id].node == k)
            return i;
    return -1;
}

static int n_ready(const struct driver *d)
{
    int n = 0;
    for (int i = 0; i < d->n_seats; i++)
        n += d->seats[i].is_taken && d->seats[i].opened && !d->seats[i].leaving;
    return n;
}

static int is_drainable(const struct sim *s, int seat)
{
    const struct driver *d = s->nodes[0].d;
    int is_needed = d->seats[seat].is_member && !d->seats[seat].leaving;
    int least = s->min_ranks ? s->min_ranks : s->n;
    return d->formation.has_formed && d->ending.n_stops == 0 &&
           (!is_needed || n_ready(d) - 1 >= least);
}

/* Ask for the drain of node k.  The driver has to grant it exactly if is_drainable says so. */
static void drain_rank(struct sim *s, int k)
{
    struct driver *d = s->nodes[0].d;
    int seat = seat_of(s, k);
    s->has_fired = 0;
    if (seat < 0 || !s->nodes[0].is_alive)
        return;
    int is_spare = seat >= d->membership.n_ranks, want = is_drainable(s, seat), n = n_ready(d);
    struct drained drained = {.n = 0};
    struct err err;
    char who[32];
    snprintf(who, sizeof(who), is_spare ? "spare%d" : "%d",
             is_spare ? seat - d->membership.n_ranks + 1 : seat);
    int rc = driver_drain(d, sim_clock(s, 0), who, &drained, &err);
    if ((rc == 0) != want)
        sim_fail(s, "draining %s of %d ready, at least %d: %s", who, n, s->min_ranks,
                 rc < 0 ? err.msg : drained.leaver[0].line);
    if (rc == 0) {
        s->has_fired = 1;
        s->nodes[k].drained_life = s->nodes[k].life;
        s->r->n_drained++;
    }
    drained_fini(&drained);
    sim_drain(s, 0);
}

/* Cut this node off from another one, for good or for a while. */
static void cut_off(struct sim *s, int k)
{
    int other = (int)sim_random(s, 0, s->n_nodes - 2);
    int64_t until = s->is_forever ? NEVER : s->now + sim_random(s, 500, 15000) * MS;
    if (s->n_cuts == MAX_CUTS)
        return;
    other += other >= k;
    sim_say(s, "nodes %d and %d cannot reach each other", k, other);
    s->cuts[s->n_cuts++] = (struct cut){k, other, until};
    s->struck[other] |= 1u << INJECT_PARTITION;
    if (until != NEVER)
        sim_schedule(s, (struct sim_event){.kind = EV_HEAL, .node = -1}, until);
}

static void freeze(struct sim *s, int k, int64_t until)
{
    struct node *n = &s->nodes[k];
    n->thaw = until;
    if (until != NEVER)
        watch_away(s, k, until - s->now);
    if (until != NEVER)
        sim_schedule(s, (struct sim_event){.kind = EV_THAW, .node = k}, until);
}

static void leap(struct sim *s, int k, int64_t ns)
{
    sim_clock_leaps(s, k, ns);
    watch_away(s, k, ns);
}

void sim_stop_driver(struct sim *s)
{
    if (s->nodes[0].is_finished)
        return;
    driver_stop(s->nodes[0].d, sim_clock(s, 0), "SIGTERM");
    sim_drain(s, 0);
}

/* The faults that cost a rank, or the job. */
static const enum inject elastic_faults[] = {
    INJECT_KILL,         INJECT_KILL,      INJECT_DROP,       INJECT_SILENCE,     INJECT_SILENCE_IN,
    INJECT_SILENCE_OUT,  INJECT_FREEZE,    INJECT_FAULT,      INJECT_HANG,        INJECT_LEAVE,
    INJECT_FREEZE_SHORT, INJECT_GARBAGE,   INJECT_STOP,       INJECT_KILL_DRIVER, INJECT_DRAIN,
    INJECT_DRAIN,        INJECT_PARTITION, INJECT_CLOCK_LEAP, INJECT_CLOCK_STALL,
};

void sim_choose_elastic(struct sim *s)
{
    s->inject = elastic_faults[sim_random(s, 0, ARRAY_LEN(elastic_faults) - 1)];
    int may_be_driver = s->inject == INJECT_FREEZE_SHORT || s->inject == INJECT_PARTITION ||
                        s->inject == INJECT_CLOCK_LEAP || s->inject == INJECT_CLOCK_STALL;
    s->victim = (int)sim_random(s, may_be_driver ? 0 : 1, s->n_nodes - 1);
    if (s->inject == INJECT_KILL_DRIVER || s->inject == INJECT_STOP)
        s->victim = 0;
    s->is_forever = (int)sim_random(s, 0, 1);
}

/* The faults at the driver, and a few others that meet them. */
void sim_choose_leaders(struct sim *s)
{
    static const enum inject faults[] = {INJECT_KILL_DRIVER, INJECT_KILL_DRIVER,
                                         INJECT_KILL_DRIVER, INJECT_FREEZE_DRIVER,
                                         INJECT_DROP,        INJECT_KILL};
    s->inject = faults[sim_random(s, 0, ARRAY_LEN(faults) - 1)];
    if (s->inject == INJECT_KILL && s->run.n_follower_kills++ > 0)
        s->inject = INJECT_KILL_DRIVER;
    int is_driver = s->inject == INJECT_KILL_DRIVER || s->inject == INJECT_FREEZE_DRIVER;
    s->victim = is_driver ? 0 : (int)sim_random(s, 1, s->n - 1);
    s->is_forever = 0;
}

/* 1: the driver or the follower was asked to stop before; a second request stops it at once. */
static int is_second_stop(const struct sim *s)
{
    return (s->inject == INJECT_STOP && s->is_stopped) ||
           (s->inject == INJECT_LEAVE && s->struck[s->victim] >> INJECT_LEAVE & 1);
}

void sim_next_fault(struct sim *s)
{
    if (s->has_fired) {
        s->n_struck++;
        s->n_leaves += s->inject == INJECT_LEAVE;
        s->is_stopped |= s->inject == INJECT_STOP;
        s->is_driver_gone |= s->inject == INJECT_KILL_DRIVER;
    }
    s->n_more_faults--;
    s->has_fired = 0;
    do
        s->mode == SIM_LEADERS ? sim_choose_leaders(s) : sim_choose_elastic(s);
    while (is_second_stop(s));
    s->inject_at = s->n_delivered + sim_random(s, 1, sim_random(s, 0, 1) ? 8 : 20 * s->n);
}

/* 1: a job whose driver is lost ends by a verdict, after which its followers hold nothing.  A
 * driver that is killed as it ends would begin again with its checkpoint. */
static int is_past_faults(const struct sim *s) { return s->mode == SIM_LEADERS && s->n_split > 0; }

void sim_fire(struct sim *s)
{
    struct node *v = &s->nodes[s->victim];
    if (is_past_faults(s) || s->nodes[0].is_finished || !v->is_alive || v->is_finished ||
        v->thaw > s->now)
        return;
    unsigned before = s->struck[s->victim];
    s->has_fired = 1;
    s->struck[s->victim] |= 1u << s->inject;
    s->fired_ns = s->now;
    s->fired_stage = s->nodes[0].d->stage;
    s->lost_stage = STAGE_COUNT;
    s->rank_then = s->victim == 0 ? 0 : v->rank;
    sim_say(s, "INJECT %s at node %d (rank %d)", inject_names[s->inject], s->victim, s->rank_then);
    sim_show(s, SHOW_FAULT, "node %d (rank %d) %s", s->victim, s->rank_then,
             inject_words[s->inject]);
    switch (s->inject) {
    case INJECT_KILL_DRIVER:
        sim_process_gone(s, 0);
        if (s->mode == SIM_LEADERS)
            sim_schedule(s, (struct sim_event){.kind = EV_START, .node = 0},
                         s->now + sim_random(s, 100, sim_random(s, 0, 1) ? 500 : 8000) * MS);
        break;
    case INJECT_FREEZE:
    case INJECT_FREEZE_DRIVER:
        freeze(s, s->victim,
               s->is_forever && s->victim ? NEVER : s->now + sim_random(s, 9, 20) * 1000 * MS);
        break;
    case INJECT_FREEZE_SHORT:
        freeze(s, s->victim, s->now + sim_random(s, 100, 3200) * MS);
        break;
    case INJECT_FAULT:
        if (v->e.doing)
            engine_fault(s, s->victim, 0, "kernel failed");
        else
            s->has_fired = 0;
        break;
    case INJECT_HANG:
        if (v->e.doing)
            v->e.is_stuck = 1;
        else
            s->has_fired = 0;
        break;
    case INJECT_STOP:
    case INJECT_STOP_TWICE:
        sim_stop_driver(s);
        if (s->inject == INJECT_STOP_TWICE)
            s->stop_again = (int)sim_random(s, 1, 10);
        break;
    case INJECT_REPLICA:
        v->e.is_different = 1;
        break;
    case INJECT_NONFINITE:
        s->is_nonfinite = 1;
        break;
    case INJECT_DISK:
        s->is_disk_full = 1;
        break;
    case INJECT_DRAIN:
        drain_rank(s, s->victim);
        break;
    case INJECT_PARTITION:
        cut_off(s, s->victim);
        break;
    case INJECT_CLOCK_LEAP:
        leap(s, s->victim, sim_random(s, 50, sim_random(s, 0, 1) ? 1000 : 3600000) * MS);
        break;
    case INJECT_CLOCK_STALL:
        sim_clock_stalls(
            s, s->victim,
            (s->victim && s->is_forever ? sim_random(s, 9000, 20000) : sim_random(s, 100, 3000)) *
                MS);
        break;
    default:
        fire_at_follower(s, v);
    }
    if (!s->has_fired)
        s->struck[s->victim] = before;
}

void sim_choose_fault(struct sim *s)
{
    int is_driver_too;
    s->inject = (enum inject)sim_random(s, 0, INJECT_PLAIN - 1);
    is_driver_too = s->inject == INJECT_FAULT || s->inject == INJECT_HANG ||
                    s->inject == INJECT_FREEZE_SHORT || s->inject == INJECT_REPLICA ||
                    s->inject == INJECT_CLOCK_LEAP || s->inject == INJECT_CLOCK_STALL;
    s->victim = (int)sim_random(s, is_driver_too ? 0 : 1, s->n - 1);
    if (s->inject == INJECT_KILL_DRIVER || s->inject == INJECT_FREEZE_DRIVER ||
        s->inject == INJECT_STOP || s->inject == INJECT_STOP_TWICE ||
        s->inject == INJECT_NONFINITE || s->inject == INJECT_DISK)
        s->victim = 0;
    s->inject_at = sim_random(s, 1, 14 * (s->n - 1) * (1 + s->n_epochs) / 2);
    s->is_forever = (int)sim_random(s, 0, 1);
}
