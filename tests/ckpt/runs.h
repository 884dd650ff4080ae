/* runs - small checkpoints whose content says which they are, for tests of this folder. */
#ifndef TESTS_CKPT_RUNS_H
#define TESTS_CKPT_RUNS_H

#include <stdint.h>

#include "ckpt/ckpt.h"

struct run_point {
    int64_t step;
    int version; /* of several saved for one step */
};

/* Save under `run`, keeping `keep`. */
int run_save(const char *run, struct run_point p, int keep, struct err *err);

/* Load the newest of `run`; as ckpt_load_latest, and checks that all of it belongs together. */
int run_load(const char *run, struct run_point *out, struct err *err);

char *run_new_folder(void);         /* in memory, where there is such a place */
void run_remove_folder(char *path); /* and all in it; frees path */

#endif
