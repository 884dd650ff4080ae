/* inspect - finds wrong bits: the ranks compare what has to be equal on all of them.
 *
 * A bit that flips in memory, or a processor that computes wrongly, makes no error.  So in a part
 * of the steps the ranks compare hashes.  Seed and step decide which steps these are, so all ranks
 * agree on them without a message.  All ranks see the same hashes and reach the same verdict; rank
 * 0 reports it (REPORT_CORRUPTION).
 *
 * Replicas (train.replica_check): after the update each rank hashes the same part of its state. The
 * state of most ranks is right.  With cluster.on_divergence heal the others take it, at once and in
 * place; else training ends.
 *
 * Threads: the engine's. */
#ifndef TRAIN_INSPECT_H
#define TRAIN_INSPECT_H

#include "base/err.h"
#include "base/hash.h"

struct trainer;

/* The memory that a trainer keeps for its comparisons. */
struct inspect {
    struct hash128 *all; /* [n_ranks]; NULL until the first formation */
};

/* A formation begins. */
void inspect_form(struct trainer *t);
void inspect_free(struct inspect *a);

/* 1: the replicas are compared once `step` steps are done.  Pure, and the same on all ranks. */
int inspect_compares_after(const struct trainer *t, int64_t step);

/* Between two steps: compare the replicas if that is due.  Fails with ERR_CANCELED if they differ
 * and cannot be mended; the driver learns why from rank 0's report. */
int inspect_replicas(struct trainer *t, struct err *err);

/* An epoch has ended: with cluster.on_divergence heal compare the whole state.  Without it the
 * driver does that. */
int inspect_epoch_end(struct trainer *t, struct err *err);

#endif
