/* cuDNN plans for every convolution of the models, built by the real library for an H200 from its
 * description: an unsupported graph fails here, on a machine without a GPU.  Plans are built and
 * compiled, but not run.  The test prints one line for each plan: engine, workspace, T for tensor
 * cores, R for compiled at run time.  In float32 no plan may round its inputs.
 *
 * The stand-in for libcuda.so.1 beside this test lets cuDNN offer runtime-compiled engines too, as
 * it would with a driver. */
#include "../test.h"

#include "../remove_tree.h"
#include "backend/cuda/conv_plan.h"
#include "backend/cuda/flash_plan.h"
#include "cases.h"
#include "model/model.h"
#include "op/op.h"
#include "plans.h"

enum { MIB = 1 << 20 };

/* Without a GPU cuDNN leaks memory of its own; test_kernels looks for leaks of ours. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

static const struct cudnn_rules rules = {.max_workspace = (size_t)256 * MIB};
static const struct sample_spec mnist = SAMPLE_IMAGES(28, 28, 1, 10);
static struct cudnn_device *device;

static const char *pass_name(enum cudnn_pass pass)
{
    static const char *const name[] = {"forward", "grad_x", "grad_w"};

    return name[pass];
}

static const struct cudnn_plan *build(const struct conv_shape *s, enum cudnn_pass pass,
                                      enum conv_tail tail, const char *what)
{
    static const char *const tail_name[] = {"", "+bias", "+bias+relu", "+what is there"};
    const struct cudnn_plan *p = NULL;
    struct err err;
    char x[SHAPE_TEXT_LEN];

    if (conv_plan(device, &rules, pass, tail, s, &p, &err) < 0)
        fail_msg("%s: %s", what, err.msg);
    printf("%-24s %-5s %s %s%s: engine %lld, %.1f MiB%s%s\n", what, dtype_name(s->dtype),
           shape_text(&s->x, x), pass_name(pass), tail_name[tail], (long long)p->engine,
           (double)p->workspace / MIB, p->uses_tensor_cores ? " T" : "",
           p->compiled_at_run_time ? " R" : "");
    assert_true(p->workspace <= rules.max_workspace);
    return p;
}

static void build_all(const struct conv_shape *s, const char *what, size_t bound)
{
    for (int pass = CUDNN_PASS_FORWARD; pass <= CUDNN_PASS_GRAD_W; pass++) {
        const struct cudnn_plan *p = build(s, (enum cudnn_pass)pass, CONV_ALONE, what);

        if (s->dtype == DTYPE_F32)
            assert_false(p->uses_tensor_cores);
        assert_true(p->workspace <= bound);
    }
}

/* Build every convolution of a model, in float32 and in both half-precision types. */
static void build_model(const struct model_arch *arch, int64_t batch, int with_tails)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    const struct model_options model = {.kind = arch};
    struct graph *g;
    struct err err;
    int n = 0;

    assert_int_equal(model_build(&model, &mnist, batch, 1, 1, &g, &err), 0);
    for (int i = 0; i < g->n_nodes; i++) {
        struct conv_shape s;
        char what[64];

        if (g->node[i].op != OP_conv2d)
            continue;
        assert_int_equal(conv_shape_of(g, &g->node[i], &s), CUDNN_PASS_FORWARD);
        snprintf(what, sizeof what, "%s %s", arch->group.name, g->node[i].name);
        for (size_t t = 0; t < ARRAY_LEN(dtypes); t++) {
            s.dtype = dtypes[t];
            build_all(&s, what, (size_t)64 * MIB);
            if (!with_tails)
                continue;
            build(&s, CUDNN_PASS_FORWARD, CONV_BIAS, what);
            build(&s, CUDNN_PASS_FORWARD, CONV_BIAS_RELU, what);
        }
        n++;
    }
    assert_int_equal(n, 2);
    graph_free(g);
}

static void models(void **state)
{
    static const int64_t batch[] = {1, 8, 64, 96, 128, 256}, share[] = {34, 85, 171};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(batch); i++) {
        build_model(&arch_lenet, batch[i], 1);
        build_model(&arch_lenet5, batch[i], 1);
    }
    /* Shares of three ranks, and of an epoch's last step.  At these sizes some tails have no engine
     * and are passes of ours. */
    for (size_t i = 0; i < ARRAY_LEN(share); i++) {
        build_model(&arch_lenet, share[i], 0);
        build_model(&arch_lenet5, share[i], 0);
    }
}

/* ResNet-50 for images of 224: {height = width, C, K, filter, stride}.  The stem's image has 8
 * channels. */
static void resnet50(void **state)
{
    static const int64_t shape[][5] = {
        {224, 8, 64, 7, 2},     {56, 64, 64, 1, 1},    {56, 64, 64, 3, 1},    {56, 64, 256, 1, 1},
        {56, 256, 64, 1, 1},    {56, 256, 128, 1, 1},  {56, 128, 128, 3, 2},  {28, 128, 512, 1, 1},
        {56, 256, 512, 1, 2},   {28, 512, 128, 1, 1},  {28, 128, 128, 3, 1},  {28, 512, 256, 1, 1},
        {28, 256, 256, 3, 2},   {14, 256, 1024, 1, 1}, {28, 512, 1024, 1, 2}, {14, 1024, 256, 1, 1},
        {14, 256, 256, 3, 1},   {14, 1024, 512, 1, 1}, {14, 512, 512, 3, 2},  {7, 512, 2048, 1, 1},
        {14, 1024, 2048, 1, 2}, {7, 2048, 512, 1, 1},  {7, 512, 512, 3, 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shape); i++) {
        const int64_t h = shape[i][0], c = shape[i][1], k = shape[i][2], r = shape[i][3];
        const int64_t stride = shape[i][4], pad = r / 2, out = (h + 2 * pad - r) / stride + 1;
        const struct conv_shape s = {
            DTYPE_BF16,
            SHAPE(256, h, h, c),
            SHAPE(256, out, out, k),
            {k, c, r, r},
            {{stride, stride}, {pad, pad}, {1, 1}},
        };

        build_all(&s, "resnet50", (size_t)256 * MIB);
    }
}

/* Filters of 1 x 1, whose two orders are the same: the plan itself adds to the gradient. */
static void gradients_that_add(void **state)
{
    static const struct conv_shape shape[] = {
        {DTYPE_F32,
         {4, {64, 56, 56, 64}},
         {4, {64, 56, 56, 256}},
         {256, 64, 1, 1},
         {{1, 1}, {0, 0}, {1, 1}}},
        {DTYPE_BF16,
         {4, {256, 56, 56, 256}},
         {4, {256, 28, 28, 512}},
         {512, 256, 1, 1},
         {{2, 2}, {0, 0}, {1, 1}}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shape); i++)
        build(&shape[i], CUDNN_PASS_GRAD_W, CONV_ADDED, "added");
}

/* Groups, dilation, uneven strides and paddings, which the operator table allows. */
static void odd_shapes(void **state)
{
    static const struct conv_shape shape[] = {
        {DTYPE_F32, {4, {3, 9, 11, 4}}, {4, {3, 5, 5, 6}}, {6, 2, 3, 2}, {{2, 3}, {1, 2}, {1, 1}}},
        {DTYPE_F32, {4, {2, 12, 10, 3}}, {4, {2, 8, 8, 5}}, {5, 3, 3, 3}, {{1, 1}, {0, 1}, {2, 2}}},
        {DTYPE_F32, {4, {1, 5, 5, 7}}, {4, {1, 5, 5, 7}}, {7, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}}},
        {DTYPE_F32, {4, {2, 7, 7, 5}}, {4, {2, 7, 7, 3}}, {3, 5, 1, 1}, {{1, 1}, {0, 0}, {1, 1}}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shape); i++)
        build_all(&shape[i], "odd", (size_t)64 * MIB);
}

static void build_case(const struct op_case *c, enum dtype type)
{
    const struct case_types types = {type, DTYPE_F32};
    int din[NODE_MAX_IN];
    struct graph *g = case_build(c, types, din);

    for (int i = 0; i < g->n_nodes; i++) {
        const enum op op = g->node[i].op;
        struct conv_shape s;

        if (op != OP_conv2d && op != OP_conv2d_grad_x && op != OP_conv2d_grad_w)
            continue;
        build(&s, conv_shape_of(g, &g->node[i], &s), CONV_ALONE, c->name);
    }
    graph_free(g);
}

/* The convolutions that a GPU's first test (tests/gpu/gpu_ops.c) runs. */
static void operator_table(void **state)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    const struct op_case *c;

    (void)state;
    for (int i = 0; (c = op_case_at(i)); i++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            if (c->op == OP_conv2d && c->in[0].shape.dim[0] > 0)
                build_case(c, types[t]);
}

/* GPT-2's attention, a vision transformer's, and small ones.  The gradient's workspace is two bytes
 * for each score. */
static void attention(void **state)
{
    static const struct flash_shape shape[] = {
        {DTYPE_BF16, 8, 1024, 12, 64, 1}, {DTYPE_F16, 8, 1024, 12, 64, 1},
        {DTYPE_BF16, 1, 1024, 25, 64, 1}, {DTYPE_BF16, 32, 197, 3, 64, 0},
        {DTYPE_BF16, 32, 197, 12, 64, 0}, {DTYPE_BF16, 12, 256, 6, 64, 1},
        {DTYPE_BF16, 12, 64, 4, 32, 1},   {DTYPE_BF16, 4, 512, 16, 128, 1},
        {DTYPE_BF16, 2, 100, 4, 32, 1},   {DTYPE_F16, 3, 65, 2, 64, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shape); i++)
        for (int is_grad = 0; is_grad < 2; is_grad++) {
            const struct flash_shape *s = &shape[i];
            const struct cudnn_plan *p = NULL;
            struct err err;

            if (flash_plan(device, &rules, s, is_grad, &p, &err) < 0)
                fail_msg("%s", err.msg);
            printf("attention %lld x %lld rows, %lld heads of %lld%s: engine %lld, %.1f MiB%s\n",
                   (long long)s->samples, (long long)s->length, (long long)s->heads,
                   (long long)s->d, is_grad ? ", gradient" : "", (long long)p->engine,
                   (double)p->workspace / MIB, p->compiled_at_run_time ? " R" : "");
            assert_true(p->uses_tensor_cores);
        }
}

static const struct conv_shape lenet_conv2 = {DTYPE_F32,
                                              {4, {64, 13, 13, 20}},
                                              {4, {64, 9, 9, 50}},
                                              {50, 20, 5, 5},
                                              {{1, 1}, {0, 0}, {1, 1}}};

static const struct cudnn_plan *plan(const struct conv_shape *s, const struct cudnn_rules *r)
{
    const struct cudnn_plan *p = NULL;
    struct err err;

    if (conv_plan(device, r, CUDNN_PASS_FORWARD, CONV_ALONE, s, &p, &err) < 0)
        fail_msg("%s", err.msg);
    return p;
}

static void tf32_only_where_allowed(void **state)
{
    const struct cudnn_rules tf32 = {.max_workspace = rules.max_workspace, .allow_tf32 = 1};

    (void)state;
    assert_false(plan(&lenet_conv2, &rules)->uses_tensor_cores);
    assert_true(plan(&lenet_conv2, &tf32)->uses_tensor_cores);
}

static void equal_graphs_share_a_plan(void **state)
{
    const struct cudnn_rules small = {.max_workspace = rules.max_workspace / 2};
    struct conv_shape other = lenet_conv2;
    char key[2][CUDNN_KEY_LEN];

    (void)state;
    other.x.dim[0] = other.y.dim[0] = 63;
    assert_ptr_equal(plan(&lenet_conv2, &rules), plan(&lenet_conv2, &rules));
    assert_ptr_not_equal(plan(&lenet_conv2, &rules), plan(&lenet_conv2, &small));
    assert_ptr_not_equal(plan(&lenet_conv2, &rules), plan(&other, &rules));
    cudnn_plan_key(device, plan(&lenet_conv2, &rules)->graph, &rules, key[0]);
    cudnn_plan_key(device, plan(&other, &rules)->graph, &rules, key[1]);
    assert_string_not_equal(key[0], key[1]);
    assert_non_null(strstr(key[0], "NVIDIA H200"));
    cudnn_plan_key(device, plan(&lenet_conv2, &small)->graph, &small, key[1]);
    assert_string_not_equal(key[0], key[1]);
}

/* With a cap of 0 bytes there still is a plan, or an error that names train.max_workspace. */
static void workspace_is_capped(void **state)
{
    const struct cudnn_rules none = {0};
    const struct cudnn_plan *p = NULL;
    struct err err;
    int rc = conv_plan(device, &none, CUDNN_PASS_FORWARD, CONV_ALONE, &lenet_conv2, &p, &err);

    (void)state;
    if (rc == 0) {
        assert_int_equal(p->workspace, 0);
        return;
    }
    assert_int_equal(rc, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "train.max_workspace"));
}

/* cuDNN's whole text of a plan. */
static void text_of(const struct cudnn_plan *p, struct buf *out)
{
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t n = 0;

    assert_int_equal(cudnnBackendGetAttribute(p->raw, name, CUDNN_TYPE_CHAR, 0, &n, NULL), 0);
    assert_true(n > 100);
    assert_int_equal(
        cudnnBackendGetAttribute(p->raw, name, CUDNN_TYPE_CHAR, n, &n, buf_reserve(out, (size_t)n)),
        0);
    out->len = (size_t)n;
}

struct made { /* a copy of one plan, to be compared after its device was freed */
    struct cudnn_plan plan;
    struct buf text;
};

enum { N_MADE = 3 * 2 + 2 };

/* Build every pass, and the forward pass with its tail, in float32 and bfloat16, on a device with
 * this cache. */
static void make_all(const char *folder, struct made *out)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    struct plan_cache *cache = plan_cache_open(folder, NULL, NULL);
    struct cudnn_device *all = device;
    struct err err;

    if (cudnn_device_described(h200, "NVIDIA H200", &device, &err) < 0)
        fail_msg("%s", err.msg);
    cudnn_device_use(device, cache, NULL, NULL);
    for (int i = 0; i < N_MADE; i++) {
        struct conv_shape s = lenet_conv2;
        const int pass = i / 2 % 3;

        s.dtype = dtypes[i % 2];
        s.x.dim[3] = s.filter[1] = 32, s.y.dim[3] = s.filter[0] = 64;
        out[i].plan =
            *build(&s, (enum cudnn_pass)pass, i < 6 ? CONV_ALONE : CONV_BIAS_RELU, "kept");
        text_of(&out[i].plan, &out[i].text);
    }
    cudnn_device_free(device);
    device = all;
    plan_cache_close(cache);
}

static void expect_equal(const struct made *a, const struct made *b)
{
    assert_int_equal(a->plan.engine, b->plan.engine);
    assert_int_equal(a->plan.workspace, b->plan.workspace);
    assert_int_equal(a->plan.uses_tensor_cores, b->plan.uses_tensor_cores);
    assert_int_equal(a->plan.compiled_at_run_time, b->plan.compiled_at_run_time);
    assert_int_equal(a->plan.n_tensors, b->plan.n_tensors);
    assert_int_equal(a->text.len, b->text.len);
    assert_memory_equal(a->text.data, b->text.data, a->text.len);
}

/* A plan that cuDNN restores from the cache equals the plan that was built; a plan whose entry is
 * damaged is built anew. */
static void kept_plans_are_restored(void **state)
{
    struct made made[3][N_MADE] = {0};
    char folder[] = "/tmp/dptrain-test-plans-XXXXXX", command[128];

    (void)state;
    assert_non_null(mkdtemp(folder));
    make_all(folder, made[0]);
    make_all(folder, made[1]);
    snprintf(command, sizeof command, "for f in '%s'/*; do echo >>\"$f\"; done", folder);
    assert_int_equal(system(command), 0);
    make_all(folder, made[2]);
    for (int i = 0; i < N_MADE; i++) {
        assert_false(made[0][i].plan.is_restored);
        assert_true(made[1][i].plan.is_restored);
        assert_false(made[2][i].plan.is_restored);
        expect_equal(&made[0][i], &made[1][i]);
        expect_equal(&made[0][i], &made[2][i]);
        for (int k = 0; k < 3; k++)
            buf_fini(&made[k][i].text);
    }
    assert_int_equal(remove_tree(folder), 0);
}

static void expect_refused(const struct conv_shape *s, int code, const char *says)
{
    const struct cudnn_plan *p = NULL;
    struct err err;

    assert_int_equal(conv_plan(device, &rules, CUDNN_PASS_FORWARD, CONV_ALONE, s, &p, &err), code);
    if (!strstr(err.msg, says))
        fail_msg("want \"%s\" in: %s", says, err.msg);
    assert_null(p);
}

static void errors_name_the_graph(void **state)
{
    struct conv_shape wrong = lenet_conv2;

    (void)state;
    wrong.y.dim[1] = 10; /* not what this convolution gives */
    expect_refused(&wrong, ERR_DEVICE, "conv2d of F32 x [64,13,13,20], filter [50,20,5,5]");
    wrong = lenet_conv2;
    wrong.window.stride[0] = 0;
    expect_refused(&wrong, ERR_DEVICE, "convolution");
}

static void bad_descriptions_are_refused(void **state)
{
    struct cudnn_device *d = NULL;
    struct err err;

    (void)state;
    assert_int_equal(cudnn_device_described("{\"deviceName\":", "half a GPU", &d, &err),
                     ERR_DEVICE);
    assert_non_null(strstr(err.msg, "half a GPU"));
    assert_int_equal(cudnn_device_live(NULL, "no GPU", &d, &err), ERR_ARG);
    assert_null(d);
}

static int open_device(void **state)
{
    struct err err;

    (void)state;
    if (cudnn_device_described(h200, "NVIDIA H200", &device, &err) == 0)
        return 0;
    print_error("%s\n", err.msg);
    return -1;
}

static int close_device(void **state)
{
    (void)state;
    cudnn_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models),
        cmocka_unit_test(resnet50),
        cmocka_unit_test(gradients_that_add),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(operator_table),
        cmocka_unit_test(attention),
        cmocka_unit_test(tf32_only_where_allowed),
        cmocka_unit_test(equal_graphs_share_a_plan),
        cmocka_unit_test(workspace_is_capped),
        cmocka_unit_test(kept_plans_are_restored),
        cmocka_unit_test(errors_name_the_graph),
        cmocka_unit_test(bad_descriptions_are_refused),
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
