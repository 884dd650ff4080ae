/* file - files and folders that are on disk when a call returns.
 *
 * Errors name the path and the system's reason. */
#include "ckpt/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    *fd = open_again(path, O_WRONLY | O_CREAT | O_EXCL);
    return *fd < 0 ? err_sys(err, errno, "%s", name) : 0;
}

int file_create(const char *path, int *fd, struct err *err)
{
    return file_create_as(path, path, fd, err);
}

int file_put(int fd, const char *path, const void *data, size_t n_bytes, struct err *err)
{
    const char *from = data;

    for (size_t left = n_bytes; left > 0;) {
        ssize_t n = write(fd, from, left < (1u << 30) ? left : 1u << 30);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n < 0 ? errno : ENOSPC, "%s: writing %zu bytes, %zu left", path,
                           n_bytes, left);
        from += n;
        left -= (size_t)n;
    }
    return 0;
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

int file_remove_folder(const char *path, struct err *err)
{
    DIR *d = opendir(path);
    int rc;

    if (!d)
        return errno == ENOENT ? 0 : err_sys(err, errno, "%s", path);
    rc = remove_content(d, path, err);
    closedir(d);
    if (rc == 0 && rmdir(path) < 0)
        rc = err_sys(err, errno, "%s: cannot remove", path);
    return rc;
}
