/* Writes aside and renames.  Another file that came to `path` meanwhile is not replaced: both ends
 * look for it. */
#include "export/new_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/file.h"
#include "ckpt/owner.h"

void new_file_init(struct new_file *f) { *f = (struct new_file){.fd = -1}; }

/* The folder of a file, with a slash at the end; for free(). */
static char *new_file_folder(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? xasprintf("%.*s", (int)(slash - path) + 1, path) : xstrdup("./");
}

int new_file_check(const char *path, struct err *err)
{
    char *folder = new_file_folder(path);
    struct stat st;
    int rc = 0;

    if (lstat(path, &st) == 0) /* so is a link to nothing */
        rc = err_set(err, ERR_CONFIG, "%s is there already: remove it, or give another name", path);
    else if (access(folder, W_OK | X_OK) != 0)
        rc = err_set(err, ERR_CONFIG, "no file can be made in folder %s: %s; give another name",
                     folder, strerror(errno));
    free(folder);
    return rc;
}

int new_file_begin(struct new_file *f, const char *path, struct err *err)
{
    int rc = new_file_check(path, err);

    new_file_init(f);
    if (rc < 0)
        return rc;
    f->path = xstrdup(path);
    f->aside = xasprintf("%s.%s.new", path, owner_own_id());
    rc = file_create_as(f->aside, f->path, &f->fd, err);
    if (rc < 0)
        f->fd = -1;
    return rc;
}

int new_file_put(struct new_file *f, const void *data, size_t n_bytes, struct err *err)
{
    ASSERT(f->fd >= 0);
    return file_put(f->fd, f->path, data, n_bytes, err);
}

int new_file_end(struct new_file *f, struct err *err)
{
    char *folder = new_file_folder(f->path);
    const int fd = f->fd;
    struct err ignored; /* some file systems cannot sync a folder */
    int rc;

    ASSERT(fd >= 0);
    f->fd = -1;
    rc = file_finish(fd, f->path, err);
    if (rc == 0)
        rc = new_file_check(f->path, err);
    if (rc == 0 && rename(f->aside, f->path) < 0)
        rc = err_sys(err, errno, "%s: cannot be put in its place", f->path);
    if (rc < 0)
        unlink(f->aside);
    f->is_made = rc == 0;
    if (rc == 0)
        (void)file_sync_folder(folder, &ignored);
    free(folder);
    return rc;
}

void new_file_take_back(struct new_file *f)
{
    if (f->is_made)
        unlink(f->path);
    f->is_made = 0;
}

void new_file_drop(struct new_file *f)
{
    if (f->fd >= 0) {
        close(f->fd);
        unlink(f->aside);
    }
    free(f->path);
    free(f->aside);
    new_file_init(f);
}
