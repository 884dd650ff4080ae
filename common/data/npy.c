/* npy - arrays of NumPy: x.npy has a row of features for each sample, y.npy its target.
 *
 *     x   [N] or [N, any shape], any type: real numbers, as they are (images: [N,H,W,C], or with
 *         data.layout nchw [N,C,H,W], which become [H,W,C] when they are read)
 *     y   whole numbers   classes from 0 on, one for each sample, [N] or [N,1], or at each place of
 *                         [N, shape]
 *         real numbers    targets, [N] or [N, shape]
 *
 * Where fields have names (data/npy_fields.h) there may be several inputs.  Whole numbers of a
 * named input stay whole numbers, of 32 bits; each is checked when it is read.  The first input is
 * real, too, if data.normalize asks for it.
 *
 * For predictions the y of a validation set may be missing.
 *
 * There are as many classes as the training set's largest class says, in validation, too.  The
 * files are mapped; of y with classes, or with targets that must be from 0 to 1, opening reads all,
 * of the others only the header.
 *
 * data.normalize is of the features of x, and data.targets of real numbers of y: of the places of
 * their last axes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/dataset.h"
#include "data/image.h"
#include "data/labels.h"
#include "data/moments.h"
#include "data/npy_fields.h"
#include "data/npy_file.h"
#include "data/targets.h"

enum { X }; /* the first field, which data.layout and data.normalize are of */
enum { BLOCK = 4096, MOST_CLASSES = 1 << 24 };

/* The order of the axes of pictures in x.npy. */
#define LAYOUT_LIST(X) X(LAYOUT_NHWC, "nhwc") X(LAYOUT_NCHW, "nchw")

enum layout { LAYOUT_LIST(WORD_VALUE) };

static const char *const layouts[] = {LAYOUT_LIST(WORD_NAME) NULL};

struct npy_options {
    struct npy_texts texts;
    enum layout layout;
    struct image_options image; /* of which mean and std are used, by feature */
    struct targets_options targets;
};

struct arrays {
    struct dataset base;
    struct npy_fields field; /* of the spec */
    struct npy array[SAMPLE_MAX_FIELDS];
    int is_nchw; /* x is [N,C,H,W] in its file; samples are [H,W,C] */
    int64_t least[SAMPLE_MAX_FIELDS], most[SAMPLE_MAX_FIELDS]; /* of inputs of whole numbers */
};

static int npy_target(const struct arrays *a) { return a->field.n - 1; }

/* ---- files ---- */

/* Note the labels of y, whose path is given; they are below `most`, but for those that the job
 * ignores. */
static int scan_classes(const struct npy *y, const char *path, int64_t most,
                        const struct dataset_request *request, struct labels *labels,
                        struct err *err)
{
    const int64_t n = shape_elements(&y->shape);
    int64_t block[BLOCK];
    char number[NPY_WHOLE_TEXT];

    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t len = min_i64(n - first, BLOCK);

        npy_wholes(y, npy_element(y, first), len, block);
        for (int64_t i = 0; i < len; i++) {
            if (!npy_is_huge(y, block[i]) && dataset_ignores(request, block[i]))
                continue;
            if (block[i] < 0 || block[i] >= most)
                return err_set(
                    err, ERR_CORRUPT,
                    "%s: offset %lld: the class of sample %lld is %s, want 0 to %lld%s, or "
                    "train.ignore_index%s",
                    path, (long long)(y->offset + (first + i) * (int64_t)npy_size(y->type)),
                    (long long)((first + i) / npy_row(y)), npy_whole_text(y, block[i], number),
                    (long long)most - 1, most < MOST_CLASSES ? ", the training set's largest" : "",
                    most < MOST_CLASSES ? ""
                                        : "; whole numbers are classes: store targets that are "
                                          "numbers as float32");
            if (labels_add(labels, block[i], err) < 0)
                return err->code;
        }
    }
    return 0;
}

/* The targets of y, whose path is given, are from 0 to 1. */
static int scan_shares(const struct npy *y, const char *path, struct err *err)
{
    const int64_t n = shape_elements(&y->shape);
    float block[BLOCK];

    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t len = min_i64(n - first, BLOCK);

        npy_reals(y, npy_element(y, first), len, block);
        for (int64_t i = 0; i < len; i++)
            if (!(block[i] >= 0 && block[i] <= 1)) /* NaN is none of them */
                return err_set(err, ERR_CORRUPT,
                               "%s: offset %lld: a target of sample %lld is %.9g, want 0 to 1 with "
                               "model.loss: bce",
                               path,
                               (long long)(y->offset + (first + i) * (int64_t)npy_size(y->type)),
                               (long long)((first + i) / npy_row(y)), (double)block[i]);
    }
    return 0;
}

/* A validation set has the classes of the training set. */
static int npy_classes_of(const struct npy_options *o, const struct dataset_request *request,
                          int64_t *n_classes, struct err *err)
{
    struct npy y = {0};
    struct labels labels = {0};
    struct npy_fields train;
    int rc = npy_fields_read(&train, o->texts.folder, o->texts.train, "data.train", err);
    const char *path = rc == 0 ? train.path[train.n - 1] : NULL;

    if (rc == 0)
        rc = npy_open(&y, path, err);
    if (rc == 0 && npy_is_whole(y.type))
        rc = scan_classes(&y, path, MOST_CLASSES, request, &labels, err);
    if (rc == 0 && request->purpose == DATASET_TRAIN)
        labels_doubt(&labels, path, request);
    npy_close(&y);
    npy_fields_fini(&train);
    *n_classes = max_i64(labels.largest + 1, 2);
    labels_fini(&labels);
    return rc;
}

static int npy_check_rows(const struct arrays *a, struct err *err)
{
    const int64_t want = a->array[X].shape.dim[0];

    for (int i = 1; i < a->field.n - a->field.lacks_targets; i++)
        if (a->array[i].shape.dim[0] != want)
            return err_set(
                err, ERR_CORRUPT,
                "%s has %lld rows, want %lld, as many as %s; do the two belong together?",
                a->field.path[i], (long long)a->array[i].shape.dim[0], (long long)want,
                a->field.path[X]);
    return 0;
}

static int open_arrays(struct arrays *a, int64_t n_classes, const struct dataset_request *request,
                       struct err *err)
{
    const struct npy *y = &a->array[npy_target(a)];
    const char *path = a->field.path[npy_target(a)];
    struct labels labels = {0};
    int rc = 0;

    for (int i = 0; i < a->field.n; i++)
        if (npy_open(&a->array[i], a->field.path[i], err) < 0)
            return err->code;
    if (npy_check_rows(a, err) < 0)
        return err->code;
    if (a->field.lacks_targets)
        return 0;
    if (npy_is_whole(y->type))
        rc = scan_classes(y, path, n_classes, request, &labels, err);
    else if (request->targets_are_fractions)
        rc = scan_shares(y, path, err);
    labels_fini(&labels);
    return rc;
}

/* ---- pictures ---- */

static int is_number_of_channels(int64_t n) { return n == 1 || n == 3 || n == 4; }

/* Warn if the axes of x look as if they were in the other order. */
static void doubt_layout(const struct arrays *a, const struct dataset_request *request)
{
    const struct shape *s = &a->array[X].shape;
    const int64_t c = s->dim[a->is_nchw ? 1 : 3], other = s->dim[a->is_nchw ? 3 : 1];
    char text[SHAPE_TEXT_LEN];

    if (s->n != 4 || is_number_of_channels(c) || !is_number_of_channels(other) || other >= c)
        return;
    dataset_warn(request,
                 "%s: its shape is %s, and data.layout is %s: pictures are taken to have %lld "
                 "channels; if they have %lld, set data.layout: %s",
                 a->field.path[X], shape_text(s, text),
                 layouts[a->is_nchw ? LAYOUT_NCHW : LAYOUT_NHWC], (long long)c, (long long)other,
                 layouts[a->is_nchw ? LAYOUT_NHWC : LAYOUT_NCHW]);
}

static int take_layout(struct arrays *a, enum layout layout, const struct dataset_request *request,
                       struct err *err)
{
    const struct shape *s = &a->array[X].shape;
    char text[SHAPE_TEXT_LEN];

    a->is_nchw = layout == LAYOUT_NCHW;
    if (a->is_nchw && s->n != 4)
        return err_set(err, ERR_CONFIG,
                       "%s: its shape is %s, but data.layout is nchw, want [N,C,H,W]; leave "
                       "data.layout out",
                       a->field.path[X], shape_text(s, text));
    if (request->purpose == DATASET_TRAIN)
        doubt_layout(a, request);
    return 0;
}

/* from [C,P] -> to [P,C], elements of one size, at any address. */
#define TRANSPOSE(size)                                                               \
    static void transpose_##size(const uint8_t *restrict from, int64_t c, int64_t p,  \
                                 uint8_t *restrict to)                                \
    {                                                                                 \
        for (int64_t k = 0; k < c; k++)                                               \
            for (int64_t i = 0; i < p; i++)                                           \
                memcpy(to + (i * c + k) * (size), from + (k * p + i) * (size), size); \
    }
TRANSPOSE(1)
TRANSPOSE(2)
TRANSPOSE(4)
TRANSPOSE(8)

/* One picture [C,H,W] -> [H,W,C]. */
static void npy_turn(const struct npy *x, const uint8_t *from, uint8_t *to)
{
    const int64_t c = x->shape.dim[1], p = x->shape.dim[2] * x->shape.dim[3];
    const size_t size = npy_size(x->type);

    if (size == 1)
        transpose_1(from, c, p, to);
    else if (size == 2)
        transpose_2(from, c, p, to);
    else if (size == 4)
        transpose_4(from, c, p, to);
    else
        transpose_8(from, c, p, to);
}

/* ---- the data set ---- */

/* The shape of one sample.  Of [N] and [N,1] it is [] for one class, and [1] for numbers. */
static struct shape row_shape(const struct npy *a, int is_class)
{
    struct shape s = {.n = a->shape.n - 1};

    for (int i = 0; i < s.n; i++)
        s.dim[i] = a->shape.dim[i + 1];
    if (s.n == 0 || (s.n == 1 && s.dim[0] == 1))
        return is_class ? (struct shape){0} : SHAPE(1);
    return s;
}

/* Room for a row of the array: as it is gathered, and behind that as the file stores it, of which
 * there is a second copy if its axes are turned. */
static size_t row_room(const struct npy *a, const struct sample_field *f, int is_turned)
{
    const int64_t raw = npy_row(a) * (int64_t)npy_size(a->type);

    return (size_t)round_up_i64((int64_t)sample_stored_bytes(f) + (is_turned ? 2 : 1) * raw,
                                SAMPLE_ALIGN);
}

static struct shape picture_shape(const struct npy *x)
{
    const int64_t *dim = x->shape.dim;

    return SHAPE(dim[2], dim[3], dim[1]);
}

/* 1: a float does not hold all numbers of the type. */
static int is_wide(enum npy_type t)
{
    return t == NPY_F64 || t == NPY_I32 || t == NPY_U32 || t == NPY_I64 || t == NPY_U64;
}

/* The elements of a row are real numbers, or whole ones. */
static enum dtype npy_stored(const struct npy *a, int is_whole)
{
    return is_whole ? DTYPE_I32 : is_wide(a->type) ? DTYPE_F64 : DTYPE_F32;
}

static struct sample_field npy_input(const struct arrays *a, int i, int is_normalized)
{
    const struct npy *x = &a->array[i];
    const int is_whole = a->field.is_named && npy_is_whole(x->type) && !(i == X && is_normalized);
    struct sample_field f = {.name = a->field.name[i],
                             .role = SAMPLE_INPUT,
                             .dtype = is_whole ? DTYPE_I32 : DTYPE_F32,
                             .shape = i == X && a->is_nchw ? picture_shape(x) : row_shape(x, 0),
                             .stored = npy_stored(x, is_whole),
                             .scale = SAMPLE_AS_IS};

    if (x->type == NPY_U8 && !is_whole)
        f.stored = DTYPE_U8;
    return f;
}

static void npy_make_spec(struct arrays *a, const struct npy_options *o, int64_t n_classes)
{
    const int n = a->field.n, target = npy_target(a);
    const struct npy *y = &a->array[target];
    const int is_class = npy_is_whole(y->type),
              is_normalized =
                  o->image.normalize == NORMALIZE_AUTO || o->image.mean.n > 0 || o->image.std.n > 0;
    struct sample_spec *s = &a->base.spec;

    s->n_fields = n;
    for (int i = 0; i < target; i++)
        s->field[i] = npy_input(a, i, is_normalized);
    s->field[target] = (struct sample_field){.name = a->field.name[target],
                                             .role = is_class ? SAMPLE_CLASS : SAMPLE_REAL,
                                             .dtype = is_class ? DTYPE_I32 : DTYPE_F32,
                                             .shape = row_shape(y, is_class),
                                             .n_classes = is_class ? n_classes : 0,
                                             .stored = npy_stored(y, is_class),
                                             .scale = SAMPLE_AS_IS};
    a->base.has_no_labels = a->field.lacks_targets;
    a->base.n_samples = a->array[X].shape.dim[0];
    for (int i = 0; i < n; i++) {
        const size_t room = row_room(&a->array[i], &s->field[i], i == X && a->is_nchw);

        a->base.room_bytes = room > a->base.room_bytes ? room : a->base.room_bytes;
    }
}

/* ---- inputs of whole numbers ---- */

static void npy_limit(struct arrays *a, const struct dataset_request *request)
{
    for (int i = 0; i < npy_target(a); i++) {
        a->least[i] = INT32_MIN;
        a->most[i] = INT32_MAX;
        if (request->limit && a->base.spec.field[i].dtype == DTYPE_I32)
            request->limit(request->limit_arg, &a->base.spec, i, &a->least[i], &a->most[i]);
    }
}

static int npy_fail_whole(const struct arrays *a, int field, int64_t sample, int64_t v,
                          struct err *err)
{
    char number[NPY_WHOLE_TEXT];

    return err_set(err, ERR_CORRUPT, "%s: row %lld: a number of %s is %s, want %lld to %lld%s",
                   a->field.path[field], (long long)sample, a->field.name[field],
                   npy_whole_text(&a->array[field], v, number), (long long)a->least[field],
                   (long long)a->most[field],
                   a->most[field] < INT32_MAX ? ", which is what the network takes" : "");
}

/* The row of a sample, of which `raw` is as the file stores it. */
static int npy_take_wholes(const struct arrays *a, int field, int64_t sample, const uint8_t *raw,
                           int32_t *to, struct err *err)
{
    const struct npy *x = &a->array[field];
    const int64_t n = npy_row(x);
    int64_t block[64];

    for (int64_t at = 0; at < n; at += (int64_t)ARRAY_LEN(block)) {
        const int64_t len = min_i64(n - at, (int64_t)ARRAY_LEN(block));

        npy_wholes(x, raw + at * (int64_t)npy_size(x->type), len, block);
        for (int64_t i = 0; i < len; i++) {
            if (block[i] < a->least[field] || block[i] > a->most[field] || npy_is_huge(x, block[i]))
                return npy_fail_whole(a, field, sample, block[i], err);
            to[at + i] = (int32_t)block[i];
        }
    }
    return 0;
}

/* ---- rows ---- */

static void npy_take_classes(const struct npy *a, const uint8_t *raw, int64_t n, int32_t *to)
{
    int64_t block[64];

    for (int64_t at = 0; at < n; at += (int64_t)ARRAY_LEN(block)) {
        const int64_t len = min_i64(n - at, (int64_t)ARRAY_LEN(block));

        npy_wholes(a, raw + at * (int64_t)npy_size(a->type), len, block);
        for (int64_t i = 0; i < len; i++)
            to[at + i] = (int32_t)block[i];
    }
}

/* The target of a sample that has none: no class, or zeroes, which nobody is told. */
static void fill_unknown(const struct sample_field *f, void *to)
{
    int32_t *classes = to;
    const int64_t n = shape_elements(&f->shape);

    if (f->role == SAMPLE_REAL)
        memset(to, 0, sample_stored_bytes(f));
    for (int64_t i = 0; f->role == SAMPLE_CLASS && i < n; i++)
        classes[i] = SAMPLE_IGNORED;
}

static int npy_get_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                       struct err *err)
{
    const struct arrays *set = container_of(ds, struct arrays, base);
    const struct npy *a = &set->array[field];
    const struct sample_field *f = &ds->spec.field[field];
    const int64_t n = npy_row(a);
    uint8_t *raw = (uint8_t *)room + sample_stored_bytes(f);

    *row = room;
    if (f->role != SAMPLE_INPUT && set->field.lacks_targets) {
        fill_unknown(f, room);
        return 0;
    }
    if (npy_read(a, i * n, n, raw, err) < 0)
        return err->code;
    if (field == X && set->is_nchw) {
        uint8_t *turned = raw + n * (int64_t)npy_size(a->type);

        npy_turn(a, raw, turned);
        raw = turned;
    }
    if (f->role == SAMPLE_CLASS)
        npy_take_classes(a, raw, n, room);
    else if (f->dtype == DTYPE_I32)
        return npy_take_wholes(set, field, i, raw, room, err);
    else if (a->type == NPY_F32 || a->type == NPY_F64 ||
             (a->type == NPY_U8 && f->role == SAMPLE_INPUT)) /* stored as they are */
        *row = raw;
    else if (f->stored == DTYPE_F64)
        npy_doubles(a, raw, n, room);
    else
        npy_reals(a, raw, n, room);
    return 0;
}

static void npy_drop(struct dataset *ds)
{
    struct arrays *a = container_of(ds, struct arrays, base);

    for (int i = 0; i < SAMPLE_MAX_FIELDS; i++)
        npy_close(&a->array[i]);
    npy_fields_fini(&a->field);
    free(a);
}

static char *npy_place(const struct dataset *ds, int64_t i, int field)
{
    return xasprintf("%s, row %lld", container_of(ds, struct arrays, base)->field.path[field],
                     (long long)i);
}

static const struct dataset_ops npy_ops = {
    .name = "npy", .row = npy_get_row, .close = npy_drop, .place = npy_place};

static int npy_open_set(struct dataset **out, const void *options,
                        const struct dataset_request *request, struct err *err)
{
    const struct npy_options *o = options;
    struct arrays *a;
    int64_t n_classes = 0;
    int rc;

    if (request->purpose != DATASET_TRAIN && !o->texts.validation)
        return DATASET_NONE;
    a = xcalloc(1, sizeof *a);
    a->base.ops = &npy_ops;
    rc = npy_fields_open(&a->field, &o->texts, request, err);
    if (rc == 0)
        rc = npy_classes_of(o, request, &n_classes, err);
    if (rc == 0)
        rc = open_arrays(a, n_classes, request, err);
    if (rc == 0)
        rc = take_layout(a, o->layout, request, err);
    if (rc == 0) {
        npy_make_spec(a, o, n_classes);
        npy_limit(a, request);
        rc = normalize_check(&o->image, moments_features(&a->base, X), "feature", err);
    }
    if (rc == 0)
        rc = targets_prepare(&a->base, &o->targets, request, err);
    if (rc < 0) {
        npy_drop(&a->base);
        return err_wrap(err, "npy");
    }
    image_prepare(&a->base, &o->image, request->purpose);
    *out = &a->base;
    return 0;
}

#define AT(field) offsetof(struct npy_options, field)

static const struct option rows[] = {
    {"data.path", OPT_PATH, AT(texts.folder), NULL, .flags = OPT_REQUIRED | OPT_RESUME,
     .help = "The folder of the data on every rank; a follower's --data overrides it there."},
    {"data.train", OPT_STRING, AT(texts.train), "x.npy, y.npy", .flags = OPT_MANY | OPT_MAP,
     .help = "The training files: a row of features for each sample (images: [N,H,W,C], or as "
             "data.layout says), and its target. Whole numbers are classes, real ones targets. For "
             "networks with several inputs {FIELD: FILE, ...}: the target is the field labels, or "
             "the last one, and the others feed the inputs of model.import. Whole numbers and bool "
             "of these stay whole numbers."},
    {"data.validation", OPT_STRING, AT(texts.validation), NULL, .flags = OPT_MANY | OPT_MAP,
     .help = "The validation files, of the same kind. Without them, or with none, nothing is "
             "validated. For --predict x.npy alone is fine, too, or the fields without the "
             "target."},
    {"data.layout", OPT_CHOICE, AT(layout), "nhwc", .choices = layouts,
     .help = "The order of the axes of images in x, the first field: nhwc is [N,H,W,C], nchw "
             "PyTorch's [N,C,H,W]. "
             "It changes how x is read, and nothing else: samples are [H,W,C] with both, and "
             "data.normalize is of the channels."},
    {"data.normalize.source", OPT_CHOICE, AT(image.normalize), "given", .choices = normalize_names,
     .flags = OPT_SHORT,
     .help = "auto, for which data.normalize: auto is short: mean and standard deviation are those "
             "of the training set's features, one for each place of the last axis of x (images: "
             "channels). The driver measures them, and job.yaml has them."},
    {"data.normalize.mean", OPT_REALS, AT(image.mean), "[]", -MOST_REAL, MOST_REAL,
     .only = "data.normalize.source", .only_values = 1u << NORMALIZE_GIVEN,
     .help = "These numbers are subtracted from the features, one for each place of the last axis "
             "of x."},
    {"data.normalize.std", OPT_REALS, AT(image.std), "[]", LEAST_REAL, MOST_REAL,
     .only = "data.normalize.source", .only_values = 1u << NORMALIZE_GIVEN,
     .help = "The features are then divided by these numbers."},
    TARGETS_ROWS(struct npy_options, targets),
};

static int npy_check(const void *options, struct err *err)
{
    const struct npy_options *o = options;

    return npy_fields_check(&o->texts, err);
}

const struct data_format format_npy = {
    .group = {.name = "npy",
              .help = "arrays of NumPy, features and targets",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct npy_options),
              .check = npy_check},
    .open = npy_open_set,
};
