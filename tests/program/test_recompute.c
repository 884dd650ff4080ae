/* test_recompute - a program that computes its blocks again in the backward pass gives the same
 * bits as one that keeps their activations, in less memory. */
#include "../test.h"

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "model/gpt.h"
#include "program/impl.h"
#include "ref_backend.h"
#include "rig.h"

enum { BATCH = 3, DEPTH = 8 };

static const struct sample_spec text = SAMPLE_SEQUENCES(8, 11),
                                images = SAMPLE_IMAGES(16, 16, 3, 5),
                                tiny = SAMPLE_IMAGES(2, 2, 3, 5);

/* Blocks with dropout, also of the attention's weights, and a tied embedding. */
static struct graph *gpt(void)
{
    static const struct gpt_options options = {
        .layers = DEPTH, .heads = 2, .width = 16, .context = 8, .dropout = 0.25, .tied = 1};
    const struct model_options o = {.kind = &arch_gpt, .options = &options};
    struct graph *g;

    rig_must(model_build(&o, &text, BATCH, 1, 0, &g, &rig_err));
    return g;
}

/* Residuals of convolutions and batch norms, one of them inside another, which stands for a single
 * block.
 *   sync  the statistics are summed over ranks */
static struct graph *make_residuals(const struct sample_spec *spec, int64_t batch, int sync)
{
    struct rig_model model = rig_model(&arch_layers);
    struct model_options o;
    struct graph *g;

    model.list.layers =
        "[conv: {channels: 8, kernel: 3, padding: 1}, batch_norm, relu, "
#define BLOCK                                                                       \
    "{residual: [conv: {channels: 8, kernel: 3, padding: 1}, batch_norm, relu, "    \
    "dropout: {p: 0.25}, conv: {channels: 8, kernel: 3, padding: 1}, batch_norm]}," \
    "relu, "
        BLOCK BLOCK BLOCK BLOCK
        "{residual: [tanh, residual: [conv: {channels: 8, kernel: 1}, tanh], batch_norm, gelu]}, "
        "flatten, linear: {units: 5}]";
    o = rig_options(&model);
    rig_must(model_build(&o, spec, batch, 1, sync, &g, &rig_err));
    return g;
}

static struct graph *residuals(void) { return make_residuals(&images, BATCH, 0); }
static struct graph *residuals_of_ranks(void) { return make_residuals(&images, BATCH, 1); }
/* Here statistics are not small, and stay because ranks sum them. */
static struct graph *tiny_residuals(void) { return make_residuals(&tiny, BATCH, 1); }

/* Blocks by `repeat` and by a residual, which read values from outside, and one that is read there.
 */
static struct graph *branches(void)
{
    struct rig_model model = rig_model(&arch_layers);
    struct model_options o;
    struct graph *g;

    model.list.layers =
        "[conv: {channels: 8, kernel: 3, padding: same}, {relu: , save: fine}, {repeat: 6, layers: "
        "[{tanh: , save: x}, conv: {channels: 8, kernel: [3, 1], padding: same}, gelu, conv: "
        "{channels: 8, kernel: 1}, add: x, mul: fine]}, "
        "{residual: [conv: {channels: 8, kernel: 1}, {tanh: , save: inner}, conv: {channels: 8, "
        "kernel: 1}]}, upsample: 2, max_pool: 2, concat: [inner, fine], max, linear: 5]";
    o = rig_options(&model);
    rig_must(model_build(&o, &images, BATCH, 1, 0, &g, &rig_err));
    return g;
}

/* rig_fill serves rows of reals with one label each; here there may be tokens. */
static void fill(struct rig *r)
{
    const struct graph *g = r->graph;

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
}

/* One step on an arena full of NaNs. */
static void run(struct rig *r)
{
    memset(r->arena, 0xff, r->arena_bytes);
    fill(r);
    for (int i = 0; i < program_n_stages(r->program); i++)
        rig_must(program_run_stage(r->program, i, &rig_err));
}

static void open_rig(struct rig *r, struct backend *b, struct graph *(*build)(void),
                     enum dtype type, enum graph_recompute recompute)
{
    struct graph *g = build();

    g->recompute = recompute;
    rig_must(program_differentiate(g, &rig_err));
    rig_must(program_set_precision(g, (struct program_precision){type, DTYPE_F32}, &rig_err));
    rig_open_on(r, b, g, NULL);
    rig_init(r, 3);
    run(r);
}

static void expect_equal(const void *a, const void *b, int64_t n_floats)
{
    assert_memory_equal(a, b, (size_t)n_floats * sizeof(float));
}

static int count(const struct rig *r, enum op op)
{
    int n = 0;

    for (int k = 0; k < r->graph->n_nodes; k++)
        n += r->graph->node[k].op == (int)op;
    return n;
}

/* Compares a program of this form and one that keeps all; each of them takes a backend.
 *   most  of the memory that the temporaries may need, as a part of what they need otherwise
 *   more  steps */
static void compare_form(enum graph_recompute form, struct backend *b, struct backend *other,
                         struct graph *(*build)(void), enum dtype type, double most, int more)
{
    struct rig kept, again;
    double sum = 0;

    open_rig(&kept, b, build, type, GRAPH_RECOMPUTE_NONE);
    open_rig(&again, other, build, type, form);
    assert_int_equal(again.program->n_steps, kept.program->n_steps + more);
    assert_int_equal(count(&again, OP_batch_norm_stats), count(&kept, OP_batch_norm_stats));
    assert_int_equal(count(&again, OP_allreduce), count(&kept, OP_allreduce));
    assert_int_equal(again.program->n_forward_steps, kept.program->n_forward_steps);
    expect_equal(kept.spaces.grad, again.spaces.grad, kept.layout->n_trained);
    expect_equal(kept.spaces.shadow, again.spaces.shadow, kept.layout->n_state_total);
    assert_memory_equal(kept.metrics, again.metrics, sizeof kept.metrics);
    assert_true(kept.metrics[METRIC_LOSS_SUM] > 0);
    for (int i = 0; i < kept.layout->n_params; i++)
        sum += fabs((double)rig_grad(&kept, kept.layout->param[i].name)[0]);
    assert_true(sum > 0);
    printf("%zu of %zu bytes, ", again.program->temp_bytes, kept.program->temp_bytes);
    printf("%d instead of %d steps\n", again.program->n_steps, kept.program->n_steps);
    assert_true((double)again.program->temp_bytes <= most * (double)kept.program->temp_bytes);
    rig_close(&kept);
    rig_close(&again);
}

static void compare(struct backend *b, struct backend *other, struct graph *(*build)(void),
                    enum dtype type, double most, int more)
{
    compare_form(GRAPH_RECOMPUTE_BLOCKS, b, other, build, type, most, more);
}

static struct backend *naive(unsigned fusions)
{
    struct backend *b;

    rig_must(ref_open(fusions, &b));
    return b;
}

static struct backend *cpu(void)
{
    struct backend *b;

    rig_must(backend_open_cpu(1, &b, &rig_err));
    return b;
}

/* A block of the gpt repeats ln_1, c_attn, attention, attn.c_proj, dropout, add, ln_2, c_fc and
 * gelu, of which c_fc and gelu may be one kernel; three of them add their bias by a kernel of its
 * own where nothing is fused. */
static void naive_backend(void **state)
{
    (void)state;
    compare(naive(REF_FUSE_NONE), naive(REF_FUSE_NONE), gpt, DTYPE_F32, 0.25, 12 * DEPTH);
    compare(naive(REF_FUSE_ALL), naive(REF_FUSE_ALL), gpt, DTYPE_F32, 0.25, 8 * DEPTH);
    compare(naive(REF_FUSE_NONE), naive(REF_FUSE_NONE), residuals, DTYPE_F32, 0.5, 34);
    compare(naive(REF_FUSE_ALL), naive(REF_FUSE_ALL), residuals, DTYPE_F32, 0.55, 20);
}

static void cpu_backend(void **state)
{
    static const enum dtype type[] = {DTYPE_F32, DTYPE_BF16};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(type); i++) {
        compare(cpu(), cpu(), gpt, type[i], 0.25, 9 * DEPTH);
        compare(cpu(), cpu(), residuals, type[i], 0.55, 20);
        compare(cpu(), cpu(), residuals_of_ranks, type[i], 0.55, 20);
        compare(cpu(), cpu(), tiny_residuals, type[i], 0.8, 20);
        compare(cpu(), cpu(), branches, type[i], 0.8, 30);
    }
}

/* A block of the gpt repeats both norms and gelu, and the last norm of the network is repeated,
 * too. Residuals repeat what a batch norm or an activation function makes of a value that is kept.
 */
static void selected(void **state)
{
    static const enum dtype type[] = {DTYPE_F32, DTYPE_BF16};
    static const int of_residuals[] = {15, 16}, of_branches[] = {18, 21}; /* casts are among them */

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(type); i++) {
        compare_form(GRAPH_RECOMPUTE_SELECTIVE, cpu(), cpu(), gpt, type[i], 0.9, 3 * DEPTH + 1);
        compare_form(GRAPH_RECOMPUTE_SELECTIVE, cpu(), cpu(), residuals, type[i], 0.8,
                     of_residuals[i]);
        compare_form(GRAPH_RECOMPUTE_SELECTIVE, cpu(), cpu(), branches, type[i], 0.95,
                     of_branches[i]);
    }
    compare_form(GRAPH_RECOMPUTE_SELECTIVE, naive(REF_FUSE_NONE), naive(REF_FUSE_NONE), gpt,
                 DTYPE_F32, 0.9, 3 * DEPTH + 1);
}

/* A network without blocks stays as it is. */
static void without_blocks(void **state)
{
    const struct rig_model model = rig_model(&arch_mlp);
    struct graph *g[2];
    struct rig r[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        g[i] = rig_graph(&model, &rig_mnist, BATCH, 1, 0);
        g[i]->recompute = i ? GRAPH_RECOMPUTE_BLOCKS : GRAPH_RECOMPUTE_NONE;
        rig_open(&r[i], REF_FUSE_ALL, g[i], NULL);
    }
    assert_int_equal(r[0].program->n_steps, r[1].program->n_steps);
    assert_int_equal(r[0].program->temp_bytes, r[1].program->temp_bytes);
    for (int i = 0; i < 2; i++)
        rig_close(&r[i]);
}

/* The training program of the tiny residuals, whose blocks are computed again. */
static struct program *make_program(struct backend *b, enum graph_recompute form, int64_t batch,
                                    const struct layout *l)
{
    struct graph *g = make_residuals(&tiny, batch, 0);
    struct program *p;

    g->recompute = form;
    rig_must(program_differentiate(g, &rig_err));
    rig_must(program_new(b, g, l, &p, &rig_err));
    return p;
}

/* Where parameters are gathered, ranks whose batches differ gather the same ones.  The statistics
 * of a norm are small beside 16 samples and more, and beside none. */
static void check_gathers(enum graph_recompute form)
{
    static const int64_t batch[] = {0, 1, 15, 16, 64};
    struct program *first, *p;
    struct graph *g;
    struct rig r;

    g = make_residuals(&tiny, BATCH, 0);
    rig_must(program_differentiate(g, &rig_err));
    rig_open(&r, REF_FUSE_ALL, g, NULL);
    layout_cut(r.layout, 1);
    r.layout->gathers = 1;
    first = make_program(r.backend, form, BATCH, r.layout);
    for (size_t i = 0; i < ARRAY_LEN(batch); i++) {
        p = make_program(r.backend, form, batch[i], r.layout);
        assert_int_equal(program_n_sets(p), program_n_sets(first));
        for (int s = 0; s < program_n_sets(p); s++) {
            int n, n_want;
            const int *set = program_set(p, s, &n), *want = program_set(first, s, &n_want);

            assert_int_equal(n, n_want);
            assert_memory_equal(set, want, (size_t)n * sizeof *set);
        }
        program_free(p);
    }
    program_free(first);
    r.layout->gathers = 0;
    rig_close(&r);
}

static void gathers_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    check_gathers(GRAPH_RECOMPUTE_SELECTIVE);
    check_gathers(GRAPH_RECOMPUTE_BLOCKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(naive_backend),
        cmocka_unit_test(cpu_backend),
        cmocka_unit_test(selected),
        cmocka_unit_test(without_blocks),
        cmocka_unit_test(gathers_do_not_depend_on_the_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
