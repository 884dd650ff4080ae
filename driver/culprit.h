/* culprit - finds out where a step that was computed twice, with other results, parts: which tensor
 * is the first that differs.
 *
 * The caller computes the step again, on both sides, as often as asked for and with the settings
 * that make a run tell its tensors.
 *
 * Threads: main's.
 * Errors:  codes; the message says why the step could not be computed. */
#ifndef DRIVER_CULPRIT_H
#define DRIVER_CULPRIT_H

#include "base/buf.h"
#include "driver/again.h"

struct culprit {
    struct again *again;
    const char *mark; /* distinguishes the folders of this search from those of others */
    /* Compute the steps up to `step` on side 0 or 1 in again->folder/NAME, with these settings
     * (KEY=VALUE; NULL at the end). */
    int (*compute)(void *arg, int side, const char *name, int64_t step, const char *const *sets,
                   struct err *err);
    void *arg;
};

/* Append a sentence about what differs first in `step`, which parts. */
int culprit_find(const struct culprit *c, int64_t step, struct buf *out, struct err *err);

#endif
