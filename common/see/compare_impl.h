/* compare_impl - the runs that compare.h compares, and the parts of their page.
 *
 * Threads: any; the runs are only read. */
#ifndef SEE_COMPARE_IMPL_H
#define SEE_COMPARE_IMPL_H

#include "see/compare.h"
#include "see/history.h"
#include "see/past.h"

struct compare_key { /* of a job */
    char *key, *value;
};

struct compare_run {
    const struct report_run *from;
    char *name; /* the folder's, or its path where two folders have one name */
    struct past past;
    struct history history;
    struct compare_key *key;
    int n_keys; /* 0: the job cannot be read */
};

struct compare {
    struct compare_run run[COMPARE_MOST];
    int n;
};

/* Append the classes of the runs' lines, r0 and so on, as an element <style>. */
void compare_put_style(struct buf *out);

void compare_put_curves(struct buf *out, const struct compare *c);
void compare_put_results(struct buf *out, const struct compare *c);
void compare_put_jobs(struct buf *out, const struct compare *c);

#endif
