/* The table of ranks: columns are as wide as their widest cell.
 * The JSON form has the same numbers, with null for those that are not known. */
#include "report/status.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/util.h"
#include "report/json_text.h"
#include "report/table.h"

/* ---- a table ---- */

enum { N_COLUMNS = 14, CELL = 64 };

static const struct {
    const char *title;
    int is_text;  /* to the left */
    int may_lack; /* left out where no rank knows it */
} columns[N_COLUMNS] = {
    {"rank", 0, 0},     {"host", 1, 0}, {"pid", 0, 0},    {"device", 1, 0},  {"state", 1, 0},
    {"phase", 1, 0},    {"step", 0, 0}, {"bucket", 0, 0}, {"step ms", 0, 0}, {"heard s", 0, 0},
    {"slowness", 0, 0}, {"MiB", 0, 1},  {"cpus", 0, 1},   {"gen", 0, 0},
};

struct row {
    char cell[N_COLUMNS][CELL];
};

static void put_clean(char out[CELL], const char *text)
{
    snprintf(out, CELL, "%s", text ? text : "-");
    text_clean(out);
}

static void put_real(char out[CELL], const char *fmt, double v)
{
    if (v > 0)
        snprintf(out, CELL, fmt, v);
    else
        snprintf(out, CELL, "-");
}

static void put_count(char out[CELL], int64_t v)
{
    if (v >= 0)
        snprintf(out, CELL, "%lld", (long long)v);
    else
        snprintf(out, CELL, "-");
}

static void status_fill_row(const struct status_rank *r, struct row *row)
{
    for (int i = 0; i < N_COLUMNS; i++)
        snprintf(row->cell[i], CELL, "-");
    if (r->spare)
        snprintf(row->cell[0], CELL, "spare%d", r->spare); /* as --drain takes it */
    else
        put_count(row->cell[0], r->rank);
    put_clean(row->cell[4], status_role_name(r->role));
    if (r->role == STATUS_MISSING)
        return;
    put_clean(row->cell[1], r->host);
    put_count(row->cell[2], r->pid);
    put_clean(row->cell[3], r->device);
    put_clean(row->cell[5], phase_name(r->phase));
    put_count(row->cell[6], r->step);
    put_count(row->cell[7], r->bucket);
    put_real(row->cell[8], "%.1f", r->step_ms);
    snprintf(row->cell[9], CELL, "%.1f", r->heard_s);
    put_real(row->cell[10], r->is_straggler ? "%.2f*" : "%.2f", r->factor);
    put_real(row->cell[11], "%.0f", ceil((double)r->usage.resident_kib / 1024));
    put_real(row->cell[12], "%.2f", 1e-3 * (double)r->usage.cpu_permille);
    put_count(row->cell[13], r->generation);
}

/* 1: no rank knows a column that may be left out. */
static int status_lacks(const struct row *rows, int n, int column)
{
    if (!columns[column].may_lack)
        return 0;
    for (int i = 1; i < n; i++) /* behind the titles */
        if (strcmp(rows[i].cell[column], "-") != 0)
            return 0;
    return 1;
}

static void status_widen(int width[N_COLUMNS], const struct row *row)
{
    for (int i = 0; i < N_COLUMNS; i++)
        width[i] = (int)max_i64(width[i], (int64_t)strlen(row->cell[i]));
}

static void status_put_row(const struct row *row, const int width[N_COLUMNS], struct buf *out)
{
    for (int i = 0; i < N_COLUMNS; i++) {
        int w = columns[i].is_text && i < N_COLUMNS - 1 ? -width[i] : width[i];

        if (w == 0) /* left out */
            continue;
        buf_printf(out, i ? "  %*s" : "%*s", w, row->cell[i]);
    }
    buf_printf(out, "\n");
}

static void fill_titles(struct row *row)
{
    for (int i = 0; i < N_COLUMNS; i++)
        snprintf(row->cell[i], CELL, "%s", columns[i].title);
}

void status_put_line(const struct status *s, struct buf *out)
{
    buf_printf(out, "%s for %.1f s, generation %lld, epoch %lld, step %lld, %d of %d ranks\n",
               s->stage, s->stage_s, (long long)s->generation, (long long)s->epoch,
               (long long)s->step, s->n_here, s->n_ranks);
}

/* The rows for which `is_shown` is set; NULL: all rows. */
static void put_table(const struct status *s, const char *is_shown, struct buf *out)
{
    struct row *rows = xcalloc((size_t)s->n + 1, sizeof *rows);
    int width[N_COLUMNS] = {0}, n = 1;

    fill_titles(&rows[0]);
    for (int i = 0; i < s->n; i++)
        if (!is_shown || is_shown[i])
            status_fill_row(&s->rank[i], &rows[n++]);
    for (int i = 0; i < n; i++)
        status_widen(width, &rows[i]);
    for (int i = 0; i < N_COLUMNS; i++)
        if (status_lacks(rows, n, i))
            width[i] = 0;
    for (int i = 0; i < n; i++)
        status_put_row(&rows[i], width, out);
    free(rows);
}

static void put_data_wait(const struct status *s, struct buf *out)
{
    char text[128];

    table_data_wait_text(s->data_wait_share, s->data_wait_cause, 0, text, sizeof text);
    if (text[0])
        buf_printf(out, "%s\n", text);
}

static void put_goodput(const struct status *s, struct buf *out)
{
    char text[256];

    table_goodput_text(&s->account, text, sizeof text);
    if (text[0])
        buf_printf(out, "goodput %s\n", text);
}

static void put_cost(const struct status *s, struct buf *out)
{
    if (s->cost > 0)
        buf_printf(out, "cost %.2f so far", s->cost);
    if (s->cost > 0 && s->cost_forecast > 0)
        buf_printf(out, ", about %.2f for the whole run", s->cost_forecast);
    if (s->cost > 0)
        buf_printf(out, "\n");
}

static void put_energy(const struct status *s, struct buf *out)
{
    char text[512];

    table_energy_text(&s->energy, s->no_energy, text, sizeof text);
    if (text[0])
        buf_printf(out, "energy %s\n", text);
}

static void status_put_standby(const struct status *s, struct buf *out)
{
    if (s->standby)
        buf_printf(out, "standby at %s%s\n", s->standby,
                   s->standby_votes ? "" : ", which has no vote yet");
}

void status_put_text(const struct status *s, struct buf *out)
{
    status_put_line(s, out);
    put_table(s, NULL, out);
    put_data_wait(s, out);
    put_goodput(s, out);
    put_cost(s, out);
    put_energy(s, out);
    status_put_standby(s, out);
}

/* Mark ranks that are of note, or those that are not, while there is room. */
static void status_mark(const struct status *s, int is_of_note, char *is_shown, int *room)
{
    for (int i = 0; i < s->n; i++) {
        const struct status_rank *r = &s->rank[i];

        if (*room == 0)
            return;
        if ((r->role != STATUS_MEMBER || r->is_straggler) != is_of_note)
            continue;
        is_shown[i] = 1;
        --*room;
    }
}

void status_put_brief(const struct status *s, int most, struct buf *out)
{
    char *is_shown = xcalloc((size_t)s->n + 1, 1);
    int room = most;

    status_mark(s, 1, is_shown, &room);
    status_mark(s, 0, is_shown, &room);
    status_put_line(s, out);
    put_table(s, is_shown, out);
    put_data_wait(s, out);
    put_goodput(s, out);
    put_cost(s, out);
    put_energy(s, out);
    status_put_standby(s, out);
    if (s->n > most)
        buf_printf(out, "and %d more: dpdriver --status shows all\n", s->n - most);
    free(is_shown);
}

/* ---- JSON ---- */

static json_t *real_or_null(double v) { return v > 0 ? json_real(v) : json_null(); }

/* Joules by counter. */
static json_t *joules_json(const struct energy_sums *s)
{
    json_t *o = json_object();

    for (int i = 0; i < ENERGY_KINDS; i++)
        json_object_set_new(o, energy_key(i), real_or_null(energy_joules(s, i)));
    return o;
}

static json_t *bytes_or_null(int64_t kib)
{
    return kib > 0 ? json_integer(1024 * kib) : json_null();
}

static json_t *gpu_json(const struct usage *u)
{
    json_t *o;

    if (u->gpu_memory_kib == 0 && u->gpu_permille == 0 && u->gpu_mw == 0)
        return json_null();
    o = json_object();
    json_object_set_new(o, "use", real_or_null(1e-3 * (double)u->gpu_permille));
    json_object_set_new(o, "memory_bytes", bytes_or_null(u->gpu_memory_kib));
    json_object_set_new(o, "celsius", real_or_null((double)u->gpu_celsius));
    json_object_set_new(o, "watts", real_or_null(1e-3 * (double)u->gpu_mw));
    json_object_set_new(o, "clock_mhz", real_or_null((double)u->gpu_clock_mhz));
    return o;
}

static void put_usage(const struct status_rank *r, json_t *o)
{
    json_object_set_new(o, "memory_bytes", bytes_or_null(r->usage.resident_kib));
    json_object_set_new(o, "cpu", real_or_null(1e-3 * (double)r->usage.cpu_permille));
    json_object_set_new(o, "gpu", gpu_json(&r->usage));
    json_object_set_new(o, "joules", joules_json(&r->energy));
}

static json_t *rank_json(const struct status_rank *r)
{
    json_t *o = json_pack("{s:s}", "role", status_role_name(r->role));

    json_object_set_new(o, "rank", r->spare ? json_null() : json_integer(r->rank));
    json_object_set_new(o, "spare", r->spare ? json_integer(r->spare) : json_null());
    if (r->role == STATUS_MISSING)
        return o;
    json_object_set_new(o, "host", json_text(r->host));
    json_object_set_new(o, "pid", json_integer(r->pid));
    json_object_set_new(o, "device", json_text(r->device));
    json_object_set_new(o, "phase", json_string(phase_name(r->phase)));
    json_object_set_new(o, "phase_seconds", json_real(r->phase_s));
    json_object_set_new(o, "step", json_integer(r->step));
    json_object_set_new(o, "bucket", r->bucket >= 0 ? json_integer(r->bucket) : json_null());
    json_object_set_new(o, "step_ms", real_or_null(r->step_ms));
    json_object_set_new(o, "heard_seconds", json_real(r->heard_s));
    json_object_set_new(o, "factor", real_or_null(r->factor));
    json_object_set_new(o, "straggler", json_boolean(r->is_straggler));
    json_object_set_new(o, "generation", json_integer(r->generation));
    put_usage(r, o);
    return o;
}

static json_t *standby_json(const struct status *s)
{
    return s->standby ? json_pack("{s:o, s:b}", "address", json_text(s->standby), "votes",
                                  s->standby_votes)
                      : json_null();
}

/* Seconds by cause. */
static json_t *badput_json(const struct account_times *t)
{
    json_t *o = json_object();

    for (int i = ACCOUNT_PRODUCTIVE + 1; i < ACCOUNT_KINDS; i++)
        json_object_set_new(o, account_key(i), json_real(1e-9 * (double)t->ns[i]));
    return o;
}

static void status_put_account(const struct account_times *t, json_t *o)
{
    const int is_known = account_wall_ns(t) > 0;

    json_object_set_new(o, "goodput", is_known ? json_real(account_goodput(t)) : json_null());
    json_object_set_new(o, "badput", is_known ? badput_json(t) : json_null());
}

static json_t *finite_or_null(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *count_or_null(int64_t v) { return v > 0 ? json_integer(v) : json_null(); }

/* How far the run is, and its newest numbers. */
static void status_put_latest(const struct status *s, json_t *o)
{
    const struct latest *l = &s->latest;
    const int64_t total = latest_total_steps(l);

    json_object_set_new(o, "run", json_text(s->name));
    json_object_set_new(o, "run_dir", json_text(s->run_dir));
    json_object_set_new(o, "n_epochs", count_or_null(l->o.n_epochs));
    json_object_set_new(o, "total_steps", count_or_null(total));
    json_object_set_new(o, "progress",
                        total ? json_real(fmin(1, (double)max_i64(s->step, 0) / (double)total))
                              : json_null());
    json_object_set_new(o, "eta_seconds", finite_or_null(s->eta_s));
    json_object_set_new(o, "step_age_seconds",
                        s->step_age_s < 0 ? json_null() : json_real(s->step_age_s));
    json_object_set_new(o, "loss", finite_or_null(l->loss));
    json_object_set_new(o, "samples_per_second", finite_or_null(l->samples_per_second));
    json_object_set_new(o, "learning_rate", finite_or_null(l->learning_rate));
    json_object_set_new(o, "grad_norm", finite_or_null(l->grad_norm));
    json_object_set_new(o, "validation_loss", finite_or_null(l->validation_loss));
    json_object_set_new(o, "validation_accuracy", finite_or_null(l->validation_accuracy));
    json_object_set_new(o, "ranks_lost", json_integer(l->n_lost));
    json_object_set_new(o, "failed", json_boolean(l->has_failed));
    json_object_set_new(o, "incidents", json_integer(s->n_incidents));
}

static json_t *status_json(const struct status *s)
{
    json_t *ranks = json_array(), *o;

    for (int i = 0; i < s->n; i++)
        json_array_append_new(ranks, rank_json(&s->rank[i]));
    o = json_pack("{s:s, s:f, s:I, s:I, s:I, s:i, s:i, s:f, s:o}", "stage", s->stage,
                  "stage_seconds", s->stage_s, "generation", (json_int_t)s->generation, "epoch",
                  (json_int_t)s->epoch, "step", (json_int_t)s->step, "nranks", s->n_ranks, "here",
                  s->n_here, "data_wait_share", s->data_wait_share, "standby", standby_json(s));
    status_put_latest(s, o);
    status_put_account(&s->account, o);
    json_object_set_new(o, "cost", real_or_null(s->cost));
    json_object_set_new(o, "cost_forecast", real_or_null(s->cost_forecast));
    json_object_set_new(o, "joules", joules_json(&s->energy));
    json_object_set_new(o, "energy_missing", s->no_energy ? json_text(s->no_energy) : json_null());
    json_object_set_new(o, "ranks", ranks);
    return o;
}

void status_put_json(const struct status *s, struct buf *out)
{
    json_t *o = status_json(s);
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));

    ASSERT(text);
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(o);
}

void status_put_both(const struct status *s, int most, struct buf *out)
{
    struct buf table = {0};
    json_t *o;
    char *text;

    if (most)
        status_put_brief(s, most, &table);
    else
        status_put_text(s, &table);
    o = json_pack("{s:s, s:o}", "text", buf_cstr(&table), "status", status_json(s));
    text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    ASSERT(text);
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(o);
    buf_fini(&table);
}
