/* gather - which of the operator's inputs each of its outputs takes rows from (op/gather.c).
 * Shared with the kernels. */
#ifndef OP_GATHER_H
#define OP_GATHER_H

#include "op/op.h"

static inline int gather_table_of(int out)
{
    return out == GATHER_Y ? (int)GATHER_TABLE : GATHER_TABLE1 + (out - GATHER_Y1);
}

#endif
