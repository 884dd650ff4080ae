/* layers - the options of a network that the job file lists layer by layer.
 *
 * Threads: pure. */
#ifndef MODEL_LAYERS_H
#define MODEL_LAYERS_H

#include "model/model.h"

struct layers_options {
    const char *layers; /* the list, in YAML's flow style */
    int64_t context;    /* tokens of a sample; 0: the data have none */
};

/* Append a line for each layer: its place, its word, the shape of a sample behind it, and its
 * parameters.  No effect for other architectures. */
struct buf;
void layers_print(const struct model_options *o, const struct sample_spec *spec, struct buf *out);

/* For dataset_request.limit; `arg` is the struct model_options: the numbers from 0 to the last row
 * of each embedding that reads this field. */
void layers_limit(const void *arg, const struct sample_spec *spec, int field, int64_t *least,
                  int64_t *most);

#endif
