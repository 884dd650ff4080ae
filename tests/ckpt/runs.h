/* runs - small checkpoints, for the tests of this folder.  The content of each checkpoint tells its
 * step and its version. */
#ifndef TESTS_CKPT_RUNS_H
#define TESTS_CKPT_RUNS_H

#include <stdint.h>

#include "ckpt/ckpt.h"

struct run_point {
    int64_t step;
    int version;        /* counts the checkpoints that are saved for one step */
    int64_t best;       /* the best step when it is saved; 0: none.  run_load leaves it 0 */
    const char *config; /* the text of config.json; NULL: there is none */
};

/* Save under `run`, keeping `keep`.  Returns as ckpt_save does. */
int run_save(const char *run, struct run_point p, int keep, struct err *err);

/* Load the newest checkpoint of `run`, as ckpt_load_latest, and check that its parts belong
 * together. */
int run_load(const char *run, struct run_point *out, struct err *err);

char *run_new_folder(void);         /* in memory, where there is such a place */
void run_remove_folder(char *path); /* with all that is in it; frees path */

#endif
