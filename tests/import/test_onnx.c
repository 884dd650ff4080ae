/* test_onnx - files in ONNX's format: a small network and its weights, and each bad case by its
 * message. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

#include "base/alloc.h"
#include "base/util.h"
#include "import/onnx.h"
#include "import/weights.h"
#include "onnx.pb-c.h"
#include "remove_tree.h"

enum { MOST = 8 };

/* A model that is put together: y = Relu(Gemm(x, w, b)), x [batch,3], w [2,3]. */
struct model {
    Onnx__ModelProto m;
    Onnx__GraphProto g;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    Onnx__NodeProto node[MOST], *nodes[MOST];
    Onnx__AttributeProto attr[MOST], *attrs[MOST][1];
    Onnx__TensorProto tensor[MOST], *tensors[MOST];
    Onnx__ValueInfoProto info[3], *input[1], *output[1], *more[1];
    Onnx__TypeProto type[3];
    Onnx__TypeProto__Tensor shaped[3];
    Onnx__TensorShapeProto shape[3];
    Onnx__TensorShapeProto__Dimension dim[3][2], *dims[3][2];
    Onnx__StringStringEntryProto entry[3], *entries[3];
    char *names[MOST][8];
};

static const float weights[6] = {1, 2, 3, 4, 5, 6};

static Onnx__NodeProto *add_node(struct model *t, const char *op, const char *const in[4],
                                 const char *out)
{
    const size_t k = t->g.n_node++;
    Onnx__NodeProto *n = &t->node[k];

    *n = (Onnx__NodeProto)ONNX__NODE_PROTO__INIT;
    n->op_type = (char *)(uintptr_t)op;
    n->name = n->op_type;
    for (int i = 0; i < 4 && in[i]; i++)
        t->names[k][n->n_input++] = (char *)(uintptr_t)in[i];
    n->input = t->names[k];
    t->names[k][6] = (char *)(uintptr_t)out;
    n->output = &t->names[k][6];
    n->n_output = 1;
    t->nodes[k] = n;
    return n;
}

static Onnx__AttributeProto *add_int(struct model *t, const char *name, int64_t v)
{
    const size_t k = t->g.n_node - 1;

    t->attr[k] = (Onnx__AttributeProto)ONNX__ATTRIBUTE_PROTO__INIT;
    t->attr[k].name = (char *)(uintptr_t)name;
    t->attr[k].has_i = 1;
    t->attr[k].i = v;
    t->attrs[k][0] = &t->attr[k];
    t->node[k].attribute = t->attrs[k];
    t->node[k].n_attribute = 1;
    return &t->attr[k];
}

static Onnx__TensorProto *add_tensor(struct model *t, const char *name, int type, int64_t *dims,
                                     size_t n_dims)
{
    Onnx__TensorProto *x = &t->tensor[t->g.n_initializer];

    *x = (Onnx__TensorProto)ONNX__TENSOR_PROTO__INIT;
    x->name = (char *)(uintptr_t)name;
    x->has_data_type = 1;
    x->data_type = type;
    x->dims = dims;
    x->n_dims = n_dims;
    t->tensors[t->g.n_initializer++] = x;
    return x;
}

static void set_raw(Onnx__TensorProto *x, const void *bytes, size_t n)
{
    x->has_raw_data = 1;
    x->raw_data = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)bytes};
}

/* Value `name` [batch, n] of floats; n 0: open, too. */
static Onnx__ValueInfoProto *set_info(struct model *t, int k, const char *name, int64_t n)
{
    t->info[k] = (Onnx__ValueInfoProto)ONNX__VALUE_INFO_PROTO__INIT;
    t->type[k] = (Onnx__TypeProto)ONNX__TYPE_PROTO__INIT;
    t->shaped[k] = (Onnx__TypeProto__Tensor)ONNX__TYPE_PROTO__TENSOR__INIT;
    t->shape[k] = (Onnx__TensorShapeProto)ONNX__TENSOR_SHAPE_PROTO__INIT;
    for (int d = 0; d < 2; d++) {
        t->dim[k][d] = (Onnx__TensorShapeProto__Dimension)ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT;
        t->dim[k][d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        t->dim[k][d].dim_param = (char *)(uintptr_t)(d ? "length" : "batch");
        t->dims[k][d] = &t->dim[k][d];
    }
    if (n) {
        t->dim[k][1].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        t->dim[k][1].dim_value = n;
    }
    t->shape[k].dim = t->dims[k];
    t->shape[k].n_dim = 2;
    t->shaped[k].has_elem_type = 1;
    t->shaped[k].elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    t->shaped[k].shape = &t->shape[k];
    t->type[k].value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    t->type[k].tensor_type = &t->shaped[k];
    t->info[k].name = (char *)(uintptr_t)name;
    t->info[k].type = &t->type[k];
    return &t->info[k];
}

static void begin(struct model *t)
{
    static int64_t matrix[] = {2, 3}, vector[] = {2};
    static int32_t halves[] = {0x3f80, 0xc000}; /* 1 and -2 as bfloat16 */

    *t = (struct model){.m = ONNX__MODEL_PROTO__INIT,
                        .g = ONNX__GRAPH_PROTO__INIT,
                        .opset = ONNX__OPERATOR_SET_ID_PROTO__INIT};
    t->m.graph = &t->g;
    t->opset.has_version = 1;
    t->opset.version = 20;
    t->opsets[0] = &t->opset;
    t->m.opset_import = t->opsets;
    t->m.n_opset_import = 1;
    t->m.producer_name = (char *)(uintptr_t) "pytorch";
    t->g.node = t->nodes;
    t->g.initializer = t->tensors;
    t->input[0] = set_info(t, 0, "x", 3);
    t->output[0] = set_info(t, 1, "y", 2);
    t->g.input = t->input;
    t->g.output = t->output;
    t->g.n_input = t->g.n_output = 1;
    set_raw(add_tensor(t, "l.w", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, matrix, 2), weights,
            sizeof weights);
    add_tensor(t, "l.b", ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16, vector, 1)->int32_data = halves;
    t->tensor[1].n_int32_data = 2;
    add_node(t, "Gemm", (const char *const[4]){"x", "l.w", "l.b"}, "h");
    add_int(t, "transB", 1);
    add_node(t, "Relu", (const char *const[4]){"h"}, "y");
}

static int read_model(const struct model *t, const char *path, struct import_network **out,
                      struct err *err)
{
    const size_t n = onnx__model_proto__get_packed_size(&t->m);
    uint8_t *bytes = xmalloc(n + 1);
    struct onnx_file *f;
    int rc;

    onnx__model_proto__pack(&t->m, bytes);
    rc = onnx_open_bytes(bytes, n, path, &f, err);
    free(bytes);
    if (rc < 0)
        return rc;
    rc = onnx_parse(f, out, err);
    onnx_close(f);
    return rc;
}

static void test_good(void **state)
{
    struct import_network *n;
    struct model t;
    struct err err;

    (void)state;
    begin(&t);
    if (read_model(&t, "net.onnx", &n, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(n->n_nodes, 2);
    assert_string_equal(n->node[0].target, "linear.default");
    assert_string_equal(n->node[1].target, "relu.default");
    assert_int_equal(n->n_tensors, 2);
    assert_string_equal(n->tensor[0].name, "l.w");
    assert_int_equal(n->tensor[0].role, IMPORT_PARAMETER);
    assert_int_equal(n->tensor[1].type, IMPORT_BF16);
    assert_int_equal(n->n_outputs, 1);
    assert_int_equal(n->value[n->output[0].value].dim[1], 2);
    assert_null(n->doubt);
    import_network_free(n);
}

static void put_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* The file in a folder, its matrix in a file beside it, or behind a link. */
static void test_external(void **state)
{
    static const struct {
        const char *location, *length, *wanted;
    } row[] = {{"w.data", "24", NULL},
               {"w.data", "25", "bytes 4 to 29 of a file of 28, want 24"},
               {"../w.data", "24", "want a file in the folder"},
               {"/etc/hostname", "24", "want a file in the folder"},
               {"link", "24", "are a link to"},
               {"none", "24", "none"}};
    char folder[] = "/tmp/onnx.XXXXXX", text[256];
    struct err err;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(text, sizeof text, "%s/w.data", folder);
    put_bytes(text, (const float[]){0, 1, 2, 3, 4, 5, 6}, 28);
    snprintf(text, sizeof text, "%s/link", folder);
    assert_int_equal(symlink("/etc/hostname", text), 0);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct import_network *n = NULL;
        struct import_weights *w;
        struct model t;
        float got[2];
        uint8_t *bytes;
        size_t len;

        begin(&t);
        t.tensor[0].has_raw_data = 0;
        t.tensor[0].has_data_location = 1;
        t.tensor[0].data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
        for (int k = 0; k < 3; k++) {
            const char *const key[] = {"location", "offset", "length"}, *const value[] = {
                                                                            row[i].location, "4",
                                                                            row[i].length};

            t.entry[k] = (Onnx__StringStringEntryProto)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
            t.entry[k].key = (char *)(uintptr_t)key[k];
            t.entry[k].value = (char *)(uintptr_t)value[k];
            t.entries[k] = &t.entry[k];
        }
        t.tensor[0].external_data = t.entries;
        t.tensor[0].n_external_data = 3;
        len = onnx__model_proto__get_packed_size(&t.m);
        bytes = xmalloc(len);
        onnx__model_proto__pack(&t.m, bytes);
        snprintf(text, sizeof text, "%s/net.onnx", folder);
        put_bytes(text, bytes, len);
        free(bytes);
        if (row[i].wanted) {
            assert_true(onnx_read(text, &n, &err) < 0);
            assert_non_null(strstr(err.msg, row[i].wanted));
            continue;
        }
        assert_int_equal(onnx_read(text, &n, &err), 0);
        assert_int_equal(import_weights_open(text, &w, &err), 0);
        assert_int_equal(import_weights_read(w, &n->tensor[0], 2, 2, got, &err), 0);
        assert_true(got[0] == 3 && got[1] == 4);
        import_weights_close(w);
        import_network_free(n);
    }
    remove_tree(folder);
}

/* ---- bad files ---- */

static void old_opset(struct model *t) { t->opset.version = 12; }

static void missing(struct model *t)
{
    t->node[1].op_type = (char *)(uintptr_t) "Foo";
    add_node(t, "Foo", (const char *const[4]){"h"}, "z");
    add_node(t, "Loop", (const char *const[4]){"h"}, "u");
}

static void short_raw(struct model *t) { t->tensor[0].raw_data.len = 20; }
static void few_numbers(struct model *t) { t->tensor[1].n_int32_data = 1; }
static void unknown_type(struct model *t) { t->tensor[0].data_type = 8; }
static void no_value(struct model *t) { t->names[1][0] = (char *)(uintptr_t) "q"; }
static void made_twice(struct model *t) { t->names[1][6] = (char *)(uintptr_t) "h"; }
static void open_length(struct model *t) { set_info(t, 0, "x", 0); }
static void other_shape(struct model *t) { t->dim[1][1].dim_value = 5; }
static void no_input(struct model *t) { t->node[0].n_input = 1; }
static void no_graph(struct model *t) { t->m.graph = NULL; }

static void data_shape(struct model *t)
{
    t->node[1].op_type = (char *)(uintptr_t) "Reshape";
    t->names[1][1] = (char *)(uintptr_t) "h";
    t->node[1].n_input = 2;
}

/* y = h / the batch. */
static void batch_number(struct model *t)
{
    t->node[1].n_output = 1;
    t->names[1][6] = (char *)(uintptr_t) "r";
    add_node(t, "Shape", (const char *const[4]){"x"}, "s");
    add_int(t, "end", 1);
    add_node(t, "Cast", (const char *const[4]){"s"}, "f");
    add_int(t, "to", 1);
    add_node(t, "Div", (const char *const[4]){"r", "f"}, "y");
}

static void folded(struct model *t)
{
    t->entry[0] = (Onnx__StringStringEntryProto)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    t->entry[0].key = (char *)(uintptr_t) "pkg.onnxscript.rewriter.rule_name";
    t->entry[0].value = (char *)(uintptr_t) "RemoveOptionalBiasFromConv, FuseBatchNormIntoConv";
    t->entries[0] = &t->entry[0];
    t->node[0].metadata_props = t->entries;
    t->node[0].n_metadata_props = 1;
}

/* A batch norm whose statistic is the bias of the layer before it. */
static void merged(struct model *t)
{
    t->node[1].op_type = (char *)(uintptr_t) "BatchNormalization";
    for (int i = 1; i < 5; i++)
        t->names[1][i] = (char *)(uintptr_t) "l.b";
    t->node[1].n_input = 5;
}

static void test_bad(void **state)
{
    static const struct {
        void (*change)(struct model *t);
        int code;
        const char *wanted;
    } row[] = {
        {no_graph, ERR_CONFIG, "no network in ONNX's format (it has no graph)"},
        {old_opset, ERR_UNSUPPORTED, "it uses operator set 12, want 13 to 24"},
        {missing, ERR_UNSUPPORTED,
         "2 operators that dptrain lacks: Foo, 2 of the nodes; Loop, 1 of the nodes"},
        {short_raw, ERR_CORRUPT, "tensor l.w has 20 bytes, want 24"},
        {few_numbers, ERR_CORRUPT, "tensor l.b has 1 numbers, want 2"},
        {unknown_type, ERR_UNSUPPORTED, "tensor l.w has elements of type 8"},
        {no_value, ERR_CORRUPT, "node Relu (Relu): it reads q, which no node before it makes"},
        {made_twice, ERR_CORRUPT, "it makes h a second time"},
        {open_length, ERR_UNSUPPORTED, "dimension 1 of its input x is \"length\", want a number"},
        {other_shape, ERR_CORRUPT, "value y has another type or shape"},
        {no_input, ERR_CORRUPT, "it has 1 inputs, want 2"},
        {data_shape, ERR_UNSUPPORTED, "its shape depends on the data"},
        {batch_number, ERR_UNSUPPORTED, "depends on the number of samples in a batch"},
        {folded, ERR_UNSUPPORTED, "1 of its batch norms were folded into other layers"},
        {merged, ERR_UNSUPPORTED, "its statistic l.b is a weight of another node, too"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct import_network *n;
        struct model t;
        struct err err;
        int rc;

        begin(&t);
        row[i].change(&t);
        rc = read_model(&t, "net.onnx", &n, &err);
        if (rc != row[i].code || !strstr(err.msg, row[i].wanted))
            fail_msg("row %zu: %d \"%s\", want %d \"%s\"", i, rc, err.msg, row[i].code,
                     row[i].wanted);
    }
}

/* A case that nothing proves: a convolution with a bias and no batch norm, by an exporter that does
 * not say.
 */
static void test_doubt(void **state)
{
    static int64_t filter[] = {2, 3, 1};
    struct import_network *n;
    struct model t;
    struct err err;

    (void)state;
    begin(&t);
    t.tensor[0].dims = filter;
    t.tensor[0].n_dims = 3;
    set_raw(&t.tensor[0], weights, sizeof weights);
    t.g.n_node = 0;
    add_node(&t, "Unsqueeze", (const char *const[4]){"x", "at"}, "u");
    set_raw(add_tensor(&t, "at", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, (int64_t[]){1}, 1),
            (const int64_t[]){2}, 8);
    add_node(&t, "Conv", (const char *const[4]){"u", "l.w", "l.b"}, "h");
    add_node(&t, "Squeeze", (const char *const[4]){"h", "at"}, "y");
    if (read_model(&t, "net.onnx", &n, &err) < 0)
        fail_msg("%s", err.msg);
    assert_non_null(n->doubt);
    assert_non_null(strstr(n->doubt, "1 convolutions with a bias and no batch norm"));
    import_network_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_external),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_doubt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
