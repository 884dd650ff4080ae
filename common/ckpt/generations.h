/* generations - the folder of a run's checkpoints: its generations by name, newest first.
 *
 * Files in ckpt/ include this header, and driver/shadow.c and driver/record_attest.c; ckpt.h tells
 * what is in the folder.
 * Threads: one at a time per run directory. */
#ifndef CKPT_GENERATIONS_H
#define CKPT_GENERATIONS_H

#include <stdint.h>

#include "base/err.h"

enum { GENERATION_NAME = 32 };

struct generation {
    int64_t step;
    char name[GENERATION_NAME]; /* "step-00002350", or the name of a link (ckpt/links.h) */
};

char *generations_folder(const char *run_dir); /* RUN/checkpoints; for free() */
void generation_name(int64_t step, char name[GENERATION_NAME]);
/* 1 and the step if `name` is step- and at least 8 digits. */
int generation_step(const char *name, int64_t *step);

/* All generations in folder, newest first; heap.  None where there is no folder yet. */
int generations_list(const char *folder, struct generation **out, int *n, struct err *err);

/* The folder `from`, which was the generation `name`, becomes AS-NAME ("damaged-step-00002350"), or
 * AS-NAME-2 and so on if there is one.  Nothing is removed. */
int generations_set_aside(const char *folder, const char *from, const char *as, const char *name,
                          struct err *err);

#endif
