/* sim - the reference simulator of strategies: n imagined ranks in plain loops, written from the
 * strategies' definitions, with no code of the product.
 *
 * Every rank minimises a quadratic of its own.  A step of the simulator: each rank has its gradient
 * at its own weights; `combine` gives each rank the gradient that its update uses; every rank makes
 * the update w -= RATE * g; `mix` may then change the weights.  A strategy's definition is these
 * two functions.  Only the moment at which a round of async ends depends on time: the simulator
 * takes it from the run of the product.
 *
 * Numbers are doubles.  A definition that rounds to float, such as a codec, does so itself: then
 * the product must give the same bits. */
#ifndef TESTS_STRATEGY_SIM_H
#define TESTS_STRATEGY_SIM_H

#include <stdint.h>

enum {
    SIM_MAX_RANKS = 5,
    SIM_MAX_STEPS = 30,
    SIM_MAX_SEGMENTS = 8,
    SIM_MAX_DIMS = 4,
    SIM_MAX_LEN = 1024, /* of the flat space, padding included */
};

#define SIM_RATE 0.05f

/* The parameters: tensors in a flat space, as program/layout.h lays them out, and its buckets. */
struct sim_segment {
    int64_t dim[SIM_MAX_DIMS]; /* 0: no more */
    int64_t at, n;             /* elements; the padding after them is zero */
    int ends_bucket;
};

struct sim_space {
    struct sim_segment segment[SIM_MAX_SEGMENTS];
    int n_segments;
    int64_t len;
};

extern const struct sim_space sim_space;

/* One run of n ranks. */
struct sim {
    int n;
    int64_t step;                                   /* from 0 */
    int64_t n_updates;                              /* steps that were applied */
    double part[SIM_MAX_RANKS];                     /* each rank's part of this step's samples */
    double w[SIM_MAX_RANKS][SIM_MAX_LEN];           /* each rank's weights */
    double g[SIM_MAX_RANKS][SIM_MAX_LEN];           /* each rank's gradient, in this step */
    double keep[4][SIM_MAX_RANKS][2 * SIM_MAX_LEN]; /* what a strategy keeps; zero at first */
    /* Of async alone, whose rounds end when they may: the ranks on which the product's round ended
     * with this step, and the rounds that are under way. */
    const uint8_t *has_ended; /* [n] */
    int is_under_way[SIM_MAX_RANKS], n_rounds;
};

struct sim_strategy {
    const char *name;
    const char *job;       /* the section `strategy` of the job file: "{name: allreduce}" */
    const char *optimizer; /* the section `optimizer`; NULL: {name: sgd} */
    void (*combine)(struct sim *s);
    void (*update)(struct sim *s); /* NULL: w -= RATE * g */
    void (*mix)(struct sim *s);    /* NULL: nothing */
    int is_timed;                  /* 1: the end of an exchange is read from has_ended */
    int n_shares;   /* fixed shares: each has the gradient of a rank; 0: there are none */
    float momentum; /* of the update that the bench makes; keep[0][0] of `update` */
    int is_uneven;  /* 1: the ranks' parts of a step differ; some have none */
    double tol;     /* relative to the largest weight; 0: equal bits */
};

extern const struct sim_strategy sim_sums[]; /* all ranks' updates use the same gradient */
extern const struct sim_strategy sim_owns[]; /* each rank's update uses its own gradient */
extern const int sim_n_sums, sim_n_owns;

/* Element i of the gradient of rank r of n at weight w: a share of the whole gradient, so that the
 * ranks' gradients are summed.  Where parts differ it is to be multiplied by the part, times n. */
float sim_gradient(int r, int n, int64_t step, int64_t i, float w);
double sim_part(int is_uneven, int r, int n, int64_t step); /* 1/n if they do not differ */
float sim_first_weight(int64_t i);                          /* 0 in padding */
int sim_is_padding(int64_t i);

void sim_begin(struct sim *s, int n);
void sim_step(struct sim *s, const struct sim_strategy *k);

#endif
