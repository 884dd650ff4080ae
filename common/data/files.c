/* files - finds out whether a folder has class folders or tar files, and reads one file, or one
 * member of a tar file, at a time. */
#include "data/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "tensor/sample.h"

enum { MOST_FILE = 1 << 28, MOST_PLACES = 1 << 20 };

/* ---- lists ---- */

size_t files_keep_name(struct files *f, const char *name, size_t len)
{
    const size_t at = f->names.len;

    buf_append(&f->names, name, len);
    buf_append(&f->names, "", 1);
    return at;
}

/* Room for one more in an array that doubles. */
static void *files_grow(void *array, int64_t n, size_t size)
{
    return (n & (n - 1)) == 0 ? xrealloc(array, (size_t)max_i64(2 * n, 1) * size) : array;
}

void files_add(struct files *f, const struct file_item *item)
{
    f->item = files_grow(f->item, f->n, sizeof *f->item);
    f->item[f->n++] = *item;
}

static int files_ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), len = strlen(end);

    return n > len && !strcasecmp(name + n - len, end);
}

static int ends_with_one_of(const char *name, const char *const *ends, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (files_ends_with(name, ends[i]))
            return 1;
    return 0;
}

int files_is_picture(const char *name)
{
    return files_ends_with(name, ".jpg") || files_ends_with(name, ".jpeg") ||
           files_ends_with(name, ".png");
}

int files_is_other_picture(const char *name)
{
    static const char *const ends[] = {".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"};

    return ends_with_one_of(name, ends, ARRAY_LEN(ends));
}

/* ---- the folder ---- */

int files_is_folder(const char *folder, const struct dirent *e)
{
    char *path;
    struct stat st;
    int is;

    if (e->d_type != DT_UNKNOWN && e->d_type != DT_LNK)
        return e->d_type == DT_DIR;
    path = xasprintf("%s/%s", folder, e->d_name);
    is = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    free(path);
    return is;
}

static int files_by_name(const void *a, const void *b, void *names)
{
    const char *text = names;

    return strcmp(text + *(const size_t *)a, text + *(const size_t *)b);
}

/* 1: by its ending, `name` is an archive whose members cannot be read in place. */
static int is_packed(const char *name)
{
    static const char *const ends[] = {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"};

    return ends_with_one_of(name, ends, ARRAY_LEN(ends));
}

/* An archive beside class folders is taken for what they were unpacked from. */
static int refuse_packed(const struct files *f, const char *packed, int n_tars, struct err *err)
{
    if (!*packed || n_tars < f->n_places)
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "it has %s, which is compressed, and shards are read in place; unpack it to a "
                   "file that ends in .tar, or remove it",
                   packed);
}

/* Keep the class folders or tar files of the folder, in order. */
static int files_find_places(struct files *f, DIR *d, int *n_tars, struct err *err)
{
    char packed[NAME_MAX + 1] = "";
    struct dirent *e;

    while ((errno = 0, e = readdir(d))) {
        const int is_tar = files_ends_with(e->d_name, ".tar");

        if (e->d_name[0] == '.')
            continue;
        if (is_packed(e->d_name))
            snprintf(packed, sizeof packed, "%s", e->d_name);
        if (!is_tar && !files_is_folder(f->folder, e))
            continue;
        if (f->n_places == MOST_PLACES)
            return err_set(err, ERR_CORRUPT, "it has more than %d class folders", MOST_PLACES);
        *n_tars += is_tar;
        f->place = files_grow(f->place, f->n_places, sizeof *f->place);
        f->place[f->n_places++] = files_keep_name(f, e->d_name, strlen(e->d_name));
    }
    if (errno)
        return err_sys(err, errno, "its files cannot be listed");
    if (refuse_packed(f, packed, *n_tars, err) < 0)
        return err->code;
    if (f->n_places == 0)
        return err_set(err, ERR_CORRUPT,
                       "it has neither class folders, such as %s/cat, nor shards that end in .tar; "
                       "set data.path, data.train or data.validation",
                       f->folder);
    if (*n_tars > 0 && *n_tars < f->n_places)
        return err_set(err, ERR_CORRUPT,
                       "it has %d shards that end in .tar, and %d class folders; want one kind",
                       *n_tars, f->n_places - *n_tars);
    qsort_r(f->place, (size_t)f->n_places, sizeof *f->place, files_by_name, f->names.data);
    return 0;
}

static int files_list_places(struct files *f, struct err *err)
{
    DIR *d = opendir(f->folder);
    int n_tars = 0, rc;

    if (!d)
        return err_sys(err, errno,
                       "it cannot be opened (set data.path, data.train or data.validation; "
                       "data.validation none is for no validation)");
    rc = files_find_places(f, d, &n_tars, err);
    closedir(d);
    f->is_tar = n_tars > 0;
    return rc;
}

static int files_list(struct files *f, const struct files *train, struct err *err)
{
    int rc = files_list_places(f, err);

    if (rc == 0 && train && train->is_tar != f->is_tar && !f->may_lack_labels)
        rc = err_set(err, ERR_CORRUPT, "it has %s, the training set has %s; want the same kind",
                     f->is_tar ? "shards" : "class folders",
                     train->is_tar ? "shards" : "class folders");
    if (rc < 0)
        return rc;
    return f->is_tar ? files_list_tars(f, train, err) : files_list_folders(f, train, err);
}

static int files_end_open(struct files *f, int rc, struct err *err)
{
    if (rc == 0)
        return 0;
    (void)err_wrap(err, "folder %s", f->folder);
    files_close(f);
    return err->code;
}

int files_open(struct files *out, const char *folder, const struct files *train, struct err *err)
{
    *out = (struct files){.folder = xstrdup(folder)};
    return files_end_open(out, files_list(out, train, err), err);
}

int files_open_places(struct files *out, const char *folder, struct err *err)
{
    int rc;

    *out = (struct files){.folder = xstrdup(folder)};
    rc = files_list_places(out, err);
    if (rc == 0 && !out->is_tar)
        out->n_classes = out->n_places;
    return files_end_open(out, rc, err);
}

/* ---- without classes ---- */

/* One picture: its folder, and its name in it. */
static void open_picture(struct files *f, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct file_item item = {.n_bytes = -1, .class_number = SAMPLE_IGNORED};

    free(f->folder);
    f->folder = slash ? xasprintf("%.*s", (int)(slash - path), path) : xstrdup(".");
    f->is_flat = 1;
    item.name = files_keep_name(f, name, strlen(name));
    files_add(f, &item);
}

/* Find an entry by which the folder has no classes: a picture in the folder itself, or a folder
 * with another name than a class.  *out is for free(); NULL: there is none. */
static int find_stranger(const struct files *f, const struct files *train, char **out,
                         struct err *err)
{
    DIR *d = opendir(f->folder);
    struct dirent *e;

    *out = NULL;
    if (!d)
        return err_sys(err, errno, "it cannot be opened (set data.path or data.validation)");
    while (!*out && (errno = 0, e = readdir(d))) {
        if (e->d_name[0] == '.' || files_ends_with(e->d_name, ".tar") || is_packed(e->d_name))
            continue;
        if (files_is_folder(f->folder, e) ? files_class_named(train, e->d_name) < 0
                                          : files_is_picture(e->d_name))
            *out = xstrdup(e->d_name);
    }
    closedir(d);
    return 0;
}

static int list_any(struct files *f, const struct files *train, struct err *err)
{
    char *stranger;
    struct stat st;

    if (stat(f->folder, &st) == 0 && S_ISREG(st.st_mode)) {
        char *path = xstrdup(f->folder);

        if (files_is_picture(path))
            open_picture(f, path);
        free(path);
        return f->is_flat ? 0
                          : err_set(err, ERR_CORRUPT,
                                    "it is a file that ends otherwise than .jpg, .jpeg or .png; "
                                    "want a picture, a folder of pictures, or one of shards");
    }
    if (find_stranger(f, train, &stranger, err) < 0)
        return err->code;
    if (!stranger)
        return files_list(f, train, err);
    log_info("folder %s: its pictures are taken without classes, because %s is no folder of one of "
             "the training set's classes",
             f->folder, stranger);
    free(stranger);
    f->is_flat = 1;
    return files_list_flat(f, err);
}

int files_open_any(struct files *out, const char *path, const struct files *train, struct err *err)
{
    *out = (struct files){.folder = xstrdup(path), .may_lack_labels = 1};
    if (list_any(out, train, err) < 0) {
        (void)err_wrap(err, "%s", path);
        files_close(out);
        return err->code;
    }
    out->n_classes = train->n_classes;
    return 0;
}

void files_close(struct files *f)
{
    free(f->folder);
    free(f->place);
    free(f->item);
    buf_fini(&f->names);
    *f = (struct files){0};
}

/* ---- one of them ---- */

static char *files_path_of(const struct files *f, int64_t i)
{
    const struct file_item *item = &f->item[i];
    const char *place;

    if (f->is_flat)
        return xasprintf("%s/%s", f->folder, files_text(f, item->name));
    place = files_text(f, f->place[item->place]);
    return f->is_tar ? xasprintf("%s/%s", f->folder, place)
                     : xasprintf("%s/%s/%s", f->folder, place, files_text(f, item->name));
}

char *files_name(const struct files *f, int64_t i)
{
    char *path = files_path_of(f, i), *name;

    if (!f->is_tar)
        return path;
    name = xasprintf("%s: %s", path, files_text(f, f->item[i].name));
    free(path);
    return name;
}

char *files_inside(const struct files *f, int64_t i)
{
    const struct file_item *item = &f->item[i];

    return f->is_flat ? xstrdup(files_text(f, item->name))
                      : xasprintf("%s/%s", files_text(f, f->place[item->place]),
                                  files_text(f, item->name));
}

static int files_read_whole(int fd, int64_t offset, int64_t n, char *to, struct err *err)
{
    for (int64_t got = 0; got < n;) {
        const ssize_t len = pread(fd, to + got, (size_t)(n - got), offset + got);

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return err_sys(err, errno, "reading it");
        if (len == 0)
            return err_set(err, ERR_CORRUPT, "it became shorter while it was read");
        got += len;
    }
    return 0;
}

/* The bytes to read: those of the member, or all of the file. */
static int files_part_of(const struct file_item *item, int fd, int64_t *n, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "reading it");
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_IO, "it is not a regular file");
    *n = item->n_bytes < 0 ? st.st_size : item->n_bytes;
    if (*n > MOST_FILE)
        return err_set(err, ERR_CORRUPT, "it has %lld bytes, want at most %d", (long long)*n,
                       MOST_FILE);
    return 0;
}

int files_read(const struct files *f, int64_t i, void **bytes, size_t *n_bytes, struct err *err)
{
    const struct file_item *item = &f->item[i];
    char *path = files_path_of(f, i);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is no reason to wait */
    int64_t n = 0;
    int rc = fd < 0 ? err_sys(err, errno, "opening it") : files_part_of(item, fd, &n, err);

    *bytes = NULL;
    if (rc == 0)
        rc = try_realloc(bytes, (size_t)n + 1, "a picture's file", err);
    if (rc == 0)
        rc = files_read_whole(fd, max_i64(item->offset, 0), n, *bytes, err);
    if (rc < 0) {
        free(*bytes);
        *bytes = NULL;
    }
    *n_bytes = (size_t)n;
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

/* ---- what tells them from others ---- */

static int files_print_one(const char *path, struct hasher *h, struct err *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return err_sys(err, errno, "file %s", path);
    hasher_add_i64(h, (int64_t)st.st_size);
    hasher_add_i64(h, (int64_t)st.st_mtim.tv_sec);
    hasher_add_i64(h, (int64_t)st.st_mtim.tv_nsec);
    return 0;
}

int files_print(const struct files *f, struct hasher *h, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && f->is_tar && i < f->n_places; i++) {
        char *path = xasprintf("%s/%s", f->folder, files_text(f, f->place[i]));

        rc = files_print_one(path, h, err);
        free(path);
    }
    for (int64_t i = 0; rc == 0 && i < f->n; i++) {
        char *path = f->is_tar ? files_inside(f, i) : files_name(f, i);

        hasher_add_text(h, path);
        hasher_add_i64(h, f->item[i].offset);
        hasher_add_i64(h, f->item[i].class_number);
        if (!f->is_tar)
            rc = files_print_one(path, h, err);
        free(path);
    }
    return rc;
}
