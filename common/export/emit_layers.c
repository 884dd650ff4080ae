/* Layers: convolutions, pools, norms, and those of transformers.
 *
 * Graphs come here before program/fuse.c has seen them, so no node has another one's work in it:
 * no activation, no sum, no image of a linear layer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "export/emit.h"

/* ---- windows ---- */

static void emit_pair(struct emit *e, const char *name, const int pair[2])
{
    emit_ints(e, name, (int64_t[]){pair[0], pair[1]}, 2);
}

/* Rows before, columns before, rows after, columns after. */
static void emit_pads(struct emit *e, const int before[2], const int64_t after[2])
{
    emit_ints(e, "pads", (int64_t[]){before[0], before[1], after[0], after[1]}, 4);
}

static void emit_filter(struct emit *e, const struct node *n, const struct shape *w)
{
    emit_ints(e, "kernel_shape", &w->dim[2], 2);
    emit_pair(e, "strides", n->attr.conv.stride);
    emit_pair(e, "dilations", n->attr.conv.dilation);
    emit_int(e, "group", n->attr.conv.groups);
    emit_pads(e, n->attr.conv.pad, (int64_t[]){n->attr.conv.pad[0], n->attr.conv.pad[1]});
}

void emit_conv2d(struct emit *e, const struct node *n)
{
    const char *x = emit_in_form(e, CONV2D_X, FORM_FIRST), *w = emit_in(e, CONV2D_W);
    const char *b = emit_in(e, CONV2D_B), *y;

    b = b ? b : emit_bias_behind(e);
    emit_filter(e, n, emit_shape(e, n->in[CONV2D_W]));
    y = emit_op(e, "Conv", (const char *const[]){x, w, b}, b ? 3 : 2);
    emit_put(e, y, FORM_FIRST);
}

/* A transposed convolution. */
void emit_conv2d_grad_x(struct emit *e, const struct node *n)
{
    const struct shape *w = emit_shape(e, n->in[CONV2D_GRAD_X_W]);
    const struct shape *dy = emit_shape(e, n->in[CONV2D_GRAD_X_DY]);
    const char *x = emit_in_form(e, CONV2D_GRAD_X_DY, FORM_FIRST);
    const char *filter = emit_in(e, CONV2D_GRAD_X_W), *b = emit_bias_behind(e);
    int64_t extra[2];

    for (int i = 0; i < 2; i++)
        extra[i] = n->attr.conv.in_image[i] -
                   ((dy->dim[1 + i] - 1) * n->attr.conv.stride[i] - 2 * n->attr.conv.pad[i] +
                    n->attr.conv.dilation[i] * (w->dim[2 + i] - 1) + 1);
    emit_filter(e, n, w);
    emit_ints(e, "output_padding", extra, 2);
    emit_put(e, emit_op(e, "ConvTranspose", (const char *const[]){x, filter, b}, b ? 3 : 2),
             FORM_FIRST);
}

/* Windows of one element: every stride-th row and column. */
static void emit_stride(struct emit *e, const struct node *n)
{
    const enum form form = emit_made(e, POOL2D_X);
    const int64_t stride[] = {n->attr.pool.stride[0], n->attr.pool.stride[1]};
    const char *x = emit_in_form(e, POOL2D_X, form);

    emit_put(e,
             emit_op(e, "Slice",
                     (const char *const[]){
                         x, emit_list(e, (int64_t[]){0, 0}, 2),
                         emit_list(e, (int64_t[]){INT64_MAX, INT64_MAX}, 2),
                         emit_list(e, (int64_t[]){emit_at(form, 1, 4), emit_at(form, 2, 4)}, 2),
                         emit_list(e, stride, 2)},
                     5),
             form);
}

void emit_pool2d(struct emit *e, const struct node *n)
{
    const struct shape *x = emit_shape(e, n->in[POOL2D_X]), *y = emit_shape(e, n->out[POOL2D_Y]);
    const int *kernel = n->attr.pool.kernel, *pad = n->attr.pool.pad;
    const int is_max = n->attr.pool.kind == POOL_MAX;
    const char *in;
    int64_t after[2];

    if (kernel[0] == 1 && kernel[1] == 1 && pad[0] == 0 && pad[1] == 0) {
        emit_stride(e, n);
        return;
    }
    /* In ceil mode the last window may reach beyond our padding: pad that much instead. */
    for (int i = 0; i < 2; i++) {
        after[i] =
            (y->dim[1 + i] - 1) * n->attr.pool.stride[i] + kernel[i] - x->dim[1 + i] - pad[i];
        after[i] = is_max && after[i] > pad[i] ? after[i] : pad[i];
    }
    in = emit_in_form(e, POOL2D_X, FORM_FIRST);
    emit_pair(e, "kernel_shape", kernel);
    emit_pair(e, "strides", n->attr.pool.stride);
    emit_pads(e, pad, after);
    if (!is_max)
        emit_int(e, "count_include_pad", n->attr.pool.count_pad);
    emit_put(e, emit_1(e, is_max ? "MaxPool" : "AveragePool", in), FORM_FIRST);
}

/* ---- norms ---- */

void emit_batch_norm(struct emit *e, const struct node *n)
{
    const struct shape *s = emit_shape(e, n->in[BATCH_NORM_INFER_X]);
    const enum form form = s->n >= 3 ? FORM_FIRST : FORM_PLAIN;
    const char *in[] = {emit_in_form(e, BATCH_NORM_INFER_X, form),
                        emit_in(e, BATCH_NORM_INFER_WEIGHT), emit_in(e, BATCH_NORM_INFER_BIAS),
                        emit_in(e, BATCH_NORM_INFER_RUNNING_MEAN),
                        emit_in(e, BATCH_NORM_INFER_RUNNING_VAR)};

    emit_float(e, "epsilon", (double)n->attr.norm.eps);
    emit_put(e, emit_op(e, "BatchNormalization", in, 5), form);
}

void emit_layer_norm(struct emit *e, const struct node *n)
{
    const char *in[] = {emit_in(e, LAYER_NORM_X), emit_in(e, LAYER_NORM_WEIGHT),
                        emit_in(e, LAYER_NORM_BIAS)};

    emit_int(e, "axis", -1);
    emit_float(e, "epsilon", (double)n->attr.norm.eps);
    emit_put(e, emit_op(e, "LayerNormalization", in, 3), FORM_PLAIN);
}

/* ONNX has it from opset 23 on. */
void emit_rms_norm(struct emit *e, const struct node *n)
{
    const char *x = emit_in(e, RMS_NORM_X), *weight = emit_in(e, RMS_NORM_WEIGHT), *mean;

    mean = emit_2(e, "Mul", x, x);
    emit_ints(e, "axes", (int64_t[]){-1}, 1);
    emit_int(e, "keepdims", 1);
    mean = emit_1(e, "ReduceMean", mean);
    x = emit_2(e, "Div", x, emit_1(e, "Sqrt", emit_plus(e, mean, (double)n->attr.norm.eps)));
    if (weight && n->attr.norm.one_plus)
        weight = emit_plus(e, weight, 1);
    emit_put(e, weight ? emit_2(e, "Mul", x, weight) : x, FORM_PLAIN);
}

/* x of every pair's other number, with the sign of its sine: of x [..,2,R/2], or [..,R/2,2]. */
static const char *other_of_pairs(struct emit *e, const char *x, int axis)
{
    const char *half[2], *turned;

    for (int64_t i = 0; i < 2; i++)
        half[i] = emit_op(e, "Slice",
                          (const char *const[]){x, emit_list(e, &i, 1),
                                                emit_list(e, (int64_t[]){i + 1}, 1),
                                                emit_list(e, (int64_t[]){axis}, 1)},
                          4);
    turned = emit_1(e, "Neg", half[1]);
    emit_int(e, "axis", axis);
    return emit_2(e, "Concat", turned, half[0]);
}

/* ONNX has it from opset 23 on, with tables of another form. */
void emit_rotary(struct emit *e, const struct node *n)
{
    const struct shape *table = emit_shape(e, n->in[ROTARY_COS]);
    const int64_t T = table->dim[0], half = table->dim[1] / 2, inner = n->attr.rotary.inner;
    const int is_pairs = n->attr.rotary.pairs;
    const int64_t row[2] = {is_pairs ? half : 2, is_pairs ? 2 : half};
    const int64_t whole[] = {-1, T, inner, row[0], row[1]}, spread[] = {T, 1, row[0], row[1]};
    const char *x = emit_to_shape(e, emit_in(e, ROTARY_X), whole, 5);
    const char *cos = emit_to_shape(e, emit_in(e, ROTARY_COS), spread, 4);
    const char *sin = emit_to_shape(e, emit_in(e, ROTARY_SIN), spread, 4), *y;
    int64_t dim[SHAPE_MAX_DIMS];

    if (n->attr.rotary.back) { /* a gradient, which a graph for evaluation has none of */
        emit_fail(e, ERR_UNSUPPORTED, "a turn back");
        return;
    }
    y = emit_2(e, "Mul", other_of_pairs(e, x, is_pairs ? 4 : 3), sin);
    y = emit_2(e, "Add", emit_2(e, "Mul", x, cos), y);
    emit_extents(e, n->out[ROTARY_Y], dim);
    emit_put(e, emit_to_shape(e, y, dim, emit_shape(e, n->out[ROTARY_Y])->n), FORM_PLAIN);
}

static const char *filled_vector(struct emit *e, int64_t n, float v)
{
    float *x = xmalloc(sizeof *x * (size_t)n);
    const char *name;

    for (int64_t i = 0; i < n; i++)
        x[i] = v;
    name = emit_floats(e, x, &SHAPE(n));
    free(x);
    return name;
}

/* A group of a sample is a channel of [N,G,..], which an instance norm takes; then the factors of
 * the channels.  (GroupNormalization of opset 18 has factors of groups, that of 21 of channels.) */
void emit_group_norm(struct emit *e, const struct node *n)
{
    const int64_t groups = n->attr.group_norm.groups;
    const struct shape *s = emit_shape(e, n->in[GROUP_NORM_X]);
    const enum form form = s->n >= 3 ? FORM_FIRST : FORM_PLAIN;
    const char *x = emit_in_form(e, GROUP_NORM_X, form), *y, *zeros;
    int64_t dim[SHAPE_MAX_DIMS] = {-1};

    for (int d = 1; d < s->n; d++)
        dim[emit_at(form, d, s->n)] = s->dim[d];
    y = emit_to_shape(e, x, (int64_t[]){0, groups, -1}, 3);
    x = filled_vector(e, groups, 1);
    zeros = filled_vector(e, groups, 0);
    emit_float(e, "epsilon", (double)n->attr.group_norm.eps);
    x = emit_3(e, "InstanceNormalization", y, x, zeros);
    y = emit_to_shape(e, x, dim, s->n);
    if (n->n_in > GROUP_NORM_WEIGHT && n->in[GROUP_NORM_WEIGHT] != NO_VALUE)
        y = emit_2(e, "Mul", y, emit_spread(e, GROUP_NORM_WEIGHT, s->n, form));
    if (n->n_in > GROUP_NORM_BIAS && n->in[GROUP_NORM_BIAS] != NO_VALUE)
        y = emit_2(e, "Add", y, emit_spread(e, GROUP_NORM_BIAS, s->n, form));
    emit_put(e, y, form);
}

/* ---- rows ---- */

void emit_linear(struct emit *e, const struct node *n)
{
    const char *x = emit_in(e, LINEAR_X), *w = emit_in(e, LINEAR_W), *b = emit_in(e, LINEAR_B);

    b = b ? b : emit_bias_behind(e);
    emit_int(e, "transB", !n->attr.linear.transposed);
    emit_put(e, emit_op(e, "Gemm", (const char *const[]){x, w, b}, b ? 3 : 2), FORM_PLAIN);
}

/* T x T: 0 where a row may look, -infinity above the diagonal.  The same tensor for all layers. */
static const char *causal_mask(struct emit *e, int64_t length)
{
    char *name = arena_printf(&e->o->arena, "causal_mask/%lld", (long long)length);
    float *mask;

    for (int i = 0; i < e->o->n_tensors; i++)
        if (!strcmp(e->o->tensor[i].name, name))
            return e->o->tensor[i].name;
    mask = arena_alloc(&e->o->arena, sizeof *mask * (size_t)(length * length));
    for (int64_t i = 0; i < length; i++)
        for (int64_t k = i + 1; k < length; k++)
            mask[i * length + k] = -INFINITY;
    onnx_add_tensor(e->o, &(struct onnx_tensor){.name = name,
                                                .type = ONNX_FLOAT,
                                                .shape = SHAPE(length, length),
                                                .n_bytes = sizeof *mask * (size_t)(length * length),
                                                .data = mask});
    return name;
}

/* q, k or v of qkv [3,N,heads,T,D]. */
static const char *attention_part(struct emit *e, const char *qkv, int which)
{
    const int64_t start = which, stop = which + 1;
    const char *in[] = {qkv, emit_list(e, &start, 1), emit_list(e, &stop, 1),
                        emit_list(e, (int64_t[]){0}, 1)};

    return emit_2(e, "Squeeze", emit_op(e, "Slice", in, 4), emit_list(e, (int64_t[]){0}, 1));
}

void emit_attention(struct emit *e, const struct node *n)
{
    const int64_t length = n->attr.attention.length, heads = n->attr.attention.heads;
    const int64_t width = emit_shape(e, n->out[ATTENTION_Y])->dim[1], each = width / heads;
    const char *qkv =
        emit_to_shape(e, emit_in(e, ATTENTION_QKV), (int64_t[]){-1, length, 3, heads, each}, 5);
    const char *q, *k, *v, *p;

    qkv = emit_order(e, qkv, (int64_t[]){2, 0, 3, 1, 4}, 5);
    q = attention_part(e, qkv, 0);
    k = emit_order(e, attention_part(e, qkv, 1), (int64_t[]){0, 1, 3, 2}, 4);
    v = attention_part(e, qkv, 2);
    p = emit_2(e, "MatMul", emit_times(e, q, 1 / sqrt((double)each)), k);
    if (n->attr.attention.causal)
        p = emit_2(e, "Add", p, causal_mask(e, length));
    emit_int(e, "axis", -1);
    p = emit_1(e, "Softmax", p);
    p = emit_2(e, "MatMul", p, v);
    p = emit_order(e, p, (int64_t[]){0, 2, 1, 3}, 4);
    emit_put(e, emit_to_shape(e, p, (int64_t[]){-1, width}, 2), FORM_PLAIN);
}

/* Rows of a table.  A number of the user's that has no row is an error of the program that runs the
 * model; one that the network computes is the nearest one, as here. */
void emit_embedding(struct emit *e, const struct node *n)
{
    const struct shape *table = emit_shape(e, n->in[EMBEDDING_TABLE]);
    const struct shape *tokens = emit_shape(e, n->in[EMBEDDING_TOKENS]);
    const char *rows = emit_in(e, EMBEDDING_TABLE), *at = emit_in(e, EMBEDDING_TOKENS);
    const char *position = emit_in(e, EMBEDDING_POSITION), *y;
    const int64_t zero = 0, length = tokens->n ? tokens->dim[tokens->n - 1] : 1;

    if (!e->value[n->in[EMBEDDING_TOKENS]].is_given) {
        at = emit_2(e, "Max", at, emit_list(e, &zero, 1));
        at = emit_2(e, "Min", at, emit_list(e, (int64_t[]){table->dim[0] - 1}, 1));
    }
    emit_int(e, "axis", 0);
    y = emit_2(e, "Gather", rows, at);
    if (position)
        y = emit_2(e, "Add", y,
                   emit_op(e, "Slice",
                           (const char *const[]){position, emit_list(e, &zero, 1),
                                                 emit_list(e, &length, 1), emit_list(e, &zero, 1)},
                           4));
    emit_put(e, emit_to_shape(e, y, (int64_t[]){-1, table->dim[1]}, 2), FORM_PLAIN);
}

void emit_class_token(struct emit *e, const struct node *n)
{
    const int64_t length = n->attr.class_token.length;
    const int64_t width = emit_shape(e, n->out[CLASS_TOKEN_Y])->dim[1];
    const char *x =
        emit_to_shape(e, emit_in(e, CLASS_TOKEN_X), (int64_t[]){-1, length - 1, width}, 3);
    const char *token = emit_in(e, CLASS_TOKEN_TOKEN), *to;

    to = emit_batch(e);
    emit_int(e, "axis", 0);
    to = emit_3(e, "Concat", to, emit_list(e, (int64_t[]){1}, 1), emit_list(e, &width, 1));
    token = emit_2(e, "Expand", token, to);
    emit_int(e, "axis", 1);
    x = emit_2(e, "Concat", token, x);
    x = emit_2(e, "Add", x, emit_in(e, CLASS_TOKEN_POSITION));
    emit_put(e, emit_to_shape(e, x, (int64_t[]){-1, width}, 2), FORM_PLAIN);
}
