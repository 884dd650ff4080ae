/* graph - a network as data: values, and the nodes that compute them, in execution order.
 *
 * A graph is built for one batch size and one mode (training or evaluation).  model/ builds the
 * forward part; program/ appends the gradient nodes and rewrites the graph.  The graph computes
 * nothing itself.  Values and nodes are named by their index.  A value's index never changes; a
 * node's changes when program/ drops or moves nodes.  Nodes stand in an order in which they can
 * run: a value's producer before its users.
 *
 * From outside come the inputs (graph_input: fields of samples, of any type), the parameters and
 * states, and constants (graph_const).  Besides the logits any value can be an output
 * (graph_output), which program/ gives by its name after a run.
 *
 * Life:    graph_new -> graph_value, graph_param, graph_node (op/op.h) ... -> graph_free.  Names
 *          live in the graph's arena.
 * Threads: one at a time. */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "config/words.h"
#include "ir/elementwise.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

enum {
    NODE_MAX_IN = 12,
    NODE_MAX_OUT = 6,
    NODE_MAX_NUMBERS = 8,
    GRAPH_MAX_INPUTS = 8,
    GRAPH_MAX_OUTPUTS = 8,
    NO_VALUE = -1
};

enum value_role {
    VALUE_TEMP,    /* a node's output; lives in the arena between its first and last use */
    VALUE_INPUT,   /* written by the engine before a run: one field of a batch of samples */
    VALUE_CONST,   /* given with the graph, the same in every run; in the program's own memory */
    VALUE_PARAM,   /* trained; in the flat parameter space */
    VALUE_COPY,    /* a parameter rounded to BF16 or F16; same place in the space of copies */
    VALUE_BASE,    /* a frozen parameter in fewer bits, or the scales of one (program/base.h) */
    VALUE_GRAD,    /* gradient of a parameter; same place in the flat gradient space */
    VALUE_STATE,   /* replicated, not trained by gradient: batch norm's running statistics */
    VALUE_SHADOW,  /* next value of a state, committed together with the optimizer's update */
    VALUE_METRICS, /* F64 [METRIC_COUNT]; the loss node adds to it */
    VALUE_SCALER,  /* F32 [SCALER_LEN]: dynamic loss scaling's state (op/scaler.h) */
    VALUE_SCALARS, /* struct step_scalars, written by the engine before each step */
};

/* METRIC_TARGETS: the targets that the loss compared with: samples or tokens, but for the ignored
 * ones (tensor/sample.h).  METRIC_WEIGHT: the sum of their weights, by which the mean loss divides;
 * without class weights each target weighs 1.  METRIC_NONFINITE stays the last one: fixed shares
 * clear all metrics before it (step/step.c). */
enum {
    METRIC_LOSS_SUM,
    METRIC_CORRECT,
    METRIC_TARGETS,
    METRIC_WEIGHT,
    METRIC_TOP5, /* targets among the five largest logits; 0 where nobody counts them */
    METRIC_NONFINITE,
    METRIC_COUNT
};

/* Weights of classes are multiples of 1 / WEIGHT_UNITS, so that their sums are exact, and do not
 * depend on the order of addition, up to a sum of 2^23. */
#define WEIGHT_UNITS 0x1p30

/* The numbers that vary from step to step, which a program reads besides tensors.  All ranks hold
 * equal values, except for first_position and requests. */
struct step_scalars {
    uint64_t seed;          /* of the job */
    uint64_t step;          /* global step, from 0 */
    int64_t first_position; /* of this micro-batch's first sample in the global batch */
    int64_t n_updates;      /* updates applied before this step; 0: optimizer slots are empty */
    int64_t n_targets;      /* in this step's global batch, ignored ones included */
    float loss_scale;       /* 1 / n_targets */
    float rate;             /* learning rate of this step */
    float clip_norm;        /* 0: no clipping */
    float requests;         /* this rank's requests: bits of enum engine_request */
    float stamp;            /* names this step: never 0, and different from steps near it */
    /* 0, or the stamp of the step before, if this step was queued before the result of that one was
     * known.  Unless the step before was clean (op/seal.c), this step is void. */
    float after;
    int32_t slot; /* the slot in which seal leaves this step's results */
    /* Written by seal, never by the engine: the stamp of the last step if it was clean, else 0. */
    float clean __attribute__((aligned(16)));
};

enum { STEP_SCALARS_SENT = offsetof(struct step_scalars, clean) }; /* bytes the engine writes */

/* The initial values of a parameter. */
enum param_init {
    PARAM_UNIFORM,   /* U(-bound, bound): PyTorch's default for linear and conv2d, biases too */
    PARAM_NORMAL,    /* N(0, bound^2) */
    PARAM_CONST,     /* bound everywhere: 1 for norm weights, 0 for norm biases */
    PARAM_TRUNCATED, /* N(0, bound^2), of which no value is further than 2 * bound from 0 */
};

/* PARAM_ADAPTER: of low-rank adapters, which keep their own initial values. */
enum param_kind { PARAM_WEIGHT, PARAM_BIAS, PARAM_NORM, PARAM_EMBEDDING, PARAM_ADAPTER };

/* A parameter's initial value and training. */
struct param_info {
    enum param_init init;
    float bound;
    enum param_kind kind; /* model.init draws weights and embeddings, zeroes biases */
    int frozen;           /* not trained: no gradient */
};

struct value {
    const char *name; /* "conv1.weight", "conv1.out"; unique for params and states */
    enum value_role role;
    enum dtype dtype;
    struct shape shape;
    int producer;                  /* the node that makes it, or -1; an update is not a producer */
    int partner;                   /* GRAD, COPY: the param; SHADOW: the state; BASE: of codes their
                                    * scales, if they have any; else NO_VALUE */
    int grad, copy, shadow;        /* of a PARAM or STATE: its partners; NO_VALUE until made */
    int n_uses;                    /* PARAM: forward nodes that the loss depends on and that read
                                    * it, counted once for each operand; set by
                                    * program_differentiate, as the next one is */
    int read_twice;                /* PARAM: 1: a forward node reads it through two operands */
    const struct param_info *info; /* PARAM only */
    float init_state;              /* STATE: initial value of every element */
    int is_detached;               /* TEMP: 1: no gradient goes back to what it is made from */
    const void *content;           /* CONST: its elements, in the graph's arena */
};

/* A value that can be read after a run, by its name. */
struct output {
    const char *name;
    int value;
};

#define ACTIVATION_LIST(X)        \
    X(ACT_NONE, "none")           \
    X(ACT_RELU, "relu")           \
    X(ACT_TANH, "tanh")           \
    X(ACT_SIGMOID, "sigmoid")     \
    X(ACT_GELU, "gelu")           \
    X(ACT_GELU_TANH, "gelu_tanh") \
    X(ACT_SILU, "silu")           \
    X(ACT_LEAKY_RELU, "leaky_relu")

enum activation { ACTIVATION_LIST(WORD_VALUE) };

extern const char *const activation_names[]; /* by value; NULL at the end */

/* 1: the activation's gradient is computed from its input x; 0: from its output y. */
static inline int activation_saves_x(enum activation a)
{
    return a == ACT_GELU || a == ACT_GELU_TANH || a == ACT_SILU;
}

enum pooling { POOL_MAX, POOL_AVG };

/* The reductions of op/reduce.c. */
enum reduction { REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_VAR };

/* The layers of op/recurrent.c: torch.nn.LSTM, GRU, and RNN with tanh or relu. */
enum recurrent { RECURRENT_LSTM, RECURRENT_GRU, RECURRENT_TANH, RECURRENT_RELU };

/* The losses of op/pointwise_loss.c. */
enum pointwise { POINTWISE_SQUARED, POINTWISE_ABSOLUTE, POINTWISE_LOGISTIC, POINTWISE_GIVEN };

/* The metrics that a loss node adds to.  The losses of a network may be computed by several nodes,
 * which compare with the same targets, and each target counts once. */
enum loss_part {
    LOSS_IS_WHOLE,
    LOSS_IS_MORE,    /* METRIC_LOSS_SUM and METRIC_NONFINITE alone */
    LOSS_IS_COUNTED, /* all but METRIC_LOSS_SUM; the node has no gradient */
};

/* The settings of dynamic loss scaling: op/loss_scale.c. */
struct scaler_rule {
    float min;
    int window, hysteresis;
};

/* Arithmetic of I32 (op/integers.c).  FROM_END: a, or a + b if a is negative; PREFIX: the sum of
 * the elements of a row up to this one, without b. */
enum integers {
    INTEGERS_ADD,
    INTEGERS_SUB,
    INTEGERS_MUL,
    INTEGERS_MIN,
    INTEGERS_MAX,
    INTEGERS_FROM_END,
    INTEGERS_PREFIX,
    INTEGERS_COUNT
};

/* The settings of a node; op/NAME.c says which member the operator reads. */
union node_attr {
    struct {
        int stride[2], pad[2], dilation[2], groups; /* [0] rows, [1] columns; pad on both sides */
        enum activation act;                        /* fused: y = act(conv + bias) */
        int kernel[2];                              /* conv2d_grad_w only: R, S */
        int64_t in_image[2];                        /* conv2d_grad_x only: H, W of x */
    } conv;
    struct {
        enum activation act; /* fused */
        int64_t image[3];    /* fused flatten: x is [N,H,W,C] with these H, W, C; 0: x is [N,in] */
        int transposed;      /* 1: w is [in,out], as in Hugging Face's Conv1D; no image then */
    } linear;
    struct {
        enum pooling kind;
        int kernel[2], stride[2], pad[2];
        int ceil_mode;       /* POOL_MAX: the extents are rounded up; no window begins in the
                              * padding at the end */
        int count_pad;       /* POOL_AVG: padding counts in the divisor (PyTorch's default: 1) */
        int64_t in_image[2]; /* gradient only: H, W of the input */
        enum activation act; /* gradient only, fused: dx *= act'(y) of the activation that made x */
    } pool;
    struct {
        enum activation kind;
    } act;
    struct {
        float eps, momentum; /* momentum as PyTorch: running = (1-m)*running + m*batch */
        int sync;            /* 1: an allreduce of the sums stands between stats and norm */
        enum activation act; /* batch norm, fused: none or relu */
        int one_plus;        /* rms_norm: the factor is 1 + weight */
    } norm;
    struct {
        float p;      /* probability of dropping */
        int64_t tag;  /* distinguishes dropout nodes of one step */
        int64_t rows; /* of x (its dimension 0) that one sample has; 0 means 1 */
        int whole;    /* 1: a sample is kept or dropped as a whole (stochastic depth) */
    } dropout;
    struct {
        int64_t rows, positions; /* gradient only: of the table, of the positions */
        int64_t padding;         /* 1 + the row of the table that gets no gradient; 0: none */
    } embedding;
    struct {
        int64_t length; /* rows of one sample in y, the class token's included */
    } class_token;
    struct {
        int64_t length; /* rows of one sample */
        int64_t heads;
        int causal;     /* 1: a row sees no later row */
        int64_t window; /* causal: a row sees itself and the window - 1 rows before it; 0: all */
        float p;        /* probability of dropping a weight; 0: there is no dropout */
        int64_t tag;    /* as dropout's */
    } attention;
    struct {
        float factor;             /* of the loss and its gradient, above 0; 0 means 1 */
        float label_smoothing;    /* softmax_xent */
        enum pointwise pointwise; /* pointwise_loss */
        int counts_top5;          /* softmax_xent: METRIC_TOP5 counts, too */
        enum loss_part part;
        /* softmax_xent: [C] multiples of 1 / WEIGHT_UNITS, in the graph's arena or elsewhere where
         * they outlive all kernels made from the node; NULL: each class weighs 1. */
        const float *class_weight;
        double class_weight_sum; /* of all C; not read without class_weight */
    } loss;
    struct {
        enum recurrent kind;
        int64_t length; /* time steps of one sample */
        int reverse;    /* 1: from the last step to the first */
    } recurrent;
    struct {
        int64_t image[3]; /* H, W, C */
    } flatten;
    struct {
        struct shape shape; /* reshape: one extent may be -1, which means "what is left" */
    } reshape;              /* reshape, expand */
    struct {
        int order[SHAPE_MAX_DIMS]; /* dimension d of y is dimension order[d] of x */
    } permute;
    struct {
        int dim;
        int64_t start, stop, step; /* step >= 1 */
        int64_t extent;            /* gradient only: of x along dim */
    } slice;
    struct {
        int dim;
    } concat;
    struct {
        enum elementwise kind;
        float p, q; /* constants of the formula */
    } elementwise;
    struct {
        int64_t inner; /* rows of x that are turned by one row of cos and sin */
        int pairs;     /* 1: elements 2i and 2i + 1 are a pair; 0: i and R/2 + i */
        int back;      /* 1: the opposite turn, which is the gradient */
    } rotary;
    struct {
        enum reduction kind;
        unsigned axes;  /* bit d: dimension d is reduced */
        int keep;       /* 1: y keeps the reduced dimensions, with extent 1; 0: it drops them */
        int correction; /* REDUCE_VAR: the divisor is the number of elements - correction */
    } reduce;
    struct {
        int transpose_a, transpose_b;
    } matmul;
    struct {
        int dim;
        int log;  /* 1: the logarithm of the softmax */
        int safe; /* 1: a line of -infinity alone gives 0, not NaN; not with log */
    } softmax;
    struct {
        int64_t groups;
        float eps;
    } group_norm;
    double number[NODE_MAX_NUMBERS]; /* an optimizer's constants, named in op/meson.build */
    struct {
        enum dtype to;
        int32_t minus; /* I32 only: subtracted before the conversion */
    } cast;
    struct {
        enum integers kind;
        int32_t number; /* the second operand, if there is no tensor b */
    } integers;
    struct {
        struct shape shape; /* of y */
        int64_t tag;        /* distinguishes such nodes of one step */
    } uniform;
    struct {
        int64_t all;      /* of all ranks, in a full global batch */
        struct shape own; /* rows_own: of y */
    } rows;
    struct scaler_rule scale; /* loss_scale */
};

struct node {
    int op;           /* enum op (op/op.h) */
    const char *name; /* "conv1", "conv1.grad_w" */
    int block;        /* of the graph's blocks, from 1 on; 0: of none */
    int n_in, n_out;
    int in[NODE_MAX_IN];   /* NO_VALUE: an optional input that is absent */
    int out[NODE_MAX_OUT]; /* NO_VALUE: an optional output that no node wants */
    unsigned adds;         /* bit i: out[i] is added to what its memory holds; 0: it is written */
    union node_attr attr;
};

/* This says what program/recompute.c drops in the forward pass and computes again in the backward
 * one. */
enum graph_recompute {
    GRAPH_RECOMPUTE_NONE,
    GRAPH_RECOMPUTE_SELECTIVE, /* what takes few operations (OP_CHEAP), of values that are there */
    GRAPH_RECOMPUTE_BLOCKS,    /* all that a block leaves */
};

struct graph {
    struct arena arena;
    struct value *value;
    int n_values, cap_values;
    struct node *node;
    int n_nodes, cap_nodes;
    int64_t batch; /* samples per run, may be 0 */
    int training;  /* 1: dropout drops, batch norm uses the batch */
    enum graph_recompute recompute;
    int grads_at_once;           /* 1: one node writes all of a parameter's gradient, since the
                                  * gradients' memory is not there before (divided gradients) */
    int block, n_blocks;         /* the block that appended nodes belong to, and the last one's */
    int input[GRAPH_MAX_INPUTS]; /* one for each field of a sample, in the order of the fields */
    int n_inputs;
    struct output output[GRAPH_MAX_OUTPUTS]; /* besides the logits */
    int n_outputs;
    int scalars, metrics;  /* graph_new makes both */
    int scaler;            /* the VALUE_SCALER; NO_VALUE until made */
    int logits;            /* output of the network, before the loss; NO_VALUE until made */
    enum dtype grad_dtype; /* of every VALUE_GRAD */
    int n_forward;         /* nodes of the forward part; 0 until program_differentiate */
    int *named, cap_named; /* params and states, by the hash of their name (graph.c) */
    int n_named;
};

struct graph *graph_new(int64_t batch, int training);
void graph_free(struct graph *g); /* NULL is fine */

int graph_value(struct graph *g, enum value_role role, enum dtype dtype, struct shape shape,
                const char *name);

/* Append to g->input a VALUE_INPUT [batch, ...], which each batch fills with one field of its
 * samples.  Returns the value. */
int graph_input(struct graph *g, enum dtype dtype, struct shape shape, const char *name);

/* A VALUE_CONST with these elements, which are copied.  It may be of any type; half precision
 * (program_set_precision) reads an F32 one as it reads the samples, rounded. */
int graph_const(struct graph *g, enum dtype dtype, struct shape shape, const void *content,
                const char *name);

/* Let `value` be read after a run (program_output): its memory is not used again in the run, and no
 * fusion takes it away.  No two outputs have one name. */
void graph_output(struct graph *g, int value, const char *name);
int graph_is_output(const struct graph *g, int value); /* of graph_output's, or the logits */

int graph_param(struct graph *g, struct shape shape, struct param_info info, const char *name);
int graph_state(struct graph *g, struct shape shape, float init, const char *name);
int graph_grad_of(struct graph *g, int param); /* the VALUE_GRAD of a param, made on first use */

/* The VALUE_COPY of a param, made on first use; all copies of a graph have one dtype. */
int graph_copy_of(struct graph *g, int param, enum dtype dtype);

int graph_scaler(struct graph *g); /* the VALUE_SCALER, made on first use */

/* The VALUE_SHADOW of a state, made on first use. */
int graph_shadow_of(struct graph *g, int state);

/* The factor of a loss node. */
static inline float loss_factor(const union node_attr *a)
{
    return a->loss.factor > 0 ? a->loss.factor : 1;
}

/* The elements of one sample in the x [rows,..] of a dropout node. */
static inline int64_t dropout_sample_length(const union node_attr *a, const struct shape *x)
{
    const int64_t rows = a->dropout.rows > 0 ? a->dropout.rows : 1;

    return x->dim[0] ? shape_elements(x) / x->dim[0] * rows : 0;
}

/* Append a copy of *n without any check, and with a copy of its name; returns the node's index.
 * g->node may move.  Only op/ calls this: all others call graph_node (op/op.h), which checks shapes
 * and makes the outputs. */
int graph_append(struct graph *g, const struct node *n);

/* The parameter or state of this name, or NULL.  Other values have no names of their own: a field
 * of the samples may well be called as a parameter is. */
const struct value *graph_find(const struct graph *g, const char *name);

#endif
