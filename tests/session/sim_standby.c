/* The simulator's world with two leaders (session_sim --standby): a driver, its standby, and
 * followers, while drivers and standbys are killed, frozen and cut off.
 *
 * It is a smaller world than sim.c's, because there a connection has the one driver at its end.
 * Engines have a state that is only the number of its steps.  Each formation is known by the
 * endpoints of its ranks, so two leaders may use the same generation.  Invariants:
 *   - once a leader's formation has done a step, no formation of a leader with a lower term does
 *     one: never two leaders whose steps both count;
 *   - a formation goes on from the newest step that was ever done, or from the one before (a driver
 *     that was started again may have to go on from its checkpoint if a follower was struck, too;
 *     so may any leader if state is divided, unless only the driver was struck and there are
 *     buddies);
 *   - every process ends; and if only the first driver was struck, alone or together with one
 *     follower, the run is trained to its end, and its next step comes soon.
 *
 * In half of the schedules a driver that was killed is started again with --resume, as a service
 * manager does, beside the standby.  Their run directory is one, whose lock the standby holds while
 * it leads, or each has its own.
 */
#include "sim_standby_impl.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

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
    world_drain(w, e->process);
}

static void see_closed(struct world *w, const struct event *e)
{
    struct process *p = &w->p[e->process];
    if (!p->is_alive || !w->line[e->link].is_open[e->end])
        return;
    w->line[e->link].is_open[e->end] = 0;
    if (p->d && e->end == 0)
        world_schedule(w, (struct event){.what = DIAL, .process = e->process}, w->now + 300 * MS);
    else if (p->d)
        driver_closed(p->d, w->now, e->link + 1, NULL);
    else if (p->s)
        standby_closed(p->s, w->now, e->end == 0 ? 0 : e->link + 1, NULL);
    else if (p->link == e->link)
        follower_closed(p->f, w->now, NULL);
    world_drain(w, e->process);
}

static void handle(struct world *w, struct event *e)
{
    struct process *p = &w->p[e->process];
    if (e->what != BEGIN && p->thaw > w->now) {
        world_schedule(w, *e, p->thaw);
        e->frame = NULL;
        e->report = NULL;
        return;
    }
    if (e->what == BEGIN) {
        world_begin(w, e->process);
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
        world_drain(w, e->process);
    } else if (e->what == ENGINE && p->is_alive && e->token == p->token) {
        world_work(w, e->process);
    } else if (e->what == DIAL && p->is_alive) {
        world_dial(w, e->process);
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
    world_drain(w, k);
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
        int64_t due = max_i64(world_deadline(p), p->thaw);
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
    int k = next_tick(w, &t), first = world_earliest(w);
    int64_t te = first < 0 ? NEVER : w->heap[first].t;
    if (!is_running(w) || (k < 0 && first < 0))
        return 0;
    int64_t next = min_i64(min_i64(t, te), w->next_fault);
    w->now = max_i64(w->now, next);
    if (w->next_fault <= next) {
        world_strike_or_heal(w);
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
    w->n_ranks = (int)world_draw(w, 2, MAX_RANKS - 1);
    w->spe = world_draw(w, 5, 30);
    w->n_epochs = world_draw(w, 2, 6);
    w->step_ms = world_draw(w, 20, 200);
    w->only_driver = world_draw(w, 0, 3) == 0;
    if (w->only_driver && w->n_ranks > 2 && world_draw(w, 0, 1))
        w->only_driver = 2;
    w->is_shared = (int)world_draw(w, 0, 1);
    w->restarts = (int)world_draw(w, 0, 1);
    w->n_left = w->only_driver ? 1 : (int)world_draw(w, 1, 4);
    w->next_fault = world_draw(w, 200, 3000) * MS;
    for (int i = 0; i <= MAX_RANKS; i++)
        w->at[i] = -1;
    world_begin(w, 0);
    for (int i = 1; i < w->n_ranks; i++)
        world_schedule(w, (struct event){.what = BEGIN, .process = i},
                       w->now + world_draw(w, 0, 500) * MS);
    world_schedule(w, (struct event){.what = BEGIN, .process = w->n_ranks},
                   w->now + world_draw(w, 0, w->only_driver ? 10 : 2000) * MS);
}

static void check_end(struct world *w)
{
    int n_done = 0;
    for (int k = 0; k < w->n_processes; k++)
        n_done += w->p[k].d && w->p[k].is_over && w->p[k].status == STATUS_OK;
    int is_trained = w->newest_step >= w->spe * w->n_epochs; /* the end may not have been told */
    if (w->only_driver && w->is_voter && !n_done && !is_trained)
        world_fail(w, "only the first driver was struck, and nobody trained the run to its end");
    if (n_done && !is_trained)
        world_fail(w, "finished after step %lld of %lld", (long long)w->newest_step,
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

void sim_standby_run(uint64_t seed, enum sim_tell tell, struct sim_result *out)
{
    struct world *w = xcalloc(1, sizeof(*w));
    *out = (struct sim_result){.is_ok = 1};
    w->r = out;
    w->tell = tell;
    w->start = w->now = 1000 * INT64_C(1000) * MS;
    rng_stream_init(&w->rng, seed, RNG_TEST, 100);
    w->way = way_of_seed(seed);
    world_say(w, "a step's collectives: %s", way_name(&w->way));
    set_up(w);
    world_show(w, 0, "begins a job: ranks %d, epochs %lld, steps of an epoch %lld", w->n_ranks,
               (long long)w->n_epochs, (long long)w->spe);
    w->next_fault += w->start;
    while (out->is_ok && advance(w))
        if (w->now - w->start > LONGEST_S * INT64_C(1000) * MS)
            world_fail(w, "still running after %d s", LONGEST_S);
    if (out->is_ok)
        check_end(w);
    out->n_ranks = w->n_ranks;
    out->n_faults = w->n_faults;
    out->seconds = 1e-9 * (double)(w->now - w->start);
    tear_down(w);
}
