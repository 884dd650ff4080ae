/* test_layout - the flat parameter space: the order of the segments, the buckets, the layout hash,
 * and the initial values. */
#include "../test.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "op/control.h"
#include "rig.h"

static struct layout *layout_of(const struct rig_model *model, const struct sample_spec *in,
                                int64_t batch, int sync, size_t bucket_bytes)
{
    struct graph *g = rig_graph(model, in, batch, 1, sync);
    struct layout *l;
    struct err err;

    assert_int_equal(layout_new(g, bucket_bytes, &l, &err), 0);
    graph_free(g);
    return l;
}

static void lenet_golden(void **state)
{
    static const struct {
        const char *name, *shape;
        int64_t offset, length;
    } want[] = {
        {"fc2.bias", "[10]", 0, 10},        {"fc2.weight", "[10,128]", 16, 1280},
        {"fc1.bias", "[128]", 1296, 128},   {"fc1.weight", "[128,800]", 1424, 102400},
        {"conv2.bias", "[50]", 103824, 50}, {"conv2.weight", "[50,20,5,5]", 103888, 25000},
        {"conv1.bias", "[20]", 128896, 20}, {"conv1.weight", "[20,1,3,3]", 128928, 180},
    };
    struct rig_model model = rig_model(&arch_lenet);
    struct layout *l = layout_of(&model, &rig_mnist, 256, 1, 256 << 10);
    char text[SHAPE_TEXT_LEN];

    (void)state;
    assert_int_equal(l->n_params, ARRAY_LEN(want));
    for (int i = 0; i < l->n_params; i++) {
        assert_string_equal(l->param[i].name, want[i].name);
        assert_string_equal(shape_text(&l->param[i].shape, text), want[i].shape);
        assert_int_equal(l->param[i].offset, want[i].offset);
        assert_int_equal(l->param[i].length, want[i].length);
    }
    assert_int_equal(l->n_trained, 129120);
    assert_int_equal(l->n_total, 129120);
    assert_int_equal(l->n_grad, 129120 + CONTROL_LEN);
    assert_int_equal(l->n_states, 0);
    assert_int_equal(l->n_buckets, 2);
    assert_int_equal(l->bucket[0].last_segment, 3);
    assert_int_equal(l->bucket[0].length, 103824);
    assert_int_equal(l->bucket[1].offset + l->bucket[1].length, l->n_grad);
    assert_int_equal(l->bucket[1].last_segment, 7);
    layout_free(l);
}

static void buckets_cover_all(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);

    (void)state;
    for (size_t bytes = 1; bytes < 4 << 20; bytes *= 4) {
        struct layout *l = layout_of(&model, &rig_mnist, 4, 1, bytes);
        int64_t end = 0;

        for (int b = 0; b < l->n_buckets; b++) {
            assert_int_equal(l->bucket[b].offset, end);
            assert_true((size_t)l->bucket[b].length * 4 >= bytes || b == l->n_buckets - 1);
            end += l->bucket[b].length;
        }
        assert_int_equal(end, l->n_grad);
        layout_free(l);
    }
}

/* A bucket is full when it has exactly the wanted size. */
static void a_bucket_of_the_wanted_size_is_full(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 16 * sizeof(float));

    (void)state;
    assert_int_equal(l->bucket[0].last_segment, 0);
    assert_int_equal(l->bucket[0].length, 16); /* fc2.bias, rounded up */
    layout_free(l);
}

/* Backward comes to fc4 first, and fc3 has a little more than 1 MiB. */
static void the_first_bucket_is_small(void **state)
{
    struct rig_model model = rig_model(&arch_mlp);
    struct layout *l;

    (void)state;
    model.mlp.hidden.n = 3;
    for (int i = 0; i < 3; i++)
        model.mlp.hidden.v[i] = 512;
    l = layout_of(&model, &rig_mnist, 1, 1, 4 << 20);
    assert_int_equal(l->n_buckets, 2);
    assert_string_equal(l->param[l->bucket[0].last_segment].name, "fc3.weight");
    assert_in_range(l->bucket[0].length * 4, FIRST_BUCKET_BYTES, FIRST_BUCKET_BYTES + (32 << 10));
    assert_int_equal(l->bucket[1].last_segment, l->n_params - 1);
    layout_free(l);
    l = layout_of(&model, &rig_mnist, 1, 1, 16 << 10); /* less than that */
    assert_in_range(l->bucket[0].length * 4, 16 << 10, 32 << 10);
    layout_free(l);
}

static struct rig_model norm_mlp(void)
{
    struct rig_model model = rig_model(&arch_mlp);

    model.mlp.hidden.n = 1;
    model.mlp.hidden.v[0] = 20;
    model.mlp.batch_norm = 1;
    return model;
}

static void states_have_their_table(void **state)
{
    struct rig_model model = norm_mlp();
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 1 << 20);

    (void)state;
    assert_int_equal(l->n_states, 2);
    assert_string_equal(l->state[0].name, "bn1.running_mean");
    assert_string_equal(l->state[1].name, "bn1.running_var");
    assert_int_equal(l->state[1].offset, 32);
    assert_int_equal(l->state[1].length, 20);
    assert_true(l->state[0].init_state == 0 && l->state[1].init_state == 1);
    assert_int_equal(l->n_state_total, 64);
    layout_free(l);
}

/* The layout hash does not depend on the batch size or on synchronised batch norm.  Another model
 * has another hash. */
static void hash_is_the_models(void **state)
{
    struct rig_model model = norm_mlp(), other = norm_mlp();
    struct layout *a = layout_of(&model, &rig_mnist, 64, 1, 1 << 20), *b;
    static const int64_t batches[] = {0, 1, 7};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(batches); i++)
        for (int sync = 0; sync < 2; sync++) {
            b = layout_of(&model, &rig_mnist, batches[i], sync, 1 << 20);
            assert_true(hash_equal(a->hash, b->hash));
            layout_free(b);
        }
    other.mlp.hidden.v[0] = 21;
    b = layout_of(&other, &rig_mnist, 64, 1, 1 << 20);
    assert_false(hash_equal(a->hash, b->hash));
    layout_free(b);
    b = layout_of(&model, &rig_mnist, 64, 1, 1 << 10);
    assert_false(hash_equal(a->hash, b->hash));
    assert_true(hash_equal(segment_hash(&a->param[0]), segment_hash(&b->param[0])));
    assert_false(hash_equal(segment_hash(&a->param[0]), segment_hash(&b->param[1])));
    layout_free(b);
    layout_free(a);
}

/* A parameter's kind decides whether it decays, so the layout hash includes it: ranks that disagree
 * would train apart. */
static void hash_tells_kinds(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 1 << 20), *other;
    struct graph *g = rig_graph(&model, &rig_mnist, 4, 1, 1);
    struct param_info info;
    struct err err;
    int v = 0;

    (void)state;
    while (g->value[v].role != VALUE_PARAM)
        v++;
    info = *g->value[v].info;
    assert_int_not_equal(info.kind, PARAM_NORM);
    info.kind = PARAM_NORM;
    g->value[v].info = &info;
    assert_int_equal(layout_new(g, 1 << 20, &other, &err), 0);
    assert_false(hash_equal(l->hash, other->hash));
    graph_free(g);
    layout_free(other);
    layout_free(l);
}

static const struct segment *named(const struct layout *l, const char *name)
{
    for (int i = 0; i < l->n_params; i++)
        if (!strcmp(l->param[i].name, name))
            return &l->param[i];
    fail_msg("no %s", name);
    return NULL;
}

static double mean_square(const struct segment *s, const float *params)
{
    double sum = 0;

    for (int64_t i = 0; i < s->length; i++)
        sum += (double)params[s->offset + i] * params[s->offset + i] / (double)s->length;
    return sum;
}

static void init_pytorch(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 1 << 20);
    float *p = xcalloc((size_t)l->n_total, sizeof *p), *again = xcalloc((size_t)l->n_total, 4);
    int64_t end = 0;

    (void)state;
    memset(p, 0xff, (size_t)l->n_total * sizeof *p);
    rig_init_params(l, 1, -1, p);
    for (int i = 0; i < l->n_params; i++) {
        const struct segment *s = &l->param[i];
        const double bound = s->info.bound;

        for (; end < s->offset; end++)
            assert_true(p[end] == 0); /* padding */
        for (end = s->offset; end < s->offset + s->length; end++)
            assert_true(fabs(p[end]) <= bound && p[end] != 0);
        if (s->length > 1000)
            assert_true(fabs(mean_square(s, p) / (bound * bound / 3) - 1) < 0.06);
    }
    assert_true(named(l, "conv1.bias")->info.bound == (float)(1 / 3.0));
    assert_true(named(l, "conv2.weight")->info.bound == (float)(1 / sqrt(500)));
    assert_true(named(l, "fc1.bias")->info.bound == (float)(1 / sqrt(800)));
    rig_init_params(l, 1, -1, again);
    assert_memory_equal(p, again, (size_t)l->n_total * 4);
    rig_init_params(l, 2, -1, again);
    assert_memory_not_equal(p, again, (size_t)l->n_total * 4);
    free(p);
    free(again);
    layout_free(l);
}

static void init_normal(void **state)
{
    struct rig_model model = norm_mlp();
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 1 << 20);
    float *p = xcalloc((size_t)l->n_total, sizeof *p);
    const struct segment *w = named(l, "fc1.weight");

    (void)state;
    rig_init_params(l, 1, 0.01, p);
    assert_true(fabs(mean_square(w, p) / 1e-4 - 1) < 0.05);
    assert_true(mean_square(named(l, "fc1.bias"), p) == 0);
    assert_true(fabs(mean_square(named(l, "bn1.weight"), p) - 1) < 1e-12);
    assert_true(mean_square(named(l, "bn1.bias"), p) == 0);
    free(p);
    layout_free(l);
}

/* A parameter's initial values depend on the alphabetical order of the names, not on its place. */
static void init_is_independent_of_order(void **state)
{
    struct rig_model model = rig_model(&arch_mlp);
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 1 << 20);
    struct segment swap = l->param[0];
    float *p = xcalloc((size_t)l->n_total, sizeof *p), *q = xcalloc((size_t)l->n_total, sizeof *q);

    (void)state;
    rig_init_params(l, 1, -1, p);
    l->param[0] = l->param[1];
    l->param[1] = swap;
    for (int i = 0; i < l->n_params; i++) /* the table of names follows */
        if (l->param_by_name[i] <= &l->param[1])
            l->param_by_name[i] = &l->param[l->param_by_name[i] == &l->param[0]];
    rig_init_params(l, 1, -1, q);
    assert_memory_equal(p, q, (size_t)l->n_total * sizeof *p);
    free(p);
    free(q);
    layout_free(l);
}

/* The mean of the squares of parameter `name`, and its largest value. */
static double square_of(const struct layout *l, const char *name, struct layout_init init,
                        float *largest)
{
    const int at = layout_find(l->param_by_name, l->n_params, name);
    const int i = (int)(l->param_by_name[at] - l->param);
    float *x = xcalloc((size_t)l->param[i].length, sizeof *x);
    double sum = 0;

    *largest = 0;
    layout_init_param(l, i, 1, init, 0, l->param[i].length, x);
    for (int64_t e = 0; e < l->param[i].length; e++) {
        sum += (double)x[e] * (double)x[e];
        *largest = x[e] > *largest ? x[e] : *largest;
    }
    free(x);
    return sum / (double)l->param[i].length;
}

/* The padding row of a table is zero, whichever pieces are asked for, and no other row is. */
static void init_padding_row(void **state)
{
    struct rig_model model = rig_model(&arch_mlp);
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 1 << 20);
    const int at = layout_find(l->param_by_name, l->n_params, "fc1.weight");
    const int i = (int)(l->param_by_name[at] - l->param);
    const int64_t n = l->param[i].length, width = n / l->param[i].shape.dim[0], piece = 148;
    float *x = xcalloc((size_t)n, sizeof *x);

    (void)state;
    l->param[i].padding = 1 + 2; /* row 2 */
    for (int64_t e = 0; e < n; e += piece)
        layout_init_param(l, i, 1, (struct layout_init){INIT_RULE_OWN, 0}, e,
                          n - e < piece ? n - e : piece, x + e);
    for (int64_t e = 0; e < n; e++)
        assert_true((x[e] == 0) == (e / width == 2));
    free(x);
    layout_free(l);
}

/* fc1.weight is [128,800]: fan_in 800, fan_out 128; conv2.weight is [50,20,5,5]: 500 and 1250. */
static void init_rules(void **state)
{
    static const struct {
        struct layout_init init;
        double fc1, conv2; /* the variances, and then the largest values; 0: there is no bound */
        double most_fc1, most_conv2;
    } rules[] = {
        {{INIT_RULE_KAIMING_NORMAL, 0}, 2.0 / 800, 2.0 / 500, 0, 0},
        {{INIT_RULE_KAIMING_UNIFORM, 0}, 2.0 / 800, 2.0 / 500, 0.0866025404, 0.109544512},
        {{INIT_RULE_XAVIER_NORMAL, 0}, 2.0 / 928, 2.0 / 1750, 0, 0},
        {{INIT_RULE_XAVIER_UNIFORM, 0}, 2.0 / 928, 2.0 / 1750, 0.0804084366, 0.0585540044},
        {{INIT_RULE_NORMAL, 0.03}, 0.0009, 0.0009, 0, 0},
        /* The variance of the normal distribution cut off at 2 is 0.77374. */
        {{INIT_RULE_TRUNC_NORMAL, 0.03}, 0.000696366, 0.000696366, 0.06, 0.06},
    };
    struct rig_model model = rig_model(&arch_lenet);
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 1 << 20);
    float largest;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        const double fc1 = square_of(l, "fc1.weight", rules[i].init, &largest);

        assert_true(fabs(fc1 / rules[i].fc1 - 1) < 0.02);
        if (rules[i].most_fc1 > 0)
            assert_true((double)largest <= rules[i].most_fc1 * (1 + 1e-6) &&
                        (double)largest > 0.99 * rules[i].most_fc1);
        else
            assert_true((double)largest > 3.5 * sqrt(rules[i].fc1));
        assert_true(fabs(square_of(l, "conv2.weight", rules[i].init, &largest) / rules[i].conv2 -
                         1) < 0.05);
        if (rules[i].most_conv2 > 0)
            assert_true((double)largest <= rules[i].most_conv2 * (1 + 1e-6));
        assert_true(square_of(l, "conv2.bias", rules[i].init, &largest) == 0);
        assert_true(square_of(l, "fc2.bias", rules[i].init, &largest) == 0);
    }
    layout_free(l);
}

/* Half of the values of a normal distribution cut off at 2 lie within 0.6399 standard deviations of
 * 0, and as many are negative as are positive. */
static void truncated_normal(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    struct layout *l = layout_of(&model, &rig_mnist, 4, 1, 1 << 20);
    const int at = layout_find(l->param_by_name, l->n_params, "fc1.weight");
    const int i = (int)(l->param_by_name[at] - l->param);
    const int64_t n = l->param[i].length;
    float *x = xcalloc((size_t)n, sizeof *x);
    double n_within = 0, n_negative = 0;

    (void)state;
    layout_init_param(l, i, 1, (struct layout_init){INIT_RULE_TRUNC_NORMAL, 1}, 0, n, x);
    for (int64_t e = 0; e < n; e++) {
        n_within += fabsf(x[e]) < 0.63989F;
        n_negative += x[e] < 0;
    }
    assert_true(fabs(n_within / (double)n - 0.5) < 0.01);
    assert_true(fabs(n_negative / (double)n - 0.5) < 0.01);
    free(x);
    layout_free(l);
}

static void freeze(struct graph *g, const char *pattern)
{
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM && fnmatch(pattern, g->value[v].name, 0) == 0) {
            struct param_info info = *g->value[v].info;

            info.frozen = 1;
            g->value[v].info = arena_copy(&g->arena, &info, sizeof info);
        }
}

/* Frozen parameters follow the trained ones, are in no bucket of these and have no gradient. */
static void frozen_ones_are_last(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    const struct model_options o = rig_options(&model);
    struct graph *g;
    struct layout *l;
    struct err err;

    (void)state;
    assert_int_equal(model_build(&o, &rig_mnist, 4, 1, 1, &g, &err), 0);
    freeze(g, "fc2.*");
    assert_int_equal(program_differentiate(g, &err), 0);
    assert_int_equal(layout_new(g, 256 << 10, &l, &err), 0);
    graph_free(g);
    assert_int_equal(l->n_params, 8);
    assert_string_equal(l->param[5].name, "conv1.weight");
    assert_int_equal(l->param[6].info.frozen + l->param[7].info.frozen, 2);
    assert_int_equal(l->n_trained, l->param[5].offset + 192);
    assert_int_equal(l->param[6].offset, l->n_trained);
    assert_int_equal(l->n_total, l->n_trained + 16 + 1280);
    assert_int_equal(l->n_grad, l->n_trained + CONTROL_LEN);
    assert_int_equal(l->bucket[l->n_buckets - 1].last_segment, 5);
    assert_int_equal(l->bucket[l->n_buckets - 1].offset + l->bucket[l->n_buckets - 1].length,
                     l->n_grad);
    assert_int_equal(l->n_param_buckets, l->n_buckets + 1);
    layout_free(l);
}

/* A frozen layer's weight fills a bucket, and its bias is in the same one.  Buckets cover all
 * frozen parameters, without a gap, and each has as much as is wanted. */
static void frozen_ones_have_buckets(void **state)
{
    static const size_t bytes[] = {1, 4000, 100 << 10, 1 << 20};
    static const int n_buckets[] = {8, 5, 4, 1};
    struct rig_model model = rig_model(&arch_mlp);
    const int64_t hidden[] = {200, 200, 200, 200};

    (void)state;
    memcpy(model.mlp.hidden.v, hidden, sizeof hidden);
    model.mlp.hidden.n = ARRAY_LEN(hidden);
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
        const struct model_options o = rig_options(&model);
        struct graph *g;
        struct layout *l;
        int64_t at;

        rig_must(model_build(&o, &rig_mnist, 2, 1, 0, &g, &rig_err));
        freeze(g, "fc[1234].*");
        rig_must(program_differentiate(g, &rig_err));
        rig_must(layout_new(g, bytes[i], &l, &rig_err));
        graph_free(g);
        at = l->n_trained;
        for (int b = l->n_buckets; b < l->n_param_buckets; b++) {
            const struct bucket *k = &l->bucket[b];
            const char *last = l->param[k->last_segment].name;

            assert_int_equal(k->offset, at);
            at += k->length;
            assert_true((size_t)k->length * 4 >= bytes[i] || at == l->n_total);
            if (bytes[i] == 100 << 10)
                assert_non_null(strstr(last, ".bias"));
        }
        assert_int_equal(at, l->n_total);
        assert_int_equal(l->n_param_buckets - l->n_buckets, n_buckets[i]);
        layout_free(l);
    }
}

static void wants_a_gradient(void **state)
{
    struct rig_model model = rig_model(&arch_mlp);
    struct graph *g = rig_graph(&model, &rig_mnist, 2, 0, 0);
    struct layout *l;
    struct err err;

    (void)state;
    assert_int_equal(layout_new(g, 1, &l, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "differentiate"));
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_golden),
        cmocka_unit_test(buckets_cover_all),
        cmocka_unit_test(states_have_their_table),
        cmocka_unit_test(hash_is_the_models),
        cmocka_unit_test(init_pytorch),
        cmocka_unit_test(init_normal),
        cmocka_unit_test(init_is_independent_of_order),
        cmocka_unit_test(init_rules),
        cmocka_unit_test(init_padding_row),
        cmocka_unit_test(truncated_normal),
        cmocka_unit_test(wants_a_gradient),
        cmocka_unit_test(a_bucket_of_the_wanted_size_is_full),
        cmocka_unit_test(the_first_bucket_is_small),
        cmocka_unit_test(hash_tells_kinds),
        cmocka_unit_test(frozen_ones_are_last),
        cmocka_unit_test(frozen_ones_have_buckets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
