/* generations - the folder of a run's checkpoints: its generations by name, newest first, and the
 * links `latest` and `best` to them.
 *
 * Only files in ckpt/ include this header; ckpt.h tells what is in the folder.
 * Threads: one at a time per run directory. */
#ifndef CKPT_GENERATIONS_H
#define CKPT_GENERATIONS_H

#include <stdint.h>

#include "base/err.h"

enum { GENERATION_NAME = 32 };

struct generation {
    int64_t step;
    char name[GENERATION_NAME]; /* "step-00002350" */
};

char *generations_folder(const char *run_dir); /* RUN/checkpoints; for free() */
void generation_name(int64_t step, char name[GENERATION_NAME]);

/* All generations in folder, newest first; heap.  None where there is no folder yet. */
int generations_list(const char *folder, struct generation **out, int *n, struct err *err);

/* Make the link `which` ("latest", "best") lead to the generation `name`.  Fails with ERR_REFUSED
 * if another driver owns run_dir. */
int generations_point(const char *which, const char *run_dir, const char *folder, const char *name,
                      struct err *err);
/* Remove the link "best" if it leads to `name`, which is about to go.  The next save makes it
 * again. */
void generations_unpoint_best(const char *folder, const char *name);

#endif
