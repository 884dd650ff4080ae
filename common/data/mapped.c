/* mapped - files in memory, by mmap.  The descriptor is closed at once; the mapping keeps the
 * file. */
#include "data/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map(struct mapped *out, int fd, const char *path, struct err *err)
{
    struct stat st;
    void *at;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "file %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_ARG, "%s is %s, want a regular file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "a pipe or device");
    *out = (struct mapped){.n_bytes = (size_t)st.st_size};
    if (st.st_size == 0)
        return 0;
    at = mmap(NULL, out->n_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return err_sys(err, errno, "cannot map file %s", path);
    out->bytes = at;
    return 0;
}

int mapped_open(struct mapped *out, const char *path, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is no reason to wait */
    int rc;

    *out = (struct mapped){0};
    if (fd < 0)
        return err_sys(err, errno, "file %s", path);
    rc = map(out, fd, path, err);
    close(fd);
    return rc;
}

void mapped_close(struct mapped *m)
{
    if (m->bytes)
        munmap((void *)(uintptr_t)m->bytes, m->n_bytes);
    *m = (struct mapped){0};
}
