/* hang - a library that is preloaded into a daemon and makes its disk hang, have no links, or keep
 * wrong bytes.
 *
 * While the file that DPTRAIN_HANG names exists, no call returns that writes, syncs or changes
 * names in the folder of that file, or below.  The daemon cannot tell this from a disk, or a file
 * server, that does not answer.
 *
 * Where DPTRAIN_NO_LINKS is set, the disk is one without symbolic links and without an exchange of
 * folders, as exFAT is.
 *
 * While the file that DPTRAIN_SPOILS names exists, the next write to a checkpoint's tensors removes
 * it and leaves a wrong last byte on the disk.  If a folder has that name, it stays, and so all
 * writes do that. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(const char *path)
{
    const char *hang = getenv("DPTRAIN_HANG"), *slash = hang ? strrchr(hang, '/') : NULL;

    if (!slash || strncmp(path, hang, (size_t)(slash - hang)) != 0)
        return;
    while (access(hang, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
}

static void wait_for_fd(int fd)
{
    char path[PATH_MAX];

    path_of(fd, path);
    wait_for_disk(path);
}

/* Relative paths are below the current folder. */
static void wait_for_path(const char *path)
{
    char whole[2 * PATH_MAX];

    if (path[0] == '/') {
        wait_for_disk(path);
    } else if (getcwd(whole, PATH_MAX)) {
        snprintf(whole + strlen(whole), PATH_MAX, "/%s", path);
        wait_for_disk(whole);
    }
}

/* The C library's own function of this name, into a pointer to it (POSIX, dlsym). */
static void next(void *pointer, const char *name)
{
    void *fn = dlsym(RTLD_NEXT, name);

    if (!fn)
        abort();
    memcpy(pointer, &fn, sizeof fn);
}

static ssize_t put_at(int fd, const void *data, size_t n, off_t at)
{
    ssize_t (*call)(int, const void *, size_t, off_t);

    next(&call, "pwrite64");
    return call(fd, data, n, at);
}

/* data [n] was written before the offset `end`. */
static void spoil_if_asked(int fd, const char *data, ssize_t n, off_t end)
{
    const char *spoils = getenv("DPTRAIN_SPOILS");
    char path[PATH_MAX], other;

    if (!spoils || n <= 0)
        return;
    path_of(fd, path);
    if (strstr(path, ".safetensors") && (unlink(spoils) == 0 || errno == EISDIR)) {
        other = (char)(data[n - 1] ^ 1);
        if (put_at(fd, &other, 1, end - 1) != 1)
            abort();
    }
}

ssize_t write(int fd, const void *data, size_t n)
{
    ssize_t (*call)(int, const void *, size_t), done;

    wait_for_fd(fd);
    next(&call, "write");
    done = call(fd, data, n);
    if (done > 0 && getenv("DPTRAIN_SPOILS"))
        spoil_if_asked(fd, data, done, lseek(fd, 0, SEEK_CUR));
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t n, off_t at)
{
    ssize_t done;

    wait_for_fd(fd);
    done = put_at(fd, data, n, at);
    spoil_if_asked(fd, data, done, at + done);
    return done;
}

int fsync(int fd)
{
    int (*call)(int);

    wait_for_fd(fd);
    next(&call, "fsync");
    return call(fd);
}

int rename(const char *from, const char *to)
{
    int (*call)(const char *, const char *);

    wait_for_path(to);
    next(&call, "rename");
    return call(from, to);
}

int symlink(const char *target, const char *path)
{
    int (*call)(const char *, const char *);

    if (getenv("DPTRAIN_NO_LINKS")) {
        errno = ENOSYS;
        return -1;
    }
    wait_for_path(path);
    next(&call, "symlink");
    return call(target, path);
}

/* The kernel looks first whether `to` is there. */
int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    int (*call)(int, const char *, int, const char *, unsigned);

    if (getenv("DPTRAIN_NO_LINKS") && flags && faccessat(b, to, F_OK, 0) == 0) {
        errno = EINVAL;
        return -1;
    }
    wait_for_path(to);
    next(&call, "renameat2");
    return call(a, from, b, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    int (*call)(const char *, mode_t);

    wait_for_path(path);
    next(&call, "mkdir");
    return call(path, mode);
}

int unlink(const char *path)
{
    int (*call)(const char *);

    wait_for_path(path);
    next(&call, "unlink");
    return call(path);
}

int unlinkat(int fd, const char *name, int flags)
{
    int (*call)(int, const char *, int);

    wait_for_fd(fd);
    next(&call, "unlinkat");
    return call(fd, name, flags);
}
