/* Fake engines: they take time, obey commands, and break off when they have to.
 * An engine's training is a list of step numbers, so a step lost or done twice shows. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "sim_impl.h"

void engine_wake(struct sim *s, int k, int64_t ns)
{
    sim_schedule(s, (struct sim_event){.kind = EV_ENGINE, .node = k, .token = s->nodes[k].e.token},
                 s->now + ns);
}

void engine_report(struct sim *s, int k, struct report *r)
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
        engine_wake(s, k, MS);
    if (next && next->generation > e->canceled) {
        obey(s, k, next);
    } else if (next) {
        struct report *c = report_new(REPORT_FAULT, next->generation);
        err_set(&c->fault.err, ERR_CANCELED, "canceled before it began");
        c->fault.is_consequence = 1;
        engine_report(s, k, c);
        cmd_free(next);
    }
    return r;
}

void engine_fault(struct sim *s, int k, int is_consequence, const char *text)
{
    struct fake_engine *e = &s->nodes[k].e;
    enum phase phase = e->phase;
    int64_t step = e->step;
    e->token++; /* events scheduled before are void */
    e->is_waiting = 0;
    engine_die(s, k);
    struct report *r = answer(s, k, REPORT_FAULT);
    err_set(&r->fault.err, is_consequence ? ERR_PEER : ERR_DEVICE, "%s", text);
    r->fault.phase = phase;
    r->fault.step = step;
    r->fault.is_consequence = is_consequence;
    engine_report(s, k, r);
}

void engine_die(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    e->left = max_i64(e->left, e->generation);
    audit_leave(s, k);
    coll_leave(s, k);
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
    e->is_breaking = 1; /* it computes, and notices the abort a little later */
    e->is_waiting = 0;
    e->token++;
    engine_wake(s, k, sim_random(s, 0, 200 * MS));
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
    r->opened.step = s->nodes[k].e.step;
    engine_report(s, k, r);
}

/* By the seed, ranks connect by endpoints or by rank 0's ids. */
static int has_ids(const struct sim *s) { return s->seed % 2 == 1; }

static size_t ids_bytes(int n_ranks) { return (size_t)msg_n_ids(n_ranks) * MSG_ID; }

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
    r->prepared.library = xstrdup(has_ids(s) ? "nccl 2.28.9" : "tcp");
    r->prepared.step = s->nodes[k].e.step;
    engine_report(s, k, r);
}

/* The engine holds no step twice, misses none, and its metric has all steps of the epoch. */
static void check_weights(struct sim *s, int k)
{
    const struct fake_engine *e = &s->nodes[k].e;
    int64_t sum = 0, epoch = e->step ? (e->step - 1) / s->spe : 0;
    int is_fine = e->w.n == e->step;
    for (int i = 0; i < e->w.n; i++)
        is_fine &= e->w.step[i] == i;
    for (int64_t i = epoch * s->spe; i < e->step; i++)
        sum += sim_metric(i);
    if (sum != e->w.sum)
        sim_fail(s, "node %d holds the metric %lld after step %lld, want %lld", k,
                 (long long)e->w.sum, (long long)e->step, (long long)sum);
    if (!is_fine)
        sim_fail(s, "node %d says it holds step %lld, made of %d steps, the last %lld", k,
                 (long long)e->step, e->w.n, e->w.n ? (long long)e->w.step[e->w.n - 1] : -1);
}

static void formed(struct sim *s, int k)
{
    struct report *r = answer(s, k, REPORT_FORMED);
    r->formed.step = s->nodes[k].e.step;
    s->n_formed[s->nodes[k].e.generation]++;
    check_weights(s, k);
    audit_form(s, k);
    engine_report(s, k, r);
}

void engine_end_epoch(struct sim *s, int k, enum epoch_end end)
{
    struct fake_engine *e = &s->nodes[k].e;
    struct report *r = answer(s, k, REPORT_EPOCH);
    uint64_t content[3] = {hash_of(&e->w, sizeof(e->w)).lo, (uint64_t)e->is_different,
                           replica_content(s, k)};
    check_weights(s, k);
    s->was_different |= e->is_different;
    s->was_nonfinite |= end == EPOCH_NONFINITE;
    r->epoch.epoch = e->epoch;
    r->epoch.step = e->step;
    r->epoch.end = end;
    r->epoch.train_loss = (double)e->w.sum;
    r->epoch.replica = hash_of(content, sizeof(content));
    r->epoch.n_tensors = 1;
    r->epoch.tensor = xcalloc(1, sizeof(struct tensor_hash));
    r->epoch.tensor[0] = (struct tensor_hash){xstrdup("conv1.weight"), r->epoch.replica};
    r->epoch.note = end == EPOCH_NONFINITE ? xstrdup("loss is nan") : NULL;
    engine_report(s, k, r);
}

static void epoch_ended(struct sim *s, int k, enum epoch_end end)
{
    if (!replica_open_whole(s, k, end))
        engine_end_epoch(s, k, end);
}

static void validated(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (e->step <= (e->epoch - 1) * s->spe || e->step > e->epoch * s->spe)
        sim_fail(s, "node %d validates epoch %lld and holds step %lld", k, (long long)e->epoch,
                 (long long)e->step);
    struct report *r = answer(s, k, REPORT_VALIDATED);
    int64_t share = s->n_validation / e->n_ranks + (e->rank < s->n_validation % e->n_ranks);
    r->validated.epoch = e->epoch;
    r->validated.n_samples = share;
    r->validated.n_targets = r->validated.n_samples;
    r->validated.weight = (double)share;
    r->validated.n_correct = share;
    r->validated.loss_sum = (double)share;
    engine_report(s, k, r);
}

static struct report *outcome(const struct sim *s, struct fake_engine *e, struct report *r)
{
    e->copied = e->w;
    r->checkpoint.step = e->step;
    if (s->is_disk_full)
        r->checkpoint.error = xstrdup("disk full");
    else
        r->checkpoint.path = xasprintf("checkpoints/step-%lld", (long long)e->step);
    return r;
}

/* Rank 0 has copied its state: the outcome of the checkpoint comes later. */
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
    engine_report(s, k, e->rank == 0 && e->is_last_save ? outcome(s, e, r) : r);
}

static void compute(struct sim *s, int k)
{
    set_phase(s, k, PHASE_LOAD);
    engine_wake(s, k, sim_random(s, MS, s->step_ms * MS));
}

static void apply_step(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (e->step % s->spe == 0)
        e->w.sum = 0;
    e->w.sum += sim_metric(e->step);
    e->w.wrong += e->audit.sum;
    if (e->w.wrong)
        sim_fail(s, "node %d applies a wrong update in step %lld", k, (long long)e->step);
    replica_update(s, k);
    ASSERT(e->w.n < MAX_STEPS);
    e->w.step[e->w.n++] = e->step++;
    s->newest_step = max_i64(s->newest_step, e->step);
}

void engine_end_step(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    e->part = PART_BEFORE;
    if (!e->has_stepped || e->is_fresh) {
        struct report *r = report_new(REPORT_STEP, e->generation);
        r->step.epoch = e->epoch;
        r->step.step = e->step;
        r->step.first = !e->has_stepped;
        e->has_stepped = 1;
        e->is_fresh = 0;
        engine_report(s, k, r);
    }
    if (e->step % s->spe == 0)
        epoch_ended(s, k, EPOCH_WHOLE);
    else if (e->is_last)
        epoch_ended(s, k, e->end);
    else
        compute(s, k);
}

/* Go to the next collective of the step, or end the step behind its last one. */
void engine_next_part(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    int is_applied = e->part > PART_SUM;
    if (e->part == PART_BEFORE && audit_is_due(s, k)) {
        audit_open(s, k);
        return;
    }
    while (e->part < PARTS && !way_has(&s->way, e->part))
        e->part++;
    if (e->part == PARTS && replica_is_due(s, k)) {
        replica_open(s, k);
        return;
    }
    if (e->part == PARTS) {
        engine_end_step(s, k);
        return;
    }
    if (e->part == PART_SUM)
        e->shard.prepared = e->step;
    coll_arrive(
        s, k, e->generation * KEYS + 1 + (e->step - is_applied) * STEP_KEYS + FIRST_PART + e->part);
}

/* The ranks agree on the step by the sum over all of them.  From there on it counts. */
static void part_done(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (e->part == PART_SUM && e->is_last && e->end == EPOCH_NONFINITE) { /* not applied */
        epoch_ended(s, k, EPOCH_NONFINITE);
        return;
    }
    if (e->part == PART_SUM)
        apply_step(s, k);
    e->part++;
    engine_next_part(s, k);
}

static void train(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (e->audit.is_open) {
        audit_advance(s, k);
    } else if (e->check.is_open) {
        replica_advance(s, k);
    } else if (e->is_released) {
        e->is_waiting = e->is_released = 0;
        e->n_ended++;
        part_done(s, k);
    } else if (e->step == e->epoch * s->spe) { /* all steps were done before the last fault */
        epoch_ended(s, k, EPOCH_WHOLE);
    } else {
        engine_next_part(s, k);
    }
}

static void form(struct sim *s, int k)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (e->is_released) {
        e->is_waiting = e->is_released = 0;
        e->n_ended++;
        if (e->is_split)
            engine_fault(s, k, 1, "the ranks hold different states");
        else
            formed(s, k);
    } else {
        coll_arrive(s, k, e->generation * KEYS);
    }
}

/* Another rank has left, or the driver says so. */
static void engine_give_up(struct sim *s, int k, const char *text)
{
    if (replica_is_condemned(s, k))
        engine_fault(s, k, 0, "this rank holds a wrong state, and could not take that of most");
    else
        engine_fault(s, k, 1, text);
}

void engine_advance(struct sim *s, int k, int64_t token)
{
    struct fake_engine *e = &s->nodes[k].e;
    if (token != e->token || e->is_stuck)
        return;
    if (e->is_breaking) {
        engine_give_up(s, k, "broken off by engine_abort");
        return;
    }
    if (e->is_waiting && e->is_released < 0) {
        engine_give_up(s, k, "all-reduce: a peer closed its connection");
        return;
    }
    switch ((int)e->doing) {
    case 0:
        if (e->must_stop) {
            e->must_stop = 0;
            engine_report(s, k, report_new(REPORT_STOPPED, e->generation));
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
    if (!s->group_size[c->generation]) /* its driver was killed: the generation is begun again */
        return;
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
            engine_wake(s, k, max_i64(sim_random(s, MS, 20 * MS), e->saved_at_ns - s->now));
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
    e->local = c->prepare.local;
    e->n_local = c->prepare.n_local;
    e->n_ranks = c->prepare.n_ranks;
    e->is_fresh = 1;
    e->wants_regroup = 0;
    e->part = PART_BEFORE;
    if (!s->group_size[g]) {
        s->group_size[g] = e->n_ranks;
        for (int i = 0; i < MAX_NODES; i++)
            s->group[g][i] = -1;
    }
    if (e->n_ranks > max_i64(s->n, s->max_ranks))
        sim_fail(s, "generation %lld has %d ranks, want at most %d", (long long)g, e->n_ranks,
                 s->max_ranks);
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
    e->is_waiting = e->is_released = e->audit.is_open = e->check.is_open = 0;
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
    engine_wake(s, k, wait);
    cmd_free(c);
}
