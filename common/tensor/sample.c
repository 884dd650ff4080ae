/* sample - sizes and places of a sample's fields, the comparison of two specs, and a spec as text
 * for messages.  All of these follow from the fields' dtypes and shapes. */
#include "tensor/sample.h"

#include <string.h>

#include "base/buf.h"
#include "base/util.h"

size_t sample_field_bytes(const struct sample_field *f)
{
    return (size_t)shape_elements(&f->shape) * dtype_size(f->dtype);
}

size_t sample_stored_bytes(const struct sample_field *f)
{
    return (size_t)shape_elements(&f->shape) * dtype_size(f->stored);
}

struct shape sample_batch_shape(const struct sample_field *f, int64_t n)
{
    struct shape s = {.n = f->shape.n + 1, .dim = {n}};

    ASSERT(s.n <= SHAPE_MAX_DIMS);
    for (int i = 0; i < f->shape.n; i++)
        s.dim[i + 1] = f->shape.dim[i];
    return s;
}

size_t sample_place(const struct sample_spec *s, int64_t n, void *at, void **field)
{
    size_t n_bytes = 0;

    for (int i = 0; i < s->n_fields; i++) {
        if (at)
            field[i] = (char *)at + n_bytes;
        n_bytes +=
            (size_t)round_up_i64(n * (int64_t)sample_field_bytes(&s->field[i]), SAMPLE_ALIGN);
    }
    return n_bytes;
}

int sample_target(const struct sample_spec *s)
{
    int at = -1;

    for (int i = 0; i < s->n_fields; i++)
        if (s->field[i].role == SAMPLE_CLASS || s->field[i].role == SAMPLE_REAL) {
            ASSERT(at < 0);
            at = i;
        }
    ASSERT(at >= 0);
    return at;
}

/* The last field's number, if it has this role; else -1. */
static int sample_last(const struct sample_spec *s, enum sample_role role)
{
    const int last = s->n_fields - 1;

    return last >= 0 && s->field[last].role == role ? last : -1;
}

int sample_starts(const struct sample_spec *s) { return sample_last(s, SAMPLE_STARTS); }

int sample_answers(const struct sample_spec *s) { return sample_last(s, SAMPLE_ANSWERS); }

int sample_n_inputs(const struct sample_spec *s)
{
    int n = 0;

    for (int i = 0; i < s->n_fields; i++)
        n += s->field[i].role == SAMPLE_INPUT;
    return n;
}

int64_t sample_n_predictions(const struct sample_spec *s)
{
    const struct sample_field *f = &s->field[sample_target(s)];

    return f->role == SAMPLE_CLASS ? shape_elements(&f->shape) : 1;
}

int sample_has_places(const struct sample_spec *s)
{
    const struct sample_field *f = &s->field[sample_target(s)];

    return f->role == SAMPLE_CLASS && f->shape.n > 0;
}

/* Doubles and floats become the same. */
static int stored_equal(enum dtype a, enum dtype b)
{
    return (a == DTYPE_F64 ? DTYPE_F32 : a) == (b == DTYPE_F64 ? DTYPE_F32 : b);
}

static int field_equal(const struct sample_field *a, const struct sample_field *b)
{
    return !strcmp(a->name, b->name) && a->role == b->role && a->dtype == b->dtype &&
           shape_equal(&a->shape, &b->shape) && a->n_classes == b->n_classes &&
           stored_equal(a->stored, b->stored) && a->scale == b->scale;
}

int sample_equal(const struct sample_spec *a, const struct sample_spec *b)
{
    if (a->n_fields != b->n_fields)
        return 0;
    for (int i = 0; i < a->n_fields; i++)
        if (!field_equal(&a->field[i], &b->field[i]))
            return 0;
    return 1;
}

void sample_field_print(const struct sample_field *f, struct buf *out)
{
    char text[SHAPE_TEXT_LEN];

    buf_printf(out, "%s", f->name);
    if (f->shape.n > 0)
        buf_printf(out, " %s", shape_text(&f->shape, text));
    if (f->role == SAMPLE_CLASS)
        buf_printf(out, " of %lld classes", (long long)f->n_classes);
    else if (f->role == SAMPLE_STARTS)
        buf_printf(out, " of documents");
    else if (f->dtype == DTYPE_I32 && f->n_classes == 0)
        buf_printf(out, " of whole numbers");
    else if (f->dtype == DTYPE_I32)
        buf_printf(out, " of %lld tokens", (long long)f->n_classes);
    else if (f->role == SAMPLE_REAL)
        buf_printf(out, " of real numbers");
}

void sample_print(const struct sample_spec *s, struct buf *out)
{
    for (int i = 0; i < s->n_fields; i++) {
        buf_printf(out, i ? ", " : "");
        sample_field_print(&s->field[i], out);
    }
}
