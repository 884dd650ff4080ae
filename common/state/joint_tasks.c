/* joint_tasks - what the thread of a rank does for a checkpoint that all ranks write together: it
 * makes, writes, checks and places files.
 *
 * joint.h tells the phases.  A task leaves its outcome in the save, and the engines then compare
 * the outcomes (joint.c). */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "state/joint_impl.h"

enum { BLOCK_BYTES = 8 << 20 /* of the copy, written between two looks at is_given_up */ };

void joint_prepare(struct save *v)
{
    if (v->rc < 0) /* there was no memory */
        return;
    draft_free(v->draft); /* the one that is written again */
    v->draft = NULL;
    v->rc = draft_new(v->joint->o.run_dir, &v->contents.files, &v->draft, &v->err);
    if (v->rc == 0 && strlen(draft_folder(v->draft)) >= sizeof v->folder)
        v->rc = err_set(&v->err, ERR_IO, "%s: the path is too long", draft_folder(v->draft));
    if (v->rc == 0)
        strcpy(v->folder, draft_folder(v->draft));
}

static int write_blocks(struct save *v, struct err *err)
{
    const int64_t n = v->part[0].n_bytes;
    int rc = 0;

    for (int64_t at = 0; at < n && rc == 0; at += BLOCK_BYTES) {
        if (atomic_load(&v->is_given_up))
            return err_set(err, ERR_CANCELED, "given up");
        rc = draft_write(v->draft, &v->part[0].files, at, v->bytes + at,
                         (size_t)min_i64(BLOCK_BYTES, n - at), err);
    }
    return rc;
}

/* Rank 0 keeps its files open for the windows of other ranks, and syncs them at the end. */
void joint_write_part(struct save *v)
{
    if (v->rc != 0)
        return;
    v->part[0].files.hash = hash_of(v->bytes, (size_t)v->part[0].n_bytes);
    if (v->rank > 0) {
        draft_free(v->draft);
        v->draft = NULL;
        v->rc = v->joint->o.is_apart
                    ? DRAFT_UNSEEN
                    : draft_join(v->folder, &v->contents.files, &v->draft, &v->err);
    }
    if (v->rc == 0)
        v->rc = write_blocks(v, &v->err);
    if (v->rc == 0 && v->rank > 0)
        v->rc = draft_sync(v->draft, &v->err);
}

void joint_write_window(struct save *v)
{
    const struct part *p = &v->part[v->from];

    ASSERT(v->phase == PASSING && v->rank == 0 && v->unseen[v->from]);
    ASSERT(v->passed + (int64_t)v->n_window <= p->n_bytes);
    if (v->rc == 0)
        v->rc = draft_write(v->draft, &p->files, v->passed, v->window, v->n_window, &v->err);
    v->passed += (int64_t)v->n_window;
}

void joint_free_save(struct save *v)
{
    draft_free(v->draft);
    for (int r = 0; r < v->n_parts; r++)
        part_fini(&v->part[r]);
    contents_fini(&v->contents);
    free(v->part);
    free(v->bytes);
    free(v->unseen);
    free(v->has_erred);
    free(v->window);
    free(v);
}

void joint_check(struct save *v)
{
    struct draft_part *part = xcalloc((size_t)v->size, sizeof *part);
    uint8_t *is_bad = xcalloc((size_t)v->size, 1);

    ASSERT(v->rank == 0 && v->n_parts == v->size && v->draft && v->rc == 0);
    for (int r = 0; r < v->size; r++)
        part[r] = v->part[r].files;
    v->rc = draft_sync(v->draft, &v->err);
    if (v->rc == 0)
        v->rc = draft_check(v->draft, part, v->size, is_bad, &v->err);
    v->n_damaged += v->rc == DRAFT_DAMAGED;
    for (int r = 0; r < v->size; r++)
        v->has_erred[r] |= is_bad[r];
    free(is_bad);
    free(part);
}

/* Tell of each rank whose part was read back differently. */
static void joint_tell(const struct save *v, int is_mended)
{
    for (int r = 0; r < v->size; r++)
        if (v->has_erred[r])
            saver_tell_damaged(v->joint->o.saver, r, NULL, is_mended);
}

static void joint_deliver(struct save *v, char *path, char *why)
{
    struct saver *saver = v->joint->o.saver;
    const double exposed_s = v->exposed_s;

    joint_free_save(v);
    saver_deliver(saver, path, why, exposed_s);
}

void joint_drop(struct save *v)
{
    if (!v->joint->o.saver) {
        joint_free_save(v);
        return;
    }
    joint_tell(v, 0);
    joint_deliver(v, NULL, atomic_load(&v->is_given_up) ? NULL : xstrdup(v->err.msg));
}

void joint_place(struct save *v)
{
    const struct joint_options *o = &v->joint->o;
    char *path = NULL;

    ASSERT(v->rank == 0 && o->saver);
    if (v->rc != 0) {
        joint_drop(v);
        return;
    }
    joint_tell(v, 1);
    v->rc = draft_place(v->draft, &v->contents.files, o->keep, &path, &v->err);
    if (v->rc > 0)
        saver_warn_unlinked(o->saver, v->contents.files.state.step, v->err.msg);
    joint_deliver(v, path, v->rc < 0 ? xstrdup(v->err.msg) : NULL);
}
