/* lora - low-rank adapters (Hu et al. 2021, arXiv:2106.09685) beside the layers of any network:
 * y = x W^T + b becomes
 *
 *   y + scale * dropout(x) A^T B^T,  A [rank, in], B [out, rank]
 *
 * where scale is alpha / rank, or alpha / sqrt(rank) with `rslora` (Kalajdzievski 2023,
 * arXiv:2312.03732).  A layer NAME gets these parameters, as in PEFT:
 *
 *   linear       NAME.lora_A.weight [rank,in] begins as U(-1/sqrt(in), 1/sqrt(in)),
 *                NAME.lora_B.weight [out,rank] as 0
 *   convolution  the same, of shapes [rank,C,R,S] and [K,rank/groups,1,1]; in is C*R*S.  A has the
 *                layer's stride and padding, and one group
 *   embedding    NAME.lora_embedding_A [rank,V] begins as 0, NAME.lora_embedding_B [C,rank] as
 *                N(0,1); there is no dropout
 *
 * Every other parameter is frozen.  Layers that share a weight share its adapters.  Without `match`
 * linear layers alone have adapters, but for the one that makes the logits.
 *
 * Threads: as the graph. */
#ifndef MODEL_LORA_H
#define MODEL_LORA_H

#include "model/model.h"

/* The ends of the names of a layer's adapters. */
#define LORA_A           ".lora_A.weight"
#define LORA_B           ".lora_B.weight"
#define LORA_EMBEDDING_A ".lora_embedding_A"
#define LORA_EMBEDDING_B ".lora_embedding_B"

/* PEFT's names in adapter_model.safetensors begin so. */
#define LORA_PREFIX "base_model.model."

/* The parts of the graph that are there before the adapters. */
struct lora_place {
    int first_tag;  /* the number of dropouts so far */
    int first_node; /* those before it get no adapters: they compute the reference of model.loss dpo
                     */
    int logits;     /* of the network; its last layer makes them */
};

/* Add the adapters to a forward graph, before program_differentiate.  No effect without a rank.
 * Fails with ERR_CONFIG if a pattern of `match` fits no layer, or if no layer is left: lists the
 * layers. */
int lora_apply(const struct lora_options *o, const struct lora_place *at, struct graph *g,
               struct err *err);

/* The factor of the product of the adapters. */
double lora_scale(const struct lora_options *o);

/* 1: the name of an adapter's parameter. */
int lora_is_name(const char *name);
/* How long NAME is in "NAME.lora_A.weight" and "NAME.lora_embedding_A"; 0 for other names. */
size_t lora_layer_length(const char *name);

#endif
