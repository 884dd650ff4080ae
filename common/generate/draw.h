/* draw - chooses the next token by its logits.
 *
 * As transformers' generate does: the logits are divided by the temperature, then the top_k largest
 * ones stay, then the fewest whose probabilities add up to top_p; the token is drawn from those.
 * A draw depends on the seed and on its own number alone (Philox).
 *
 * Life:    draw_new -> draw_next ... -> draw_free.
 * Threads: one at a time. */
#ifndef GENERATE_DRAW_H
#define GENERATE_DRAW_H

#include <stdint.h>

struct draw_rule {
    double temperature; /* 0: the most likely token, and nothing is drawn */
    int64_t top_k;      /* 0: all */
    double top_p;       /* (0, 1]; 1: all */
    uint64_t seed;
};

struct draw; /* opaque */

struct draw *draw_new(const struct draw_rule *rule, int64_t vocab);
void draw_free(struct draw *d); /* NULL is fine */

/* The next token, by logits [vocab]; of equal ones the one with the lowest number comes first.  -1:
 * some are no numbers, or the largest is infinite, so there are no probabilities. */
int32_t draw_next(struct draw *d, const float *logits);

#endif
