/* test_lower - foreign networks become graphs of ours: the operators that stand there, the batch
 * found in sizes that the file has as numbers, and values changed in place. */
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "import/lower.h"
#include "op/op.h"
#include "text_network.h"

static struct err lower_err;

static struct graph *lowered(const char *text, int64_t batch, int training, int *outputs)
{
    return text_lower(text, batch, training, outputs, &lower_err);
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

/* torch.nn.MultiheadAttention and the sum behind it: heads of the batch are one dimension, and the
 * steps come first. */
#define HEADS                                                                            \
    "tensor w p F32 1 [12,4]\nvalue w F32 [12,4] of w\ntensor b p F32 1 [12]\n"          \
    "value b F32 [12] of b\ntensor o p F32 1 [4,4]\nvalue o F32 [4,4] of o\n"            \
    "value x F32 [2,5,4]\nvalue a F32 [5,2,4]\nvalue l F32 [5,2,12]\n"                   \
    "value u F32 [5,2,3,4]\nvalue i F32 [1,5,2,3,4]\nvalue t F32 [3,5,2,1,4]\n"          \
    "value s F32 [3,5,2,4]\nvalue q0 F32 [5,2,4]\nvalue k0 F32 [5,2,4]\n"                \
    "value v0 F32 [5,2,4]\nvalue q1 F32 [5,4,2]\nvalue k1 F32 [5,4,2]\n"                 \
    "value v1 F32 [5,4,2]\nvalue q2 F32 [4,5,2]\nvalue k2 F32 [4,5,2]\n"                 \
    "value v2 F32 [4,5,2]\nvalue q3 F32 [2,2,5,2]\nvalue k3 F32 [2,2,5,2]\n"             \
    "value v3 F32 [2,2,5,2]\nvalue y F32 [2,2,5,2]\nvalue p F32 [5,2,2,2]\n"             \
    "value r F32 [10,4]\nvalue z F32 [10,4]\nvalue c F32 [5,2,4]\nvalue d F32 [2,5,4]\n" \
    "value e F32 [2,5,4]\nnode transpose.int - self=vx dim0=i1 dim1=i0 -> a\n"           \
    "node linear.default - input=va weight=vw bias=vb -> l\n"                            \
    "node unflatten.int - self=vl dim=i-1 sizes=I3,4 -> u\n"                             \
    "node unsqueeze.default - self=vu dim=i0 -> i\n"                                     \
    "node transpose.int - self=vi dim0=i0 dim1=i-2 -> t\n"                               \
    "node squeeze.dim - self=vt dim=i-2 -> s\n"                                          \
    "node select.int - self=vs dim=i0 index=i0 -> q0\n"                                  \
    "node select.int - self=vs dim=i0 index=i1 -> k0\n"                                  \
    "node select.int - self=vs dim=i0 index=i2 -> v0\n"                                  \
    "node view.default - self=vq0 size=I5,4,2 -> q1\n"                                   \
    "node transpose.int - self=vq1 dim0=i0 dim1=i1 -> q2\n"                              \
    "node view.default - self=vk0 size=I5,4,2 -> k1\n"                                   \
    "node transpose.int - self=vk1 dim0=i0 dim1=i1 -> k2\n"                              \
    "node view.default - self=vv0 size=I5,4,2 -> v1\n"                                   \
    "node transpose.int - self=vv1 dim0=i0 dim1=i1 -> v2\n"                              \
    "node view.default - self=vq2 size=I2,2,5,2 -> q3\n"                                 \
    "node view.default - self=vk2 size=I2,2,5,2 -> k3\n"                                 \
    "node view.default - self=vv2 size=I2,2,5,2 -> v3\n"                                 \
    "node scaled_dot_product_attention.default - query=vq3 key=vk3 value=vv3 -> y\n"     \
    "node permute.default - self=vy dims=I2,0,1,3 -> p\n"                                \
    "node reshape.default - self=vp shape=I10,4 -> r\n"                                  \
    "node linear.default - input=vr weight=vo bias=n -> z\n"                             \
    "node view.default - self=vz size=I5,2,4 -> c\n"                                     \
    "node transpose.int - self=vc dim0=i1 dim1=i0 -> d\n"                                \
    "node add.Tensor - self=vd other=vx -> e\ninput x x\noutput y e\n"

/* The operators that the output is made of, reshapes left out. */
static void expect_needed(const struct graph *g, int output, const char *ops)
{
    char *needed = calloc((size_t)g->n_values, 1);
    struct buf seen = {0};

    needed[output] = 1;
    for (int k = g->n_nodes - 1; k >= 0; k--) {
        const struct node *n = &g->node[k];

        if (!needed[n->out[0]])
            continue;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i] != NO_VALUE)
                needed[n->in[i]] = 1;
        if (n->op != OP_reshape)
            buf_printf(&seen, "%s%s", seen.len ? " " : "", op_get(n->op)->name);
    }
    assert_string_equal(buf_cstr(&seen), ops);
    buf_fini(&seen);
    free(needed);
}

/* Attention reads what the layer before wrote, and all values lie as the input does. */
static void test_packed_attention(void **state)
{
    int out[1];
    struct graph *g = lowered(HEADS, 3, 1, out);

    (void)state;
    if (!g)
        fail_msg("%s", lower_err.msg);
    expect_needed(g, out[0], "add linear attention bias linear");
    assert_true(shape_equal(&g->value[out[0]].shape, &SHAPE(3, 5, 4)));
    graph_free(g);
    g = lowered(HEADS, 0, 0, out); /* a rank without samples */
    assert_non_null(g);
    assert_true(shape_equal(&g->value[out[0]].shape, &SHAPE(0, 5, 4)));
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
        cmocka_unit_test(test_block),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_inner_batch),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_recognised),
        cmocka_unit_test(test_packed_attention),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
