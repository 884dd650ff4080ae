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
    int is_checked, is_placed;
    struct draft_file file[CKPT_FILES]; /* path NULL: there is no such file */
    struct hash128 hash[CKPT_FILES];    /* of each that is there, as draft_check read it */
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

/* A part, and how far its check is. */
struct cursor {
    const struct draft_part *part;
    int next; /* piece */
    struct hasher *hasher;
};

/* The check of all parts. */
struct check {
    struct cursor *cursor; /* [n] */
    int n;
    uint8_t *is_bad; /* [n] */
};

/* Read the bytes [at, at + n) of the file, and add them to both hashers. */
static int draft_take(int fd, const struct draft_file *f, int64_t at, int64_t n,
                      struct hasher *whole, struct hasher *own, struct err *err)
{
    char *block = xmalloc(BLOCK_BYTES);
    int rc = 0;

    for (int64_t done = 0; done < n && rc == 0; done += BLOCK_BYTES) {
        const size_t m = (size_t)min_i64(BLOCK_BYTES, n - done);

        rc = file_read_at(fd, f->path, block, m, at + done, err);
        if (rc == 0)
            hasher_add(whole, block, m);
        if (rc == 0)
            hasher_add(own, block, m);
    }
    free(block);
    return rc;
}

/* The header is the owner's, so another one makes the owner's part bad. */
static int take_head(int fd, const struct draft_file *f, struct hasher *whole, struct check *k,
                     struct err *err)
{
    char *head = xmalloc(f->n_head);
    const int rc = file_read_at(fd, f->path, head, f->n_head, 0, err);

    if (rc == 0)
        hasher_add(whole, head, f->n_head);
    if (rc == ERR_CORRUPT || (rc == 0 && memcmp(head, f->head, f->n_head) != 0))
        k->is_bad[0] = 1;
    free(head);
    return rc;
}

/* The part that has the piece at this offset of the data.  The pieces of all parts cover the files.
 */
static int owner_of(const struct check *k, int file, int64_t at)
{
    for (int r = 0; r < k->n; r++) {
        const struct cursor *c = &k->cursor[r];

        if (c->next < c->part->n && c->part->piece[c->next].file == file &&
            c->part->piece[c->next].at == at)
            return r;
    }
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

static int draft_take_pieces(int fd, const struct draft_file *f, int file, struct hasher *whole,
                             struct check *k, struct err *err)
{
    int rc = 0;

    for (int64_t at = (int64_t)f->n_head; at < f->end && rc == 0;) {
        const int r = owner_of(k, file, at - (int64_t)f->n_head);
        struct cursor *c = &k->cursor[r];
        const int64_t n_bytes = c->part->piece[c->next++].n_bytes;

        rc = draft_take(fd, f, at, n_bytes, whole, c->hasher, err);
        if (rc == ERR_CORRUPT)
            k->is_bad[r] = 1;
        at += n_bytes;
    }
    return rc;
}

static int read_back(struct draft *d, int file, struct check *k, struct err *err)
{
    const struct draft_file *f = &d->file[file];
    struct hasher *whole = hasher_new();
    int64_t n_bytes;
    int fd = -1, rc = file_open(f->path, &fd, &n_bytes, err);

    if (rc == 0) {
        file_drop_cache(fd);
        rc = draft_check_length(f, n_bytes, err);
    }
    if (rc == 0)
        rc = take_head(fd, f, whole, k, err);
    if (rc == 0)
        rc = draft_take_pieces(fd, f, file, whole, k, err);
    d->hash[file] = hasher_end(whole);
    if (fd >= 0)
        close(fd);
    hasher_free(whole);
    return rc;
}

/* All files were read. */
static void compare_parts(struct check *k)
{
    for (int r = 0; r < k->n; r++)
        if (!hash_equal(hasher_end(k->cursor[r].hasher), k->cursor[r].part->hash))
            k->is_bad[r] = 1;
}

/* Files that were all read name the first bad part; a read that failed has said why. */
static int draft_judge(const struct draft *d, const struct check *k, int rc, struct err *err)
{
    const uint8_t *bad = memchr(k->is_bad, 1, (size_t)k->n);

    if (!bad || (rc < 0 && rc != ERR_CORRUPT))
        return rc;
    if (rc == 0)
        err_set(err, ERR_IO,
                "%s: what rank %d wrote is not what is read back; do all ranks see the same disk, "
                "and is it in order?",
                d->folder, (int)(bad - k->is_bad));
    err->code = ERR_IO;
    return DRAFT_DAMAGED;
}

int draft_check(struct draft *d, const struct draft_part *part, int n, uint8_t *is_bad,
                struct err *err)
{
    struct check k = {xcalloc((size_t)n, sizeof *k.cursor), n, is_bad};
    int rc = 0;

    ASSERT(d->run_dir && n > 0);
    memset(is_bad, 0, (size_t)n);
    for (int r = 0; r < n; r++)
        k.cursor[r] = (struct cursor){.part = &part[r], .hasher = hasher_new()};
    for (int i = 0; i < CKPT_FILES && rc == 0; i++)
        if (d->file[i].path)
            rc = read_back(d, i, &k, err);
    if (rc == 0)
        compare_parts(&k);
    rc = draft_judge(d, &k, rc, err);
    d->is_checked = rc == 0;
    for (int r = 0; r < n; r++)
        hasher_free(k.cursor[r].hasher);
    free(k.cursor);
    return rc;
}

int draft_place(struct draft *d, const struct ckpt_content *c, int keep, char **path,
                struct err *err)
{
    int rc;

    ASSERT(d->run_dir && d->is_checked);
    for (int i = 0; i < CKPT_FILES; i++)
        ASSERT(ckpt_has_file(c, (enum ckpt_file)i) == (d->file[i].path != NULL));
    rc = ckpt_write_state(d->folder, c, d->hash, err);
    if (rc == 0) {
        d->is_placed = 1;
        rc = ckpt_place(d->run_dir, d->folder, c, keep, path, err);
    }
    return rc;
}
