/* The simulated processes: how they start, what they do, and how they end. Their sessions' actions
 * are carried out here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "sim_impl.h"

/* ---- processes ---- */

void sim_process_gone(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    n->is_alive = 0;
    n->e.token++;
    n->e.is_waiting = 0;
    cmd_free(n->e.next);
    n->e.next = NULL;
    for (int i = 0; i < s->n_links; i++)
        if ((k == 0 || s->links[i].node == k) && s->links[i].is_open[sim_end_of(k)])
            sim_close_end(s, i, sim_end_of(k));
    engine_die(s, k);
}

/* Start the process anew, as a follower without --once or systemd does. */
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
        if ((k == 0 || s->links[i].node == k) && s->links[i].is_open[sim_end_of(k)])
            sim_fail(s, "node %d finished and left connection %d open", k, i);
    n->is_finished = 1;
    n->finished_ns = s->now;
    n->status = a->finished.status;
    n->retry = a->finished.retry;
    n->is_engine_stuck = a->finished.is_engine_stuck;
    n->text = a->finished.text;
    a->finished.text = NULL;
    sim_process_gone(s, k);
    come_back(s, k);
}

/* The ring of this engine: one collective, under way. */
static void hand_ring(struct sim *s, int k)
{
    struct node *n = &s->nodes[k];
    struct collective c = {.generation = n->e.generation,
                           .number = n->e.n_handed,
                           .step = n->e.step,
                           .handed_ns = sim_clock(s, k) - MS,
                           .bucket = k};
    if (n->d)
        driver_ring(n->d, sim_clock(s, k), &c, c.number > 0);
    else
        follower_ring(n->f, sim_clock(s, k), &c, c.number > 0);
}

static void do_action(struct sim *s, int k, struct action *a)
{
    struct node *n = &s->nodes[k];
    int64_t id = k == 0 ? a->conn : n->link;
    if (n->is_finished)
        sim_fail(s, "node %d acts after it has finished", k);
    switch (a->kind) {
    case ACTION_SEND:
        if (!s->links[id].is_open[sim_end_of(k)])
            sim_fail(s, "node %d sends on connection %lld, which it closed", k, (long long)id);
        sim_transmit(s, id, sim_end_of(k),
                     (struct sim_event){.kind = EV_DELIVER, .frame = a->send.frame});
        a->send.frame = NULL;
        break;
    case ACTION_CLOSE:
        if (!s->links[id].is_open[sim_end_of(k)])
            sim_fail(s, "node %d closes connection %lld twice", k, (long long)id);
        sim_close_end(s, id, sim_end_of(k));
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
        if (k == 0)
            s->is_disturbed = 1;
        break;
    case ACTION_LOG:
        sim_say(s, "node %d says: %s", k, a->log.text);
        break;
    case ACTION_EVENT:
        watch_event(s, &a->event);
        break;
    case ACTION_FINISHED:
        finished(s, k, a);
        break;
    case ACTION_RING:
        hand_ring(s, k);
        break;
    case ACTION_INCIDENT:
        watch_incident(s, a->incident);
        break;
    case ACTION_SEEK:
    case ACTION_INJECT: /* faults here are the simulator's own */
    case ACTION_TRUST:
        break;
    }
}

void sim_drain(struct sim *s, int k)
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

void sim_start_follower(struct sim *s, int k)
{
    static const char *const backends[] = {"cpu"};
    struct node *n = &s->nodes[k];
    char host[16];
    if (s->nodes[0].is_finished || !s->nodes[0].is_alive || n->is_alive || n->is_finished)
        return;
    if (s->nodes[0].thaw > s->now) { /* connections are not accepted before */
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k}, s->nodes[0].thaw);
        return;
    }
    follower_free(n->f);
    snprintf(host, sizeof(host), "host%d", k);
    n->is_alive = n->is_started = 1;
    n->life++;
    n->e = (struct fake_engine){.token = n->e.token + 1, .last_report = n->e.last_report};
    n->rank = -1;
    n->link = sim_connect(s, k);
    n->f = follower_new(&(struct follower_options){.rank = n->wanted,
                                                   .host = host,
                                                   .host_id = k % 2 ? host : "shared",
                                                   .pid = 100 + k,
                                                   .device = "auto",
                                                   .backends = backends,
                                                   .n_backends = 1,
                                                   .driver = "10.0.0.100:7000"},
                        sim_clock(s, k));
    n->heard = sim_clock(s, k);
    sim_say(s, "node %d starts, wants rank %d, connection %lld", k, n->wanted, (long long)n->link);
    sim_drain(s, 0);
    sim_drain(s, k);
}
