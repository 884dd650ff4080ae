/* plan_cache - what was chosen for a GPU, kept on disk from one run to the next.
 *
 *     c = plan_cache_open(folder, warn, arg);
 *     if (!plan_cache_get(c, key, &body))
 *         plan_cache_put(c, key, body.data, body.len);
 *
 * One file an entry, named by the hash of its key; the key, a line of text, holds all that the
 * choice depends on (library, GPU, rules, graph), so an entry is never out of date.  A file that is
 * torn, changed, foreign (another user's, a link) or of another key counts as none, and the next
 * put replaces it.  Files are written aside and renamed: any number of processes may share a
 * folder.  When it holds more than PLAN_CACHE_MAX_FILES or _BYTES, the first put of a process
 * removes the longest unused half.
 *
 * Losing the cache costs time, nothing else: no call fails.  A folder that cannot be written is
 * told once, by `warn`, and is read all the same.
 *
 * Life:    open -> get, put -> close.
 * Threads: one per cache. */
#ifndef BACKEND_CUDA_PLAN_CACHE_H
#define BACKEND_CUDA_PLAN_CACHE_H

#include "base/buf.h"

enum { PLAN_CACHE_MAX_FILES = 2048, PLAN_CACHE_MAX_BYTES = 64 << 20 };

struct plan_cache; /* opaque; NULL: keeps nothing */

/* The folder of this user, to be freed: $CACHE_DIRECTORY/plans (a service's, by systemd), else
 * $XDG_CACHE_HOME/dptrain/plans, else ~/.cache/dptrain/plans; NULL where none of these is set. */
char *plan_cache_folder(void);

typedef void plan_cache_warn(void *arg, const char *text);

/* folder: made by the first put; NULL gives NULL.  warn: NULL is fine. */
struct plan_cache *plan_cache_open(const char *folder, plan_cache_warn *warn, void *arg);
void plan_cache_close(struct plan_cache *c); /* NULL is fine */

/* 1: *out, which was empty, holds the entry; 0: there is none. */
int plan_cache_get(struct plan_cache *c, const char *key, struct buf *out);
void plan_cache_put(struct plan_cache *c, const char *key, const void *data, size_t n_bytes);

#endif
