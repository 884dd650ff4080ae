/* The simulator's world with two leaders (session_sim --standby): a driver, its standby, and
 * followers, while drivers and standbys are killed, frozen and cut off.
 *
 * It is a smaller world than sim.c's, because there a connection has the one driver at its end.
 * Engines have a state that is only the number of its steps.  Each formation is known by the
 * endpoints of its ranks, so two leaders may use the same generation.  Invariants:
 *   - once a leader's formation has done a step, no formation of a leader with a lower term does
 *     one: never two leaders whose steps both count;
 *   - a formation goes on from the newest step that was ever done, or from the one before (a driver
 *     that was started again may have to go on from its checkpoint if a follower was struck, too);
 *   - every process ends; and if only the first driver was struck, alone or together with one
 *     follower, the run is trained to its end, and its next step comes soon.
 *
 * In half of the schedules a driver that was killed is started again with --resume, as a service
 * manager does, beside the standby.  Their run directory is one, whose lock the standby holds while
 * it leads, or each has its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "session/driver.h"
#include "session/follower.h"
#include "session/standby.h"
#include "sim.h"

enum { MS = 1000000, MAX_RANKS = 6, MAX_PROCESSES = 24, MAX_LINKS = 600, MAX_GROUPS = 400 };
enum { DRIVER_MS = 60000, HEARTBEAT_MS = 5000, LONGEST_S = 900, SOON_S = 30, MOST_STARTS = 5 };
#define NEVER INT64_MAX

enum happening { DELIVER, CLOSED, REPORT, ENGINE, DIAL, BEGIN };

struct event {
    int64_t t, seq;
    enum happening what;
    int process, link, end, token;
    struct frame *frame;
    struct report *report;
};

struct line { /* a connection: end 0 dialed, end 1 listens */
    int process[2], is_open[2];
    int64_t last[2];
    int64_t number; /* end 0's name for it */
};

struct group { /* of ranks that have the same endpoints */
    struct hash128 key;
    int n_ranks, n_here, has_left;
    int process[MAX_RANKS];
    int64_t term, step; /* of its leader; that all hold now */
    int64_t newest;     /* that any of them held */
    int is_resumed;     /* its leader was started again */
};

struct folder { /* a run directory */
    int64_t term, saved;
    struct led led;
    int owner; /* the process that claimed it last */
};

struct process {
    struct folder *folder; /* of a driver */
    int64_t term;
    int is_resumed;
    int place; /* 0 driver, 1 .. n-1 followers, n standby */
    int is_alive, is_over, status;
    struct driver *d;
    struct follower *f;
    struct standby *s;
    char id[16];
    int64_t thaw;
    int dials_other, dials; /* where a follower looks now; DIAL is under way */
    int link;               /* of a follower, or of a standby to its driver; -1 */
    Wire__Control *hello[MAX_LINKS];
    int claims;           /* a standby that leads tells the driver before ... */
    int64_t claims_until; /* ... until then */
    struct legacy legacy;
    /* the engine */
    int64_t step, epoch, generation;
    struct group *group;
    int token, rank, is_waiting, is_released, is_regroup;
    int64_t last_report;
    enum cmd_kind doing;
    struct cmd *next;
    char *text;
};

struct world {
    struct sim_result *r;
    struct rng_stream rng;
    int verbose, n_ranks;
    int64_t now, seq, spe, n_epochs, step_ms;
    struct event *heap;
    int n_heap, cap_heap;
    struct process p[MAX_PROCESSES];
    int n_processes, at[MAX_RANKS + 1]; /* the process at each place; -1 */
    struct line line[MAX_LINKS];
    int n_lines;
    struct group group[MAX_GROUPS];
    int n_groups;
    int is_cut[MAX_RANKS + 1][MAX_RANKS + 1]; /* places that do not reach each other */
    int64_t newest_term, newest_step;
    int n_faults, n_left, was_asked, is_voter;
    int only_driver;         /* is struck, and once; 2: together with a follower */
    struct folder folder[2]; /* the driver's, the standby's */
    int is_shared, restarts, n_starts, n_followers_struck;
    int64_t struck; /* only_driver: when it was, until the next step; 0: not */
    int64_t next_fault;
};

/* ---- chance, and what is told ---- */

static int64_t draw(struct world *w, int64_t lo, int64_t hi)
{
    return lo + (int64_t)rng_next_below(&w->rng, (uint64_t)(hi - lo + 1));
}

static void say(const struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct world *w, const char *fmt, ...)
{
    va_list ap;
    if (!w->verbose)
        return;
    printf("%9.3f  ", 1e-9 * (double)w->now);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

static void fail(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct world *w, const char *fmt, ...)
{
    va_list ap;
    if (!w->r->is_ok)
        return;
    w->r->is_ok = 0;
    va_start(ap, fmt);
    vsnprintf(w->r->why, sizeof(w->r->why), fmt, ap);
    va_end(ap);
    say(w, "FAILED: %s", w->r->why);
}

/* ---- events by time ---- */

static void schedule(struct world *w, struct event e, int64_t t)
{
    if (w->n_heap == w->cap_heap) {
        w->cap_heap = w->cap_heap ? 2 * w->cap_heap : 64;
        w->heap = xrealloc(w->heap, (size_t)w->cap_heap * sizeof(*w->heap));
    }
    e.t = t;
    e.seq = ++w->seq;
    w->heap[w->n_heap++] = e;
}

static int earliest(const struct world *w)
{
    int best = -1;
    for (int i = 0; i < w->n_heap; i++)
        if (best < 0 || w->heap[i].t < w->heap[best].t ||
            (w->heap[i].t == w->heap[best].t && w->heap[i].seq < w->heap[best].seq))
            best = i;
    return best;
}

/* ---- the network ---- */

static int is_apart(const struct world *w, int a, int b)
{
    return w->is_cut[w->p[a].place][w->p[b].place];
}

/* Carry an event from this end to the other; it is lost while the places are cut apart. */
static void transmit(struct world *w, int link, int end, struct event e)
{
    struct line *l = &w->line[link];
    if (is_apart(w, l->process[0], l->process[1])) {
        frame_unref(e.frame);
        return;
    }
    l->last[end] = max_i64(l->last[end] + 1, w->now + draw(w, MS / 10, 20 * MS));
    e.link = link;
    e.end = !end;
    e.process = l->process[!end];
    schedule(w, e, l->last[end]);
}

static void close_end(struct world *w, int link, int end)
{
    w->line[link].is_open[end] = 0;
    transmit(w, link, end, (struct event){.what = CLOSED});
}

static int connect_to(struct world *w, int from, int to, int64_t number)
{
    ASSERT(w->n_lines < MAX_LINKS);
    w->line[w->n_lines] = (struct line){.process = {from, to}, .is_open = {1, 1}, .number = number};
    return w->n_lines++;
}

/* ---- processes end and begin ---- */

static void leave_group(struct world *w, int k);
static void drain(struct world *w, int k);
static void begin(struct world *w, int place);

static void gone(struct world *w, int k)
{
    struct process *p = &w->p[k];
    p->is_alive = 0;
    p->token++;
    leave_group(w, k);
    for (int i = 0; i < w->n_lines; i++)
        for (int end = 0; end < 2; end++)
            if (w->line[i].process[end] == k && w->line[i].is_open[end])
                close_end(w, i, end);
    if (w->at[p->place] == k)
        w->at[p->place] = -1;
}

static void finished(struct world *w, int k, int status, const char *text)
{
    say(w, "process %d (place %d) ends with %d: %s", k, w->p[k].place, status, text);
    w->p[k].is_over = 1;
    w->p[k].status = status;
    free(w->p[k].text);
    w->p[k].text = xstrdup(text);
    gone(w, k);
}

/* ---- engines ---- */

static struct group *find_group(struct world *w, struct hash128 key, int n_ranks)
{
    for (int i = 0; i < w->n_groups; i++)
        if (hash_equal(w->group[i].key, key))
            return &w->group[i];
    ASSERT(w->n_groups < MAX_GROUPS);
    w->group[w->n_groups] = (struct group){.key = key, .n_ranks = n_ranks};
    return &w->group[w->n_groups++];
}

static void report_later(struct world *w, int k, struct report *r)
{
    struct process *p = &w->p[k];
    p->last_report = max_i64(p->last_report + 1, w->now + draw(w, 0, 2 * MS));
    schedule(w, (struct event){.what = REPORT, .process = k, .report = r}, p->last_report);
}

static void wake(struct world *w, int k, int64_t ns)
{
    schedule(w, (struct event){.what = ENGINE, .process = k, .token = w->p[k].token}, w->now + ns);
}

static struct report *answer(struct world *w, int k, enum report_kind kind)
{
    struct process *p = &w->p[k];
    struct report *r = report_new(kind, p->generation);
    (void)w;
    p->doing = 0;
    return r;
}

static void obey(struct world *w, int k, struct cmd *c);

static void next_command(struct world *w, int k)
{
    struct cmd *c = w->p[k].next;
    w->p[k].next = NULL;
    if (c)
        obey(w, k, c);
}

static void broken_off(struct world *w, int k)
{
    struct report *r = answer(w, k, REPORT_FAULT);
    w->p[k].token++;
    w->p[k].is_waiting = 0;
    err_set(&r->fault.err, ERR_PEER, "broken off");
    r->fault.phase = PHASE_REDUCE;
    r->fault.step = w->p[k].step;
    r->fault.is_consequence = 1;
    report_later(w, k, r);
    next_command(w, k);
}

static void leave_group(struct world *w, int k)
{
    struct group *g = w->p[k].group;
    w->p[k].group = NULL;
    if (!g)
        return;
    g->has_left = 1;
    for (int i = 0; i < w->n_processes; i++)
        if (w->p[i].group == g && w->p[i].is_waiting && w->p[i].is_alive)
            wake(w, i, draw(w, 0, 300 * MS));
}

/* All ranks of the group are here, and reach each other. */
static int is_complete(const struct world *w, const struct group *g)
{
    if (g->n_here < g->n_ranks || g->has_left)
        return 0;
    for (int i = 0; i < g->n_ranks; i++)
        for (int j = 0; j < i; j++)
            if (is_apart(w, g->process[i], g->process[j]))
                return 0;
    return 1;
}

/* The ranks hold one state from here on. */
static void enter_state(struct world *w, struct group *g)
{
    g->step = g->newest;
    if (g->is_resumed && w->n_followers_struck > 0)
        w->newest_step = min_i64(w->newest_step, g->step);
    if (w->newest_step > g->step + 1)
        fail(w, "step %lld was done, and term %lld goes on from %lld", (long long)w->newest_step,
             (long long)g->term, (long long)g->step);
    for (int i = 0; i < g->n_ranks; i++)
        w->p[g->process[i]].step = g->step;
}

static void count_step(struct world *w, struct group *g)
{
    if (g->term < w->newest_term)
        fail(w, "term %lld does step %lld after term %lld did one", (long long)g->term,
             (long long)g->step, (long long)w->newest_term);
    if (w->struck && w->is_voter && g->term > w->newest_term &&
        w->now - w->struck > SOON_S * INT64_C(1000) * MS)
        fail(w, "the next step came %.1f s after the driver was struck",
             1e-9 * (double)(w->now - w->struck));
    if (g->term > w->newest_term)
        w->struck = 0;
    w->newest_term = g->term;
    w->is_voter = w->was_asked;
    w->newest_step = ++g->step;
    w->r->n_epochs += g->step % w->spe == 0;
}

/* The rank waits in a collective; the last to come releases all. */
static void meet(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct group *g = p->group;
    int n_waiting = 0, is_regroup = 0;
    if (!g || g->has_left) {
        broken_off(w, k);
        return;
    }
    p->is_waiting = 1;
    for (int i = 0; i < w->n_processes; i++)
        n_waiting += w->p[i].group == g && w->p[i].is_waiting && w->p[i].is_alive;
    if (n_waiting < g->n_ranks || !is_complete(w, g))
        return;
    int is_form = p->doing == CMD_FORM;
    if (is_form)
        enter_state(w, g);
    else
        count_step(w, g);
    for (int i = 0; i < g->n_ranks; i++)
        is_regroup |= w->p[g->process[i]].is_regroup;
    for (int i = 0; i < g->n_ranks; i++) {
        struct process *q = &w->p[g->process[i]];
        q->is_waiting = 0;
        q->is_released = 1;
        q->is_regroup = is_regroup ? -1 : 0;
        q->token++;
        wake(w, g->process[i], draw(w, 0, is_form ? 3 * MS : w->step_ms * MS));
    }
}

static void opened(struct world *w, int k)
{
    struct report *r = answer(w, k, REPORT_OPENED);
    if (w->p[k].is_resumed)
        w->p[k].step = r->opened.step = w->p[k].folder->saved;
    r->opened.n_tensors = 1;
    r->opened.tensor = xcalloc(1, sizeof(struct tensor_hash));
    r->opened.tensor[0] = (struct tensor_hash){xstrdup("w"), hash_of("w", 1)};
    r->opened.n_train = 100;
    r->opened.steps_per_epoch = w->spe;
    r->opened.n_parameters = 1;
    report_later(w, k, r);
}

static void prepared(struct world *w, int k)
{
    struct report *r = answer(w, k, REPORT_PREPARED);
    char name[48];
    int len = snprintf(name, sizeof(name), "%d %d", k, ++w->p[k].token);
    r->prepared.endpoint = blob_of(name, (size_t)len);
    r->prepared.step = w->p[k].step;
    report_later(w, k, r);
}

static void epoch_ended(struct world *w, int k, enum epoch_end end)
{
    struct process *p = &w->p[k];
    struct report *r = answer(w, k, REPORT_EPOCH);
    r->epoch.epoch = p->epoch;
    r->epoch.step = p->step;
    r->epoch.end = end;
    r->epoch.replica = hash_of(&p->step, sizeof(p->step));
    r->epoch.tensor = xcalloc(1, sizeof(struct tensor_hash));
    r->epoch.n_tensors = 1;
    r->epoch.tensor[0] = (struct tensor_hash){xstrdup("w"), r->epoch.replica};
    p->is_regroup = 0;
    report_later(w, k, r);
}

static void train_on(struct world *w, int k)
{
    struct process *p = &w->p[k];
    int had_regroup = p->is_regroup < 0;
    if (p->group && p->step < p->group->step) { /* the collective was this step's */
        p->step = p->group->step;
        struct report *r = report_new(REPORT_STEP, p->generation);
        r->step.epoch = p->epoch;
        r->step.step = p->step;
        report_later(w, k, r);
    }
    if (p->step == p->epoch * w->spe)
        epoch_ended(w, k, EPOCH_WHOLE);
    else if (had_regroup)
        epoch_ended(w, k, EPOCH_REGROUP);
    else
        meet(w, k);
}

static void work(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct report *r;
    if (p->is_waiting && p->group && !p->group->has_left)
        return;
    if (p->is_waiting || (p->doing >= CMD_FORM && p->doing != CMD_STOP && !p->group)) {
        broken_off(w, k);
        return;
    }
    switch ((int)p->doing) {
    case CMD_OPEN:
        opened(w, k);
        break;
    case CMD_PREPARE:
        prepared(w, k);
        break;
    case CMD_FORM:
        if (p->is_released) {
            r = answer(w, k, REPORT_FORMED);
            r->formed.step = p->step;
            report_later(w, k, r);
        } else {
            meet(w, k);
        }
        break;
    case CMD_TRAIN:
        train_on(w, k);
        break;
    case CMD_VALIDATE:
        report_later(w, k, answer(w, k, REPORT_VALIDATED));
        break;
    case CMD_CHECKPOINT:
        r = answer(w, k, REPORT_CHECKPOINT);
        r->checkpoint.step = p->step;
        if (p->d) {
            r->checkpoint.path = xstrdup("checkpoints/x");
            if (p->folder->owner == k)
                p->folder->saved = p->step;
        }
        report_later(w, k, r);
        break;
    case CMD_STOP:
        report_later(w, k, answer(w, k, REPORT_STOPPED));
        break;
    }
    if (!p->doing)
        next_command(w, k);
}

static void join(struct world *w, int k, const struct cmd *c)
{
    struct buf all = {0};
    for (int i = 0; i < c->form.n_endpoints; i++)
        buf_printf(&all, "%.*s,", (int)c->form.endpoint[i].len,
                   (const char *)c->form.endpoint[i].data);
    struct group *g = find_group(w, hash_of(all.data, all.len), c->form.n_endpoints);
    buf_fini(&all);
    struct process *p = &w->p[k];
    p->group = g;
    g->process[g->n_here++] = k;
    g->newest = max_i64(g->newest, p->step);
    g->step = -1;
    if (p->d) {
        g->term = p->term;
        g->is_resumed = p->is_resumed;
    }
}

static void obey(struct world *w, int k, struct cmd *c)
{
    struct process *p = &w->p[k];
    p->token++;
    p->is_waiting = p->is_released = 0;
    p->doing = c->kind;
    p->generation = max_i64(p->generation, c->generation);
    if (c->kind == CMD_PREPARE) {
        leave_group(w, k);
        p->rank = c->prepare.rank;
        p->is_regroup = 0;
    } else if (c->kind == CMD_FORM) {
        join(w, k, c);
    } else if (c->kind == CMD_TRAIN) {
        p->epoch = c->train.epoch;
    }
    wake(w, k, draw(w, MS, c->kind == CMD_TRAIN ? 30 * MS : 60 * MS));
    cmd_free(c);
}

static void take_command(struct world *w, int k, struct cmd *c)
{
    struct process *p = &w->p[k];
    if (p->doing && p->doing != CMD_STOP) { /* it was aborted, and has not noticed yet */
        cmd_free(p->next);
        p->next = c;
    } else {
        obey(w, k, c);
    }
}

static void abort_engine(struct world *w, int k)
{
    leave_group(w, k);
    if (w->p[k].doing)
        wake(w, k, draw(w, 0, 100 * MS));
    w->p[k].is_waiting = w->p[k].is_waiting && w->p[k].doing;
}

/* ---- sessions ---- */

static int64_t deadline(const struct process *p)
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
        *l = (struct led){.generation = e->generation,
                          .step = e->step,
                          .epoch_step = min_i64(l->epoch_step, e->step),
                          .validated_step = min_i64(l->validated_step, e->step)};
    if (e->kind == EVENT_EPOCH)
        l->epoch_step = e->epoch.step;
    if (e->kind == EVENT_FORM || e->kind == EVENT_STANDBY)
        l->voters = e->voters;
}

static void do_action(struct world *w, int k, struct action *a)
{
    struct process *p = &w->p[k];
    int link = line_of(p, a->conn);
    switch (a->kind) {
    case ACTION_SEND:
        if (w->line[link].is_open[end_of(w, k, link)]) {
            transmit(w, link, end_of(w, k, link),
                     (struct event){.what = DELIVER, .frame = a->send.frame});
            a->send.frame = NULL;
        }
        break;
    case ACTION_CLOSE:
        if (w->line[link].is_open[end_of(w, k, link)])
            close_end(w, link, end_of(w, k, link));
        break;
    case ACTION_SEEK:
        p->dials_other = a->seek.other ? (a->seek.is_again ? !p->dials_other : 1) : 0;
        if (!p->dials)
            schedule(w, (struct event){.what = DIAL, .process = k},
                     w->now + draw(w, 25 * MS, 250 * MS));
        p->dials = 1;
        break;
    case ACTION_COMMAND:
        take_command(w, k, a->command);
        a->command = NULL;
        break;
    case ACTION_REQUEST:
        p->is_regroup = a->request == REQUEST_REGROUP;
        break;
    case ACTION_ABORT:
        abort_engine(w, k);
        break;
    case ACTION_LOG:
        say(w, "process %d: %s", k, a->log.text);
        break;
    case ACTION_EVENT:
        note_event(w, k, &a->event);
        if (a->event.kind == EVENT_STANDBY && a->event.voters.standby[0])
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

static void drain(struct world *w, int k)
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
    say(w, "process %d leads with term %lld", k, (long long)p->legacy.term);
    o.term = p->legacy.term;
    o.standby_id = p->id;
    o.led_by = "the driver:0";
    o.leads_at = "the standby:0";
    o.led.voters = p->legacy.voters;
    o.led.generation = p->legacy.voters.generation;
    p->claims = 1;
    p->term = o.term;
    p->folder = &w->folder[!w->is_shared];
    p->folder->term = max_i64(p->folder->term, o.term);
    p->folder->owner = k;
    p->claims_until = w->now + DRIVER_MS * (int64_t)MS;
    p->d = driver_new(&o, w->now);
    driver_start(p->d, w->now);
    drain(w, k);
    for (int i = 0; i < w->n_lines; i++)
        if (w->line[i].process[1] == k && w->line[i].is_open[1]) {
            hear_stranger(w, k, i);
            if (p->hello[i])
                driver_message(p->d, w->now, i + 1, p->hello[i]);
            drain(w, k);
        }
    schedule(w, (struct event){.what = DIAL, .process = k}, w->now + 200 * MS);
}

/* ---- dialing ---- */

static void dial(struct world *w, int k)
{
    static const char *const backends[] = {"cpu"};
    struct process *p = &w->p[k];
    int other = p->place == w->n_ranks ? 0 : p->dials_other ? w->n_ranks : 0;
    int to = w->at[other];
    p->dials = 0;
    if (to < 0 || to == k || is_apart(w, k, to) || w->n_lines == MAX_LINKS) {
        if (p->f)
            p->dials_other = !p->dials_other;
        if (!p->claims || w->now < p->claims_until)
            schedule(w, (struct event){.what = DIAL, .process = k}, w->now + 300 * MS);
        p->dials = 1;
        return;
    }
    int link = connect_to(w, k, to, 0);
    if (p->claims) {
        struct frame *f = standby_claim(p->s);
        if (w->p[to].d)
            hear_stranger(w, to, link);
        transmit(w, link, 0, (struct event){.what = DELIVER, .frame = f});
        drain(w, to);
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
    drain(w, to);
    drain(w, k);
}

/* The standby that leads holds the run directory's lock. */
static int is_locked(const struct world *w)
{
    int k = w->at[w->n_ranks];
    return w->is_shared && k >= 0 && w->p[k].claims;
}

static void start_again(struct world *w)
{
    if (w->restarts && ++w->n_starts <= MOST_STARTS)
        schedule(w, (struct event){.what = BEGIN, .process = 0},
                 w->now + draw(w, 300, draw(w, 0, 1) ? 1500 : 9000) * MS);
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
        say(w, "the driver is started again as process %d, with term %lld", k, (long long)p->term);
    p->d = driver_new(&o, w->now);
    driver_start(p->d, w->now);
}

static void begin(struct world *w, int place)
{
    if (w->n_processes == MAX_PROCESSES || w->at[place] >= 0)
        return;
    if (place == 0 && is_locked(w)) {
        start_again(w);
        return;
    }
    int k = w->n_processes++;
    struct process *p = &w->p[k];
    *p = (struct process){.place = place, .is_alive = 1, .link = -1, .rank = -1};
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
    } else {
        p->dials = 1;
        schedule(w, (struct event){.what = DIAL, .process = k}, w->now);
        return; /* its session begins with its connection */
    }
    drain(w, k);
}

/* ---- what happens ---- */

static void deliver(struct world *w, struct event *e)
{
    struct process *p = &w->p[e->process];
    Wire__Control *m;
    struct err err;
    if (!p->is_alive || !w->line[e->link].is_open[e->end] ||
        msg_unpack(e->frame->data + FRAME_HEADER, e->frame->len - FRAME_HEADER, &m, &err) < 0)
        return;
    w->r->n_messages++;
    if (p->d && e->end == 0) {
        ; /* the driver before answers its successor */
    } else if (p->d) {
        driver_message(p->d, w->now, e->link + 1, m);
    } else if (p->s) {
        standby_message(p->s, w->now, e->end == 0 ? 0 : e->link + 1, m);
        if (e->end == 1 && standby_holds(p->s, e->link + 1) && !p->hello[e->link]) {
            p->hello[e->link] = m;
            m = NULL;
        }
    } else if (p->link == e->link) {
        follower_message(p->f, w->now, m);
    }
    msg_free(m);
    drain(w, e->process);
}

static void see_closed(struct world *w, const struct event *e)
{
    struct process *p = &w->p[e->process];
    if (!p->is_alive || !w->line[e->link].is_open[e->end])
        return;
    w->line[e->link].is_open[e->end] = 0;
    if (p->d && e->end == 0)
        schedule(w, (struct event){.what = DIAL, .process = e->process}, w->now + 300 * MS);
    else if (p->d)
        driver_closed(p->d, w->now, e->link + 1, NULL);
    else if (p->s)
        standby_closed(p->s, w->now, e->end == 0 ? 0 : e->link + 1, NULL);
    else if (p->link == e->link)
        follower_closed(p->f, w->now, NULL);
    drain(w, e->process);
}

static void handle(struct world *w, struct event *e)
{
    struct process *p = &w->p[e->process];
    if (e->what != BEGIN && p->thaw > w->now) {
        schedule(w, *e, p->thaw);
        e->frame = NULL;
        e->report = NULL;
        return;
    }
    if (e->what == BEGIN) {
        begin(w, e->process);
    } else if (e->what == DELIVER) {
        deliver(w, e);
    } else if (e->what == CLOSED) {
        see_closed(w, e);
    } else if (e->what == REPORT && p->is_alive) {
        if (p->d)
            driver_report(p->d, w->now, e->report);
        else
            follower_report(p->f, w->now, e->report);
        e->report = NULL;
        drain(w, e->process);
    } else if (e->what == ENGINE && p->is_alive && e->token == p->token) {
        work(w, e->process);
    } else if (e->what == DIAL && p->is_alive) {
        dial(w, e->process);
    }
}

static void tick(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct progress at = {.generation = p->generation,
                          .epoch = max_i64(p->epoch, 0),
                          .step = p->step,
                          .bucket = -1,
                          .phase = p->doing == CMD_TRAIN  ? PHASE_REDUCE
                                   : p->doing == CMD_FORM ? PHASE_FORM
                                                          : PHASE_IDLE};
    if (p->d) {
        driver_progress(p->d, w->now, &at);
        driver_tick(p->d, w->now);
    } else if (p->s) {
        standby_tick(p->s, w->now);
    } else {
        follower_progress(p->f, w->now, &at);
        follower_tick(p->f, w->now);
    }
    drain(w, k);
}

/* ---- faults ---- */

static void cut(struct world *w, int a, int b, int is_cut)
{
    w->is_cut[a][b] = w->is_cut[b][a] = is_cut;
}

static void isolate(struct world *w, int place)
{
    for (int i = 0; i <= w->n_ranks; i++)
        if (i != place && (w->only_driver || draw(w, 0, 3)))
            cut(w, place, i, 1);
}

static void heal(struct world *w)
{
    memset(w->is_cut, 0, sizeof(w->is_cut));
    for (int k = 0; k < w->n_processes; k++) /* a collective may be complete now */
        if (w->p[k].is_alive && w->p[k].is_waiting)
            meet(w, k);
}

/* Its machine is gone, too: it may or may not come back. */
static void lose_follower(struct world *w)
{
    int place = (int)draw(w, 1, w->n_ranks - 1);
    if (w->at[place] < 0)
        return;
    say(w, "FAULT: process %d at place %d is killed together with the driver", w->at[place], place);
    w->n_followers_struck++;
    gone(w, w->at[place]);
    if (draw(w, 0, 1))
        schedule(w, (struct event){.what = BEGIN, .process = place},
                 w->now + draw(w, 300, 20000) * MS);
}

static void strike(struct world *w)
{
    int kind = (int)draw(w, 0, w->only_driver ? 2 : 7);
    int place = kind < 3 ? 0 : kind < 5 ? w->n_ranks : (int)draw(w, 1, w->n_ranks - 1);
    int k = w->at[place];
    heal(w);
    if (w->only_driver == 2)
        lose_follower(w);
    if (w->only_driver)
        w->struck = w->now;
    w->n_followers_struck += place > 0 && place < w->n_ranks;
    w->next_fault = w->now + draw(w, 100, draw(w, 0, 1) ? 3000 : 40000) * MS;
    if (--w->n_left == 0 && w->only_driver)
        w->next_fault = NEVER;
    if (k < 0)
        return;
    w->n_faults++;
    if (kind == 0 || kind == 3 || kind == 5) {
        say(w, "FAULT: process %d at place %d is killed", k, place);
        gone(w, k);
        if (!place)
            start_again(w);
        else
            schedule(w, (struct event){.what = BEGIN, .process = place},
                     w->now + draw(w, 300, 5000) * MS);
    } else if (kind == 1 || kind == 6) {
        w->p[k].thaw = w->now + draw(w, 1000, 30000) * MS;
        say(w, "FAULT: process %d at place %d is frozen", k, place);
    } else {
        say(w, "FAULT: place %d is cut off", place);
        isolate(w, place);
    }
}

/* The last time, all that is cut apart comes together again. */
static void strike_or_heal(struct world *w)
{
    if (w->n_left > 0) {
        strike(w);
    } else {
        heal(w);
        w->next_fault = NEVER;
    }
}

/* ---- a whole run ---- */

static int next_tick(const struct world *w, int64_t *t)
{
    int who = -1;
    *t = NEVER;
    for (int k = 0; k < w->n_processes; k++) {
        const struct process *p = &w->p[k];
        if (!p->is_alive || (!p->d && !p->s && !p->f))
            continue;
        int64_t due = max_i64(deadline(p), p->thaw);
        if (due < *t) {
            *t = due;
            who = k;
        }
    }
    return who;
}

/* A process that has not been welcomed yet may wait for a driver for ever. */
static int is_idle(const struct process *p)
{
    return !p->d && (p->s ? !standby_legacy(p->s).job.len : !p->f || follower_rank(p->f) < 0);
}

static int is_running(const struct world *w)
{
    for (int k = 0; k < w->n_processes; k++)
        if (w->p[k].is_alive && !is_idle(&w->p[k]))
            return 1;
    return 0;
}

static int advance(struct world *w)
{
    int64_t t;
    int k = next_tick(w, &t), first = earliest(w);
    int64_t te = first < 0 ? NEVER : w->heap[first].t;
    if (!is_running(w) || (k < 0 && first < 0))
        return 0;
    int64_t next = min_i64(min_i64(t, te), w->next_fault);
    w->now = max_i64(w->now, next);
    if (w->next_fault <= next) {
        strike_or_heal(w);
    } else if (te <= t) {
        struct event e = w->heap[first];
        w->heap[first] = w->heap[--w->n_heap];
        handle(w, &e);
        frame_unref(e.frame);
        report_free(e.report);
    } else {
        tick(w, k);
    }
    return 1;
}

static void set_up(struct world *w)
{
    w->n_ranks = (int)draw(w, 2, MAX_RANKS - 1);
    w->spe = draw(w, 5, 30);
    w->n_epochs = draw(w, 2, 6);
    w->step_ms = draw(w, 20, 200);
    w->only_driver = draw(w, 0, 3) == 0;
    if (w->only_driver && w->n_ranks > 2 && draw(w, 0, 1))
        w->only_driver = 2;
    w->is_shared = (int)draw(w, 0, 1);
    w->restarts = (int)draw(w, 0, 1);
    w->n_left = w->only_driver ? 1 : (int)draw(w, 1, 4);
    w->next_fault = draw(w, 200, 3000) * MS;
    for (int i = 0; i <= MAX_RANKS; i++)
        w->at[i] = -1;
    begin(w, 0);
    for (int i = 1; i < w->n_ranks; i++)
        schedule(w, (struct event){.what = BEGIN, .process = i}, w->now + draw(w, 0, 500) * MS);
    schedule(w, (struct event){.what = BEGIN, .process = w->n_ranks},
             w->now + draw(w, 0, w->only_driver ? 10 : 2000) * MS);
}

static void check_end(struct world *w)
{
    int n_done = 0;
    for (int k = 0; k < w->n_processes; k++)
        n_done += w->p[k].d && w->p[k].is_over && w->p[k].status == STATUS_OK;
    int is_trained = w->newest_step >= w->spe * w->n_epochs; /* the end may not have been told */
    if (w->only_driver && w->is_voter && !n_done && !is_trained)
        fail(w, "only the first driver was struck, and nobody trained the run to its end");
    if (n_done && !is_trained)
        fail(w, "finished after step %lld of %lld", (long long)w->newest_step,
             (long long)(w->spe * w->n_epochs));
    w->r->status = n_done ? STATUS_OK : STATUS_FAILED;
}

static void tear_down(struct world *w)
{
    for (int i = 0; i < w->n_heap; i++) {
        frame_unref(w->heap[i].frame);
        report_free(w->heap[i].report);
    }
    free(w->heap);
    for (int k = 0; k < w->n_processes; k++) {
        struct process *p = &w->p[k];
        for (int i = 0; i < MAX_LINKS; i++)
            msg_free(p->hello[i]);
        driver_free(p->d);
        standby_free(p->s);
        follower_free(p->f);
        cmd_free(p->next);
        free(p->text);
    }
    free(w);
}

void sim_standby_run(uint64_t seed, int verbose, struct sim_result *out)
{
    struct world *w = xcalloc(1, sizeof(*w));
    *out = (struct sim_result){.is_ok = 1};
    w->r = out;
    w->verbose = verbose;
    w->now = 1000 * INT64_C(1000) * MS;
    rng_stream_init(&w->rng, seed, RNG_TEST, 100);
    int64_t start = w->now;
    set_up(w);
    w->next_fault += start;
    while (out->is_ok && advance(w))
        if (w->now - start > LONGEST_S * INT64_C(1000) * MS)
            fail(w, "still running after %d s", LONGEST_S);
    if (out->is_ok)
        check_end(w);
    out->n_ranks = w->n_ranks;
    out->n_faults = w->n_faults;
    out->seconds = 1e-9 * (double)(w->now - start);
    tear_down(w);
}
