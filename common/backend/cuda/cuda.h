/* cuda - the GPU backend, which is part of the plugin dptrain-cuda.so (plugin.h).
 *
 * For every operator NAME there is cuda_make_NAME in the file of its family: FAMILY.cu if the
 * kernels are ours (own.h), FAMILY.c if a library computes.  If such a function is missing, the
 * link fails.
 *
 * A kernel's run only enqueues work on `stream`: it allocates nothing, waits for nothing and reads
 * no device memory from the host, so that a step can be captured into a CUDA graph.  Numbers
 * that vary from step to step are in struct step_scalars, in device memory, and only kernels read
 * them.
 *
 * Threads: one engine thread, which holds the device current.
 * Includes no CUDA header, so that tests/cudasim can stand in for the runtime. */
#ifndef BACKEND_CUDA_CUDA_H
#define BACKEND_CUDA_CUDA_H

#include "backend/backend.h"
#include "backend/plugin.h"

struct CUstream_st; /* CUDA's cudaStream_t is a pointer to it */

/* A library's handle: the first kernel that needs the library opens it, cuda_close closes it. */
struct cuda_library {
    void *handle;                /* NULL: not open */
    void (*close)(void *handle); /* set with handle */
};

struct CUevent_st;

struct cuda {
    struct backend base;
    struct CUstream_st *stream; /* LANE_MAIN: kernels, recordings, in order */
    struct CUstream_st *copies; /* LANE_COPY */
    struct CUevent_st *mark[BACKEND_MARKS];
    int is_recording;
    int device;     /* index for cudaSetDevice */
    int max_blocks; /* the most blocks that a grid-stride kernel needs */
    struct plugin_choices choices;
    struct plan_cache *plans; /* NULL: no plans are kept */
    struct cuda_library dnn, blas;
    int has_warned; /* of slow attention */
};

#define X(name)                                                                       \
    int cuda_make_##name(struct cuda *b, const struct graph *g, const struct node *n, \
                         struct kernel **out, struct err *err);
OP_LIST(X)
#undef X

/* Returns 0 for status 0 (a cudaError_t), else ERR_DEVICE with the runtime's text.  `what` is the
 * thing that was tried. */
int cuda_check(int status, const char *what, struct err *err);

/* Returns ERR_NOMEM with a message that `what` needs n_bytes, and how much GPU memory is free. */
int cuda_no_memory(size_t n_bytes, const char *what, struct err *err);

/* Make a backend on GPU `device`.  Fails with ERR_DEVICE, ERR_NOMEM. */
int cuda_open(int device, struct backend **out, struct err *err);

/* Set the choices of a backend that cuda_open made: this is the plugin's `configure`. */
void cuda_configure(struct backend *b, const struct plugin_choices *c);

/* lanes.c: the two queues, the copies in them and the marks between them.  open makes LANE_COPY and
 * the marks; close frees as many of them as were made. */
extern const struct backend_device_ops cuda_lanes;
int cuda_lanes_open(struct cuda *b, struct err *err);
void cuda_lanes_close(struct cuda *b);

/* The shape of in[i] or out[i] of n, which must be present. */
static inline const struct shape *cuda_in(const struct graph *g, const struct node *n, int i)
{
    return &g->value[n->in[i]].shape;
}

static inline const struct shape *cuda_out(const struct graph *g, const struct node *n, int i)
{
    return &g->value[n->out[i]].shape;
}

static inline int cuda_has_in(const struct node *n, int i)
{
    return i < n->n_in && n->in[i] != NO_VALUE;
}

static inline int cuda_has_out(const struct node *n, int i)
{
    return i < n->n_out && n->out[i] != NO_VALUE;
}

/* The number of an operand, for kernels that serve both an operator and its gradients: input i has
 * the number i, output i has CUDA_OUT + i. */
enum { CUDA_OUT = NODE_MAX_IN, CUDA_NONE = -1 };

/* The operand's value, or NO_VALUE.  cuda_address_at gives its address among those that bind gets,
 * or NULL. */
static inline int cuda_value_at(const struct node *n, int operand)
{
    if (operand >= CUDA_OUT)
        return cuda_has_out(n, operand - CUDA_OUT) ? n->out[operand - CUDA_OUT] : NO_VALUE;
    return operand >= 0 && cuda_has_in(n, operand) ? n->in[operand] : NO_VALUE;
}

static inline void *cuda_address_at(void *const *in, void *const *out, int operand)
{
    return operand >= CUDA_OUT ? out[operand - CUDA_OUT] : operand >= 0 ? in[operand] : NULL;
}

#endif
