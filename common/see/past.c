/* Each line of events.jsonl becomes the event of the session that it was written from, as far as
 * session/latest.h asks for it.  So the numbers follow by the same rules as in the driver. */
#include "see/past.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "job/job.h"
#include "report/incidents.h"
#include "report/led.h"
#include "report/lines.h"

/* ---- events ---- */

static int64_t past_int(const json_t *o, const char *key)
{
    const int64_t most = INT64_MAX / 4;

    return max_i64(0, min_i64(json_integer_value(json_object_get(o, key)), most));
}

static double past_real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void past_start(struct past *p, const json_t *o)
{
    struct latest *l = &p->status.latest;
    const char *device = json_string_value(json_object_get(o, "device"));

    l->is_done = l->has_failed = 0; /* another driver goes on */
    l->steps_per_epoch = past_int(o, "steps_per_epoch");
    p->status.n_ranks = (int)min_i64(past_int(o, "nranks"), CLUSTER_MAX_RANKS);
    p->status.n_here = 0;
    p->device = device ? arena_strdup(&p->texts, device) : NULL;
}

static void past_take_rank(struct past *p, int rank, const json_t *o)
{
    const char *host = json_string_value(json_object_get(o, "host"));

    p->status.rank[rank] = (struct status_rank){
        .rank = rank,
        .role = STATUS_MEMBER,
        .host = host ? arena_strdup(&p->texts, host) : NULL,
        .device = rank == 0 ? p->device : NULL,
        .pid = past_int(o, "pid"),
        .phase = PHASE_IDLE,
        .bucket = -1,
        .generation = p->status.generation,
    };
}

static void past_form(struct past *p, const json_t *o)
{
    const json_t *ranks = json_object_get(o, "ranks");
    struct status *s = &p->status;
    const int n = (int)min_i64((int64_t)json_array_size(ranks), CLUSTER_MAX_RANKS);

    s->generation = past_int(o, "generation");
    s->n_ranks = s->n_here = (int)min_i64(past_int(o, "nranks"), CLUSTER_MAX_RANKS);
    free(s->rank);
    s->n = n;
    s->rank = xcalloc((size_t)n + 1, sizeof *s->rank);
    for (int i = 0; i < n; i++)
        past_take_rank(p, i, json_array_get(ranks, (size_t)i));
}

static void past_lost(struct past *p, const json_t *o)
{
    const json_t *rank = json_object_get(o, "rank");
    struct status *s = &p->status;

    if (!json_is_integer(rank))
        return;
    for (int i = 0; i < s->n; i++)
        if (s->rank[i].rank == json_integer_value(rank) && s->rank[i].role != STATUS_MISSING) {
            s->rank[i].role = STATUS_MISSING;
            s->n_here -= s->n_here > 0;
        }
}

static void past_epoch(struct past *p, const json_t *o, struct session_event *ev)
{
    struct session_epoch *e = &ev->epoch;
    const double loss = past_real(o, "validation_loss");

    e->epoch = past_int(o, "epoch");
    e->step = past_int(o, "step");
    e->n_samples = past_int(o, "samples");
    e->is_validated = json_object_get(o, "validation_loss") != NULL;
    e->validation_loss = loss;
    e->validation_accuracy = past_real(o, "validation_accuracy");
    p->best_loss = fmin(p->best_loss, loss); /* fmin and fmax pass over a NAN */
    p->best_accuracy = fmax(p->best_accuracy, e->validation_accuracy);
    p->status.latest.loss = past_real(o, "train_loss");
    p->status.latest.samples_per_second = past_real(o, "samples_per_second");
    p->status.data_wait_share = fmax(0, past_real(o, "data_wait_share"));
}

/* An older version did not write steps_per_epoch. */
static void past_done(struct past *p, const json_t *o, struct session_event *ev)
{
    const char *reason = json_string_value(json_object_get(o, "reason"));
    struct latest *l = &p->status.latest;

    ev->step = past_int(o, "step");
    if (!l->steps_per_epoch && l->epoch > 0 && reason && !strcmp(reason, "epochs"))
        l->steps_per_epoch = ev->step / l->epoch;
}

static enum phase past_phase(const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "phase"));
    enum phase phase = 0;

    while (phase < PHASE_COUNT && (!name || strcmp(phase_name(phase), name) != 0))
        phase++;
    return phase;
}

/* The kinds of which latest.h takes note. */
static const struct {
    const char *name;
    enum event_kind kind;
} past_kinds[] = {
    {"start", EVENT_START}, {"form", EVENT_FORM},           {"epoch", EVENT_EPOCH},
    {"lost", EVENT_LOST},   {"recovered", EVENT_RECOVERED}, {"error", EVENT_ERROR},
    {"done", EVENT_DONE},
};

static void past_note(struct past *p, const json_t *o, struct session_event *ev)
{
    const json_t *step = json_object_get(o, "step");

    ev->step = json_is_integer(step) ? past_int(o, "step") : -1;
    ev->phase = past_phase(o);
    if (ev->kind == EVENT_START) {
        past_start(p, o);
        return;
    }
    if (ev->kind == EVENT_FORM)
        past_form(p, o);
    else if (ev->kind == EVENT_LOST)
        past_lost(p, o);
    else if (ev->kind == EVENT_EPOCH)
        past_epoch(p, o, ev);
    else if (ev->kind == EVENT_DONE)
        past_done(p, o, ev);
    latest_note(&p->status.latest, ev, 0);
}

static void past_note_cost(struct past *p, const json_t *o)
{
    const double cost = past_real(o, "cost");
    const char *missing = json_string_value(json_object_get(o, "energy_missing"));

    if (json_is_object(json_object_get(o, "badput")))
        p->status.account = led_times(o);
    if (json_is_object(json_object_get(o, "joules")))
        p->status.energy = led_energy(o);
    if (missing) {
        free(p->status.no_energy);
        p->status.no_energy = xstrdup(missing);
    }
    if (cost > 0)
        p->status.cost = cost;
}

static void past_event(void *arg, const char *line, size_t n)
{
    struct past *p = arg;
    json_t *o = json_loadb(line, n, 0, NULL);
    const char *name = json_string_value(json_object_get(o, "event"));
    const double time = past_real(o, "time");

    for (size_t i = 0; name && i < ARRAY_LEN(past_kinds); i++)
        if (!strcmp(name, past_kinds[i].name))
            past_note(p, o, &(struct session_event){.kind = past_kinds[i].kind, .rank = -1});
    if (name && !strcmp(name, "checkpoint"))
        p->status.latest.step = max_i64(p->status.latest.step, past_int(o, "step"));
    if (name)
        past_note_cost(p, o);
    if (name && time > 0) {
        p->begun_s = p->begun_s > 0 ? p->begun_s : time;
        p->newest_s = time;
    }
    json_decref(o);
}

/* ---- the newest row ---- */

static void past_row(void *arg, const char *line, size_t n)
{
    struct past *p = arg;
    struct latest *l = &p->status.latest;
    long long step, epoch;
    double loss, rate, norm, speed;

    (void)n;
    if (sscanf(line, "%lld,%lld,%lf,%lf,%lf,%lf", &step, &epoch, &loss, &rate, &norm, &speed) != 6)
        return;
    l->loss = loss;
    l->learning_rate = rate;
    l->grad_norm = norm;
    l->samples_per_second = speed;
    l->step = max_i64(l->step, step);
    l->epoch = max_i64(l->epoch, epoch);
}

static int past_read_rows(struct past *p, const char *run_dir, struct err *err)
{
    char *path = xasprintf("%s/metrics.csv", run_dir);
    int rc = lines_each(path, past_row, p, err);

    free(path);
    return rc;
}

/* ---- the whole ---- */

/* The forecast by the rules of session/driver_account.c. */
static void past_forecast(struct status *s, double price)
{
    const int64_t all = latest_total_steps(&s->latest), done = max_i64(s->latest.step, 0);
    const int64_t left = s->latest.is_done ? 0 : max_i64(all - done, 0);

    if (price > 0 && all > 0)
        s->cost_forecast = fmax(0, price * account_forecast(&s->account, done, left));
}

static void past_begin(struct past *p, const char *run_dir, double *price)
{
    char *path = xasprintf("%s/job.yaml", run_dir);
    struct latest_options o = {0};
    struct job *job = NULL;
    struct err err;

    if (job_load(path, NULL, 0, &job, &err) == 0) {
        o.n_epochs = job->train.epochs;
        o.max_steps = job->train.max_steps;
        o.global_batch = job->train.global_batch;
        p->status.name = arena_strdup(&p->texts, job->name);
        *price = job->report.price_per_rank_hour;
    } else {
        log_warn("the number of epochs and the price are not known: %s", err.msg);
    }
    latest_init(&p->status.latest, &o);
    p->status.run_dir = arena_strdup(&p->texts, run_dir);
    job_free(job);
    free(path);
}

static const char *past_stage(const struct past *p, const char *run_dir)
{
    const struct latest *l = &p->status.latest;
    struct owner owner;
    struct err ignored;

    if (l->is_done)
        return "done";
    if (l->has_failed)
        return "failed";
    if (owner_read(run_dir, &owner, &ignored) == 0 && owner_lives(&owner) == 0)
        return "stopped";
    return "running when last heard";
}

static int past_count_incidents(const char *run_dir)
{
    struct buf list = {0};
    struct err ignored;
    json_t *rows = NULL;
    int n;

    if (incidents_list(run_dir, &list, &ignored) == 0)
        rows = json_loadb((const char *)list.data, list.len, 0, NULL);
    n = (int)json_array_size(rows);
    json_decref(rows);
    buf_fini(&list);
    return n;
}

static void past_settle(struct past *p, const char *run_dir, double now_s)
{
    struct status *s = &p->status;
    const double age = fmax(0, now_s - p->newest_s);

    s->stage = past_stage(p, run_dir);
    s->n_incidents = past_count_incidents(run_dir);
    s->stage_s = age;
    s->step = s->latest.step;
    s->epoch = max_i64(0, s->latest.epoch);
    s->step_age_s = -1;
    s->eta_s = NAN;
    for (int i = 0; i < s->n; i++) {
        s->rank[i].step = s->step;
        s->rank[i].phase_s = s->rank[i].heard_s = age;
    }
}

int past_read(const char *run_dir, double now_s, struct past *out, struct err *err)
{
    char *events = xasprintf("%s/events.jsonl", run_dir);
    double price = 0;
    int rc;

    *out = (struct past){.best_loss = NAN, .best_accuracy = NAN};
    past_begin(out, run_dir, &price);
    rc = lines_each(events, past_event, out, err);
    free(events);
    if (rc == 0 && out->begun_s == 0)
        rc = err_set(err, ERR_CONFIG,
                     "%s holds no run: its events.jsonl is missing, or has no event", run_dir);
    if (rc == 0)
        rc = past_read_rows(out, run_dir, err);
    past_forecast(&out->status, price);
    past_settle(out, run_dir, now_s);
    if (rc < 0)
        past_fini(out);
    return rc;
}

void past_fini(struct past *p)
{
    status_fini(&p->status);
    arena_fini(&p->texts);
    *p = (struct past){0};
}
