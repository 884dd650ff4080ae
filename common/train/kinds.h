/* kinds - which ranks compute the same bits: those whose processors and libraries are of one kind.
 *
 * oneDNN and our own kernels choose their code by the processor (base/processor.h), and their sums
 * then run in another order.  Machines with x86-64 and arm64 always differ.  Another version of
 * oneDNN has other code, and one of glibc another e^x.  A run with strategy.shards promises the
 * same bits for any number of ranks, which holds among ranks of one kind: so a formation tells of
 * those that are of another one than rank 0.
 *
 * Threads: the engine's. */
#ifndef TRAIN_KINDS_H
#define TRAIN_KINDS_H

#include "base/err.h"
#include "base/hash.h"

struct trainer;

struct kind {            /* each rank sends this to all others */
    struct hash128 hash; /* equal for ranks of one kind */
    char text[160];      /* the same in words; ends with a zero */
};

/* All on which the bits of this rank's gradients depend: its processor, the instruction set that
 * oneDNN may use of it, libraries, and n_threads, which is 0 where their number does not count.  A
 * rank that cannot read what its processor is counts as unlike all others. */
struct kind kinds_mine(const struct trainer *t, int n_threads);

/* The words of a rank, which may have sent anything; written to. */
const char *kinds_text(struct kind *k);

/* A formation begins, and its ranks are connected.  With strategy.shards on CPUs the ranks tell
 * each other their kinds, and rank 0 warns if these differ. */
int kinds_form(struct trainer *t, struct err *err);

#endif
