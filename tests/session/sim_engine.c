/* Fake engines: they take time, meet in collectives, and break off when one of them is gone. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "sim_impl.h"

static void after(struct sim *s, int k, int64_t ns)
{
    sim_schedule(s, (struct sim_event){.kind = EV_ENGINE, .node = k, .token = s->nodes[k].e.token},
                 s->now + ns);
}

static void report(struct sim *s, int k, struct report *r)
{
    struct fake_engine *e = &s->nodes[k].e;
    int64_t t = max_i64(e->last_report, s->now + sim_random(s, 0, 2 * MS));
    e->last_report = t;
    sim_schedule(
        s, (struct sim_event){.kind = EV_REPORT, .node = k, .report = r, .token = s->nodes[k].life},
        t);
}

static void obey(struct sim *s, int k, struct cmd *c);

static void set_phase(struct sim *s, int k, enum phase phase)
{
    s->nodes[k].e.phase = phase;
    s->nodes[k].e.since = s->now;
}

static struct report *answer(struct sim *s, int k, enum report_kind kind)
{
    struct fake_engine *e = &s->nodes[k].e;
    struct report *r = report_new(kind, e->generation);
    struct cmd *next = e->next;
    e->doing = 0;
    set_phase(s, k, PHASE_IDLE);
    e->is_breaking = 0;
    e->next = NULL;
    if (e->must_stop)
        after(s, k, MS);
    if (next && next->generation > e->canceled) {
        obey(s, k, next);
    } else if (next) {
        struct report *c = report_new(REPORT_FAULT, next->generation);
        err_set(&c->fault.err, ERR_CANCELED, "canceled before it began");
        c->fault.is_consequence = 1;
        report(s, k, c);
        cmd_free(next);
    }
    return r;
}

void engine_fault(struct sim *s, int k, int is_consequence, const char *text)
{
    struct fake_engine *e = &s->nodes[k].e;
    enum phase phase = e->phase;
    int64_t step = e->step;
    e->token++; /* what was scheduled is void */
    e->is_waiting = 0;
    engine_die(s, k);
    struct report *r = answer(s, k, REPORT_FAULT);
    err_set(&r->fault.err, is_consequence ? ERR_PEER : ERR_DEVICE, "%s", text);
    r->fault.phase = phase;
    r->fault.step = step;
    r->fault.is_consequence = is_consequence;
    report(s, k, r);
}

/* Who waits for one that has left notices, each in its own time. */
static void notice(struct sim *s, int k)
{
    s->nodes[k].e.is_released = -1;
    after(s, k, sim_random(s, 0, 400 * MS));
}

void engine_die(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    e->left = max_i64(e->left, e->generation);
    for (int i = 0; i < s->n_nodes; i++) {
        struct fake_engine *o = &s->nodes[i].e;
        if (i != k && s->nodes[i].is_alive && o->is_waiting && !o->is_released &&
            o->generation == e->generation && o->generation > 0)
            notice(s, i);
    }
}

void engine_break_off(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    e->canceled = e->next ? e->next->generation : e->generation;
    if (e->is_stuck)
        return;
    engine_die(s, k);
    if (!e->doing || e->is_breaking)
        return;
    e->is_breaking = 1; /* it computes; then it sees */
    e->is_waiting = 0;
    e->token++;
    after(s, k, sim_random(s, 0, 200 * MS));
}

/* The nodes of this one's formation that have not left it; `n_here`: those that wait for `key`. */
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

/* Broadcast: all hold what the source does. */
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
    if (is_form)
        take_state(s, g);
    for (int r = 0; r < s->group_size[g]; r++) {
        int i = s->group[g][r];
        struct fake_engine *e = &s->nodes[i].e;
        e->is_released = 1;
        e->is_last = !is_form && (stop || regroup || s->is_nonfinite);
        e->end = s->is_nonfinite ? EPOCH_NONFINITE : stop ? EPOCH_STOPPED : EPOCH_REGROUP;
        after(s, i, sim_random(s, 0, 3 * MS));
    }
}

static void arrive(struct sim *s, int k, int64_t key, int is_form)
{
    struct fake_engine *e = &s->nodes[k].e;
    int n_here;
    e->is_waiting = 1;
    e->is_released = 0;
    e->key = key;
    e->n_handed++;
    set_phase(s, k, is_form ? PHASE_FORM : PHASE_REDUCE);
    if (n_left(s, e->generation, key, &n_here) > 0)
        notice(s, k);
    else if (n_here == s->group_size[e->generation])
        release(s, e->generation, is_form);
}

static void opened(struct sim *s, int k)
{
    static const char *const names[] = {"conv1.weight", "conv1.bias", "fc.weight"};
    struct report *r = answer(s, k, REPORT_OPENED);
    r->opened.n_tensors = ARRAY_LEN(names);
    r->opened.tensor = xcalloc(ARRAY_LEN(names), sizeof(struct tensor_hash));
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        r->opened.tensor[i] =
            (struct tensor_hash){xstrdup(names[i]), hash_of(names[i], strlen(names[i]))};
    r->opened.layout = hash_of("layout", 6);
    r->opened.data = hash_of("data", 4);
    r->opened.n_train = 100;
    r->opened.n_validation = s->n_validation;
    r->opened.n_parameters = 1000;
    r->opened.steps_per_epoch = s->spe;
    report(s, k, r);
}

/* By the seed, ranks connect by endpoints or by rank 0's ids. */
static int has_ids(const struct sim *s) { return s->seed % 2 == 1; }

static size_t ids_bytes(int n_ranks)
{
    return ((size_t)n_ranks + MSG_RANKS_PER_ID - 1) / MSG_RANKS_PER_ID * MSG_ID;
}

static void make_ids(struct sim *s, struct report *r)
{
    r->prepared.ids.len = ids_bytes(s->group_size[r->generation]);
    r->prepared.ids.data = xcalloc(r->prepared.ids.len, 1);
    memset(r->prepared.ids.data, (int)(r->generation & 0xff), r->prepared.ids.len);
}

static void prepared(struct sim *s, int k)
{
    char name[32];
    int len = snprintf(name, sizeof(name), "endpoint %d", s->nodes[k].e.rank);
    struct report *r = answer(s, k, REPORT_PREPARED);
    if (!has_ids(s))
        r->prepared.endpoint = blob_of(name, (size_t)len);
    else if (s->nodes[k].e.rank == 0)
        make_ids(s, r);
    r->prepared.library = xstrdup(has_ids(s) ? "nccl 2.28.9" : "gloo");
    r->prepared.step = s->nodes[k].e.step;
    report(s, k, r);
}

static void formed(struct sim *s, int k)
{
    struct report *r = answer(s, k, REPORT_FORMED);
    r->formed.step = s->nodes[k].e.step;
    s->n_formed[s->nodes[k].e.generation]++;
    report(s, k, r);
}

/* No step twice, none missing. */
static void check_weights(struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;
    int is_fine = e->w.n == e->step;
    for (int i = 0; i < e->w.n; i++)
        is_fine &= e->w.step[i] == i;
    if (!is_fine)
        sim_fail(s, "node %d says it holds step %lld, made of %d steps, the last %lld", k,
                 (long long)e->step, e->w.n, e->w.n ? (long long)e->w.step[e->w.n - 1] : -1);
}

static void epoch_ended(struct sim *s, int k, enum epoch_end end)
{
    struct fake_engine *e = &s->nodes[k].e;
    struct report *r = answer(s, k, REPORT_EPOCH);
    int64_t content[2] = {hash_of(&e->w, sizeof(e->w)).lo, e->is_different};
    check_weights(s, k);
    s->was_different |= e->is_different;
    s->was_nonfinite |= end == EPOCH_NONFINITE;
    r->epoch.epoch = e->epoch;
    r->epoch.step = e->step;
    r->epoch.end = end;
    r->epoch.train_loss = 1.0 / (double)(1 + e->step);
    r->epoch.replica = hash_of(content, sizeof(content));
    r->epoch.n_tensors = 1;
    r->epoch.tensor = xcalloc(1, sizeof(struct tensor_hash));
    r->epoch.tensor[0] = (struct tensor_hash){xstrdup("conv1.weight"), r->epoch.replica};
    r->epoch.note = end == EPOCH_NONFINITE ? xstrdup("loss is nan") : NULL;
    report(s, k, r);
}

static void validated(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    struct report *r = answer(s, k, REPORT_VALIDATED);
    int64_t share = s->n_validation / e->n_ranks + (e->rank < s->n_validation % e->n_ranks);
    r->validated.epoch = e->epoch;
    r->validated.n_samples = share;
    r->validated.n_correct = share;
    r->validated.loss_sum = (double)share;
    report(s, k, r);
}

static struct report *outcome(const struct sim *s, const struct fake_engine *e, struct report *r)
{
    r->checkpoint.step = e->step;
    if (s->is_disk_full)
        r->checkpoint.error = xstrdup("disk full");
    else
        r->checkpoint.path = xasprintf("checkpoints/step-%lld", (long long)e->step);
    return r;
}

/* Rank 0 has copied its state: what becomes of the checkpoint comes later. */
static void save_beside(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    struct report *r = outcome(s, e, report_new(REPORT_CHECKPOINT, e->generation));
    r->checkpoint.is_unasked = 1;
    e->saved_at_ns = s->now + sim_random(s, 0, 300 * MS);
    sim_schedule(
        s, (struct sim_event){.kind = EV_REPORT, .node = k, .report = r, .token = s->nodes[k].life},
        e->saved_at_ns);
}

static void saved(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    struct report *r;
    if (e->rank == 0 && !e->is_last_save)
        save_beside(s, k);
    r = answer(s, k, REPORT_CHECKPOINT);
    r->checkpoint.step = e->step;
    report(s, k, e->rank == 0 && e->is_last_save ? outcome(s, e, r) : r);
}

static void compute(struct sim *s, int k)
{
    set_phase(s, k, PHASE_LOAD);
    after(s, k, sim_random(s, MS, 30 * MS));
}

static void step_done(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (e->is_last && e->end == EPOCH_NONFINITE) { /* not applied */
        epoch_ended(s, k, EPOCH_NONFINITE);
        return;
    }
    e->w.step[e->w.n++] = e->step++;
    s->newest_step = max_i64(s->newest_step, e->step);
    if (!e->has_stepped || e->is_fresh) {
        struct report *r = report_new(REPORT_STEP, e->generation);
        r->step.epoch = e->epoch;
        r->step.step = e->step;
        r->step.first = !e->has_stepped;
        e->has_stepped = 1;
        e->is_fresh = 0;
        report(s, k, r);
    }
    if (e->step % s->spe == 0)
        epoch_ended(s, k, EPOCH_WHOLE);
    else if (e->is_last)
        epoch_ended(s, k, e->end);
    else
        compute(s, k);
}

static void train(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (e->step == e->epoch * s->spe) { /* all done before the last fault */
        epoch_ended(s, k, EPOCH_WHOLE);
    } else if (e->is_released) {
        e->is_waiting = e->is_released = 0;
        e->n_ended++;
        step_done(s, k);
    } else {
        arrive(s, k, e->generation * 1000000 + 1 + e->step, 0);
    }
}

static void form(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (e->is_released) {
        e->is_waiting = e->is_released = 0;
        e->n_ended++;
        formed(s, k);
    } else {
        arrive(s, k, e->generation * 1000000, 1);
    }
}

void engine_advance(struct sim *s, int k, int64_t token)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (token != e->token || e->is_stuck)
        return;
    if (e->is_breaking) {
        engine_fault(s, k, 1, "broken off by engine_abort");
        return;
    }
    if (e->is_waiting && e->is_released < 0) {
        engine_fault(s, k, 1, "all-reduce: a peer closed its connection");
        return;
    }
    switch ((int)e->doing) {
    case 0:
        if (e->must_stop) {
            e->must_stop = 0;
            report(s, k, report_new(REPORT_STOPPED, e->generation));
        }
        break;
    case CMD_OPEN:
        opened(s, k);
        break;
    case CMD_PREPARE:
        prepared(s, k);
        break;
    case CMD_FORM:
        form(s, k);
        break;
    case CMD_TRAIN:
        train(s, k);
        break;
    case CMD_VALIDATE:
        validated(s, k);
        break;
    case CMD_CHECKPOINT:
        saved(s, k);
        break;
    }
}

static void check_command(struct sim *s, int k, const struct cmd *c)
{
    const struct fake_engine *e = &s->nodes[k].e;
    int is_anew = c->kind == CMD_PREPARE && c->generation > e->canceled && e->left >= e->generation;
    if (e->doing && c->kind != CMD_STOP && !is_anew && !e->is_stuck)
        sim_fail(s, "node %d was told to %s while it still has to %s", k, cmd_name(c->kind),
                 cmd_name(e->doing));
    if (e->left >= c->generation && c->generation > 0 && c->kind != CMD_STOP)
        sim_fail(s, "node %d was told to %s after a fault", k, cmd_name(c->kind));
    if (c->generation < e->generation || c->generation >= MAX_GENERATIONS)
        sim_fail(s, "node %d: command of generation %lld after %lld", k, (long long)c->generation,
                 (long long)e->generation);
    else if (c->kind >= CMD_TRAIN && c->kind < CMD_STOP &&
             s->n_formed[c->generation] != s->group_size[c->generation])
        sim_fail(s, "node %d was told to %s when %d of %d ranks had formed", k, cmd_name(c->kind),
                 s->n_formed[c->generation], s->group_size[c->generation]);
}

static void check_ids(struct sim *s, const struct cmd *c)
{
    if (c->form.n_endpoints || c->form.ids.len != ids_bytes(s->group_size[c->generation]))
        sim_fail(s, "ids of %zu bytes and %d endpoints for %d ranks", c->form.ids.len,
                 c->form.n_endpoints, s->group_size[c->generation]);
    for (size_t i = 0; i < c->form.ids.len; i++)
        if (c->form.ids.data[i] != (uint8_t)c->generation)
            sim_fail(s, "an id of another generation");
}

static void check_endpoints(struct sim *s, const struct cmd *c)
{
    char want[32];
    if (has_ids(s)) {
        check_ids(s, c);
        return;
    }
    if (c->form.n_endpoints != s->group_size[c->generation])
        sim_fail(s, "%d endpoints for %d ranks", c->form.n_endpoints, s->group_size[c->generation]);
    for (int i = 0; i < c->form.n_endpoints; i++) {
        int len = snprintf(want, sizeof(want), "endpoint %d", i);
        if ((size_t)len != c->form.endpoint[i].len ||
            memcmp(want, c->form.endpoint[i].data, (size_t)len))
            sim_fail(s, "rank %d's endpoint is not its own", i);
    }
}

void engine_take(struct sim *s, int k, struct cmd *c)
{
    struct fake_engine *e = &s->nodes[k].e;
    sim_say(s, "node %d engine: %s (generation %lld)", k, cmd_name(c->kind),
            (long long)c->generation);
    check_command(s, k, c);
    if (c->kind == CMD_STOP) {
        e->must_stop = 1;
        if (!e->doing)
            after(s, k, max_i64(sim_random(s, MS, 20 * MS), e->saved_at_ns - s->now));
        cmd_free(c);
        return;
    }
    if (e->doing) {
        cmd_free(e->next);
        e->next = c;
    } else {
        obey(s, k, c);
    }
}

static void join_group(struct sim *s, int k, const struct cmd *c)
{
    struct fake_engine *e = &s->nodes[k].e;
    int64_t g = c->generation;
    e->rank = c->prepare.rank;
    e->n_ranks = c->prepare.n_ranks;
    e->is_fresh = 1;
    e->wants_regroup = 0;
    if (!s->group_size[g]) {
        s->group_size[g] = e->n_ranks;
        for (int i = 0; i < MAX_NODES; i++)
            s->group[g][i] = -1;
    }
    if (s->group_size[g] != e->n_ranks || s->group[g][e->rank] >= 0)
        sim_fail(s, "node %d is rank %d of %d, and so is node %d of %d", k, e->rank, e->n_ranks,
                 s->group[g][e->rank], s->group_size[g]);
    s->group[g][e->rank] = k;
}

static void obey(struct sim *s, int k, struct cmd *c)
{
    struct fake_engine *e = &s->nodes[k].e;
    int64_t wait;
    e->generation = c->generation;
    e->doing = c->kind;
    e->is_waiting = e->is_released = 0;
    if (c->kind == CMD_OPEN) {
        set_phase(s, k, PHASE_OPEN);
    } else if (c->kind == CMD_PREPARE) {
        set_phase(s, k, PHASE_PREPARE);
        e->n_handed = e->n_ended = 0;
        join_group(s, k, c);
    } else if (c->kind == CMD_FORM) {
        set_phase(s, k, PHASE_FORM);
        e->source = c->form.source;
        check_endpoints(s, c);
    } else if (c->kind == CMD_TRAIN) {
        e->epoch = c->train.epoch;
        set_phase(s, k, PHASE_LOAD);
        if (e->epoch != e->step / s->spe + 1 && e->step != e->epoch * s->spe)
            sim_fail(s, "node %d is to train epoch %lld and holds step %lld", k,
                     (long long)e->epoch, (long long)e->step);
    } else {
        set_phase(s, k, c->kind == CMD_VALIDATE ? PHASE_VALIDATE : PHASE_CHECKPOINT);
        e->epoch = c->kind == CMD_VALIDATE ? c->validate.epoch : e->epoch;
        e->is_last_save = c->kind == CMD_CHECKPOINT && c->checkpoint.is_last;
    }
    wait = sim_random(s, MS, 60 * MS);
    if (c->kind == CMD_CHECKPOINT) /* one at a time */
        wait = max_i64(wait, e->saved_at_ns - s->now + MS);
    after(s, k, wait);
    cmd_free(c);
}
