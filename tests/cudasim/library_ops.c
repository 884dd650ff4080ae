/* library_ops - stands in for the libraries (cuDNN, cuBLASLt), of which the simulator has no
 * source.
 *
 * The CPU backend's kernels compute the operators, in the stream's order as a library would.  Half
 * precision is widened before and rounded after, as tensor cores do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/flash.h"
#include "base/alloc.h"
#include "base/util.h"
#include "host_work.h"
#include "library_ops.h"
#include "tensor/half.h"

/* The node in F32, on the CPU backend. */
struct wide {
    struct graph *g;
    struct node n;
    struct kernel *k; /* NULL: there is none */
    void *in[NODE_MAX_IN], *out[NODE_MAX_OUT], *scratch;
};

struct library_kernel {
    struct kernel k;
    struct cuda *cuda;
    struct kernel *inner; /* the CPU's kernel; NULL if the node is in half precision: see wide */
    const struct graph *g;
    struct node n;
    void *in[NODE_MAX_IN], *out[NODE_MAX_OUT];
    struct wide wide;
};

/* The CPU backend.  One thread is fast enough, and gives the same bits in every process.  OpenMP
 * keeps the number for each thread that computes, so it is set in whichever thread calls this. */
static struct backend *cpu(void)
{
    static struct backend *b;
    struct err err;

    if (!b)
        ASSERT(backend_open_cpu(1, &b, &err) == 0);
    backend_set_threads(b, 1);
    return b;
}

static void *memory(size_t n_bytes)
{
    struct err err;
    void *p;

    if (try_alloc(&p, n_bytes + 64, "a library's", &err) < 0)
        abort();
    return p;
}

static int64_t elements(const struct graph *g, int v) { return shape_elements(&g->value[v].shape); }

/* The same value in the wide graph, and memory for it. */
static int widened(struct wide *w, const struct graph *g, int v, void **at)
{
    if (v == NO_VALUE)
        return NO_VALUE;
    *at = memory((size_t)elements(g, v) * sizeof(float));
    return graph_value(w->g, VALUE_INPUT, DTYPE_F32, g->value[v].shape, g->value[v].name);
}

static void wide_init(struct wide *w, const struct graph *g, const struct node *n)
{
    struct err err;

    w->g = graph_new(g->batch, g->training);
    w->n = *n;
    for (int i = 0; i < n->n_in; i++)
        w->n.in[i] = widened(w, g, n->in[i], &w->in[i]);
    for (int i = 0; i < n->n_out; i++)
        w->n.out[i] = widened(w, g, n->out[i], &w->out[i]);
    if (backend_make_kernel(cpu(), w->g, &w->n, &w->k, &err) < 0)
        abort();
    w->scratch = memory(w->k->scratch_bytes);
    if (w->k->ops->bind(w->k, w->in, w->out, w->scratch, &err) < 0)
        abort();
}

static void wide_fini(struct wide *w)
{
    if (!w->k)
        return;
    w->k->ops->free(w->k);
    graph_free(w->g);
    for (int i = 0; i < NODE_MAX_IN; i++)
        free(w->in[i]);
    for (int i = 0; i < NODE_MAX_OUT; i++)
        free(w->out[i]);
    free(w->scratch);
}

static void wide_run(struct library_kernel *k)
{
    struct wide *w = &k->wide;
    struct err err;

    for (int i = 0; i < k->n.n_in; i++)
        for (int64_t e = 0; w->in[i] && e < elements(k->g, k->n.in[i]); e++)
            ((float *)w->in[i])[e] = real_get(k->in[i], k->g->value[k->n.in[i]].dtype, e);
    for (int i = 0; i < k->n.n_out; i++)
        for (int64_t e = 0; k->n.adds >> i & 1 && e < elements(k->g, k->n.out[i]); e++)
            ((float *)w->out[i])[e] = real_get(k->out[i], k->g->value[k->n.out[i]].dtype, e);
    if (w->k->ops->run(w->k, &err) < 0)
        abort();
    for (int i = 0; i < k->n.n_out; i++)
        for (int64_t e = 0; w->out[i] && e < elements(k->g, k->n.out[i]); e++)
            real_put(k->out[i], k->g->value[k->n.out[i]].dtype, e, ((float *)w->out[i])[e]);
}

static int bind(struct kernel *base, void *const *in, void *const *out, void *scratch,
                struct err *err)
{
    struct library_kernel *k = container_of(base, struct library_kernel, k);

    memcpy(k->in, in, (size_t)k->n.n_in * sizeof *in);
    memcpy(k->out, out, (size_t)k->n.n_out * sizeof *out);
    return k->inner ? k->inner->ops->bind(k->inner, in, out, scratch, err) : 0;
}

/* ---- what linear saves for its activation's gradient; the CPU backend does not have this ---- */

static int saves(const struct node *n)
{
    return (n->op == OP_linear &&
            (n->out[LINEAR_MASK] != NO_VALUE || n->out[LINEAR_PRE] != NO_VALUE)) ||
           (n->op == OP_linear_grad_x && n->attr.linear.act != ACT_NONE);
}

/* The node without what it saves or reads, as the CPU backend can compute it. */
static struct node plain(const struct node *n)
{
    struct node p = *n;

    if (!saves(n))
        return p;
    if (n->op == OP_linear)
        p.out[LINEAR_MASK] = p.out[LINEAR_PRE] = NO_VALUE;
    else
        p.in[LINEAR_GRAD_X_MASK] = p.in[LINEAR_GRAD_X_PRE] = NO_VALUE;
    if (n->op == OP_linear_grad_x || n->attr.linear.act == ACT_GELU_TANH)
        p.attr.linear.act = ACT_NONE;
    return p;
}

static double gelu(double x, double *slope)
{
    const double c = sqrt(2 / acos(-1.0)), t = tanh(c * (x + 0.044715 * x * x * x));

    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

static uint32_t *mask_word(void *mask, int64_t i, int64_t cols)
{
    return (uint32_t *)mask + i / cols * 4 * ceil_div_i64(cols, 128) + i % cols / 32;
}

/* Saves for element i of y, which has `cols` columns. */
static void save_one(const struct library_kernel *k, enum dtype t, int64_t i, int64_t cols)
{
    const uint32_t bit = 1u << i % cols % 32;
    const float y = real_get(k->out[LINEAR_Y], t, i);
    double slope;

    if (k->out[LINEAR_MASK]) {
        uint32_t *word = mask_word(k->out[LINEAR_MASK], i, cols);

        *word = y > 0 ? *word | bit : *word & ~bit;
    }
    if (k->out[LINEAR_PRE]) {
        real_put(k->out[LINEAR_PRE], t, i, y);
        real_put(k->out[LINEAR_Y], t, i, (float)gelu((double)y, &slope));
    }
}

static void pass_one(const struct library_kernel *k, enum dtype t, int64_t i, int64_t cols)
{
    double slope = 1;

    if (k->n.in[LINEAR_GRAD_X_MASK] != NO_VALUE)
        slope = *mask_word(k->in[LINEAR_GRAD_X_MASK], i, cols) >> i % cols % 32 & 1;
    else
        (void)gelu((double)real_get(k->in[LINEAR_GRAD_X_PRE], t, i), &slope);
    real_put(k->out[LINEAR_GRAD_X_DX], t, i,
             (float)(slope * (double)real_get(k->out[LINEAR_GRAD_X_DX], t, i)));
}

static void finish(const struct library_kernel *k)
{
    const struct value *y = &k->g->value[k->n.out[0]];

    for (int64_t i = 0; saves(&k->n) && i < shape_elements(&y->shape); i++)
        if (k->n.op == OP_linear)
            save_one(k, y->dtype, i, y->shape.dim[1]);
        else
            pass_one(k, y->dtype, i, y->shape.dim[1]);
}

static void work(void *arg)
{
    struct library_kernel *k = arg;
    struct err err;

    (void)cpu(); /* this thread's number */
    if (k->inner)
        ASSERT(k->inner->ops->run(k->inner, &err) == 0);
    else
        wide_run(k);
    finish(k);
}

static int run(struct kernel *base, struct err *err)
{
    struct library_kernel *k = container_of(base, struct library_kernel, k);

    (void)err;
    sim_host_work(k->cuda->stream, work, k);
    return 0;
}

static void release(struct kernel *base)
{
    struct library_kernel *k = container_of(base, struct library_kernel, k);

    if (k->inner)
        k->inner->ops->free(k->inner);
    wide_fini(&k->wide);
    free(k);
}

static const struct kernel_ops library_ops = {bind, run, release};

static int make(struct cuda *b, const struct graph *g, const struct node *n, struct kernel **out,
                struct err *err)
{
    const struct node inner = plain(n);
    struct library_kernel *k;
    void *mem;
    int rc = try_alloc(&mem, sizeof *k, "a kernel", err);

    if (rc < 0)
        return rc;
    k = mem;
    *k = (struct library_kernel){.k.ops = &library_ops, .cuda = b, .g = g, .n = *n};
    if (op_type(g, n) != DTYPE_F32) {
        wide_init(&k->wide, g, &inner);
        *out = &k->k;
        return 0;
    }
    rc = backend_make_kernel(cpu(), g, &inner, &k->inner, err);
    if (rc < 0) {
        free(k);
        return rc;
    }
    k->k.scratch_bytes = k->inner->scratch_bytes;
    *out = &k->k;
    return 0;
}

#define LIBRARY_OP(name)                                                              \
    int cuda_make_##name(struct cuda *b, const struct graph *g, const struct node *n, \
                         struct kernel **out, struct err *err)                        \
    {                                                                                 \
        return make(b, g, n, out, err);                                               \
    }

LIBRARY_OP(conv2d)
LIBRARY_OP(conv2d_grad_x)
LIBRARY_OP(conv2d_grad_w)
LIBRARY_OP(linear)
LIBRARY_OP(linear_grad_x)
LIBRARY_OP(linear_grad_w)

/* Attention is computed by our own kernels here. */
int flash_new(struct cuda *b, const struct graph *g, const struct node *n, struct kernel **out,
              struct err *err)
{
    (void)b, (void)g, (void)n, (void)out, (void)err;
    return FLASH_NONE;
}

int is_library_op(int op)
{
    static const int ops[] = {OP_conv2d, OP_conv2d_grad_x, OP_conv2d_grad_w,
                              OP_linear, OP_linear_grad_x, OP_linear_grad_w};

    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (op == ops[i])
            return 1;
    return 0;
}
