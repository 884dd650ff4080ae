/* images - folders of JPEG and PNG files, one folder for each class, as torchvision's ImageFolder
 * has them, or tar files, as WebDataset's.
 *
 * A sample is [size,size,3].  It is the middle of the picture after its shorter side was resized to
 * `resize`; or in training, with random_resized_crop, a part of it whose area and form are drawn,
 * as torchvision's transform of that name does.  Pictures are decoded when they are read; all that
 * stays in memory is the list of files.
 *
 * The fingerprint is of names and files, not of pixels: another version of libjpeg may decode a
 * pixel otherwise. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/util.h"
#include "data/files.h"
#include "data/image.h"
#include "data/labels.h"
#include "data/picture.h"

enum { IMAGE, LABEL };                             /* the fields */
enum { MOST_WARNINGS = 20 };                       /* about files that are left out */
enum { PRINT_FILES = 16, PRINT_BYTES = 64 << 10 }; /* in the fingerprint */
enum { ATTEMPTS = 10 };                            /* to draw a part that fits, as torchvision */

enum jpeg_scale { SCALE_AUTO, SCALE_WHOLE };

static const char *const jpeg_scales[] = {[SCALE_AUTO] = "auto", [SCALE_WHOLE] = "whole", NULL};

enum on_corrupt { CORRUPT_FAIL, CORRUPT_SKIP };

static const char *const corrupts[] = {[CORRUPT_FAIL] = "fail", [CORRUPT_SKIP] = "skip", NULL};

struct images_options {
    const char *path, *train, *validation;
    int64_t size, resize;
    enum on_corrupt on_corrupt;
    enum jpeg_scale jpeg_scale;
    int random_resized_crop;
    struct image_options image;
};

struct images {
    struct dataset base;
    struct files files;
    const char **class_names; /* [n_classes] in files.names; NULL: tar files have none */
    char *inside;             /* the path of the folder within data.path */
    int64_t size, resize;
    enum picture_scale scale;
    enum on_corrupt on_corrupt;
    atomic_int n_warnings; /* threads that read count together */
};

/* ---- the part of a picture that is taken ---- */

/* The middle square of `size` once the shorter side is resized to `resize`.  Both steps round to
 * whole pixels of the resized picture as torchvision's Resize and CenterCrop do. */
static struct picture_box images_middle(const struct images *s, int64_t width, int64_t height)
{
    const int64_t w = width < height ? s->resize : s->resize * width / height,
                  h = width < height ? s->resize * height / width : s->resize;
    const double across = (double)width / (double)w, down = (double)height / (double)h,
                 size = (double)s->size;

    return (struct picture_box){rint((double)(w - s->size) / 2) * across,
                                rint((double)(h - s->size) / 2) * down, size * across, size * down};
}

/* The part that torchvision takes if no drawn part fits: the largest one in the middle whose form
 * is allowed. */
static struct picture_box images_largest(int64_t width, int64_t height)
{
    const double w = (double)width, h = (double)height;
    const double part_w = fmin(w, floor(h * 4 / 3 + 0.5)), part_h = fmin(h, floor(w * 4 / 3 + 0.5));

    return (struct picture_box){floor((w - part_w) / 2), floor((h - part_h) / 2), part_w, part_h};
}

static double images_unit(uint32_t v) { return (double)v * 0x1p-32; }

/* An area of 8 to 100 % of the picture, and a form from 3:4 to 4:3, uniform in its logarithm.  The
 * block of random numbers of attempt k is apart from those of image_augment and of other samples.
 */
static struct picture_box images_drawn(const struct dataset_draw *draw, int64_t i, int64_t width,
                                       int64_t height)
{
    const double limit = log(4.0 / 3);

    for (int k = 1; k <= ATTEMPTS; k++) {
        const struct rng_block b = rng_draw(draw->seed, RNG_AUGMENT, (uint64_t)draw->epoch,
                                            (uint64_t)i | (uint64_t)k << 48);
        const double area = (double)width * (double)height * (0.08 + 0.92 * images_unit(b.v[0])),
                     form = exp(limit * (2 * images_unit(b.v[1]) - 1));
        const double w = floor(sqrt(area * form) + 0.5), h = floor(sqrt(area / form) + 0.5);

        if (w >= 1 && h >= 1 && w <= (double)width && h <= (double)height)
            return (struct picture_box){floor(images_unit(b.v[2]) * ((double)width - w + 1)),
                                        floor(images_unit(b.v[3]) * ((double)height - h + 1)), w,
                                        h};
    }
    return images_largest(width, height);
}

/* ---- samples ---- */

static int images_decode(const struct images *s, const struct dataset_draw *draw, int64_t i,
                         const void *bytes, size_t n_bytes, uint8_t *to, struct err *err)
{
    struct picture *p = NULL;
    struct picture_size from;
    struct picture_box box;
    int rc = picture_open(&p, bytes, n_bytes, err);

    if (rc < 0)
        return rc;
    from = picture_size(p);
    box = draw ? images_drawn(draw, i, from.width, from.height)
               : images_middle(s, from.width, from.height);
    rc = picture_read(p, &box, (struct picture_size){s->size, s->size}, s->scale, to, err);
    picture_close(p);
    return rc;
}

/* A file cannot be decoded: the job ends, or goes on without the sample. */
static int images_leave_out(const struct images *s, const char *name, struct err *err)
{
    atomic_int *n_warnings = (atomic_int *)(uintptr_t)&s->n_warnings;

    if (s->on_corrupt == CORRUPT_FAIL) {
        char *why = xstrdup(err->msg);

        err_set(err, ERR_CORRUPT,
                "%s: %s; mend or remove it, or set data.on_corrupt: skip, which leaves it out",
                name, why);
        free(why);
        return err->code;
    }
    if (atomic_fetch_add(n_warnings, 1) < MOST_WARNINGS)
        log_warn("%s: %s; it is left out (data.on_corrupt: skip)", name, err->msg);
    return DATASET_LOST;
}

static int read_image(const struct images *s, const struct dataset_draw *draw, int64_t i,
                      uint8_t *to, struct err *err)
{
    char *name = NULL;
    size_t n_bytes;
    void *bytes;
    int rc = files_read(&s->files, i, &bytes, &n_bytes, err);

    if (rc == 0)
        rc = images_decode(s, draw, i, bytes, n_bytes, to, err);
    free(bytes);
    if (rc < 0)
        name = files_name(&s->files, i);
    if (rc == ERR_CORRUPT)
        rc = images_leave_out(s, name, err);
    else if (rc < 0)
        rc = err_wrap(err, "%s", name);
    free(name);
    return rc;
}

static int images_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                      struct err *err)
{
    const struct images *s = container_of(ds, struct images, base);

    *row = room;
    if (field == IMAGE)
        return read_image(s, NULL, i, room, err);
    *(int32_t *)room = s->files.item[i].class_number;
    return 0;
}

static int images_row_drawn(const struct dataset *ds, const struct dataset_draw *draw, int64_t i,
                            void *room, struct err *err)
{
    return read_image(container_of(ds, struct images, base), draw, i, room, err);
}

/* All names and classes, and the beginnings of some files. */
static int images_print(const struct dataset *ds, struct hasher *h, struct err *err)
{
    const struct files *f = &container_of(ds, struct images, base)->files;
    const int64_t n = min_i64(f->n, PRINT_FILES);
    int rc = 0;

    for (int64_t i = 0; i < f->n; i++) {
        hasher_add_text(h, files_text(f, f->item[i].name));
        hasher_add_i64(h, f->item[i].class_number);
    }
    for (int64_t k = 0; rc == 0 && k < n; k++) {
        const int64_t i = dataset_spread(k, n, f->n);
        size_t n_bytes;
        void *bytes;

        rc = files_read(f, i, &bytes, &n_bytes, err);
        if (rc == 0) {
            hasher_add_i64(h, (int64_t)n_bytes);
            hasher_add(h, bytes, (size_t)min_i64((int64_t)n_bytes, PRINT_BYTES));
        } else {
            char *name = files_name(f, i);

            rc = err_wrap(err, "%s", name);
            free(name);
        }
        free(bytes);
    }
    return rc;
}

static void images_close(struct dataset *ds)
{
    struct images *s = container_of(ds, struct images, base);

    files_close(&s->files);
    free(s->class_names);
    free(s->inside);
    free(s);
}

static char *images_sample_name(const struct dataset *ds, int64_t i)
{
    const struct images *s = container_of(ds, struct images, base);
    char *inside = files_inside(&s->files, i),
         *name = *s->inside ? xasprintf("%s/%s", s->inside, inside) : xstrdup(inside);

    free(inside);
    return name;
}

static const struct dataset_ops images_ops = {.name = "images",
                                              .row = images_row,
                                              .row_drawn = images_row_drawn,
                                              .print = images_print,
                                              .close = images_close,
                                              .sample_name = images_sample_name};

/* ---- opening ---- */

/* data.validation may be a path of its own. */
static char *images_path_in(const char *folder, const char *path)
{
    return *path == '/' ? xstrdup(path) : xasprintf("%s/%s", folder, path);
}

/* The path of the folder within data.path, or the whole path of one elsewhere. */
static char *inside_of(const struct images_options *o, const char *folder)
{
    const size_t n = strlen(o->path);

    if (strncmp(folder, o->path, n) != 0 || (folder[n] != '/' && folder[n]))
        return xstrdup(folder);
    folder += n;
    return xstrdup(folder + strspn(folder, "/"));
}

static const char **names_of(const struct files *f)
{
    const char **name = xcalloc((size_t)f->n_classes, sizeof *name);

    for (int i = 0; i < f->n_classes; i++)
        name[i] = files_text(f, f->place[i]);
    return name;
}

static int has_no_labels(const struct files *f)
{
    for (int64_t i = 0; i < f->n; i++)
        if (f->item[i].class_number != SAMPLE_IGNORED)
            return 0;
    return 1;
}

/* A validation set has the classes of the training set. */
static int list_files(struct images *s, const struct images_options *o,
                      const struct dataset_request *request, struct err *err)
{
    const int is_train = request->purpose == DATASET_TRAIN;
    char *train_folder = xasprintf("%s/%s", o->path, o->train),
         *folder = is_train ? xstrdup(train_folder) : images_path_in(o->path, o->validation);
    struct files train = {0};
    int rc = 0;

    if (!is_train)
        rc = files_open(&train, train_folder, NULL, err);
    if (rc == 0)
        rc = request->may_lack_labels && !is_train
                 ? files_open_any(&s->files, folder, &train, err)
                 : files_open(&s->files, folder, is_train ? NULL : &train, err);
    if (rc == 0)
        s->inside = inside_of(o, s->files.folder);
    if (rc == 0 && is_train && !s->files.is_tar)
        s->class_names = names_of(&s->files);
    files_close(&train);
    free(folder);
    free(train_folder);
    return rc;
}

static void warn_of_others(const struct files *f, const struct dataset_request *request)
{
    if (f->n_other > 0)
        dataset_warn(
            request,
            "folder %s: pictures that are neither JPEG nor PNG are left out, %lld of them, "
            "such as %s; convert them to one of these, or remove them",
            f->folder, (long long)f->n_other, files_text(f, f->other));
}

static void tell_of_tars(const struct files *f, const struct dataset_request *request)
{
    if (f->n_again > 0)
        dataset_warn(
            request,
            "folder %s: %lld samples have the key of an earlier one of their shard, such as "
            "%s; each is a sample, as with WebDataset; remove the older ones if they were "
            "replaced (tar --append, --update)",
            f->folder, (long long)f->n_again, files_text(f, f->again));
    if (f->n_left_out > 0)
        log_info("folder %s: %lld members beside pictures and classes are left out, such as %s",
                 f->folder, (long long)f->n_left_out, files_text(f, f->left_out));
}

static void warn_of_one_folder(const struct images_options *o,
                               const struct dataset_request *request)
{
    if (!strcmp(o->train, o->validation))
        dataset_warn(request,
                     "folder %s/%s both trains and validates, so the validation says nothing about "
                     "other pictures; set data.train and data.validation to two folders",
                     o->path, o->train);
}

/* As folders in class folders are walked, a path one level too high has one class. */
static void warn_of_one_class(const struct files *f, const struct dataset_request *request)
{
    if (f->n_classes == 1)
        dataset_warn(
            request,
            "folder %s: its %lld pictures are all of one class, %s, so there is nothing to "
            "learn; is data.path or data.train one level too high?",
            f->folder, (long long)f->n, f->is_tar ? "0" : files_text(f, f->place[0]));
}

/* The classes of tar files are numbers, of which some may lack samples.  A class folder without
 * files is an error. */
static int doubt_classes(const struct files *f, const struct dataset_request *request,
                         struct err *err)
{
    struct labels labels = {0};
    char *what;
    int rc = 0;

    if (!f->is_tar || request->targets_are_numbers)
        return 0;
    for (int64_t i = 0; i < f->n && rc == 0; i++)
        rc = labels_add(&labels, f->item[i].class_number, err);
    what = xasprintf("folder %s", f->folder);
    if (rc == 0)
        labels_doubt(&labels, what, request);
    free(what);
    labels_fini(&labels);
    return rc;
}

/* Of an image or a label, aligned for the label. */
static size_t room_bytes(int64_t size)
{
    return (size_t)round_up_i64(size * size * PICTURE_CHANNELS, SAMPLE_ALIGN);
}

static int images_open(struct dataset **out, const void *options,
                       const struct dataset_request *request, struct err *err)
{
    const struct images_options *o = options;
    struct images *s;

    s = xcalloc(1, sizeof *s);
    s->size = o->size;
    s->resize = o->resize ? o->resize : o->size;
    s->scale = request->purpose == DATASET_TRAIN && o->jpeg_scale == SCALE_AUTO ? PICTURE_SMALLEST
                                                                                : PICTURE_WHOLE;
    s->on_corrupt = o->on_corrupt;
    if (list_files(s, o, request, err) < 0 ||
        (request->purpose == DATASET_TRAIN && doubt_classes(&s->files, request, err) < 0)) {
        images_close(&s->base);
        return err_wrap(err, "images");
    }
    if (!request->names_only) {
        warn_of_others(&s->files, request);
        tell_of_tars(&s->files, request);
    }
    if (request->purpose == DATASET_TRAIN && !request->names_only)
        warn_of_one_class(&s->files, request);
    if (request->purpose != DATASET_TRAIN)
        warn_of_one_folder(o, request);
    s->base = (struct dataset){.ops = &images_ops,
                               .n_samples = s->files.n,
                               .spec = SAMPLE_IMAGES(o->size, o->size, 3, s->files.n_classes),
                               .room_bytes = room_bytes(o->size),
                               .leaves_out = o->on_corrupt == CORRUPT_SKIP,
                               .has_no_labels = has_no_labels(&s->files),
                               .class_names = s->class_names,
                               .is_slow = 1};
    s->base.spec.field[LABEL].stored = DTYPE_I32;
    image_prepare(&s->base, &o->image, request->purpose);
    s->base.image.cut = o->random_resized_crop && request->purpose == DATASET_TRAIN;
    *out = &s->base;
    return 0;
}

static int images_check(const void *options, struct err *err)
{
    const struct images_options *o = options;

    if (o->resize && o->resize < o->size)
        return err_set(err, ERR_CONFIG, "data.resize is %lld, want at least data.size, %lld",
                       (long long)o->resize, (long long)o->size);
    return image_check(&o->image, PICTURE_CHANNELS, err);
}

#define AT(field) offsetof(struct images_options, field)

static const struct option rows[] = {
    {"data.path", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_RESUME,
     .help = "The folder of the data on every rank; a follower's --data overrides it there."},
    {"data.train", OPT_STRING, AT(train), "train",
     .help = "The folder in data.path that trains: it has one folder of .jpg, .jpeg and .png files "
             "for each class, folders in it included, or shards that end in .tar, with KEY.jpg and "
             "KEY.cls for each sample."},
    {"data.validation", OPT_STRING, AT(validation), "val",
     .help = "The folder in data.path that validates, of the same kind; with none nothing is "
             "validated. For --predict it may also be a folder of pictures without class folders, "
             "or one picture. A path that begins with / is not in data.path."},
    {"data.size", OPT_INT, AT(size), "224", 1, 4096, .unit = "pixels",
     .help = "The height and the width of the images that the model gets."},
    {"data.resize", OPT_INT, AT(resize), "0", 0, 8192, .unit = "pixels",
     .help = "The shorter side of a picture is resized to this, and the middle is taken; 0 stands "
             "for data.size. ImageNet's networks are validated with 256 for a size of 224."},
    {"data.on_corrupt", OPT_CHOICE, AT(on_corrupt), "fail", .choices = corrupts,
     .help = "With fail, a file that cannot be decoded ends the job. With skip, a black image "
             "takes its place, which loss and accuracy leave out. Both name the file."},
    {"data.jpeg_scale", OPT_CHOICE, AT(jpeg_scale), "auto", .choices = jpeg_scales,
     .help = "With whole, JPEG files are decoded at their own size before they are resized, as "
             "torchvision does. With auto, that is so for validation, evaluation and prediction; "
             "in training they are decoded at 1/2, 1/4 or 1/8 where that covers data.size, which "
             "is faster and gives slightly other pixels."},
    {"data.augment.random_resized_crop", OPT_BOOL, AT(random_resized_crop), "false",
     .help = "In training, take a part of the picture, 8 to 100 % of its area and from 3:4 to 4:3 "
             "in form, at random, and resize it, as torchvision's RandomResizedCrop does."},
    IMAGE_ROWS(struct images_options, image),
};

const struct data_format format_images = {
    .group = {.name = "images",
              .help = "folders of JPEG and PNG files, one for each class, or tar shards",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct images_options),
              .check = images_check},
    .knows_names = 1,
    .open = images_open,
};
