/* picture_cache - the file of a data set's decoded pictures: found where an earlier run, or another
 * rank, made it, or made here.
 *
 * Its name has the hash of the pictures' folder and of how they are kept, and its header that of
 * the pictures themselves, so a file whose pictures have changed is told of, and is made anew.
 * Processes that want the same file make it together: each takes the pictures that no other one is
 * at.  A killed process leaves what it has made, and the others, or the next start, go on from
 * there.  Nobody waits for a process that is dead: what it was at is locked by the system.
 *
 * Threads: any.  Starts threads of its own, which have ended when it returns.
 * Errors:  ERR_IO (a folder that cannot be written, a full disk), those of `make`, ERR_NOMEM. */
#ifndef DATA_PICTURE_CACHE_H
#define DATA_PICTURE_CACHE_H

#include "base/buf.h"
#include "data/picture_file.h"

/* A request; all is borrowed. */
struct picture_cache {
    const char *folder;       /* data.cache */
    const char *pictures;     /* the folder of the pictures, for messages */
    struct hash128 name, key; /* of the file, and of the pictures */
    int64_t n;                /* pictures */
    /* Append the pixels of picture i, and set the sizes in *entry; or PICTURE_FILE_LOST.  Several
     * threads call it. */
    int (*make)(const void *arg, int64_t i, struct buf *pixels, struct picture_entry *entry,
                struct err *err);
    const void *arg;
};

int picture_cache_open(struct picture_file *out, const struct picture_cache *what, struct err *err);

#endif
