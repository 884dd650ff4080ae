/* cuda - the GPU backend, behind backend.h; it lives in the plugin dptrain-cuda.so (plugin.h).
 *
 * For every operator NAME there is cuda_make_NAME in the file of its family: FAMILY.cu where the
 * kernels are ours (own.h), FAMILY.c where a library computes.  A missing one fails the link.
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

struct CUstream_st; /* *stream is what CUDA calls a cudaStream_t */

/* A library's handle: made by the first kernel that needs it, closed by cuda_close. */
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
    int max_blocks; /* a grid-stride kernel needs no more than this */
    struct plugin_choices choices;
    struct plan_cache *plans; /* NULL: none are kept */
    struct cuda_library dnn, blas;
};

#define X(name)                                                                       \
    int cuda_make_##name(struct cuda *b, const struct graph *g, const struct node *n, \
                         struct kernel **out, struct err *err);
OP_LIST(X)
#undef X

/* ERR_DEVICE with the runtime's text, or 0 for status 0 (a cudaError_t); `what` was tried. */
int cuda_check(int status, const char *what, struct err *err);

/* ERR_NOMEM: `what` needs so much, and how much of the current GPU's memory is free. */
int cuda_no_memory(size_t n_bytes, const char *what, struct err *err);

/* Make a backend on GPU `device`; the plugin's open.  Fails with ERR_DEVICE, ERR_NOMEM. */
int cuda_open(int device, struct backend **out, struct err *err);

/* Of a backend that cuda_open made; the plugin's configure. */
void cuda_configure(struct backend *b, const struct plugin_choices *c);

/* lanes.c: the two queues, the copies in them and the marks between them; open makes LANE_COPY and
 * the marks, which close gives back, as far as they were made. */
extern const struct backend_device_ops cuda_lanes;
int cuda_lanes_open(struct cuda *b, struct err *err);
void cuda_lanes_close(struct cuda *b);

/* Shape of in[i] and out[i] of n, which are present. */
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

/* An operand on either side of a node, for kernels that serve an operator and its gradients: input
 * i is written i, output i CUDA_OUT + i. */
enum { CUDA_OUT = NODE_MAX_IN, CUDA_NONE = -1 };

/* Its value, or NO_VALUE; and its address, or NULL, among those that bind gets. */
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
