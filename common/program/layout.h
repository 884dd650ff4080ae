/* layout - where every parameter lies: the flat parameter space.
 *
 * Parameters stand in one buffer, gradients in another, each optimizer slot in one more, all by the
 * same table, in the order in which backward completes the gradients (so a bucket of gradients is a
 * range that is ready early); frozen ones last.  Every segment starts at a multiple of
 * SEGMENT_ALIGN elements; the padding between is always zero.  States (running statistics) have a
 * table of their own.  The table depends on the model and the options only, never on batch size or
 * ranks.
 *
 * After the gradients, in the same buffer, stands the control vector (op/control.h), so that
 * the last bucket carries it.  Gradients may be of half precision, the control vector is F32 in any
 * case (sums of half digits would not be exact): then it is a bucket of its own, the last.
 *
 * Half precision: beside the parameters stands a space of working copies, of the same offsets.
 *
 * Life:    layout_new(training graph after differentiate and set_precision) -> layout_free.
 * Threads: constant once made. */
#ifndef PROGRAM_LAYOUT_H
#define PROGRAM_LAYOUT_H

#include "base/err.h"
#include "base/hash.h"
#include "ir/graph.h"

enum { SEGMENT_ALIGN = 16 }; /* elements: 64 bytes of F32 */

struct segment {
    const char *name; /* PyTorch's: "conv1.weight" */
    enum dtype dtype;
    struct shape shape; /* as PyTorch stores it */
    int64_t offset;     /* elements from the start of the space */
    int64_t length;     /* elements, without padding */
    struct param_info info;
    float init_state; /* states only */
};

struct bucket {
    int64_t offset, length; /* elements of the space, control vector included in the last */
    enum dtype dtype;       /* of these elements */
    size_t at;              /* bytes from the start of the gradient buffer */
    int last_segment;       /* ready when this segment and all before it are */
};

struct layout {
    struct arena arena;
    struct segment *param; /* [n_params] */
    int n_params;
    int64_t n_trained;     /* elements that are reduced and updated, padding included */
    int64_t n_total;       /* with the frozen ones */
    int64_t n_grad;        /* elements of the gradient buffer: n_trained + CONTROL_LEN */
    enum dtype grad_dtype; /* of gradients as they are reduced */
    enum dtype copy_dtype; /* of the working copies; F32: there are none */
    int has_scaler;        /* the loss is scaled dynamically */
    struct segment *state; /* [n_states] */
    int n_states;
    int64_t n_state_total;
    struct bucket *bucket; /* [n_buckets], in the order in which they become ready */
    int n_buckets;
    struct hash128 hash; /* of all of the above */
};

/* Where the control vector stands in a gradient buffer of this type, and the buffer's size. */
size_t layout_control_at(const struct layout *l, enum dtype dtype);
size_t layout_grad_bytes(const struct layout *l, enum dtype dtype);

/* `bucket_bytes`: a bucket is closed once it holds that much.  Types are those of g. */
int layout_new(const struct graph *g, size_t bucket_bytes, struct layout **out, struct err *err);
void layout_free(struct layout *l);

/* Hash of one segment's name, dtype, shape and place: what two ranks compare by name. */
struct hash128 segment_hash(const struct segment *s);

/* Fill `to` (host memory, param[i].length elements) with the initial values of parameter i:
 * RNG_INIT numbers of (seed, index of the parameter in alphabetical order, element). std < 0: the
 * parameter's own rule (PyTorch's defaults); else weights N(0, std^2), biases 0. */
void layout_init_param(const struct layout *l, int i, uint64_t seed, double std, float *to);

#endif
