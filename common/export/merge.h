/* merge - a trained network without its low-rank adapters: each layer's weight takes in the product
 * of its adapters, W + scale * B A (model/lora.h), summed in double and rounded once.
 *
 * Threads: one at a time. */
#ifndef EXPORT_MERGE_H
#define EXPORT_MERGE_H

#include "export/export.h"

/* The merged weights as the bytes of a safetensors file, for free(): r->weights without adapters.
 * Fails with ERR_CONFIG if the model has no adapters, or if a weight with adapters is also read in
 * another way, such as by an embedding. */
int merge_weights(const struct export_request *r, char **bytes, size_t *n_bytes, struct err *err);

/* Write them to the new file `path`. */
int export_merged(const struct export_request *r, const char *path, struct err *err);

#endif
