/* mapped - files in memory, by mmap, and what is read of them later, by pread.  Both go through the
 * system's one cache of the file. */
#include "data/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

static int mapped_map(struct mapped *out, int fd, const char *path, struct err *err)
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
    out->fd = fd;
    out->path = xstrdup(path);
    return 0;
}

int mapped_open(struct mapped *out, const char *path, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is no reason to wait */
    int rc;

    *out = (struct mapped){0};
    if (fd < 0)
        return err_sys(err, errno, "file %s (of data.path, data.train or data.validation)", path);
    rc = mapped_map(out, fd, path, err);
    if (!out->bytes)
        close(fd);
    return rc;
}

int mapped_read(const struct mapped *m, size_t offset, void *to, size_t n, struct err *err)
{
    ASSERT(offset <= m->n_bytes && n <= m->n_bytes - offset);
    for (size_t got = 0; got < n;) {
        const ssize_t len = pread(m->fd, (char *)to + got, n - got, (off_t)(offset + got));

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return err_sys(err, errno, "file %s: offset %zu", m->path, offset + got);
        if (len == 0)
            return err_set(err, ERR_CORRUPT,
                           "file %s: offset %zu: it ends here, but had %zu bytes when it was "
                           "opened; data must not change during training",
                           m->path, offset + got, m->n_bytes);
        got += (size_t)len;
    }
    return 0;
}

void mapped_close(struct mapped *m)
{
    if (m->bytes) {
        munmap((void *)(uintptr_t)m->bytes, m->n_bytes);
        close(m->fd);
        free(m->path);
    }
    *m = (struct mapped){0};
}
