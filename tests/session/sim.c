/* The simulator's loop: which event comes next, and a whole run.
 * All randomness is drawn from the seed. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "sim_impl.h"

void sim_say(const struct sim *s, const char *fmt, ...)
{
    va_list ap;
    if (s->tell != SIM_VERBOSE)
        return;
    printf("%9.3f  ", 1e-9 * (double)(s->now - s->start));
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

void sim_show(const struct sim *s, int k, const char *fmt, ...)
{
    va_list ap;
    if (s->tell != SIM_SHOW)
        return;
    va_start(ap, fmt);
    show_line(s->now - s->start, k, fmt, ap);
    va_end(ap);
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list ap;
    if (!s->r->is_ok)
        return;
    s->r->is_ok = 0;
    va_start(ap, fmt);
    vsnprintf(s->r->why, sizeof(s->r->why), fmt, ap);
    va_end(ap);
    sim_say(s, "FAILED: %s", s->r->why);
    sim_show(s, SHOW_FAULT, "an invariant is broken: %s", s->r->why);
}

int64_t sim_random(struct sim *s, int64_t lo, int64_t hi)
{
    return lo + (int64_t)rng_next_below(&s->rng, (uint64_t)(hi - lo + 1));
}

/* ---- the loop ---- */

static void deliver(struct sim *s, struct sim_event *e)
{
    struct node *n = &s->nodes[e->node];
    Wire__Control *m;
    struct err err;
    if (!n->is_alive || n->is_finished || !s->links[e->link].is_open[sim_end_of(e->node)])
        return;
    if (msg_unpack(e->frame->data + FRAME_HEADER, e->frame->len - FRAME_HEADER, &m, &err) < 0) {
        sim_fail(s, "node %d got a bad message: %s", e->node, err.msg);
        return;
    }
    if (m->body_case != WIRE__CONTROL__BODY_HEARTBEAT)
        sim_say(s, "node %d gets %s (generation %lld) on %lld", e->node, msg_name(m),
                (long long)m->generation, (long long)e->link);
    s->n_delivered += m->body_case != WIRE__CONTROL__BODY_HEARTBEAT;
    n->heard = sim_clock(s, e->node);
    n->is_asking = 0;
    if (m->body_case == WIRE__CONTROL__BODY_DRAIN &&
        m->drain->taken_back) /* the drain was taken back, so the follower is like any other */
        n->drained_life = 0;
    if (e->node == 0)
        driver_message(n->d, sim_clock(s, 0), e->link, m);
    else
        follower_message(n->f, sim_clock(s, e->node), m);
    msg_free(m);
    sim_drain(s, e->node);
    if (s->stop_again > 0 && --s->stop_again == 0)
        sim_stop_driver(s);
    if (s->n_delivered >= s->inject_at && !s->has_fired && s->inject != INJECT_NONE) {
        sim_fire(s);
        if (s->is_elastic && s->n_more_faults > 0)
            sim_next_fault(s);
    }
}

static void see_closed(struct sim *s, struct sim_event *e)
{
    struct node *n = &s->nodes[e->node];
    struct link *l = &s->links[e->link];
    struct err bad;
    if (!n->is_alive || n->is_finished || !l->is_open[sim_end_of(e->node)])
        return;
    l->is_open[sim_end_of(e->node)] = 0;
    err_set(&bad, ERR_PROTO, "a message of 0 bytes, want 1 to 67108864");
    sim_say(s, "node %d sees connection %lld closed", e->node, (long long)e->link);
    if (e->is_bad)
        sim_transmit(s, e->link, 0, (struct sim_event){.kind = EV_CLOSED});
    if (e->node == 0) {
        if (l->node == s->victim && s->has_fired && s->lost_stage == STAGE_COUNT)
            s->lost_stage = n->d->stage;
        driver_closed(n->d, sim_clock(s, 0), e->link, e->is_bad ? &bad : NULL);
    } else if (n->link == e->link) {
        follower_closed(n->f, sim_clock(s, e->node), NULL);
    }
    sim_drain(s, e->node);
}

/* The last checkpoint is on disk.  1: the driver is killed before it knows that, and so before it
 * tells its followers that the job is finished.  That happens once at most. */
static int is_killed_between(struct sim *s)
{
    if (s->mode != SIM_LEADERS || s->run.is_killed_between || sim_random(s, 0, 7))
        return 0;
    s->run.is_killed_between = 1;
    s->inject = INJECT_KILL_DRIVER;
    s->victim = 0;
    sim_fire(s);
    return !s->nodes[0].is_alive;
}

static void hand_report(struct sim *s, struct sim_event *e)
{
    struct node *n = &s->nodes[e->node];
    if (!n->is_alive || n->is_finished || e->token != n->life)
        return;
    if (e->report->kind != REPORT_STEP)
        sim_say(s, "node %d reports %s", e->node, report_name(e->report->kind));
    if (e->node == 0 && e->report->kind == REPORT_CHECKPOINT && e->report->checkpoint.path) {
        s->run.saved = n->e.copied;
        if (!e->report->checkpoint.is_unasked && is_killed_between(s))
            return;
    }
    s->n_told += e->report->kind == REPORT_CORRUPTION;
    if (e->node == 0)
        driver_report(n->d, sim_clock(s, 0), e->report);
    else
        follower_report(n->f, sim_clock(s, e->node), e->report);
    e->report = NULL;
    sim_drain(s, e->node);
}

static void handle(struct sim *s, struct sim_event *e)
{
    struct node *n = &s->nodes[e->node < 0 ? 0 : e->node];
    if (n->thaw > s->now && e->node >= 0 && e->kind != EV_START) {
        if (n->thaw != NEVER) { /* all messages, in the order in which they came */
            sim_schedule(s, *e, n->thaw);
            e->frame = NULL;
            e->report = NULL;
        }
        return;
    }
    switch (e->kind) {
    case EV_DELIVER:
        deliver(s, e);
        break;
    case EV_CLOSED:
        see_closed(s, e);
        break;
    case EV_REPORT:
        hand_report(s, e);
        break;
    case EV_ENGINE:
        if (n->is_alive)
            engine_advance(s, e->node, e->token);
        break;
    case EV_START:
        if (e->node == 0)
            sim_start_driver(s);
        else
            sim_start_follower(s, e->node);
        break;
    case EV_STRANGER: /* connects, and says nothing */
        if (s->nodes[0].is_alive && !s->nodes[0].is_finished && s->nodes[0].thaw <= s->now) {
            sim_connect(s, -1);
            sim_drain(s, 0);
        }
        break;
    case EV_HEAL:
        s->healed_ns = s->now;
        sim_show(s, SHOW_FAULT, "nodes that were cut off reach each other again");
        coll_heal(s);
        break;
    case EV_STRIKE:
        if (!s->has_fired && s->inject != INJECT_NONE) {
            sim_fire(s);
            if (s->n_more_faults > 0)
                sim_next_fault(s);
        }
        break;
    case EV_THAW:
        sim_say(s, "node %d goes on", e->node);
        sim_show(s, SHOW_FAULT, "node %d goes on", e->node);
        break;
    }
}

static struct progress progress_of(const struct node *n)
{
    struct progress p = {.generation = n->e.generation,
                         .epoch = n->e.epoch,
                         .step = n->e.step,
                         .phase = n->e.phase,
                         .bucket = -1,
                         .since_ns = n->e.since + n->ahead,
                         .head = {.generation = n->e.generation,
                                  .n_handed = n->e.n_handed,
                                  .n_ended = n->e.n_ended}};
    if (n->e.n_handed > n->e.n_ended)
        p.head.at = (struct collective){.number = n->e.n_handed,
                                        .step = n->e.step,
                                        .bucket = n->e.n_handed == 1 ? RING_STATE : 0};
    return p;
}

/* Each machine takes a watt, and each process counts from a number of its own. */
static struct usage usage_of(const struct sim *s, int k)
{
    const int64_t from = 1000003 * ((7 * s->nodes[k].life + k) % 5);
    return (struct usage){.mj = {[ENERGY_PACKAGE] = 1 + from + s->now / MS}, .resident_kib = 1};
}

static void tick(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct progress p = progress_of(n);
    p.usage = usage_of(s, k);
    if (k == 0) {
        driver_progress(n->d, sim_clock(s, k), &p);
        driver_tick(n->d, sim_clock(s, k));
        watch_driver(s);
    } else {
        follower_progress(n->f, sim_clock(s, k), &p);
        follower_tick(n->f, sim_clock(s, k));
    }
    sim_drain(s, k);
    if (k > 0)
        watch_follower(s, k);
}

/* The process whose tick is due first, and when. */
static int next_tick(const struct sim *s, int64_t *t)
{
    int who = -1;
    *t = NEVER;
    for (int k = 0; k < s->n_nodes; k++) {
        const struct node *n = &s->nodes[k];
        if (!n->is_alive || n->is_finished || (!n->d && !n->f))
            continue;
        int64_t due = n->d ? driver_deadline(n->d) : follower_deadline(n->f);
        due = max_i64(sim_when(s, k, due), n->thaw);
        if (due < *t) {
            *t = due;
            who = k;
        }
    }
    return who;
}

/* Handle the next event or tick.  0: nothing more will happen. */
static int advance(struct sim *s)
{
    int64_t t;
    int k = next_tick(s, &t), starts_again = s->mode == SIM_LEADERS && s->n_heap > 0;
    if (k < 0 && !starts_again)
        return 0;
    if (s->n_heap == 0 || t <= s->heap[0].t) {
        s->now = max_i64(s->now, t);
        tick(s, k);
        return 1;
    }
    s->now = s->heap[0].t;
    struct sim_event e = sim_pop(s);
    handle(s, &e);
    sim_free_event(&e);
    return 1;
}

/* ---- the whole ---- */

static int choose_n(struct sim *s)
{
    int64_t dice = sim_random(s, 0, 99);
    return (int)(dice < 70   ? sim_random(s, 2, 5)
                 : dice < 95 ? sim_random(s, 6, 16)
                             : sim_random(s, 17, 65));
}

/* Set up a job whose ranks may be lost: what the job allows, and what happens. */
static void choose_elastic_job(struct sim *s)
{
    if (s->n > (s->has_audits ? 64 : 40))
        s->n = s->n_nodes = s->has_audits ? 64 : 40;
    s->is_elastic = 1;
    s->n_spares = (int)sim_random(s, 0, 2);
    s->min_ranks = (int)sim_random(s, 0, 1) * (int)sim_random(s, 1, s->n);
    s->replace_ms = sim_random(s, 0, 3) ? sim_random(s, 500, 8000) : 0;
    s->is_restarting = (int)sim_random(s, 0, 1);
    s->max_ranks = (int)sim_random(s, 0, 1) * (s->n + (int)sim_random(s, 0, 4));
    s->spe = sim_random(s, 1, 12);
    s->n_epochs = sim_random(s, 1, 5);
    s->step_ms = sim_random(s, 0, 2) ? 30 : 300;
    s->n_nodes = s->n + s->n_spares;
    if (s->max_ranks > 0) /* and one too many */
        s->n_nodes += s->max_ranks - s->n + (int)sim_random(s, 0, 1);
    s->n_more_faults = (int)sim_random(s, 0, 3);
    sim_choose_elastic(s);
    if (s->n_more_faults == 0)
        s->inject = INJECT_NONE;
    s->inject_at = sim_random(s, 1, 14 * (s->n - 1) * (1 + s->n_epochs) / 2);
}

/* Set up a job whose driver is lost.  Its ranks are replaced, and as many as before go on. */
static void choose_leaders_job(struct sim *s)
{
    s->n = s->n_nodes = (int)sim_random(s, 3, 7);
    s->is_elastic = s->is_restarting = 1;
    s->replace_ms = 60000;
    s->spe = sim_random(s, 1, 8);
    s->n_epochs = sim_random(s, 1, 5);
    s->step_ms = sim_random(s, 0, 2) ? 30 : 300;
    s->n_more_faults = (int)sim_random(s, 1, 4);
    sim_choose_leaders(s);
    s->inject_at = sim_random(s, 1, 14 * (s->n - 1) * (1 + s->n_epochs) / 2);
}

static void set_up(struct sim *s)
{
    s->start = s->now = 1000000 * (int64_t)MS;
    s->n = s->n_nodes = choose_n(s);
    s->spe = sim_random(s, 1, 5);
    s->n_epochs = sim_random(s, 1, 3);
    s->n_validation = sim_random(s, 0, 3) ? sim_random(s, 1, 200) : 0;
    s->max_delay_ms = (int)sim_random(s, 1, 30);
    s->step_ms = 30;
    s->way = way_of_seed(s->seed);
    sim_say(s, "a step's collectives: %s", way_name(&s->way));
    sim_choose_fault(s);
    if (s->mode == SIM_ELASTIC)
        choose_elastic_job(s);
    else if (s->mode == SIM_LEADERS)
        choose_leaders_job(s);
    if (s->has_audits)
        audit_choose(s);
    sim_say(s,
            "%d ranks, %lld epochs of %lld steps, delays to %d ms; %s at node %d after %lld "
            "messages",
            s->n, (long long)s->n_epochs, (long long)s->spe, s->max_delay_ms,
            sim_inject_name(s->inject), s->victim, (long long)s->inject_at);
    sim_show(s, 0, "begins a job: ranks %d, epochs %lld, steps of an epoch %lld", s->n,
             (long long)s->n_epochs, (long long)s->spe);
    sim_start_driver(s);
    for (int k = 1; k < s->n; k++) {
        s->nodes[k].wanted = sim_random(s, 0, 1) ? k : -1;
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k},
                     s->now + sim_random(s, 0, 3000) * MS);
    }
    for (int k = s->n; k < s->n_nodes; k++) {
        s->nodes[k].wanted = s->max_ranks > k && sim_random(s, 0, 1) ? k : -1;
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k},
                     s->now + sim_random(s, 0, sim_random(s, 0, 1) ? 3000 : 9000) * MS);
    }
    if (!s->is_elastic &&
        sim_random(s, 0, 4) == 0) { /* an intruder, which has no place in this job */
        s->n_nodes++;
        s->nodes[s->n].wanted = (int)(sim_random(s, 0, 1) ? 0 : s->n + sim_random(s, 0, 3));
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = s->n},
                     s->now + sim_random(s, 0, 4000) * MS);
    }
    if (sim_random(s, 0, 4) == 0)
        sim_schedule(s, (struct sim_event){.kind = EV_STRANGER, .node = -1},
                     s->now + sim_random(s, 0, 4000) * MS);
}

static void tear_down(struct sim *s)
{
    while (s->n_heap > 0) {
        struct sim_event e = sim_pop(s);
        sim_free_event(&e);
    }
    free(s->heap);
    for (int k = 0; k < s->n_nodes; k++) {
        driver_free(s->nodes[k].d);
        follower_free(s->nodes[k].f);
        free(s->nodes[k].text);
        cmd_free(s->nodes[k].e.next);
        jury_fini(&s->nodes[k].jury);
    }
}

void sim_run(uint64_t seed, enum sim_mode mode, enum sim_tell tell, struct sim_result *out)
{
    if (mode == SIM_STANDBY) {
        sim_standby_run(seed, tell, out);
        return;
    }
    struct sim *s = xcalloc(1, sizeof(*s));
    *out = (struct sim_result){.is_ok = 1};
    s->seed = seed;
    s->tell = tell;
    s->mode = mode;
    if (mode == SIM_AUDIT) {
        s->has_audits = 1;
        s->mode = seed % 3 == 0 ? SIM_LEADERS : SIM_ELASTIC;
    }
    s->r = out;
    rng_stream_init(&s->rng, seed, RNG_TEST, (uint64_t)mode);
    set_up(s);
    while (out->is_ok && advance(s))
        if (s->now - s->start > (s->mode == SIM_LEADERS ? INT64_C(300) : INT64_C(120)) * 1000 * MS)
            sim_fail(s, "still running after minutes");
    if (out->is_ok && s->mode == SIM_LEADERS)
        sim_check_leaders(s);
    else if (out->is_ok && s->is_elastic)
        sim_check_elastic(s);
    else if (out->is_ok)
        sim_check(s);
    if (out->is_ok)
        audit_check(s);
    out->n_faults = s->n_struck + s->has_fired;
    out->n_recovered = s->n_recovered;
    out->n_grown = s->n_grown;
    out->n_warnings = s->n_warnings;
    out->n_incidents = s->n_incidents;
    out->n_rings = s->n_rings;
    out->slowest_recovery = s->slowest_recovery;
    out->status = s->nodes[0].is_finished ? s->nodes[0].status : -1;
    out->inject = s->inject;
    out->n_ranks = s->n;
    out->has_fired = s->has_fired;
    out->n_messages = s->n_delivered;
    out->n_epochs = s->n_epoch_events;
    out->seconds = 1e-9 * (double)(s->now - s->start);
    tear_down(s);
    free(s);
}
