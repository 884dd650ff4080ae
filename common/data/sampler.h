/* sampler - which sample is trained at which step, and by which rank: pure functions, no memory, no
 * state.
 *
 * Definition, which everything else follows.  With N samples and global batch B:
 *   - Global steps count from 0, epochs from 1; an epoch has S = ceil(N/B) steps (drop_last:
 *     floor), so step g is step s = g % S of epoch e = g / S + 1.
 *   - Position p of step s of epoch e, 0 <= p < n, holds sample perm_e(s*B + p), where perm_e is a
 *     permutation of [0,N) keyed by (seed, e), or with in_order the identity, and
 *     n = min(B, N - s*B): less than B only in the last step.
 *   - Rank r of R takes the r-th of R contiguous parts of [0,n), micro-batch m of its k the m-th of
 *     k contiguous parts of that.  Parts differ by at most one sample, the first ones being larger,
 *     and may be empty.  Micro-batches that would be empty on all ranks do not exist.
 *   - With `bound`, ranks' parts of a full global batch are given instead: rank r takes the
 *     positions from bound[r] up to bound[r + 1]; of n < B positions from bound[r] * n / B up to
 *     bound[r + 1] * n / B, rounded down.
 *   - With fixed shares, [0,n) is cut into that many contiguous parts, and each of these into its k
 *     micro-batches, whatever the number of ranks.  Rank r takes the r-th of R contiguous parts of
 *     the shares, so it may have more micro-batches than another rank.  All of them exist, because
 *     their number fixes the order of sums (strategy/tree.h).
 * So which samples a step trains never depends on the number of ranks, and each sample is trained
 * exactly once an epoch (less the tail, with drop_last).
 *
 * Validation has no permutation: rank r takes the r-th of R contiguous parts of [0,N), in order;
 * with fixed shares, of the batches that [0,N) is cut into.
 *
 * Threads: any. */
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include <stdint.h>

#include "base/err.h"

/* ---- a keyed permutation of [0,n), in O(1) memory ---- */

enum { PERM_ROUNDS = 16 };

struct perm {
    int64_t n;                 /* 1 .. 2^62 */
    int left_bits, right_bits; /* the domain, 2^(left+right), holds n */
    uint64_t key[PERM_ROUNDS];
};

void perm_init(struct perm *p, int64_t n, uint64_t seed, int64_t epoch);
int64_t perm_at(const struct perm *p, int64_t i);        /* where position i goes */
int64_t perm_find(const struct perm *p, int64_t sample); /* its inverse */

/* ---- contiguous parts ---- */

struct span {
    int64_t first, n;
};

/* The `part`-th of `n_parts` contiguous parts of `whole`.  Sizes differ by at most one, and larger
 * parts come first. */
struct span span_part(struct span whole, int64_t n_parts, int64_t part);

/* The i-th piece of `size` of `whole`; the last is shorter; past the end n is 0. */
struct span span_piece(struct span whole, int64_t size, int64_t i);

/* As span_part, but every part consists of whole pieces of `size`, but for the last piece of
 * `whole`, which may be shorter. */
struct span span_part_of_pieces(struct span whole, int64_t size, int64_t n_parts, int64_t part);

/* ---- the plan of the epochs ---- */

struct sampler {
    int64_t n_samples;
    int64_t global_batch;
    uint64_t seed;
    int drop_last;        /* leave out the partial last step of an epoch */
    int in_order;         /* each epoch takes the samples by their numbers; no permutation */
    int n_shares;         /* fixed shares of each global batch; 0: one for each rank */
    const int64_t *bound; /* [n_ranks + 1], from 0 to B, never falling; NULL: equal parts.  Not with
                             n_shares.  Borrowed */
};

struct sampler_step {
    int64_t step;     /* global, from 0 */
    int64_t epoch;    /* from 1 */
    int64_t in_epoch; /* step of the epoch, from 0 */
    int64_t n;        /* samples of this step over all ranks: the global batch, or what is left */
    int64_t full;     /* the sampler's global batch, as are the next two */
    int n_shares;
    const int64_t *bound;
};

/* Refuse (ERR_ARG) a sampler that leaves no step: no samples, a global batch below 1, drop_last
 * with more than N.  The functions below assert it. */
int sampler_check(const struct sampler *s, struct err *err);

int64_t sampler_steps_per_epoch(const struct sampler *s);
struct sampler_step sampler_at(const struct sampler *s, int64_t global_step);

/* The number of micro-batches of this rank in the step, at least 1.  It is the same on all ranks,
 * and at most `accumulate`; with fixed shares it is `accumulate` for each of the rank's shares. */
int sampler_n_micros(const struct sampler_step *at, int n_ranks, int rank, int accumulate);

/* The positions [first,first+n) within the global batch of this rank's micro-batch `micro`, of
 * sampler_n_micros. */
struct span sampler_micro(const struct sampler_step *at, int n_ranks, int rank, int accumulate,
                          int micro);

/* The most samples that any micro-batch of any rank has, which buffers must hold. */
int64_t sampler_largest_micro(const struct sampler *s, int n_ranks, int accumulate);

/* Write the samples at these positions of the step to index[positions.n]. */
void sampler_list(const struct sampler *s, const struct sampler_step *at, struct span positions,
                  int64_t *index);

#endif
