/* layout - where every parameter lies in the flat parameter space.
 *
 * Parameters lie in one buffer, gradients in a second, and each optimizer slot in one more.  One
 * table of segments holds for all of them.  Segments stand in the order in which the backward pass
 * completes the gradients, so that a bucket is a range that is ready early; frozen parameters come
 * last.  Every segment starts at a multiple of SEGMENT_ALIGN elements, and the padding between
 * segments is always zero.  States (running statistics) have a table of their own, and so has the
 * base, which are frozen parameters in fewer bits (program/base.h): it is a space of bytes.  All
 * tables depend on the model and the options only, never on the batch size or the ranks.
 *
 * The control vector (op/control.h) follows the gradients in the same buffer, so that the last
 * bucket carries it.  The vector is always F32, because sums in half precision would not be exact.
 * If gradients are in half precision, the vector is a bucket of its own, the last.
 *
 * Frozen parameters are cut into buckets of about as many elements, behind those of the gradients.
 * These matter only where parameters are divided among the ranks, and gathered bucket by bucket.
 *
 * With half precision there is also a space of working copies, with the parameters' offsets.
 *
 * Life:    layout_new, on a training graph after program_differentiate and program_set_precision
 *          -> layout_free.
 * Threads: constant once made, but for layout_cut. */
#ifndef PROGRAM_LAYOUT_H
#define PROGRAM_LAYOUT_H

#include "base/err.h"
#include "base/hash.h"
#include "ir/graph.h"

enum { SEGMENT_ALIGN = 16 }; /* elements: 64 bytes of F32 */

/* The first bucket is small, so that the ranks begin to sum soon after the backward pass began. */
enum { FIRST_BUCKET_BYTES = 1 << 20 };

struct segment {
    const char *name; /* PyTorch's: "conv1.weight" */
    enum dtype dtype;
    struct shape shape; /* as PyTorch stores it */
    int64_t offset;     /* elements from the start of the space; of the base: bytes */
    int64_t length;     /* elements, without padding */
    struct param_info info;
    float init_state; /* states only */
    int64_t padding;  /* of an embedding: 1 + the row that begins as zeros; 0: none does */
};

struct bucket {
    int64_t offset, length; /* elements of the space; the last bucket includes the control vector */
    enum dtype dtype;       /* of these elements */
    size_t at;              /* bytes from the start of the gradient buffer */
    int last_segment;       /* the bucket is ready when this segment and all before it are */
};

struct layout {
    struct arena arena;
    struct segment *param; /* [n_params] */
    int n_params;
    int64_t n_trained;     /* elements that are reduced and updated, padding included */
    int64_t n_total;       /* n_trained and the frozen parameters' elements */
    int64_t n_grad;        /* elements of the gradient buffer: n_trained + CONTROL_LEN */
    enum dtype grad_dtype; /* of gradients as they are reduced */
    enum dtype copy_dtype; /* of the working copies; F32: there are none */
    int has_scaler;        /* the loss is scaled dynamically */
    /* Set by the owner, before programs are made: parameters have memory bucket by bucket, so a
     * program has GATHER stages (program.h). */
    int gathers;
    /* Likewise: all parameters have memory, but those of a bucket may still be on their way when a
     * step begins.  A program has GATHER stages in which the engine waits for them. */
    int awaits_params;
    struct segment *state; /* [n_states] */
    int n_states;
    int64_t n_state_total;
    struct segment *base; /* [n_base]: codes, and those with scales behind them */
    int n_base;
    int64_t n_base_bytes;
    /* [n_param_buckets].  The first n_buckets are those of the gradients, in the order in which
     * they become ready.  The others are those of the frozen parameters, in the order of the space.
     */
    struct bucket *bucket;
    int n_buckets, n_param_buckets;
    size_t bucket_bytes;                  /* as layout_new and layout_cut had it */
    const struct segment **param_by_name; /* [n_params], in alphabetical order */
    const struct segment **state_by_name; /* [n_states] */
    const struct segment **base_by_name;  /* [n_base] */
    struct hash128 hash;                  /* of segments, buckets and types: the layout hash */
};

/* Bytes before the control vector in a gradient buffer of this type, and the buffer's size. */
size_t layout_control_at(const struct layout *l, enum dtype dtype);
size_t layout_grad_bytes(const struct layout *l, enum dtype dtype);

/* Make the layout of a differentiated graph, with g's types.
 *   bucket_bytes  a bucket is closed once it holds this much; the first one once it holds
 *                 FIRST_BUCKET_BYTES, if that is less
 * Fails with ERR_ARG if a trained parameter has no gradient. */
int layout_new(const struct graph *g, size_t bucket_bytes, struct layout **out, struct err *err);
void layout_free(struct layout *l);

/* Cut the space into other buckets, in place.  No program, strategy or update that was made
 * with the former ones may be left. */
void layout_cut(struct layout *l, size_t bucket_bytes);

/* The buckets of gradients that layout_cut would make, into bucket[layout_most_buckets()]; returns
 * how many. */
int layout_plan(const struct layout *l, size_t bucket_bytes, struct bucket *bucket);
static inline int layout_most_buckets(const struct layout *l) { return l->n_params + 2; }

/* The index of `name` in a table of n segments in alphabetical order, or -1. */
int layout_find(const struct segment *const *sorted, int n, const char *name);

/* The hash of one segment's name, dtype, shape and place.  Two ranks whose layout hashes differ
 * compare these to name the segment that differs. */
struct hash128 segment_hash(const struct segment *s);

/* The source of initial values.  With all rules but the first, biases are 0, and norms follow
 * their own rule all the same. */
enum init_rule {
    INIT_RULE_OWN, /* each parameter follows its own rule, as its layer has it */
    /* Of weights and embeddings; the names are those of torch.nn.init, nonlinearity="relu". */
    INIT_RULE_NORMAL,          /* N(0, std^2) */
    INIT_RULE_TRUNC_NORMAL,    /* N(0, std^2), cut off at 2 * std on both sides */
    INIT_RULE_KAIMING_NORMAL,  /* N(0, 2/fan_in) */
    INIT_RULE_KAIMING_UNIFORM, /* U(-a, a), a = sqrt(6/fan_in) */
    INIT_RULE_XAVIER_NORMAL,   /* N(0, 2/(fan_in + fan_out)) */
    INIT_RULE_XAVIER_UNIFORM,  /* U(-a, a), a = sqrt(6/(fan_in + fan_out)) */
};

struct layout_init {
    enum init_rule rule;
    double std; /* INIT_RULE_NORMAL, INIT_RULE_TRUNC_NORMAL */
};

/* Write the initial values of the elements [first, first + n) of parameter i to host memory.
 * `first` is a multiple of 4.  Any number of threads may call it.  The values are made
 * from RNG_INIT words of (seed, index of the parameter in alphabetical order, element).  A weight
 * [K,C,..] has as fan_in its elements for one k, and as fan_out those for one c.  With
 * INIT_RULE_OWN the padding row of an embedding is zero, as torch.nn.Embedding has it. */
void layout_init_param(const struct layout *l, int i, uint64_t seed, struct layout_init init,
                       int64_t first, int64_t n, float *to);

#endif
