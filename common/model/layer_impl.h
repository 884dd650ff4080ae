/* layer_impl - what the files of the layers share: the steps that most layers consist of.
 *
 *   layer.c             convolutions, linear layers, pools, dropout
 *   layer_norm.c        batch norm, layer norm, group norm
 *   layer_transformer.c the layers of networks whose rows are tokens
 *   layer_recurrent.c   LSTM and GRU
 *   layer_sequence.c    embeddings, attention, what is taken over positions
 *   layer_join.c        several values, parts of one, other forms
 *   layer_loss.c        the last layer
 *   layer_contrast.c    its loss contrastive
 *   layer_preference.c  its loss dpo
 *
 * Only these files and layers.c include this header.
 *
 * Threads: as the graph. */
#ifndef MODEL_LAYER_IMPL_H
#define MODEL_LAYER_IMPL_H

#include "model/layer.h"
#include "op/op.h"

const struct shape *net_shape(const struct net *m); /* of h */
/* "NAME.suffix", in the graph's arena. */
const char *net_name(struct net *m, const char *name, const char *suffix);
/* The field of a sample that the network's output is compared with. */
const struct sample_field *net_target(const struct net *m);

/* A new parameter NAME.suffix. */
int net_param(struct net *m, const char *name, const char *suffix, struct shape shape,
              struct param_info info);
float net_uniform_bound(int64_t fan_in); /* 1/sqrt(fan_in) */

/* Append a node whose in[0] is h; its first output becomes h. */
void net_append(struct net *m, enum op op, const union node_attr *attr, const int *in, int n_in,
                int *out, const char *name);
/* The same elements in another shape. */
void net_reshape(struct net *m, const char *name, struct shape shape);

struct compose;
/* The k-th loss, which is contrastive: one of each row, [N,1]. */
int layer_contrast(struct net *m, struct compose *c, int k);

/* The loss dpo, whole. */
void layer_preference(struct net *m, const char *name, const struct model_options *o);

/* h must be images.  If not, the net has failed, and the message names the layer `name`. */
int net_want_images(struct net *m, const char *name);

#endif
