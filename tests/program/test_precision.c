/* test_precision - graphs in half precision: the type of each value, where values lie, and
 * gradients that equal those of float32 within rounding. */
#include "../test.h"

#include <math.h>

#include "op/control.h"
#include "op/op.h"
#include "ref_backend.h"
#include "rig.h"
#include "tensor/half.h"

static const struct program_precision bf16 = {DTYPE_BF16, DTYPE_F32},
                                      all_bf16 = {DTYPE_BF16, DTYPE_BF16},
                                      f16 = {DTYPE_F16, DTYPE_F32};
static const struct sample_spec image = SAMPLE_IMAGES(14, 14, 1, 5);

static struct err err;

static struct rig_model mlp_model(void)
{
    struct rig_model model = rig_model(&arch_mlp);

    model.mlp.hidden.n = 2;
    model.mlp.hidden.v[0] = 19;
    model.mlp.hidden.v[1] = 8;
    model.mlp.batch_norm = 1;
    model.mlp.dropout = 0.25;
    model.mlp.activation = ACT_GELU;
    return model;
}

static struct graph *graph_in(const struct rig_model *model, struct program_precision p,
                              int training)
{
    struct graph *g = rig_graph(model, &image, 6, training, 1);

    if (program_set_precision(g, p, &err) < 0)
        fail_msg("%s", err.msg);
    return g;
}

static int ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);

    return n >= k && !strcmp(name + n - k, end);
}

/* The rule in the header of op/op.h, for one value. */
static enum dtype wanted(const struct graph *g, const struct value *v, struct program_precision p)
{
    switch (v->role) {
    case VALUE_COPY:
        return p.compute;
    case VALUE_GRAD:
        return p.grad;
    case VALUE_TEMP:
        if (ends_with(v->name, "loss.out")) /* prob, diff */
            return DTYPE_F32;
        return v->dtype == DTYPE_F64 || v->dtype == DTYPE_I32 ? v->dtype : p.compute;
    case VALUE_SCALARS:
        return DTYPE_U8;
    default:
        (void)g;
        return v->dtype == DTYPE_F32 ? DTYPE_F32 : v->dtype;
    }
}

static void check_types(const struct rig_model *model, struct program_precision p, int training)
{
    struct graph *g = graph_in(model, p, training);
    int n_half = 0, n_casts = 0;

    for (int v = 0; v < g->n_values; v++) {
        const struct value *value = &g->value[v];

        if (value->dtype != wanted(g, value, p))
            fail_msg("%s is %s, want %s", value->name, dtype_name(value->dtype),
                     dtype_name(wanted(g, value, p)));
        n_half += dtype_is_half(value->dtype);
    }
    for (int k = 0; k < g->n_nodes; k++)
        n_casts += g->node[k].op == OP_cast;
    assert_int_equal(n_casts, 1); /* the images are cast once */
    assert_int_equal(g->node[0].op, OP_cast);
    assert_true(n_half > 10);
    graph_free(g);
}

static void types(void **state)
{
    const struct program_precision all[] = {bf16, all_bf16, f16};
    const struct rig_model lenet = rig_model(&arch_lenet), mlp = mlp_model();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        for (int training = 0; training < 2; training++) {
            check_types(&lenet, all[i], training);
            check_types(&mlp, all[i], training);
        }
}

static void float32_changes_nothing(void **state)
{
    const struct rig_model model = mlp_model();
    const struct program_precision f32 = {DTYPE_F32, DTYPE_F32};
    struct graph *a = graph_in(&model, f32, 1), *b = rig_graph(&model, &image, 6, 1, 1);

    (void)state;
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_values, b->n_values);
    for (int v = 0; v < a->n_values; v++)
        assert_int_equal(a->value[v].dtype, b->value[v].dtype);
    graph_free(a);
    graph_free(b);
}

/* The norm of the whole gradient, without the padding, which programs do not write. */
static double norm(const struct rig *r)
{
    double sum = 0;

    for (int i = 0; i < r->layout->n_params; i++)
        for (int64_t e = 0; e < r->layout->param[i].length; e++) {
            const double v = (double)real_get(r->spaces.grad, r->layout->grad_dtype,
                                              r->layout->param[i].offset + e);

            sum += v * v;
        }
    return sqrt(sum);
}

/* The distance between one parameter's gradient in half precision and in float32, relative to the
 * norm of the whole gradient. */
static double distance(const struct rig *half, const struct rig *wide, int param)
{
    const struct segment *s = &wide->layout->param[param];
    const enum dtype type = half->layout->grad_dtype;
    const float *want = rig_grad(wide, s->name);
    double sum = 0;

    assert_string_equal(half->layout->param[param].name, s->name);
    for (int64_t i = 0; i < s->length; i++) {
        const double d = (double)real_get(half->spaces.grad, type, s->offset + i) - (double)want[i];

        sum += d * d;
    }
    return sqrt(sum) / norm(wide);
}

static void check_gradients(const struct rig_model *model, struct program_precision p,
                            double tolerance)
{
    struct rig half, wide;
    double most = 0, ratio;

    rig_open(&wide, REF_FUSE_ALL, rig_graph(model, &image, 6, 1, 1), NULL);
    rig_open(&half, REF_FUSE_ALL, graph_in(model, p, 1), NULL);
    for (int i = 0; i < 2; i++) {
        rig_init(i ? &half : &wide, 8);
        rig_fill(i ? &half : &wide, 5);
        rig_run(i ? &half : &wide);
    }
    assert_true(fabs(half.metrics[METRIC_LOSS_SUM] / wide.metrics[METRIC_LOSS_SUM] - 1) <
                tolerance);
    for (int i = 0; i < wide.layout->n_params; i++)
        most = fmax(most, distance(&half, &wide, i));
    if (!(most < tolerance && most > 1e-5))
        fail_msg("gradients differ by %g of their norm, want less than %g", most, tolerance);
    ratio = (double)half.arena_bytes / (double)wide.arena_bytes;
    if (model->o.kind == &arch_lenet && !(ratio < 0.75)) /* the plan uses the types' sizes */
        fail_msg("activations need %g of float32's memory", ratio);
    rig_close(&half);
    rig_close(&wide);
}

static void gradients(void **state)
{
    const struct rig_model lenet = rig_model(&arch_lenet), mlp = mlp_model();

    (void)state;
    check_gradients(&lenet, bf16, 0.05);
    check_gradients(&lenet, all_bf16, 0.05);
    check_gradients(&lenet, f16, 0.01);
    check_gradients(&mlp, bf16, 0.1);
    check_gradients(&mlp, all_bf16, 0.1);
    check_gradients(&mlp, f16, 0.01);
}

static struct layout *layout_in(struct program_precision p)
{
    const struct rig_model model = rig_model(&arch_lenet);
    struct graph *g = graph_in(&model, p, 1);
    struct layout *l;

    assert_int_equal(layout_new(g, 1 << 12, &l, &err), 0);
    graph_free(g);
    return l;
}

/* Layouts of different precision differ in their hash, though parameters lie alike. */
static void layouts(void **state)
{
    const struct program_precision all[] = {{DTYPE_F32, DTYPE_F32}, bf16, all_bf16, f16};
    struct layout *l[ARRAY_LEN(all)];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        l[i] = layout_in(all[i]);
        assert_int_equal(l[i]->n_total, l[0]->n_total);
        for (size_t k = 0; k < i; k++)
            assert_false(hash_equal(l[i]->hash, l[k]->hash));
    }
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        layout_free(l[i]);
}

/* The control vector stays F32: after gradients in BF16 it is the last bucket, alone. */
static void buckets(void **state)
{
    struct layout *wide = layout_in(bf16), *half = layout_in(all_bf16);
    const struct bucket *last = &half->bucket[half->n_buckets - 1];
    size_t at = 0;

    (void)state;
    for (int i = 0; i < wide->n_buckets; i++)
        assert_int_equal(wide->bucket[i].dtype, DTYPE_F32);
    assert_true(half->n_buckets > 2);
    for (int i = 0; i < half->n_buckets - 1; i++) {
        assert_int_equal(half->bucket[i].dtype, DTYPE_BF16);
        assert_int_equal(half->bucket[i].at, at);
        at += (size_t)half->bucket[i].length * 2;
    }
    assert_int_equal(last->dtype, DTYPE_F32);
    assert_int_equal(last->offset, half->n_trained);
    assert_int_equal(last->length, CONTROL_LEN);
    assert_true(last->at >= at && last->at % 64 == 0);
    assert_int_equal(layout_grad_bytes(half, DTYPE_BF16), last->at + CONTROL_LEN * sizeof(float));
    layout_free(wide);
    layout_free(half);
}

/* With twice the scale the gradients are twice as large, for each loss. */
static void scaled_loss(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);

    (void)state;
    for (int loss = LOSS_CROSS_ENTROPY; loss <= LOSS_MSE; loss++) {
        double size[2];

        model.o.loss = (enum loss)loss;
        for (int i = 0; i < 2; i++) {
            struct rig r;

            rig_open(&r, REF_FUSE_ALL, graph_in(&model, f16, 1), NULL);
            rig_init(&r, 8);
            rig_fill(&r, 5);
            r.scaler[SCALER_SCALE] = i ? 4096 : 2048;
            rig_run(&r);
            size[i] = norm(&r);
            rig_close(&r);
        }
        if (!(fabs(size[1] / size[0] - 2) < 5e-3))
            fail_msg("gradients of norm %g become %g by twice the scale", size[0], size[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types),     cmocka_unit_test(float32_changes_nothing),
        cmocka_unit_test(gradients), cmocka_unit_test(layouts),
        cmocka_unit_test(buckets),   cmocka_unit_test(scaled_loss),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
