/* coded - sums over all ranks of numbers that travel as codes of few bits.
 *
 * This is the implementation of strategy bytegrad (bytegrad.c).  allreduce with compress onebit and
 * strategy qadam use it, too, with another codec or other numbers.
 *
 * Life:    coded_new -> coded_form -> { coded_encode of each bucket -> coded_decode } ...
 *          -> coded_free.
 * Threads: the engine's. */
#ifndef STRATEGY_CODED_H
#define STRATEGY_CODED_H

#include "op/codec.h"
#include "strategy/strategy.h"

struct coded_options {
    enum codec kind;
    int feeds_back; /* 1: error feedback: the strategy's slot 0 keeps the rounding error of this
                     * rank's codes, which is added to the numbers of the next step */
    int averages;   /* 1: the mean over the ranks instead of the sum */
};

int coded_new(const struct strategy_site *site, const struct coded_options *o,
              struct strategy **out);
void coded_free(struct strategy *s);

/* The slots form, bucket_ready and before_update of struct strategy_ops, for a strategy that
 * coded_new made.  One rank alone sends nothing and keeps its numbers as they are. */
int coded_form(struct strategy *s, int source, struct err *err);
int coded_encode(struct strategy *s, int bucket, struct err *err);
int coded_decode(struct strategy *s, struct err *err);

#endif
