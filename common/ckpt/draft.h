/* draft - a generation of checkpoints that several ranks write together, each its own part.
 *
 * Happy path: the owner of the run directory makes the draft: a folder aside whose files have
 * nothing but their headers.  Each rank joins the draft by the folder's path, writes its part at
 * the right offsets, and fsyncs.  When all ranks have done so, the owner reads the files back, and
 * compares the part of each rank with the hash that the rank tells (draft_check).  Then it puts the
 * folder in place as ckpt_save does (draft_place).  The files are byte for byte those of ckpt_save.
 *
 * The owner's path may lead a rank on another machine nowhere, or to another disk.  The folder's
 * name contains a random number, so a rank that finds the files there, with the headers that they
 * must have, sees the owner's disk.  Otherwise draft_join returns DRAFT_UNSEEN, and the owner
 * writes that rank's part, too.  So it does on NFS (file_is_on_nfs).
 *
 * Failure modes: whatever fails or is given up before draft_place leaves a .tmp folder, which the
 * owner's draft_free removes, or the next driver's ckpt_clear.  A rank that is late only writes to
 * files that are removed already, because only the owner makes files.
 *
 * Life:    draft_new or draft_join -> draft_write ... -> draft_sync; on the owner
 *          draft_check -> draft_place; draft_free.
 * Threads: one at a time for each draft.
 * Errors:  as ckpt.h. */
#ifndef CKPT_DRAFT_H
#define CKPT_DRAFT_H

#include "ckpt/ckpt.h"

struct draft; /* opaque */

/* A run of bytes of a file. */
struct draft_piece {
    int file;   /* 0: that with the model's tensors, 1: that with the optimizer's */
    int64_t at; /* from the start of the data, where tensors lie one behind another */
    int64_t n_bytes;
};

/* The bytes that one rank writes: its pieces, by file and offset.  In memory they lie one behind
 * another. */
struct draft_part {
    const struct draft_piece *piece;
    int n;
    struct hash128 hash; /* of all bytes; only draft_check reads it */
};

/* Outcomes: this rank cannot write to the owner's folder; the disk gives back other bytes. */
enum { DRAFT_UNSEEN = 1, DRAFT_DAMAGED = 2 };

/* Make a draft of c's files, of which only names, types and shapes are read. */
int draft_new(const char *run_dir, const struct ckpt_content *c, struct draft **out,
              struct err *err);
/* Open another rank's draft, whose c is alike.  Returns DRAFT_UNSEEN (> 0) if this rank cannot
 * write there; *err says why. */
int draft_join(const char *folder, const struct ckpt_content *c, struct draft **out,
               struct err *err);
void draft_free(struct draft *d); /* NULL is fine */

const char *draft_folder(const struct draft *d); /* its path, from the root */

/* Write the bytes [from, from + n_bytes) of a part. */
int draft_write(struct draft *d, const struct draft_part *part, int64_t from, const void *bytes,
                size_t n_bytes, struct err *err);
/* fsync and close what was written. */
int draft_sync(struct draft *d, struct err *err);

/* On the owner, when all ranks have written and synced: read back the parts [n] of all ranks, which
 * together are all data; the first is the owner's, with the headers.  Returns DRAFT_DAMAGED (> 0)
 * if the disk gives back other bytes of some parts than were written: is_bad [n] has a 1 for each
 * such part, and *err names the first. */
int draft_check(struct draft *d, const struct draft_part *part, int n, uint8_t *is_bad,
                struct err *err);
/* Make the draft, which draft_check has found right, the newest generation.  c, keep and *path are
 * as for ckpt_save. */
int draft_place(struct draft *d, const struct ckpt_content *c, int keep, char **path,
                struct err *err);

#endif
