/* muon - the element-wise parts of Muon's update, which every backend compiles into its kernels
 * (op/muon.c).
 *
 * Threads: pure. */
#ifndef OP_MUON_H
#define OP_MUON_H

#include "op/update.h"

/* Bring the momentum of an element forward.  Returns u. */
OP_BOTH static inline float muon_forward(float momentum, int is_nesterov, float g, float *avg)
{
    const float fresh = 1.0f - momentum;

    *avg = *avg + fresh * (g - *avg);
    return is_nesterov ? *avg - fresh * (*avg - g) : *avg;
}

/* The terms of the move that all elements share: a matrix has one segment. */
struct muon_terms {
    float keep, step; /* 1 - rate * decay; rate * ratio */
};

OP_BOTH static inline struct muon_terms muon_terms(double ratio, float rate, const double *segment)
{
    const double own = (double)(rate * (float)segment[SEGMENT_RATE]);
    struct muon_terms m;

    m.keep = (float)(1 - own * segment[SEGMENT_DECAY]);
    m.step = (float)(own * ratio);
    return m;
}

#endif
