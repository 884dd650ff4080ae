/* draft - the files that several ranks write, from their headers to the check of what they hold.
 *
 * draft.h tells the order of calls and the failures that a draft survives. */
#include "ckpt/draft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "ckpt/ckpt_impl.h"
#include "ckpt/file.h"
#include "ckpt/owner.h"

enum { BLOCK_BYTES = 1 << 20 };

struct draft_file {
    char *path;
    int fd;     /* -1: it is not open */
    char *head; /* what stands before the data */
    size_t n_head;
    int64_t end; /* the length of the whole file */
};

struct draft {
    char *run_dir; /* the owner's; NULL: of another rank */
    char *folder;
    int is_placed;
    struct draft_file file[CKPT_FILES]; /* path NULL: there is no such file */
};

/* ---- making and joining ---- */

static void plan_file(struct draft_file *f, const char *folder, enum ckpt_file file,
                      const struct ckpt_content *c)
{
    int n;
    const struct st_tensor *tensor = ckpt_tensors(c, file, &n);

    f->path = ckpt_file_path(folder, file);
    f->fd = -1;
    f->head = st_head(tensor, n, ckpt_names_in(c, file), &f->n_head);
    f->end = (int64_t)f->n_head;
    for (int i = 0; i < n; i++)
        f->end += (int64_t)st_bytes(&tensor[i]);
}

/* Takes folder. */
static struct draft *draft_plan(char *folder, const struct ckpt_content *c)
{
    struct draft *d = xcalloc(1, sizeof *d);

    d->folder = folder;
    for (int i = 0; i < CKPT_FILES; i++)
        if (ckpt_has_file(c, (enum ckpt_file)i))
            plan_file(&d->file[i], folder, (enum ckpt_file)i, c);
    return d;
}

static int draft_create(struct draft_file *f, struct err *err)
{
    int rc = file_create(f->path, &f->fd, err);

    return rc == 0 ? file_put(f->fd, f->path, f->head, f->n_head, err) : rc;
}

/* The path of a new folder, which no folder has had before; for free(). */
static char *name_folder(const char *run_dir)
{
    char *root = realpath(run_dir, NULL);
    char *folder = root ? xasprintf("%s/checkpoints/step.%s.%lld.tmp", root, owner_own_id(),
                                    (long long)clock_mono_ns())
                        : NULL;

    free(root);
    return folder;
}

int draft_new(const char *run_dir, const struct ckpt_content *c, struct draft **out,
              struct err *err)
{
    char *folder;
    struct draft *d;
    int rc = ckpt_check_run_dir(run_dir, err);

    if (rc < 0)
        return rc;
    folder = name_folder(run_dir);
    if (!folder)
        return err_sys(err, errno, "%s", run_dir);
    d = draft_plan(folder, c);
    rc = ckpt_make_aside(run_dir, folder, err);
    if (rc == 0)
        d->run_dir = xstrdup(run_dir);
    for (int i = 0; i < CKPT_FILES && rc == 0; i++)
        if (d->file[i].path)
            rc = draft_create(&d->file[i], err);
    if (rc < 0) {
        draft_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

/* Open a file that the owner made.  Fails if it is not there, is another one, or is on NFS. */
static int join_file(struct draft_file *f, struct err *err)
{
    char *head = xmalloc(f->n_head);
    int rc = file_join(f->path, &f->fd, err);

    if (rc == 0 && file_is_on_nfs(f->fd))
        rc =
            err_set(err, ERR_IO, "%s: it is on NFS, where one machine alone can write it", f->path);
    if (rc == 0)
        rc = file_read_at(f->fd, f->path, head, f->n_head, 0, err);
    if (rc == 0 && memcmp(head, f->head, f->n_head) != 0)
        rc = err_set(err, ERR_CORRUPT, "%s: it has another header", f->path);
    free(head);
    return rc;
}

int draft_join(const char *folder, const struct ckpt_content *c, struct draft **out,
               struct err *err)
{
    struct draft *d = draft_plan(xstrdup(folder), c);

    for (int i = 0; i < CKPT_FILES; i++)
        if (d->file[i].path && join_file(&d->file[i], err) < 0) {
            draft_free(d);
            return DRAFT_UNSEEN;
        }
    *out = d;
    return 0;
}

void draft_free(struct draft *d)
{
    if (!d)
        return;
    for (int i = 0; i < CKPT_FILES; i++) {
        if (d->file[i].path && d->file[i].fd >= 0)
            close(d->file[i].fd);
        free(d->file[i].path);
        free(d->file[i].head);
    }
    if (d->run_dir && !d->is_placed)
        ckpt_remove(d->folder);
    free(d->folder);
    free(d->run_dir);
    free(d);
}

const char *draft_folder(const struct draft *d) { return d->folder; }

/* ---- writing ---- */

int draft_write(struct draft *d, const struct draft_part *part, int64_t from, const void *bytes,
                size_t n_bytes, struct err *err)
{
    const int64_t end = from + (int64_t)n_bytes;
    int64_t at = 0; /* of the piece in the part */
    int rc = 0;

    for (int i = 0; i < part->n && at < end && rc == 0; at += part->piece[i++].n_bytes) {
        const struct draft_piece *p = &part->piece[i];
        const int64_t first = max_i64(from, at), last = min_i64(end, at + p->n_bytes);
        const struct draft_file *f = &d->file[p->file];

        if (first < last)
            rc =
                file_put_at(f->fd, f->path, (const char *)bytes + (first - from),
                            (size_t)(last - first), (int64_t)f->n_head + p->at + (first - at), err);
    }
    return rc;
}

int draft_sync(struct draft *d, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < CKPT_FILES && rc == 0; i++)
        if (d->file[i].path && d->file[i].fd >= 0) {
            rc = file_finish(d->file[i].fd, d->file[i].path, err);
            d->file[i].fd = -1;
        }
    return rc;
}

/* ---- reading back ---- */

/* The progress of the check of one part. */
struct cursor {
    int next; /* piece */
    struct hasher *hasher;
};

/* Read the bytes [at, at + n) of the file, and add them to both hashers. */
static int draft_take(int fd, const struct draft_file *f, int64_t at, int64_t n, char *block,
                      struct hasher *whole, struct hasher *own, struct err *err)
{
    int rc = 0;

    for (int64_t done = 0; done < n && rc == 0; done += BLOCK_BYTES) {
        const size_t m = (size_t)min_i64(BLOCK_BYTES, n - done);

        rc = file_read_at(fd, f->path, block, m, at + done, err);
        if (rc == 0)
            hasher_add(whole, block, m);
        if (rc == 0 && own)
            hasher_add(own, block, m);
    }
    return rc;
}

/* The part that has the piece at this offset of the data.  The pieces of all parts cover the files.
 */
static int owner_of(const struct draft_part *part, const struct cursor *c, int n, int file,
                    int64_t at)
{
    for (int r = 0; r < n; r++)
        if (c[r].next < part[r].n && part[r].piece[c[r].next].file == file &&
            part[r].piece[c[r].next].at == at)
            return r;
    ASSERT(!"a byte of a checkpoint belongs to no rank");
    return -1;
}

static int draft_check_length(const struct draft_file *f, int64_t n_bytes, struct err *err)
{
    if (n_bytes == f->end)
        return 0;
    return err_set(err, ERR_IO, "%s: has %lld bytes after all ranks wrote their parts, want %lld",
                   f->path, (long long)n_bytes, (long long)f->end);
}

static int read_back(const struct draft *d, int file, const struct draft_part *part,
                     struct cursor *c, int n, struct hash128 *hash, struct err *err)
{
    const struct draft_file *f = &d->file[file];
    struct hasher *whole = hasher_new();
    char *block = xmalloc(BLOCK_BYTES);
    int64_t n_bytes, at = (int64_t)f->n_head;
    int fd = -1, rc = file_open(f->path, &fd, &n_bytes, err);

    if (rc == 0) {
        file_drop_cache(fd);
        rc = draft_check_length(f, n_bytes, err);
    }
    if (rc == 0)
        rc = draft_take(fd, f, 0, at, block, whole, NULL, err);
    while (at < f->end && rc == 0) {
        const int r = owner_of(part, c, n, file, at - (int64_t)f->n_head);
        const struct draft_piece *p = &part[r].piece[c[r].next++];

        rc = draft_take(fd, f, at, p->n_bytes, block, whole, c[r].hasher, err);
        at += p->n_bytes;
    }
    *hash = hasher_end(whole);
    if (fd >= 0)
        close(fd);
    free(block);
    hasher_free(whole);
    return rc;
}

/* Read all files back.  hash [CKPT_FILES]: of each that is there. */
static int check_files(const struct draft *d, const struct draft_part *part, int n,
                       struct hash128 *hash, struct err *err)
{
    struct cursor *c = xcalloc((size_t)n, sizeof *c);
    int rc = 0;

    for (int r = 0; r < n; r++)
        c[r].hasher = hasher_new();
    for (int i = 0; i < CKPT_FILES && rc == 0; i++)
        if (d->file[i].path)
            rc = read_back(d, i, part, c, n, &hash[i], err);
    for (int r = 0; r < n && rc == 0; r++)
        if (!hash_equal(hasher_end(c[r].hasher), part[r].hash))
            rc = err_set(err, ERR_IO,
                         "%s: what rank %d wrote is not what is read back; do all ranks see the "
                         "same disk?",
                         d->folder, r);
    for (int r = 0; r < n; r++)
        hasher_free(c[r].hasher);
    free(c);
    return rc;
}

int draft_place(struct draft *d, const struct ckpt_content *c, const struct draft_part *part, int n,
                int keep, char **path, struct err *err)
{
    struct hash128 hash[CKPT_FILES];
    int rc = check_files(d, part, n, hash, err);

    ASSERT(d->run_dir);
    for (int i = 0; i < CKPT_FILES; i++)
        ASSERT(ckpt_has_file(c, (enum ckpt_file)i) == (d->file[i].path != NULL));
    if (rc == 0)
        rc = ckpt_write_state(d->folder, c, hash, err);
    if (rc == 0) {
        d->is_placed = 1;
        rc = ckpt_place(d->run_dir, d->folder, c, keep, path, err);
    }
    return rc;
}
