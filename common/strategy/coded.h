/* coded - sums of what ranks hand over as codes of few bits: the machine of strategy bytegrad, for
 * others that send something else in the same way.
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
    int feeds_back; /* 1: what a code lost is added to the next step's numbers, in slot 0 */
    int averages;   /* 1: the mean over the ranks instead of the sum */
};

int coded_new(const struct strategy_site *site, const struct coded_options *o,
              struct strategy **out);
void coded_free(struct strategy *s);

/* These may stand in a strategy's table, of a strategy that coded_new made.  One rank alone keeps
 * its numbers as they are. */
int coded_form(struct strategy *s, int source, struct err *err);
int coded_encode(struct strategy *s, int bucket, struct err *err);
int coded_decode(struct strategy *s, struct err *err);

#endif
