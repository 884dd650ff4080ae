/* digest - one 64-bit hash of the state that does not depend on how the state is divided.
 *
 * Two states have the same digest if step, number of updates, and the values of all hashed slots
 * are the same (but for the loop's decisions, state/loop.h, which validations change), whatever the
 * number of ranks, the level of strategy.zero, and the order in memory. So it is fit for comparing
 * runs (hashes.csv).  It finds accidents, not attackers: a change of any one number is found for
 * certain, others with a chance of 1 in 2^64 of being missed.
 *
 *   tensor   the sum over its words w of weight(name, place of w) * w, modulo 2^64
 *   state    XXH3 of step, updates, and the sum over all tensors
 *
 * Sums may be split at any word, so that each rank adds up the shards that it holds.  state_hash
 * cannot be split; it tells which tensor differs.
 *
 * Threads: the engine's. */
#ifndef STATE_DIGEST_H
#define STATE_DIGEST_H

#include "state/state.h"

/* *out, on every rank.  If slots are divided, all ranks call this together, else it uses no
 * collective, and `c` may be NULL. */
int state_digest(const struct state *s, struct coll *c, uint64_t *out, struct err *err);

#endif
