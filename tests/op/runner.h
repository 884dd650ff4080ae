/* runner - runs every case of cases.c on a backend and checks the results:
 *   - each node equals the double-precision reference, within the case's tolerance;
 *   - gradients equal central differences of the reference's forward part;
 *   - every run gives the same bytes, and in place the same as out of place;
 *   - nothing is written outside the tensors, also where these lie at odd addresses;
 *   - outputs are overwritten in full;
 *   - a gradient node, or a cast, that adds to its outputs (node.adds) adds the same numbers;
 *   - a run allocates nothing;
 *   - a failed allocation while a kernel is made is reported (op_runner_out_of_memory).
 * In half precision an element may differ from the reference by one unit in the last place: the
 * reference gets the same rounded inputs and rounds once.  A kernel that rounds more than that may
 * differ by one unit of the tensor's largest element.  Where the node adds to its output, the
 * sum may differ by half a unit of its own in addition.  Central differences are taken in F32 only.
 *
 * Each case is named on stdout before it runs.  A failure is printed at once.  Then the next case
 * runs, unless the backend takes no more work.  At the end all failures are listed, and cmocka
 * fails the test. */
#ifndef TESTS_OP_RUNNER_H
#define TESTS_OP_RUNNER_H

#include <stdint.h>

#include "backend/backend.h"
#include "cases.h"

struct op_runner {
    struct backend *b;
    int n_turns;                       /* runs of each kernel; 0: 10 */
    int watch_heap;                    /* 1: glibc's count of heap bytes must not change in a run */
    void (*before_run)(uint64_t turn); /* may be NULL */
    int (*has)(int op);      /* operators to run on b, the rest on the reference; NULL: all */
    struct case_types types; /* zero: F32 */
    const char *const *only; /* cases to run, by name, NULL-terminated; NULL: all */
    int rounds_twice; /* 1: results pass through memory in the node's type before they are done */
    /* 1: this output is of sums of what is rounded to the node's type before; NULL: none is */
    int (*rounds_points)(struct backend *b, const struct graph *g, const struct node *n, int out);
};

int op_runner_cases(const struct op_runner *r, int with_gradients); /* nodes checked */

/* Make each kernel with the n-th allocation failing, for n = 1, 2 ...: each try must fail with
 * ERR_NOMEM, until there is no n-th allocation and the kernel is made. */
void op_runner_out_of_memory(const struct op_runner *r);

#endif
