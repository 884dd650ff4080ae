/* names - the names of classes as one value of the job file: ["cat", "dog"].
 *
 * The text is in YAML's flow style; what names_write appends is JSON, too.  A byte that a line of
 * YAML cannot hold becomes a question mark, so names are compared in that form.
 *
 * Threads: pure. */
#ifndef CONFIG_NAMES_H
#define CONFIG_NAMES_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum { NAMES_MOST = 4000 }; /* of a list that stands in a job file */

/* Read the names; they live in `arena`.  Fails with ERR_CONFIG. */
int names_read(const char *text, struct arena *arena, const char ***out, int *n, struct err *err);

/* For an OPT_TREE: fails where names_read would. */
int names_check(const char *text, size_t len, size_t *at, struct err *err);

void names_write(const char *const *name, int64_t n, struct buf *out);

/* 1: a name of the data is the job's. */
int names_equal(const char *of_data, const char *of_job);

#endif
