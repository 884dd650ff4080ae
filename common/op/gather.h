/* gather - the table from which each output of the operator gather takes its rows (op/gather.c).
 * The kernels include this, too.
 *
 * Threads: pure. */
#ifndef OP_GATHER_H
#define OP_GATHER_H

#include "op/op.h"

/* The number of the input that is output `out`'s table. */
static inline int gather_table_of(int out)
{
    return out == GATHER_Y ? (int)GATHER_TABLE : GATHER_TABLE1 + (out - GATHER_Y1);
}

#endif
