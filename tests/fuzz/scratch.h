/* scratch - a new folder for a fuzz target's files: in memory where there is such a place, because
 * on a disk most of a target's time is waiting for it. */
#ifndef TESTS_FUZZ_SCRATCH_H
#define TESTS_FUZZ_SCRATCH_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

/* Its path, for free(). */
static inline char *scratch_folder(void)
{
    const char *in = getenv("TMPDIR");
    char *path;

    if (!in)
        in = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    path = xasprintf("%s/dptrain-fuzz-XXXXXX", in);
    ASSERT(mkdtemp(path));
    return path;
}

/* Make the file, or write it anew. */
static inline void scratch_write(const char *path, const void *data, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

/* For a target that has one file, in a folder of its own until the process ends. */
static char *scratch_own_folder, *scratch_own_path;

static inline void scratch_remove_own(void)
{
    unlink(scratch_own_path);
    rmdir(scratch_own_folder);
    free(scratch_own_path);
    free(scratch_own_folder);
}

/* Write the target's one file anew.  Returns its path, which is not the caller's. */
static inline const char *scratch_own(const char *name, const void *data, size_t size)
{
    if (!scratch_own_path) {
        scratch_own_folder = scratch_folder();
        scratch_own_path = xasprintf("%s/%s", scratch_own_folder, name);
        atexit(scratch_remove_own);
    }
    scratch_write(scratch_own_path, data, size);
    return scratch_own_path;
}

#endif
