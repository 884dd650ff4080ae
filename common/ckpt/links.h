/* links - RUN/checkpoints/latest and best, which name generations.
 *
 * Each is a symbolic link, or on a file system without links (exFAT, some mounts) a text file of
 * one line, the name.  No code here needs them to find a generation: they are for people and their
 * scripts.  So a checkpoint counts as written, whether it could be linked or not.
 *
 * A copy that follows links (cp -rL) has folders in their places.  Such a folder is what its
 * state.json says, whatever its name: the checkpoint of a step.  The driver that resumes the run
 * makes it that generation if the run lacks it, and removes it if the generation is whole and has
 * the same files, byte for byte.  A folder that is neither stays, and no link is made then.  A save
 * leaves every folder alone.
 *
 * Only files in ckpt/ include this header.
 * Threads: one at a time per run directory. */
#ifndef CKPT_LINKS_H
#define CKPT_LINKS_H

#include "base/err.h"
#include "ckpt/generations.h"

/* Make `which` ("latest", "best") name the generation `name`.  CKPT_UNLINKED (ckpt/ckpt.h): that is
 * not possible, and *err says why.  Fails with ERR_REFUSED if another driver owns run_dir, and with
 * ERR_IO if the folder cannot be synced. */
int links_point(const char *which, const char *run_dir, const char *folder, const char *name,
                struct err *err);

/* Remove what names `name`, which is about to go.  The next save makes it again. */
void links_unpoint(const char *folder, const char *name);

/* Put the folders in the places of links where they belong, and return how many.  Only the owner of
 * the run may.  warn(arg, text) is called for each. */
int links_settle(const char *folder, void (*warn)(void *arg, const char *text), void *arg);

/* Append the folders in the places of links that say of which step they are.  Each comes behind a
 * generation of the same step. */
void links_add_copies(const char *folder, struct generation **g, int *n);

#endif
