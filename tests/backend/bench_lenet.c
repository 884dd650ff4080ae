/* bench_lenet - times the kernels of LeNet's training step one by one, fused as the program fuses
 * them.
 *
 *     bench_lenet [batch [threads [steps]]]     (256 1 50)
 *
 * It compares the backend's own choice with oneDNN alone (without cpu/conv_rows.c), and runs a step
 * of each in turn.  It runs whole steps, so that the cache holds what it would hold in training,
 * and prints each kernel's median time.  With one thread it takes the processor time, which a busy
 * machine disturbs less.  This is not a test: it is built, and run by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "op/update.h"

enum { MAX_KERNELS = 32 };

struct bench {
    struct backend *b;
    struct graph *g;
    int64_t batch;
    double flop[MAX_KERNELS];
    struct kernel *kernel[MAX_KERNELS];
    void **value;
    double *ms[MAX_KERNELS]; /* [steps] */
    int n_steps, n_threads, onednn_alone;
};

static double now_ms(const struct bench *t)
{
    struct timespec at;

    clock_gettime(t->n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static void need(int rc, const struct err *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "bench_lenet: %s\n", err->msg);
    exit(1);
}

static int input(struct bench *t, enum dtype dtype, struct shape s, const char *name)
{
    return graph_value(t->g, VALUE_INPUT, dtype, s, name);
}

static int param(struct bench *t, struct shape s, const char *name)
{
    return input(t, DTYPE_F32, s, name);
}

/* Append a node of `mflop` million operations a sample; returns its first output. */
static int node(struct bench *t, enum op op, union node_attr attr, const int *in, int n_in,
                const char *name, double mflop)
{
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT};
    struct err err;

    t->flop[t->g->n_nodes] = mflop * 1e6 * (double)t->batch;
    need(graph_node(t->g, op, &attr, in, n_in, out, name, &err), &err);
    return out[0];
}

#define IN(...) (const int[]){__VA_ARGS__}, ARRAY_LEN(((const int[]){__VA_ARGS__}))

static const double mflop_conv1 = 2e-6 * 26 * 26 * 20 * 9, mflop_conv2 = 2e-6 * 81 * 50 * 500,
                    mflop_fc1 = 2e-6 * 800 * 128, mflop_fc2 = 2e-6 * 128 * 10;

static union node_attr conv_attr(enum activation act, int kernel, int64_t image)
{
    return (union node_attr){.conv = {.stride = {1, 1},
                                      .dilation = {1, 1},
                                      .groups = 1,
                                      .act = act,
                                      .kernel = {kernel, kernel},
                                      .in_image = {image, image}}};
}

static union node_attr pool_attr(int64_t image, enum activation act)
{
    return (union node_attr){.pool = {.kind = POOL_AVG,
                                      .kernel = {2, 2},
                                      .stride = {2, 2},
                                      .count_pad = 1,
                                      .in_image = {image, image},
                                      .act = act}};
}

static union node_attr linear_attr(enum activation act, int64_t h, int64_t c)
{
    return (union node_attr){.linear = {.act = act, .image = {h, h, c}}};
}

static void build(struct bench *t)
{
    const union node_attr none = {{{0}}}, relu = {.act.kind = ACT_RELU};
    const int x = input(t, DTYPE_F32, SHAPE(t->batch, 28, 28, 1), "x");
    const int labels = input(t, DTYPE_I32, SHAPE(t->batch), "labels");
    const int w1 = param(t, SHAPE(20, 1, 3, 3), "w1"), b1 = param(t, SHAPE(20), "b1");
    const int w2 = param(t, SHAPE(50, 20, 5, 5), "w2"), b2 = param(t, SHAPE(50), "b2");
    const int w3 = param(t, SHAPE(128, 800), "w3"), b3 = param(t, SHAPE(128), "b3");
    const int w4 = param(t, SHAPE(10, 128), "w4"), b4 = param(t, SHAPE(10), "b4");
    const int flat = param(t, SHAPE(129344), "params"), grads = param(t, SHAPE(129344), "grads");
    const int control = param(t, SHAPE(CONTROL_LEN), "control");
    const int segments = input(t, DTYPE_F64, SHAPE(1, SEGMENT_COLUMNS), "segments");
    const int s = t->g->scalars, m = t->g->metrics;
    int h1, p1, h2, p2, h3, y, d, check;

    h1 = node(t, OP_conv2d, conv_attr(ACT_RELU, 0, 0), IN(x, w1, b1), "conv1", mflop_conv1);
    p1 = node(t, OP_pool2d, pool_attr(0, ACT_NONE), IN(h1), "pool1", 0);
    h2 = node(t, OP_conv2d, conv_attr(ACT_RELU, 0, 0), IN(p1, w2, b2), "conv2", mflop_conv2);
    p2 = node(t, OP_pool2d, pool_attr(0, ACT_NONE), IN(h2), "pool2", 0);
    h3 = node(t, OP_linear, linear_attr(ACT_RELU, 4, 50), IN(p2, w3, b3), "fc1", mflop_fc1);
    y = node(t, OP_linear, linear_attr(ACT_NONE, 0, 0), IN(h3, w4, b4), "fc2", mflop_fc2);
    d = node(t, OP_softmax_xent, none, IN(y, labels, m), "loss", 0);
    d = node(t, OP_softmax_xent_grad, none, IN(d, labels, s), "loss.grad", 0);
    node(t, OP_linear_grad_w, linear_attr(ACT_NONE, 0, 0), IN(h3, d), "fc2.grad_w", mflop_fc2);
    d = node(t, OP_linear_grad_x, linear_attr(ACT_NONE, 0, 0), IN(w4, d), "fc2.grad_x", mflop_fc2);
    d = node(t, OP_activation_grad, relu, IN(NO_VALUE, h3, d), "relu3.grad", 0);
    node(t, OP_linear_grad_w, linear_attr(ACT_NONE, 4, 50), IN(p2, d), "fc1.grad_w", mflop_fc1);
    d = node(t, OP_linear_grad_x, linear_attr(ACT_NONE, 4, 50), IN(w3, d), "fc1.grad_x", mflop_fc1);
    d = node(t, OP_pool2d_grad, pool_attr(9, ACT_RELU), IN(d, NO_VALUE, h2), "pool2.grad", 0);
    node(t, OP_conv2d_grad_w, conv_attr(ACT_NONE, 5, 0), IN(p1, d), "conv2.grad_w", mflop_conv2);
    d = node(t, OP_conv2d_grad_x, conv_attr(ACT_NONE, 0, 13), IN(w2, d), "conv2.grad_x",
             mflop_conv2);
    d = node(t, OP_pool2d_grad, pool_attr(26, ACT_RELU), IN(d, NO_VALUE, h1), "pool1.grad", 0);
    node(t, OP_conv2d_grad_w, conv_attr(ACT_NONE, 3, 0), IN(x, d), "conv1.grad_w", mflop_conv1);
    check = node(t, OP_grad_check, none, IN(grads), "grad_check", 0);
    node(t, OP_sgd, none, IN(flat, grads, check, control, s, segments), "sgd", 0);
}

static void fill(struct bench *t, int id)
{
    const struct value *v = &t->g->value[id];
    const int64_t n = shape_elements(&v->shape);
    float *to = t->value[id];

    if (!strcmp(v->name, "segments"))
        memcpy(t->value[id], (const double[SEGMENT_COLUMNS]){129344, 1, 0},
               sizeof(double[SEGMENT_COLUMNS]));
    if (v->dtype == DTYPE_F32 && v->producer < 0 && strcmp(v->name, "control"))
        for (int64_t i = 0; i < n; i++)
            to[i] = 0.1f * ((float)(i * 7919 % 1009) / 504.5f - 1.0f);
}

/* For "oneDNN alone": with fewer samples than threads the backend leaves convolutions to oneDNN. */
static struct kernel *make(struct bench *t, const struct node *n)
{
    struct cpu *b = container_of(t->b, struct cpu, base);
    struct kernel *k;
    struct err err;

    if (t->onednn_alone &&
        (n->op == OP_conv2d || n->op == OP_conv2d_grad_x || n->op == OP_conv2d_grad_w))
        b->n_threads = (int)t->batch + 1;
    need(backend_make_kernel(t->b, t->g, n, &k, &err), &err);
    b->n_threads = t->n_threads;
    return k;
}

static void prepare(struct bench *t)
{
    size_t scratch_bytes = 64;
    void *scratch;
    struct err err;

    t->value = xcalloc((size_t)t->g->n_values, sizeof *t->value);
    for (int i = 0; i < t->g->n_values; i++) {
        const struct value *v = &t->g->value[i];

        need(try_alloc(&t->value[i], (size_t)shape_elements(&v->shape) * dtype_size(v->dtype) + 64,
                       v->name, &err),
             &err);
        fill(t, i);
    }
    for (int k = 0; k < t->g->n_nodes; k++) {
        t->kernel[k] = make(t, &t->g->node[k]);
        if (t->kernel[k]->scratch_bytes > scratch_bytes)
            scratch_bytes = t->kernel[k]->scratch_bytes;
        t->ms[k] = xcalloc((size_t)t->n_steps, sizeof(double));
    }
    need(try_alloc(&scratch, scratch_bytes, "scratch", &err), &err);
    for (int k = 0; k < t->g->n_nodes; k++) {
        void *in[NODE_MAX_IN], *out[NODE_MAX_OUT];

        for (int i = 0; i < NODE_MAX_IN; i++)
            in[i] = t->g->node[k].in[i] == NO_VALUE ? NULL : t->value[t->g->node[k].in[i]];
        for (int i = 0; i < NODE_MAX_OUT; i++)
            out[i] = t->g->node[k].out[i] == NO_VALUE ? NULL : t->value[t->g->node[k].out[i]];
        need(t->kernel[k]->ops->bind(t->kernel[k], in, out, scratch, &err), &err);
    }
}

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(struct bench *t, int k)
{
    qsort(t->ms[k], (size_t)t->n_steps, sizeof(double), by_size);
    return t->ms[k][t->n_steps / 2];
}

static void report(struct bench *ours, struct bench *onednn)
{
    double total[2] = {0};

    printf("%-14s %21s %24s\n", "", "ours", "oneDNN alone");
    for (int k = 0; k < ours->g->n_nodes; k++) {
        const double ms[2] = {median(ours, k), median(onednn, k)};

        printf("%-14s", ours->g->node[k].name);
        for (int i = 0; i < 2; i++) {
            total[i] += ms[i];
            printf(" %8.3f ms", ms[i]);
            if (ours->flop[k] > 0)
                printf(" %6.1f GF/s", ours->flop[k] / ms[i] * 1e-6);
            else
                printf(" %11s", "");
        }
        printf("\n");
    }
    for (int i = 0; i < 2; i++)
        printf("%s: sum of medians %.3f ms, %.0f samples/s\n", i ? "oneDNN alone" : "ours",
               total[i], (double)ours->batch / total[i] * 1e3);
}

static void step(struct bench *t, int i)
{
    struct err err;

    for (int k = 0; k < t->g->n_nodes; k++) {
        const double start = now_ms(t);

        need(t->kernel[k]->ops->run(t->kernel[k], &err), &err);
        if (i >= 0)
            t->ms[k][i] = now_ms(t) - start;
    }
}

int main(int argc, char **argv)
{
    struct bench t[2];
    struct err err;

    for (int i = 0; i < 2; i++) {
        t[i] = (struct bench){.batch = argc > 1 ? atoi(argv[1]) : 256,
                              .n_threads = argc > 2 ? atoi(argv[2]) : 1,
                              .n_steps = argc > 3 ? atoi(argv[3]) : 50,
                              .onednn_alone = i == 1};
        need(backend_open_cpu(t[i].n_threads, &t[i].b, &err), &err);
        t[i].g = graph_new(t[i].batch, 1);
        build(&t[i]);
        prepare(&t[i]);
    }
    for (int i = -3; i < t[0].n_steps; i++) {
        step(&t[0], i);
        step(&t[1], i);
    }
    report(&t[0], &t[1]);
    return 0;
}
