/* mutants - small kernels, right ones and broken ones, that show which faults the simulator finds.
 *
 * test_mutants.c runs them. */
#ifndef TESTS_CUDASIM_MUTANTS_H
#define TESTS_CUDASIM_MUTANTS_H

struct CUstream_st;

enum task {
    TASK_DOUBLE,    /* y[i] = 2 * x[i] */
    TASK_TRANSPOSE, /* x [ROWS,COLS] -> y [COLS,ROWS] */
    TASK_SUMS,      /* y[k] = sum of x[256k .. 256k+255], the last one shorter */
};

enum { MUTANT_ROWS = 37, MUTANT_COLS = 45, MUTANT_N = MUTANT_ROWS * MUTANT_COLS };

/* The signs of a broken kernel; it may show several. */
enum {
    CAUGHT_LAUNCH = 1, /* the launch fails: divergence, bad configuration */
    CAUGHT_RESULT = 2, /* the numbers differ from the reference */
    CAUGHT_GUARD = 4,  /* it wrote outside its output */
    CAUGHT_BYTES = 8,  /* the bytes differ in another order of threads */
};

struct mutant {
    const char *name;
    enum task task;
    unsigned caught; /* it must show at least one of these; 0: a right kernel, must show none */
    void (*launch)(struct CUstream_st *s, const float *x, float *y, int n);
};

#ifdef __cplusplus
extern "C" {
#endif

extern const struct mutant mutants[];
extern const int n_mutants;

#ifdef __cplusplus
}
#endif

#endif
