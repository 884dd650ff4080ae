/* dataset - the list of formats, made from the words in data/meson.build, and what all data sets
 * have in common: gathering and the fingerprint. */
#include "data/dataset.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/coarse.h"
#include "data/image.h"
#include "data/reader.h"
#include "data/targets.h"
#include "tensor/half.h"

const struct option_group *const data_formats[] = {
#define X(name) &format_##name.group,
    FORMAT_LIST(X)
#undef X
        NULL};

/* A reader's spec has fields of the two types that programs read, and one target.  The numbers of
 * an input may be any. */
static void check_spec(const struct sample_spec *s)
{
    ASSERT(s->n_fields > 0 && s->n_fields <= SAMPLE_MAX_FIELDS);
    for (int i = 0; i < s->n_fields; i++)
        ASSERT(s->field[i].dtype == DTYPE_F32 ||
               (s->field[i].dtype == DTYPE_I32 &&
                (s->field[i].n_classes > 0 || s->field[i].role == SAMPLE_INPUT ||
                 (s->field[i].role == SAMPLE_STARTS && i == s->n_fields - 1))));
    (void)sample_target(s);
}

/* Note the class that the job ignores.  If there is one, ignored targets do not tell any more how
 * many samples were left out. */
static void set_ignored(struct dataset *ds, const struct dataset_request *request)
{
    const int64_t ignored = request->ignored ? *request->ignored : SAMPLE_IGNORED;

    ds->ignores = ignored != SAMPLE_IGNORED;
    ds->ignored = (int32_t)ignored;
    if (ds->ignores)
        ds->leaves_out = 0;
}

/* Put the first input in the target's place.  The rows of the target are not read from then on.
 * leaves_out: the reader may leave out samples. */
static int set_reconstruct(struct dataset *ds, int leaves_out, struct err *err)
{
    const int target = sample_target(&ds->spec);
    struct sample_field *const field = ds->spec.field;
    const char *name = field[target].name;

    if (target == 0 || field[0].dtype != DTYPE_F32)
        return err_set(err, ERR_CONFIG,
                       "data.reconstruct: the input \"%s\" is whole numbers, want real numbers, "
                       "which a network can give back",
                       field[0].name);
    if (leaves_out)
        return err_set(err, ERR_CONFIG,
                       "data.reconstruct has no label that leaves out a sample which cannot be "
                       "read; leave data.on_corrupt out");
    if (ds->targets.n)
        return err_set(err, ERR_CONFIG,
                       "data.reconstruct has the input as target, which data.normalize scales; "
                       "leave data.targets out");
    field[target] = field[0];
    field[target].name = name;
    field[target].role = SAMPLE_REAL;
    ds->reconstructs = 1;
    ds->class_names = NULL;
    ds->has_no_labels = 0;
    return 0;
}

static int dataset_check_pairs(const struct dataset *ds, const struct dataset_request *request,
                               struct err *err)
{
    if (!request->wants_pairs || sample_answers(&ds->spec) >= 0)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "model.loss dpo compares two answers to a prompt, but samples of data.format %s "
                   "are no pairs; want data.format text, data.tokenizer FILE, and .jsonl files "
                   "with \"prompt\", \"chosen\" and \"rejected\"",
                   ds->ops->name);
}

/* 1: the job says that it has no validation data. */
static int has_no_validation(const struct data_options *o)
{
    const struct option_group *g = &o->kind->group;

    for (int i = 0; i < g->n_options; i++) {
        const void *const at = (const char *)o->options + g->option[i].offset;
        const char *text;

        if (strcmp(g->option[i].key, "data.validation") != 0)
            continue;
        ASSERT(g->option[i].type == OPT_STRING);
        text = *(const char *const *)at;
        return text && !strcmp(text, DATASET_WORD_NONE);
    }
    return 0;
}

int dataset_open(struct dataset **out, const struct data_options *o,
                 const struct dataset_request *request, struct err *err)
{
    int rc, leaves_out;

    *out = NULL;
    if (request->purpose == DATASET_VALIDATION && has_no_validation(o))
        return DATASET_NONE;
    rc = o->kind->open(out, o->options, request, err);
    if (rc != 0)
        return rc;
    check_spec(&(*out)->spec);
    leaves_out = (*out)->leaves_out;
    set_ignored(*out, request);
    rc = dataset_check_pairs(*out, request, err);
    if (rc == 0 && request->purpose == DATASET_TRAIN && request->warn && !request->names_only)
        rc = coarse_tell(*out, request, err);
    if (rc == 0 && o->reconstruct)
        rc = set_reconstruct(*out, leaves_out, err);
    if (rc < 0) {
        dataset_close(*out);
        *out = NULL;
        return rc;
    }
    (*out)->n_workers = o->workers ? (int)o->workers : (*out)->is_slow ? request->n_workers : 1;
    return 0;
}

void dataset_warn(const struct dataset_request *r, const char *fmt, ...)
{
    va_list ap;
    char *text;

    if (!r->warn)
        return;
    va_start(ap, fmt);
    text = xvasprintf(fmt, ap);
    va_end(ap);
    r->warn(r->warn_arg, text);
    free(text);
}

void dataset_close(struct dataset *ds)
{
    if (ds)
        ds->ops->close(ds);
}

/* ---- gathering ---- */

/* Prefetch the beginning of a row that is wanted soon: samples are in random order, which the
 * processor cannot foresee. */
static void dataset_fetch(const char *row, size_t n_bytes)
{
    enum { LINE = 64, MOST = 2048 };

    for (size_t i = 0; i < n_bytes && i < MOST; i += LINE)
        __builtin_prefetch(row + i);
}

/* A call of dataset_gather_drawn. */
struct gathering {
    const struct dataset *ds;
    const struct dataset_draw *draw; /* NULL: nothing is drawn */
    const int64_t *index;
    int64_t n;
    char *room;     /* of two rows: the next is found while the present one is converted */
    uint8_t *drawn; /* of a row of an image, after what is drawn */
    int64_t *lost;  /* [n_lost] the numbers in index[] of samples that cannot be read */
    int64_t n_lost;
};

int dataset_draws(const struct dataset *ds)
{
    return ds->image.crop > 0 || ds->image.flip || ds->image.cut;
}

struct dataset_scaling dataset_scaling(const struct dataset *ds, int field)
{
    const struct dataset_image *x = &ds->image;
    const struct dataset_scale *y = &ds->targets;

    if (field == 0)
        return (struct dataset_scaling){x->n_channels, x->mean, x->std};
    if (ds->spec.field[field].role == SAMPLE_REAL)
        return (struct dataset_scaling){y->n, y->mean, y->std};
    return (struct dataset_scaling){0};
}

/* Doubles are rounded after the mean is subtracted, or a date in seconds would lose its minutes. */
static void scale_doubles(const struct dataset_scaling *s, const double *from, int64_t n, float *to)
{
    for (int64_t i = 0, k = 0; i < n; i++, k = k + 1 < s->n ? k + 1 : 0)
        to[i] = (float)((from[i] - s->mean[k]) / s->std[k]);
}

static void convert_row(const struct gathering *g, int field, int64_t i, const void *row,
                        reader_convert *convert, void *to)
{
    const struct sample_field *f = &g->ds->spec.field[field];
    const struct dataset_scaling scale = dataset_scaling(g->ds, field);

    if (f->stored == DTYPE_F64 && scale.n) {
        scale_doubles(&scale, row, shape_elements(&f->shape), to);
        return;
    }

    if (field == 0 && f->stored == DTYPE_U8 && f->scale == SAMPLE_UNIT) {
        image_write(g->ds, g->draw, i, row, g->drawn, to);
        return;
    }
    ASSERT(field != 0 || !g->draw);
    convert(to, row, shape_elements(&f->shape));
    if (field == 0 && g->ds->image.n_channels)
        image_normalize(g->ds, to);
    if (f->role == SAMPLE_REAL && g->ds->targets.n)
        targets_scale(g->ds, to, shape_elements(&f->shape));
}

/* The row of index[i].  One that cannot be read is black, and is kept in g->lost. */
static int dataset_find_row(struct gathering *g, int field, int64_t i, const void **row,
                            struct err *err)
{
    const struct dataset *ds = g->ds;
    char *room = g->room + i % 2 * (int64_t)ds->room_bytes;
    int rc;

    if (field == 0 && g->draw && ds->image.cut) {
        *row = room;
        rc = ds->ops->row_drawn(ds, g->draw, g->index[i], room, err);
    } else {
        rc = ds->ops->row(ds, g->index[i], field, room, row, err);
    }
    if (rc != DATASET_LOST)
        return rc;
    g->lost = xrealloc(g->lost, (size_t)(g->n_lost + 1) * sizeof *g->lost);
    g->lost[g->n_lost++] = i;
    memset(room, 0, ds->room_bytes);
    *row = room;
    return 0;
}

static int gather_field(struct gathering *g, int field, char *to, struct err *err)
{
    const struct sample_field *f = &g->ds->spec.field[field];
    const size_t to_bytes = sample_field_bytes(f), row_bytes = sample_stored_bytes(f);
    reader_convert *convert = reader_converter(f);
    const void *row, *next = NULL;
    int rc = g->n > 0 ? dataset_find_row(g, field, 0, &next, err) : 0;

    for (int64_t i = 0; rc == 0 && i < g->n; i++) {
        row = next;
        if (i + 1 < g->n)
            rc = dataset_find_row(g, field, i + 1, &next, err);
        if (rc == 0 && i + 1 < g->n)
            dataset_fetch(next, row_bytes);
        convert_row(g, field, g->index[i], row, convert, to + (size_t)i * to_bytes);
    }
    return rc;
}

/* Replace the class that the job ignores by SAMPLE_IGNORED, the only number that losses ignore. */
static void ignore_classes(const struct gathering *g, void *const *to)
{
    const int target = sample_target(&g->ds->spec);
    const int64_t n = g->n * sample_n_predictions(&g->ds->spec);
    int32_t *classes = to[target];

    if (!g->ds->ignores || !classes || g->ds->spec.field[target].role != SAMPLE_CLASS)
        return;
    for (int64_t i = 0; i < n; i++)
        classes[i] = classes[i] == g->ds->ignored ? SAMPLE_IGNORED : classes[i];
}

/* A sample that cannot be read counts neither in losses nor in accuracies. */
static void ignore_lost(const struct gathering *g, void *const *to)
{
    const int target = sample_target(&g->ds->spec);
    const int64_t n = sample_n_predictions(&g->ds->spec);
    int32_t *classes = to[target];

    if (g->n_lost == 0 || !classes)
        return;
    ASSERT(g->ds->spec.field[target].role == SAMPLE_CLASS);
    for (int64_t i = 0; i < g->n_lost; i++)
        for (int64_t k = 0; k < n; k++)
            classes[g->lost[i] * n + k] = SAMPLE_IGNORED;
}

int dataset_gather_drawn(const struct dataset *ds, const struct dataset_draw *draw,
                         const int64_t *index, int64_t n, void *const *to, struct err *err)
{
    struct gathering g = {.ds = ds, .index = index, .n = n};
    _Alignas(SAMPLE_ALIGN) char small[2048];
    void *large = NULL;
    size_t n_bytes = 2 * ds->room_bytes;
    const int again = ds->reconstructs ? sample_target(&ds->spec) : -1; /* field 0 once more */
    int rc = 0;

    for (int64_t i = 0; i < n; i++)
        ASSERT(index[i] >= 0 && index[i] < ds->n_samples);
    if (draw && dataset_draws(ds)) {
        g.draw = draw;
        n_bytes += sample_stored_bytes(&ds->spec.field[0]) / (size_t)ds->spec.field[0].shape.dim[0];
    }
    if (n_bytes > sizeof small)
        rc = try_alloc(&large, n_bytes, "samples being read", err);
    g.room = large ? large : small;
    g.drawn = (uint8_t *)g.room + 2 * ds->room_bytes;
    for (int k = 0; rc == 0 && k < ds->spec.n_fields; k++)
        if (to[k] && !(k == again && to[0]))
            rc = gather_field(&g, k == again ? 0 : k, to[k], err);
    if (rc == 0 && ds->reconstructs && to[0] && to[again])
        memcpy(to[again], to[0], (size_t)n * sample_field_bytes(&ds->spec.field[0]));
    if (rc == 0) {
        ignore_classes(&g, to);
        ignore_lost(&g, to);
    }
    free(g.lost);
    free(large);
    return rc;
}

int dataset_gather(const struct dataset *ds, const int64_t *index, int64_t n, void *const *to,
                   struct err *err)
{
    return dataset_gather_drawn(ds, NULL, index, n, to, err);
}

char *dataset_place(const struct dataset *ds, int64_t i, int field)
{
    return ds->ops->place ? ds->ops->place(ds, i, field)
                          : xasprintf("sample %lld of the %s data", (long long)i, ds->ops->name);
}

int dataset_find_nonfinite(const struct dataset *ds, const int64_t *index, int64_t n,
                           void *const *field, char **text)
{
    for (int f = 0; f < ds->spec.n_fields; f++) {
        const struct sample_field *spec = &ds->spec.field[f];
        const int64_t each = shape_elements(&spec->shape);

        for (int64_t i = 0; dtype_is_real(spec->dtype) && i < n * each; i++) {
            const double v = (double)real_get(field[f], spec->dtype, i);
            char *where;

            if (isfinite(v))
                continue;
            where = dataset_place(ds, index[i / each], f);
            *text = xasprintf("%s: element %lld of \"%s\" is %s", where, (long long)(i % each),
                              spec->name,
                              isnan(v) ? "nan"
                              : v > 0  ? "inf"
                                       : "-inf");
            free(where);
            return 1;
        }
    }
    return 0;
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

int64_t dataset_spread(int64_t i, int64_t n, int64_t n_samples)
{
    return n > 1 ? i * (n_samples - 1) / (n - 1) : 0;
}

/* Doubles are hashed as the floats that earlier versions kept, so that their runs go on. */
static void dataset_print_row(struct hasher *h, const struct sample_field *f, const void *row)
{
    const int64_t n = shape_elements(&f->shape);
    const double *wide = row;

    if (f->stored != DTYPE_F64)
        hasher_add(h, row, sample_stored_bytes(f));
    for (int64_t i = 0; f->stored == DTYPE_F64 && i < n; i++) {
        const float v = (float)wide[i];

        hasher_add(h, &v, sizeof v);
    }
}

static int dataset_print_rows(struct hasher *h, const struct dataset *ds, int field, void *room,
                              struct err *err)
{
    const struct sample_field *f = &ds->spec.field[field];
    const size_t n_bytes = f->stored == DTYPE_F64 ? sample_field_bytes(f) : sample_stored_bytes(f);
    const int64_t most = min_i64(max_i64(PRINT_BYTES / (int64_t)n_bytes, 1), PRINT_ROWS);
    const int64_t n = min_i64(most, ds->n_samples);
    const void *row;
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < n; i++) {
        rc = ds->ops->row(ds, dataset_spread(i, n, ds->n_samples), field, room, &row, err);
        if (rc == 0)
            dataset_print_row(h, f, row);
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
        hasher_add_i64(h, f->stored == DTYPE_F64 ? DTYPE_F32 : f->stored);
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
    if (rc == 0 && ds->ops->print)
        rc = ds->ops->print(ds, h, err);
    for (int i = 0; rc == 0 && !ds->ops->print && i < ds->spec.n_fields; i++)
        if (!ds->reconstructs || ds->spec.field[i].role == SAMPLE_INPUT)
            rc = dataset_print_rows(h, ds, i, room, err);
    if (rc == 0)
        *out = hasher_end(h);
    free(room);
    hasher_free(h);
    return rc;
}
