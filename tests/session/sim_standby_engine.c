/* sim_standby_engine - the world with two leaders: fake engines.  An engine's state is the number
 * of its steps.  Ranks whose endpoints are the same form a group, and meet in it once a step. */
#include "sim_standby_impl.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/util.h"

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
    p->last_report = max_i64(p->last_report + 1, w->now + world_draw(w, 0, 2 * MS));
    world_schedule(w, (struct event){.what = REPORT, .process = k, .report = r}, p->last_report);
}

static void wake(struct world *w, int k, int64_t ns)
{
    world_schedule(w, (struct event){.what = ENGINE, .process = k, .token = w->p[k].token},
                   w->now + ns);
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

void world_leave_group(struct world *w, int k)
{
    struct group *g = w->p[k].group;
    w->p[k].group = NULL;
    if (!g)
        return;
    g->has_left = 1;
    for (int i = 0; i < w->n_processes; i++)
        if (w->p[i].group == g && w->p[i].is_waiting && w->p[i].is_alive)
            wake(w, i, world_draw(w, 0, 300 * MS));
}

/* All ranks of the group are here, and reach each other. */
static int is_complete(const struct world *w, const struct group *g)
{
    if (g->n_here < g->n_ranks || g->has_left)
        return 0;
    for (int i = 0; i < g->n_ranks; i++)
        for (int j = 0; j < i; j++)
            if (world_is_apart(w, g->process[i], g->process[j]))
                return 0;
    return 1;
}

/* The newest step whose divided state is left whole, or that of the leader's checkpoint. */
static int64_t find_divided(struct world *w, struct group *g)
{
    struct way_rank rank[MAX_RANKS];
    for (int i = 0; i < g->n_ranks; i++)
        rank[i] = (struct way_rank){w->p[g->process[i]].step, w->p[g->process[i]].shard};
    int best = way_newest_whole(&w->way, rank, g->n_ranks);
    int64_t step = best < 0 ? 0 : rank[best].step;
    if (step == g->newest)
        return step;
    if (w->way.has_buddies && w->only_driver == 1 && g->n_ranks >= w->newest_n_ranks - 1)
        world_fail(w, "step %lld is not whole, though only the driver was struck",
                   (long long)g->newest);
    g->from_checkpoint = g->folder->saved > step;
    step = max_i64(step, g->folder->saved);
    world_say(w, "step %lld is not whole: going back to %lld", (long long)g->newest,
              (long long)step);
    world_show(w, SHOW_FAULT, "a part of step %lld is lost with its holders; step %lld is whole",
               (long long)g->newest, (long long)step);
    w->r->n_back++;
    w->newest_step = min_i64(w->newest_step, step);
    return step;
}

/* The ranks hold one state from here on. */
static void enter_state(struct world *w, struct group *g)
{
    const int64_t lineage = g - w->group + 1;
    g->step = w->way.kind == WAY_SHARDS ? find_divided(w, g) : g->newest;
    if (g->is_resumed && (w->n_followers_struck > 0 || w->newest_n_ranks == 1))
        w->newest_step = min_i64(w->newest_step, g->step);
    if (w->newest_step > g->step + 1)
        world_fail(w, "step %lld was done, and term %lld goes on from %lld",
                   (long long)w->newest_step, (long long)g->term, (long long)g->step);
    for (int i = 0; i < g->n_ranks; i++) {
        struct process *p = &w->p[g->process[i]];
        p->step = g->step;
        p->shard = (struct shard){lineage, g->n_ranks, p->rank, -1};
    }
}

static void count_step(struct world *w, struct group *g)
{
    if (g->term < w->newest_term)
        world_fail(w, "term %lld does step %lld after term %lld did one", (long long)g->term,
                   (long long)g->step, (long long)w->newest_term);
    if (w->struck && w->is_voter && g->term > w->newest_term &&
        w->now - w->struck > SOON_S * INT64_C(1000) * MS)
        world_fail(w, "the next step came %.1f s after the driver was struck",
                   1e-9 * (double)(w->now - w->struck));
    if (g->term > w->newest_term)
        w->struck = 0;
    w->newest_term = g->term;
    w->is_voter = w->was_asked;
    w->newest_step = ++g->step;
    w->newest_n_ranks = g->n_ranks;
    w->r->n_epochs += g->step % w->spe == 0;
}

/* ---- collectives ---- */

static int is_of_all(const struct world *w, const struct process *p)
{
    return p->doing != CMD_TRAIN || way_is_of_all(&w->way, p->part);
}

/* 1: process p waits for process q of its group, or would if q had not come yet. */
static int waits_for(const struct world *w, const struct process *p, const struct process *q)
{
    return is_of_all(w, p) ||
           way_meets(&w->way, p->part, p->key / PARTS, p->group->n_ranks, p->rank, q->rank);
}

/* 1: a rank that this one waits for has left the group. */
static int must_break(const struct world *w, const struct process *p)
{
    const struct group *g = p->group;
    if (is_of_all(w, p) || !g->has_left)
        return g->has_left;
    for (int i = 0; i < g->n_ranks; i++) {
        const struct process *q = &w->p[g->process[i]];
        if (q != p && waits_for(w, p, q) && (!q->is_alive || q->group != g))
            return 1;
    }
    return 0;
}

static void release(struct world *w, int k, int64_t most_ms)
{
    struct process *p = &w->p[k];
    p->is_waiting = 0;
    p->is_released = 1;
    p->token++;
    wake(w, k, world_draw(w, 0, most_ms * MS));
}

/* The rank waits for some of the others.  It goes on once these have come as far. */
static void meet_some(struct world *w, int k)
{
    struct process *p = &w->p[k];
    for (int i = 0; i < p->group->n_ranks; i++) {
        int j = p->group->process[i];
        if (j != k && waits_for(w, p, &w->p[j]) &&
            (w->p[j].key < p->key || world_is_apart(w, j, k)))
            return;
    }
    release(w, k, 3);
}

/* All ranks have come: they agree on the step, or on what follows the formation. */
static void release_all(struct world *w, struct group *g, const struct process *last)
{
    int is_form = last->doing == CMD_FORM, is_sum = !is_form && last->part == PART_SUM, is_last = 0;
    if (is_form)
        enter_state(w, g);
    if (is_sum)
        count_step(w, g);
    for (int i = 0; i < g->n_ranks; i++)
        is_last |= w->p[g->process[i]].is_regroup;
    for (int i = 0; i < g->n_ranks; i++) {
        struct process *q = &w->p[g->process[i]];
        if (is_sum) {
            q->is_last = is_last;
            q->is_regroup = 0;
        }
        release(w, g->process[i], is_sum ? w->step_ms : 3);
    }
}

/* The rank waits in a collective.  Of one in which all meet, the last to come releases all. */
void world_meet(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct group *g = p->group;
    int n_here = 0;
    if (!g || must_break(w, p)) {
        broken_off(w, k);
        return;
    }
    p->is_waiting = 1;
    for (int i = 0; i < g->n_here; i++) {
        struct process *q = &w->p[g->process[i]];
        if (q->group != g || !q->is_alive || !q->is_waiting)
            continue;
        n_here += q->key == p->key;
        if (!is_of_all(w, q) && (q == p || waits_for(w, q, p)))
            meet_some(w, g->process[i]);
    }
    if (is_of_all(w, p) && n_here == g->n_ranks && is_complete(w, g))
        release_all(w, g, p);
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
    p->is_regroup = p->is_last = 0;
    report_later(w, k, r);
}

static void step_done(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct report *r = report_new(REPORT_STEP, p->generation);
    r->step.epoch = p->epoch;
    r->step.step = p->step;
    report_later(w, k, r);
    p->part = PART_BEFORE;
}

/* Go to the step's next collective, or to the next step behind its last one. */
static void go_on(struct world *w, int k)
{
    struct process *p = &w->p[k];
    int is_applied = p->part > PART_SUM;
    while (p->part < PARTS && !way_has(&w->way, p->part))
        p->part++;
    if (p->part == PARTS) {
        step_done(w, k);
        is_applied = 0;
        if (p->step == p->epoch * w->spe || p->is_last) {
            epoch_ended(w, k, p->step == p->epoch * w->spe ? EPOCH_WHOLE : EPOCH_REGROUP);
            return;
        }
        while (!way_has(&w->way, p->part))
            p->part++;
    }
    if (p->part == PART_SUM)
        p->shard.prepared = p->step;
    p->key = (p->step - is_applied) * PARTS + p->part;
    world_meet(w, k);
}

static void train_on(struct world *w, int k)
{
    struct process *p = &w->p[k];
    if (!p->is_released && p->step == p->epoch * w->spe) { /* done before the last fault */
        epoch_ended(w, k, EPOCH_WHOLE);
        return;
    }
    if (p->is_released) {
        p->is_released = 0;
        if (p->part == PART_SUM)
            p->step = p->group->step;
        p->part++;
    }
    go_on(w, k);
}

void world_work(struct world *w, int k)
{
    struct process *p = &w->p[k];
    struct report *r;
    if (p->is_waiting && p->group && !must_break(w, p))
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
            r->formed.from_checkpoint = p->group->from_checkpoint;
            report_later(w, k, r);
        } else {
            world_meet(w, k);
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
        g->folder = p->folder;
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
        world_leave_group(w, k);
        p->rank = c->prepare.rank;
        p->is_regroup = p->is_last = 0;
        p->part = PART_BEFORE;
        p->key = -1; /* of the formation itself */
    } else if (c->kind == CMD_FORM) {
        join(w, k, c);
    } else if (c->kind == CMD_TRAIN) {
        p->epoch = c->train.epoch;
    }
    wake(w, k, world_draw(w, MS, c->kind == CMD_TRAIN ? 30 * MS : 60 * MS));
    cmd_free(c);
}

void world_take_command(struct world *w, int k, struct cmd *c)
{
    struct process *p = &w->p[k];
    if (p->doing && p->doing != CMD_STOP) { /* it was aborted, and has not noticed yet */
        cmd_free(p->next);
        p->next = c;
    } else {
        obey(w, k, c);
    }
}

void world_abort_engine(struct world *w, int k)
{
    world_leave_group(w, k);
    if (w->p[k].doing)
        wake(w, k, world_draw(w, 0, 100 * MS));
    w->p[k].is_waiting = w->p[k].is_waiting && w->p[k].doing;
}
