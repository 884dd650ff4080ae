/* saved - the checkpoints that the runs of a test leave, compared with each other. */
#ifndef TESTS_TRAIN_SAVED_H
#define TESTS_TRAIN_SAVED_H

/* A run directory below /tmp; remove_tree ends it. */
struct dir {
    char path[64];
};

void make_dir(struct dir *d);

/* The newest checkpoints of both runs have the same bytes; `what` names the case. */
void assert_same_checkpoints(const struct dir *a, const struct dir *b, const char *what);
/* The files differ by `most` at most, relative to the norm of all numbers.  Words that are no
 * numbers (names, counts) are equal. */
void assert_close_checkpoints(const struct dir *a, const struct dir *b, double most,
                              const char *what);

#endif
