/* cifar - CIFAR-10 and CIFAR-100, the binary version: files of records, compressed by gzip or not.
 *
 *     cifar10    label byte 0..9                              3072 bytes: 1024 red, green, blue
 *     cifar100   coarse label 0..19, fine label 0..99         the same; the fine label is learnt
 *
 * The planes of a 32x32 image are interleaved to [32,32,3] when they are read.  All records stay in
 * memory, in blocks of equal size, so that the size of a file need not be believed.
 *
 * `data.train` and `data.validation` name files of the folder: each item is a file there, or a
 * prefix P, for P.bin or else P_1.bin, P_2.bin ... without a gap, each with `.gz` or without.
 *
 * The names of the classes are those of the file that comes with the data, a line each, if it is
 * there. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/gzin.h"
#include "data/image.h"

enum {
    SIDE = 32,
    PLANE = SIDE * SIDE,
    IMAGE = 3 * PLANE,
    BLOCK = 1024, /* records */
    MOST_FILES = 99,
    MOST_CLASSES = 100,
    MOST_NAMES = 4096, /* bytes of the file of names */
};

struct cifar_options {
    const char *path, *train, *validation;
    struct image_options image;
};

/* The label bytes of a record; the last one is the class that is learnt. */
struct kind {
    const struct dataset_ops *ops;
    int n_labels;
    int n_classes[2];  /* of each label byte */
    const char *names; /* the file of the classes' names */
};

struct cifar {
    struct dataset base;
    struct kind kind;
    uint8_t **block;
    int64_t n_blocks;
    char *names; /* the text of that file; NULL: there is none, or it has another form */
    const char *name[MOST_CLASSES];
};

static int64_t record_bytes(const struct cifar *c) { return c->kind.n_labels + IMAGE; }

static uint8_t *record_of(const struct cifar *c, int64_t i)
{
    return c->block[i / BLOCK] + i % BLOCK * record_bytes(c);
}

/* ---- records ---- */

/* Room for record i, the next one. */
static int cifar_make_room(struct cifar *c, int64_t i, struct err *err)
{
    void *block;

    if (i < c->n_blocks * BLOCK)
        return 0;
    if (try_alloc(&block, (size_t)(BLOCK * record_bytes(c)), "images of a CIFAR file", err) < 0)
        return err->code;
    c->block = xrealloc(c->block, (size_t)(c->n_blocks + 1) * sizeof *c->block);
    c->block[c->n_blocks++] = block;
    return 0;
}

static int check_labels(const struct cifar *c, const uint8_t *record, int64_t offset, int64_t i,
                        struct err *err)
{
    for (int k = 0; k < c->kind.n_labels; k++)
        if (record[k] >= c->kind.n_classes[k])
            return err_set(err, ERR_CORRUPT,
                           "offset %lld: %s of record %lld is %d, want 0 to %d; is it the right "
                           "file, and %s its format?",
                           (long long)(offset + k),
                           k + 1 < c->kind.n_labels ? "coarse label" : "label", (long long)i,
                           record[k], c->kind.n_classes[k] - 1, c->kind.ops->name);
    return 0;
}

/* Turn three planes into one pixel after the other. */
static void cifar_interleave(uint8_t *image)
{
    uint8_t planes[IMAGE];

    memcpy(planes, image, IMAGE);
    for (int i = 0; i < PLANE; i++)
        for (int k = 0; k < 3; k++)
            image[3 * i + k] = planes[k * PLANE + i];
}

/* Read record i, after those before it; *end is set at the end of the file. */
static int cifar_read_record(struct cifar *c, struct gzin *g, int64_t i, int *end, struct err *err)
{
    const int64_t n_bytes = record_bytes(c);
    uint8_t *record;
    size_t got;

    if (cifar_make_room(c, c->base.n_samples, err) < 0)
        return err->code;
    record = record_of(c, c->base.n_samples);
    if (gzin_read(g, record, (size_t)n_bytes, &got, err) < 0)
        return err->code;
    *end = got == 0;
    if (got == 0)
        return 0;
    if ((int64_t)got < n_bytes)
        return err_set(err, ERR_CORRUPT,
                       "offset %lld: the file ends within record %lld, want records of %lld bytes; "
                       "fetch it again, or is %s not its format?",
                       (long long)(i * n_bytes + (int64_t)got), (long long)i, (long long)n_bytes,
                       c->kind.ops->name);
    if (check_labels(c, record, i * n_bytes, i, err) < 0)
        return err->code;
    cifar_interleave(record + c->kind.n_labels);
    c->base.n_samples++;
    return 0;
}

static int cifar_read_file(struct cifar *c, const char *path, struct err *err)
{
    struct gzin *g;
    int64_t i = 0;
    int end = 0, rc = gzin_open_file(&g, path, err);

    if (rc < 0)
        return err_wrap(err, "%s", path);
    for (; rc == 0 && !end; i++)
        rc = cifar_read_record(c, g, i, &end, err);
    if (rc == 0 && i == 1)
        rc = err_set(err, ERR_CORRUPT, "offset 0: the file is empty, want records of %lld bytes",
                     (long long)record_bytes(c));
    gzin_close(g);
    return rc < 0 ? err_wrap(err, "%s", path) : 0;
}

/* ---- files ---- */

/* Read FOLDER/NAME, or else FOLDER/NAME.gz; 1: neither is there. */
static int read_either(struct cifar *c, const char *folder, const char *name, struct err *err)
{
    struct stat st;
    int rc = 1;

    for (int gz = 0; rc == 1 && gz < 2; gz++) {
        char *path = xasprintf("%s/%s%s", folder, name, gz ? ".gz" : "");

        if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
            rc = cifar_read_file(c, path, err);
        free(path);
    }
    return rc;
}

/* Read PREFIX_1.bin, PREFIX_2.bin ...; 1: there is none. */
static int read_numbered(struct cifar *c, const char *folder, const char *prefix, struct err *err)
{
    int rc = 0, gap = 0;

    for (int i = 1; rc >= 0 && i <= MOST_FILES; i++) {
        char *name = xasprintf("%s_%d.bin", prefix, i);

        rc = read_either(c, folder, name, err);
        if (rc == 0 && gap)
            rc = err_set(err, ERR_IO,
                         "%s is in folder %s, but not %s_%d.bin; fetch that, or list the files",
                         name, folder, prefix, gap);
        if (rc == 1 && !gap)
            gap = i;
        free(name);
    }
    return rc < 0 ? rc : gap == 1;
}

static int cifar_read_item(struct cifar *c, const char *folder, const char *item, struct err *err)
{
    char *name = xasprintf("%s.bin", item);
    int rc = *item ? read_either(c, folder, item, err) : 1;

    if (rc == 1)
        rc = read_either(c, folder, name, err);
    if (rc == 1)
        rc = read_numbered(c, folder, item, err);
    if (rc == 1)
        rc = err_set(err, ERR_IO,
                     "no file %s in folder %s, nor %s.bin or %s_1.bin, nor any with .gz; put it "
                     "there, or set data.path, data.train or data.validation",
                     item, folder, item, item);
    free(name);
    return rc;
}

/* Items are separated by commas. */
static int cifar_read_all(struct cifar *c, const char *folder, const char *items, struct err *err)
{
    char *text = xstrdup(items), *next = text, *item;
    int rc = 0;

    while (rc == 0 && (item = strsep(&next, ","))) {
        item += strspn(item, " ");
        rc = cifar_read_item(c, folder, item, err);
    }
    free(text);
    return rc;
}

/* ---- the data set ---- */

static int cifar_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                     struct err *err)
{
    const struct cifar *c = container_of(ds, struct cifar, base);
    const uint8_t *image = record_of(c, i) + c->kind.n_labels;

    (void)room, (void)err;
    *row = field == 0 ? image : image - 1; /* the fields of SAMPLE_IMAGES */
    return 0;
}

static void cifar_close(struct dataset *ds)
{
    struct cifar *c = container_of(ds, struct cifar, base);

    for (int64_t i = 0; i < c->n_blocks; i++)
        free(c->block[i]);
    free(c->block);
    free(c->names);
    free(c);
}

/* Take the file of names if it has one line for each class, but for empty ones.  Data without it,
 * or with another such file, are fine: then the classes are numbers. */
static void read_names(struct cifar *c, const char *folder)
{
    char *path = xasprintf("%s/%s", folder, c->kind.names), *next, *line;
    const int n_classes = c->kind.n_classes[c->kind.n_labels - 1];
    struct stat st; /* a pipe is no reason to wait */
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "rbe") : NULL;
    int n = 0;

    free(path);
    if (!f)
        return;
    c->names = xcalloc(1, MOST_NAMES + 1);
    next = c->names;
    if (fread(c->names, 1, MOST_NAMES, f) == MOST_NAMES)
        *c->names = 0; /* too long: it is another file */
    fclose(f);
    while ((line = strsep(&next, "\n"))) {
        for (size_t end = strlen(line); end > 0 && isspace((unsigned char)line[end - 1]);)
            line[--end] = 0;
        if (*line && n < n_classes)
            c->name[n] = line;
        n += *line != 0;
    }
    if (n == n_classes)
        c->base.class_names = c->name;
}

static const struct dataset_ops ops_10 = {"cifar10", cifar_row, cifar_close};
static const struct dataset_ops ops_100 = {"cifar100", cifar_row, cifar_close};

static int open_kind(struct dataset **out, const struct kind *kind, const void *options,
                     const struct dataset_request *request, struct err *err)
{
    const struct cifar_options *o = options;
    const int n_classes = kind->n_classes[kind->n_labels - 1];
    const char *items = request->purpose == DATASET_TRAIN ? o->train : o->validation;
    struct cifar *c = xcalloc(1, sizeof *c);

    c->kind = *kind;
    c->base = (struct dataset){.ops = kind->ops, .spec = SAMPLE_IMAGES(SIDE, SIDE, 3, n_classes)};
    if (request->purpose == DATASET_TRAIN)
        read_names(c, o->path);
    if (request->names_only && !c->base.class_names) {
        cifar_close(&c->base);
        return DATASET_NONE;
    }
    if (!request->names_only && cifar_read_all(c, o->path, items, err) < 0) {
        cifar_close(&c->base);
        return err_wrap(err, "%s", kind->ops->name);
    }
    image_prepare(&c->base, &o->image, request->purpose);
    *out = &c->base;
    return 0;
}

static int open_10(struct dataset **out, const void *options, const struct dataset_request *request,
                   struct err *err)
{
    return open_kind(out, &(struct kind){&ops_10, 1, {10}, "batches.meta.txt"}, options, request,
                     err);
}

static int open_100(struct dataset **out, const void *options,
                    const struct dataset_request *request, struct err *err)
{
    return open_kind(out, &(struct kind){&ops_100, 2, {20, 100}, "fine_label_names.txt"}, options,
                     request, err);
}

static int cifar_check(const void *options, struct err *err)
{
    const struct cifar_options *o = options;

    return image_check(&o->image, 3, err);
}

#define AT(field) offsetof(struct cifar_options, field)

static const char path_help[] =
    "The folder of the data on every rank; a follower's --data overrides it there.";
static const char train_help[] =
    "The training files, by name or by prefix: P stands for P.bin, or for P_1.bin, P_2.bin ...";
static const char validation_help[] =
    "The validation files, likewise by name or by prefix; with none nothing is validated.";

static const struct option rows_10[] = {
    {"data.path", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_RESUME, .help = path_help},
    {"data.train", OPT_STRING, AT(train), "data_batch", .flags = OPT_MANY, .help = train_help},
    {"data.validation", OPT_STRING, AT(validation), "test_batch", .flags = OPT_MANY,
     .help = validation_help},
    IMAGE_ROWS(struct cifar_options, image),
};

static const struct option rows_100[] = {
    {"data.path", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_RESUME, .help = path_help},
    {"data.train", OPT_STRING, AT(train), "train", .flags = OPT_MANY, .help = train_help},
    {"data.validation", OPT_STRING, AT(validation), "test", .flags = OPT_MANY,
     .help = validation_help},
    IMAGE_ROWS(struct cifar_options, image),
};

const struct data_format format_cifar10 = {
    .group = {.name = "cifar10",
              .help = "the binary version's files, .gz or not",
              .option = rows_10,
              .n_options = ARRAY_LEN(rows_10),
              .size = sizeof(struct cifar_options),
              .check = cifar_check},
    .knows_names = 1,
    .open = open_10,
};

const struct data_format format_cifar100 = {
    .group = {.name = "cifar100",
              .help = "the same with the fine labels of CIFAR-100",
              .option = rows_100,
              .n_options = ARRAY_LEN(rows_100),
              .size = sizeof(struct cifar_options),
              .check = cifar_check},
    .knows_names = 1,
    .open = open_100,
};
