/* bench - the product's strategies on the reference simulator's problem: each rank is a thread with
 * a reducer, and the ranks talk over coll/local. */
#ifndef TESTS_STRATEGY_BENCH_H
#define TESTS_STRATEGY_BENCH_H

#include "base/err.h"
#include "sim.h"

struct bench_run {
    const char *strategy;  /* the section `strategy` of a job file */
    const char *optimizer; /* NULL: the job's default */
    int is_uneven;         /* as the simulator's, as are the next two */
    int n_shares;
    float momentum;
    int n_ranks;
    int n_steps;
    /* May change what a rank hands over; or NULL. */
    void (*spoil)(int rank, int64_t step, float *grad);
    /* 1: the step is not to be applied, so nothing that is kept may change; or NULL. */
    int (*is_refused)(int64_t step);
};

struct bench_result {
    float w[SIM_MAX_STEPS][SIM_MAX_RANKS][SIM_MAX_LEN]; /* after each step */
    /* 1: the optimizer left weights as they were because the new ones are not finite. */
    uint8_t is_kept[SIM_MAX_STEPS][SIM_MAX_RANKS];
    /* 1: what other ranks sent changed the weights between the step and the next one. */
    uint8_t is_changed[SIM_MAX_STEPS][SIM_MAX_RANKS];
    /* Divided state: at the end, the momentum in the shards that each rank holds, and where these
     * are. */
    float momentum[SIM_MAX_RANKS][2][SIM_MAX_LEN];
    uint8_t is_held[SIM_MAX_RANKS][2][SIM_MAX_LEN];
    int64_t n_bytes; /* handed to collectives by rank 0, in all */
    int rc[SIM_MAX_RANKS];
    struct err err[SIM_MAX_RANKS];
};

void bench_run(const struct bench_run *run, struct bench_result *out);

#endif
