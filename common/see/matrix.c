/* matrix - reads the figures of a validation, and writes their table.
 * The picture is matrix_png.c's. */
#include "see/matrix.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

/* A class has a name, or is a number. */
static char *matrix_name_of(const json_t *class)
{
    const json_t *name = json_object_get(class, "class");

    return json_is_string(name) ? xstrdup(json_string_value(name))
                                : xasprintf("%lld", (long long)json_integer_value(name));
}

int matrix_read(const char *figures, struct matrix *out)
{
    json_t *o = figures ? json_loads(figures, 0, NULL) : NULL;
    const json_t *rows = json_object_get(o, "confusion"), *classes = json_object_get(o, "classes");
    const size_t n = json_array_size(rows);

    *out = (struct matrix){0};
    if (n > 0 && n <= MATRIX_MOST && json_array_size(classes) == n) {
        out->n = (int)n;
        out->name = xcalloc(n, sizeof *out->name);
        out->count = xcalloc(n * n, sizeof *out->count);
        for (size_t i = 0; i < n * n; i++)
            out->count[i] = json_integer_value(json_array_get(json_array_get(rows, i / n), i % n));
        for (size_t i = 0; i < n; i++)
            out->name[i] = matrix_name_of(json_array_get(classes, i));
    }
    json_decref(o);
    return out->n > 0;
}

void matrix_fini(struct matrix *m)
{
    for (int i = 0; i < m->n; i++)
        free(m->name[i]);
    free(m->name);
    free(m->count);
    *m = (struct matrix){0};
}

/* ---- the table ---- */

/* As RFC 4180 has it: in quotes, if it has a comma, a quote or the end of a line. */
static void matrix_put_cell(struct buf *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        buf_printf(out, "%s", text);
        return;
    }
    buf_append(out, "\"", 1);
    for (; *text; text++)
        buf_printf(out, *text == '"' ? "\"\"" : "%c", *text);
    buf_append(out, "\"", 1);
}

void matrix_csv(const struct matrix *m, struct buf *out)
{
    buf_printf(out, "class");
    for (int k = 0; k < m->n; k++) {
        buf_append(out, ",", 1);
        matrix_put_cell(out, m->name[k]);
    }
    for (int i = 0; i < m->n; i++) {
        buf_append(out, "\n", 1);
        matrix_put_cell(out, m->name[i]);
        for (int k = 0; k < m->n; k++)
            buf_printf(out, ",%lld", (long long)m->count[i * m->n + k]);
    }
    buf_append(out, "\n", 1);
}
