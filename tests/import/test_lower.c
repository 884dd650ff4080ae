/* test_lower - foreign networks become graphs of ours: the operators that stand there, the batch
 * found in sizes that the file has as numbers, values changed in place, and what is refused. */
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "import/lower.h"
#include "op/op.h"
#include "text_network.h"

static struct err lower_err;

/* Lower the text for this batch; the input "x" has the shape of the network, images channels last.
 * NULL: it failed. */
static struct graph *lowered(const char *text, int64_t batch, int training, int *outputs)
{
    struct import_network *n = text_network(text);
    struct graph *g = graph_new(batch, training);
    struct net m = {.g = g, .h = NO_VALUE, .err = &lower_err};
    const struct import_value *v = &n->value[n->input[0].value];
    struct shape s = {.n = v->n_dims};
    int input[1];
    const struct import_choices c = {.input = input, .dropout = -1};

    for (int d = 0; d < v->n_dims; d++)
        s.dim[d] = v->dim[v->n_dims == 4 ? (const int[]){0, 2, 3, 1}[d] : d];
    s.dim[0] = batch;
    input[0] = graph_input(g, v->type == IMPORT_I32 ? DTYPE_I32 : DTYPE_F32, s, "x");
    if (import_lower(&m, n, &c, outputs) < 0) {
        graph_free(g);
        g = NULL;
    }
    import_network_free(n);
    return g;
}

static void expect_ops(const struct graph *g, const char *ops)
{
    struct buf seen = {0};

    for (int k = 0; k < g->n_nodes; k++)
        buf_printf(&seen, "%s%s", k ? " " : "", op_get(g->node[k].op)->name);
    assert_string_equal(buf_cstr(&seen), ops);
    buf_fini(&seen);
}

#define BLOCK                                                                                \
    "tensor c.weight p F32 1 [8,3,3,3]\nvalue w F32 [8,3,3,3] of c.weight\n"                 \
    "tensor b.weight p F32 1 [8]\nvalue g F32 [8] of b.weight\n"                             \
    "tensor b.bias p F32 1 [8]\nvalue o F32 [8] of b.bias\n"                                 \
    "tensor b.running_mean b F32 0 [8]\nvalue m F32 [8] of b.running_mean\n"                 \
    "tensor b.running_var b F32 0 [8]\nvalue s F32 [8] of b.running_var\n"                   \
    "tensor b.num_batches_tracked b I64 0 [] = 0\nvalue t I64 [] of b.num_batches_tracked\n" \
    "value x F32 [2,3,6,6]\nvalue t1 I64 []\nvalue y F32 [2,8,6,6]\nvalue n F32 [2,8,6,6]\n" \
    "value r F32 [2,8,6,6]\nvalue d F32 [2,8,6,6]\nvalue f F32 [2,288]\n"                    \
    "node conv2d.default c input=vx weight=vw bias=n stride=I1,1 padding=I1,1 -> y\n"        \
    "node add_.Tensor b self=vt other=i1 -> t1\n"                                            \
    "node batch_norm.default b input=vy weight=vg bias=vo running_mean=vm running_var=vs "   \
    "training=f1 momentum=r0.1 eps=r0.001 cudnn_enabled=f0 -> n\n"                           \
    "node relu_.default a self=vn -> r\n"                                                    \
    "node dropout.default d input=vr p=r0.5 train=f1 -> d\n"                                 \
    "node flatten.using_ints - self=vd start_dim=i1 -> f\ninput x x\noutput y f\n"

static void test_block(void **state)
{
    int out[1];
    struct graph *g = lowered(BLOCK, 5, 1, out);

    (void)state;
    assert_non_null(g);
    expect_ops(g, "conv2d batch_norm_stats batch_norm activation dropout flatten");
    assert_true(shape_equal(&g->value[out[0]].shape, &SHAPE(5, 288)));
    assert_true(g->node[2].attr.norm.eps == 0.001F);
    assert_non_null(graph_find(g, "b.running_var"));
    assert_null(graph_find(g, "b.num_batches_tracked"));
    graph_free(g);
    g = lowered(BLOCK, 0, 0, out); /* evaluation, and a rank without samples */
    assert_non_null(g);
    expect_ops(g, "conv2d batch_norm_infer activation flatten");
    graph_free(g);
}

/* A class token is expanded to the batch of the export, 2, and joined; a view then has the numbers
 * 2 and 2 * 5. */
#define TOKENS                                                                                    \
    "tensor token p F32 1 [1,1,4]\nvalue k F32 [1,1,4] of token\n"                                \
    "value x F32 [2,4,2,2]\nvalue p F32 [2,4,4]\nvalue q F32 [2,4,4]\nvalue e F32 [2,1,4]\n"      \
    "value c F32 [2,5,4]\nvalue v F32 [10,4]\nvalue u F32 [2,5,4]\nvalue z F32 [2,4]\n"           \
    "node view.default - self=vx size=I2,4,4 -> p\n"                                              \
    "node permute.default - self=vp dims=I0,2,1 -> q\n"                                           \
    "node expand.default - self=vk size=I2,-1,-1 -> e\n"                                          \
    "node cat.default - tensors=Ve,q dim=i1 -> c\n"                                               \
    "node view.default - self=vc size=I10,4 -> v\nnode view.default - self=vv size=I2,5,4 -> u\n" \
    "node select.int - self=vu dim=i1 index=i0 -> z\ninput x x\noutput y z\n"

static void test_batch(void **state)
{
    int out[1];
    struct graph *a = lowered(TOKENS, 3, 1, out), *b;

    (void)state;
    assert_non_null(a);
    assert_true(shape_equal(&a->value[out[0]].shape, &SHAPE(3, 4)));
    for (int k = 0; k < a->n_nodes; k++) /* the image lies as rows already */
        assert_int_not_equal(a->node[k].op, OP_permute);
    b = lowered(TOKENS, 7, 1, out);
    assert_int_equal(import_same_but_batch(a, b, &lower_err), 0);
    b->value[out[0]].shape.dim[1] = 5;
    assert_int_equal(import_same_but_batch(a, b, &lower_err), ERR_UNSUPPORTED);
    graph_free(a);
    graph_free(b);
}

/* The batch stands inside the tokens: [T,N,C] becomes rows [T*N,C], and again [T,N,C]. */
#define INNER                                                                            \
    "value x F32 [2,3,4]\nvalue p F32 [3,2,4]\nvalue v F32 [6,4]\nvalue u F32 [3,2,4]\n" \
    "value z F32 [2,3,4]\nnode permute.default - self=vx dims=I1,0,2 -> p\n"             \
    "node reshape.default - self=vp shape=I6,4 -> v\n"                                   \
    "node view.default - self=vv size=I3,2,4 -> u\n"                                     \
    "node transpose.int - self=vu dim0=i0 dim1=i1 -> z\ninput x x\noutput y z\n"

static void test_inner_batch(void **state)
{
    int out[1];
    struct graph *g = lowered(INNER, 5, 1, out);

    (void)state;
    if (!g)
        fail_msg("%s", lower_err.msg);
    assert_true(shape_equal(&g->value[out[0]].shape, &SHAPE(5, 3, 4)));
    graph_free(g);
}

/* x * rsqrt(mean(x^2) + eps), then times 1 + w; and x / 2 * (1 + tanh(..)) of it. */
#define RMS_NORM                                                                                \
    "tensor w p F32 1 [4]\nvalue w F32 [4] of w\nvalue x F32 [2,3,4]\nvalue p F32 [2,3,4]\n"    \
    "value m F32 [2,3,1]\nvalue e F32 [2,3,1]\nvalue r F32 [2,3,1]\nvalue n F32 [2,3,4]\n"      \
    "value o F32 [4]\nvalue y F32 [2,3,4]\nnode pow.Tensor_Scalar - self=vx exponent=i2 -> p\n" \
    "node mean.dim - self=vp dim=I-1 keepdim=f1 -> m\n"                                         \
    "node add.Tensor - self=vm other=r1e-6 -> e\nnode rsqrt.default - self=ve -> r\n"           \
    "node mul.Tensor - self=vx other=vr -> n\nnode add.Tensor - self=vw other=r1.0 -> o\n"      \
    "node mul.Tensor - self=vo other=vn -> y\ninput x x\noutput y y\n"
#define GELU                                                                                    \
    "value x F32 [2,4]\nvalue h F32 [2,4]\nvalue p F32 [2,4]\nvalue q F32 [2,4]\n"              \
    "value s F32 [2,4]\nvalue u F32 [2,4]\nvalue t F32 [2,4]\nvalue g F32 [2,4]\n"              \
    "value y F32 [2,4]\nnode mul.Tensor - self=vx other=r0.5 -> h\n"                            \
    "node pow.Tensor_Scalar - self=vx exponent=r3.0 -> p\n"                                     \
    "node mul.Tensor - self=vp other=r0.044715 -> q\nnode add.Tensor - self=vx other=vq -> s\n" \
    "node mul.Tensor - self=vs other=r%s -> u\nnode tanh.default - self=vu -> t\n"              \
    "node add.Tensor - self=vt other=r1.0 -> g\nnode mul.Tensor - self=vh other=vg -> y\n"      \
    "input x x\noutput y y\n"

/* The operator that makes the network's output. */
static void expect_last(const char *text, enum op op)
{
    int out[1];
    struct graph *g = lowered(text, 3, 1, out);

    if (!g)
        fail_msg("%s", lower_err.msg);
    assert_string_equal(op_get(g->node[g->value[out[0]].producer].op)->name, op_get(op)->name);
    graph_free(g);
}

/* x times the sigmoid of t, which is x or another view of it; g is that gate, or what is left of it
 * without a gradient. */
#define SILU                                                          \
    "value x F32 [2,3,3]\nvalue t F32 [2,3,3]\nvalue s F32 [2,3,3]\n" \
    "value g F32 [2,3,3]\nvalue y F32 [2,3,3]\nnode %s -> t\n"        \
    "node sigmoid.default - self=vt -> s\nnode %s -> g\n"             \
    "node mul.Tensor - self=vx other=vg -> y\ninput x x\noutput y y\n"

/* Tokens and positions, which begin at START. */
#define POSITIONS                                                                                \
    "tensor t p F32 1 [5,8]\nvalue t F32 [5,8] of t\ntensor p p F32 1 [6,8]\n"                   \
    "value p F32 [6,8] of p\nvalue x I32 [2,4]\nvalue e F32 [2,4,8]\nvalue i I64 [4]\n"          \
    "value j I64 [1,4]\nvalue f F32 [1,4,8]\nvalue y F32 [2,4,8]\n"                              \
    "node embedding.default - weight=vt indices=vx -> e\n"                                       \
    "node arange.start - start=i%d end=i%d -> i\nnode unsqueeze.default - self=vi dim=i0 -> j\n" \
    "node embedding.default - weight=vp indices=vj -> f\n"                                       \
    "node add.Tensor - self=vf other=ve -> y\ninput x x\noutput y y\n"

/* The positions run along the first dimension, which is as long as the batch here. */
#define TIME_FIRST                                                                             \
    "tensor t p F32 1 [5,8]\nvalue t F32 [5,8] of t\ntensor p p F32 1 [6,8]\n"                 \
    "value p F32 [6,8] of p\nvalue x I32 [2,3]\nvalue u I32 [3,2]\nvalue e F32 [3,2,8]\n"      \
    "value i I64 [3]\nvalue j I64 [3,1]\nvalue f F32 [3,1,8]\nvalue y F32 [3,2,8]\n"           \
    "value z F32 [2,3,8]\nnode t.default - self=vx -> u\n"                                     \
    "node embedding.default - weight=vt indices=vu -> e\n"                                     \
    "node arange.start - start=i0 end=i3 -> i\nnode unsqueeze.default - self=vi dim=i1 -> j\n" \
    "node embedding.default - weight=vp indices=vj -> f\n"                                     \
    "node add.Tensor - self=vf other=ve -> y\n"                                                \
    "node transpose.int - self=vy dim0=i0 dim1=i1 -> z\ninput x x\noutput y z\n"

static void test_recognised(void **state)
{
    char text[2048];
    struct graph *g;
    int out[1];

    (void)state;
    expect_last(RMS_NORM, OP_rms_norm);
    snprintf(text, sizeof text, GELU, "0.7978845608028654");
    expect_last(text, OP_activation);
    snprintf(text, sizeof text, GELU, "0.798"); /* another function */
    expect_last(text, OP_elementwise);
    snprintf(text, sizeof text, SILU, "alias.default - self=vx", "alias.default - self=vs");
    expect_last(text, OP_activation);
    snprintf(text, sizeof text, SILU, "transpose.int - self=vx dim0=i1 dim1=i2",
             "alias.default - self=vs");
    expect_last(text, OP_elementwise);
    snprintf(text, sizeof text, SILU, "alias.default - self=vx", "detach.default - self=vs");
    expect_last(text, OP_elementwise);
    snprintf(text, sizeof text, POSITIONS, 0, 4);
    expect_last(text, OP_reshape); /* of one embedding */
    snprintf(text, sizeof text, POSITIONS, 1, 5);
    expect_last(text, OP_elementwise);
    g = lowered(TIME_FIRST, 3, 1, out); /* a batch of 3, and as many steps */
    assert_non_null(g);
    expect_ops(g, "permute embedding reshape embedding reshape elementwise permute");
    graph_free(g);
}

/* One operator of the exporter, and the operators of ours that stand for it. */
static void test_operators(void **state)
{
    static const struct {
        const char *text, *ops;
    } row[] = {
        {"value x I32 [2,4]\nvalue y BOOL [2,4]\nnode le.Scalar - self=vx other=i3 -> y\n"
         "input x x\noutput y y\n",
         "cast elementwise"},
        {"value x I32 [2,4]\nvalue y F32 [2,4]\nnode to.dtype - self=vx dtype=dF32 -> y\n"
         "input x x\noutput y y\n",
         "cast"},
        {"value x I32 [2,4]\nvalue e F32 [2,4]\nvalue b F32 [2,4]\n"
         "node empty.memory_format - size=I2,4 -> e\nnode bernoulli_.float - self=ve p=r0.3 -> b\n"
         "input x x\noutput y b\n",
         "uniform elementwise"},
        {"value x F32 [2,4]\nvalue e F32 [2,1]\nvalue b F32 [2,1]\nvalue y F32 [2,4]\n"
         "node empty_permuted.default - size=I2,1 physical_layout=I0,1 -> e\n"
         "node bernoulli.p - self=ve p=r0.5 -> b\nnode mul.Tensor - self=vx other=vb -> y\n"
         "input x x\noutput y y\n",
         "dropout elementwise"},
        {"value x F32 [2,4]\nvalue f F32 [2,4]\nvalue g BOOL [2,4]\nvalue y F32 [2,4]\n"
         "node full_like.default - self=vx fill_value=r0.5 -> f\n"
         "node gt.Scalar - self=vx other=r0.0 -> g\n"
         "node where.self - condition=vg self=vf other=vx -> y\ninput x x\noutput y y\n",
         "reshape reshape elementwise elementwise"},
        {"value x I32 [2,4]\nvalue r F32 [2,4]\nnode rand.default - size=I2,4 -> r\n"
         "input x x\noutput y r\n",
         "uniform"},
        {"value x I32 [2,4]\nvalue r F32 [2,6]\nvalue y F32 [2,4]\n"
         "node rand.default - size=I2,6 -> r\nnode gather.default - self=vr dim=i1 index=vx -> y\n"
         "input x x\noutput y y\n",
         "uniform embedding reshape reshape elementwise reduce"},
        {"tensor i b I64 0 [4] = 50256 1 2 257\nvalue i I64 [4] of i\nvalue x I32 [2,4]\n"
         "value y BOOL [2,4]\nnode eq.Tensor - self=vx other=vi -> y\ninput x x\noutput y y\n",
         "reshape expand integers cast elementwise"}, /* exact, in every precision */
    };
    int out[1];

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct graph *g = lowered(row[i].text, 3, 1, out);

        if (!g)
            fail_msg("row %zu: %s", i, lower_err.msg);
        expect_ops(g, row[i].ops);
        graph_free(g);
    }
}

/* The values of networks that mix samples. */
#define MIXED                                                                           \
    "value x F32 [2,4]\nvalue v F32 [2,4]\nvalue s F32 []\nvalue t F32 [4,2]\n"         \
    "value q F32 [4,4]\nvalue n F32 [2,2]\nvalue u F32 [1,2,4]\nvalue u2 F32 [1,2,4]\n" \
    "input x x\n"

/* Whole numbers, and indices of which i turns the batch round. */
#define WHOLE                                                                      \
    "tensor i b I64 0 [2,1] = 1 0\nvalue i I64 [2,1] of i\n"                       \
    "tensor j b I64 0 [1,4] = 0 1 2 3\nvalue j I64 [1,4] of j\n"                   \
    "value x I32 [2,4]\nvalue v I64 [2,4]\nvalue w I64 [2,4]\nvalue c I64 [2,4]\n" \
    "value b BOOL [2,4]\nvalue r BOOL [2,4]\ninput x x\n"

static void test_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"value x F32 [2,4]\nvalue v F32 [4,2]\nvalue r F32 [2,4]\nvalue s F32 [4,2]\n"
         "node view.default - self=vx size=I4,2 -> v\nnode relu_.default - self=vx -> r\n"
         "node exp.default m self=vv -> s\ninput x x\noutput y s\n",
         "node s (exp.default) in m: it reads v, which shares its memory"},
        {"value x F32 [2,4]\nvalue v F32 [1,4]\n"
         "node slice.Tensor - self=vx dim=i0 start=i0 end=i1 -> v\ninput x x\noutput y v\n",
         "the network depends on the batch of its export, 2"},
        {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode foo.default - self=vx -> v\ninput x x\n"
         "output y v\n",
         "node v (foo.default) in the network itself: this operator is not supported"},
        {"value x F32 [2,4]\nvalue v F32 [4]\nnode mean.dim - self=vx dim=I0 -> v\ninput x x\n"
         "output y v\n",
         "it reduces dimension 0, the batch"},
        {MIXED "node softmax.int - self=vx dim=i0 -> v\noutput y v\n",
         "(softmax.int) in the network itself: it normalises dimension 0, the batch"},
        {MIXED "node cumsum.default - self=vx dim=i0 -> v\noutput y v\n",
         "it scans dimension 0, the batch"},
        {MIXED "node mean.default - self=vx -> s\nnode sub.Tensor - self=vx other=vs -> v\n"
               "output y v\n",
         "node v (sub.Tensor) in the network itself: it joins samples with a number that was "
         "computed from all of them"},
        {MIXED "node permute.default - self=vx dims=I1,0 -> t\n"
               "node matmul.default - self=vt other=vx -> q\n"
               "node matmul.default - self=vx other=vq -> v\noutput y v\n",
         "node q (matmul.default) in the network itself: it sums over dimension 1, the batch"},
        {MIXED "node permute.default - self=vx dims=I1,0 -> t\n"
               "node mm.default - self=vx mat2=vt -> n\noutput y n\n",
         "has the batch in 2 dimensions"},
        {MIXED "node linear.default - input=vx weight=vx -> n\noutput y n\n",
         "it has weights with dimension 0, the batch"},
        {MIXED "node einsum.default - equation=tbi,bj->ij tensors=Vx,x -> q\noutput y q\n",
         "it sums over dimension 0, the batch"},
        {MIXED "node einsum.default - equation=tbi,cj->bc tensors=Vx,x -> n\noutput y n\n",
         "has the batch in 2 dimensions"},
        {MIXED "node layer_norm.default - input=vx normalized_shape=I2,4 -> v\noutput y v\n",
         "it normalises dimension 0, the batch"},
        {MIXED "node unsqueeze.default - self=vx dim=i0 -> u\n"
               "node scaled_dot_product_attention.default - query=vu key=vu value=vu -> u2\n"
               "output y u2\n",
         "it combines dimension 2, the batch"},
        {"tensor m b F32 0 [4]\nvalue m F32 [4] of m\nvalue x F32 [2,4]\nvalue c F32 [4]\n"
         "node copy_.default - self=vm src=vx -> c\ninput x x\noutput y x\n",
         "it changes m, a buffer, in place"},
        {MIXED "node index_select.default - self=vx dim=i0 index=vx -> v\noutput y v\n",
         "it takes elements of dimension 0, the batch"},
        {WHOLE "node add.Tensor - self=vx other=i1 -> v\noutput y v\n",
         "it computes with whole numbers of the samples, whose result could leave 31 bits"},
        {WHOLE "node cumsum.default - self=vx dim=i1 -> v\noutput y v\n",
         "it adds up whole numbers of the samples, whose sum could leave 31 bits"},
        {WHOLE "node ne.Scalar - self=vx other=i0 -> b\nnode to.dtype - self=vb -> c\n"
               "node mul.Tensor - self=vc other=i1073741824 -> w\n"
               "node mul.Tensor - self=vw other=i2 -> v\noutput y v\n",
         "its whole numbers are from 0 to 2147483648, want -2147483648 to 2147483647"},
        {WHOLE "value k U8 [2,4]\nnode ne.Scalar - self=vx other=i0 -> b\n"
               "node add.Tensor - self=vb other=i255 -> k\noutput y k\n",
         "its whole numbers are from 255 to 256, want 0 to 255"},
        {WHOLE "node ne.Scalar - self=vx other=i0 -> b\n"
               "node index.Tensor - self=vb indices=Vi,j -> r\noutput y r\n",
         "it picks elements of dimension 0, the batch"},
        {"tensor e p F32 1 [3,4]\nvalue e F32 [3,4] of e\ntensor i b I64 0 [2] = 0 3\n"
         "value i I64 [2] of i\nvalue x F32 [2,4]\nvalue y F32 [2,4]\n"
         "node embedding.default - weight=ve indices=vi -> y\ninput x x\noutput y y\n",
         "index 3 of an extent of 3"},
        {MIXED "node detach_.default - self=vx -> v\noutput y v\n",
         "it cuts the gradient of a tensor in place"},
        {MIXED "node roll.default - self=vx shifts=I1 dims=I0 -> v\noutput y v\n",
         "it rolls dimension 0, the batch"},
        {"tensor w p F32 1 [9,4]\nvalue w F32 [9,4] of w\nvalue x I32 [2,3]\n"
         "value y F32 [2,3,4]\nnode embedding.default - weight=vw indices=vx padding_idx=i-1 "
         "scale_grad_by_freq=f1 -> y\ninput x x\noutput y y\n",
         "scale_grad_by_freq divides gradients by the counts in a batch"},
        {"tensor w p F32 1 [9,4]\nvalue w F32 [9,4] of w\nvalue x I32 [2,3]\n"
         "value y F32 [2,3,4]\nnode embedding.default - weight=vw indices=vx padding_idx=i-1 "
         "scale_grad_by_freq=f0 sparse=f1 -> y\ninput x x\noutput y y\n",
         "want an embedding with sparse=False"},
        {MIXED "value e F32 [2]\nvalue b F32 [2]\nnode empty.memory_format - size=I2 -> e\n"
               "node bernoulli_.float - self=ve p=r0.5 -> b\n"
               "node mul.Tensor - self=vx other=vb -> v\noutput y v\n",
         "random numbers of 1 dimensions for the samples meet a tensor of 2"},
        {MIXED "value e F32 [2,1]\nnode empty.memory_format - size=I2,1 -> e\n"
               "node mul.Tensor - self=vx other=ve -> v\noutput y v\n",
         "it multiplies or divides random numbers before they are 0 or 1"},
    };
    int out[1];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(lowered(bad[i].text, 3, 1, out));
        if (!strstr(lower_err.msg, bad[i].why))
            fail_msg("\"%s\", want \"%s\"", lower_err.msg, bad[i].why);
    }
}

/* The numbers of a draw are the same wherever it is read, and windows of a sample have rows. */
static void test_draws(void **state)
{
    static const char twice[] =
        "value x F32 [2,4]\nvalue e F32 [2,1]\nvalue b F32 [2,1]\nvalue d F32 [2,1]\n"
        "value y F32 [2,4]\nvalue z F32 [2,4]\nvalue w F32 [2,4]\nvalue z2 F32 [2,4]\n"
        "node empty.memory_format - size=I2,1 -> e\nnode bernoulli_.float - self=ve p=r0.5 -> b\n"
        "node div_.Scalar - self=vb other=r0.5 -> d\nnode mul.Tensor - self=vx other=vd -> y\n"
        "node relu.default - self=vx -> z\nnode mul.Tensor - self=vd other=vz -> w\n"
        "node dropout.default - input=vw p=r0.5 train=f1 -> z2\ninput x x\n"
        "output y y\noutput z z2\n",
                      windows[] = "value x F32 [2,6,4]\nvalue v F32 [4,1,3,4]\n"
                                  "value y F32 [4,1,3,4]\nvalue z F32 [2,6,4]\n"
                                  "node view.default - self=vx size=I4,1,3,4 -> v\n"
                                  "node scaled_dot_product_attention.default - query=vv key=vv "
                                  "value=vv attn_mask=n dropout_p=r0.5 -> y\n"
                                  "node view.default - self=vy size=I2,6,4 -> z\n"
                                  "input x x\noutput y z\n";
    int out[2], n = 0;
    const struct node *drop[3] = {0};
    struct graph *g = lowered(twice, 3, 1, out);

    (void)state;
    if (!g)
        fail_msg("%s", lower_err.msg);
    for (int k = 0; k < g->n_nodes; k++)
        if (g->node[k].op == OP_dropout && n < 3)
            drop[n++] = &g->node[k];
    assert_int_equal(n, 3);
    assert_int_equal(drop[0]->attr.dropout.tag, drop[1]->attr.dropout.tag);
    assert_int_not_equal(drop[0]->attr.dropout.tag, drop[2]->attr.dropout.tag);
    graph_free(g);
    g = lowered(windows, 3, 1, out);
    if (!g)
        fail_msg("%s", lower_err.msg);
    for (int k = 0; k < g->n_nodes; k++)
        if (g->node[k].op == OP_dropout)
            assert_int_equal(g->node[k].attr.dropout.rows, 2);
    expect_ops(g, "reshape elementwise reshape reshape matmul reshape softmax dropout reshape "
                  "reshape matmul reshape reshape");
    graph_free(g);
}

/* Networks of one input x [2,4], and their tensors. */
#define OWN                                                                                       \
    "tensor b b F32 0 [4] = 1 2 3 4\nvalue b F32 [4] of b\n"                                      \
    "tensor w p F32 1 [4]\nvalue w F32 [4] of w\n"                                                \
    "tensor t b F32 0 [4] = 1 2 3 4\nvalue t F32 [4] of t\ntied t w\n"                            \
    "tensor c c I64 0 [2] = -1 4\nvalue c I64 [2] of c\n"                                         \
    "tensor n.num_batches_tracked b I64 0 [] = 0\nvalue n I64 [] of n.num_batches_tracked\n"      \
    "value x F32 [2,4]\nvalue f BOOL [2,4]\nvalue m I64 []\nvalue h F32 [4]\nvalue y F32 [2,4]\n" \
    "value u F32 [2,2]\nvalue v F32 [2,2]\nvalue z F32 [2,2]\nvalue i I64 [2,4]\n"                \
    "value j I64 [2,4]\nvalue q F32 [2]\nvalue k F32 [4]\nvalue l F32 [2]\ninput x x\n"

/* Values that share memory with a changed tensor are right or refused by name. */
static void test_shared(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {OWN "node mul_.Tensor - self=vb other=r0.9 -> h\noutput y x\n",
         "it changes b, a buffer, in place"},
        {OWN "node alias.default - self=vw -> h\nnode zero_.default - self=vh -> k\noutput y x\n",
         "it changes w, a parameter, in place"},
        {OWN "node add_.Tensor - self=vn other=i1 -> m\noutput y x\n",
         "it changes n.num_batches_tracked, a buffer, in place"},
        {OWN "node mul.Tensor - self=vx other=vt -> y\noutput y y\n",
         "it reads t, a buffer in the memory of a trained parameter"},
        {OWN "node slice.Tensor - self=vx dim=i1 start=i0 end=i2 -> u\n"
             "node slice.Tensor - self=vx dim=i1 start=i1 end=i3 -> v\n"
             "node zero_.default - self=vu -> z\nnode exp.default - self=vv -> z2\noutput y z2\n",
         "it reads v, which shares its memory"},
        {OWN "node gt.Scalar - self=vx other=r0.0 -> f\nnode to.dtype - self=vf dtype=dI64 -> i\n"
             "node bitwise_not.default - self=vi -> j\noutput y j\n",
         "it works on the bits of I64"},
        {OWN "node arange.default - end=i2 -> r\nnode unsqueeze.default - self=vr dim=i1 -> r1\n"
             "node mul.Tensor - self=vx other=vr1 -> y\noutput y y\n",
         "the network depends on the batch of its export, 2"},
        {OWN "node index.Tensor - self=vw indices=Vc -> q\noutput y q\n",
         "index 4 of an extent of 4"},
    };
    int out[1];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[4096];

        snprintf(text, sizeof text, "value z2 F32 [2,2]\nvalue r I64 [2]\nvalue r1 I64 [2,1]\n%s",
                 bad[i].text);
        assert_null(lowered(text, 3, 1, out));
        if (!strstr(lower_err.msg, bad[i].why))
            fail_msg("\"%s\", want \"%s\"", lower_err.msg, bad[i].why);
    }
}

/* d is h without its gradient. */
#define HIDDEN                                                                     \
    "value x F32 [2,4]\nvalue h F32 [2,4]\nvalue d F32 [2,4]\nvalue r F32 [2,4]\n" \
    "value v F32 [2,4]\nnode tanh.default - self=vx -> h\nnode detach.default - self=vh -> d\n"
#define DONE "input x x\noutput y v\n"

/* A GRU with parameters hh, of `layers` layers. */
#define GRU(hh, x, layers)                                                                     \
    "tensor i p F32 1 [6,3]\nvalue i F32 [6,3] of i\ntensor h p F32 1 " hh "\nvalue h F32 " hh \
    " of h\nvalue x F32 " x "\nvalue s F32 [1,2,2]\nvalue v F32 [2,3,2]\n"                     \
    "node zeros.default - size=I1,2,2 -> s\nnode gru.input - input=vx hx=vs params=Vi,h "      \
    "has_biases=f0 num_layers=" layers " dropout=r0 train=f1 bidirectional=f0 batch_first=f1 " \
    "-> v\ninput x x\noutput y v\n"

/* Only hostile files have these, or wrong builders make them. */
static const struct {
    const char *text, *why;
} bad_files[] = {
    /* what the file says of an output is not what comes out */
    {"value x F32 [2,4]\nvalue v F32 [2,5]\nnode relu.default m self=vx -> v\ninput x x\n"
     "output y v\n",
     "node v (relu.default) in m: its output v comes out as [2,4], but was [2,5] at export"},
    {"value x F32 [2,4]\nvalue v F32 [2,2,2]\nnode relu.default m self=vx -> v\ninput x x\n"
     "output y v\n",
     "comes out as [2,4], but was [2,2,2]"},
    {"value x I32 [2,4]\nvalue v F32 [2,4]\nnode alias.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "its output v comes out as I32, but was F32 at export"},
    {"value x F32 [2,4]\nvalue v F32 [4,2]\nnode relu_.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "it changes x in place, but its output v has another shape"},
    /* an output that builders read is not there */
    {"value x F32 [2,4]\nnode view.default - self=vx size=I2,4 -> -\ninput x x\noutput y x\n",
     "it has no output"},
    {"value x F32 [2,4]\nnode slice.Tensor - self=vx dim=i1 end=i2\ninput x x\noutput y x\n",
     "it has no output"},
    /* numbers and ranks that no export has */
    {"value x F32 [2,4]\nvalue v F32 [2,4]\n"
     "node layer_norm.default - input=vx normalized_shape=I5 -> v\ninput x x\noutput y v\n",
     "it normalises 5 elements of dimension 1, which has 4"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode layer_norm.default - input=vx "
     "normalized_shape=I2,4 -> v\ninput x x\noutput y v\n",
     "it normalises dimension 0, the batch"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode rms_norm.default - input=vx "
     "normalized_shape=I4611686018427387904 -> v\ninput x x\noutput y v\n",
     "normalized_shape is 4611686018427387904, want -2147483647 to 2147483647"},
    {"value x F32 [2,4]\nvalue v F32 [2,1000000004]\nnode pad.default - self=vx "
     "pad=I0,1000000000 mode=treplicate -> v\ninput x x\noutput y v\n",
     "a constant of 1000000004 * 1 elements"},
    {"value x F32 [2,4]\nvalue v F32 [2,8]\n"
     "node pad.default - self=vx pad=I0,4 mode=tmirror -> v\ninput x x\noutput y v\n",
     "its mode is not constant"},
    {"value x F32 [0,4]\nvalue v F32 [0,4]\nnode relu.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "input x of the network was exported with a batch of 0, which cannot be told"},
    {"value x F32 [1,4]\nvalue v F32 [1,4]\nnode relu.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "a batch of 1, which cannot be told from other sizes: export it with 2 samples or more"},
    {"value x F32 [2,4]\nvalue v F32 [2]\nvalue w F32 []\nnode mean.default - self=vx -> w\n"
     "node matmul.default - self=vx other=vw -> v\ninput x x\noutput y v\n",
     "its operands have 2 and 0 dimensions, want 1 and 1 or more"},
    {"value x F32 [2,4]\nvalue v F32 [2]\nnode bmm.default - self=vx mat2=vx -> v\ninput x x\n"
     "output y v\n",
     "its operands have 2 and 2 dimensions, want 3 and 3"},
    {"value x F32 [2,4]\nvalue v F32 [2]\nvalue w F32 []\nnode mean.default - self=vx -> w\n"
     "node addmm.default - self=vx mat1=vx mat2=vw -> v\ninput x x\noutput y v\n",
     "its operands have 2 and 0 dimensions, want 2 and 2"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode einsum.default - equation=tabc,ad->ac "
     "tensors=Vx,x -> v\ninput x x\noutput y v\n",
     "want the letters of two tensors"},
    {"value x F32 [2,4]\nvalue v F32 [2]\nnode select.int - self=vx dim=i1 index=i4 -> v\n"
     "input x x\noutput y v\n",
     "index is 4 of 4"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode squeeze.dim - self=vx dim=i9 -> v\n"
     "input x x\noutput y v\n",
     "dim is 9 of 2"},
    {"tensor w p F32 1 [4,2,3]\nvalue w F32 [4,2,3] of w\nvalue x F32 [2,2,5]\n"
     "value v F32 [2,4,5]\nnode conv1d.default - input=vx weight=vw bias=n stride=I1 "
     "padding=I2147483647 -> v\ninput x x\noutput y v\n",
     "padding is 2147483647, want 0 to 1048576"},
    {"value x F32 [2,3,4,4]\nvalue v F32 [2,3,4,4]\n"
     "node upsample_nearest2d.vec - output_size=I4,4 -> v\ninput x x\noutput y v\n",
     "images [N,C,H,W]"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode add.Tensor - self=vx -> v\ninput x x\n"
     "output y v\n",
     "it lacks an operand"},
    {"tensor e p F32 1 [0,4]\nvalue e F32 [0,4] of e\nvalue x I32 [2]\nvalue v F32 [2,4]\n"
     "node embedding.default - weight=ve indices=vx -> v\ninput x x\noutput y v\n",
     "its table has no rows"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode clamp.default - self=vx min=r2 max=r1 -> v\n"
     "input x x\noutput y v\n",
     "its lower limit 2 is above the upper one, 1"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode elu.default - self=vx input_scale=r2 -> v\n"
     "input x x\noutput y v\n",
     "input_scale is 2, want 1"},
    {"value x F32 [2,4]\nvalue v BOOL [2]\nnode any.dim - self=vx dim=i1 -> v\n"
     "input x x\noutput y v\n",
     "it asks for any of F32"},
    {"value x F32 [2,2]\nvalue v F32 [2,2]\nnode as_strided.default - self=vx size=I2,2 "
     "stride=I1,2 -> v\ninput x x\noutput y v\n",
     "it reads a tensor's memory by strides"},
    /* a GRU of 2 units whose parameters are not as its arguments say */
    {GRU("[6,3]", "[2,3,3]", "i1"), "w is [6,3], want [9,3]"},
    {GRU("[6,2]", "[2,3,3]", "i4611686018427387904"), "want -2147483647 to 2147483647"},
    {GRU("[6,2]", "[2,3,3]", "i2147483647"), "it has 2 parameters in 2147483647 layers, want"},
    {GRU("[6,2]", "[2,3]", "i1"), "its input has 2 dimensions, want 3"},
    {GRU("[6]", "[2,3,3]", "i1"), "weight_hh is [6], want a matrix"},
    /* what an operator in place changed */
    {"value x F32 [2,4]\nvalue v F32 [2,2,2]\nvalue r F32 [2,4]\n"
     "node view.default - self=vx size=I2,2,2 -> v\nnode relu_.default - self=vx -> r\n"
     "input x x\noutput y v\n",
     "it reads v, which shares its memory"},
    {HIDDEN "node relu_.default - self=vh -> r\nnode add.Tensor - self=vd other=vr -> v\n" DONE,
     "it reads d, which shares its memory"},
    {HIDDEN "node relu_.default - self=vd -> r\nnode add.Tensor - self=vh other=vr -> v\n" DONE,
     "it reads h, which shares its memory"},
};

static void test_bad_files(void **state)
{
    int out[1];

    (void)state;
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        assert_null(lowered(bad_files[i].text, 3, 1, out));
        if (!strstr(lower_err.msg, bad_files[i].why))
            fail_msg("\"%s\", want \"%s\"", lower_err.msg, bad_files[i].why);
    }
}

static void test_check(void **state)
{
    struct import_network *n =
        text_network("value x F32 [2,4]\nnode relu.default a self=vx -> x\n"
                     "node foo.default b.c self=vx -> x\nnode foo.default d self=vx -> x\n");
    struct buf missing = {0};

    (void)state;
    assert_int_equal(import_check(n, &missing), 1);
    assert_string_equal(buf_cstr(&missing), "foo.default, 2 of the nodes, the first one in b.c\n");
    buf_fini(&missing);
    import_network_free(n);
}

/* Modules with a number in their name are blocks, and the nodes between them are in none. */
static void test_blocks(void **state)
{
    static const struct {
        const char *module;
        int block;
    } row[] = {{"stem", 0},         {"net2.h.0.norm", 1}, {"net2.h.0", 1},
               {"net2.h.1.a.2", 2}, {"net2.h.1.b.3", 2},  {"net", 0},
               {"layer1.0.c", 3},   {"layer1.1.c", 4},    {"layer2.0.down.0", 5},
               {"e.layer_0.ln", 6}};
    struct buf text = {0};
    struct graph *g;
    int out[1];

    (void)state;
    buf_printf(&text, "value v0 F32 [2,4]\n");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        buf_printf(&text, "value v%zu F32 [2,4]\nnode relu.default %s self=vv%zu -> v%zu\n", i + 1,
                   row[i].module, i, i + 1);
    buf_printf(&text, "input x v0\noutput y v%zu\n", sizeof row / sizeof *row);
    g = lowered(buf_cstr(&text), 3, 1, out);
    assert_non_null(g);
    assert_int_equal(g->n_nodes, sizeof row / sizeof *row);
    for (int k = 0; k < g->n_nodes; k++)
        assert_int_equal(g->node[k].block, row[k].block);
    assert_int_equal(g->block, 0); /* of the losses that follow */
    graph_free(g);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block),       cmocka_unit_test(test_batch),
        cmocka_unit_test(test_inner_batch), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_files),   cmocka_unit_test(test_check),
        cmocka_unit_test(test_shared),      cmocka_unit_test(test_operators),
        cmocka_unit_test(test_recognised),  cmocka_unit_test(test_draws),
        cmocka_unit_test(test_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
