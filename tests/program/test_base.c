/* test_base - a program whose frozen weights are packed gives the bits of one that has the same
 * numbers as float32 parameters, and what was unpacked is dropped again. */
#include "../test.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "model/gpt.h"
#include "program/base.h"
#include "program/impl.h"
#include "ref_backend.h"
#include "rig.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

enum { BATCH = 3, WIDTH = 24, SEED = 3 };

static const struct sample_spec text = SAMPLE_SEQUENCES(8, 11), images = SAMPLE_IMAGES(9, 9, 3, 5);
static const struct lora_options lora = {.rank = 2, .alpha = 4};

/* An embedding with positions, a head that is tied to it, linear layers that lie both ways. */
static struct graph *base_gpt(int training)
{
    static const struct gpt_options options = {
        .layers = 3, .heads = 2, .width = WIDTH, .context = 8, .tied = 1};
    const struct model_options o = {.kind = &arch_gpt, .options = &options, .lora = lora};
    struct graph *g;

    rig_must(model_build(&o, &text, BATCH, training, 0, &g, &rig_err));
    return g;
}

static struct graph *base_convolutions(int training)
{
    struct rig_model model = rig_model(&arch_layers);
    struct model_options o;
    struct graph *g;

    model.list.layers = "[conv: {channels: 8, kernel: 3}, batch_norm, relu, conv: {channels: 8, "
                        "kernel: 3, groups: 2}, gelu, flatten, linear: 16, relu, linear: 5]";
    o = rig_options(&model);
    o.lora = lora;
    rig_must(model_build(&o, &images, BATCH, training, 0, &g, &rig_err));
    return g;
}

struct setting {
    struct graph *(*build)(int training);
    enum dtype form, compute;
    int training;
    enum graph_recompute recompute;
};

static struct backend *base_cpu(void)
{
    struct backend *b;

    rig_must(backend_open_cpu(1, &b, &rig_err));
    return b;
}

static struct graph *base_graph(struct setting s, enum dtype form, int training)
{
    struct graph *g = s.build(training);

    g->recompute = s.recompute;
    if (training)
        rig_must(program_differentiate(g, &rig_err));
    rig_must(program_pack_base(g, form, s.compute, &rig_err));
    rig_must(program_set_precision(g, (struct program_precision){s.compute, DTYPE_F32}, &rig_err));
    return g;
}

/* The layout is that of training in any case. */
static void open_rig(struct rig *r, struct backend *b, struct setting s, enum dtype form)
{
    struct graph *g = base_graph(s, form, 1);
    struct layout *l;

    rig_must(layout_new(g, 1 << 16, &l, &rig_err));
    graph_free(g);
    rig_open_on(r, b, base_graph(s, form, s.training), l);
    r->owns_layout = 1;
    rig_init(r, SEED);
    for (int64_t i = 0; i < r->layout->n_trained; i++) /* adapters of which none is 0 */
        ((float *)r->spaces.param)[i] = 0.1f * test_uniform(2, (uint64_t)i);
}

/* Pack the parameter of the wide program to the base of the packed one, and leave in the parameter
 * what the codes stand for. */
static void pack(const struct rig *packed, const struct segment *codes, float *x)
{
    char *to = (char *)packed->spaces.base + codes->offset;
    float *scales = (float *)((char *)packed->spaces.base + codes[1].offset);

    if (codes->dtype == DTYPE_I8)
        blocks_pack(x, codes->length, (int8_t *)to, scales);
    for (int64_t i = 0; i < codes->length; i++)
        if (codes->dtype == DTYPE_I8) {
            x[i] = (float)((int8_t *)to)[i] * scales[i / BLOCKS_LEN];
        } else {
            real_put(to, codes->dtype, i, x[i]);
            x[i] = real_get(to, codes->dtype, i);
        }
}

/* Give both programs the same numbers. */
static void share_numbers(struct rig *wide, struct rig *packed)
{
    const struct layout *l = packed->layout;

    for (int i = 0; i < l->n_base; i++)
        if (!base_is_scales(l->base[i].name))
            pack(packed, &l->base[i], rig_param(wide, l->base[i].name, NULL));
    for (int i = 0; i < l->n_params; i++) {
        int64_t n;
        float *to = rig_param(packed, l->param[i].name, &n);

        memcpy(to, rig_param(wide, l->param[i].name, NULL), (size_t)n * sizeof *to);
    }
    for (int64_t i = 0; packed->spaces.copy && i < l->n_total; i++)
        real_put(packed->spaces.copy, l->copy_dtype, i, ((float *)packed->spaces.param)[i]);
    for (int64_t i = 0; wide->spaces.copy && i < wide->layout->n_total; i++)
        real_put(wide->spaces.copy, wide->layout->copy_dtype, i, ((float *)wide->spaces.param)[i]);
}

static void run(struct rig *r)
{
    const struct graph *g = r->graph;

    memset(r->arena, 0xff, r->arena_bytes);
    memset(r->metrics, 0, sizeof r->metrics);
    for (int i = 0; i < g->n_inputs; i++) {
        const struct value *v = &g->value[g->input[i]];
        void *to = program_input(r->program, i);

        for (int64_t e = 0; e < shape_elements(&v->shape); e++) {
            if (v->dtype == DTYPE_F32)
                ((float *)to)[e] = test_uniform(1, (uint64_t)e);
            else
                ((int32_t *)to)[e] = (int32_t)(e * 7 % 5);
        }
    }
    for (int i = 0; i < program_n_stages(r->program); i++)
        rig_must(program_run_stage(r->program, i, &rig_err));
}

/* Takes both backends. */
static void base_compare(struct backend *a, struct backend *b, struct setting s)
{
    struct rig wide, packed;

    open_rig(&wide, a, s, DTYPE_F32);
    open_rig(&packed, b, s, s.form);
    assert_int_equal(wide.layout->n_base, 0);
    assert_true(packed.layout->n_base > 0);
    assert_int_equal(packed.layout->n_trained, wide.layout->n_trained);
    assert_true(packed.layout->n_total < wide.layout->n_total);
    share_numbers(&wide, &packed);
    run(&wide);
    run(&packed);
    assert_memory_equal(wide.metrics, packed.metrics, sizeof wide.metrics);
    assert_true(wide.metrics[METRIC_LOSS_SUM] > 0);
    if (s.training)
        assert_memory_equal(wide.spaces.grad, packed.spaces.grad,
                            (size_t)wide.layout->n_trained * sizeof(float));
    rig_close(&wide);
    rig_close(&packed);
}

/* With BF16, numbers of I8 codes are rounded to it after an embedding's sum, not before, so these
 * programs differ. */
static const struct setting settings[] = {
    {base_gpt, DTYPE_I8, DTYPE_F32, 1, 0},
    {base_gpt, DTYPE_I8, DTYPE_F32, 1, 1},
    {base_gpt, DTYPE_I8, DTYPE_F32, 0, 0},
    {base_gpt, DTYPE_BF16, DTYPE_F32, 1, 0},
    {base_gpt, DTYPE_BF16, DTYPE_BF16, 1, 0},
    {base_convolutions, DTYPE_I8, DTYPE_F32, 1, 0},
    {base_convolutions, DTYPE_BF16, DTYPE_F32, 1, 0},
    {base_convolutions, DTYPE_I8, DTYPE_BF16, 1, 0},
    {base_convolutions, DTYPE_BF16, DTYPE_F32, 0, 0},
};

static void naive_backend(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        struct backend *a, *b;

        rig_must(ref_open(REF_FUSE_ALL, &a));
        rig_must(ref_open(REF_FUSE_ALL, &b));
        base_compare(a, b, settings[i]);
    }
}

static void cpu_backend(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        base_compare(base_cpu(), base_cpu(), settings[i]);
}

static int base_count(const struct graph *g, enum op op)
{
    int n = 0;

    for (int k = 0; k < g->n_nodes; k++)
        n += g->node[k].op == (int)op;
    return n;
}

/* Every weight is packed, and no vector; a node that unpacks stands right before its one reader.
 * An embedding reads rows. */
static void nodes_and_values(void **state)
{
    struct graph *g = base_gpt(1);

    (void)state;
    rig_must(program_differentiate(g, &rig_err));
    rig_must(program_pack_base(g, DTYPE_I8, DTYPE_F32, &rig_err));
    assert_int_equal(base_count(g, OP_embedding), 0);
    assert_int_equal(base_count(g, OP_unpack_rows), 1);
    for (int k = 0; k < g->n_nodes; k++) {
        const struct node *n = &g->node[k];
        int reads = 0;

        assert_int_equal(graph_check_node(g, n, &rig_err), 0);
        for (int i = 0; n->op == OP_unpack && i < g->node[k + 1].n_in; i++)
            reads += g->node[k + 1].in[i] == n->out[UNPACK_Y];
        assert_int_equal(reads, n->op == OP_unpack);
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != NO_VALUE && g->value[n->out[i]].role == VALUE_TEMP &&
                !op_get(n->op)->update[i])
                assert_int_equal(g->value[n->out[i]].producer, k);
    }
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM)
            assert_true(!g->value[v].info->frozen || g->value[v].shape.n == 1);
    graph_free(g);
}

/* No temporaries are added for more than one weight at a time. */
static void memory(void **state)
{
    const struct setting s = {base_gpt, DTYPE_I8, DTYPE_F32, 1, 0};
    struct rig wide, packed;

    (void)state;
    open_rig(&wide, base_cpu(), s, DTYPE_F32);
    open_rig(&packed, base_cpu(), s, DTYPE_I8);
    assert_true(packed.program->temp_bytes <=
                wide.program->temp_bytes + (size_t)4 * WIDTH * WIDTH * sizeof(float) + 64);
    assert_true(packed.layout->n_base_bytes * 3 <
                (wide.layout->n_total - wide.layout->n_trained) * (int64_t)sizeof(float));
    rig_close(&wide);
    rig_close(&packed);
}

/* A weight that is large enough for tiles, of LARGE x LARGE. */
static struct graph *base_large(int training)
{
    struct rig_model model = rig_model(&arch_layers);
    struct model_options o;
    struct graph *g;

    model.list.layers = "[flatten, linear: 2100, linear: 2100, linear: 5]";
    o = rig_options(&model);
    o.lora = lora;
    rig_must(model_build(&o, &images, BATCH, training, 0, &g, &rig_err));
    return g;
}

/* The CPU multiplies it tile by tile, so its numbers are never all in memory, and the sums have
 * another order. */
static void large_weight(void **state)
{
    enum { LARGE = 2100 };
    const struct setting s = {base_large, DTYPE_I8, DTYPE_F32, 1, 0};
    struct rig wide, packed;
    double most = 0, error = 0;

    (void)state;
    open_rig(&wide, base_cpu(), s, DTYPE_F32);
    open_rig(&packed, base_cpu(), s, DTYPE_I8);
    assert_int_equal(base_count(packed.graph, OP_unpack_linear), 1);
    assert_int_equal(base_count(packed.graph, OP_unpack_linear_grad_x), 1);
    share_numbers(&wide, &packed);
    run(&wide);
    run(&packed);
    for (int64_t i = 0; i < wide.layout->n_trained; i++) {
        const double a = ((float *)wide.spaces.grad)[i], b = ((float *)packed.spaces.grad)[i];

        most = fmax(most, fabs(a));
        error = fmax(error, fabs(a - b));
    }
    assert_true(most > 0 && error <= 1e-5 * most);
    assert_true(packed.arena_bytes < wide.arena_bytes + LARGE * LARGE * sizeof(float) / 2);
    rig_close(&wide);
    rig_close(&packed);
}

/* A parameter begins with the same numbers whatever form the base has. */
static void initial_values(void **state)
{
    static const enum dtype forms[] = {DTYPE_I8, DTYPE_BF16};
    const struct setting s = {base_gpt, DTYPE_I8, DTYPE_F32, 1, 0};
    struct rig wide;

    (void)state;
    open_rig(&wide, base_cpu(), s, DTYPE_F32);
    rig_init(&wide, SEED);
    for (size_t k = 0; k < ARRAY_LEN(forms); k++) {
        struct rig packed;

        open_rig(&packed, base_cpu(), s, forms[k]);
        rig_init(&packed, SEED);
        for (int i = 0; i < packed.layout->n_params; i++) {
            int64_t n;
            const float *to = rig_param(&packed, packed.layout->param[i].name, &n);

            assert_memory_equal(to, rig_param(&wide, packed.layout->param[i].name, NULL),
                                (size_t)n * sizeof *to);
        }
        rig_close(&packed);
    }
    rig_close(&wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(naive_backend),    cmocka_unit_test(cpu_backend),
        cmocka_unit_test(nodes_and_values), cmocka_unit_test(memory),
        cmocka_unit_test(large_weight),     cmocka_unit_test(initial_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
