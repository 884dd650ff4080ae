/* Networks are written as ONNX and read back by functions that protobuf-c has made of
 * proto/onnx.proto: operators, weights, inputs, and the second file.  A network that cannot be
 * written is refused, and leaves no file behind. */
#include "../test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "export/emit.h"
#include "export/export.h"
#include "job/job.h"
#include "onnx.pb-c.h"
#include "op/compose.h"

static char folder[] = "/tmp/dptrain_export_XXXXXX";

static char *in_folder(const char *name) { return xasprintf("%s/%s", folder, name); }

static int count_files(void)
{
    DIR *d = opendir(folder);
    int n = -2; /* . and .. */

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int new_folder(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int no_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}

/* ---- a network and its weights ---- */

static const char text[] =
    "model: {arch: layers, layers: [{conv: {channels: 4, kernel: 3, padding: 1}}, batch_norm, "
    "relu, {residual: [{conv: {channels: 4, kernel: 3, padding: 1, bias: false}}]}, "
    "{max_pool: {kernel: 2}}, flatten, {dropout: {p: 0.5}}, {linear: {units: 10}}]}\n"
    "data: {format: digits}\ntrain: {global_batch: 4}\n";

struct network {
    struct job *job;
    struct dataset data;
    struct st_file *weights;
};

/* Weights of the network as a checkpoint has them: tensor k has 0.01 (k + 1) everywhere. */
static void write_weights(const struct network *n, const char *path)
{
    struct st_tensor tensor[32];
    struct hash128 hash;
    struct graph *g;
    struct err err;
    int count = 0;

    assert_int_equal(model_build(&n->job->model, &n->data.spec, 1, 0, 0, &g, &err), 0);
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM || g->value[v].role == VALUE_STATE) {
            const struct shape s = g->value[v].shape;
            float *x = arena_alloc(&g->arena, sizeof *x * (size_t)shape_elements(&s));

            for (int64_t i = 0; i < shape_elements(&s); i++)
                x[i] = 0.01f * (float)(count + 1);
            tensor[count++] = (struct st_tensor){g->value[v].name, DTYPE_F32, s, x};
        }
    assert_int_equal(st_write(path, tensor, count, NULL, &hash, &err), 0);
    graph_free(g);
}

static struct network network_new(void)
{
    struct network n = {.data = {.spec = SAMPLE_IMAGES(8, 6, 3, 10)}};
    char *path = xasprintf("%s.weights", folder);
    struct err err;

    n.data.image = (struct dataset_image){.n_channels = 1, .mean = {0.5}, .std = {0.25}};
    assert_int_equal(job_parse(text, strlen(text), "the test", NULL, &n.job, &err), 0);
    write_weights(&n, path);
    assert_int_equal(st_open(path, &n.weights, &err), 0);
    unlink(path);
    free(path);
    return n;
}

static struct export_request request_of(const struct network *n)
{
    return (struct export_request){.model = &n->job->model,
                                   .data = &n->data,
                                   .weights = n->weights,
                                   .step = 17,
                                   .class_names = "[\"a\", \"b\"]"};
}

static void network_free(struct network *n)
{
    st_close(n->weights);
    job_free(n->job);
}

static void *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    char *data = xmalloc(1 << 22);

    assert_non_null(f);
    *len = fread(data, 1, 1 << 22, f);
    fclose(f);
    return data;
}

static Onnx__ModelProto *read_model(const char *path)
{
    size_t len;
    uint8_t *data = read_file(path, &len);
    Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, len, data);

    free(data);
    assert_non_null(m);
    return m;
}

static const Onnx__TensorProto *tensor_of(const Onnx__ModelProto *m, const char *name)
{
    for (size_t i = 0; i < m->graph->n_initializer; i++)
        if (!strcmp(m->graph->initializer[i]->name, name))
            return m->graph->initializer[i];
    fail_msg("there is no tensor %s", name);
    return NULL;
}

/* ---- what is written ---- */

/* No Transpose between layers, the bias is the convolution's, and dropout is gone. */
static void test_nodes(void **state)
{
    static const char *const want[] = {
        "Conv",    "BatchNormalization", "Relu", "Conv", "Add", "MaxPool", "Reshape", "Gemm",
        "Identity"};
    struct network n = network_new();
    const struct export_request r = request_of(&n);
    char *path = in_folder("net.onnx");
    Onnx__ModelProto *m;
    struct err err;

    (void)state;
    assert_int_equal(export_onnx(&r, path, &err), 0);
    m = read_model(path);
    assert_int_equal(m->graph->n_node, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_string_equal(m->graph->node[i]->op_type, want[i]);
    assert_int_equal(m->graph->node[0]->n_input, 3);
    assert_string_equal(m->graph->node[0]->input[1], "0.weight");
    assert_int_equal(m->graph->node[3]->n_input, 2);
    assert_int_equal(m->ir_version, ONNX_IR);
    assert_int_equal(m->opset_import[0]->version, ONNX_OPSET);
    onnx__model_proto__free_unpacked(m, NULL);
    free(path);
    network_free(&n);
}

static void assert_dim(const Onnx__ValueInfoProto *v, int d, const char *param, int64_t number)
{
    const Onnx__TensorShapeProto__Dimension *dim = v->type->tensor_type->shape->dim[d];

    if (param)
        assert_string_equal(dim->dim_param, param);
    else
        assert_int_equal(dim->dim_value, number);
}

static void test_ports(void **state)
{
    struct network n = network_new();
    const struct export_request r = request_of(&n);
    static const char *const metadata[][2] = {
        {"step", "17"},           {"model.arch", "layers"}, {"class_names", "[\"a\", \"b\"]"},
        {"input.scale", "1/255"}, {"input.mean", "[0.5]"},  {"input.std", "[0.25]"}};
    char *path = in_folder("net.onnx");
    Onnx__ModelProto *m;
    struct err err;

    (void)state;
    assert_int_equal(export_onnx(&r, path, &err), 0);
    m = read_model(path);
    assert_int_equal(m->graph->n_input, 1);
    assert_string_equal(m->graph->input[0]->name, "input");
    assert_dim(m->graph->input[0], 0, "batch", 0);
    for (int d = 1; d < 4; d++) /* [N,C,H,W] */
        assert_dim(m->graph->input[0], d, NULL, (int64_t[]){0, 3, 8, 6}[d]);
    assert_string_equal(m->graph->output[0]->name, "output");
    assert_dim(m->graph->output[0], 0, "batch", 0);
    assert_dim(m->graph->output[0], 1, NULL, 10);
    assert_int_equal(m->n_metadata_props, ARRAY_LEN(metadata));
    for (size_t i = 0; i < ARRAY_LEN(metadata); i++) {
        assert_string_equal(m->metadata_props[i]->key, metadata[i][0]);
        assert_string_equal(m->metadata_props[i]->value, metadata[i][1]);
    }
    onnx__model_proto__free_unpacked(m, NULL);
    free(path);
    network_free(&n);
}

static void test_weights(void **state)
{
    struct network n = network_new();
    const struct export_request r = request_of(&n);
    char *path = in_folder("net.onnx");
    Onnx__ModelProto *m;
    struct err err;

    (void)state;
    assert_int_equal(export_onnx(&r, path, &err), 0);
    m = read_model(path);
    for (int i = 0; i < st_count(n.weights); i++) {
        const struct st_tensor *t = st_at(n.weights, i);
        const Onnx__TensorProto *seen = tensor_of(m, t->name);
        char *data = xmalloc(st_bytes(t));

        assert_int_equal(seen->raw_data.len, st_bytes(t));
        assert_int_equal(seen->n_dims, t->shape.n);
        assert_memory_equal(seen->dims, t->shape.dim, sizeof *seen->dims * seen->n_dims);
        assert_int_equal(st_read(n.weights, t, 0, data, st_bytes(t), &err), 0);
        assert_memory_equal(seen->raw_data.data, data, st_bytes(t));
        free(data);
    }
    onnx__model_proto__free_unpacked(m, NULL);
    free(path);
    network_free(&n);
}

/* ---- the second file ---- */

static void add_floats(struct onnx *o, const char *name, const float *x, int64_t n)
{
    onnx_add_tensor(o, &(struct onnx_tensor){.name = name,
                                             .type = ONNX_FLOAT,
                                             .shape = SHAPE(n),
                                             .n_bytes = sizeof *x * (size_t)n,
                                             .data = x});
}

static void test_second_file(void **state)
{
    static float large[2][1000], small[3] = {1, 2, 3};
    char *path = in_folder("net.onnx"), *second = in_folder("net.onnx.data");
    Onnx__ModelProto *m;
    struct onnx o;
    struct err err;
    size_t len;
    char *data;

    (void)state;
    for (int i = 0; i < 1000; i++)
        large[0][i] = large[1][999 - i] = (float)i;
    onnx_init(&o, NULL);
    add_floats(&o, "a", large[0], 1000);
    add_floats(&o, "s", small, 3);
    add_floats(&o, "b", large[1], 1000);
    assert_int_equal(onnx_write(&o, path, 5000, &err), 0);
    onnx_fini(&o);
    m = read_model(path);
    data = read_file(second, &len);
    assert_int_equal(tensor_of(m, "s")->raw_data.len, sizeof small);
    for (int i = 0; i < 2; i++) {
        const Onnx__TensorProto *t = tensor_of(m, i ? "b" : "a");
        const int64_t at = atoll(t->external_data[1]->value);

        assert_int_equal(t->data_location, ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL);
        assert_int_equal(t->raw_data.len, 0);
        assert_string_equal(t->external_data[0]->value, "net.onnx.data");
        assert_string_equal(t->external_data[2]->value, "4000");
        assert_int_equal(at % 4096, 0);
        assert_true((size_t)at + 4000 <= len);
        assert_memory_equal(data + at, large[i], 4000);
    }
    assert_int_equal(count_files(), 2);
    free(data);
    onnx__model_proto__free_unpacked(m, NULL);
    free(path);
    free(second);
}

/* ---- what is refused ---- */

/* Two graphs, for 2 and 3 samples, are made by `make`, which returns their output; *told is the
 * failure.  The model is written if there is none. */
static int emit_pair_of(int (*make)(struct compose *c, int64_t n), struct err *told)
{
    struct graph *g[2];
    struct onnx o;
    struct emit e = {.o = &o, .err = told, .samples = "x"};
    char *path = in_folder("net.onnx");
    int y = NO_VALUE, rc;

    for (int i = 0; i < 2; i++) {
        struct compose c = {.name = "part", .err = told};

        c.g = g[i] = graph_new(2 + i, 0);
        (void)graph_input(c.g, DTYPE_F32, SHAPE(2 + i, 3), "x");
        y = make(&c, 2 + i);
        assert_int_equal(c.rc, 0);
    }
    onnx_init(&o, NULL);
    e.g = g[0];
    e.other = g[1];
    e.value = xcalloc((size_t)g[0]->n_values, sizeof *e.value);
    e.value[g[0]->input[0]].name[FORM_PLAIN] = "x";
    rc = emit_graph(&e, &y, 1);
    if (rc == 0)
        rc = onnx_write(&o, path, ONNX_MOST_INLINE, told);
    free(e.value);
    free(path);
    onnx_fini(&o);
    graph_free(g[0]);
    graph_free(g[1]);
    return rc;
}

/* ONNX lacks the operator; it is named with its count. */
static int make_noise(struct compose *c, int64_t n)
{
    return compose_elementwise(c, EW_ADD, compose_uniform(c, SHAPE(n, 3), 0),
                               compose_uniform(c, SHAPE(n, 3), 1));
}

/* The batch is in two extents: no shape holds for any number of samples. */
static int make_pairs(struct compose *c, int64_t n)
{
    return compose_reshape(c, compose_matmul(c, c->g->input[0], c->g->input[0], 0, 1),
                           SHAPE(n, 1, n));
}

static float numbers[9] = {1, 2, 3, 1, 2, 3, 1, 2, 3};

/* x times a constant that has a row for each sample. */
static int make_tiled(struct compose *c, int64_t n)
{
    return compose_elementwise(c, EW_MUL, c->g->input[0], compose_const(c, SHAPE(n, 3), numbers));
}

static void test_batch(void **state)
{
    char *path = in_folder("net.onnx");
    Onnx__ModelProto *m;
    struct err err;

    (void)state;
    assert_int_equal(emit_pair_of(make_noise, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "uniform (2);"));
    assert_int_equal(emit_pair_of(make_pairs, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "two extents"));
    numbers[4] = 5;
    assert_int_equal(emit_pair_of(make_tiled, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "not the same for each sample"));
    numbers[4] = 2;
    assert_int_equal(emit_pair_of(make_tiled, &err), 0);
    m = read_model(path);
    assert_int_equal(m->graph->n_node, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(m->graph->node[i]->op_type,
                            ((const char *[]){"Shape", "Concat", "Tile", "Mul"})[i]);
    assert_int_equal(m->graph->initializer[0]->dims[0], 1);
    onnx__model_proto__free_unpacked(m, NULL);
    free(path);
}

static void test_refused(void **state)
{
    struct network n = network_new();
    struct export_request r = request_of(&n);
    char *path = in_folder("net.onnx"), *nowhere = in_folder("no/net.onnx");
    struct err err;

    (void)state;
    assert_int_equal(export_onnx(&r, nowhere, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "no file can be made in folder"));
    n.data.spec.field[1].n_classes = 5; /* as many outputs: fine */
    n.data.spec.field[0].shape.dim[0] = 12;
    assert_int_equal(export_onnx(&r, path, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "the checkpoint has F32"));
    assert_int_equal(count_files(), 0);
    n.data.spec.field[0].shape.dim[0] = 8;
    assert_int_equal(export_onnx(&r, path, &err), 0);
    assert_int_equal(export_onnx(&r, path, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "is there already"));
    assert_int_equal(export_state_dict(path, path, &err), ERR_CONFIG);
    free(path);
    free(nowhere);
    network_free(&n);
}

/* A full disk is told, and no part of a file is left.  The limit of a file's size plays it. */
static void test_full_disk(void **state)
{
    struct network n = network_new();
    const struct export_request r = request_of(&n);
    char *path = in_folder("net.onnx");
    struct rlimit old, least;
    struct err err;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    least = old;
    least.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &least), 0);
    assert_int_equal(export_onnx(&r, path, &err), ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(count_files(), 0);
    free(path);
    network_free(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nodes, new_folder, no_folder),
        cmocka_unit_test_setup_teardown(test_ports, new_folder, no_folder),
        cmocka_unit_test_setup_teardown(test_weights, new_folder, no_folder),
        cmocka_unit_test_setup_teardown(test_second_file, new_folder, no_folder),
        cmocka_unit_test_setup_teardown(test_batch, new_folder, no_folder),
        cmocka_unit_test_setup_teardown(test_refused, new_folder, no_folder),
        cmocka_unit_test_setup_teardown(test_full_disk, new_folder, no_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
