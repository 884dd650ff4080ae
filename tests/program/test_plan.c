/* test_plan - the memory plan: no step reads a value that another step has overwritten.
 *
 * Each program is executed on paper.  Every byte of the arena has an owner, the value last written
 * there, and a node that reads a value must find that the value still owns all its bytes.  Random
 * graphs of operators that alias, work in place and share values are checked in the same way.  They
 * are also run, fused and not fused, on an arena full of NaNs. */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/rng.h"
#include "program/impl.h"
#include "ref_backend.h"
#include "rig.h"

struct paper {
    const struct program *p;
    int *owner; /* the owner of each byte of the arena's temporaries */
    int *alias; /* for each value: the value whose bytes it has, itself without a reshape */
    const char *what;
};

static void complain(const struct paper *w, const struct node *n, int v, const char *how)
{
    struct buf text = {0};

    program_print(w->p, &text);
    fprintf(stderr, "%s\n", buf_cstr(&text));
    buf_fini(&text);
    fail_msg("%s: %s: %s is %s", w->what, n ? n->name : "end", w->p->graph->value[v].name, how);
}

static void take(struct paper *w, const struct node *n, int v)
{
    const struct place *at = &w->p->place[w->p->place[v].root];

    if (at->offset % 64 || at->offset + w->p->place[v].n_bytes > w->p->temp_bytes)
        complain(w, n, v, "misplaced");
    for (size_t i = 0; i < w->p->place[v].n_bytes; i++)
        w->owner[at->offset + i] = w->alias[v];
}

static void expect_owned(struct paper *w, const struct node *n, int v)
{
    const struct place *at = &w->p->place[w->p->place[v].root];

    if (!is_temp(w->p->graph, w->alias[v]))
        return; /* v is an input of the graph under another shape */
    for (size_t i = 0; i < w->p->place[v].n_bytes; i++)
        if (w->owner[at->offset + i] != w->alias[v])
            complain(w, n, v, "overwritten before it is read");
}

static void step_on_paper(struct paper *w, int k)
{
    const struct graph *g = w->p->graph;
    const struct node *n = &g->node[k];

    for (int i = 0; i < n->n_in; i++)
        if (is_temp(g, n->in[i]))
            expect_owned(w, n, n->in[i]);
    for (int i = 0; i < n->n_out; i++) {
        if (!is_temp(g, n->out[i]))
            continue;
        if (op_get(n->op)->flags & OP_ALIAS)
            w->alias[n->out[i]] = w->alias[n->in[0]];
        else
            take(w, n, n->out[i]);
    }
    /* The outputs of one node do not overlap. */
    for (int i = 0; i < n->n_out; i++)
        if (is_temp(g, n->out[i]))
            expect_owned(w, n, n->out[i]);
}

static void check_on_paper(const struct program *p, const char *what)
{
    const struct graph *g = p->graph;
    struct paper w = {.p = p, .what = what};

    w.owner = xcalloc(p->temp_bytes + 1, sizeof *w.owner);
    w.alias = xcalloc((size_t)g->n_values, sizeof *w.alias);
    for (size_t i = 0; i < p->temp_bytes; i++)
        w.owner[i] = -1;
    for (int v = 0; v < g->n_values; v++)
        w.alias[v] = v;
    for (int k = 0; k < g->n_nodes; k++)
        step_on_paper(&w, k);
    if (is_temp(g, g->logits) && !g->n_forward)
        expect_owned(&w, NULL, g->logits);
    free(w.owner);
    free(w.alias);
}

/* An output overlaps an input only if the operator works in place, and then only that input. */
static void check_overlaps(const struct program *p, const char *what)
{
    const struct graph *g = p->graph;

    for (int k = 0; k < g->n_nodes; k++) {
        const struct node *n = &g->node[k];
        const struct op_def *def = op_get(n->op);

        for (int i = 0; i < n->n_in && is_temp(g, n->out[0]); i++) {
            if (!is_temp(g, n->in[i]) || (def->flags & (OP_ALIAS | OP_ENGINE)))
                continue;
            if (p->place[n->in[i]].root == p->place[n->out[0]].root &&
                !((def->flags & OP_INPLACE) && i == def->inplace_in))
                fail_msg("%s: %s writes over input %d", what, n->name, i);
        }
    }
}

static void check_program(const struct program *p, const char *what)
{
    check_on_paper(p, what);
    check_overlaps(p, what);
}

/* --- the same graph run fused and not fused --- */

static void expect_near(const float *a, const float *b, int64_t n, double tol, const char *what)
{
    double most = 0.05; /* smaller results carry the rounding of larger numbers before them */

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - b[i]) <= tol * most))
            fail_msg("%s: element %lld is %g, want %g (largest %g)", what, (long long)i,
                     (double)a[i], (double)b[i], most);
}

static void compare(struct rig *a, struct rig *b, const char *what)
{
    const int64_t n_logits = shape_elements(&a->graph->value[a->graph->logits].shape);

    assert_true(hash_equal(a->layout->hash, b->layout->hash));
    rig_run(a);
    rig_run(b);
    if (!a->graph->n_forward)
        expect_near(program_logits(a->program), program_logits(b->program), n_logits, 2e-6, what);
    expect_near(a->spaces.shadow, b->spaces.shadow, a->layout->n_state_total, 2e-6, what);
    for (int i = 0; i < METRIC_COUNT; i++)
        assert_true(fabs(a->metrics[i] - b->metrics[i]) <= 2e-6 * (1 + fabs(b->metrics[i])));
    for (int i = 0; a->graph->training && i < a->layout->n_params; i++) {
        const struct segment *s = &a->layout->param[i];

        if (s->info.frozen)
            continue;
        expect_near(rig_grad(a, s->name), rig_grad(b, s->name), s->length, 2e-5, what);
    }
}

/* Running statistics that a batch norm would notice: means and variances near 1. */
static void spread_states(struct rig *r)
{
    for (int64_t i = 0; i < r->layout->n_state_total; i++)
        ((float *)r->spaces.state)[i] = 1 + test_uniform(77, (uint64_t)i) / 2;
}

/* Check both plans, and that both programs give equal numbers on arenas full of NaNs. */
static void check_pair(struct graph *unfused, struct graph *fused, struct layout *layout,
                       const char *what)
{
    struct rig a, b;

    rig_open(&a, REF_FUSE_NONE, unfused, layout);
    rig_open(&b, REF_FUSE_ALL, fused, layout);
    check_program(a.program, what);
    check_program(b.program, what);
    assert_true(fused->recompute || b.program->n_steps <= a.program->n_steps);
    rig_init(&a, 9);
    rig_init(&b, 9);
    spread_states(&a);
    spread_states(&b);
    rig_fill(&a, 2);
    rig_fill(&b, 2);
    compare(&a, &b, what);
    rig_close(&a);
    rig_close(&b);
}

static void check_job(const struct rig_model *model, const struct sample_spec *in, const char *what)
{
    static const int64_t batches[] = {1, 3, 4};

    for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
        struct graph *g = rig_graph(model, in, batches[i], 1, 1), *again;
        struct layout *layout;
        struct err err;

        assert_int_equal(layout_new(g, 1 << 16, &layout, &err), 0);
        check_pair(g, rig_graph(model, in, batches[i], 1, 1), NULL, what);
        for (int r = GRAPH_RECOMPUTE_SELECTIVE; r <= GRAPH_RECOMPUTE_BLOCKS; r++) {
            again = rig_graph(model, in, batches[i], 1, 1);
            again->recompute = (enum graph_recompute)r;
            check_pair(rig_graph(model, in, batches[i], 1, 1), again, NULL, what);
        }
        check_pair(rig_graph(model, in, batches[i], 0, 0), rig_graph(model, in, batches[i], 0, 0),
                   layout, what);
        layout_free(layout);
    }
}

static void models(void **state)
{
    static const struct sample_spec small = SAMPLE_IMAGES(14, 14, 1, 5),
                                    colour = SAMPLE_IMAGES(5, 3, 2, 4);
    struct rig_model model = rig_model(&arch_lenet);

    (void)state;
    check_job(&model, &small, "lenet");
    model = rig_model(&arch_lenet5);
    check_job(&model, &small, "lenet5");
    model = rig_model(&arch_mlp);
    check_job(&model, &small, "linear");
    check_job(&model, &colour, "linear, colour");
    model.mlp.hidden.n = 3;
    for (int i = 0; i < 3; i++)
        model.mlp.hidden.v[i] = 4 + 3 * i;
    for (int a = ACT_RELU; a <= ACT_LEAKY_RELU; a++) {
        model.mlp.activation = (enum activation)a;
        model.mlp.dropout = a % 2 ? 0.25 : 0;
        model.mlp.batch_norm = a == ACT_SIGMOID || a == ACT_GELU;
        model.o.loss = a == ACT_TANH ? LOSS_MSE : LOSS_CROSS_ENTROPY;
        check_job(&model, &colour, "mlp");
    }
}

/* A residual block with a shortcut of its own: batch norms, sums and relus. */
static struct rig_model blocks(void)
{
    struct rig_model model = rig_model(&arch_layers);

    model.list.layers = "[conv: {channels: 4, kernel: 3, padding: 1}, batch_norm, relu, "
                        "{residual: [conv: {channels: 6, kernel: 3, padding: 1}, batch_norm, relu, "
                        "conv: {channels: 6, kernel: 3, padding: 1}, batch_norm], "
                        "shortcut: [conv: {channels: 6, kernel: 1}, batch_norm]}, relu, "
                        "residual: [conv: {channels: 6, kernel: 3, padding: 1}, batch_norm, relu, "
                        "conv: {channels: 6, kernel: 1}, batch_norm, tanh], "
                        "batch_norm, relu, max_pool: {kernel: 2}, flatten, linear: {units: 5}]";
    return model;
}

static void residual_blocks(void **state)
{
    static const struct sample_spec small = SAMPLE_IMAGES(6, 4, 2, 5);
    const struct rig_model model = blocks();
    int n[OP_COUNT] = {0};
    struct rig r;

    (void)state;
    check_job(&model, &small, "blocks");
    rig_open(&r, REF_FUSE_ALL, rig_graph(&model, &small, 3, 1, 0), NULL);
    for (int k = 0; k < r.graph->n_nodes; k++) {
        const struct node *node = &r.graph->node[k];

        n[node->op] += k < r.graph->n_forward || node->op == OP_activation_grad;
    }
    assert_int_equal(n[OP_batch_norm], 7);
    assert_int_equal(n[OP_add], 1);             /* the sum after tanh */
    assert_int_equal(n[OP_activation], 1);      /* tanh */
    assert_int_equal(n[OP_activation_grad], 2); /* tanh's, and that of the relu after a fused sum */
    rig_close(&r);
}

/* In evaluation each convolution has the batch norm after it in its filter, and the sum and the
 * relu after that in its kernel. */
static void evaluation_is_folded(void **state)
{
    static const struct sample_spec small = SAMPLE_IMAGES(6, 4, 2, 5);
    const struct rig_model model = blocks();
    struct graph *training = rig_graph(&model, &small, 3, 1, 0);
    int n[OP_COUNT] = {0}, n_sums = 0;
    struct layout *layout;
    struct rig r;

    (void)state;
    rig_must(layout_new(training, 1 << 16, &layout, &rig_err));
    rig_open(&r, REF_FUSE_ALL, rig_graph(&model, &small, 3, 0, 0), layout);
    for (int k = 0; k < r.graph->n_nodes; k++) {
        const struct node *node = &r.graph->node[k];

        n[node->op]++;
        n_sums += node->op == OP_conv2d && node->in[CONV2D_ADD] != NO_VALUE;
    }
    assert_int_equal(n[OP_conv2d], 6);
    assert_int_equal(n[OP_batch_norm_fold], 6);
    assert_int_equal(n_sums, 1);
    assert_int_equal(n[OP_batch_norm_infer], 1); /* that after a sum */
    assert_int_equal(n[OP_add], 1);              /* the sum after tanh */
    assert_int_equal(n[OP_activation], 1);       /* tanh */
    rig_close(&r);
    layout_free(layout);
    graph_free(training);
}

/* With all fusions lenet has one kernel for each layer and its activation. */
static void lenet_is_fused(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    struct rig r;
    int n[OP_COUNT] = {0};
    struct buf text = {0};

    (void)state;
    rig_open(&r, REF_FUSE_ALL, rig_graph(&model, &rig_mnist, 4, 1, 0), NULL);
    program_print(r.program, &text);
    assert_non_null(strstr(buf_cstr(&text), "conv1 (conv2d): x [4,28,28,1], conv1.weight "));
    assert_non_null(strstr(buf_cstr(&text), "backward bucket 0\n"));
    buf_fini(&text);
    for (int k = 0; k < r.graph->n_nodes; k++)
        n[r.graph->node[k].op]++;
    assert_int_equal(n[OP_conv2d], 2);
    assert_int_equal(n[OP_linear], 2);
    assert_int_equal(n[OP_bias] + n[OP_bias_grad] + n[OP_activation], 0);
    assert_int_equal(n[OP_flatten] + n[OP_unflatten], 0);
    assert_int_equal(n[OP_activation_grad], 0);
    assert_int_equal(n[OP_pool2d_grad], 2);
    assert_int_equal(n[OP_softmax_xent] + n[OP_softmax_xent_grad], 0);
    assert_int_equal(n[OP_softmax_xent_train], 1);
    assert_int_equal(r.graph->n_nodes, 7 + 9); /* forward with the loss, backward */
    for (int k = 0; k < r.graph->n_nodes; k++) {
        const struct node *loss = &r.graph->node[k];

        if (loss->op == OP_softmax_xent_train) /* the gradient lies where the logits did */
            assert_ptr_equal(r.program->place[loss->out[SOFTMAX_XENT_TRAIN_DLOGITS]].address,
                             r.program->place[loss->in[SOFTMAX_XENT_TRAIN_LOGITS]].address);
    }
    rig_close(&r);
}

/* --- random graphs --- */

struct maker {
    struct graph *g;
    struct rng_stream rng;
    int alive[64], n_alive; /* values of [4,6] or [2,2,1,6] */
    int n_params;
    struct err err;
};

static uint64_t pick(struct maker *m, uint64_t n) { return rng_next_below(&m->rng, n); }

static int any(struct maker *m)
{
    /* The newest value is chosen often, so that chains grow and values die. */
    if (pick(m, 2))
        return m->alive[m->n_alive - 1];
    return m->alive[pick(m, (uint64_t)m->n_alive)];
}

static int fresh_param(struct maker *m, struct shape s)
{
    struct param_info info = {.init = PARAM_UNIFORM, .bound = 0.7F};
    char name[16];

    snprintf(name, sizeof name, "p%d", m->n_params++);
    return graph_param(m->g, s, info, name);
}

static int add_node(struct maker *m, enum op op, const union node_attr *attr, const int *in,
                    int n_in)
{
    int out[NODE_MAX_OUT] = {-1, -1, -1, -1};
    char name[32];

    snprintf(name, sizeof name, "%s%d", op_get(op)->name, m->g->n_nodes);
    if (graph_node(m->g, op, attr, in, n_in, out, name, &m->err) < 0)
        fail_msg("%s", m->err.msg);
    return out[0];
}

static int as_rows(struct maker *m, int v)
{
    union node_attr a = {.reshape.shape = SHAPE(4, 6)};

    return m->g->value[v].shape.n == 2 ? v : add_node(m, OP_reshape, &a, &v, 1);
}

static int as_image(struct maker *m, int v)
{
    union node_attr a = {.reshape.shape = SHAPE(4, 3, 1, 2)};

    return m->g->value[v].shape.n == 4 ? v : add_node(m, OP_reshape, &a, &v, 1);
}

static int random_node(struct maker *m)
{
    union node_attr a = {0};
    int x = any(m);

    switch (pick(m, 8)) {
    case 0:
    case 1:
        a.act.kind = (enum activation)(ACT_RELU + (int)pick(m, 5));
        return add_node(m, OP_activation, &a, &x, 1);
    case 2:
        return add_node(m, OP_add, NULL, (int[]){as_rows(m, x), as_rows(m, any(m))}, 2);
    case 3:
        x = as_rows(m, x);
        return add_node(m, OP_linear, NULL, (int[]){x, fresh_param(m, SHAPE(6, 6))}, 2);
    case 4:
        return add_node(m, OP_bias, NULL,
                        (int[]){x, fresh_param(m, SHAPE(m->g->value[x].shape.n == 2 ? 6 : 2))}, 2);
    case 5:
        x = as_image(m, x);
        return add_node(m, OP_flatten, NULL, &x, 1);
    case 6:
        a.dropout.p = 0.25F;
        a.dropout.tag = m->g->n_nodes;
        return add_node(m, OP_dropout, &a, (int[]){x, m->g->scalars}, 2);
    default:
        return m->g->value[x].shape.n == 2 ? as_image(m, x) : as_rows(m, x);
    }
}

static struct graph *random_graph(uint64_t seed)
{
    struct maker m = {.g = graph_new(4, 1)};
    union node_attr a = {0};
    int n, y, labels, made;

    rng_stream_init(&m.rng, seed, RNG_TEST, 1);
    m.alive[m.n_alive++] = graph_input(m.g, DTYPE_F32, SHAPE(4, 6), "x");
    labels = graph_input(m.g, DTYPE_I32, SHAPE(4), "labels");
    n = 3 + (int)pick(&m, 40);
    for (int i = 0; i < n; i++) {
        m.g->block = (int)(seed + (uint64_t)i) / 8 % 4;
        made = random_node(&m);
        m.alive[m.n_alive++] = made;
    }
    m.g->block = 0;
    y = add_node(&m, OP_linear, NULL,
                 (int[]){as_rows(&m, m.alive[m.n_alive - 1]), fresh_param(&m, SHAPE(6, 6))}, 2);
    m.g->logits = pick(&m, 3) ? y : as_rows(&m, any(&m)); /* any value may be the logits */
    add_node(&m, OP_softmax_xent, &a, (int[]){y, labels, m.g->metrics}, 3);
    return m.g;
}

/* Freeze the parameters that have no influence on the loss, then differentiate. */
static struct graph *random_trained(uint64_t seed)
{
    struct graph *g = random_graph(seed);
    char *reaches = xcalloc((size_t)g->n_values, 1);
    struct err err;

    reaches[g->node[g->n_nodes - 1].in[0]] = 1; /* the loss is last */
    for (int k = g->n_nodes - 1; k >= 0; k--)
        for (int i = 0; i < g->node[k].n_in; i++)
            if (g->node[k].in[i] >= 0 && g->node[k].out[0] >= 0 && reaches[g->node[k].out[0]])
                reaches[g->node[k].in[i]] = 1;
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM && !reaches[v]) {
            struct param_info info = *g->value[v].info;

            info.frozen = 1;
            g->value[v].info = arena_copy(&g->arena, &info, sizeof info);
        }
    free(reaches);
    if (program_differentiate(g, &err) < 0)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.msg);
    return g;
}

/* A graph for evaluation whose logits are the input of its last layer: without the rule for logits
 * they would die there. */
static struct graph *random_evaluated(uint64_t seed)
{
    struct graph *g = random_graph(seed);
    const struct node *loss = &g->node[g->n_nodes - 1];

    g->training = 0;
    g->logits = g->node[g->value[loss->in[0]].producer].in[0];
    return g;
}

static void random_graphs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct graph *trained = random_trained(seed), *again;
        struct layout *layout;
        struct err err;
        char what[48];

        assert_int_equal(layout_new(trained, 1 << 16, &layout, &err), 0);
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        check_pair(trained, random_trained(seed), NULL, what);
        snprintf(what, sizeof what, "seed %llu, evaluation", (unsigned long long)seed);
        check_pair(random_evaluated(seed), random_evaluated(seed), layout, what);
        for (int r = GRAPH_RECOMPUTE_SELECTIVE; r <= GRAPH_RECOMPUTE_BLOCKS; r++) {
            snprintf(what, sizeof what, "seed %llu, recomputed %d", (unsigned long long)seed, r);
            again = random_trained(seed);
            again->recompute = (enum graph_recompute)r;
            check_pair(random_trained(seed), again, NULL, what);
        }
        layout_free(layout);
    }
}

/* Only an evaluation program keeps the logits to the end; a training program may reuse their
 * memory. */
static void training_keeps_no_logits(void **state)
{
    struct rig_model model = rig_model(&arch_mlp);
    size_t n_bytes[2];

    (void)state;
    model.mlp.hidden.n = 1;
    model.mlp.hidden.v[0] = 10;
    for (int named = 0; named < 2; named++) {
        struct graph *g = rig_graph(&model, &rig_mnist, 64, 1, 0);
        struct rig r;

        if (!named)
            g->logits = NO_VALUE;
        rig_open(&r, 0, g, NULL);
        n_bytes[named] = r.program->temp_bytes;
        rig_close(&r);
    }
    assert_int_equal(n_bytes[0], n_bytes[1]);
}

/* The planned memory is far smaller than the sum of all temporaries. */
static void lenet_is_small(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    size_t sum = 0;
    struct rig r;

    (void)state;
    rig_open(&r, REF_FUSE_ALL, rig_graph(&model, &rig_mnist, 16, 1, 0), NULL);
    for (int v = 0; v < r.graph->n_values; v++)
        if (is_temp(r.graph, v) && r.graph->value[v].producer >= 0)
            sum += value_bytes(&r.graph->value[v]);
    assert_true(r.program->temp_bytes < sum * 3 / 4);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models),
        cmocka_unit_test(residual_blocks),
        cmocka_unit_test(evaluation_is_folded),
        cmocka_unit_test(lenet_is_fused),
        cmocka_unit_test(random_graphs),
        cmocka_unit_test(training_keeps_no_logits),
        cmocka_unit_test(lenet_is_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
