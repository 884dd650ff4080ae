/* coll/relay - the all-to-all of small parts among many ranks, which hand parts on for each other.
 * coll/mesh.c calls it.
 *
 * The ranks stand in a ring, those of a host one behind another, so most of the ways below stay
 * within a host.  This has no influence on sums, which are made elsewhere.
 *
 * Each rank has links with the ranks at the distances 1, 2, 4 ... in both directions.  In the round
 * of distance d it hands on, to the rank that is d further, all parts whose way has d in it: a part
 * for the rank that is 5 further goes 1 and then 4.  So a rank sends log2(size) messages instead of
 * size - 1, and has about 2 log2(size) links.  The parts travel log2(size)/2 times as many bytes,
 * which is why only small ones go this way.  All travel in slots as long as the longest part, so no
 * rank needs to know the lengths of others' parts.  (Bruck and others, "Efficient algorithms for
 * all-to-all communications in multiport message-passing systems", 1997.)
 *
 * Threads: as coll/mesh.h.
 * Errors:  as coll/mesh.h. */
#ifndef COLL_RELAY_H
#define COLL_RELAY_H

#include "coll/mesh.h"

enum { RELAY_MAX = 1 << 20 }; /* bytes of m->land that it needs */

/* 1: the parts are small enough for this way. */
int relay_is_small(int size, size_t most_bytes);

/* An all-to-all with job->most_bytes above 0, for which relay_is_small says 1. */
int relay_all_to_all(struct mesh *m, const struct coll_job *job, struct err *err);

#endif
