/* The simulated processes: how they start, what they do, and how they end. Their sessions' actions
 * are carried out here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    const struct node *d = &s->nodes[0];
    int is_over = d->is_alive ? d->d->stage >= STAGE_ENDING : s->mode != SIM_LEADERS;
    if (!s->is_elastic || k == 0 || !s->is_restarting || is_over || n->status == STATUS_STOPPED ||
        (s->mode == SIM_LEADERS && n->status == STATUS_OK))
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
    sim_show(s, k, "ends with status %d: %s", a->finished.status, a->finished.text);
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
    /* A driver that was frozen while it ended may end before they find it again. */
    if (s->mode == SIM_LEADERS && !s->struck[k] && !sim_was_struck(s, INJECT_FREEZE_DRIVER) &&
        strstr(n->text, "none that goes on with the run was found"))
        sim_fail(s, "nothing befell node %d, and it looked for a driver in vain", k);
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
        sim_show(s, k, "%s", a->log.text);
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
    case ACTION_TRACE: /* the engines here record nothing */
        break;
    case ACTION_INCIDENT:
        watch_incident(s, a->incident);
        break;
    case ACTION_SEEK:
        n->is_seeking = 1;
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k},
                     s->now + sim_random(s, 25, 250) * MS);
        break;
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

/* A driver that is started again resumes: it has the run directory's newest checkpoint, and knows
 * what the events tell. */
void sim_start_driver(struct sim *s)
{
    struct node *n = &s->nodes[0];
    int is_resumed = n->is_started;
    if (n->is_alive || n->is_finished)
        return;
    driver_free(n->d);
    n->is_alive = n->is_started = 1;
    n->life++;
    n->e = (struct fake_engine){.token = n->e.token + 1,
                                .last_report = n->e.last_report,
                                .shard = {.size = 1, .prepared = -1}}; /* the whole state */
    if (is_resumed) {
        n->e.w = s->run.saved;
        n->e.step = s->run.saved.n;
        s->is_disturbed = 1;
        /* a generation that the driver before had begun, and of which no event and no rank tells,
         * may be begun again */
        for (int64_t g = s->run.led.generation + 1; g < MAX_GENERATIONS; g++)
            s->group_size[g] = s->n_formed[g] = 0;
        sim_say(s, "the driver is started again, with the checkpoint of step %lld",
                (long long)n->e.step);
        sim_show(s, 0, "is started again with --resume; its checkpoint is of step %lld",
                 (long long)n->e.step);
    }
    s->run.start_ns = sim_clock(s, 0);
    s->run.before_ns = account_wall_ns(&s->run.led.account.times);
    n->d = driver_new(
        &(struct driver_options){.n_ranks = s->n,
                                 .job = "name: x",
                                 .job_len = 7,
                                 .host = "host0",
                                 .host_id = "shared",
                                 .pid = 100,
                                 .device = "cpu",
                                 .resume = is_resumed ? "run" : NULL,
                                 .run = s->mode == SIM_LEADERS ? "run" : NULL,
                                 .term = ++s->run.term,
                                 .led = s->run.led,
                                 .start_ns = s->run.start_ns,
                                 .n_epochs = s->n_epochs,
                                 .validate_every = 1,
                                 .checkpoint_every_epochs = 1,
                                 .cluster = {.heartbeat_timeout_ms = HEARTBEAT_MS,
                                             .min_ranks = s->min_ranks,
                                             .max_ranks = s->max_ranks,
                                             .spares = s->n_spares,
                                             .replace_timeout_ms = s->replace_ms,
                                             .driver_timeout_ms = DRIVER_MS,
                                             .join_interval_ms = JOIN_INTERVAL_MS,
                                             .deadlines = {GATHER_MS, READY_MS, PREPARE_MS, FORM_MS,
                                                           STEP_MS, VALIDATE_MS, CHECKPOINT_MS}}},
        sim_clock(s, 0));
    driver_start(n->d, sim_clock(s, 0));
    sim_drain(s, 0);
}

void sim_start_follower(struct sim *s, int k)
{
    static const char *const backends[] = {"cpu"};
    struct node *n = &s->nodes[k];
    char host[16];
    int seeks = n->is_alive && n->is_seeking;
    if (s->nodes[0].is_finished || (n->is_alive && !seeks) || n->is_finished)
        return;
    if (!s->nodes[0].is_alive) { /* it is started again, or the run is over */
        if (s->mode == SIM_LEADERS)
            sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k},
                         s->now + sim_random(s, 100, 250) * MS);
        return;
    }
    if (s->nodes[0].thaw > s->now) { /* connections are not accepted before */
        sim_schedule(s, (struct sim_event){.kind = EV_START, .node = k}, s->nodes[0].thaw);
        return;
    }
    snprintf(host, sizeof(host), "host%d", k);
    n->link = sim_connect(s, k);
    struct follower_options o = {.rank = n->wanted,
                                 .host = host,
                                 .host_id = k % 2 ? host : "shared",
                                 .pid = 100 + k,
                                 .device = "auto",
                                 .backends = backends,
                                 .n_backends = 1,
                                 .driver = "10.0.0.100:7000",
                                 .keeps_state = s->mode == SIM_LEADERS};
    n->is_seeking = 0;
    if (seeks) {
        follower_connected(n->f, &o, sim_clock(s, k));
    } else {
        follower_free(n->f);
        n->is_alive = n->is_started = 1;
        n->life++;
        n->e = (struct fake_engine){.token = n->e.token + 1, .last_report = n->e.last_report};
        n->rank = -1;
        n->f = follower_new(&o, sim_clock(s, k));
    }
    n->heard = sim_clock(s, k);
    n->is_asking = 1;
    sim_say(s, "node %d starts, wants rank %d, connection %lld", k, n->wanted, (long long)n->link);
    sim_show(s, k, seeks ? "looks for a driver, and keeps its state" : "is started");
    sim_drain(s, 0);
    sim_drain(s, k);
}
