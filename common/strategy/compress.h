/* compress - methods of summing gradients that send fewer bytes than the plain all-reduce.
 *
 * Strategy allreduce chooses among these methods by its key `compress`.  uint8 is an entry of the
 * registry, too (bytegrad).  This header also has the parts that the methods share.
 * All of them want buckets of F32.  The control vector at the end of the last bucket is always
 * summed apart and exactly, because the ranks agree on a step by it (op/control.h).
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

enum { COMPRESS_MAX_RANK = 8 }; /* the most columns of powersgd's matrices */

enum compress { COMPRESS_LIST(WORD_VALUE) };

/* The keys of strategy allreduce that are about compression. */
struct compress_options {
    enum compress kind;
    double predivide; /* strategy.gradient_predivide_factor, > 0; float16 and bfloat16 only */
    int64_t rank;     /* columns of powersgd's matrices; not the number of a rank */
};

/* The method that the options ask for, or NULL for COMPRESS_NONE. */
const struct strategy_ops *compress_choose(const struct compress_options *o);

extern const struct strategy_ops compress_float16, compress_bfloat16, compress_onebit,
    compress_powersgd;

/* A strategy slot of error feedback: the part of this rank's gradients that compression lost, which
 * is added to the gradients of the next step.  Each rank has its own values. */
extern const struct slot_def compress_error;

/* Promises of a method by which all ranks get the same bytes through the same collectives.  The
 * result is not linear in the gradients: it is not the sum of the ranks' numbers up to rounding. */
#define COMPRESS_PROMISES                                                                        \
    {                                                                                            \
        .replicas_are_equal = 1, .collectives_are_equal = 1, .recovery = STRATEGY_NEEDS_ONE_RANK \
    }

/* If `bucket` is the last one, start the sum of the control vector over all ranks; else do nothing.
 * The sum belongs to that bucket, so exchange_wait of the bucket waits for it. */
int compress_sum_control(struct strategy *s, int bucket, struct err *err);

/* Set the padding between the gradients in `bucket` to zero.  A codec may have written other
 * numbers there, and padding must always be zero (program/layout.h). */
int compress_zero_padding(struct strategy *s, int bucket, struct err *err);

/* backend_alloc of n_bytes, zeroed.  `what` names the memory in an error message. */
int compress_zeroed(struct backend *b, size_t n_bytes, const char *what, void **out,
                    struct err *err);

/* Append to `s` a node that copies next [n] to kept [n], both F32, if the step is applied, and does
 * nothing otherwise.  The sketch is to be run in after_update, when at->check is known. */
void compress_add_commit(struct sketch *s, const struct strategy_site *at, int64_t n, void *next,
                         void *kept);

#endif
