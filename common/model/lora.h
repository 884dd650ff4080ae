/* lora - low-rank adapters (Hu et al. 2021, arXiv:2106.09685) beside the linear layers of any
 * network: y = x W^T + b becomes
 *
 *   y + scale * dropout(x) A^T B^T,  A [rank, in], B [out, rank]
 *
 * where scale is alpha / rank, or alpha / sqrt(rank) with `rslora` (Kalajdzievski 2023,
 * arXiv:2312.03732).  A layer NAME gets the parameters NAME.lora_A.weight, which begins as
 * U(-1/sqrt(in), 1/sqrt(in)), and NAME.lora_B.weight, which begins as 0, as in PEFT.  Every other
 * parameter is frozen.
 *
 * Layers that share a weight share its adapters.  Without `match` the layer that makes the logits
 * has none.
 *
 * Threads: as the graph. */
#ifndef MODEL_LORA_H
#define MODEL_LORA_H

#include "model/model.h"

/* The ends of the names of a layer's adapters. */
#define LORA_A ".lora_A.weight"
#define LORA_B ".lora_B.weight"

/* PEFT's names in adapter_model.safetensors begin so. */
#define LORA_PREFIX "base_model.model."

/* Add the adapters to a forward graph, before program_differentiate.  first_tag: the number of
 * dropouts that the graph has so far.  No effect without a rank.  Fails with ERR_CONFIG if a
 * pattern of `match` fits no linear layer, or if no layer is left: lists the layers. */
int lora_apply(const struct lora_options *o, int first_tag, struct graph *g, struct err *err);

/* The factor of the product of the adapters. */
double lora_scale(const struct lora_options *o);

/* 1: the name of an adapter's parameter. */
int lora_is_name(const char *name);
/* How long NAME is in "NAME.lora_A.weight"; 0 for any other name. */
size_t lora_layer_length(const char *name);

#endif
