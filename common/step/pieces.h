/* pieces - where the trained parameters are cut for an optimizer that updates matrices by an
 * operator of their own (muon).  Each such matrix is a piece, and so is each run of other
 * parameters between two of them.  Trained parameters stand before the frozen ones.
 *
 * Threads: pure. */
#ifndef STEP_PIECES_H
#define STEP_PIECES_H

#include "job/job.h"
#include "program/layout.h"

/* 1: the optimizer updates this parameter as a matrix. */
int pieces_is_matrix(const struct job *job, const struct segment *s);

/* The number of parameters in the piece that begins with the i-th. */
int pieces_params(const struct job *job, const struct layout *l, int i);

/* The number of pieces; 0: the optimizer knows no matrices. */
int pieces_count(const struct job *job, const struct layout *l);

#endif
