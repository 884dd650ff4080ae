/* images - folders of JPEG and PNG files, one folder for each class, as torchvision's ImageFolder
 * has them, or tar files, as WebDataset's.
 *
 * A sample is [size,size,3].  It is the middle of the picture after its shorter side was resized to
 * `resize`; or in training, with random_resized_crop, a part of it whose area and form are drawn,
 * as torchvision's transform of that name does.  Pictures are decoded when they are read; all that
 * stays in memory is the list of files.
 *
 * With data.cache they are decoded once, into a file (data/picture_cache.h).  It has the samples
 * themselves where nothing but crops and flips is drawn.  Where parts are drawn it has the whole
 * pictures, not enlarged, and the shorter side at most data.cache_size; the same parts are taken
 * then.  Their middle is read from the pictures' own files, so that what is measured is the same.
 *
 * The fingerprint is of names and files, not of pixels: another version of libjpeg may decode a
 * pixel otherwise. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "data/files.h"
#include "data/files_doubt.h"
#include "data/image.h"
#include "data/parts.h"
#include "data/picture_cache.h"

enum { IMAGE, LABEL };                             /* the fields */
enum { MOST_WARNINGS = 20 };                       /* about files that are left out */
enum { PRINT_FILES = 16, PRINT_BYTES = 64 << 10 }; /* in the fingerprint */

enum { CACHE_VERSION = 1 }; /* of how files become cached pixels */

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
    const char *cache;
    int64_t cache_size;
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
    struct picture_file cached; /* no bytes: there is none */
    int64_t cached_side;        /* of pictures as they are kept, at most; 0: samples are kept */
    atomic_int n_warnings;      /* threads that read count together */
};

/* ---- samples ---- */

/* The part of a picture that is a sample. */
static struct picture_box images_part(const struct images *s, const struct dataset_draw *draw,
                                      int64_t i, int64_t width, int64_t height)
{
    return draw ? parts_drawn(draw, i, width, height)
                : parts_middle(s->size, s->resize, width, height);
}

static struct picture_size images_square(const struct images *s)
{
    return (struct picture_size){s->size, s->size};
}

/* A picture that is decoded: as a sample, or whole. */
struct images_wanted {
    const struct dataset_draw *draw; /* NULL: the middle */
    uint8_t *to;                     /* the sample; NULL: whole */
    struct buf *whole;               /* gets the pixels of a whole picture */
    struct picture_entry *entry;     /* and its sizes */
};

static int images_decode_whole(const struct images *s, struct picture *p,
                               const struct images_wanted *want, struct err *err)
{
    const struct picture_size from = picture_size(p);
    const int64_t shorter = min_i64(from.width, from.height),
                  side = min_i64(shorter, s->cached_side);
    const struct picture_size to = {from.width * side / shorter, from.height * side / shorter};
    const struct picture_box all = {0, 0, (double)from.width, (double)from.height};
    const size_t n_bytes = (size_t)(to.width * to.height * PICTURE_CHANNELS);
    void *rgb;
    int rc = try_alloc(&rgb, n_bytes, "a picture's pixels", err);

    if (rc < 0)
        return rc;
    *want->entry = (struct picture_entry){.width = (uint32_t)to.width,
                                          .height = (uint32_t)to.height,
                                          .whole_width = (uint32_t)from.width,
                                          .whole_height = (uint32_t)from.height};
    rc = picture_read(p, &all, to, PICTURE_WHOLE, rgb, err);
    if (rc == 0)
        rc = buf_try_append(want->whole, rgb, n_bytes, "decoded pictures", err);
    free(rgb);
    return rc;
}

static int images_decode(const struct images *s, const struct images_wanted *want, int64_t i,
                         const void *bytes, size_t n_bytes, struct err *err)
{
    struct picture *p = NULL;
    int rc = picture_open(&p, bytes, n_bytes, err);

    if (rc < 0)
        return rc;
    if (want->to) {
        const struct picture_size from = picture_size(p);
        const struct picture_box box = images_part(s, want->draw, i, from.width, from.height);

        rc = picture_read(p, &box, images_square(s), s->scale, want->to, err);
    } else {
        rc = images_decode_whole(s, p, want, err);
    }
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

static int read_image(const struct images *s, const struct images_wanted *want, int64_t i,
                      struct err *err)
{
    char *name = NULL;
    size_t n_bytes;
    void *bytes;
    int rc = files_read(&s->files, i, &bytes, &n_bytes, err);

    if (rc == 0)
        rc = images_decode(s, want, i, bytes, n_bytes, err);
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

/* ---- the file of decoded pictures ---- */

/* 1: the file has what is wanted. */
static int images_has_cached(const struct images *s, const struct dataset_draw *draw)
{
    return s->cached.file.bytes && (draw != NULL) == (s->cached_side > 0);
}

static int images_lost(const struct images *s, int64_t i, struct err *err)
{
    char *name = files_name(&s->files, i);
    int rc;

    err_set(err, ERR_CORRUPT, "it could not be decoded when %s was made", s->cached.file.path);
    rc = images_leave_out(s, name, err);
    free(name);
    return rc;
}

static int images_read_cached(const struct images *s, const struct dataset_draw *draw, int64_t i,
                              uint8_t *to, struct err *err)
{
    struct picture_entry e;
    struct picture_box box;
    const int rc = picture_file_find(&s->cached, i, &e, err);

    if (rc == PICTURE_FILE_LOST)
        return images_lost(s, i, err);
    if (rc < 0)
        return rc;
    if (draw) {
        box = images_part(s, draw, i, e.whole_width, e.whole_height);
        return picture_file_read_box(&s->cached, &e, &box, images_square(s), to, err);
    }
    if (e.width != s->size || e.height != s->size)
        return err_set(err, ERR_CORRUPT,
                       "file %s: picture %lld has %u by %u pixels, want %lld by %lld; remove it, "
                       "and it is made anew",
                       s->cached.file.path, (long long)i, e.width, e.height, (long long)s->size,
                       (long long)s->size);
    return picture_file_read(&s->cached, &e, to, err);
}

/* Make picture i for the file (struct picture_cache). */
static int images_keep(const void *arg, int64_t i, struct buf *pixels, struct picture_entry *entry,
                       struct err *err)
{
    const struct images *s = arg;
    const uint32_t size = (uint32_t)s->size;
    struct images_wanted want = {.whole = pixels, .entry = entry};
    const size_t n_bytes = (size_t)size * size * PICTURE_CHANNELS;
    int rc;

    if (s->cached_side == 0)
        want.to = xmalloc(n_bytes);
    rc = read_image(s, &want, i, err);
    if (rc == 0 && want.to) {
        *entry = (struct picture_entry){0, size, size, size, size};
        rc = buf_try_append(pixels, want.to, n_bytes, "decoded pictures", err);
    }
    free(want.to);
    return rc == DATASET_LOST ? PICTURE_FILE_LOST : rc;
}

static int images_open_cache(struct images *s, const char *folder, struct err *err)
{
    struct picture_cache what = {.folder = folder,
                                 .pictures = s->files.folder,
                                 .n = s->files.n,
                                 .make = images_keep,
                                 .arg = s};
    struct hasher *const h = hasher_new();
    int rc;

    hasher_add_i64(h, CACHE_VERSION);
    hasher_add_text(h, s->files.folder);
    hasher_add_i64(h, s->cached_side);
    hasher_add_i64(h, s->cached_side ? 0 : s->size);
    hasher_add_i64(h, s->cached_side ? 0 : s->resize);
    hasher_add_i64(h, s->cached_side ? 0 : (int64_t)s->scale);
    what.name = hasher_end(h);
    rc = files_print(&s->files, h, err);
    what.key = hasher_end(h);
    hasher_free(h);
    return rc < 0 ? rc : picture_cache_open(&s->cached, &what, err);
}

/* ---- rows ---- */

static int images_read(const struct images *s, const struct dataset_draw *draw, int64_t i,
                       uint8_t *to, struct err *err)
{
    return images_has_cached(s, draw)
               ? images_read_cached(s, draw, i, to, err)
               : read_image(s, &(struct images_wanted){.draw = draw, .to = to}, i, err);
}

static int images_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                      struct err *err)
{
    const struct images *s = container_of(ds, struct images, base);

    *row = room;
    if (field == IMAGE)
        return images_read(s, NULL, i, room, err);
    *(int32_t *)room = s->files.item[i].class_number;
    return 0;
}

static int images_row_drawn(const struct dataset *ds, const struct dataset_draw *draw, int64_t i,
                            void *room, struct err *err)
{
    return images_read(container_of(ds, struct images, base), draw, i, room, err);
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

    picture_file_close(&s->cached);
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

/* The training set's classes.  Those of a million files need not be looked at for that, unless they
 * are members of tar files. */
static int images_list_classes(struct files *out, const char *folder, struct err *err)
{
    int rc = files_open_places(out, folder, err);

    if (rc < 0 || !out->is_tar)
        return rc;
    files_close(out);
    return files_open(out, folder, NULL, err);
}

static int images_list_valid(struct images *s, const struct images_options *o,
                             const char *train_folder, int may_lack_labels, struct err *err)
{
    char *folder = images_path_in(o->path, o->validation);
    struct files train;
    int rc = images_list_classes(&train, train_folder, err);

    if (rc == 0) {
        rc = may_lack_labels ? files_open_any(&s->files, folder, &train, err)
                             : files_open(&s->files, folder, &train, err);
        files_close(&train);
    }
    free(folder);
    return rc;
}

/* A validation set has the classes of the training set. */
static int list_files(struct images *s, const struct images_options *o,
                      const struct dataset_request *request, struct err *err)
{
    const int is_train = request->purpose == DATASET_TRAIN;
    char *train_folder = xasprintf("%s/%s", o->path, o->train);
    int rc;

    if (!is_train)
        rc = images_list_valid(s, o, train_folder, request->may_lack_labels, err);
    else if (request->names_only)
        rc = files_open_places(&s->files, train_folder, err);
    else
        rc = files_open(&s->files, train_folder, NULL, err);
    if (rc == 0)
        s->inside = inside_of(o, s->files.folder);
    if (rc == 0 && is_train && !s->files.is_tar)
        s->class_names = names_of(&s->files);
    free(train_folder);
    return rc;
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

/* Of an image or a label, aligned for the label. */
static size_t room_bytes(int64_t size)
{
    return (size_t)round_up_i64(size * size * PICTURE_CHANNELS, SAMPLE_ALIGN);
}

/* As large as random parts need: one of the mean area, 54 % of the picture, is then not enlarged.
 */
static int64_t images_cached_side(const struct images_options *o)
{
    return o->cache_size ? o->cache_size : max_i64(ceil_div_i64(o->size * 4, 3), o->resize);
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
    s->cached_side =
        o->random_resized_crop && request->purpose == DATASET_TRAIN ? images_cached_side(o) : 0;
    if (list_files(s, o, request, err) < 0 ||
        (request->purpose == DATASET_TRAIN && files_doubt_classes(&s->files, request, err) < 0) ||
        (o->cache && !request->names_only && !request->keeps_nothing &&
         images_open_cache(s, o->cache, err) < 0)) {
        images_close(&s->base);
        return err_wrap(err, "images");
    }
    if (request->names_only && !s->class_names) {
        images_close(&s->base);
        return DATASET_NONE;
    }
    if (!request->names_only) {
        files_tell(&s->files, request);
    }
    if (request->purpose == DATASET_TRAIN && !request->names_only)
        files_doubt_one_class(&s->files, request);
    if (request->purpose != DATASET_TRAIN)
        warn_of_one_folder(o, request);
    s->base = (struct dataset){.ops = &images_ops,
                               .n_samples = request->names_only ? 1 : s->files.n,
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

/* Make the files of decoded pictures of both sets. */
static int images_prepare(const void *options, const struct dataset_request *wanted,
                          struct err *err)
{
    const struct images_options *o = options;
    const int n = strcmp(o->validation, DATASET_WORD_NONE) != 0 ? 2 : 1;

    for (int purpose = 0; o->cache && !wanted->keeps_nothing && purpose < n; purpose++) {
        struct dataset_request request = *wanted;
        struct dataset *ds;

        request.purpose = (enum dataset_purpose)purpose;
        if (images_open(&ds, o, &request, err) < 0)
            return err->code;
        images_close(ds);
    }
    return 0;
}

static int images_check(const void *options, struct err *err)
{
    const struct images_options *o = options;

    if (o->cache_size && o->cache_size < o->size)
        return err_set(err, ERR_CONFIG, "data.cache_size is %lld, want at least data.size, %lld",
                       (long long)o->cache_size, (long long)o->size);

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
    {"data.cache", OPT_PATH, AT(cache), NULL, .flags = OPT_RESUME,
     .help = "The folder for files of decoded pictures, which all ranks and runs of a machine "
             "share: pictures are decoded once, before the job begins. Without it they are "
             "decoded in each epoch."},
    {"data.cache_size", OPT_INT, AT(cache_size), "0", 0, 8192, .unit = "pixels",
     .help = "With data.cache and random_resized_crop: whole pictures are kept, those whose "
             "shorter side is longer than this resized to it; 0 stands for 4/3 of data.size, or "
             "for data.resize if that is more."},
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
    .prepare = images_prepare,
};
