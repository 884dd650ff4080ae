/* lower - builds our graph from a foreign network (import/network.h), for one batch size and one
 * mode.
 *
 * Each operator of the exporter has a builder (builders_*.c).  A builder reads the lowered
 * values of its inputs and appends nodes of ours.  A lowered value is a graph value with a layout,
 * a constant on the host, or one integer.  Its dimensions are PyTorch's; the graph value may hold
 * them in another order (images lie as [N,H,W,C]), and may hold an extent of 1 where the value
 * repeats elements.
 *
 * Batch: dimension 0 of every input is the batch.  Each extent says whether the batch is a factor
 * of it, and this goes from value to value, so that a size in the file which was the batch at
 * export becomes the batch of the graph.  Batch 0 is legal.
 *
 * Mode: m->g->training decides, not the file: in evaluation dropout does nothing, and batch norm
 * takes its running statistics.
 *
 * Names: parameters and running statistics have those of the file's state dict, tied tensors that
 * of the first one.  All parameters of the file become parameters of the graph, the unused ones,
 * too.  Buffers of the state dict that no batch norm updates, such as num_batches_tracked, do not:
 * import_kept says which.
 *
 * Threads: as the graph. */
#ifndef IMPORT_LOWER_H
#define IMPORT_LOWER_H

#include "import/network.h"
#include "model/layer.h"

struct buf;

/* The job's choices about a network. */
struct import_choices {
    /* The graph value that each of the network's inputs is, in their order; NO_VALUE: none, and
     * then no node may read it.  A graph value of an image may be [N,H,W,C] where the network has
     * [N,C,H,W]; if both fit it is [N,H,W,C]. */
    const int *input;
    /* < 0: dropout drops with the probability of the file.  Else all do with this one: dropout,
     * stochastic depth and dropout of attention. */
    double dropout;
    /* Names of parameters that are not trained, besides those of which the file says so; or NULL.
     */
    int (*is_frozen)(const void *of, const char *name);
    const void *of;
};

/* Append the network to m->g.  outputs[n->n_outputs] get the graph values of its outputs, in
 * PyTorch's order of dimensions; NO_VALUE: the output is no tensor.  Fails with ERR_CONFIG or
 * ERR_UNSUPPORTED, in *m->err: names the node, its module, and the values seen and wanted. */
int import_lower(struct net *m, const struct import_network *n, const struct import_choices *c,
                 int *outputs);

/* Append a line for each operator without a builder: its name, how many nodes have it, and the
 * module of the first.  Returns the number of such operators. */
int import_check(const struct import_network *n, struct buf *missing);

/* For each tensor of the network, 1 if it is part of its state dict, but neither a parameter nor a
 * state of the graph, nor tied to an earlier tensor: a checkpoint carries it as it is, but for
 * num_batches_tracked, which counts steps.  To be freed. */
char *import_kept(const struct import_network *n);

/* Our type for that of an imported tensor. */
enum dtype import_dtype(enum import_type t);

/* Freeze the parameters on which none of these values depends, NO_VALUE among them is fine:
 * PyTorch gives them no gradient.  import_lower does it for all outputs; a job whose loss takes
 * some of them does it again. */
void import_freeze_unused(struct graph *g, const int *values, int n);

/* Compare the graphs of two batch sizes, neither of them 0, made of the same network: they must
 * have the same nodes, and differ in nothing but sizes that are proportional to the batch.  Fails
 * with ERR_UNSUPPORTED, which names the node. */
int import_same_but_batch(const struct graph *a, const struct graph *b, struct err *err);

#endif
