/* The simulated world: processes, connections, time, and what goes wrong. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "sim_impl.h"

static const char *const inject_names[INJECT_COUNT] = {
    "nothing", "kill",         "kill-driver",   "drop",  "silence", "silence-in", "silence-out",
    "freeze",  "freeze-short", "freeze-driver", "fault", "hang",    "stop",       "stop-twice",
    "leave",   "replica",      "nonfinite",     "disk",  "garbage",
};

const char *sim_inject_name(enum inject i) { return inject_names[i]; }

void sim_say(const struct sim *s, const char *fmt, ...)
{
    va_list ap;
    if (!s->verbose)
        return;
    printf("%9.3f  ", 1e-9 * (double)(s->now - s->start));
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
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
}

int64_t sim_random(struct sim *s, int64_t lo, int64_t hi)
{
    return lo + (int64_t)rng_next_below(&s->rng, (uint64_t)(hi - lo + 1));
}

/* ---- events, by time ---- */

static int is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->t < b->t || (a->t == b->t && a->seq < b->seq);
}

void sim_schedule(struct sim *s, struct sim_event e, int64_t t)
{
    if (s->n_heap == s->cap_heap) {
        s->cap_heap = s->cap_heap ? 2 * s->cap_heap : 256;
        s->heap = xrealloc(s->heap, (size_t)s->cap_heap * sizeof(*s->heap));
    }
    e.t = max_i64(t, s->now);
    e.seq = s->seq++;
    int i = s->n_heap++;
    for (; i > 0 && is_before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static struct sim_event pop(struct sim *s)
{
    struct sim_event top = s->heap[0], last = s->heap[--s->n_heap];
    int i = 0, n = s->n_heap;
    for (;;) {
        int c = 2 * i + 1;
        if (c + 1 < n && is_before(&s->heap[c + 1], &s->heap[c]))
            c++;
        if (c >= n || !is_before(&s->heap[c], &last))
            break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    if (n > 0)
        s->heap[i] = last;
    return top;
}

static void free_event(struct sim_event *e)
{
    frame_unref(e->frame);
    report_free(e->report);
}

/* ---- the network ---- */

static int end_of(int k) { return k == 0 ? 0 : 1; }

static int64_t delay(struct sim *s)
{
    int64_t d = sim_random(s, MS / 10, (int64_t)s->max_delay_ms * MS);
    return sim_random(s, 0, 40) == 0 ? 10 * d : d;
}

static int64_t arrival(struct sim *s, struct link *l, int end)
{
    l->last[end] = max_i64(l->last[end] + 1, s->now + delay(s));
    return l->last[end];
}

/* What end `end` of link `id` does reaches the other. */
static void transmit(struct sim *s, int64_t id, int end, struct sim_event e)
{
    struct link *l = &s->links[id];
    e.link = id;
    e.node = end == 0 ? l->node : 0;
    if (l->is_cut[end] || e.node < 0)
        free_event(&e);
    else
        sim_schedule(s, e, arrival(s, l, end));
}

static void close_end(struct sim *s, int64_t id, int end)
{
    s->links[id].is_open[end] = 0;
    transmit(s, id, end, (struct sim_event){.kind = EV_CLOSED});
}

static int64_t connect_to_driver(struct sim *s, int node)
{
    ASSERT(s->n_links < (int)ARRAY_LEN(s->links));
    char peer[32], from[64];
    int64_t id = s->n_links++;
    s->links[id] = (struct link){.node = node, .is_open = {1, 1}};
    snprintf(peer, sizeof(peer), "10.0.0.%d", node < 0 ? 250 : node);
    snprintf(from, sizeof(from), "%s:4%03d", peer, (int)id);
    driver_connected(s->nodes[0].d, s->now, id, peer, "10.0.0.100", from);
    return id;
}

/* ---- processes ---- */

static void process_gone(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    n->is_alive = 0;
    n->e.token++;
    n->e.is_waiting = 0;
    cmd_free(n->e.next);
    n->e.next = NULL;
    for (int i = 0; i < s->n_links; i++)
        if ((k == 0 || s->links[i].node == k) && s->links[i].is_open[end_of(k)])
            close_end(s, i, end_of(k));
    engine_die(s, k);
}

/* As a follower without --once, or systemd. */
static void come_back(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    if (!s->is_elastic || k == 0 || !s->is_restarting || !s->nodes[0].is_alive ||
        s->nodes[0].d->stage >= STAGE_ENDING || n->status == STATUS_STOPPED)
        return;
    n->is_finished = 0;
    n->is_restarted = 1;
    n->wanted = -1;
    free(n->text);
    n->text = NULL;
    sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k},
                 s->now + sim_random(s, 100, 3000) * MS);
}

static void finished(struct sim *s, int k, struct action *a)
{
    struct node *n = &s->nodes[k];
    sim_say(s, "node %d finished: status %d%s%s: %s", k, a->finished.status,
            a->finished.retry ? ", retry" : "", a->finished.is_engine_stuck ? ", engine stuck" : "",
            a->finished.text);
    if (n->is_finished)
        sim_fail(s, "node %d finished twice", k);
    for (int i = 0; i < s->n_links; i++)
        if ((k == 0 || s->links[i].node == k) && s->links[i].is_open[end_of(k)])
            sim_fail(s, "node %d finished and left connection %d open", k, i);
    n->is_finished = 1;
    n->finished_ns = s->now;
    n->status = a->finished.status;
    n->retry = a->finished.retry;
    n->reason = a->finished.reason;
    n->is_engine_stuck = a->finished.is_engine_stuck;
    n->text = a->finished.text;
    a->finished.text = NULL;
    process_gone(s, k);
    come_back(s, k);
}

static int node_of(const char *host)
{
    return host && !strncmp(host, "host", 4) ? atoi(host + 4) : -1;
}

/* What the record says while ranks come and go. */
static void check_event(struct sim *s, const struct session_event *e)
{
    int k = node_of(e->host);
    if (e->kind == EVENT_EPOCH && e->epoch.end != EPOCH_STOPPED &&
        (e->epoch.epoch != s->n_epoch_events || e->epoch.step != s->n_epoch_events * s->spe))
        sim_fail(s, "the %d. epoch event is of epoch %lld, step %lld", s->n_epoch_events,
                 (long long)e->epoch.epoch, (long long)e->epoch.step);
    if (e->kind == EVENT_LOST && (k < 1 || !s->struck[k]))
        sim_fail(s, "node %d is said to be lost, which nothing befell: %s", k, e->text);
    if (e->kind == EVENT_RECOVERED) {
        s->n_recovered++;
        if (e->steps_lost < 0 || e->steps_lost > 1 || e->generation <= s->last_generation)
            sim_fail(s, "recovered in generation %lld after %lld, %lld steps lost",
                     (long long)e->generation, (long long)s->last_generation,
                     (long long)e->steps_lost);
        s->last_generation = e->generation;
        if (e->seconds > s->slowest_recovery)
            s->slowest_recovery = e->seconds;
    }
}

/* Who is said to keep the others waiting does: something befell it that stops a rank. */
static void check_warning(struct sim *s, const struct session_event *e)
{
    static const unsigned stops = 1u << INJECT_FREEZE | 1u << INJECT_FREEZE_SHORT |
                                  1u << INJECT_HANG | 1u << INJECT_SILENCE |
                                  1u << INJECT_SILENCE_IN | 1u << INJECT_SILENCE_OUT;
    int k = node_of(e->host);
    if (e->rank >= 0 && (k < 0 || !(s->struck[k] & stops)))
        sim_fail(s, "nothing befell node %d: %s", k, e->text);
    s->n_warnings++;
}

static void note_event(struct sim *s, const struct session_event *e)
{
    sim_say(s, "event %d: rank %d step %lld %s", (int)e->kind, e->rank, (long long)e->step,
            e->text ? e->text : "");
    s->n_epoch_events += e->kind == EVENT_EPOCH;
    if (s->is_elastic)
        check_event(s, e);
    if (e->kind == EVENT_WARNING)
        check_warning(s, e);
    s->n_done += e->kind == EVENT_DONE;
    s->n_checkpoints += e->kind == EVENT_CHECKPOINT;
    s->n_errors += e->kind == EVENT_ERROR;
    s->n_lost += e->kind == EVENT_LOST;
    s->n_joins += e->kind == EVENT_JOIN;
    s->n_forms += e->kind == EVENT_FORM;
    s->n_first += e->kind == EVENT_FIRST_STEP;
    if (e->kind == EVENT_ERROR)
        s->last_error.rank = e->rank;
}

/* One collective, under way: that of this engine. */
static void hand_ring(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct collective c = {.generation = n->e.generation,
                           .number = n->e.n_handed,
                           .step = n->e.step,
                           .handed_ns = s->now - MS,
                           .bucket = k};
    if (n->d)
        driver_ring(n->d, s->now, &c, c.number > 0);
    else
        follower_ring(n->f, s->now, &c, c.number > 0);
}

/* Everybody's ring is its own; who is silent has none. */
static void check_incident(struct sim *s, const struct incident *i)
{
    s->n_incidents++;
    if (i->n < 1 || i->n > i->n_ranks || !*i->text)
        sim_fail(s, "an incident of %d of %d ranks: %s", i->n, i->n_ranks, i->text);
    for (int r = 0; r < i->n; r++) {
        const struct incident_rank *k = &i->rank[r];
        s->n_rings += k->has_answered;
        if (k->n_ring > 0 && k->ring[0].bucket != node_of(k->host))
            sim_fail(s, "%s gave the ring of node %d", k->host, (int)k->ring[0].bucket);
        if (!k->has_answered && k->rank == 0)
            sim_fail(s, "the driver did not ask itself");
    }
}

static void do_action(struct sim *s, int k, struct action *a)
{
    struct node *n = &s->nodes[k];
    int64_t id = k == 0 ? a->conn : n->link;
    if (n->is_finished)
        sim_fail(s, "node %d acts after it has finished", k);
    switch (a->kind) {
    case ACTION_SEND:
        if (!s->links[id].is_open[end_of(k)])
            sim_fail(s, "node %d sends on connection %lld, which it closed", k, (long long)id);
        transmit(s, id, end_of(k), (struct sim_event){.kind = EV_DELIVER, .frame = a->send.frame});
        a->send.frame = NULL;
        break;
    case ACTION_CLOSE:
        if (!s->links[id].is_open[end_of(k)])
            sim_fail(s, "node %d closes connection %lld twice", k, (long long)id);
        close_end(s, id, end_of(k));
        break;
    case ACTION_COMMAND:
        engine_take(s, k, a->command);
        a->command = NULL;
        break;
    case ACTION_REQUEST:
        if (a->request == REQUEST_REGROUP)
            n->e.wants_regroup = 1;
        else
            n->e.wants_stop = 1;
        break;
    case ACTION_ABORT:
        engine_break_off(s, k);
        break;
    case ACTION_LOG:
        sim_say(s, "node %d says: %s", k, a->log.text);
        break;
    case ACTION_EVENT:
        note_event(s, &a->event);
        break;
    case ACTION_FINISHED:
        finished(s, k, a);
        break;
    case ACTION_RING:
        hand_ring(s, k);
        break;
    case ACTION_INCIDENT:
        check_incident(s, a->incident);
        break;
    case ACTION_INJECT: /* faults here are the simulator's own */
    case ACTION_TRUST:
        break;
    }
}

static void drain(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct action a;
    while (n->d ? driver_next(n->d, &a) : n->f ? follower_next(n->f, &a) : 0) {
        do_action(s, k, &a);
        action_fini(&a);
    }
    if (n->f && follower_rank(n->f) >= 0)
        n->rank = follower_rank(n->f);
}

static void start_follower(struct sim *s, int k)
{
    static const char *const backends[] = {"cpu"};
    struct node *n = &s->nodes[k];
    char host[16];
    if (s->nodes[0].is_finished || !s->nodes[0].is_alive || n->is_alive || n->is_finished)
        return;
    if (s->nodes[0].thaw > s->now) { /* not accepted before */
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k}, s->nodes[0].thaw);
        return;
    }
    follower_free(n->f);
    snprintf(host, sizeof(host), "host%d", k);
    n->is_alive = n->is_started = 1;
    n->life++;
    n->e = (struct fake_engine){.token = n->e.token + 1, .last_report = n->e.last_report};
    n->rank = -1;
    n->link = connect_to_driver(s, k);
    n->f = follower_new(&(struct follower_options){.rank = n->wanted,
                                                   .host = host,
                                                   .host_id = k % 2 ? host : "shared",
                                                   .pid = 100 + k,
                                                   .device = "auto",
                                                   .backends = backends,
                                                   .n_backends = 1,
                                                   .driver = "10.0.0.100:7000"},
                        s->now);
    sim_say(s, "node %d starts, wants rank %d, connection %lld", k, n->wanted, (long long)n->link);
    drain(s, 0);
    drain(s, k);
}

/* ---- what goes wrong ---- */

static void break_both(struct sim *s, int64_t id)
{
    struct link *l = &s->links[id];
    int node = l->node;
    if (l->is_open[0])
        sim_schedule(s, (struct sim_event){.kind = EV_CLOSED, .link = id, .node = 0},
                     s->now + delay(s));
    if (l->is_open[1])
        sim_schedule(s, (struct sim_event){.kind = EV_CLOSED, .link = id, .node = node},
                     s->now + delay(s));
    l->is_cut[0] = l->is_cut[1] = 1;
}

static void fire_at_follower(struct sim *s, struct node *v)
{
    struct link *l = &s->links[v->link];
    switch (s->inject) {
    case INJECT_KILL:
        process_gone(s, s->victim);
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
        if (s->is_forever) /* its machine is gone: the collective notices, the driver does not */
            process_gone(s, s->victim);
        break;
    case INJECT_SILENCE_IN:
        l->is_cut[0] = 1;
        break;
    case INJECT_SILENCE_OUT:
        l->is_cut[1] = 1;
        break;
    case INJECT_LEAVE:
        follower_stop(v->f, s->now, "SIGTERM");
        drain(s, s->victim);
        break;
    case INJECT_GARBAGE:
        if (l->is_open[0])
            sim_schedule(s, (struct sim_event){.kind = EV_CLOSED, .link = v->link, .is_bad = 1},
                         s->now + delay(s));
        break;
    default:
        break;
    }
}

static void freeze(struct sim *s, int k, int64_t until)
{
    struct node *n = &s->nodes[k];
    n->thaw = until;
    if (until != NEVER)
        sim_schedule(s, (struct sim_event){.kind = EV_THAW, .node = k}, until);
}

static void stop_driver(struct sim *s)
{
    if (s->nodes[0].is_finished)
        return;
    driver_stop(s->nodes[0].d, s->now, "SIGTERM");
    drain(s, 0);
}

/* Those that cost a rank, or the job. */
static const enum inject elastic_faults[] = {
    INJECT_KILL,         INJECT_KILL,    INJECT_DROP,  INJECT_SILENCE,     INJECT_SILENCE_IN,
    INJECT_SILENCE_OUT,  INJECT_FREEZE,  INJECT_FAULT, INJECT_HANG,        INJECT_LEAVE,
    INJECT_FREEZE_SHORT, INJECT_GARBAGE, INJECT_STOP,  INJECT_KILL_DRIVER,
};

static void choose_elastic(struct sim *s)
{
    s->inject = elastic_faults[sim_random(s, 0, ARRAY_LEN(elastic_faults) - 1)];
    s->victim = (int)sim_random(s, s->inject == INJECT_FREEZE_SHORT ? 0 : 1, s->n_nodes - 1);
    if (s->inject == INJECT_KILL_DRIVER || s->inject == INJECT_STOP)
        s->victim = 0;
    s->is_forever = (int)sim_random(s, 0, 1);
}

/* Asked twice, driver or follower stop at once: another thing. */
static int is_second_stop(const struct sim *s)
{
    return (s->inject == INJECT_STOP && s->is_stopped) ||
           (s->inject == INJECT_LEAVE && s->struck[s->victim] >> INJECT_LEAVE & 1);
}

static void next_fault(struct sim *s)
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
        choose_elastic(s);
    while (is_second_stop(s));
    s->inject_at = s->n_delivered + sim_random(s, 1, sim_random(s, 0, 1) ? 8 : 20 * s->n);
}

static void fire(struct sim *s)
{
    struct node *v = &s->nodes[s->victim];
    if (s->nodes[0].is_finished || !v->is_alive || v->is_finished)
        return;
    s->has_fired = 1;
    s->struck[s->victim] |= 1u << s->inject;
    s->fired_ns = s->now;
    s->fired_stage = s->nodes[0].d->stage;
    s->lost_stage = STAGE_COUNT;
    s->rank_then = s->victim == 0 ? 0 : v->rank;
    sim_say(s, "INJECT %s at node %d (rank %d)", inject_names[s->inject], s->victim, s->rank_then);
    switch (s->inject) {
    case INJECT_KILL_DRIVER:
        process_gone(s, 0);
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
        stop_driver(s);
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
    default:
        fire_at_follower(s, v);
    }
}

/* ---- the loop ---- */

static void deliver(struct sim *s, struct sim_event *e)
{
    struct node *n = &s->nodes[e->node];
    Wire__Control *m;
    struct err err;
    if (!n->is_alive || n->is_finished || !s->links[e->link].is_open[end_of(e->node)])
        return;
    if (msg_unpack(e->frame->data + FRAME_HEADER, e->frame->len - FRAME_HEADER, &m, &err) < 0) {
        sim_fail(s, "node %d got a bad message: %s", e->node, err.msg);
        return;
    }
    if (m->body_case != WIRE__CONTROL__BODY_HEARTBEAT)
        sim_say(s, "node %d gets %s (generation %lld) on %lld", e->node, msg_name(m),
                (long long)m->generation, (long long)e->link);
    s->n_delivered += m->body_case != WIRE__CONTROL__BODY_HEARTBEAT;
    if (e->node == 0)
        driver_message(n->d, s->now, e->link, m);
    else
        follower_message(n->f, s->now, m);
    msg_free(m);
    drain(s, e->node);
    if (s->stop_again > 0 && --s->stop_again == 0)
        stop_driver(s);
    if (s->n_delivered >= s->inject_at && !s->has_fired && s->inject != INJECT_NONE) {
        fire(s);
        if (s->is_elastic && s->n_more_faults > 0)
            next_fault(s);
    }
}

static void see_closed(struct sim *s, struct sim_event *e)
{
    struct node *n = &s->nodes[e->node];
    struct link *l = &s->links[e->link];
    struct err bad;
    if (!n->is_alive || n->is_finished || !l->is_open[end_of(e->node)])
        return;
    l->is_open[end_of(e->node)] = 0;
    err_set(&bad, ERR_PROTO, "a message of 0 bytes, want 1 to 67108864");
    sim_say(s, "node %d sees connection %lld closed", e->node, (long long)e->link);
    if (e->is_bad)
        transmit(s, e->link, 0, (struct sim_event){.kind = EV_CLOSED});
    if (e->node == 0) {
        if (l->node == s->victim && s->has_fired && s->lost_stage == STAGE_COUNT)
            s->lost_stage = n->d->stage;
        driver_closed(n->d, s->now, e->link, e->is_bad ? &bad : NULL);
    } else if (n->link == e->link) {
        follower_closed(n->f, s->now, NULL);
    }
    drain(s, e->node);
}

static void hand_report(struct sim *s, struct sim_event *e)
{
    struct node *n = &s->nodes[e->node];
    if (!n->is_alive || n->is_finished || e->token != n->life)
        return;
    if (e->report->kind != REPORT_STEP)
        sim_say(s, "node %d reports %s", e->node, report_name(e->report->kind));
    if (e->node == 0)
        driver_report(n->d, s->now, e->report);
    else
        follower_report(n->f, s->now, e->report);
    e->report = NULL;
    drain(s, e->node);
}

static void handle(struct sim *s, struct sim_event *e)
{
    struct node *n = &s->nodes[e->node < 0 ? 0 : e->node];
    if (n->thaw > s->now && e->kind != EV_START && e->kind != EV_STRANGER) {
        if (n->thaw != NEVER) { /* all in the order in which it came */
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
        start_follower(s, e->node);
        break;
    case EV_STRANGER: /* connects, and says nothing */
        if (s->nodes[0].is_alive && !s->nodes[0].is_finished && s->nodes[0].thaw <= s->now) {
            connect_to_driver(s, -1);
            drain(s, 0);
        }
        break;
    case EV_THAW:
        sim_say(s, "node %d goes on", e->node);
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
                         .since_ns = n->e.since,
                         .head = {.generation = n->e.generation,
                                  .n_handed = n->e.n_handed,
                                  .n_ended = n->e.n_ended}};
    if (n->e.n_handed > n->e.n_ended)
        p.head.at = (struct collective){.number = n->e.n_handed,
                                        .step = n->e.step,
                                        .bucket = n->e.n_handed == 1 ? RING_STATE : 0};
    return p;
}

static void tick(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct progress p = progress_of(n);
    if (k == 0) {
        driver_progress(n->d, s->now, &p);
        driver_tick(n->d, s->now);
    } else {
        follower_progress(n->f, s->now, &p);
        follower_tick(n->f, s->now);
    }
    drain(s, k);
}

/* The process that wants to be called first, and when. */
static int next_tick(const struct sim *s, int64_t *t)
{
    int who = -1;
    *t = NEVER;
    for (int k = 0; k < s->n_nodes; k++) {
        const struct node *n = &s->nodes[k];
        if (!n->is_alive || n->is_finished || (!n->d && !n->f))
            continue;
        int64_t due = n->d ? driver_deadline(n->d) : follower_deadline(n->f);
        due = max_i64(due, n->thaw);
        if (due < *t) {
            *t = due;
            who = k;
        }
    }
    return who;
}

/* 0: nothing more will happen. */
static int advance(struct sim *s)
{
    int64_t t;
    int k = next_tick(s, &t);
    if (k < 0)
        return 0;
    if (s->n_heap == 0 || t <= s->heap[0].t) {
        s->now = max_i64(s->now, t);
        tick(s, k);
        return 1;
    }
    s->now = s->heap[0].t;
    struct sim_event e = pop(s);
    handle(s, &e);
    free_event(&e);
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

static void choose_fault(struct sim *s)
{
    int is_driver_too;
    s->inject = (enum inject)sim_random(s, 0, INJECT_COUNT - 1);
    is_driver_too = s->inject == INJECT_FAULT || s->inject == INJECT_HANG ||
                    s->inject == INJECT_FREEZE_SHORT || s->inject == INJECT_REPLICA;
    s->victim = (int)sim_random(s, is_driver_too ? 0 : 1, s->n - 1);
    if (s->inject == INJECT_KILL_DRIVER || s->inject == INJECT_FREEZE_DRIVER ||
        s->inject == INJECT_STOP || s->inject == INJECT_STOP_TWICE ||
        s->inject == INJECT_NONFINITE || s->inject == INJECT_DISK)
        s->victim = 0;
    s->inject_at = sim_random(s, 1, 14 * (s->n - 1) * (1 + s->n_epochs) / 2);
    s->is_forever = (int)sim_random(s, 0, 1);
}

/* Ranks may be lost: what the job allows, and what happens. */
static void choose_elastic_job(struct sim *s)
{
    if (s->n > 40)
        s->n = s->n_nodes = 40;
    s->is_elastic = 1;
    s->n_spares = (int)sim_random(s, 0, 2);
    s->min_ranks = (int)sim_random(s, 0, 1) * (int)sim_random(s, 1, s->n);
    s->replace_ms = sim_random(s, 0, 3) ? sim_random(s, 500, 8000) : 0;
    s->is_restarting = (int)sim_random(s, 0, 1);
    s->n_nodes = s->n + s->n_spares;
    s->n_more_faults = (int)sim_random(s, 1, 3);
    choose_elastic(s);
    s->inject_at = sim_random(s, 1, 14 * (s->n - 1) * (1 + s->n_epochs) / 2);
}

static void start_driver(struct sim *s)
{
    struct node *n = &s->nodes[0];
    n->is_alive = n->is_started = 1;
    n->d = driver_new(
        &(struct driver_options){.n_ranks = s->n,
                                 .job = "name: x",
                                 .job_len = 7,
                                 .host = "host0",
                                 .host_id = "shared",
                                 .pid = 100,
                                 .device = "cpu",
                                 .n_epochs = s->n_epochs,
                                 .validate_every = 1,
                                 .checkpoint_every_epochs = 1,
                                 .heartbeat_timeout_ms = 5000,
                                 .min_ranks = s->min_ranks,
                                 .n_spares = s->n_spares,
                                 .replace_timeout_ms = s->replace_ms,
                                 .join_interval_ms = 500,
                                 .deadlines = {20000, 10000, 10000, 8000, 8000, 10000, 8000}},
        s->now);
    driver_start(n->d, s->now);
    drain(s, 0);
}

static void set_up(struct sim *s)
{
    s->start = s->now = 1000000 * (int64_t)MS;
    s->n = s->n_nodes = choose_n(s);
    s->spe = sim_random(s, 1, 5);
    s->n_epochs = sim_random(s, 1, 3);
    s->n_validation = sim_random(s, 0, 3) ? sim_random(s, 1, 200) : 0;
    s->max_delay_ms = (int)sim_random(s, 1, 30);
    choose_fault(s);
    if (s->mode == SIM_ELASTIC)
        choose_elastic_job(s);
    sim_say(s,
            "%d ranks, %lld epochs of %lld steps, delays to %d ms; %s at node %d after %lld "
            "messages",
            s->n, (long long)s->n_epochs, (long long)s->spe, s->max_delay_ms,
            inject_names[s->inject], s->victim, (long long)s->inject_at);
    start_driver(s);
    for (int k = 1; k < s->n; k++) {
        s->nodes[k].wanted = sim_random(s, 0, 1) ? k : -1;
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k},
                     s->now + sim_random(s, 0, 3000) * MS);
    }
    for (int k = s->n; k < s->n_nodes; k++) {
        s->nodes[k].wanted = -1;
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k},
                     s->now + sim_random(s, 0, sim_random(s, 0, 1) ? 3000 : 9000) * MS);
    }
    if (!s->is_elastic && sim_random(s, 0, 4) == 0) { /* somebody who has no place here */
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
        struct sim_event e = pop(s);
        free_event(&e);
    }
    free(s->heap);
    for (int k = 0; k < s->n_nodes; k++) {
        driver_free(s->nodes[k].d);
        follower_free(s->nodes[k].f);
        free(s->nodes[k].text);
        cmd_free(s->nodes[k].e.next);
    }
}

void sim_run(uint64_t seed, enum sim_mode mode, int verbose, struct sim_result *out)
{
    struct sim *s = xcalloc(1, sizeof(*s));
    *out = (struct sim_result){.is_ok = 1};
    s->seed = seed;
    s->verbose = verbose;
    s->mode = mode;
    s->r = out;
    rng_stream_init(&s->rng, seed, RNG_TEST, (uint64_t)mode);
    set_up(s);
    while (out->is_ok && advance(s))
        if (s->now - s->start > INT64_C(120) * 1000 * MS)
            sim_fail(s, "still running after two minutes");
    if (out->is_ok && s->is_elastic)
        sim_check_elastic(s);
    else if (out->is_ok)
        sim_check(s);
    out->n_faults = s->n_struck + s->has_fired;
    out->n_recovered = s->n_recovered;
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
