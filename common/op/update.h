/* update - the rules that all optimizers' operators share, on every backend (op/update.c).
 *
 * One node updates the whole flat space of trained parameters.  Settings that differ between
 * parameters stand in a table of ranges, `segments`.  Neighbours with equal settings are one row,
 * except for an optimizer that treats whole tensors (optim/optimizer.h): there each parameter is a
 * row.
 *
 * Threads: pure. */
#ifndef OP_UPDATE_H
#define OP_UPDATE_H

#include <math.h>

#include "ir/graph.h" /* struct step_scalars */
#include "op/control.h"
#include "op/scaler.h"

/* The columns of `segments`, F64 [rows, SEGMENT_COLUMNS].  A row holds the settings of the elements
 * from the end of the row before up to its own end.  The last row ends at n. */
enum {
    SEGMENT_END,   /* number of the first element after the range */
    SEGMENT_RATE,  /* factor on the step's learning rate */
    SEGMENT_DECAY, /* weight decay */
    SEGMENT_SHIFT, /* where the node's element 0 is in the space of parameters; < 0: padding */
    SEGMENT_COLUMNS
};

/* `kept`, I64 [2]: the parameters that kept their value because the new one was not finite.  The
 * lowest of them, counted in the space of all parameters, is KEPT_LIMIT - kept[KEPT_LOWEST], so
 * that zeroes say that there is none.  Padding is not counted. */
enum { KEPT_LOWEST, KEPT_COUNT, KEPT_LEN };
#define KEPT_LIMIT ((int64_t)1 << 47)

/* The row that element i belongs to. */
OP_BOTH static inline int64_t update_row(const double *segments, int64_t n_rows, int64_t i)
{
    int64_t low = 0, high = n_rows - 1;

    while (low < high) {
        const int64_t middle = (low + high) / 2;

        if (i < (int64_t)segments[middle * SEGMENT_COLUMNS + SEGMENT_END])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The mark of element i for kept[KEPT_LOWEST]; 0: it is padding. */
OP_BOTH static inline int64_t update_mark(const double *segments, int64_t n_rows, int64_t i)
{
    const int64_t row = update_row(segments, n_rows, i);
    const int64_t shift = (int64_t)segments[row * SEGMENT_COLUMNS + SEGMENT_SHIFT];

    return shift < 0 ? 0 : KEPT_LIMIT - (shift + i);
}

/* Sums over single tensors run in blocks of UPDATE_BLOCK elements, counted from the first element
 * of the tensor's row, so that only the table decides their order.  Block k of a row has the number
 * row + first element / UPDATE_BLOCK + k; between the rows some numbers stand for no block. */
enum { UPDATE_BLOCK = 4096 };

struct update_block {
    int64_t row, from, to; /* elements [from, to) of that row; from >= to: there is no such block */
};

/* All numbers of blocks are below this. */
OP_BOTH static inline int64_t update_blocks(int64_t n, int64_t n_rows)
{
    return n_rows + n / UPDATE_BLOCK;
}

OP_BOTH static inline int64_t update_row_start(const double *segments, int64_t row)
{
    return row ? (int64_t)segments[(row - 1) * SEGMENT_COLUMNS + SEGMENT_END] : 0;
}

OP_BOTH static inline int64_t update_first_block(const double *segments, int64_t row)
{
    return row + update_row_start(segments, row) / UPDATE_BLOCK;
}

OP_BOTH static inline struct update_block update_block_at(const double *segments, int64_t n_rows,
                                                          int64_t number)
{
    struct update_block b;
    int64_t low = 0, high = n_rows - 1, end;

    while (low < high) { /* the last row that begins with this block or an earlier one */
        const int64_t middle = (low + high + 1) / 2;

        if (update_first_block(segments, middle) <= number)
            low = middle;
        else
            high = middle - 1;
    }
    end = (int64_t)segments[low * SEGMENT_COLUMNS + SEGMENT_END];
    b.row = low;
    b.from = update_row_start(segments, low) +
             (number - update_first_block(segments, low)) * UPDATE_BLOCK;
    b.to = b.from + UPDATE_BLOCK < end ? b.from + UPDATE_BLOCK : end;
    return b;
}

/* The factor by which the gradient is too large.  The loss divided it by all targets of the step,
 * and the control vector knows what those that were not ignored weigh; scaler is NULL without loss
 * scaling.  The factor is exactly 1 without all of these.  With a weight of 0 the gradient is 0
 * whatever the factor. */
OP_BOTH static inline float update_scale(const float *control, const struct step_scalars *s,
                                         const float *scaler)
{
    const double seen = control_weight(control), all = (double)s->n_targets;
    const float scale = scaler ? scaler[SCALER_SCALE] : 1.0f;

    return seen > 0 && seen != all ? (float)((double)scale * (seen / all)) : scale;
}

/* The factor that brings the gradient's norm down to clip_norm; 1 without clipping or with a
 * smaller norm. */
OP_BOTH static inline float update_clip(const double *check, const float *control,
                                        const struct step_scalars *s, const float *scaler)
{
    const double norm = sqrt(check[0]) / (double)update_scale(control, s, scaler);

    return s->clip_norm > 0.0f ? (float)fmin(1.0, (double)s->clip_norm / (norm + 1e-6)) : 1.0f;
}

/* base^n by products alone, in a fixed order, because the last digits of pow() differ from library
 * to library. */
OP_BOTH static inline double update_power(double base, int64_t n)
{
    double power = 1.0;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            power *= base;
        base *= base;
    }
    return power;
}

/* Check the operand `kept`, which may be absent. */
int op_want_kept(const struct graph *g, const struct node *n, int i, struct err *err);

/* The infer of every optimizer's operator: each slot must have as many elements as the parameters,
 * and each output describes the input that it updates. */
int op_update_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                    struct err *err);

#endif
