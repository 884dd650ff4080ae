/* plan_cache - keeps the plans that were chosen for a GPU on disk, from one run to the next.
 *
 *     c = plan_cache_open(folder, warn, arg);
 *     if (!plan_cache_get(c, key, &body))
 *         plan_cache_put(c, key, body.data, body.len);
 *
 * An entry is a file, named by the hash of its key.  The key is a line of text with all that the
 * choice depends on (library, GPU, rules, graph), so an entry is never out of date.  A file that is
 * torn or changed, belongs to another user, is a link or has another key is ignored, and the next
 * put replaces it.  A file is written under another name and then renamed, so any number of
 * processes may share a folder.  If the folder holds more than PLAN_CACHE_MAX_FILES or _BYTES, the
 * first put of a process removes the half that was unused for longest.
 *
 * Losing the cache costs only time, so no call fails.  If the folder cannot be written, `warn` says
 * so once, and entries are still read.
 *
 * Life:    open -> get, put -> close.
 * Threads: one per cache. */
#ifndef BACKEND_CUDA_PLAN_CACHE_H
#define BACKEND_CUDA_PLAN_CACHE_H

#include "base/buf.h"

enum { PLAN_CACHE_MAX_FILES = 2048, PLAN_CACHE_MAX_BYTES = 64 << 20 };

struct plan_cache; /* opaque; NULL is a cache that keeps nothing */

/* This user's folder: $CACHE_DIRECTORY/plans (which systemd sets for a service), else
 * $XDG_CACHE_HOME/dptrain/plans, else ~/.cache/dptrain/plans; NULL if none of these is set.  The
 * caller frees it. */
char *plan_cache_folder(void);

typedef void plan_cache_warn(void *arg, const char *text);

/* The first put makes the folder; with folder NULL this returns NULL.  warn may be NULL. */
struct plan_cache *plan_cache_open(const char *folder, plan_cache_warn *warn, void *arg);
void plan_cache_close(struct plan_cache *c); /* NULL is fine */

/* Give it an empty *out.  1: *out holds the entry; 0: there is no such entry. */
int plan_cache_get(struct plan_cache *c, const char *key, struct buf *out);
void plan_cache_put(struct plan_cache *c, const char *key, const void *data, size_t n_bytes);

#endif
