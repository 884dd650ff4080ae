/* rows_file - writes rows at their places in a file that is renamed at the end.  data/npy_file.c
 * knows the format. */
#include "ckpt/rows_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "ckpt/file.h"
#include "ckpt/owner.h"
#include "data/npy_file.h"

struct rows_file {
    char *path, *aside;
    int fd;      /* of `aside`; -1: there is none */
    int is_made; /* `path` is a file of ours */
    int64_t data_at;
};

/* ---- life ---- */

static int check_free(const char *path, struct err *err)
{
    if (access(path, F_OK) != 0)
        return 0;
    return err_set(err, ERR_CONFIG, "%s is there already: remove it, or give another name", path);
}

/* The file is made only when its first rows are computed, which may be much later. */
static int rows_file_check_folder(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? xasprintf("%.*s", (int)(slash - path) + 1, path) : xstrdup(".");
    int rc = 0;

    if (access(folder, W_OK | X_OK) != 0)
        rc = err_set(err, ERR_CONFIG, "no file can be made in folder %s: %s; give another name",
                     folder, strerror(errno));
    free(folder);
    return rc;
}

int rows_file_new(const char *path, struct rows_file **out, struct err *err)
{
    struct rows_file *f;

    if (check_free(path, err) < 0 || rows_file_check_folder(path, err) < 0)
        return err->code;
    f = xcalloc(1, sizeof *f);
    f->path = xstrdup(path);
    f->aside = xasprintf("%s.%s.new", path, owner_own_id());
    f->fd = -1;
    *out = f;
    return 0;
}

static void rows_file_drop(struct rows_file *f)
{
    if (f->fd < 0)
        return;
    close(f->fd);
    f->fd = -1;
    unlink(f->aside);
}

void rows_file_free(struct rows_file *f)
{
    if (!f)
        return;
    rows_file_drop(f);
    free(f->path);
    free(f->aside);
    free(f);
}

/* ---- writing ---- */

static int take_room(struct rows_file *f, int64_t n_bytes, struct err *err)
{
    int rc;

    do
        rc = posix_fallocate(f->fd, 0, n_bytes);
    while (rc == EINTR);
    return rc ? err_sys(err, rc, "%s: taking %lld bytes", f->path, (long long)n_bytes) : 0;
}

int rows_file_begin(struct rows_file *f, int64_t n_rows, const struct shape *row, struct err *err)
{
    struct buf header = {0};
    int rc;

    rows_file_drop(f);
    rc = file_create_as(f->aside, f->path, &f->fd, err);
    if (rc < 0)
        f->fd = -1;
    npy_write_header(&header, NPY_F32, n_rows, row);
    f->data_at = (int64_t)header.len;
    if (rc == 0)
        rc = take_room(f, f->data_at + (int64_t)sizeof(float) * n_rows * shape_elements(row), err);
    if (rc == 0)
        rc = file_put(f->fd, f->path, header.data, header.len, err);
    buf_fini(&header);
    return rc;
}

int rows_file_put(struct rows_file *f, int64_t at, const float *x, int64_t n, struct err *err)
{
    const int64_t to = f->data_at + (int64_t)sizeof *x * at;

    ASSERT(f->fd >= 0);
    if (lseek(f->fd, (off_t)to, SEEK_SET) < 0)
        return err_sys(err, errno, "%s", f->path);
    return file_put(f->fd, f->path, x, sizeof *x * (size_t)n, err);
}

int rows_file_get(const struct rows_file *f, int64_t at, float *x, int64_t n, struct err *err)
{
    ASSERT(f->fd >= 0);
    return file_read_at(f->fd, f->path, x, sizeof *x * (size_t)n,
                        f->data_at + (int64_t)sizeof *x * at, err);
}

const char *rows_file_path(const struct rows_file *f) { return f->path; }

static void rows_file_sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? xasprintf("%.*s", (int)(slash - path) + 1, path) : xstrdup(".");
    struct err ignored; /* some file systems cannot sync a folder */

    (void)file_sync_folder(parent, &ignored);
    free(parent);
}

int rows_file_end(struct rows_file *f, struct err *err)
{
    int rc = f->is_made ? 0 : check_free(f->path, err);
    int fd = f->fd;

    ASSERT(fd >= 0);
    if (rc == 0) {
        f->fd = -1;
        rc = file_finish(fd, f->path, err);
        if (rc == 0 && rename(f->aside, f->path) < 0)
            rc = err_sys(err, errno, "%s: cannot be put in its place", f->path);
        if (rc < 0)
            unlink(f->aside);
    }
    f->is_made |= rc == 0;
    if (rc == 0)
        rows_file_sync_parent(f->path);
    return rc;
}
