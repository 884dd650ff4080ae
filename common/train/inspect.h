/* inspect - finds wrong bits: the ranks compare what has to be equal on all of them.
 *
 * A bit that flips in memory, or a processor that computes wrongly, makes no error.  So in a part
 * of the steps the ranks compare hashes.  Seed and step decide which steps these are, so all ranks
 * agree on them without a message.  All ranks see the same hashes and reach the same verdict; rank
 * 0 reports it (REPORT_CORRUPTION).
 *
 * Replicas (train.replica_check): after the update each rank hashes the same part of its state. The
 * state of most ranks is right.  With cluster.on_divergence heal the others take it, at once and in
 * place; else training ends.  The control vector of the step is compared with it, as its sums are
 * state, too.  That part of the state is also hashed before the step, and so are the combined
 * gradients.  If these and the control vector were equal on all ranks, the update is what went
 * wrong, or a bit flipped since then: the finding says "update", and "state" otherwise.  With
 * strategy.zero each rank has other sums, and state that is whole has to be equal whatever they
 * are: so they are not compared for it.
 *
 * Divided state (strategy.zero): what is whole on each rank is compared in the same way, and each
 * shard with the copy of the buddy: the slots of one bucket, and the sums that the step's update
 * read.  Of these two nobody knows which is right, so both ranks are named.  A difference ends
 * training.
 *
 * Recoveries (train.audit): when ranks form again, those that hold the newest step compare the
 * whole of it before the others take it from one of them, so a bit that flipped since the last
 * comparison is not spread.  A difference is judged like one of replicas.  Hashing a large state
 * takes longer than the rest of forming, so other jobs go without.
 *
 * Gradients and samples (train.audit): step/witness.h computes, compares and votes.  This module
 * decides which steps these are, and which ranks give the same bits.
 *
 * Threads: the engine's. */
#ifndef TRAIN_INSPECT_H
#define TRAIN_INSPECT_H

#include "base/err.h"
#include "base/hash.h"

struct report;
struct trainer;
struct jury_finding;

/* The memory that a trainer keeps for its comparisons. */
struct inspect {
    struct hash128 *all; /* [n_ranks]; NULL until the first formation */
    /* A hash of the part of the state that is compared after step `before_of`, from before that
     * step; before_of 0: there is none. */
    struct hash128 before;
    int64_t before_of;
    int is_wrong; /* 1: this rank was told of, and has yet to take the state of most ranks */
};

/* A formation begins, and its ranks are connected.  Warns if train.audit has no effect. */
int inspect_form(struct trainer *t, struct err *err);
void inspect_free(struct inspect *a);

/* Ranks form again, and are to take the state of rank *source: with train.audit those that hold its
 * step compare theirs.  *source: a rank that holds what most of them hold.
 * Fails with ERR_CANCELED like inspect_replicas. */
int inspect_source(struct trainer *t, int *source, struct err *err);

/* The state of rank `source` was taken, or rc < 0: that broke off.  Returns rc; but a rank that is
 * known to be wrong, and still is, fails with ERR_DEVICE, as it might be the next source. */
int inspect_took(struct trainer *t, int rc, int source, struct err *err);

/* 1: the replicas are compared once `step` steps are done.  Pure, and the same on all ranks. */
int inspect_compares_after(const struct trainer *t, int64_t step);

/* The reason why gradients cannot be audited with these ranks, as the end of a sentence; NULL: they
 * can. */
const char *inspect_obstacle(const struct trainer *t);

/* 1: gradients of the step are audited.  Pure, and the same on all ranks. */
int inspect_looks_at(const struct trainer *t, int64_t step);

/* An audited step found wrong bits: rank 0 reports it. */
void inspect_found(struct trainer *t, const struct jury_finding *f);

/* A step is about to begin: if the replicas are compared after it, hash what they hold before. */
int inspect_before_step(struct trainer *t, struct err *err);

/* Between two steps: compare the replicas if that is due.  Fails with ERR_CANCELED if they differ
 * and cannot be mended; the driver learns why from rank 0's report. */
int inspect_replicas(struct trainer *t, struct err *err);

/* An epoch has ended: hash the whole state to r->epoch.tensor and replica, if the replicas are
 * equal then, and with cluster.on_divergence heal compare it.  Without it the driver does that. */
int inspect_epoch_end(struct trainer *t, struct report *r, struct err *err);

#endif
