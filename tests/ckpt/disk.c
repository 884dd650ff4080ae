/* disk - the wrapped calls (__wrap_...): each one fails if it is to, else does its work by the real
 * call, and then notes what it did to which path. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

static char root[PATH_MAX];
static struct disk_op *ops;
static int n_ops;
static int countdown, fail_errno, has_failed, plain_errno;

/* ---- what is asked for ---- */

void disk_record(const char *folder)
{
    while (n_ops > 0)
        free(ops[--n_ops].data);
    free(ops);
    ops = NULL;
    if (!folder)
        root[0] = 0;
    else
        ASSERT(realpath(folder, root));
}

const struct disk_op *disk_ops(int *n)
{
    *n = n_ops;
    return ops;
}

void disk_fail_at(int n, int errnum)
{
    countdown = n;
    fail_errno = errnum;
    has_failed = 0;
}

void disk_be_plain(int errnum) { plain_errno = errnum; }

int disk_has_failed(void) { return has_failed; }

static struct disk_op *add(enum disk_op_kind kind)
{
    ops = xrealloc(ops, sizeof *ops * (size_t)(n_ops + 1));
    ops[n_ops] = (struct disk_op){.kind = kind};
    return &ops[n_ops++];
}

void disk_mark(void) { add(DISK_MARK); }

/* 1: the path is inside the root, and `out` is the rest of it. */
static int below(const char *path, char out[128])
{
    size_t len = strlen(root);

    if (!len || strncmp(path, root, len) != 0 || (path[len] && path[len] != '/'))
        return 0;
    snprintf(out, 128, "%s", path[len] ? path + len + 1 : "");
    return 1;
}

static void note(enum disk_op_kind kind, const char *path, const char *to)
{
    char inside[128];
    struct disk_op *op;

    if (!below(path, inside))
        return;
    op = add(kind);
    strcpy(op->path, inside);
    if (kind == DISK_SYMLINK)
        snprintf(op->to, sizeof op->to, "%s", to);
    else if (to)
        ASSERT(below(to, op->to));
}

static void path_of(int fd, char out[PATH_MAX])
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = 0;
}

static void note_fd(enum disk_op_kind kind, int fd, const void *data, size_t len)
{
    char path[PATH_MAX], inside[128];
    struct disk_op *op;

    path_of(fd, path);
    if (!below(path, inside))
        return;
    op = add(kind);
    strcpy(op->path, inside);
    op->len = len;
    op->data = len ? memcpy(xmalloc(len), data, len) : NULL;
}

/* 1: this call is to fail with errno, or, if errno is 0, to be cut. */
static int is_struck(void)
{
    if (!countdown || --countdown > 0)
        return 0;
    has_failed = 1;
    errno = fail_errno;
    return 1;
}

/* ---- the calls ---- */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __real_symlink(const char *target, const char *path);
int __wrap_symlink(const char *target, const char *path);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __real_unlinkat(int fd, const char *name, int flags);
int __wrap_unlinkat(int fd, const char *name, int flags);
int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);
int __real_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st);
ssize_t __real_pread64(int fd, void *out, size_t len, off_t at);
ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t at);
ssize_t __real_pwrite64(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t len, off_t at);

/* 1: this call is to fail.  A call that cannot be cut does its work. */
static int is_stopped(void) { return is_struck() && errno; }

/* The same, for calls that a signal does not interrupt. */
static int is_stopped_entry(void) { return fail_errno != EINTR && is_stopped(); }

int __wrap_open64(const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode = 0;
    int fd;

    va_start(ap, flags);
    if (flags & O_CREAT)
        mode = va_arg(ap, mode_t);
    va_end(ap);
    fd = is_stopped() ? -1 : __real_open64(path, flags, mode);
    if (fd >= 0 && (flags & O_CREAT)) {
        ASSERT(flags & O_EXCL); /* otherwise the file may have been there */
        note_fd(DISK_CREATE, fd, NULL, 0);
    }
    return fd;
}

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    int struck = is_struck();
    ssize_t n;

    if (struck && errno)
        return -1;
    n = __real_write(fd, data, struck && len > 1 ? len / 2 : len);
    if (n > 0)
        note_fd(DISK_WRITE, fd, data, (size_t)n);
    return n;
}

int __wrap_fsync(int fd)
{
    int rc = is_stopped() ? -1 : __real_fsync(fd);

    if (rc == 0)
        note_fd(DISK_FSYNC, fd, NULL, 0);
    return rc;
}

/* The file is closed also when the call fails. */
int __wrap_close(int fd)
{
    int rc = __real_close(fd);

    return is_stopped() ? -1 : rc;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    int rc = is_stopped_entry() ? -1 : __real_mkdir(path, mode);

    if (rc == 0)
        note(DISK_MKDIR, path, NULL);
    return rc;
}

int __wrap_rename(const char *from, const char *to)
{
    int rc = is_stopped_entry() ? -1 : __real_rename(from, to);

    if (rc == 0)
        note(DISK_RENAME, from, to);
    return rc;
}

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    const int is_plain = plain_errno && access(to, F_OK) == 0;
    int rc = is_plain || is_stopped_entry() ? -1 : __real_renameat2(a, from, b, to, flags);

    if (is_plain)
        errno = EINVAL;
    ASSERT(a == AT_FDCWD && b == AT_FDCWD && flags == RENAME_EXCHANGE);
    if (rc == 0)
        note(DISK_EXCHANGE, from, to);
    return rc;
}

int __wrap_symlink(const char *target, const char *path)
{
    int rc = plain_errno || is_stopped_entry() ? -1 : __real_symlink(target, path);

    if (plain_errno)
        errno = plain_errno;
    if (rc == 0)
        note(DISK_SYMLINK, path, target);
    return rc;
}

int __wrap_unlink(const char *path)
{
    int rc = is_stopped_entry() ? -1 : __real_unlink(path);

    if (rc == 0)
        note(DISK_UNLINK, path, NULL);
    return rc;
}

int __wrap_unlinkat(int fd, const char *name, int flags)
{
    char folder[PATH_MAX], path[PATH_MAX + 256];
    int rc = is_stopped_entry() ? -1 : __real_unlinkat(fd, name, flags);

    ASSERT(flags == 0);
    path_of(fd, folder);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (rc == 0)
        note(DISK_UNLINK, path, NULL);
    return rc;
}

int __wrap_rmdir(const char *path)
{
    int rc = is_stopped_entry() ? -1 : __real_rmdir(path);

    if (rc == 0)
        note(DISK_RMDIR, path, NULL);
    return rc;
}

int __wrap_fstat64(int fd, struct stat *st)
{
    return is_stopped_entry() ? -1 : __real_fstat64(fd, st);
}

/* A file that ends early gives half of what is asked for, and then nothing. */
ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t at)
{
    int struck = is_struck();

    if (struck && errno)
        return -1;
    return __real_pread64(fd, out, struck && len > 1 ? len / 2 : len, at);
}

/* Not recorded: disk_ops tells writes at the end of a file only. */
ssize_t __wrap_pwrite64(int fd, const void *data, size_t len, off_t at)
{
    int struck = is_struck();

    if (struck && errno)
        return -1;
    return __real_pwrite64(fd, data, struck && len > 1 ? len / 2 : len, at);
}
