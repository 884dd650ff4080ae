/* The invariants that hold all the time, whatever goes wrong: no process waits beyond its
 * deadlines; a fault explains each line about a lost rank; at most one step is lost; the record has
 * no gaps; ranks join no more often than they may; and a rank that waits to join or to leave does
 * not wait for long. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "sim_impl.h"

static int node_of(const char *host)
{
    return host && !strncmp(host, "host", 4) ? atoi(host + 4) : -1;
}

int sim_was_struck(const struct sim *s, enum inject what)
{
    for (int k = 0; k < s->n_nodes; k++)
        if (s->struck[k] >> what & 1)
            return 1;
    return 0;
}

/* ---- what the record says ---- */

/* Texts that the driver may log of a rank after this fault.  A short freeze, a clock that leaps, or
 * ranks that cannot reach each other cost no rank. */
static const struct {
    enum inject what;
    const char *text;
} reasons[] = {
    {INJECT_KILL, "it closed the connection"},
    {INJECT_DROP, "it closed the connection"},
    {INJECT_SILENCE, "no sign of life for 5"},
    {INJECT_SILENCE_IN, "it had heard nothing from this driver for 5"},
    {INJECT_SILENCE_OUT, "no sign of life for 5"},
    {INJECT_FREEZE, "no sign of life for 5"},
    {INJECT_FAULT, "kernel failed"},
    {INJECT_HANG, "cluster.deadlines"},
    {INJECT_HANG, " hangs in "},
    {INJECT_LEAVE, "stopped by SIGTERM"},
    {INJECT_GARBAGE, "a message of 0 bytes"},
    {INJECT_DRAIN, "was drained"},
    {INJECT_CLOCK_STALL, "no sign of life for 5"},
    {INJECT_FLIP, "was drained, because its bits were wrong"},
    {INJECT_FLIP, "computes wrong gradients"},
    {INJECT_FLIP, "holds a wrong state"},
};

int sim_is_cut_off(const struct sim *s, int k)
{
    for (int i = 0; i < s->n_cuts; i++)
        if (s->way.kind != WAY_ALL && (s->cuts[i].a == k || s->cuts[i].b == k))
            return 1;
    return 0;
}

/* 1: nodes that were cut off have just reached each other again.  The driver's own rank has gone on
 * to the next collective of the same step (an audit has several), and what the driver knows of the
 * others is a heartbeat older.  So any of them may be said to keep rank 0 waiting. */
static int is_outdated(const struct sim *s)
{
    const int64_t beat = (HEARTBEAT_MS / 5 + 10 * s->max_delay_ms) * (int64_t)MS;

    return s->has_audits && s->healed_ns > 0 && s->now - s->healed_ns < beat;
}

int sim_is_true(const struct sim *s, int k, const char *text)
{
    if (is_outdated(s) && strstr(text, "cluster.deadlines.step"))
        return 1;
    /* The others went on as soon as they could reach the node, but the node was frozen. */
    unsigned both = 1u << INJECT_PARTITION | 1u << INJECT_FREEZE_SHORT;
    if (((s->struck[k] & both) == both || sim_is_cut_off(s, k)) &&
        strstr(text, "cluster.deadlines.step"))
        return 1;
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (s->struck[k] >> reasons[i].what & 1 && strstr(text, reasons[i].text))
            return 1;
    return 0;
}

static void lost(struct sim *s, const struct session_event *e)
{
    int k = node_of(e->host);
    s->is_disturbed = 1;
    if (sim_was_struck(s, INJECT_FREEZE_DRIVER) &&
        strstr(e->text, "it had heard nothing from this driver for 5"))
        return;
    if (k > 0 && is_outdated(s) && strstr(e->text, "cluster.deadlines.step"))
        s->struck[k] |= 1u << INJECT_PARTITION; /* the cut cost this rank, too */
    if (k < 1 || !sim_is_true(s, k, e->text))
        sim_fail(s, "node %d is said to be lost, and that is not what befell it: %s", k, e->text);
}

/* A rank that is said to keep the others waiting does: a fault of its own stops it. */
static void warned(struct sim *s, const struct session_event *e)
{
    static const unsigned stops = 1u << INJECT_FREEZE | 1u << INJECT_FREEZE_SHORT |
                                  1u << INJECT_HANG | 1u << INJECT_SILENCE |
                                  1u << INJECT_SILENCE_IN | 1u << INJECT_SILENCE_OUT |
                                  1u << INJECT_CLOCK_STALL | 1u << INJECT_CLOCK_LEAP;
    int k = node_of(e->host);
    if (e->rank >= 0 && !is_outdated(s) &&
        (k < 0 || !(s->struck[k] & stops || sim_is_cut_off(s, k))))
        sim_fail(s, "nothing befell node %d: %s", k, e->text);
    s->n_warnings++;
}

static void recovered(struct sim *s, const struct session_event *e)
{
    s->n_recovered++;
    if (e->recovered.steps_lost < 0 || (e->recovered.steps_lost > 1 && !s->is_back) ||
        e->recovered.generation <= s->last_generation)
        sim_fail(s, "recovered in generation %lld after %lld, %lld steps lost",
                 (long long)e->recovered.generation, (long long)s->last_generation,
                 (long long)e->recovered.steps_lost);
    s->last_generation = e->recovered.generation;
    s->is_back = 0;
    if (e->recovered.seconds > s->slowest_recovery && !sim_was_struck(s, INJECT_CLOCK_LEAP))
        s->slowest_recovery = e->recovered.seconds;
}

/* Each epoch is told once, in order, with the metric of all its steps and of none twice. */
static void epoch(struct sim *s, const struct session_event *e)
{
    int64_t want = 0;
    replica_epoch(s);
    for (int64_t i = (e->epoch.epoch - 1) * s->spe; i < e->epoch.step; i++)
        want += sim_metric(i);
    if (e->epoch.end != EPOCH_STOPPED &&
        (e->epoch.epoch != s->n_epoch_events || e->epoch.step != s->n_epoch_events * s->spe))
        sim_fail(s, "the %d. epoch event is of epoch %lld, step %lld", s->n_epoch_events,
                 (long long)e->epoch.epoch, (long long)e->epoch.step);
    else if (e->epoch.train_loss != (double)want)
        sim_fail(s, "epoch %lld says %g, want %lld", (long long)e->epoch.epoch, e->epoch.train_loss,
                 (long long)want);
}

static void formed(struct sim *s, const struct session_event *e)
{
    int64_t now = sim_clock(s, 0);
    int is_for_joining = s->n_forms > 1 && !s->is_disturbed;
    if (e->form.n_ranks < (s->min_ranks ? s->min_ranks : s->n) && !sim_was_struck(s, INJECT_STOP))
        sim_fail(s, "%d ranks go on, want at least %d", e->form.n_ranks, s->min_ranks);
    if (is_for_joining && now - s->last_formed < JOIN_INTERVAL_MS * (int64_t)MS)
        sim_fail(s, "formed again %.3f s after the last time, for nobody lost",
                 1e-9 * (double)(now - s->last_formed));
    s->n_grown += is_for_joining && e->form.n_ranks > s->last_n;
    s->last_formed = now;
    s->last_n = e->form.n_ranks;
    s->is_disturbed = 0;
}

/* Where the time went adds up to the wall time, under all drivers of the run.  The next driver goes
 * on with the account. */
static void watch_account(struct sim *s, const struct session_event *e)
{
    struct account_past *past = &s->run.led.account;
    int64_t wall = account_wall_ns(&e->account),
            want = s->run.before_ns + sim_clock(s, 0) - s->run.start_ns;
    if (wall != want)
        sim_fail(s, "the account of event %d has %lld ns, the wall time is %lld ns", (int)e->kind,
                 (long long)wall, (long long)want);
    past->times = e->account;
    past->n_marks = e->step >= 0;
    past->mark[0] = (struct account_mark){e->step, e->account.ns[ACCOUNT_PRODUCTIVE] +
                                                       e->account.ns[ACCOUNT_DATA]};
}

/* The joules of the run never fall, and no machine's count twice: each takes a watt (sim.c), node 0
 * and the even ones on one machine. */
static void watch_energy(struct sim *s, const struct session_event *e, int64_t before_mj)
{
    const int64_t mj = e->energy.mj[ENERGY_PACKAGE], n_hosts = 1 + s->n_nodes / 2;
    const int64_t most = n_hosts * ((s->now - s->start) / MS);
    if (mj < before_mj || mj > most)
        sim_fail(s, "event %d: the run took %lld mJ, want %lld to %lld", (int)e->kind,
                 (long long)mj, (long long)before_mj, (long long)most);
    s->run.led.energy = e->energy;
}

void watch_event(struct sim *s, const struct session_event *e)
{
    const int64_t before_mj = s->run.led.energy.mj[ENERGY_PACKAGE];
    int *const count[] = {[EVENT_EPOCH] = &s->n_epoch_events,
                          [EVENT_DONE] = &s->n_done,
                          [EVENT_CHECKPOINT] = &s->n_checkpoints,
                          [EVENT_ERROR] = &s->n_errors,
                          [EVENT_LOST] = &s->n_lost,
                          [EVENT_JOIN] = &s->n_joins,
                          [EVENT_FORM] = &s->n_forms,
                          [EVENT_FIRST_STEP] = &s->n_first};
    char words[128];
    sim_say(s, "event %d: rank %d step %lld %s", (int)e->kind, e->rank, (long long)e->step,
            e->text ? e->text : "");
    if (show_event(e, words, sizeof(words)) > 0)
        sim_show(s, 0, "%s", words);
    if ((size_t)e->kind < ARRAY_LEN(count) && count[e->kind])
        ++*count[e->kind];
    s->run.led.step = max_i64(s->run.led.step, e->step);
    if (e->kind == EVENT_FORM)
        s->run.led = (struct led){.generation = e->form.generation,
                                  .step = e->step,
                                  .epoch_step = min_i64(s->run.led.epoch_step, e->step),
                                  .validated_step = min_i64(s->run.led.validated_step, e->step)};
    watch_account(s, e);
    watch_energy(s, e, before_mj);
    s->run.led.is_done |= e->kind == EVENT_DONE;
    if (e->kind == EVENT_EPOCH)
        s->run.led.epoch_step = e->epoch.step;
    if (e->kind == EVENT_EPOCH && e->epoch.is_validated)
        s->run.led.validated_step = e->epoch.step;
    if (e->kind == EVENT_ERROR) {
        s->last_error.rank = e->rank;
        s->error_node = node_of(e->host);
    }
    if (e->kind == EVENT_CORRUPTION && s->has_audits)
        audit_event(s, e);
    if (e->kind == EVENT_WARNING)
        warned(s, e);
    if (!s->is_elastic)
        return;
    if (e->kind == EVENT_LOST)
        lost(s, e);
    else if (e->kind == EVENT_RECOVERED)
        recovered(s, e);
    else if (e->kind == EVENT_EPOCH)
        epoch(s, e);
    else if (e->kind == EVENT_FORM)
        formed(s, e);
}

/* Each rank's ring is its own; a silent rank has none. */
void watch_incident(struct sim *s, const struct incident *i)
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

/* ---- waiting ---- */

/* The longest time that a stage may last, in ms of the driver's clock.  In training: that may pass
 * without a step. */
static int64_t longest_ms(const struct sim *s, enum stage stage)
{
    enum { LATE = HEARTBEAT_MS + 500, BEATS = 2000 }; /* a silent rank is given its time */
    switch (stage) {
    case STAGE_GATHER:
        return GATHER_MS + READY_MS + LATE;
    case STAGE_WAIT: /* a follower that comes in the last moment may still get ready, and so may the
                        next */
        return s->replace_ms + 2 * READY_MS + LATE;
    case STAGE_PREPARE:
        return PREPARE_MS + LATE;
    case STAGE_FORM:
        return FORM_MS + LATE;
    case STAGE_TRAIN:
        return STEP_MS + BEATS + LATE;
    case STAGE_VALIDATE:
        return VALIDATE_MS + LATE;
    case STAGE_CHECKPOINT:
        return CHECKPOINT_MS + LATE;
    default:
        return STOP_MS + LATE;
    }
}

static void check_waiting(struct sim *s, const struct driver *d, int64_t now)
{
    if (d->stage != s->stage || d->formation.generation != s->stage_generation ||
        s->n_lost != s->stage_lost) {
        s->stage = d->stage;
        s->stage_generation = d->formation.generation;
        s->stage_lost = s->n_lost;
        s->stage_since = now;
        s->due_since = 0;
    }
    if (d->stage == STAGE_TRAIN && s->newest_step != s->stage_step)
        s->stage_since = now;
    s->stage_step = s->newest_step;
    if (d->stage != STAGE_OVER && now - s->stage_since > longest_ms(s, d->stage) * MS)
        sim_fail(s, "the driver has been in %d for %.1f s", (int)d->stage,
                 1e-9 * (double)(now - s->stage_since));
}

/* 1: a rank is to leave, or may join. */
static int is_due(const struct sim *s, const struct driver *d)
{
    int n_ready = 0, n_leaving = 0;
    for (int k = 0; k < d->n_seats; k++) {
        const struct seat *seat = &d->seats[k];
        n_ready += seat->is_taken && seat->opened && !seat->leaving;
        n_leaving += k < d->membership.n_ranks && seat->leaving;
    }
    int n_more = n_ready - d->membership.n_ranks;
    int may_join = d->now_ms - d->formation.formed_ms >= JOIN_INTERVAL_MS && n_leaving == 0 &&
                   n_more > 0 &&
                   (d->membership.n_ranks < s->n ||
                    (d->membership.n_ranks < s->max_ranks && n_more > s->n_spares));
    return d->stage == STAGE_TRAIN && (n_leaving > 0 || may_join);
}

/* A regroup is asked for at the next tick, and done at the end of a step. */
static void check_due(struct sim *s, const struct driver *d, int64_t now)
{
    if (!is_due(s, d)) {
        s->due_since = 0;
    } else if (!s->due_since) {
        s->due_since = now;
        s->due_step = s->newest_step;
    } else if (now - s->due_since > (2000 + 3 * s->step_ms) * MS &&
               s->newest_step > s->due_step + 4) {
        sim_fail(s, "training goes on for %.1f s, and somebody waits to join or to leave",
                 1e-9 * (double)(now - s->due_since));
    }
}

void watch_driver(struct sim *s)
{
    const struct driver *d = s->nodes[0].d;
    int64_t now = sim_clock(s, 0);
    check_waiting(s, d, now);
    check_due(s, d, now);
}

void watch_away(struct sim *s, int k, int64_t ns)
{
    if (k == 0)
        s->stage_since += ns;
}

/* A follower that hears nothing from the driver closes its connection. */
void watch_follower(struct sim *s, int k)
{
    enum { LATE = 1000 };
    const struct node *n = &s->nodes[k];
    unsigned excused = 1u << INJECT_FREEZE | 1u << INJECT_FREEZE_SHORT | 1u << INJECT_CLOCK_LEAP |
                       1u << INJECT_CLOCK_STALL;
    int64_t silent = sim_clock(s, k) - n->heard;
    int64_t most = n->is_asking ? WELCOME_MS : HEARTBEAT_MS;
    if (n->is_finished || !s->links[n->link].is_open[1] || (s->struck[k] & excused))
        return;
    if (silent > (most + LATE) * MS)
        sim_fail(s, "node %d has heard nothing for %.1f s and stays", k, 1e-9 * (double)silent);
}
