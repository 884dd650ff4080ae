/* kinds - which ranks compute the same bits: those whose processors are of one kind.
 *
 * oneDNN and our own kernels choose their code by the processor, and their sums then run in another
 * order.  Machines with x86-64 and arm64 always differ.  A run with strategy.shards promises the
 * same bits for any number of ranks, which holds among processors of one kind: so a formation tells
 * of ranks whose processor is another one than rank 0's.
 *
 * Threads: the engine's. */
#ifndef TRAIN_KINDS_H
#define TRAIN_KINDS_H

#include "base/err.h"
#include "base/hash.h"

struct trainer;

/* A hash of all on which the bits of this rank's gradients depend: its processor, the instruction
 * set that oneDNN may use of it, and the number of its threads.  A rank that cannot read what its
 * processor is counts as unlike all others. */
struct hash128 kinds_hash(const struct trainer *t);

/* A formation begins, and its ranks are connected.  With strategy.shards on CPUs the ranks tell
 * each other their processors, and rank 0 warns if they are not of one kind. */
int kinds_form(struct trainer *t, struct err *err);

#endif
