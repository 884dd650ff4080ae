/* parting - walks the rows of two files in step.  The first rows that differ are told, and up to
 * where those before them are the same. */
#include "driver/parting.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "driver/ask.h"
#include "driver/parted.h"
#include "report/hashes.h"
#include "report/metrics.h"

enum { METRICS_LOSS = 2 };

typedef int rows_differ(const struct series_table *a, int64_t i, const struct series_table *b,
                        int64_t j);

static int field_differs(const struct series_table *a, int64_t i, const struct series_table *b,
                         int64_t j, int column)
{
    return strcmp(series_field(a, i, column), series_field(b, j, column)) != 0;
}

static int hashes_differ(const struct series_table *a, int64_t i, const struct series_table *b,
                         int64_t j)
{
    const int has_states = *series_field(a, i, HASHES_STATE) && *series_field(b, j, HASHES_STATE);

    return field_differs(a, i, b, j, HASHES_LOSS) || field_differs(a, i, b, j, HASHES_SAMPLES) ||
           (has_states && field_differs(a, i, b, j, HASHES_STATE));
}

static int losses_differ(const struct series_table *a, int64_t i, const struct series_table *b,
                         int64_t j)
{
    return field_differs(a, i, b, j, METRICS_LOSS);
}

/* The number of steps of the row's mean, as far as the file tells. */
static int64_t row_steps(const struct series_table *t, int64_t row)
{
    return series_step(t, row) - (row > 0 ? series_step(t, row - 1) : 0);
}

/* are_means: rows are compared only if they are of equally many steps. */
static struct parting parting_find(const struct series_table *a, const struct series_table *b,
                                   int64_t from, int64_t to, int are_means, rows_differ *differ)
{
    struct parting p = {.n_same = 0};
    int64_t j = 0;

    for (int64_t i = series_find(a, from + 1); i < a->n_rows && series_step(a, i) <= to; i++) {
        j = series_find(b, series_step(a, i));
        if (j == b->n_rows)
            break;
        if (series_step(b, j) != series_step(a, i) ||
            (are_means && row_steps(a, i) != row_steps(b, j)))
            continue;
        if (differ(a, i, b, j)) {
            p.step = series_step(a, i);
            p.row[0] = i;
            p.row[1] = j;
            break;
        }
        p.n_same++;
        p.last_same = series_step(a, i);
    }
    return p;
}

struct parting parting_of_hashes(const struct series_table *a, const struct series_table *b,
                                 int64_t from, int64_t to)
{
    return parting_find(a, b, from, to, 0, hashes_differ);
}

struct parting parting_of_losses(const struct series_table *a, const struct series_table *b,
                                 int64_t from, int64_t to)
{
    return parting_find(a, b, from, to, 1, losses_differ);
}

static void put_fields(struct buf *out, const char *name, const char *a, const char *b)
{
    buf_printf(out, "%s%s ", out->len ? ", " : "", name);
    if (!strcmp(a, b))
        buf_printf(out, "%s in both", *a ? a : "not known");
    else
        buf_printf(out, "%s and %s", *a ? a : "not known", *b ? b : "not known");
}

void parting_put(struct buf *out, const struct parting *p, const struct series_table *a,
                 const struct series_table *b)
{
    const int64_t i = p->row[0], j = p->row[1];

    put_fields(out, "loss", series_field(a, i, HASHES_LOSS), series_field(b, j, HASHES_LOSS));
    put_fields(out, "state", series_field(a, i, HASHES_STATE), series_field(b, j, HASHES_STATE));
    buf_printf(out, ", %s samples",
               field_differs(a, i, b, j, HASHES_SAMPLES) ? "other" : "the same");
}

/* ---- --compare ---- */

struct compared {
    const char *name;
    struct series_table hashes, metrics;
};

static int compared_read(struct compared *r, struct err *err)
{
    int rc = series_read(r->name, &hashes_series, &r->hashes, err);

    if (rc >= 0)
        rc = series_read(r->name, &metrics_series, &r->metrics, err);
    return rc < 0 ? rc : 0;
}

static void tell_hashes(const struct compared *a, const struct compared *b, const struct parting *p)
{
    struct buf text = {0};

    if (p->step > 0) {
        parting_put(&text, p, &a->hashes, &b->hashes);
        printf("hashes.csv   differs first at step %lld: %s\n", (long long)p->step,
               buf_cstr(&text));
    }
    if (p->last_same > 0)
        printf("hashes.csv   is the same at %lld step%s, up to step %lld\n", (long long)p->n_same,
               p->n_same == 1 ? "" : "s", (long long)p->last_same);
    buf_fini(&text);
}

static void tell_losses(const struct compared *a, const struct compared *b, const struct parting *p)
{
    if (p->step > 0)
        printf("metrics.csv  has another loss first in the row of step %lld, the mean of %lld "
               "step%s: %s and %s\n",
               (long long)p->step, (long long)row_steps(&a->metrics, p->row[0]),
               row_steps(&a->metrics, p->row[0]) == 1 ? "" : "s",
               series_field(&a->metrics, p->row[0], METRICS_LOSS),
               series_field(&b->metrics, p->row[1], METRICS_LOSS));
    if (p->last_same > 0)
        printf("metrics.csv  has the same losses in %lld row%s, up to step %lld\n",
               (long long)p->n_same, p->n_same == 1 ? "" : "s", (long long)p->last_same);
}

/* Where both have hashes of states, these say best up to where the runs are the same. */
static int tell_first(const struct options *o, const struct compared *a, const struct compared *b,
                      const struct parting *hashes, const struct parting *losses, int64_t step)
{
    const int has_hashes = a->hashes.n_rows > 0 && b->hashes.n_rows > 0;
    const struct parted p = {
        .options = o,
        .run = {a->name, b->name},
        .hashes = {&a->hashes, &b->hashes},
        .past = min_i64(has_hashes ? hashes->last_same : losses->last_same, step - 1),
        .step = step};
    int status;

    fflush(stdout);
    status = parted_tell(&p);
    return status == STATUS_OK ? STATUS_FAILED : status;
}

static int tell_parting(const struct options *o, const struct compared *a, const struct compared *b)
{
    const struct parting h = parting_of_hashes(&a->hashes, &b->hashes, 0, INT64_MAX);
    const struct parting m = parting_of_losses(&a->metrics, &b->metrics, 0, INT64_MAX);
    const int64_t same = max_i64(h.last_same, m.last_same);
    int64_t step = h.step;

    if (m.step > 0 && (step == 0 || m.step < step))
        step = m.step;
    if (step == 0 && same == 0) {
        log_error("--compare: %s and %s have no step in common in hashes.csv (checkpoint.hashes) "
                  "nor metrics.csv (report.every_steps)",
                  a->name, b->name);
        return STATUS_USAGE;
    }
    if (step == 0)
        printf("%s and %s are the same, as far as both go\n", a->name, b->name);
    else
        printf("%s and %s part at step %lld or before it\n", a->name, b->name, (long long)step);
    tell_hashes(a, b, &h);
    tell_losses(a, b, &m);
    return step == 0 ? STATUS_OK : tell_first(o, a, b, &h, &m, step);
}

int parting_run(const struct options *o)
{
    struct compared run[2] = {{NULL}};
    struct err err;
    int status = STATUS_OK;

    if (o->compared.n != ARRAY_LEN(run)) {
        log_error("--compare: %zu runs are given, want 2", o->compared.n);
        return STATUS_USAGE;
    }
    for (size_t i = 0; i < ARRAY_LEN(run) && status == STATUS_OK; i++) {
        run[i].name = ask_find_run("--compare", o->compared.item[i]);
        if (!run[i].name) {
            status = STATUS_USAGE;
        } else if (compared_read(&run[i], &err) < 0) {
            log_error("--compare: %s", err.msg);
            status = STATUS_USAGE;
        }
    }
    if (status == STATUS_OK)
        status = tell_parting(o, &run[0], &run[1]);
    for (size_t i = 0; i < ARRAY_LEN(run); i++) {
        series_table_fini(&run[i].hashes);
        series_table_fini(&run[i].metrics);
        free((char *)run[i].name);
    }
    return status;
}
