/* composed - runs a function of op/compose.h on the CPU backend, for test_composed.py, which
 * compares it with PyTorch's.
 *
 *     composed NAME pSHAPE cSHAPE iSHAPE ...     SHAPE: 2,3,4
 *
 * p is an operand with a gradient, c a constant, i one of I32.  Their elements come by the standard
 * input, in this order.  The output is the result's elements, and those of the gradients of each p
 * of mean((y - t)^2) with t[i] = cos(i).  There are two samples. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/compose.h"
#include "program/layout.h"
#include "program/program.h"

enum { MOST = 4, SAMPLES = 2 };

static struct err err;

static void composed_must(int rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "composed: %s\n", err.msg);
    exit(1);
}

/* ---- the functions, by name ---- */

typedef int function(struct compose *c, const int *x);

#define ATTEND(name, ...)                                                              \
    static int make_##name(struct compose *c, const int *x)                            \
    {                                                                                  \
        return compose_attention(                                                      \
            c, &(struct compose_attention){                                            \
                   .q = x[0], .k = x[1], .v = x[2], .starts = NO_VALUE, __VA_ARGS__}); \
    }
#define WINDOW(name, f, ...)                                      \
    static int make_##name(struct compose *c, const int *x)       \
    {                                                             \
        return f(c, x[0], &(struct compose_window){__VA_ARGS__}); \
    }
#define PAD(name, kind, value, before, after)                                          \
    static int make_##name(struct compose *c, const int *x)                            \
    {                                                                                  \
        return compose_pad(c, x[0], 1, (const int64_t[]){before, after}, kind, value); \
    }
#define RESIZE(name, rows, cols, kind, s0, s1)                                      \
    static int make_##name(struct compose *c, const int *x)                         \
    {                                                                               \
        return compose_resize(c, x[0], rows, cols, kind, (const double[]){s0, s1}); \
    }
#define ONE(name, ...) \
    static int make_##name(struct compose *c, const int *x) { return __VA_ARGS__; }

ATTEND(attention, .mask = NO_VALUE)
ATTEND(attention_causal, .mask = NO_VALUE, .causal = 1)
ATTEND(attention_scale, .mask = NO_VALUE, .scale = 0.3)
ATTEND(attention_bool, .mask = x[3], .is_bool = 1)
ATTEND(attention_mask, .mask = x[3])
ATTEND(attention_both, .mask = x[3], .is_bool = 1, .causal = 1)
WINDOW(max_ceil, compose_max_pool, .kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = 1)
WINDOW(max_ceil_pad, compose_max_pool, .kernel = {3, 2}, .stride = {3, 2}, .pad = {{1, 1}, {1, 1}},
       .ceil_mode = 1)
WINDOW(max_dilated, compose_max_pool, .kernel = {2, 3}, .stride = {1, 2}, .pad = {{1, 1}, {1, 1}},
       .dilation = {2, 2})
WINDOW(max_dilated_ceil, compose_max_pool, .kernel = {2, 3}, .stride = {3, 2},
       .pad = {{1, 1}, {1, 1}}, .dilation = {3, 2}, .ceil_mode = 1)
WINDOW(avg_ceil, compose_avg_pool, .kernel = {3, 3}, .stride = {2, 2}, .pad = {{1, 1}, {1, 1}},
       .ceil_mode = 1, .count_pad = 1)
WINDOW(avg_ceil_inside, compose_avg_pool, .kernel = {3, 2}, .stride = {2, 3},
       .pad = {{1, 1}, {0, 0}}, .ceil_mode = 1)
WINDOW(avg_divisor, compose_avg_pool, .kernel = {3, 2}, .stride = {2, 1}, .divisor = 5)
ONE(adaptive_avg, compose_adaptive_avg_pool(c, x[0], 3, 4))
ONE(adaptive_avg_wide, compose_adaptive_avg_pool(c, x[0], 9, 7))
ONE(adaptive_max, compose_adaptive_max_pool(c, x[0], 3, 4))
RESIZE(nearest, 9, 4, RESIZE_NEAREST, 0, 0)
RESIZE(nearest_scale, 13, 15, RESIZE_NEAREST, 1.9, 2.2)
RESIZE(nearest_exact, 9, 4, RESIZE_NEAREST_EXACT, 0, 0)
RESIZE(bilinear, 9, 4, RESIZE_BILINEAR, 0, 0)
RESIZE(bilinear_scale, 13, 15, RESIZE_BILINEAR, 1.9, 2.2)
RESIZE(bilinear_corners, 9, 4, RESIZE_BILINEAR_CORNERS, 0, 0)
PAD(pad_value, PAD_CONSTANT, -1.5, 2, 3)
PAD(pad_crop, PAD_CONSTANT, 0, -2, 1)
PAD(pad_reflect, PAD_REFLECT, 0, 2, 3)
PAD(pad_replicate, PAD_REPLICATE, 0, 2, 8)
PAD(pad_circular, PAD_CIRCULAR, 0, 2, 3)
ONE(conv1d,
    compose_conv1d(c, x[0], x[1], x[2],
                   &(struct compose_window){
                       .stride = {1, 2}, .pad = {{0, 0}, {1, 2}}, .dilation = {1, 2}, .groups = 2}))
ONE(conv_uneven,
    compose_conv2d(c, x[0], x[1], NO_VALUE,
                   &(struct compose_window){
                       .stride = {1, 2}, .pad = {{0, 1}, {2, 0}}, .dilation = {1, 1}, .groups = 1}))
ONE(lookup, compose_lookup(c, x[0], x[1], 2))
ONE(index_select, compose_index_select(c, x[0], 1, x[1]))
ONE(gather, compose_gather(c, x[0], 1, x[1]))
ONE(roll, compose_roll(c, x[0], -1, -3))
ONE(cumsum, compose_cumsum(c, x[0], 1))
ONE(logsumexp, compose_logsumexp(c, x[0], 1U << 1, 0))
ONE(norm, compose_norm(c, x[0], 2, 1u << 1, 0))
ONE(norm_one, compose_norm(c, x[0], 1, 1u << 2, 1))
ONE(norm_most, compose_norm(c, x[0], INFINITY, 1u << 1, 0))
ONE(rms_norm, compose_rms_norm(c, x[0], x[1], 1e-5, 0))
ONE(einsum, compose_einsum(c, "bhid, bjhd -> bijh", x[0], x[1]))
ONE(einsum_alone, compose_einsum(c, "abc,dc->da", x[0], x[1]))
ONE(power, compose_power(c, x[0], 3))
ONE(power_half, compose_power(c, x[0], 0.5))
ONE(transpose, compose_transpose(c, x[0], -1, 0))
ONE(log_softmax, compose_softmax(c, x[0], 1, 1))
ONE(gelu, compose_activation(c, ACT_GELU, x[0]))
ONE(one_hot, compose_elementwise(c, EW_MUL, compose_one_hot(c, x[1], 5), x[0]))
ONE(compare, compose_elementwise(c, EW_MUL, compose_compare(c, EW_LE, x[1], 2), x[0]))
ONE(integer, compose_elementwise(c, EW_MUL, compose_cast(c, x[1], DTYPE_F32), x[0]))
#define KIND(name, KIND_, p, q) ONE(name, compose_constants(c, EW_##KIND_, x[0], p, q))
KIND(hardswish, HARDSWISH, 0, 0)
KIND(hardsigmoid, HARDSIGMOID, 0, 0)
KIND(clip, CLIP, 0, 6)
KIND(elu, ELU, 1.5f, 1)
KIND(selu, ELU, 1.6732632423543772f, 1.0507009873554805f)
KIND(leaky, LEAKY, 0.1f, 0)
KIND(softplus, SOFTPLUS, 2, 3)
KIND(mish, MISH, 0, 0)
ONE(round, compose_elementwise(c, EW_ADD, x[0], compose_constants(c, EW_ROUND, x[0], 0, 0)))
ONE(sign, compose_elementwise(c, EW_ADD, x[0], compose_constants(c, EW_SIGN, x[0], 0, 0)))
ONE(gate, compose_elementwise(c, EW_MUL, compose_activation(c, ACT_SILU, x[0]), x[1]))
ONE(rotary, compose_rotary(c, x[0], x[1], x[2], 2, 0))
ONE(rotary_pairs, compose_rotary(c, x[0], x[1], x[2], 2, 1))
ONE(remainder, compose_elementwise(c, EW_REMAINDER, x[0], x[1]))

static const float three[3] = {0.5f, 2, 1.5f};

#define LOSS(name, ...) \
    ONE(name, compose_class_loss(c, x[0], x[1], &(struct compose_classes){__VA_ARGS__}))
LOSS(cross_entropy, .smoothing = 0.1, .weight = three)
LOSS(focal, .gamma = 2)
ONE(kl, compose_divergence(c, x[0], x[1]))
ONE(huber, compose_huber(c, x[0], x[1], 0.7))
ONE(l1, compose_pointwise(c, POINTWISE_ABSOLUTE, x[0], x[1]))
ONE(mse, compose_pointwise(c, POINTWISE_SQUARED, x[0], x[1]))
ONE(bce, compose_logistic(c, x[0], x[1], three))

#define NAMED(f)     \
    {                \
#f, make_##f \
    }
static const struct {
    const char *name;
    function *make;
} functions[] = {
    NAMED(attention),
    NAMED(attention_causal),
    NAMED(attention_scale),
    NAMED(attention_bool),
    NAMED(attention_mask),
    NAMED(attention_both),
    NAMED(max_ceil),
    NAMED(max_ceil_pad),
    NAMED(max_dilated),
    NAMED(max_dilated_ceil),
    NAMED(avg_ceil),
    NAMED(avg_ceil_inside),
    NAMED(avg_divisor),
    NAMED(adaptive_avg),
    NAMED(adaptive_avg_wide),
    NAMED(adaptive_max),
    NAMED(nearest),
    NAMED(nearest_scale),
    NAMED(nearest_exact),
    NAMED(bilinear),
    NAMED(bilinear_scale),
    NAMED(bilinear_corners),
    NAMED(pad_value),
    NAMED(pad_crop),
    NAMED(pad_reflect),
    NAMED(pad_replicate),
    NAMED(pad_circular),
    NAMED(conv1d),
    NAMED(conv_uneven),
    NAMED(lookup),
    NAMED(index_select),
    NAMED(gather),
    NAMED(roll),
    NAMED(cumsum),
    NAMED(logsumexp),
    NAMED(norm),
    NAMED(norm_one),
    NAMED(norm_most),
    NAMED(rms_norm),
    NAMED(einsum),
    NAMED(einsum_alone),
    NAMED(power),
    NAMED(power_half),
    NAMED(transpose),
    NAMED(log_softmax),
    NAMED(gelu),
    NAMED(one_hot),
    NAMED(compare),
    NAMED(integer),
    NAMED(hardswish),
    NAMED(hardsigmoid),
    NAMED(clip),
    NAMED(elu),
    NAMED(selu),
    NAMED(leaky),
    NAMED(softplus),
    NAMED(mish),
    NAMED(round),
    NAMED(sign),
    NAMED(gate),
    NAMED(rotary),
    NAMED(rotary_pairs),
    NAMED(remainder),
    NAMED(cross_entropy),
    NAMED(focal),
    NAMED(kl),
    NAMED(huber),
    NAMED(l1),
    NAMED(mse),
    NAMED(bce),
};

/* ---- running one ---- */

struct operand {
    char kind; /* p, c, i */
    struct shape shape;
    void *content;
    int value;
};

static struct operand composed_read(struct graph *g, const char *text, const char *name)
{
    static const struct param_info info = {.init = PARAM_CONST};
    struct operand o = {.kind = *text++};
    size_t n;

    do {
        o.shape.dim[o.shape.n++] = strtoll(text, (char **)&text, 10);
    } while (*text++ == ',');
    n = (size_t)shape_elements(&o.shape);
    o.content = xmalloc(n * sizeof(float) + 1);
    if (fread(o.content, sizeof(float), n, stdin) != n)
        composed_must(err_set(&err, ERR_ARG, "%s ends early", name));
    o.value = o.kind == 'p'
                  ? graph_param(g, o.shape, info, name)
                  : graph_const(g, o.kind == 'i' ? DTYPE_I32 : DTYPE_F32, o.shape, o.content, name);
    return o;
}

/* The loss mean((y - t)^2), as the sum over SAMPLES rows of their means divided by SAMPLES. */
static void composed_loss(struct compose *c, int y)
{
    const union node_attr attr = {.loss.pointwise = POINTWISE_SQUARED};
    int64_t n;
    float *t;
    int target;

    composed_must(c->rc);
    graph_output(c->g, y, "result");
    n = shape_elements(&c->g->value[y].shape);
    t = xmalloc((size_t)n * sizeof *t + 1);
    for (int64_t i = 0; i < n; i++)
        t[i] = (float)cos((double)i);
    y = compose_reshape(c, y, SHAPE(SAMPLES, n / SAMPLES));
    c->g->logits = y;
    target = compose_const(c, SHAPE(SAMPLES, n / SAMPLES), t);
    free(t);
    compose_append(c, OP_pointwise_loss, &attr, (int[]){y, target, c->g->metrics}, 3);
    composed_must(c->rc);
    composed_must(program_differentiate(c->g, &err));
}

static void composed_put(const float *x, int64_t n)
{
    if (fwrite(x, sizeof *x, (size_t)n, stdout) != (size_t)n)
        exit(1);
}

/* Where the flat spaces have a parameter. */
static int64_t composed_offset(const struct layout *l, const struct graph *g,
                               const struct operand *o)
{
    for (int k = 0; k < l->n_params; k++)
        if (strcmp(l->param[k].name, g->value[o->value].name) == 0)
            return l->param[k].offset;
    abort();
}

static void composed_run(struct graph *g, const struct operand *o, int n)
{
    struct step_scalars scalars = {.seed = 3, .loss_scale = 1.0f / SAMPLES};
    double metrics[METRIC_COUNT] = {0};
    struct program_spaces spaces = {.metrics = metrics, .scalars = &scalars};
    const struct value *v;
    struct program *p;
    struct layout *l;
    struct backend *b;
    const float *y;
    void *arena;

    composed_must(backend_open_cpu(1, &b, &err));
    composed_must(layout_new(g, 1 << 16, &l, &err));
    composed_must(program_new(b, g, l, &p, &err));
    composed_must(backend_alloc(b, program_arena_bytes(p) + 64, "arena", &arena, &err));
    composed_must(backend_alloc(b, (size_t)l->n_total * 4 + 64, "parameters", &spaces.param, &err));
    composed_must(backend_alloc(b, (size_t)l->n_grad * 4 + 64, "gradients", &spaces.grad, &err));
    composed_must(program_bind(p, &spaces, arena, &err));
    for (int i = 0; i < n; i++)
        if (o[i].kind == 'p')
            memcpy((float *)spaces.param + composed_offset(l, g, &o[i]), o[i].content,
                   (size_t)shape_elements(&o[i].shape) * sizeof(float));
    for (int i = 0; i < program_n_stages(p); i++)
        composed_must(program_run_stage(p, i, &err));
    y = program_output(p, "result", &v);
    composed_put(y, shape_elements(&v->shape));
    for (int i = 0; i < n; i++)
        if (o[i].kind == 'p')
            composed_put((float *)spaces.grad + composed_offset(l, g, &o[i]),
                         shape_elements(&o[i].shape));
    program_free(p);
    layout_free(l);
    backend_free(b, arena);
    backend_free(b, spaces.param);
    backend_free(b, spaces.grad);
    backend_close(b);
}

int main(int argc, char **argv)
{
    static const char *const names[MOST] = {"a", "b", "c", "d"};
    struct graph *g = graph_new(SAMPLES, 1);
    struct compose c = {.g = g, .name = "made", .err = &err};
    struct operand o[MOST];
    int in[MOST] = {NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE};
    const int n = argc - 2;

    ASSERT(n >= 1 && n <= MOST);
    for (int i = 0; i < n; i++) {
        o[i] = composed_read(g, argv[2 + i], names[i]);
        in[i] = o[i].value;
    }
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        if (strcmp(functions[i].name, argv[1]) != 0)
            continue;
        composed_loss(&c, functions[i].make(&c, in));
        composed_run(g, o, n);
        for (int k = 0; k < n; k++)
            free(o[k].content);
        return 0;
    }
    fprintf(stderr, "composed: no function %s\n", argv[1]);
    return 1;
}
