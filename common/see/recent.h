/* recent - the newest lines of events.jsonl, for those who begin to look at a run.
 *
 * Life:    a struct of zeros -> recent_read -> recent_add ... -> recent_fini.
 * Threads: one at a time; recent_read waits for the disk, for at most RECENT_TAIL bytes.
 * Errors:  none: a file that is not there or cannot be read has no lines. */
#ifndef SEE_RECENT_H
#define SEE_RECENT_H

#include <stddef.h>
#include <stdint.h>

enum { RECENT_MOST = 200, RECENT_TAIL = 256 << 10 };

struct recent {
    char *line[RECENT_MOST]; /* line i is at i % RECENT_MOST; without its end */
    int64_t n;               /* lines ever added */
};

/* Add the last whole lines of the run's events.jsonl that are JSON objects. */
void recent_read(struct recent *r, const char *run_dir);
void recent_add(struct recent *r, const char *line, size_t n);

/* The first line that is still there: its number, from 0. */
int64_t recent_first(const struct recent *r);
const char *recent_line(const struct recent *r, int64_t i); /* from there to n - 1 */
void recent_fini(struct recent *r);

#endif
