/* events - a table of all kinds of events, with the function that writes the fields of each.
 * A line is built whole before it is written. */
#include "report/events.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "report/json_text.h"

struct events_listener {
    events_hear *hear;
    void *arg;
    int hears_rows;
};

struct events {
    struct lines *lines;
    char *device;
    struct events_listener listener[EVENTS_LISTENERS];
    int n_listeners, n_hear_rows;
};

struct events *events_new(struct lines *lines, const char *device)
{
    struct events *e = xcalloc(1, sizeof *e);

    e->lines = lines;
    e->device = xstrdup(device);
    return e;
}

void events_free(struct events *e)
{
    if (!e)
        return;
    lines_free(e->lines);
    free(e->device);
    free(e);
}

void events_listen(struct events *e, events_hear *hear, void *arg, int hears_rows)
{
    ASSERT(e->n_listeners < EVENTS_LISTENERS);
    e->listener[e->n_listeners++] = (struct events_listener){hear, arg, hears_rows};
    e->n_hear_rows += hears_rows;
}

int events_flush(struct events *e, int64_t patience_ms)
{
    return lines_flush(e->lines, patience_ms);
}

int events_check_owner(struct events *e) { return lines_check_owner(e->lines); }

int64_t events_lost(struct events *e) { return lines_lost(e->lines); }

static json_t *event_new(const char *name)
{
    json_t *o = json_object();

    ASSERT(o);
    json_object_set_new(o, "event", json_string(name));
    json_object_set_new(o, "time", json_real(clock_wall_s()));
    return o;
}

/* Any number; null if it is not finite. */
static void events_put_real(json_t *o, const char *key, double v)
{
    json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

static void events_put_number(json_t *o, const char *key, double v)
{
    if (v != NOT_MEASURED)
        events_put_real(o, key, v);
}

static void put_int(json_t *o, const char *key, int64_t v)
{
    json_object_set_new(o, key, json_integer(v));
}

static void events_put_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, json_text(text));
}

static void put_numbers(json_t *o, const char *key, const double *v, int n)
{
    json_t *a = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(a, isfinite(v[i]) ? json_real(v[i]) : json_null());
    json_object_set_new(o, key, a);
}

/* ---- the fields of each kind ---- */

static void put_rank(json_t *o, const struct session_event *ev)
{
    json_object_set_new(o, "rank", ev->rank >= 0 ? json_integer(ev->rank) : json_null());
    if (ev->host)
        events_put_text(o, "host", ev->host);
}

static void put_step(json_t *o, const struct session_event *ev)
{
    json_object_set_new(o, "step", ev->step >= 0 ? json_integer(ev->step) : json_null());
}

static void put_start(json_t *o, const struct session_event *ev)
{
    char data[HASH_TEXT_LEN];

    put_int(o, "nranks", ev->start.n_ranks);
    events_put_text(o, "version", DPTRAIN_VERSION);
    put_int(o, "parameters", ev->start.n_parameters);
    put_int(o, "steps_per_epoch", ev->start.steps_per_epoch);
    hash_to_text(ev->start.data, data);
    events_put_text(o, "data", data);
}

/* Joules by counter, null for one that is not known; no member at all if none is. */
static void put_joules(json_t *o, const char *key, const struct energy_sums *s)
{
    json_t *joules;

    if (!energy_is_known(s))
        return;
    joules = json_object();
    for (int i = 0; i < ENERGY_KINDS; i++)
        json_object_set_new(joules, energy_key(i),
                            s->mj[i] > 0 ? json_real(energy_joules(s, i)) : json_null());
    json_object_set_new(o, key, joules);
}

/* Where the time of the run went, and what it took.  A driver that goes on with the run reads it
 * (report/led.c). */
static void put_account(json_t *o, const struct session_event *ev)
{
    const struct account_times *t = &ev->account;
    json_t *badput;

    if (account_wall_ns(t) == 0)
        return;
    badput = json_object();
    events_put_number(o, "wall_seconds", 1e-9 * (double)account_wall_ns(t));
    events_put_number(o, "goodput", account_goodput(t));
    for (int i = ACCOUNT_PRODUCTIVE + 1; i < ACCOUNT_KINDS; i++)
        events_put_number(badput, account_key(i), 1e-9 * (double)t->ns[i]);
    json_object_set_new(o, "badput", badput);
    events_put_number(o, "rank_hours", account_rank_hours(t));
    if (ev->cost > 0)
        events_put_number(o, "cost", ev->cost);
    put_joules(o, "joules", &ev->energy);
}

/* The ranks from here on, each with its process. */
static void put_processes(json_t *o, const struct session_event *ev)
{
    json_t *ranks = json_array();

    for (int k = 0; ev->form.process && k < ev->form.n_ranks; k++) {
        json_t *p = json_object();

        put_int(p, "rank", k);
        events_put_text(p, "host", ev->form.process[k].host);
        put_int(p, "pid", ev->form.process[k].pid);
        json_array_append_new(ranks, p);
    }
    json_object_set_new(o, "ranks", ranks);
}

static void put_form(json_t *o, const struct session_event *ev)
{
    put_int(o, "generation", ev->form.generation);
    put_int(o, "nranks", ev->form.n_ranks);
    events_put_number(o, "seconds", ev->form.seconds);
    if (ev->form.voters.standby[0]) {
        events_put_text(o, "standby", ev->form.voters.standby);
        put_int(o, "term", ev->form.voters.term);
    }
    put_step(o, ev);
    if (ev->form.live_lr > 0) {
        json_object_set_new(o, "live_lr", json_real(ev->form.live_lr));
        put_int(o, "live_step", ev->form.live_step);
    }
    put_account(o, ev);
    put_processes(o, ev);
}

static void put_recovered(json_t *o, const struct session_event *ev)
{
    put_int(o, "generation", ev->recovered.generation);
    put_int(o, "nranks", ev->recovered.n_ranks);
    events_put_number(o, "seconds", ev->recovered.seconds);
    put_int(o, "steps_lost", ev->recovered.steps_lost);
    if (ev->text)
        events_put_text(o, "source", ev->text);
}

static void put_first_step(json_t *o, const struct session_event *ev)
{
    events_put_number(o, "seconds", ev->first_step.seconds);
    put_numbers(o, "rss_mib", ev->first_step.rss_mib, ev->first_step.n_ranks);
}

static void put_validation(json_t *o, const struct session_epoch *e)
{
    if (!e->is_validated)
        return;
    events_put_number(o, "validation_loss", e->validation_loss);
    events_put_number(o, "validation_accuracy", e->validation_accuracy);
    if (e->has_top5)
        events_put_number(o, "validation_top5", e->validation_top5);
    if (e->has_average) {
        events_put_number(o, "average_validation_loss", e->average_validation_loss);
        events_put_number(o, "average_validation_accuracy", e->average_validation_accuracy);
        if (e->has_top5)
            events_put_number(o, "average_validation_top5", e->average_validation_top5);
    }
    if (e->is_best)
        json_object_set_new(o, "best", json_true());
    if (e->tokens_per_second > 0) /* a model of tokens; the loss is the mean over tokens */
        events_put_number(o, "validation_perplexity", exp(e->validation_loss));
}

/* A figure of session/figures.h. */
#define PUT_FIGURE(member, type, of, key, when, text) \
    if (events_is_told(when, (double)e->member))      \
        _Generic(e->member, double : events_put_number, int64_t : put_int)(o, key, e->member);

static int events_is_told(enum figure_when when, double v) { return when == ALWAYS || v > 0; }

static void put_epoch(json_t *o, const struct session_event *ev)
{
    const struct session_epoch *e = &ev->epoch;

    put_int(o, "epoch", e->epoch);
    put_int(o, "step", e->step);
    EPOCH_FIGURES_FIRST(PUT_FIGURE)
    put_int(o, "data_wait_rank", e->data_wait_rank);
    put_validation(o, e);
    EPOCH_FIGURES_LAST(PUT_FIGURE)
    if (e->is_mean)
        events_put_text(o, "replicas", "mean over ranks");
    put_account(o, ev);
    if (ev->cost > 0)
        events_put_number(o, "epoch_cost", ev->epoch_cost);
    put_joules(o, "epoch_joules", &ev->epoch_energy);
}

static void put_checkpoint(json_t *o, const struct session_event *ev)
{
    put_step(o, ev);
    events_put_text(o, "path", ev->text);
    events_put_number(o, "seconds", ev->checkpoint.seconds);
    events_put_number(o, "exposed_seconds", ev->checkpoint.exposed_seconds);
    put_account(o, ev);
}

static void put_joules_per_epoch(json_t *o, const struct session_event *ev)
{
    struct energy_sums mean;

    for (int i = 0; i < ENERGY_KINDS; i++)
        mean.mj[i] = ev->energy.mj[i] / ev->done.epoch.epoch;
    put_joules(o, "joules_per_epoch", &mean);
}

static void put_done(json_t *o, const struct session_event *ev)
{
    put_step(o, ev);
    events_put_number(o, "seconds", ev->done.seconds);
    if (ev->done.epoch.epoch) {
        events_put_number(o, "train_loss", ev->done.epoch.train_loss);
        put_validation(o, &ev->done.epoch);
    }
    if (ev->done.reason)
        events_put_text(o, "reason", ev->done.reason);
    put_numbers(o, "peak_rss_mib", ev->done.peak_rss_mib, ev->done.n_ranks);
    put_account(o, ev);
    if (ev->cost > 0 && ev->done.epoch.epoch > 0)
        events_put_number(o, "cost_per_epoch", ev->cost / (double)ev->done.epoch.epoch);
    if (ev->done.epoch.epoch > 0)
        put_joules_per_epoch(o, ev);
    if (ev->done.no_energy)
        events_put_text(o, "energy_missing", ev->done.no_energy);
}

static void put_lost(json_t *o, const struct session_event *ev)
{
    put_rank(o, ev);
    events_put_text(o, "reason", ev->text);
}

static void put_notice(json_t *o, const struct session_event *ev)
{
    put_rank(o, ev);
    events_put_text(o, "source", ev->text);
    json_object_set_new(o, "seconds",
                        ev->notice.seconds < 0 ? json_null() : json_integer(ev->notice.seconds));
}

static void put_drain(json_t *o, const struct session_event *ev)
{
    put_rank(o, ev);
    json_object_set_new(o, "spare", ev->drain.spare ? json_integer(ev->drain.spare) : json_null());
    put_int(o, "pid", ev->drain.pid);
    events_put_text(o, "when", ev->text);
}

static void put_straggler(json_t *o, const struct session_event *ev)
{
    put_rank(o, ev);
    put_step(o, ev);
    events_put_number(o, "factor", ev->straggler.factor);
}

static void put_rebalance(json_t *o, const struct session_event *ev)
{
    json_t *shares = json_array();

    put_step(o, ev);
    for (int i = 0; i < ev->rebalance.n_ranks; i++)
        json_array_append_new(shares, json_integer(llrint(ev->rebalance.share[i])));
    json_object_set_new(o, "shares", shares);
}

static void put_buckets(json_t *o, const struct session_event *ev)
{
    put_step(o, ev);
    put_int(o, "bucket_bytes", ev->buckets.bucket_bytes);
    put_int(o, "n_buckets", ev->buckets.n_buckets);
}

static void put_corruption(json_t *o, const struct session_event *ev)
{
    put_rank(o, ev);
    put_step(o, ev);
    events_put_text(o, "what", corruption_name(ev->corruption.what));
    json_object_set_new(
        o, "share", ev->corruption.share >= 0 ? json_integer(ev->corruption.share) : json_null());
    json_object_set_new(o, "healed", json_boolean(ev->corruption.is_healed));
    events_put_text(o, "message", ev->text);
}

static void put_spike(json_t *o, const struct session_event *ev)
{
    put_step(o, ev);
    events_put_real(o, "loss", ev->spike.loss);
    events_put_real(o, "mean", ev->spike.mean);
    events_put_real(o, "deviation", ev->spike.deviation);
    events_put_text(o, "action", ev->text);
    json_object_set_new(o, "back_to",
                        ev->spike.back_to >= 0 ? json_integer(ev->spike.back_to) : json_null());
}

static void put_live(json_t *o, const struct session_event *ev)
{
    put_step(o, ev);
    events_put_text(o, "key", "optimizer.lr");
    json_object_set_new(o, "value", json_real(ev->live.lr));
}

static void put_warning(json_t *o, const struct session_event *ev)
{
    put_rank(o, ev);
    put_step(o, ev);
    events_put_text(o, "message", ev->text);
}

static void events_put_error(json_t *o, const struct session_event *ev)
{
    put_warning(o, ev);
    events_put_text(o, "phase", ev->phase < PHASE_COUNT ? phase_name(ev->phase) : NULL);
}

static void events_put_standby(json_t *o, const struct session_event *ev)
{
    events_put_text(o, "address", ev->text);
    if (!ev->standby.standby[0])
        return;
    events_put_text(o, "id", ev->standby.standby);
    put_int(o, "term", ev->standby.term);
    put_int(o, "generation", ev->standby.generation);
    put_int(o, "nranks", ev->standby.n_ranks);
}

static void put_leader(json_t *o, const struct session_event *ev)
{
    put_int(o, "term", ev->leader.term);
    events_put_text(o, "from", ev->host);
    events_put_text(o, "to", ev->text);
}

static void put_inject(json_t *o, const struct session_event *ev)
{
    events_put_text(o, "spec", ev->inject.spec);
    events_put_error(o, ev);
}

static const struct kind {
    const char *name;
    void (*put)(json_t *o, const struct session_event *ev);
} kinds[] = {
    [EVENT_START] = {"start", put_start},
    [EVENT_JOIN] = {"join", put_rank},
    [EVENT_FORM] = {"form", put_form},
    [EVENT_FIRST_STEP] = {"first_step", put_first_step},
    [EVENT_EPOCH] = {"epoch", put_epoch},
    [EVENT_CHECKPOINT] = {"checkpoint", put_checkpoint},
    [EVENT_LOST] = {"lost", put_lost},
    [EVENT_NOTICE] = {"notice", put_notice},
    [EVENT_DRAIN] = {"drain", put_drain},
    [EVENT_RECOVERED] = {"recovered", put_recovered},
    [EVENT_STRAGGLER] = {"straggler", put_straggler},
    [EVENT_REBALANCE] = {"rebalance", put_rebalance},
    [EVENT_BUCKETS] = {"buckets", put_buckets},
    [EVENT_CORRUPTION] = {"corruption", put_corruption},
    [EVENT_SPIKE] = {"spike", put_spike},
    [EVENT_PAUSE] = {"pause", put_step},
    [EVENT_GO] = {"go", put_step},
    [EVENT_LIVE] = {"live", put_live},
    [EVENT_INJECT] = {"inject", put_inject},
    [EVENT_WARNING] = {"warning", put_warning},
    [EVENT_ERROR] = {"error", events_put_error},
    [EVENT_DONE] = {"done", put_done},
    [EVENT_STANDBY] = {"standby", events_put_standby},
    [EVENT_LEADER] = {"leader", put_leader},
};

/* A row of metrics.csv.  Its loss may be -1, which is no sign here. */
static void put_row(json_t *o, const struct session_event *ev)
{
    put_int(o, "step", ev->row.step);
    put_int(o, "epoch", ev->row.epoch);
    events_put_real(o, "loss", ev->row.loss);
    events_put_real(o, "learning_rate", ev->row.learning_rate);
    events_put_real(o, "grad_norm", ev->row.grad_norm);
    events_put_real(o, "samples_per_second", ev->row.samples_per_second);
}

static void events_tell(struct events *e, const char *line, int is_row)
{
    const size_t n = strlen(line);

    for (int i = 0; i < e->n_listeners; i++)
        if (!is_row || e->listener[i].hears_rows)
            e->listener[i].hear(e->listener[i].arg, line, n, is_row);
}

static void events_add_row(struct events *e, const struct session_event *ev)
{
    json_t *o;
    char *text;

    if (!e->n_hear_rows)
        return;
    o = event_new("row");
    put_row(o, ev);
    text = json_text_of(o);
    events_tell(e, text, 1);
    free(text);
}

void events_add(struct events *e, const struct session_event *ev)
{
    json_t *o;
    char *text;

    if (ev->kind == EVENT_ROW)
        events_add_row(e, ev);
    if (ev->kind == EVENT_PROGRESS || ev->kind == EVENT_ROW || ev->kind == EVENT_HASHES ||
        ev->kind == EVENT_REFUSED || ev->kind == EVENT_SPANS || ev->kind == EVENT_TRACED)
        return;
    ASSERT((size_t)ev->kind < ARRAY_LEN(kinds) && kinds[ev->kind].name);
    o = event_new(kinds[ev->kind].name);
    kinds[ev->kind].put(o, ev);
    if (ev->kind == EVENT_START)
        events_put_text(o, "device", e->device);
    text = json_text_of(o);
    lines_add(e->lines, text);
    events_tell(e, text, 0);
    free(text);
}
