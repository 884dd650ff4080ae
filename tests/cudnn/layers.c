/* layers - builds, binds and runs the two layers of layers.h on a backend that the fakes serve.
 * This file does not know which algorithm the backend takes. */
#include "../test.h"

#include "../cudasim/sim.h"
#include "fakes.h"
#include "layers.h"

/* Memory: x, the filter and its bias, the product's weights and bias, the two outputs. */
enum { N_IN = 5, CONV_OUT = N_IN, FC_OUT, N_MEM, N_KERNELS = 2, FLOATS = 1024 };

struct layers {
    struct graph *g;
    void *mem[N_MEM], *scratch[N_KERNELS];
    struct kernel *k[N_KERNELS];
};

struct backend *layers_open(const struct plugin_choices *c)
{
    struct backend *b;
    struct err err;

    assert_int_equal(cuda_open(0, &b, &err), 0);
    if (c)
        cuda_configure(b, c);
    return b;
}

void layers_close(struct backend *b)
{
    backend_close(b);
    assert_int_equal(sim_open_things(), 0);
    assert_int_equal(fakes_open_things(), 0);
}

static struct graph *describe(void)
{
    static const struct shape shapes[N_IN] = {
        {4, {2, 5, 5, 3}}, {4, {4, 3, 3, 3}}, {1, {4}}, {2, {6, 36}}, {1, {6}}};
    struct graph *g = graph_new(2, 0);
    union node_attr conv = {.conv = {{1, 1}, {0, 0}, {1, 1}, 1, ACT_RELU}};
    union node_attr lin = {.linear = {ACT_NONE, {3, 3, 4}}};
    int v[N_IN], y[2][NODE_MAX_OUT] = {{NODE_NEW_OUT}, {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT}};
    struct err err;

    for (int i = 0; i < N_IN; i++)
        v[i] = graph_value(g, VALUE_INPUT, DTYPE_F32, shapes[i], "v");
    assert_int_equal(graph_node(g, OP_conv2d, &conv, v, 3, y[0], "conv", &err), 0);
    assert_int_equal(
        graph_node(g, OP_linear, &lin, (int[]){y[0][0], v[3], v[4]}, 3, y[1], "fc", &err), 0);
    return g;
}

static int fill(struct backend *b, struct layers *l, struct err *err)
{
    float x[FLOATS];
    int rc = 0;

    for (int i = 0; i < FLOATS; i++)
        x[i] = (float)(i * 7 % 11 - 5);
    for (int i = 0; i < N_MEM && rc == 0; i++)
        rc = backend_alloc(b, sizeof x, "a test", &l->mem[i], err);
    for (int i = 0; i < N_IN && rc == 0; i++)
        rc = backend_copy_in(b, l->mem[i], x, sizeof x, err);
    return rc;
}

static int run(struct backend *b, struct layers *l, int i, struct err *err)
{
    void *const in[N_KERNELS][3] = {{l->mem[0], l->mem[1], l->mem[2]},
                                    {l->mem[CONV_OUT], l->mem[3], l->mem[4]}};
    int rc = backend_make_kernel(b, l->g, &l->g->node[i], &l->k[i], err);

    if (rc == 0)
        rc = backend_alloc(b, l->k[i]->scratch_bytes, "a test", &l->scratch[i], err);
    if (rc == 0)
        rc = l->k[i]->ops->bind(l->k[i], in[i], &l->mem[CONV_OUT + i], l->scratch[i], err);
    return rc < 0 ? rc : l->k[i]->ops->run(l->k[i], err);
}

int layers_use(struct backend *b, float y[LAYERS_Y], struct err *err)
{
    struct layers l = {.g = describe()};
    int rc = fill(b, &l, err);

    for (int i = 0; i < N_KERNELS && rc == 0; i++)
        rc = run(b, &l, i, err);
    if (rc == 0 && y)
        rc = backend_copy_out(b, y, l.mem[FC_OUT], LAYERS_Y * sizeof *y, err);
    if (backend_sync(b, &(struct err){0}) < 0)
        rc = -1;
    for (int i = 0; i < N_KERNELS; i++) {
        if (l.k[i])
            l.k[i]->ops->free(l.k[i]);
        backend_free(b, l.scratch[i]);
    }
    for (int i = 0; i < N_MEM; i++)
        backend_free(b, l.mem[i]);
    graph_free(l.g);
    return rc;
}
