/* figures - tables from the object of JSON that rank 0 made.  Columns are as wide as their longest
 * field. */
#include "driver/figures.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

enum { MOST_ROWS = 20, MOST_NAME = 24 };

/* A class is a name or a number.  Long names are cut in the tables. */
static void figures_name_of(const json_t *name, char out[MOST_NAME + 1])
{
    const char *text = json_string_value(name);
    size_t n = text ? strlen(text) : 0;

    if (n > MOST_NAME) /* not inside a character */
        for (n = MOST_NAME; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    if (text)
        snprintf(out, MOST_NAME + 1, "%.*s", (int)n, text);
    else
        snprintf(out, MOST_NAME + 1, "%" JSON_INTEGER_FORMAT, json_integer_value(name));
    for (char *c = out; *c; c++)
        *c = (unsigned char)*c < ' ' ? '?' : *c;
}

/* The number of characters of UTF-8. */
static int n_chars(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void figures_put_name(struct buf *out, int width, const char *name)
{
    buf_printf(out, "%s%*s", name, width - n_chars(name), "");
}

static void put_fraction(struct buf *out, const json_t *v)
{
    if (json_is_number(v))
        buf_printf(out, "  %9.4f", json_number_value(v));
    else
        buf_printf(out, "  %9s", "-");
}

static int figures_wide(const json_t *rows, const char *key)
{
    int width = (int)strlen(key);

    for (size_t i = 0; i < json_array_size(rows); i++) {
        char name[MOST_NAME + 1];

        figures_name_of(json_object_get(json_array_get(rows, i), key), name);
        width = (int)max_i64(width, n_chars(name));
    }
    return width;
}

/* ---- classes ---- */

struct ranked {
    double f1;
    size_t at;
};

static int by_f1(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return x->f1 != y->f1 ? (x->f1 < y->f1 ? -1 : 1) : x->at < y->at ? -1 : 1;
}

/* The rows that are shown: all, or those with the lowest F1. */
static struct ranked *figures_choose(const json_t *rows, size_t *n)
{
    struct ranked *r;

    *n = json_array_size(rows);
    r = xcalloc(*n + 1, sizeof *r);
    for (size_t i = 0; i < *n; i++) {
        const json_t *f1 = json_object_get(json_array_get(rows, i), "f1");

        r[i] = (struct ranked){json_is_number(f1) ? json_number_value(f1) : 2, i};
    }
    if (*n > MOST_ROWS) {
        qsort(r, *n, sizeof *r, by_f1);
        *n = MOST_ROWS;
    }
    return r;
}

static void put_classes(const json_t *rows, const char *what, struct buf *out)
{
    const int width = figures_wide(rows, what);
    size_t n;
    struct ranked *r = figures_choose(rows, &n);

    if (n < json_array_size(rows))
        buf_printf(out, "the %zu of %zu with the lowest f1:\n", n, json_array_size(rows));
    buf_printf(out, "%-*s  %9s  %9s  %9s  %9s\n", width, what, "precision", "recall", "f1",
               "count");
    for (size_t i = 0; i < n; i++) {
        const json_t *c = json_array_get(rows, r[i].at);
        char name[MOST_NAME + 1];

        figures_name_of(json_object_get(c, what), name);
        figures_put_name(out, width, name);
        put_fraction(out, json_object_get(c, "precision"));
        put_fraction(out, json_object_get(c, "recall"));
        put_fraction(out, json_object_get(c, "f1"));
        buf_printf(out, "  %9" JSON_INTEGER_FORMAT "\n",
                   json_integer_value(json_object_get(c, "count")));
    }
    free(r);
}

/* ---- confusions ---- */

/* Columns have the numbers of the classes, because names side by side are too wide. */
static void put_matrix(const json_t *matrix, const json_t *classes, struct buf *out)
{
    const int width = figures_wide(classes, "class") + 4;
    const size_t n = json_array_size(matrix);
    int cell = 2;
    char text[32];

    for (size_t at = 0; at < n * n; at++) {
        const json_t *v = json_array_get(json_array_get(matrix, at / n), at % n);

        cell = (int)max_i64(
            cell, snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(v)));
    }
    buf_printf(out, "confusion matrix: a row for each class, a column for each prediction\n%*s",
               width, "");
    for (size_t k = 0; k < n; k++)
        buf_printf(out, "  %*zu", cell, k);
    buf_printf(out, "\n");
    for (size_t i = 0; i < n; i++) {
        char name[MOST_NAME + 1];

        figures_name_of(json_object_get(json_array_get(classes, i), "class"), name);
        buf_printf(out, "%2zu  ", i);
        figures_put_name(out, width - 4, name);
        for (size_t k = 0; k < n; k++)
            buf_printf(out, "  %*" JSON_INTEGER_FORMAT, cell,
                       json_integer_value(json_array_get(json_array_get(matrix, i), k)));
        buf_printf(out, "\n");
    }
}

static void put_pair(const json_t *class, const json_t *predicted, json_int_t count,
                     struct buf *out)
{
    char name[MOST_NAME + 1], other[MOST_NAME + 1];

    figures_name_of(class, name);
    figures_name_of(predicted, other);
    buf_printf(out, "%9" JSON_INTEGER_FORMAT "  %s taken for %s\n", count, name, other);
}

static void put_pairs(const json_t *pairs, struct buf *out)
{
    buf_printf(out, "largest confusions:\n");
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *p = json_array_get(pairs, i);

        put_pair(json_object_get(p, "class"), json_object_get(p, "predicted"),
                 json_integer_value(json_object_get(p, "count")), out);
    }
}

/* The largest numbers off the diagonal of a matrix that is too wide to print, one after another. */
static void put_largest(const json_t *matrix, const json_t *classes, struct buf *out)
{
    const size_t n = json_array_size(matrix);
    json_int_t below = INT64_MAX, best;
    int left = MOST_ROWS;

    buf_printf(out, "largest confusions:\n");
    do {
        best = 0;
        for (size_t at = 0; at < n * n; at++) {
            const json_int_t v =
                json_integer_value(json_array_get(json_array_get(matrix, at / n), at % n));

            best = at / n != at % n && v < below && v > best ? v : best;
        }
        for (size_t at = 0; at < n * n && best > 0 && left > 0; at++) {
            const json_int_t v =
                json_integer_value(json_array_get(json_array_get(matrix, at / n), at % n));

            if (at / n == at % n || v != best)
                continue;
            put_pair(json_object_get(json_array_get(classes, at / n), "class"),
                     json_object_get(json_array_get(classes, at % n), "class"), v, out);
            left--;
        }
        below = best;
    } while (best > 0 && left > 0);
}

/* ---- numbers ---- */

static void figures_put_number(struct buf *out, const char *what, const json_t *v)
{
    if (json_is_number(v))
        buf_printf(out, "  %s %.6g", what, json_number_value(v));
    else
        buf_printf(out, "  %s -", what);
}

static void put_outputs(const json_t *figures, const json_t *outputs, struct buf *out)
{
    const size_t n = json_array_size(outputs);
    const int width = (int)max_i64(figures_wide(outputs, "output"), 3);

    buf_printf(out, "%-*s", width, "all");
    figures_put_number(out, "R2", json_object_get(figures, "r2"));
    figures_put_number(out, "mean absolute error", json_object_get(figures, "mean_absolute_error"));
    buf_printf(out, "\n");
    for (size_t i = 0; n > 1 && i < n && i < MOST_ROWS; i++) {
        const json_t *o = json_array_get(outputs, i);
        char name[MOST_NAME + 1];

        figures_name_of(json_object_get(o, "output"), name);
        figures_put_name(out, width, name);
        figures_put_number(out, "R2", json_object_get(o, "r2"));
        figures_put_number(out, "mean absolute error", json_object_get(o, "mean_absolute_error"));
        buf_printf(out, "\n");
    }
    if (n > MOST_ROWS)
        buf_printf(out, "%zu more outputs: --log-format json has them\n", n - MOST_ROWS);
}

void figures_print(const json_t *figures, struct buf *out)
{
    const json_t *classes = json_object_get(figures, "classes"),
                 *labels = json_object_get(figures, "labels"),
                 *outputs = json_object_get(figures, "outputs"),
                 *matrix = json_object_get(figures, "confusion"),
                 *pairs = json_object_get(figures, "confusions");

    if (classes)
        put_classes(classes, "class", out);
    if (labels)
        put_classes(labels, "label", out);
    if (matrix && json_array_size(matrix) <= MOST_ROWS)
        put_matrix(matrix, classes, out);
    else if (matrix)
        put_largest(matrix, classes, out);
    if (pairs)
        put_pairs(pairs, out);
    if (outputs)
        put_outputs(figures, outputs, out);
}
