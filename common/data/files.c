/* files - finds out whether a folder has class folders or shards, and reads one file, or one member
 * of a shard, at a time. */
#include "data/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

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
static void *grow(void *array, int64_t n, size_t size)
{
    return (n & (n - 1)) == 0 ? xrealloc(array, (size_t)max_i64(2 * n, 1) * size) : array;
}

void files_add(struct files *f, const struct file_item *item)
{
    f->item = grow(f->item, f->n, sizeof *f->item);
    f->item[f->n++] = *item;
}

static int ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), len = strlen(end);

    return n > len && !strcasecmp(name + n - len, end);
}

int files_is_picture(const char *name)
{
    return ends_with(name, ".jpg") || ends_with(name, ".jpeg") || ends_with(name, ".png");
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

static int by_name(const void *a, const void *b, void *names)
{
    const char *text = names;

    return strcmp(text + *(const size_t *)a, text + *(const size_t *)b);
}

/* Keep the class folders or shards of the folder, in order. */
static int find_places(struct files *f, DIR *d, int *n_shards, struct err *err)
{
    struct dirent *e;

    while ((errno = 0, e = readdir(d))) {
        const int is_shard = ends_with(e->d_name, ".tar");

        if (e->d_name[0] == '.' || (!is_shard && !files_is_folder(f->folder, e)))
            continue;
        if (f->n_places == MOST_PLACES)
            return err_set(err, ERR_CORRUPT, "it has more than %d class folders", MOST_PLACES);
        *n_shards += is_shard;
        f->place = grow(f->place, f->n_places, sizeof *f->place);
        f->place[f->n_places++] = files_keep_name(f, e->d_name, strlen(e->d_name));
    }
    if (errno)
        return err_sys(err, errno, "its files cannot be listed");
    if (f->n_places == 0)
        return err_set(err, ERR_CORRUPT,
                       "it has neither class folders, such as %s/cat, nor shards that end in .tar; "
                       "set data.path, data.train or data.validation",
                       f->folder);
    if (*n_shards > 0 && *n_shards < f->n_places)
        return err_set(err, ERR_CORRUPT,
                       "it has %d shards that end in .tar, and %d class folders; want one kind",
                       *n_shards, f->n_places - *n_shards);
    qsort_r(f->place, (size_t)f->n_places, sizeof *f->place, by_name, f->names.data);
    return 0;
}

static int list(struct files *f, const struct files *train, struct err *err)
{
    DIR *d = opendir(f->folder);
    int n_shards = 0, rc;

    if (!d)
        return err_sys(err, errno,
                       "it cannot be opened (set data.path, data.train or data.validation; "
                       "data.validation none is for no validation)");
    rc = find_places(f, d, &n_shards, err);
    closedir(d);
    f->is_tar = n_shards > 0;
    if (rc == 0 && train && train->is_tar != f->is_tar)
        rc = err_set(err, ERR_CORRUPT, "it has %s, the training set has %s; want the same kind",
                     f->is_tar ? "shards" : "class folders",
                     train->is_tar ? "shards" : "class folders");
    if (rc < 0)
        return rc;
    return f->is_tar ? files_list_shards(f, train, err) : files_list_folders(f, train, err);
}

int files_open(struct files *out, const char *folder, const struct files *train, struct err *err)
{
    *out = (struct files){.folder = xstrdup(folder)};
    if (list(out, train, err) < 0) {
        (void)err_wrap(err, "folder %s", folder);
        files_close(out);
        return err->code;
    }
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

static char *path_of(const struct files *f, int64_t i)
{
    const struct file_item *item = &f->item[i];
    const char *place = files_text(f, f->place[item->place]);

    return f->is_tar ? xasprintf("%s/%s", f->folder, place)
                     : xasprintf("%s/%s/%s", f->folder, place, files_text(f, item->name));
}

char *files_name(const struct files *f, int64_t i)
{
    char *path = path_of(f, i), *name;

    if (!f->is_tar)
        return path;
    name = xasprintf("%s: %s", path, files_text(f, f->item[i].name));
    free(path);
    return name;
}

static int read_whole(int fd, int64_t offset, int64_t n, char *to, struct err *err)
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
static int part_of(const struct file_item *item, int fd, int64_t *n, struct err *err)
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
    char *path = path_of(f, i);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is no reason to wait */
    int64_t n = 0;
    int rc = fd < 0 ? err_sys(err, errno, "opening it") : part_of(item, fd, &n, err);

    *bytes = NULL;
    if (rc == 0)
        rc = try_realloc(bytes, (size_t)n + 1, "a picture's file", err);
    if (rc == 0)
        rc = read_whole(fd, max_i64(item->offset, 0), n, *bytes, err);
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
