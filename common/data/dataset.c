/* dataset - the list of formats, made from the words in data/meson.build, and what all data sets
 * have in common: gathering and the fingerprint. */
#include "data/dataset.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/reader.h"

const struct option_group *const data_formats[] = {
#define X(name) &format_##name.group,
    FORMAT_LIST(X)
#undef X
        NULL};

/* A reader's spec has fields of the two types that programs read, and one target. */
static void check_spec(const struct sample_spec *s)
{
    ASSERT(s->n_fields > 0 && s->n_fields <= SAMPLE_MAX_FIELDS);
    for (int i = 0; i < s->n_fields; i++)
        ASSERT(s->field[i].dtype == DTYPE_F32 ||
               (s->field[i].dtype == DTYPE_I32 && s->field[i].n_classes > 0));
    (void)sample_target(s);
}

int dataset_open(struct dataset **out, const struct data_options *o,
                 const struct dataset_request *request, struct err *err)
{
    int rc;

    *out = NULL;
    rc = o->kind->open(out, o->options, request, err);
    if (rc == 0)
        check_spec(&(*out)->spec);
    return rc;
}

void dataset_close(struct dataset *ds)
{
    if (ds)
        ds->ops->close(ds);
}

/* ---- gathering ---- */

/* Prefetch the beginning of a row that is wanted soon: samples are in random order, which the
 * processor cannot foresee. */
static void fetch(const char *row, size_t n_bytes)
{
    enum { LINE = 64, MOST = 2048 };

    for (size_t i = 0; i < n_bytes && i < MOST; i += LINE)
        __builtin_prefetch(row + i);
}

/* `room` holds two rows: the next row is found and fetched while the present one is converted. */
static int gather_field(const struct dataset *ds, int field, const int64_t *index, int64_t n,
                        char *to, char *room, struct err *err)
{
    const struct sample_field *f = &ds->spec.field[field];
    const size_t to_bytes = sample_field_bytes(f), row_bytes = sample_stored_bytes(f);
    const int64_t n_numbers = shape_elements(&f->shape);
    reader_convert *convert = reader_converter(f);
    const void *row, *next = NULL;
    int rc = n > 0 ? ds->ops->row(ds, index[0], field, room, &next, err) : 0;

    for (int64_t i = 0; rc == 0 && i < n; i++) {
        row = next;
        if (i + 1 < n)
            rc = ds->ops->row(ds, index[i + 1], field, room + (i + 1) % 2 * (int64_t)ds->room_bytes,
                              &next, err);
        if (rc == 0 && i + 1 < n)
            fetch(next, row_bytes);
        convert(to + (size_t)i * to_bytes, row, n_numbers);
    }
    return rc;
}

int dataset_gather(const struct dataset *ds, const int64_t *index, int64_t n, void *const *to,
                   struct err *err)
{
    char small[2048];
    void *large = NULL;
    int rc = 0;

    for (int64_t i = 0; i < n; i++)
        ASSERT(index[i] >= 0 && index[i] < ds->n_samples);
    if (2 * ds->room_bytes > sizeof small)
        rc = try_alloc(&large, 2 * ds->room_bytes, "samples being read", err);
    for (int k = 0; rc == 0 && k < ds->spec.n_fields; k++)
        if (to[k])
            rc = gather_field(ds, k, index, n, to[k], large ? large : small, err);
    free(large);
    return rc;
}

int dataset_alloc(const struct dataset *ds, int64_t n, void *to[SAMPLE_MAX_FIELDS],
                  const char *what, struct err *err)
{
    void *all;
    int rc = try_alloc(&all, sample_place(&ds->spec, n, NULL, NULL) + 1, what, err);

    if (rc == 0)
        (void)sample_place(&ds->spec, n, all, to);
    return rc;
}

/* ---- fingerprint ---- */

enum { PRINT_ROWS = 4096, PRINT_BYTES = 64 << 10 }; /* of each field, at most; one row at least */

/* The i-th of n samples spread evenly over all, both ends included. */
static int64_t spread(int64_t i, int64_t n, int64_t n_samples)
{
    return n > 1 ? i * (n_samples - 1) / (n - 1) : 0;
}

static int print_rows(struct hasher *h, const struct dataset *ds, int field, void *room,
                      struct err *err)
{
    const size_t n_bytes = sample_stored_bytes(&ds->spec.field[field]);
    const int64_t most = min_i64(max_i64(PRINT_BYTES / (int64_t)n_bytes, 1), PRINT_ROWS);
    const int64_t n = min_i64(most, ds->n_samples);
    const void *row;
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < n; i++) {
        rc = ds->ops->row(ds, spread(i, n, ds->n_samples), field, room, &row, err);
        if (rc == 0)
            hasher_add(h, row, n_bytes);
    }
    return rc;
}

static void print_spec(struct hasher *h, const struct sample_spec *s)
{
    for (int i = 0; i < s->n_fields; i++) {
        const struct sample_field *f = &s->field[i];

        hasher_add_text(h, f->name);
        hasher_add_i64(h, f->role);
        hasher_add_i64(h, f->n_classes);
        hasher_add_i64(h, f->dtype);
        hasher_add_i64(h, f->stored);
        hasher_add_i64(h, f->scale);
        hasher_add_i64(h, f->shape.n);
        for (int d = 0; d < f->shape.n; d++)
            hasher_add_i64(h, f->shape.dim[d]);
    }
}

int dataset_fingerprint(const struct dataset *ds, struct hash128 *out, struct err *err)
{
    struct hasher *h = hasher_new();
    void *room;
    int rc = try_alloc(&room, ds->room_bytes + 1, "the fingerprint of the data", err);

    hasher_add_text(h, ds->ops->name);
    hasher_add_i64(h, ds->n_samples);
    print_spec(h, &ds->spec);
    for (int i = 0; rc == 0 && i < ds->spec.n_fields; i++)
        rc = print_rows(h, ds, i, room, err);
    if (rc == 0)
        *out = hasher_end(h);
    free(room);
    hasher_free(h);
    return rc;
}
