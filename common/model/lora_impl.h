/* lora_impl - what lora.c and lora_append.c share: the kinds of layers that have adapters.
 *
 * Threads: as the graph. */
#ifndef MODEL_LORA_IMPL_H
#define MODEL_LORA_IMPL_H

#include "model/lora.h"

/* The node that computes the layer tells its kind. */
enum lora_kind { LORA_OF_NONE, LORA_OF_LINEAR, LORA_OF_CONVOLUTION, LORA_OF_EMBEDDING };

struct lora { /* one call of lora_apply */
    const struct lora_options *o;
    struct graph *g;
    struct err *err;
    struct node *node; /* [n_nodes] as they were */
    int n_nodes;
    int *now;       /* [values before the call] what stands for each */
    int tag;        /* of the next dropout */
    int first_node; /* that may have adapters */
    int head;       /* the node that makes the logits; -1: none is linear */
};

/* Append the adapters' nodes behind the layer that node n computes, as it was: its input is now x
 * (an embedding's: the tokens), and its output y.  Returns the sum; NO_VALUE: *l->err says why
 * not. */
int lora_append(struct lora *l, enum lora_kind kind, const struct node *n, const char *layer, int x,
                int y);

#endif
