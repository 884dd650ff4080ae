/* sim_standby_node - the world with two leaders: processes.  Each has a session of the product,
 * whose actions are carried out here; a follower looks for the driver, or for the other leader. */
#include "sim_standby_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

/* ---- processes end and begin ---- */

void world_gone(struct world *w, int k)
{
    struct process *p = &w->p[k];
    p->is_alive = 0;
    p->token++;
    world_leave_group(w, k);
    for (int i = 0; i < w->n_lines; i++)
        for (int end = 0; end < 2; end++)
            if (w->line[i].process[end] == k && w->line[i].is_open[end])
                world_close_end(w, i, end);
    if (w->at[p->place] == k)
        w->at[p->place] = -1;
}

static void finished(struct world *w, int k, int status, const char *text)
{
    world_say(w, "process %d (place %d) ends with %d: %s", k, w->p[k].place, status, text);
    world_show(w, k, "ends with status %d: %s", status, text);
    w->p[k].is_over = 1;
    w->p[k].status = status;
    free(w->p[k].text);
    w->p[k].text = xstrdup(text);
    world_gone(w, k);
}

/* ---- sessions ---- */

int64_t world_deadline(const struct process *p)
{
    return p->d ? driver_deadline(p->d) : p->s ? standby_deadline(p->s) : follower_deadline(p->f);
}

/* A driver and a standby know connections by the line's number, from 1; a follower, and a standby
 * the one with its driver, by 0. */
static int line_of(const struct process *p, int64_t number)
{
    return (p->d || (p->s && number > 0)) ? (int)number - 1 : p->link;
}

static int end_of(const struct world *w, int k, int link)
{
    return w->line[link].process[0] == k ? 0 : 1;
}

static void lead(struct world *w, int k);

/* A driver that is started again reads this in events.jsonl (report/led.c). */
static void note_event(struct world *w, int k, const struct session_event *e)
{
    struct led *l = &w->p[k].folder->led;
    if (w->p[k].folder->owner != k)
        return;
    l->step = max_i64(l->step, e->step);
    l->is_done |= e->kind == EVENT_DONE;
    if (e->kind == EVENT_FORM)
        *l = (struct led){.generation = e->form.generation,
                          .step = e->step,
                          .epoch_step = min_i64(l->epoch_step, e->step),
                          .validated_step = min_i64(l->validated_step, e->step)};
    if (e->kind == EVENT_EPOCH)
        l->epoch_step = e->epoch.step;
    if (e->kind == EVENT_FORM)
        l->voters = e->form.voters;
    if (e->kind == EVENT_STANDBY)
        l->voters = e->standby;
}

static void do_action(struct world *w, int k, struct action *a)
{
    struct process *p = &w->p[k];
    int link = line_of(p, a->conn);
    char words[128];
    switch (a->kind) {
    case ACTION_SEND:
        if (w->line[link].is_open[end_of(w, k, link)]) {
            world_transmit(w, link, end_of(w, k, link),
                           (struct event){.what = DELIVER, .frame = a->send.frame});
            a->send.frame = NULL;
        }
        break;
    case ACTION_CLOSE:
        if (w->line[link].is_open[end_of(w, k, link)])
            world_close_end(w, link, end_of(w, k, link));
        break;
    case ACTION_SEEK:
        p->dials_other = a->seek.other ? (a->seek.is_again ? !p->dials_other : 1) : 0;
        if (!p->dials)
            world_schedule(w, (struct event){.what = DIAL, .process = k},
                           w->now + world_draw(w, 25 * MS, 250 * MS));
        p->dials = 1;
        break;
    case ACTION_COMMAND:
        world_take_command(w, k, a->command);
        a->command = NULL;
        break;
    case ACTION_REQUEST:
        p->is_regroup = a->request == REQUEST_REGROUP;
        break;
    case ACTION_ABORT:
        world_abort_engine(w, k);
        break;
    case ACTION_LOG:
        world_say(w, "process %d: %s", k, a->log.text);
        world_show(w, k, "%s", a->log.text);
        break;
    case ACTION_EVENT:
        note_event(w, k, &a->event);
        if (show_event(&a->event, words, sizeof(words)) > 0)
            world_show(w, k, "%s", words);
        if (a->event.kind == EVENT_STANDBY && a->event.standby.standby[0])
            w->was_asked = 1;
        if (a->event.kind == EVENT_RECOVERED)
            w->r->n_recovered++;
        break;
    case ACTION_FINISHED:
        if (a->finished.is_leader)
            lead(w, k);
        else
            finished(w, k, a->finished.status, a->finished.text);
        break;
    default:
        break;
    }
}

void world_drain(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct action a;
    while (p->is_alive && (p->d   ? driver_next(p->d, &a)
                           : p->s ? standby_next(p->s, &a)
                                  : follower_next(p->f, &a))) {
        do_action(w, k, &a);
        action_fini(&a);
    }
}

static struct driver_options options_of(const struct world *w)
{
    return (struct driver_options){
        .n_ranks = w->n_ranks,
        .job = "name: x",
        .job_len = 7,
        .host = "h",
        .host_id = "m",
        .device = "cpu",
        .run = "run",
        .term = 1,
        .n_epochs = w->n_epochs,
        .checkpoint_every_epochs = 1,
        .start_ns = w->now,
        .cluster = {.heartbeat_timeout_ms = HEARTBEAT_MS,
                    .min_ranks = 1 + (w->n_ranks > 3),
                    .spares = 1,
                    .replace_timeout_ms = 8000,
                    .driver_timeout_ms = DRIVER_MS,
                    .join_interval_ms = 500,
                    .deadlines = {20000, 10000, 10000, 8000, 8000, 10000, 8000}}};
}

static void hear_stranger(struct world *w, int k, int link)
{
    char from[32];
    snprintf(from, sizeof(from), "10.0.0.1:%d", link);
    driver_connected(w->p[k].d, w->now, link + 1, "10.0.0.1", "10.0.0.100", from);
}

/* The standby becomes the driver, and hears those that wait. */
static void lead(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct driver_options o = options_of(w);
    p->legacy = standby_legacy(p->s);
    world_say(w, "process %d leads with term %lld", k, (long long)p->legacy.term);
    world_show(w, k, "leads, with term %lld", (long long)p->legacy.term);
    o.term = p->legacy.term;
    o.standby_id = p->id;
    o.led_by = "the driver:0";
    o.leads_at = "the standby:0";
    o.led.voters = p->legacy.voters;
    o.led.generation = p->legacy.voters.generation;
    o.led.account = p->legacy.account;
    p->claims = 1;
    p->term = o.term;
    p->folder = &w->folder[!w->is_shared];
    p->folder->term = max_i64(p->folder->term, o.term);
    p->folder->owner = k;
    p->claims_until = w->now + DRIVER_MS * (int64_t)MS;
    p->d = driver_new(&o, w->now);
    driver_start(p->d, w->now);
    world_drain(w, k);
    for (int i = 0; i < w->n_lines; i++)
        if (w->line[i].process[1] == k && w->line[i].is_open[1]) {
            hear_stranger(w, k, i);
            if (p->hello[i])
                driver_message(p->d, w->now, i + 1, p->hello[i]);
            world_drain(w, k);
        }
    world_schedule(w, (struct event){.what = DIAL, .process = k}, w->now + 200 * MS);
}

/* ---- dialing ---- */

void world_dial(struct world *w, int k)
{
    static const char *const backends[] = {"cpu"};
    struct process *p = &w->p[k];
    int other = p->place == w->n_ranks ? 0 : p->dials_other ? w->n_ranks : 0;
    int to = w->at[other];
    p->dials = 0;
    if (to < 0 || to == k || world_is_apart(w, k, to) || w->n_lines == MAX_LINKS) {
        if (p->f)
            p->dials_other = !p->dials_other;
        if (!p->claims || w->now < p->claims_until)
            world_schedule(w, (struct event){.what = DIAL, .process = k}, w->now + 300 * MS);
        p->dials = 1;
        return;
    }
    int link = world_connect(w, k, to, 0);
    if (p->claims) {
        struct frame *f = standby_claim(p->s);
        if (w->p[to].d)
            hear_stranger(w, to, link);
        world_transmit(w, link, 0, (struct event){.what = DELIVER, .frame = f});
        world_drain(w, to);
        return;
    }
    p->link = link;
    if (w->p[to].d)
        hear_stranger(w, to, link);
    struct follower_options o = {.rank = -1,
                                 .host = "h",
                                 .host_id = "m",
                                 .device = "auto",
                                 .backends = backends,
                                 .n_backends = 1,
                                 .driver = other ? "the standby:0" : "the driver:0",
                                 .welcome_ms = 3000,
                                 .keeps_state = 1,
                                 .is_proven = 1};
    if (p->s)
        standby_connected(p->s, w->now);
    else if (p->f)
        follower_connected(p->f, &o, w->now);
    else
        p->f = follower_new(&o, w->now);
    world_drain(w, to);
    world_drain(w, k);
}

/* The standby that leads holds the run directory's lock. */
static int is_locked(const struct world *w)
{
    int k = w->at[w->n_ranks];
    return w->is_shared && k >= 0 && w->p[k].claims;
}

void world_start_again(struct world *w)
{
    if (w->restarts && ++w->n_starts <= MOST_STARTS)
        world_schedule(w, (struct event){.what = BEGIN, .process = 0},
                       w->now + world_draw(w, 300, world_draw(w, 0, 1) ? 1500 : 9000) * MS);
}

/* A driver, the first or one that is started again. */
static void begin_driver(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct driver_options o = options_of(w);
    struct folder *f = p->folder = &w->folder[0];
    f->owner = k;
    p->is_resumed = f->term > 0;
    p->term = o.term = ++f->term;
    o.resume = p->is_resumed ? "run" : NULL;
    o.led = f->led;
    if (p->is_resumed)
        world_say(w, "the driver is started again as process %d, with term %lld", k,
                  (long long)p->term);
    if (p->is_resumed)
        world_show(w, k, "is started again with --resume, with term %lld", (long long)p->term);
    p->d = driver_new(&o, w->now);
    driver_start(p->d, w->now);
}

void world_begin(struct world *w, int place)
{
    if (w->n_processes == MAX_PROCESSES || w->at[place] >= 0)
        return;
    if (place == 0 && is_locked(w)) {
        world_start_again(w);
        return;
    }
    int k = w->n_processes++;
    struct process *p = &w->p[k];
    *p = (struct process){.place = place,
                          .is_alive = 1,
                          .link = -1,
                          .rank = -1,
                          .shard = {.size = 1, .prepared = -1}}; /* the whole state */
    w->at[place] = k;
    snprintf(p->id, sizeof(p->id), "s%d", k);
    if (place == 0) {
        begin_driver(w, k);
    } else if (place == w->n_ranks) {
        p->s = standby_new(&(struct standby_options){.id = p->id,
                                                     .port = 1,
                                                     .host = "h",
                                                     .host_id = "m",
                                                     .device = "cpu",
                                                     .driver = "the driver:0"},
                           w->now);
        world_show(w, k, "is started");
    } else {
        p->dials = 1;
        world_schedule(w, (struct event){.what = DIAL, .process = k}, w->now);
        world_show(w, k, "is started");
        return; /* its session begins with its connection */
    }
    world_drain(w, k);
}
