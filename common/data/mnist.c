/* mnist - MNIST and data that are stored like it: a folder with one IDX file of images [N,H,W] or
 * [N,H,W,C] and one of labels [N], for training and for validation.
 *
 * The labels of QMNIST are integers [N,8]: the class, and what else is known of the picture.  The
 * pictures stay as they are stored, as in torchvision, so those of EMNIST are transposed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "data/idx.h"
#include "data/mnist.h"

enum { X = 0 }; /* the field of SAMPLE_IMAGES; the other one is the labels */
enum {
    LABELS_AT = 8,       /* offset of the first label in its file */
    WIDE_LABELS_AT = 12, /* ... of labels [N,WIDE] of integers */
    WIDE = 8,
};

struct mnist {
    struct dataset base;
    struct idx images, labels; /* labels: a byte [N] for each class, whatever the file has */
    struct mnist_set set;      /* the classes */
    int is_given;              /* data.classes is set */
    int64_t sample_bytes;
};

static const struct idx_want images_want = {IDX_U8, 3, 4}, labels_want = {IDX_U8, 1, 1},
                             wide_want = {IDX_I32, 2, 2};

enum { MOST_SUFFIXES = 6 };

/* A file's names after the prefix, in the order in which they are tried, and what each holds. */
static const struct role {
    const char *what;
    struct {
        const char *suffix;
        const struct idx_want *want;
    } name[MOST_SUFFIXES]; /* suffix NULL at the end */
} images_role = {"images",
                 {{"-images-idx3-ubyte", &images_want},
                  {"-images-idx3-ubyte.gz", &images_want},
                  {"-images.idx3-ubyte", &images_want},
                  {"-images.idx3-ubyte.gz", &images_want}}},
  labels_role = {"labels",
                 {{"-labels-idx1-ubyte", &labels_want},
                  {"-labels-idx1-ubyte.gz", &labels_want},
                  {"-labels.idx1-ubyte", &labels_want},
                  {"-labels.idx1-ubyte.gz", &labels_want},
                  {"-labels-idx2-int", &wide_want},
                  {"-labels-idx2-int.gz", &wide_want}}};

/* A file that was found. */
struct found {
    char *path; /* malloc'd */
    const struct idx_want *want;
};

static int mnist_check_folder(const char *path, struct err *err)
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
    struct buf names = {0}, advice = {0};

    for (int i = 0; i < MOST_SUFFIXES && r->name[i].suffix; i++)
        buf_printf(&names, "%s%s%s", i ? ", " : "", prefix, r->name[i].suffix);
    if (r == &images_role)
        mnist_advise(folder, &advice);
    else
        buf_printf(&advice, "put one there, or set data.path, data.train or data.validation");
    err_set(err, ERR_IO, "no %s in folder %s, looked for %s; %s", r->what, folder, buf_cstr(&names),
            buf_cstr(&advice));
    buf_fini(&advice);
    buf_fini(&names);
    return err->code;
}

/* Find the first name that exists. */
static int find_file(struct found *out, const char *folder, const char *prefix,
                     const struct role *r, struct err *err)
{
    for (int i = 0; i < MOST_SUFFIXES && r->name[i].suffix; i++) {
        char *path = xasprintf("%s/%s%s", folder, prefix, r->name[i].suffix);

        if (access(path, F_OK) == 0) {
            *out = (struct found){path, r->name[i].want};
            return 0;
        }
        free(path);
    }
    return not_found(folder, prefix, r, err);
}

/* Check the label of sample i, and turn it into its class. */
static int take_label(struct mnist *m, int64_t i, int64_t label, struct err *err)
{
    const int is_wide = m->labels.type == IDX_I32;
    const int64_t at =
        is_wide ? WIDE_LABELS_AT + i * WIDE * idx_element_bytes(&m->labels) : LABELS_AT + i;

    if (label < m->set.first || label >= m->set.first + m->set.n_classes)
        return err_set(
            err, ERR_CORRUPT,
            "offset %lld: label of sample %lld is %lld, want %d to %d%s; is it the right "
            "file? data.classes is the number of classes of sets that are not known",
            (long long)at, (long long)i, (long long)label, m->set.first,
            m->set.first + m->set.n_classes - 1,
            m->is_given ? ", as the job sets data.classes" : "");
    m->labels.data[i] = (uint8_t)(label - m->set.first);
    return 0;
}

/* Classes overwrite labels, which are not shorter and not before them. */
static int mnist_take_labels(struct mnist *m, struct err *err)
{
    const struct idx *l = &m->labels;
    const int is_wide = l->type == IDX_I32;
    int rc = 0;

    if (is_wide && l->dim[1] != WIDE)
        return err_set(err, ERR_CORRUPT,
                       "offset 8: %lld numbers for each label, want %d, as QMNIST has, the class "
                       "first; is it the right file?",
                       (long long)l->dim[1], WIDE);
    for (int64_t i = 0; i < l->dim[0] && rc == 0; i++)
        rc = take_label(m, i, is_wide ? idx_int(l, i * WIDE) : l->data[i], err);
    return rc;
}

static int mnist_read_pair(struct mnist *m, const struct found *images, const struct found *labels,
                           struct err *err)
{
    if (idx_read(&m->images, images->path, images->want, err) < 0 ||
        idx_read(&m->labels, labels->path, labels->want, err) < 0)
        return err->code;
    if (m->images.dim[0] != m->labels.dim[0])
        return err_set(err, ERR_CORRUPT,
                       "%s: offset 4: %lld labels, want %lld, as many as images in %s; do the two "
                       "belong together?",
                       labels->path, (long long)m->labels.dim[0], (long long)m->images.dim[0],
                       images->path);
    return mnist_take_labels(m, err) < 0 ? err_wrap(err, "%s", labels->path) : 0;
}

static int mnist_read_files(struct mnist *m, const char *folder, const char *prefix,
                            struct err *err)
{
    struct found images = {0}, labels = {0};
    int rc = mnist_check_folder(folder, err);

    if (rc == 0)
        rc = find_file(&images, folder, prefix, &images_role, err);
    if (rc == 0)
        rc = find_file(&labels, folder, prefix, &labels_role, err);
    if (rc == 0)
        rc = mnist_read_pair(m, &images, &labels, err);
    free(labels.path);
    free(images.path);
    return rc;
}

/* ---- the classes, and the data set ---- */

static const char *train_prefix(const struct mnist_options *o)
{
    return o->split ? mnist_set_of(o->split)->train : o->train;
}

/* NULL: nothing is validated. */
static const char *validation_prefix(const struct mnist_options *o)
{
    return o->split && !o->validation ? mnist_set_of(o->split)->test : o->validation;
}

/* The classes of the training files, which those of validation share.  A number that the job gives
 * means labels from 0 on, but for the known set that has as many. */
static struct mnist_set mnist_classes_of(const struct mnist_options *o)
{
    struct mnist_set set = *mnist_set_of(mnist_split_of(train_prefix(o)));

    if (o->classes && o->classes != set.n_classes) {
        set.n_classes = (int)o->classes;
        set.first = 0;
        set.names = NULL;
    }
    return set;
}

/* The files of validation may be of another set, whose classes must be the same. */
static int check_validation(const struct mnist_options *o, const struct mnist_set *set,
                            const struct dataset_request *request, struct err *err)
{
    const char *prefix = validation_prefix(o);
    const struct mnist_set *other = mnist_set_of(mnist_split_of(prefix));

    if (!o->classes && mnist_split_of(prefix) &&
        (other->n_classes != set->n_classes || other->first != set->first))
        return err_set(err, ERR_CONFIG,
                       "data.validation is %s, of %d classes, data.train is %s, of %d; want two "
                       "parts of one split",
                       prefix, other->n_classes, train_prefix(o), set->n_classes);
    if (other->is_transposed != set->is_transposed)
        dataset_warn(request,
                     "EMNIST's pictures are transposed (their rows are MNIST's columns), and of "
                     "%s (training) and %s (validation) only one is EMNIST's",
                     train_prefix(o), prefix);
    return 0;
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

/* Read the files, and make the set of them. */
static int mnist_fill(struct mnist *m, const struct mnist_options *o,
                      const struct dataset_request *request, struct err *err)
{
    const int is_train = request->purpose == DATASET_TRAIN;
    const int64_t *dim = m->images.dim;
    int rc = is_train ? 0 : check_validation(o, &m->set, request, err);

    if (rc == 0)
        rc = mnist_read_files(m, o->path, is_train ? train_prefix(o) : validation_prefix(o), err);
    if (rc < 0)
        return err_wrap(err, "mnist");
    m->base.n_samples = dim[0];
    m->base.spec = (struct sample_spec)SAMPLE_IMAGES(
        dim[1], dim[2], m->images.n_dims == 4 ? dim[3] : 1, m->set.n_classes);
    m->sample_bytes = (int64_t)sample_stored_bytes(&m->base.spec.field[X]);
    return image_check(&o->image, (int)m->base.spec.field[X].shape.dim[2], err);
}

static int mnist_open(struct dataset **out, const void *options,
                      const struct dataset_request *request, struct err *err)
{
    const struct mnist_options *o = options;
    const struct mnist_set set = mnist_classes_of(o);
    struct mnist *m;

    if ((request->names_only && !set.names) ||
        (request->purpose == DATASET_VALIDATION && !validation_prefix(o)))
        return DATASET_NONE;
    m = xcalloc(1, sizeof *m);
    m->set = set;
    m->is_given = o->classes > 0;
    m->base = (struct dataset){.ops = &mnist_ops,
                               .n_samples = 1, /* of names_only */
                               .spec = SAMPLE_IMAGES(1, 1, 1, set.n_classes)};
    if (request->purpose == DATASET_TRAIN)
        m->base.class_names = set.names;
    if (!request->names_only && mnist_fill(m, o, request, err) < 0) {
        mnist_close(&m->base);
        return err->code;
    }
    image_prepare(&m->base, &o->image, request->purpose);
    *out = &m->base;
    return 0;
}

static int mnist_check(const void *options, struct err *err)
{
    const struct mnist_options *o = options;

    if (o->split && strcmp(o->train, "train") != 0)
        return err_set(err, ERR_CONFIG,
                       "data.train is %s, want it left out: data.split: %s says that the training "
                       "files are %s-...",
                       o->train, split_names[o->split], mnist_set_of(o->split)->train);
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
         "validated, but see data.split."},
    {"data.split", OPT_CHOICE, AT(split), "none", .choices = split_names,
     .help = "A split of EMNIST, or QMNIST: the files are emnist-SPLIT-train-... and "
             "emnist-SPLIT-test-... (data.validation may name others), or qmnist-train-... and "
             "qmnist-test-.... With none data.train and data.validation say which they are."},
    {"data.classes", OPT_INT, AT(classes), "0", 0, 256, .unit = "classes",
     .help = "The number of classes, whose labels count from 0. With 0 they are those of the "
             "split of EMNIST that the files' names say, or else 10. The labels 1 to 26 of letters "
             "become classes 0 to 25 then."},
    IMAGE_NORMALIZE_ROWS(struct mnist_options, image),
};

const struct data_format format_mnist = {
    .group = {.name = "mnist",
              .help = "four IDX files, .gz or not: of MNIST, EMNIST, QMNIST and the like",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct mnist_options),
              .check = mnist_check},
    .knows_names = 1,
    .open = mnist_open,
};
