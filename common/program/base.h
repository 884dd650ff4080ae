/* base - the frozen weights of a graph in fewer bits than float32: model.base.
 *
 * Packing turns each frozen weight and embedding (two dimensions or more) from a VALUE_PARAM into a
 * VALUE_BASE: BF16, or I8 codes with a second value for the scales of their blocks
 * (tensor/blocks.h).  A node that reads one gets a node before it that unpacks it (op/unpack.c), so
 * that one weight at a time is there in the nodes' type; an embedding unpacks the rows that it
 * reads.  Where the nodes' type is BF16, too, they read the base itself.  Vectors, such as biases
 * and the weights of norms, stay F32 parameters.
 *
 * Threads: as the graph. */
#ifndef PROGRAM_BASE_H
#define PROGRAM_BASE_H

#include "base/err.h"
#include "ir/graph.h"

/* The end of the name of a weight's scales. */
#define BASE_SCALES ".scales"

/* Pack the base of a graph, differentiated or for evaluation, before program_set_precision and
 * layout_new.
 *   form     BF16, I8, or F32: nothing is packed
 *   compute  program_set_precision's
 * Fails as graph_node does. */
int program_pack_base(struct graph *g, enum dtype form, enum dtype compute, struct err *err);

/* 1: the name is that of scales. */
int base_is_scales(const char *name);

#endif
