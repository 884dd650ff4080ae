/* table - reads the array's rows back in blocks, in order, and writes a line for each to a file
 * aside, which is then put in its place. */
#include "judge/table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/file.h"
#include "ckpt/owner.h"
#include "data/targets.h"
#include "judge/judge.h"

enum { BLOCK = 256 }; /* rows */

struct table {
    const struct outputs *of;
    int64_t n_outputs;
    int is_class;
    int is_label; /* each output is a label's logit */
    struct buf text;
    void *room; /* of a row, if samples may be lost */
};

int table_can(const struct outputs *o, int64_t n_outputs)
{
    if (o->job->model.loss == LOSS_CONTRASTIVE) /* the outputs are no classes */
        return 0;
    if (outputs_target(o)->role == SAMPLE_CLASS)
        return !sample_has_places(o->spec);
    return n_outputs <= TABLE_MOST_COLUMNS;
}

char *table_path(const char *npy)
{
    const size_t n = strlen(npy);

    return n > 4 && !strcmp(npy + n - 4, ".npy") ? xasprintf("%.*s.csv", (int)n - 4, npy)
                                                 : xasprintf("%s.csv", npy);
}

/* A field with a comma, a quote or the end of a line in it stands in quotes. */
static void put_field(struct buf *b, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        buf_append(b, text, strlen(text));
        return;
    }
    buf_append(b, "\"", 1);
    for (; *text; text++)
        buf_append(b, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    buf_append(b, "\"", 1);
}

static void put_class(const struct table *a, struct buf *b, int64_t k)
{
    const char *name = outputs_class_name(a->of, k);

    if (name)
        put_field(b, name);
    else
        buf_printf(b, "%lld", (long long)k);
}

static void table_put_head(struct table *a)
{
    struct buf *b = &a->text;

    buf_printf(b, a->of->set->ops->sample_name ? "file" : "sample");
    if (a->is_class)
        buf_printf(b, ",class,probability");
    for (int64_t k = 0; k < a->n_outputs && !a->is_class; k++) {
        buf_printf(b, ",");
        if (a->is_label || outputs_class_name(a->of, k))
            put_class(a, b, k);
        else if (a->n_outputs == 1)
            buf_printf(b, "value");
        else
            buf_printf(b, "value_%lld", (long long)k);
    }
    buf_printf(b, "\n");
}

static double softmax_at(const float *x, int64_t n, int64_t at)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)x[at]);
    return 1 / sum;
}

/* 1: the sample cannot be read (data.on_corrupt: skip), so what was predicted is of a black image.
 */
static int is_lost(const struct table *a, int64_t i)
{
    const struct dataset *ds = a->of->set;
    const void *row;
    struct err err;

    return ds->leaves_out && ds->ops->row(ds, i, 0, a->room, &row, &err) == DATASET_LOST;
}

static void put_sample(struct table *a, int64_t i)
{
    const struct dataset *ds = a->of->set;
    char *name;

    if (!ds->ops->sample_name) {
        buf_printf(&a->text, "%lld", (long long)(ds->ops->number ? ds->ops->number(ds, i) : i));
        return;
    }
    name = ds->ops->sample_name(ds, i);
    put_field(&a->text, name);
    free(name);
}

static int is_finite(const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(x[k]))
            return 0;
    return 1;
}

static void table_put_row(struct table *a, int64_t i, const float *x)
{
    struct buf *b = &a->text;
    const int lost = is_lost(a, i) || !is_finite(x, a->n_outputs),
              is_scaled = a->of->set->targets.n > 0;

    put_sample(a, i);
    if (a->is_class && lost) {
        buf_printf(b, ",,");
    } else if (a->is_class) {
        const int64_t k = judge_largest(x, a->n_outputs);

        buf_printf(b, ",");
        put_class(a, b, k);
        buf_printf(b, ",%.6g", softmax_at(x, a->n_outputs, k));
    }
    for (int64_t k = 0; k < a->n_outputs && !a->is_class; k++)
        buf_printf(b, ",%.*g", is_scaled ? 12 : 9,
                   a->is_label ? 1 / (1 + exp(-(double)x[k]))
                               : targets_undone(a->of->set, k, x[k]));
    buf_printf(b, "\n");
}

static int write_rows(struct table *a, int fd, const char *path, const struct rows_file *from,
                      struct err *err)
{
    const int64_t n = a->of->set->n_samples;
    float *rows;
    int rc = try_alloc((void **)&rows, sizeof *rows * (size_t)(BLOCK * a->n_outputs),
                       "rows of predictions", err);

    if (rc == 0)
        rc = try_alloc(&a->room, a->of->set->room_bytes + 1, "a sample", err);
    for (int64_t at = 0; at < n && rc == 0; at += BLOCK) {
        const int64_t len = min_i64(n - at, BLOCK);

        rc = rows_file_get(from, at * a->n_outputs, rows, len * a->n_outputs, err);
        for (int64_t i = 0; i < len && rc == 0; i++)
            table_put_row(a, at + i, rows + i * a->n_outputs);
        if (rc == 0)
            rc = file_put(fd, path, a->text.data, a->text.len, err);
        buf_clear(&a->text);
    }
    free(rows);
    free(a->room);
    return rc;
}

int table_write(const struct outputs *o, const char *path, const struct rows_file *from,
                int64_t n_outputs, struct err *err)
{
    struct table a = {.of = o,
                      .n_outputs = n_outputs,
                      .is_class = outputs_target(o)->role == SAMPLE_CLASS,
                      .is_label =
                          outputs_target(o)->role == SAMPLE_REAL && !outputs_are_numbers(o)};
    char *aside = xasprintf("%s.%s.new", path, owner_own_id());
    int fd, rc;

    unlink(aside); /* of a validation that a loss cut short */
    rc = file_create_as(aside, path, &fd, err);
    if (rc == 0) {
        table_put_head(&a);
        rc = write_rows(&a, fd, path, from, err);
        if (rc == 0)
            rc = file_finish(fd, path, err);
        else
            close(fd);
        if (rc == 0 && rename(aside, path) < 0)
            rc = err_sys(err, errno, "%s: cannot be put in its place", path);
        if (rc < 0)
            unlink(aside);
    }
    buf_fini(&a.text);
    free(aside);
    return rc;
}
