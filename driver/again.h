/* again - trains a job once more, in a process of its own and a folder that is removed afterwards:
 * for --replay, --verify and --compare.
 *
 * Life:    again_init -> { again_run } ... -> again_fini.
 * Threads: main's, before any other is started.
 * Errors:  codes; the message is one line with the remedy. */
#ifndef DRIVER_AGAIN_H
#define DRIVER_AGAIN_H

#include "driver/options.h"

enum { AGAIN_WORDS = 256 };

struct again { /* private, except for folder */
    const struct options *options;
    char *folder; /* for the runs' directories */
    int is_kept;  /* the user named it */
};

/* Make the folder: `wanted`, which must not be there yet and not in `run` (NULL: no matter), or if
 * that is NULL one that again_fini removes. */
int again_init(struct again *a, const struct options *o, const char *wanted, const char *run,
               struct err *err);
void again_fini(struct again *a);

/* Remove what the run NAME has left, its checkpoints above all, unless the user named the folder.
 */
void again_drop(const struct again *a, const char *name);

/* Run "dpdriver train" with the options that this process was given, without those about what it
 * is to do, and with `more` (NULL at the end), in a->folder/NAME.  Its log goes to
 * a->folder/NAME.log, and with is_shown to standard error instead.  *status: its exit status.
 * Fails if it could not be started. */
int again_run(struct again *a, const char *name, const char *const *more, int is_shown, int *status,
              struct err *err);

/* The last error that the run NAME has logged, for free(). */
char *again_why(const struct again *a, const char *name);

/* The rest of its last line with the words `about`, for free(); if there is no such line, a text
 * that stands in its place. */
char *again_warned(const struct again *a, const char *name, const char *about);

#endif
