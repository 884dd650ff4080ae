/* file - files and folders that are on disk when a call returns.
 *
 * Errors name the path and the system's reason. */
#include "ckpt/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

enum { NFS_MAGIC = 0x6969 }; /* statfs(2) */

/* A signal is no reason to fail. */
static int open_again(const char *path, int flags)
{
    int fd;

    do
        fd = open(path, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int file_create_as(const char *path, const char *name, int *fd, struct err *err)
{
    *fd = open_again(path, O_RDWR | O_CREAT | O_EXCL);
    return *fd < 0 ? err_sys(err, errno, "%s", name) : 0;
}

int file_create(const char *path, int *fd, struct err *err)
{
    return file_create_as(path, path, fd, err);
}

int file_join(const char *path, int *fd, struct err *err)
{
    *fd = open_again(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    return *fd < 0 ? err_sys(err, errno, "%s", path) : 0;
}

int file_is_on_nfs(int fd)
{
    struct statfs s;

    return fstatfs(fd, &s) == 0 && s.f_type == NFS_MAGIC;
}

/* Write at the file's position, or if `at` is not negative, there. */
static int file_put_bytes(int fd, const char *path, const void *data, size_t n_bytes, int64_t at,
                          struct err *err)
{
    const char *from = data;

    for (size_t left = n_bytes; left > 0;) {
        const size_t most = left < (1u << 30) ? left : 1u << 30;
        const ssize_t n = at < 0 ? write(fd, from, most) : pwrite(fd, from, most, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n < 0 ? errno : ENOSPC, "%s: writing %zu bytes, %zu left", path,
                           n_bytes, left);
        from += n;
        at += at < 0 ? 0 : n;
        left -= (size_t)n;
    }
    return 0;
}

int file_put(int fd, const char *path, const void *data, size_t n_bytes, struct err *err)
{
    return file_put_bytes(fd, path, data, n_bytes, -1, err);
}

int file_put_at(int fd, const char *path, const void *data, size_t n_bytes, int64_t at,
                struct err *err)
{
    ASSERT(at >= 0);
    return file_put_bytes(fd, path, data, n_bytes, at, err);
}

int file_finish(int fd, const char *path, struct err *err)
{
    int rc;

    do
        rc = fsync(fd);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        rc = err_sys(err, errno, "%s: fsync", path);
    if (close(fd) < 0 && errno != EINTR && rc == 0) /* interrupted, it is closed all the same */
        rc = err_sys(err, errno, "%s: close", path);
    return rc;
}

int file_sync_folder(const char *path, struct err *err)
{
    int fd = open_again(path, O_RDONLY | O_DIRECTORY);

    if (fd < 0)
        return err_sys(err, errno, "%s", path);
    return file_finish(fd, path, err);
}

int file_make_folder(const char *path, struct err *err)
{
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return err_sys(err, errno, "%s: cannot make this folder", path);
    return 0;
}

static int remove_content(DIR *d, const char *path, struct err *err)
{
    struct dirent *entry;

    while ((entry = readdir(d))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (unlinkat(dirfd(d), entry->d_name, 0) < 0)
            return err_sys(err, errno, "%s/%s: cannot remove", path, entry->d_name);
    }
    return 0;
}

/* A link or a file in the folder's place. */
static int remove_other(const char *path, struct err *err)
{
    return unlink(path) < 0 ? err_sys(err, errno, "%s: cannot remove", path) : 0;
}

int file_remove_folder(const char *path, struct err *err)
{
    int fd = open_again(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), rc;
    DIR *d;

    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return remove_other(path, err);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "%s", path);
    d = fdopendir(fd);
    if (!d) {
        rc = err_sys(err, errno, "%s", path);
        close(fd);
        return rc;
    }
    rc = remove_content(d, path, err);
    closedir(d);
    if (rc == 0 && rmdir(path) < 0)
        rc = err_sys(err, errno, "%s: cannot remove", path);
    return rc;
}

/* ---- changing places ---- */

static int in_three_steps(const char *from, const char *to, struct err *err)
{
    char *old = xasprintf("%s.old", to);
    int rc = 0;

    if (rename(to, old) < 0)
        rc = err_sys(err, errno, "%s: cannot rename to %s", to, old);
    if (rc == 0 && rename(from, to) < 0) {
        rc = err_sys(err, errno, "%s: cannot rename to %s", from, to);
        (void)rename(old, to);
    } else if (rc == 0) { /* if that fails, TO.old stays until it is mended */
        (void)rename(old, from);
    }
    free(old);
    return rc;
}

int file_exchange(const char *from, const char *to, struct err *err)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno == ENOENT && rename(from, to) == 0)
        return 0;
    if (errno == EINVAL || errno == ENOSYS)
        return in_three_steps(from, to, err);
    return err_sys(err, errno, "%s: cannot rename to %s", from, to);
}

void file_exchange_mend(const char *to)
{
    char *old = xasprintf("%s.old", to);

    if (access(to, F_OK) != 0)
        (void)rename(old, to);
    free(old);
}

/* ---- reading ---- */

/* EIO is the disk's word for a bad sector: the file is damaged.  Any other
 * failure may be over at the next try. */
static int read_failed(struct err *err, int errnum, const char *path)
{
    err_sys(err, errnum, "%s", path);
    if (errnum == EIO)
        err->code = ERR_CORRUPT;
    return err->code;
}

int file_open(const char *path, int *out, int64_t *n_bytes, struct err *err)
{
    struct stat st = {0};
    int fd = open_again(path, O_RDONLY | O_NONBLOCK), rc = 0;

    if (fd < 0)
        return read_failed(err, errno, path);
    if (fstat(fd, &st) < 0)
        rc = read_failed(err, errno, path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(err, ERR_CORRUPT, "%s is %s, want a file", path,
                     S_ISDIR(st.st_mode) ? "a folder" : "a pipe or device");
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *out = fd;
    *n_bytes = st.st_size;
    return 0;
}

int file_read_at(int fd, const char *path, void *out, size_t n_bytes, int64_t at, struct err *err)
{
    char *to = out;

    for (size_t left = n_bytes; left > 0;) {
        ssize_t n = pread(fd, to, left < (1u << 30) ? left : 1u << 30, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return read_failed(err, errno, path);
        if (n == 0)
            return err_set(err, ERR_CORRUPT, "%s: ends at offset %lld, %zu bytes early", path,
                           (long long)at, left);
        to += n;
        at += n;
        left -= (size_t)n;
    }
    return 0;
}

void file_drop_cache(int fd) { (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }

int file_hash(int fd, const char *path, int64_t n_bytes, struct hash128 *out, struct err *err)
{
    enum { BLOCK = 1 << 20 };
    struct hasher *h = hasher_new();
    char *block = xmalloc(BLOCK);
    int rc = 0;

    for (int64_t at = 0; at < n_bytes && rc == 0; at += BLOCK) {
        const size_t n = (size_t)min_i64(BLOCK, n_bytes - at);

        rc = file_read_at(fd, path, block, n, at, err);
        if (rc == 0)
            hasher_add(h, block, n);
    }
    *out = hasher_end(h);
    free(block);
    hasher_free(h);
    return rc;
}

int file_check_hash(const char *path, struct hash128 want, struct err *err)
{
    char seen_text[HASH_TEXT_LEN], want_text[HASH_TEXT_LEN];
    struct hash128 seen;
    int64_t n_bytes;
    int fd, rc = file_open(path, &fd, &n_bytes, err);

    if (rc < 0)
        return rc;
    file_drop_cache(fd);
    rc = file_hash(fd, path, n_bytes, &seen, err);
    close(fd);
    if (rc == 0 && !hash_equal(seen, want)) {
        hash_to_text(seen, seen_text);
        hash_to_text(want, want_text);
        rc =
            err_set(err, ERR_CORRUPT,
                    "%s: the disk gives back other bytes than were written: their hash is %s, want "
                    "%s; test the disk and the memory",
                    path, seen_text, want_text);
    }
    return rc;
}
