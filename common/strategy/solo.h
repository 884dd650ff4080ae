/* solo - the common part of strategies in which each rank updates its parameters by its own
 * gradients: async, decentralized, local_sgd and low_precision_decentralized.
 *
 * In such a strategy no gradients travel.  In each step only the control vector is summed, because
 * the ranks agree by it whether the step is applied, and what was requested.  A gradient that is
 * not finite on one rank must keep all ranks from applying the step.  So a rank whose gradients are
 * not finite counts itself in the control vector (CONTROL_NONFINITE).
 *
 * The update uses this rank's gradients as if they were those of the whole batch, so the rank's
 * loss is multiplied by the number of ranks.  If all ranks have equally many samples, the result is
 * the mean over the rank's own samples.  Otherwise the mean of all ranks' gradients still is the
 * gradient of the global batch.
 *
 * On a device all of this is queued.  There the control vector is summed on the bulk channel, like
 * a bucket, and kernels find gradients that are not finite.
 *
 * A strategy embeds struct solo as its first member.
 *
 * Threads: the engine's. */
#ifndef STRATEGY_SOLO_H
#define STRATEGY_SOLO_H

#include "op/control.h"
#include "program/sketch.h"
#include "strategy/strategy.h"

/* The promises of all strategies of this kind.  Replicas are equal where the ranks meet
 * (train/meet.h), and there one rank has all that a recovery needs. */
#define SOLO_PROMISES                                                              \
    {                                                                              \
        .replicas_are_equal = 1, .collectives_are_equal = 1, .updates_are_own = 1, \
        .recovery = STRATEGY_NEEDS_ONE_RANK                                        \
    }

/* Numbers in the backend's memory, which the programs of solo.c read and write. */
struct solo_words {
    _Alignas(16) double check[2];             /* of this rank's own gradients (op/grad_check.c) */
    _Alignas(16) double fine[2];              /* the check of gradients that are finite */
    _Alignas(16) float flag[1], one[1];       /* this rank's CONTROL_NONFINITE; the number 1 */
    _Alignas(16) float n_ranks[1];            /* of the formation */
    _Alignas(16) float zeros[CONTROL_LEN];    /* a control vector by which a step is applied */
    _Alignas(16) float standing[CONTROL_LEN]; /* zeros, except CONTROL_VOID (solo_add_keep) */
};

struct solo {
    struct strategy base; /* first */
    float *aside;         /* [n_trained]: a buffer for parameters that travel between ranks */
    struct solo_words *words;
    struct program *watch; /* checks the gradients, and writes words->flag */
    struct program **take; /* [n_buckets]: what add_take of solo_new appended for the bucket */
    void *arena;
};

/* Make a strategy whose own struct has `size` bytes and begins with a struct solo.  The rest is
 * zeroed.  add_take appends the nodes that change n parameters, from element `at` on, by the data
 * in `aside`; NULL: the strategy does not use solo_take.  Fails with ERR_NOMEM. */
int solo_new(const struct strategy_site *site, size_t size,
             void (*add_take)(struct sketch *s, const struct strategy *o, int64_t at, int64_t n),
             struct solo **out, struct err *err);
void solo_free(struct strategy *s);
int solo_form(struct strategy *s, int source, struct err *err);

/* The slots bucket_ready, before_update and loss_factor of struct strategy_ops.  The last bucket's
 * solo_bucket_ready starts the sum of the control vector, and solo_before_update waits for it. */
int solo_bucket_ready(struct strategy *s, int bucket, struct err *err);
int solo_before_update(struct strategy *s, struct err *err);
double solo_loss_factor(const struct strategy *s, int64_t step, double part);

/* The number of ranks of the formation. */
int solo_n_ranks(const struct strategy *s);

/* Copy the trained parameters to `aside`, and start the sum of these over all ranks, bucket by
 * bucket. */
int solo_sum_aside(struct strategy *s, struct err *err);

/* solo_sum_aside, and wait for it.  Then note whether the exchange is valid (solo_latch_standing).
 */
int solo_exchange(struct strategy *s, struct err *err);

/* ---- whether an exchange is valid ----
 *
 * On CPUs it always is: a collective that was stopped fails where it is waited for. */

/* Note whether the step is void, once the summed control vector shows that.  If it is, the exchange
 * is not valid. */
int solo_note_standing(struct strategy *s, struct err *err);

/* Behind collectives that were queued after the update: note whether the exchange is valid.  It is
 * not if the step is void, nor if collectives were stopped meanwhile, which is after the step's own
 * verdict. */
int solo_latch_standing(struct strategy *s, struct err *err);

/* Run the nodes that add_take appended, for all buckets. */
int solo_take(struct strategy *s, struct err *err);

/* The next four are for add_take.
 *
 * Append: kept [n] = next [n], both F32, if the exchange is valid. */
void solo_add_keep(struct sketch *s, const struct strategy *o, int64_t n, int next, float *kept);

/* solo_place_aside: place n elements of `aside`, from element `at` on.  solo_add_mean: the same,
 * and append their division by the number of ranks. */
int solo_place_aside(struct sketch *s, const struct strategy *o, int64_t at, int64_t n);
int solo_add_mean(struct sketch *s, const struct strategy *o, int64_t at, int64_t n);

/* Append: the parameters = their mean, if the exchange is valid.  On CPUs it always is where this
 * runs, as a collective that was stopped is an error.  So the mean goes to the parameters at once,
 * which saves a pass over them. */
void solo_add_take_mean(struct sketch *s, const struct strategy *o, int64_t at, int64_t n);

#endif
