/* compress - the ways of summing gradients that send less than the plain all-reduce.
 *
 * Strategy allreduce chooses among them by its key `compress`; some are entries of their own, too.
 * Buckets are of F32; the control vector at the end of the last one is always summed apart and
 * exactly, since ranks agree on a step by it.
 *
 * Threads: the engine's. */
#ifndef STRATEGY_COMPRESS_H
#define STRATEGY_COMPRESS_H

#include "config/words.h"
#include "program/sketch.h"
#include "strategy/strategy.h"

/* The words of strategy.compress. */
#define COMPRESS_LIST(X)             \
    X(COMPRESS_NONE, "none")         \
    X(COMPRESS_FLOAT16, "float16")   \
    X(COMPRESS_BFLOAT16, "bfloat16") \
    X(COMPRESS_UINT8, "uint8")       \
    X(COMPRESS_POWERSGD, "powersgd") \
    X(COMPRESS_ONEBIT, "onebit")

enum { COMPRESS_MAX_RANK = 8 }; /* columns of powersgd */

enum compress { COMPRESS_LIST(WORD_VALUE) };

/* The keys of strategy allreduce that are about this. */
struct compress_options {
    enum compress kind;
    double predivide; /* > 0 */
    int64_t rank;     /* of powersgd: columns */
};

/* The way of working that the options ask for; COMPRESS_NONE: NULL. */
const struct strategy_ops *compress_choose(const struct compress_options *o);

extern const struct strategy_ops compress_float16, compress_bfloat16, compress_onebit,
    compress_powersgd;

/* The part of this rank's gradients that compression lost; it is added to the next ones. */
extern const struct slot_def compress_error;

/* All ranks take one and the same sum, by the same collectives.  It is not linear. */
#define COMPRESS_PROMISES                                                                        \
    {                                                                                            \
        .replicas_are_equal = 1, .collectives_are_equal = 1, .recovery = STRATEGY_NEEDS_ONE_RANK \
    }

/* If `bucket` is the last one, start the sum of the control vector; exchange_wait of that bucket
 * waits for it, too. */
int compress_sum_control(struct strategy *s, int bucket, struct err *err);

/* Set the gradients' padding in `bucket`, which must be zero, to zero. */
int compress_zero_padding(struct strategy *s, int bucket, struct err *err);

/* backend_alloc, zeroed. */
int compress_zeroed(struct backend *b, size_t n_bytes, const char *what, void **out,
                    struct err *err);

/* Append: kept [n] = next [n], both F32, if the step is applied.  For after_update. */
void compress_add_commit(struct sketch *s, const struct strategy_site *at, int64_t n, void *next,
                         void *kept);

#endif
