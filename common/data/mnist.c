/* mnist - MNIST and data that are stored like it: a folder with one IDX file of images [N,H,W] or
 * [N,H,W,C] and one of labels [N], for training and for validation. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "data/idx.h"
#include "data/mnist.h"

enum { X = 0 }; /* the field of SAMPLE_IMAGES; the other one is the labels */
enum { N_CLASSES = 10, LABELS_AT = 8 /* offset of the first label in its file */ };

struct mnist {
    struct dataset base;
    struct idx images, labels;
    int64_t sample_bytes;
};

/* A file's names after the prefix, in the order in which they are tried. */
static const struct role {
    const char *what;
    const char *suffix[4];
} images_role = {"images",
                 {"-images-idx3-ubyte", "-images-idx3-ubyte.gz", "-images.idx3-ubyte",
                  "-images.idx3-ubyte.gz"}},
  labels_role = {"labels",
                 {"-labels-idx1-ubyte", "-labels-idx1-ubyte.gz", "-labels.idx1-ubyte",
                  "-labels.idx1-ubyte.gz"}};

static int check_folder(const char *path, struct err *err)
{
    struct stat st;

    if (!path || !path[0])
        return err_set(err, ERR_ARG, "no folder given, want data.path: where MNIST's files are");
    if (stat(path, &st) < 0)
        return err_sys(err, errno, "folder %s (data.path)", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_ARG,
                       "%s (data.path) is not a folder, want the one that holds "
                       "MNIST's files",
                       path);
    return 0;
}

static int not_found(const char *folder, const char *prefix, const struct role *r, struct err *err)
{
    struct buf names = {0};

    for (size_t i = 0; i < ARRAY_LEN(r->suffix); i++)
        buf_printf(&names, "%s%s%s", i ? ", " : "", prefix, r->suffix[i]);
    err_set(err, ERR_IO,
            "no %s in folder %s, looked for %s; put one there, or set data.path, "
            "data.train or data.validation",
            r->what, folder, buf_cstr(&names));
    buf_fini(&names);
    return err->code;
}

/* Find the first name that exists; its path is in *out (malloc'd). */
static int find_file(char **out, const char *folder, const char *prefix, const struct role *r,
                     struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(r->suffix); i++) {
        char *path = xasprintf("%s/%s%s", folder, prefix, r->suffix[i]);

        if (access(path, F_OK) == 0) {
            *out = path;
            return 0;
        }
        free(path);
    }
    return not_found(folder, prefix, r, err);
}

static int check_labels(const struct idx *labels, const char *path, struct err *err)
{
    for (int64_t i = 0; i < labels->n_bytes; i++)
        if (labels->data[i] >= N_CLASSES)
            return err_set(err, ERR_CORRUPT,
                           "%s: offset %lld: label of sample %lld is %d, want 0 to %d; is it the "
                           "right file?",
                           path, (long long)(LABELS_AT + i), (long long)i, labels->data[i],
                           N_CLASSES - 1);
    return 0;
}

static int read_pair(struct mnist *m, const char *images, const char *labels, struct err *err)
{
    if (idx_read(&m->images, images, 3, 4, err) < 0 || idx_read(&m->labels, labels, 1, 1, err) < 0)
        return err->code;
    if (m->images.dim[0] != m->labels.dim[0])
        return err_set(err, ERR_CORRUPT,
                       "%s: offset 4: %lld labels, want %lld, as many as images in %s; do the two "
                       "belong together?",
                       labels, (long long)m->labels.dim[0], (long long)m->images.dim[0], images);
    return check_labels(&m->labels, labels, err);
}

static int read_files(struct mnist *m, const char *folder, const char *prefix, struct err *err)
{
    char *images = NULL, *labels = NULL;
    int rc = check_folder(folder, err);

    if (rc == 0)
        rc = find_file(&images, folder, prefix, &images_role, err);
    if (rc == 0)
        rc = find_file(&labels, folder, prefix, &labels_role, err);
    if (rc == 0)
        rc = read_pair(m, images, labels, err);
    free(labels);
    free(images);
    return rc;
}

static int mnist_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                     struct err *err)
{
    const struct mnist *m = container_of(ds, struct mnist, base);

    (void)room, (void)err;
    *row = field == X ? m->images.data + i * m->sample_bytes : m->labels.data + i;
    return 0;
}

static void mnist_close(struct dataset *ds)
{
    struct mnist *m = container_of(ds, struct mnist, base);

    idx_fini(&m->labels);
    idx_fini(&m->images);
    free(m);
}

static const struct dataset_ops mnist_ops = {
    .name = "mnist", .row = mnist_row, .close = mnist_close};

static int mnist_open(struct dataset **out, const void *options,
                      const struct dataset_request *request, struct err *err)
{
    const struct mnist_options *o = options;
    const char *prefix = request->purpose == DATASET_TRAIN ? o->train : o->validation;
    struct mnist *m;
    const int64_t *dim;

    if (!prefix)
        return DATASET_NONE;
    m = xcalloc(1, sizeof *m);
    if (read_files(m, o->path, prefix, err) < 0) {
        mnist_close(&m->base);
        return err_wrap(err, "mnist");
    }
    dim = m->images.dim;
    m->base = (struct dataset){
        .ops = &mnist_ops,
        .n_samples = dim[0],
        .spec = SAMPLE_IMAGES(dim[1], dim[2], m->images.n_dims == 4 ? dim[3] : 1, N_CLASSES)};
    m->sample_bytes = (int64_t)sample_stored_bytes(&m->base.spec.field[X]);
    if (image_check(&o->image, (int)m->base.spec.field[X].shape.dim[2], err) < 0) {
        mnist_close(&m->base);
        return err->code;
    }
    image_prepare(&m->base, &o->image, request->purpose);
    *out = &m->base;
    return 0;
}

#define AT(field) offsetof(struct mnist_options, field)

static const struct option rows[] = {
    {"data.path", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_RESUME,
     .help = "The folder of the data on every rank; a follower's --data overrides it there."},
    {"data.train", OPT_STRING, AT(train), "train",
     .help = "The prefix of the training files, which are PREFIX-images-idx3-ubyte and "
             "PREFIX-labels-idx1-ubyte."},
    {"data.validation", OPT_STRING, AT(validation), NULL,
     .help =
         "The prefix of the validation files, usually t10k. Without it, or with none, nothing is "
         "validated."},
    IMAGE_NORMALIZE_ROWS(struct mnist_options, image),
};

const struct data_format format_mnist = {
    .group = {.name = "mnist",
              .help = "four IDX files, .gz or not",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct mnist_options)},
    .open = mnist_open,
};
