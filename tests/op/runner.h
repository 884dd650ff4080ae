/* runner - every case of cases.c on a backend: against the double-precision reference, node by
 * node; the gradients against central differences of the reference's forward; the same bytes in
 * every run; nothing written outside, also where tensors lie at odd addresses; outputs overwritten
 * in full; in place as out of place; no allocation in a run; and every allocation of making one
 * failing.  In half precision an element may be one unit in its last place beside the reference,
 * which gets the same rounded inputs and rounds once; differences are F32's.
 *
 * Each case is named on stdout before it runs.  A failure is told at once, and the
 * next one runs, unless the backend takes no more work; at the end all that was wrong is listed,
 * and cmocka fails the test. */
#ifndef TESTS_OP_RUNNER_H
#define TESTS_OP_RUNNER_H

#include <stdint.h>

#include "backend/backend.h"
#include "cases.h"

struct op_runner {
    struct backend *b;
    int n_turns;                       /* runs of each kernel; 0: 10 */
    int watch_heap;                    /* glibc's account of the heap must not move in a run */
    void (*before_run)(uint64_t turn); /* may be NULL */
    int (*has)(int op);      /* operators to run on it, the rest on the reference; NULL: all */
    struct case_types types; /* zero: F32 */
    const char *const *only; /* cases to run, by name, NULL-terminated; NULL: all */
    int rounds_twice; /* 1: results pass through memory in the node's type before they are done */
};

int op_runner_cases(const struct op_runner *r, int with_gradients); /* nodes checked */

/* The n-th allocation of making a kernel fails, n swept: ERR_NOMEM, and at last a kernel. */
void op_runner_out_of_memory(const struct op_runner *r);

#endif
