/* Tables of several runs: how each went, and the keys in which their jobs differ.  A thing that a
 * run does not have is a dash. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "report/meter.h"
#include "see/compare_impl.h"
#include "see/curves_impl.h"

/* ---- results ---- */

enum { COMPARE_CELL = 64 };

static void compare_real(char out[COMPARE_CELL], const char *format, double v)
{
    snprintf(out, COMPARE_CELL, isfinite(v) ? format : "–", v);
}

static void compare_state(const struct compare_run *r, char out[COMPARE_CELL])
{
    json_t *o = r->from->status ? json_loads(r->from->status, 0, NULL) : NULL;
    const char *stage = json_string_value(json_object_get(o, "stage"));

    snprintf(out, COMPARE_CELL, "%s%s", stage ? "running: " : "",
             stage ? stage : r->past.status.stage);
    json_decref(o);
}

static void compare_steps(const struct compare_run *r, char out[COMPARE_CELL])
{
    const int64_t all = latest_total_steps(&r->past.status.latest);

    if (all)
        snprintf(out, COMPARE_CELL, "%lld of %lld", (long long)max_i64(0, r->past.status.step),
                 (long long)all);
    else
        snprintf(out, COMPARE_CELL, "%lld", (long long)max_i64(0, r->past.status.step));
}

static void compare_train_loss(const struct compare_run *r, char out[COMPARE_CELL])
{
    compare_real(out, "%.4g", r->past.status.latest.loss);
}

static void compare_best_loss(const struct compare_run *r, char out[COMPARE_CELL])
{
    compare_real(out, "%.4g", r->past.best_loss);
}

static void compare_best_accuracy(const struct compare_run *r, char out[COMPARE_CELL])
{
    compare_real(out, "%.2f %%", 100 * r->past.best_accuracy);
}

static double compare_wall_s(const struct compare_run *r)
{
    return 1e-9 * (double)account_wall_ns(&r->past.status.account);
}

static void compare_wall(const struct compare_run *r, char out[COMPARE_CELL])
{
    if (compare_wall_s(r) > 0)
        format_duration(out, COMPARE_CELL, compare_wall_s(r));
}

static void compare_goodput(const struct compare_run *r, char out[COMPARE_CELL])
{
    if (compare_wall_s(r) > 0)
        compare_real(out, "%.1f %%", 100 * account_goodput(&r->past.status.account));
}

static void compare_speed(const struct compare_run *r, char out[COMPARE_CELL])
{
    if (isfinite(r->past.status.latest.samples_per_second))
        format_count(out, COMPARE_CELL, r->past.status.latest.samples_per_second);
}

static void compare_ranks(const struct compare_run *r, char out[COMPARE_CELL])
{
    snprintf(out, COMPARE_CELL, "%d", r->past.status.n_ranks);
}

static void compare_lost(const struct compare_run *r, char out[COMPARE_CELL])
{
    snprintf(out, COMPARE_CELL, "%lld", (long long)r->past.status.latest.n_lost);
}

static void compare_cost(const struct compare_run *r, char out[COMPARE_CELL])
{
    if (r->past.status.cost > 0)
        compare_real(out, "%.2f", r->past.status.cost);
}

/* The sum of the counters that there are; status.no_energy says which are not. */
static void compare_energy(const struct compare_run *r, char out[COMPARE_CELL])
{
    const struct energy_sums *s = &r->past.status.energy;
    double joules = 0;

    for (int i = 0; i < ENERGY_KINDS; i++)
        joules += energy_joules(s, i);
    if (energy_is_known(s))
        compare_real(out, "%.4g", 1e-3 * joules);
}

/* A cell that its function leaves alone is a dash; a column of dashes is left out. */
static const struct {
    const char *title;
    void (*put)(const struct compare_run *r, char out[COMPARE_CELL]);
} compare_columns[] = {
    {"state", compare_state},
    {"steps", compare_steps},
    {"training loss", compare_train_loss},
    {"best validation loss", compare_best_loss},
    {"best validation accuracy", compare_best_accuracy},
    {"time", compare_wall},
    {"goodput", compare_goodput},
    {"samples/s", compare_speed},
    {"ranks", compare_ranks},
    {"ranks lost", compare_lost},
    {"energy, kJ", compare_energy},
    {"cost", compare_cost},
};

static void compare_cell(const struct compare_run *r, size_t column, char out[COMPARE_CELL])
{
    snprintf(out, COMPARE_CELL, "–");
    compare_columns[column].put(r, out);
}

static int compare_has(const struct compare *c, size_t column)
{
    char cell[COMPARE_CELL];
    int has = 0;

    for (int i = 0; i < c->n; i++) {
        compare_cell(&c->run[i], column, cell);
        has |= strcmp(cell, "–") != 0;
    }
    return has;
}

static void compare_put_name(struct buf *out, const struct compare *c, int i)
{
    buf_printf(out,
               "<svg class=\"key\" viewBox=\"0 0 38 10\" aria-hidden=\"true\"><path class=\"line "
               "r%d\" d=\"M1 5h36\"/></svg>",
               i);
    curves_escape(out, c->run[i].name);
}

void compare_put_results(struct buf *out, const struct compare *c)
{
    char cell[COMPARE_CELL];

    buf_printf(out, "<h2>Results</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" "
                    "aria-label=\"Results\"><table id=\"results\"><thead><tr><th "
                    "scope=\"col\">run</th>");
    for (size_t k = 0; k < ARRAY_LEN(compare_columns); k++)
        if (compare_has(c, k))
            buf_printf(out, "<th scope=\"col\">%s</th>", compare_columns[k].title);
    buf_printf(out, "</tr></thead>\n<tbody>\n");
    for (int i = 0; i < c->n; i++) {
        buf_printf(out, "<tr><td>");
        compare_put_name(out, c, i);
        buf_printf(out, "</td>");
        for (size_t k = 0; k < ARRAY_LEN(compare_columns); k++) {
            if (!compare_has(c, k))
                continue;
            compare_cell(&c->run[i], k, cell);
            buf_printf(out, "<td>");
            curves_escape(out, cell);
            buf_printf(out, "</td>");
        }
        buf_printf(out, "</tr>\n");
    }
    buf_printf(out, "</tbody></table></div>\n");
}

/* ---- jobs ---- */

/* NULL: the run's job has no such key. */
static const char *compare_value(const struct compare_run *r, const char *key)
{
    for (int i = 0; i < r->n_keys; i++)
        if (!strcmp(r->key[i].key, key))
            return r->key[i].value;
    return NULL;
}

/* 1: a run before run `before` has the key, too. */
static int compare_is_seen(const struct compare *c, int before, const char *key)
{
    for (int i = 0; i < before; i++)
        if (compare_value(&c->run[i], key))
            return 1;
    return 0;
}

static int compare_differs(const struct compare *c, const char *key)
{
    const char *first = NULL;

    for (int i = 0; i < c->n; i++) {
        const char *value = compare_value(&c->run[i], key);

        if (c->run[i].n_keys && (!value || (first && strcmp(first, value) != 0)))
            return 1;
        first = value ? value : first;
    }
    return 0;
}

static void compare_put_key(struct buf *out, const struct compare *c, const char *key)
{
    buf_printf(out, "<tr><td>%s</td>", key);
    for (int i = 0; i < c->n; i++) {
        const char *value = compare_value(&c->run[i], key);

        buf_printf(out, "<td>");
        curves_escape(out, value ? value : "–");
        buf_printf(out, "</td>");
    }
    buf_printf(out, "</tr>\n");
}

/* Append the rows of the keys that differ, and count all keys. */
static int compare_put_keys(struct buf *out, const struct compare *c, int *n_all)
{
    int n = 0;

    *n_all = 0;
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->run[i].n_keys; k++) {
            const char *key = c->run[i].key[k].key;

            if (compare_is_seen(c, i, key))
                continue;
            ++*n_all;
            if (!compare_differs(c, key))
                continue;
            compare_put_key(out, c, key);
            n++;
        }
    return n;
}

static void compare_put_unread(struct buf *out, const struct compare *c)
{
    for (int i = 0; i < c->n; i++)
        if (!c->run[i].n_keys) {
            buf_printf(out, "<p class=\"warn\">The job of ");
            curves_escape(out, c->run[i].name);
            buf_printf(out, " cannot be read, and is not compared.</p>\n");
        }
}

void compare_put_jobs(struct buf *out, const struct compare *c)
{
    struct buf rows = {0};
    int n_all, n = compare_put_keys(&rows, c, &n_all);

    buf_printf(out, "<h2>Where the jobs differ</h2>\n");
    compare_put_unread(out, c);
    buf_printf(out, "<p>%d of %d keys differ%s</p>\n", n, n_all, n ? ":" : ".");
    if (n) {
        buf_printf(out, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Jobs\">"
                        "<table id=\"jobs\" class=\"job\"><thead><tr><th scope=\"col\">key</th>");
        for (int i = 0; i < c->n; i++) {
            buf_printf(out, "<th scope=\"col\">");
            compare_put_name(out, c, i);
            buf_printf(out, "</th>");
        }
        buf_printf(out, "</tr></thead>\n<tbody>\n%s</tbody></table></div>\n", buf_cstr(&rows));
    }
    buf_fini(&rows);
}
