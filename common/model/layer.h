/* layer - the layers that architectures are made of: each call appends one to the network.
 *
 * Each layer takes the value `h` and leaves its output there.  After a failure the calls do
 * nothing, so an architecture is a plain list of calls; model_build looks at `rc` at the end.
 *
 * Parameters are NAME.weight and NAME.bias, states NAME.running_mean and NAME.running_var, with
 * PyTorch's defaults: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases of conv2d and
 * linear, 1 and 0 for norms; batch norm has eps 1e-5 and momentum 0.1.
 *
 * Threads: as the graph. */
#ifndef MODEL_LAYER_H
#define MODEL_LAYER_H

#include "base/err.h"
#include "ir/graph.h"
#include "model/model.h"

struct losses; /* model/losses.h */

struct net {
    struct graph *g;
    const struct sample_spec *spec; /* what a sample is; its fields are g->input, in this order */
    int sync;                       /* batch norm over all ranks */
    int h;                          /* the network's output so far; NO_VALUE: nothing yet */
    int64_t length;                 /* tokens of a sample: h has so many rows for each; else 0 */
    /* Of an imported network: the outputs of the job's losses, in PyTorch's order of dimensions, by
     * the places of model.loss.  NULL: h is the one output. */
    const int *loss_of;
    const int *loss_with, *loss_scale; /* contrastive losses': two more outputs; or NO_VALUE */
    int64_t all; /* samples of a full global batch, which a contrastive loss compares over all
                  * ranks; 0: those of the graph alone */
    const struct losses *losses;
    int n_dropouts;  /* so far: each draws its own random numbers */
    int n_reference; /* the first nodes, which compute the reference of a preference; h is then what
                      * the trained network gives */
    int n_open;      /* blocks begun and not ended */
    int rc;          /* < 0: failed, *err says why */
    struct err *err;
};

void net_add_inputs(struct net *m); /* of the graph, for all fields of the samples */

/* The input that says where the document of each token begins; NO_VALUE: samples are not packed. */
int net_starts(const struct net *m);

/* The layers between these two calls are a block: with train.recompute their activations are
 * dropped and computed again in the backward pass, from the block's input.  A block inside another
 * is a part of that one. */
void layer_begin_block(struct net *m);
void layer_end_block(struct net *m);

/* h becomes the samples' one input, which must be real numbers; fails if it is not, or not one. */
void layer_input(struct net *m);

/* Where a sample is a sequence, h is [N,T,C], or rows [N*T,C] with `length` T, which is what layers
 * of rows read.  net_fold makes the rows, net_unfold the sequence; neither changes another h. */
void net_fold(struct net *m, const char *name);
void net_unfold(struct net *m, const char *name);

/* Outputs of the network for one sample: what the target asks for. */
int64_t net_n_outputs(const struct net *m);
/* 1: the target can be compared with so many outputs.  Of classes there may be more outputs than
 * the data have; a target of numbers has one number for each output. */
int net_fits_target(const struct net *m, int64_t outputs);
/* The end of a message about too few outputs: other reasons than the network for which the data may
 * have more classes; "" if there are none. */
const char *net_class_doubt(const struct net *m, int64_t outputs);
/* The outputs that a job asks for with model.classes: 0 stands for what the target asks for.  Fails
 * if they do not fit the target. */
int64_t net_classes(struct net *m, int64_t classes);
/* Fails if model.width is no multiple of model.heads. */
void net_check_heads(struct net *m, int64_t width, int64_t heads);

/* The initial values of a convolution. */
enum conv_init {
    CONV_PYTORCH, /* PyTorch's default, of the bias too */
    CONV_KAIMING, /* weights from N(0, 2/fan_out), as torchvision's residual networks have them */
    CONV_LECUN,   /* weights from N(0, 1/fan_in), biases 0: its vision transformers */
};

/* A convolution; [0] is for rows, [1] for columns. */
struct layer_conv {
    int64_t channels; /* of the output */
    int kernel[2], pad[2];
    int more[2];                /* so many rows and columns of padding more at the end */
    int stride[2], dilation[2]; /* 0 means 1 */
    int groups;                 /* 0 means 1 */
    int no_bias;
    enum conv_init init;
};
void layer_conv(struct net *m, const char *name, const struct layer_conv *c);
/* A transposed convolution, as torch.nn.ConvTranspose2d: the weight is [C,channels/groups,R,S].
 * extra: rows and columns that the output has beyond the least (PyTorch's output_padding), less
 * than the stride.  (PyTorch also allows more than that if it is less than the dilation.) */
void layer_conv_transpose(struct net *m, const char *name, const struct layer_conv *c,
                          const int extra[2]);
/* As torch.nn.Conv1d on h [N,T,C], of which it takes [1] of each pair: the weight is
 * [channels,C/groups,kernel]. */
void layer_conv1d(struct net *m, const char *name, const struct layer_conv *c);
/* Stride 1, with bias. */
void layer_conv2d(struct net *m, const char *name, int64_t channels, int kernel, int pad);
void layer_linear(struct net *m, const char *name, int64_t features); /* with bias; h is [N,in] */
void layer_linear_plain(struct net *m, const char *name, int64_t features); /* without */
void layer_activation(struct net *m, const char *name, enum activation kind);
/* Over the features of a row, or the channels of a pixel: torch.nn.Softmax(dim=1) or LogSoftmax. */
void layer_softmax(struct net *m, const char *name, int log);

/* As torch.nn.LSTM and GRU with batch_first, and zeros as the initial state.  h is [N,T,C], or
 * [N*T,C] where a sample has T tokens, and keeps its form; with `last` it becomes [N,directions*H],
 * the last states of the last layer.  The parameters begin as U(-1/sqrt(H), 1/sqrt(H)). */
struct layer_recurrent {
    int64_t units, layers; /* units: H */
    int bidirectional, last;
    double dropout; /* between the layers */
};
/* kind: RECURRENT_LSTM or RECURRENT_GRU */
void layer_recurrent(struct net *m, const char *name, enum recurrent kind,
                     const struct layer_recurrent *r);

/* ---- layers of transformers: h is [N*T,C], the T tokens of each sample one after another ---- */

/* h becomes the embeddings [N*T,width] of the samples' one input, which must be T tokens, each plus
 * that of its position, in its document if they are packed: parameters `table`.weight
 * [vocab,width], `position`.weight [positions,width], both from N(0, std^2).  vocab 0: as many as
 * the data have.  Returns the table's value, NO_VALUE after a failure. */
struct layer_embedding {
    const char *table, *position;
    int64_t vocab, positions, width;
    float std;
};
int layer_embedding(struct net *m, const char *name, const struct layer_embedding *e);

/* Images [N,H,W,C] become rows [N*H*W,C], one for each pixel. */
void layer_pixels(struct net *m, const char *name);
/* h, [N*(T-1),C], becomes [N*T,C]: each sample begins with one more row, the class token, and the
 * rows of their positions are added.  Parameters: `token` [1,1,C], which begins as 0, and
 * `position` [1,T,C], from N(0, 0.02^2). */
void layer_class_token(struct net *m, const char *name, const char *token, const char *position);
/* h becomes the first row of each sample, [N,C]. */
void layer_first_row(struct net *m, const char *name);

/* The initial values of a weight or a bias. */
enum dense_init {
    DENSE_NORMAL,  /* N(0, std^2); 0 without std */
    DENSE_XAVIER,  /* U(-a, a) with a = sqrt(6/(in + out)) */
    DENSE_PYTORCH, /* U(-a, a) with a = 1/sqrt(in) */
};
struct dense_draw {
    enum dense_init init;
    float std;
};

/* A linear layer of a transformer. */
struct layer_dense {
    int64_t features;
    struct dense_draw weight, bias;
    int transposed; /* the weight is [in,out], as in Hugging Face's Conv1D */
    int is_joint;   /* the parameters are NAME_weight and NAME_bias, as in_proj's in PyTorch */
    int no_bias;
};
void layer_dense(struct net *m, const char *name, const struct layer_dense *d);

/* The last layer, linear without bias.  weight: the parameter [features,in] of another layer; with
 * NO_VALUE the layer has its own, from N(0, std^2). */
void layer_head(struct net *m, const char *name, int weight, int64_t features, float std);

/* Self-attention of h, [N*T,3*C] with q, k and v, to [N*T,C].  dropout: of the weights.  If it is
 * causal, no token of packed documents sees another document. */
void layer_attention(struct net *m, const char *name, int64_t heads, int causal, float dropout);

/* Self-attention with its projections, as torch.nn.MultiheadAttention(batch_first=True): h is rows
 * with a length, of C features, and has that form afterwards.  Parameters: NAME.in_proj_weight
 * [(heads+2*kv_heads)*width,C] and NAME.in_proj_bias, of q, k and v one after another, and
 * NAME.out_proj.weight and .bias.  Heads of q share those of k and v where there are fewer. */
struct layer_heads {
    int64_t heads, kv_heads, width; /* width: of a head; 0: C / heads.  kv_heads 0: heads */
    int causal, bias;
    int rope; /* rotary positions, as Llama's, of q and k */
    double rope_base;
    double dropout; /* of the weights */
};
void layer_multi_head(struct net *m, const char *name, const struct layer_heads *a);

/* As torch.nn.Embedding: h, whole numbers [N,..], becomes [N,..,width].  vocab 0: as many as the
 * data say.  Indices outside have been refused when the data were read. */
void layer_lookup(struct net *m, const char *name, int64_t vocab, int64_t width);
/* h [N,T,C] plus the parameter NAME.weight [T,C], from N(0, std^2). */
void layer_position(struct net *m, const char *name, float std);
/* The mean or maximum over all positions or pixels: [N,T,C] or [N,H,W,C] -> [N,C]. */
void layer_reduce(struct net *m, const char *name, enum reduction kind);

/* A value that has a name in a list of layers. */
struct layer_operand {
    const char *name;
    int value;
};
/* h and then the others, along a dimension; -1: the last. */
void layer_concat(struct net *m, const char *name, const struct layer_operand *o, int n,
                  int64_t along);
/* h + others, or h * others; extents of 1 are broadcast. */
void layer_combine(struct net *m, const char *name, enum elementwise kind,
                   const struct layer_operand *o, int n);
/* Cut h into part[n], the first of which becomes h.  sizes: n of them, or none for equal parts. */
void layer_split(struct net *m, const char *name, int64_t along, const struct option_ints *sizes,
                 int n, int *part);
void layer_permute(struct net *m, const char *name, const struct option_ints *order);
/* The same numbers of each sample in another shape, as torch.nn.Unflatten(1, shape): those of an
 * image [H,W,C] are in PyTorch's order, channel, row, column, before and afterwards. */
void layer_reshape(struct net *m, const char *name, const struct option_ints *shape);
/* As torch.nn.Upsample: nearest, or bilinear. */
void layer_upsample(struct net *m, const char *name, const int64_t by[2], int is_smooth);

void layer_layer_norm(struct net *m, const char *name, float eps);
/* As torch.nn.RMSNorm, over the features of a row. */
void layer_rms_norm(struct net *m, const char *name, double eps);
/* As torch.nn.GroupNorm, on the channels of images or of rows.  groups 0: a group for each channel,
 * and no parameters, as torch.nn.InstanceNorm2d; h must then be images of more than one pixel. */
void layer_group_norm(struct net *m, const char *name, int64_t groups, float eps);
/* Padding is on both sides; an average counts it. */
struct layer_window {
    int kernel[2], stride[2], pad[2];
};
/* h is images, or sequences [N,T,C], whose windows are [1] of each pair. */
void layer_pool_window(struct net *m, const char *name, enum pooling kind,
                       const struct layer_window *w);
void layer_pool(struct net *m, const char *name, enum pooling kind, int kernel, int stride,
                int pad);                                    /* square windows */
void layer_global_avg_pool(struct net *m, const char *name); /* [N,H,W,C] -> [N,1,1,C] */
/* [N,H,W,C] -> [N,size,size,C], which must divide H and W: torch.nn.AdaptiveAvgPool2d */
void layer_adaptive_avg_pool(struct net *m, const char *name, int64_t size);
void layer_add(struct net *m, const char *name, int other); /* h + other, of one shape */
/* To [N,in], images in PyTorch's order: channel, row, column; rows stay what they are. */
void layer_flatten(struct net *m, const char *name);
void layer_batch_norm(struct net *m, const char *name);       /* of images or rows */
void layer_dropout(struct net *m, const char *name, float p); /* none in evaluation, or if p is 0 */
/* Stochastic depth: each sample is dropped as a whole, as torchvision's StochasticDepth(p, "row").
 * It stands at the end of a residual branch.  None in evaluation, or if p is 0. */
void layer_drop_path(struct net *m, const char *name, float p);
/* The probability for block i of n, which rises linearly from 0 to `most` at the last block. */
float layer_depth_drop(double most, int64_t i, int64_t n);

/* The last layer; h holds the logits.  The labels are smoothed in training alone. */
void layer_loss(struct net *m, const char *name, const struct model_options *o);

#endif
