/* test_pt2 - files of torch.export.save: a good one member by member, and each bad case by its
 * message; packing and unpacking; weights. */
#include <math.h>
#include <unistd.h>

#include "test.h"

#include "import/pack.h"
#include "import/pt2.h"
#include "import/sample.h"
#include "import/weights.h"

static struct sample sample;

static int parse(const struct archive *a, struct import_network **out, struct err *err)
{
    struct zip *zip;
    int rc = zip_parse(a->file.data, a->file.len, "net.pt2", &zip, err);

    if (rc < 0)
        return rc;
    rc = pt2_parse(zip, out, err);
    zip_close(zip);
    return rc;
}

static struct import_network *sample_network(int is_64)
{
    struct archive a = {0};
    struct import_network *n;
    struct err err;

    sample_write(&a, sample.text);
    archive_end(&a, is_64);
    if (parse(&a, &n, &err) < 0)
        fail_msg("%s", err.msg);
    archive_fini(&a);
    return n;
}

static void check_sample(const struct import_network *n)
{
    const float k[] = {2, 4, 6, 3, 5, 7};
    const struct import_arg *a;

    assert_string_equal(n->writer, "torch 2.15.0");
    assert_int_equal(n->is_eval, 0);
    assert_int_equal(n->n_tensors, 5);
    assert_string_equal(n->tensor[0].name, "a.b.weight");
    assert_int_equal(n->tensor[1].same_as, 0);
    assert_int_equal(n->tensor[0].same_as, -1);
    assert_null(n->tensor[0].bytes);
    assert_int_equal(((const int64_t *)n->tensor[2].bytes)[1], -6);
    assert_int_equal(n->tensor[3].role, IMPORT_CONSTANT);
    assert_memory_equal(n->tensor[3].bytes, k, sizeof k);
    assert_string_equal(n->tensor[4].name, "unused");
    assert_int_equal(n->tensor[4].role, IMPORT_PARAMETER);

    assert_int_equal(n->n_inputs, 1);
    assert_string_equal(n->input[0].name, "pixels");
    assert_int_equal(n->n_outputs, 1);
    assert_string_equal(n->output[0].name, "logits");
    assert_string_equal(n->value[n->output[0].value].name, "c");
    assert_int_equal(n->value[n->output[0].value].dim[0], 6);

    assert_int_equal(n->n_symbols, 2);
    assert_string_equal(n->symbol[0].name, "s7");
    assert_int_equal(n->symbol[0].min, 2);
    assert_int_equal(n->symbol[1].of, 0);
    assert_int_equal(n->symbol[1].scale, 2);
    assert_int_equal(n->symbol[1].plus, 0);

    assert_int_equal(n->n_nodes, 6);
    assert_string_equal(n->node[0].target, "linear.default");
    assert_string_equal(n->node[0].module, "a.b");
    assert_string_equal(n->node[0].name, "y");
    assert_int_equal(n->node[0].arg[2].kind, IMPORT_NONE);
    assert_string_equal(n->node[2].target, "clamp.default");
    assert_int_equal(n->node[2].no_gradient, 1);
    assert_true(isinf(n->node[2].arg[1].reals[0]) && n->node[2].arg[1].reals[0] < 0);
    a = import_arg_find(&n->node[3], "size", 1);
    assert_int_equal(a->n, 2);
    assert_int_equal(a->ints[0].value, n->node[1].out[0]);
    assert_int_equal(a->ints[0].number, 3);
    assert_int_equal(a->ints[1].number, -1);
    assert_int_equal(n->node[3].arg[0].values[0], n->node[2].out[0]);
    assert_int_equal(n->node[5].arg[0].n, 2);
}

static void test_good(void **state)
{
    (void)state;
    for (int is_64 = 0; is_64 < 2; is_64++) {
        struct import_network *n = sample_network(is_64);

        check_sample(n);
        import_network_free(n);
    }
}

static void test_pack(void **state)
{
    struct import_network *n = sample_network(0), *again;
    struct buf once = {0}, twice = {0};
    struct err err;

    (void)state;
    assert_int_equal(import_pack(n, &once, &err), 0);
    assert_int_equal(import_unpack(once.data, once.len, &again, &err), 0);
    check_sample(again);
    assert_false(again->packs); /* nothing tells what joins the places of a sample */
    assert_int_equal(import_pack(again, &twice, &err), 0);
    assert_int_equal(once.len, twice.len);
    assert_memory_equal(once.data, twice.data, once.len);
    import_network_free(n);
    import_network_free(again);
    for (size_t len = 0; len < once.len; len++)
        assert_int_equal(import_unpack(once.data, len, &again, &err), ERR_CORRUPT);
    once.data[13] = 0x7f; /* a message of more than 2^62 bytes */
    assert_int_equal(import_unpack(once.data, once.len, &again, &err), ERR_CORRUPT);
    buf_fini(&once);
    buf_fini(&twice);
}

static void test_weights(void **state)
{
    char path[] = "/tmp/dptrain-pt2-XXXXXX";
    const int fd = mkstemp(path);
    struct import_network *n = sample_network(0);
    struct import_weights *w;
    struct archive a = {0};
    struct err err;
    float f[16];
    int64_t i64[2];

    (void)state;
    sample_write(&a, sample.text);
    archive_end(&a, 0);
    assert_int_equal(write(fd, a.file.data, a.file.len), (ssize_t)a.file.len);
    close(fd);
    assert_int_equal(import_weights_open(path, &w, &err), 0);
    assert_int_equal(import_weights_read(w, &n->tensor[1], 5, 9, f, &err), 0);
    for (int i = 0; i < 9; i++)
        assert_true(f[i] == (float)(5 + i));
    assert_int_equal(import_weights_read(w, &n->tensor[4], 1, 2, f, &err), 0);
    assert_true(f[0] == 5 && f[1] == 9);
    assert_int_equal(import_weights_read(w, &n->tensor[3], 2, 3, f, &err), 0);
    assert_true(f[0] == 6 && f[1] == 3 && f[2] == 5);
    assert_int_equal(import_weights_read(w, &n->tensor[2], 0, 2, i64, &err), 0);
    assert_true(i64[0] == 5 && i64[1] == -6);
    n->tensor[4].name = "gone";
    assert_int_equal(import_weights_read(w, &n->tensor[4], 0, 1, f, &err), ERR_CONFIG);
    n->tensor[0].dim[0] = 5;
    assert_int_equal(import_weights_read(w, &n->tensor[0], 0, 1, f, &err), ERR_CONFIG);
    import_weights_close(w);
    assert_int_equal(import_weights_open("/nowhere/net.pt2", &w, &err), ERR_IO);
    import_network_free(n);
    archive_fini(&a);
    unlink(path);
}

/* The piece that is replaced, in the first text from `text` on that has it, and a part of the
 * message. */
static const struct {
    int text;
    const char *from, *to;
    int code;
    const char *message;
} bad[] = {
    {0, "\"major\":8", "\"major\":9", ERR_CONFIG, "schema version is 9.99"},
    {0, "\"major\":8", "\"major\":\"8\"", ERR_CONFIG, "want 8.x"},
    {0, "{\"schema", "{]\"schema", ERR_CORRUPT, "no JSON object"},
    {0, "\"graph\":{\"inputs", "\"grap\":{\"inputs", ERR_CORRUPT, "no graph and signature"},
    {0, "\"as_bool\":true}", "\"as_complex\":true}", ERR_CONFIG, "as_complex"},
    {0, "\"as_float\":0.5", "\"as_float\":\"half\"", ERR_CONFIG, "half"},
    {0, "\"as_none\":true},\"kind\"", "\"as_none\":true,\"b\":1},\"kind\"", ERR_CONFIG,
     "node y (linear.default) of layer a.b"},
    {0, "\"as_name\":\"n\"},{", "\"as_name\":\"m\"},{", ERR_CORRUPT, "value m is read"},
    {0, "\"outputs\":[{" SAMPLE_T("d"), "\"outputs\":[{" SAMPLE_T("v"), ERR_CORRUPT, "made twice"},
    {0, "\"outputs\":[{" SAMPLE_T("d"), "\"outputs\":[{" SAMPLE_T("e"), ERR_CORRUPT,
     "value e has no type"},
    {0, "\"outputs\":[{" SAMPLE_T("d"), "\"outputs\":[{\"as_tensor\":{}", ERR_CONFIG,
     "an output has no name"},
    {0, "Mul(Integer(2), S", "Pow(Integer(2), S", ERR_CONFIG, "Pow(Integer(2)"},
    {0, "Integer(2), S", "Symbol('s8'), S", ERR_CONFIG, "is not supported"},
    {0, "\"as_int\":6", "\"as_int\":7", ERR_CORRUPT, "which it cannot be"},
    {0, "\"min_val\":2", "\"min_val\":4", ERR_CORRUPT, "want 4 to"},
    {1, "\"dtype\":7", "\"dtype\":10", ERR_CONFIG, "element type 10"},
    {1, "\"layout\":7", "\"layout\":1", ERR_CONFIG, "layout 1"},
    {0, "{\"user_input\":", "{\"custom_obj\":", ERR_CONFIG, "is a custom_obj"},
    {0, "{\"user_output\":{\"arg\":{\"as_none\"", "{\"user_input_mutation\":{\"arg\":{\"as_none\"",
     ERR_CONFIG, "is a user_input_mutation"},
    {0, "\"parameter_name\":\"head.weight\"", "\"parameter_name\":\"tail.weight\"", ERR_CORRUPT,
     "tail.weight is in neither"},
    {0, "\"parameter_name\":\"head.weight\"", "\"parameter_name\":\"a.b.weight\"", ERR_CORRUPT,
     "an input twice"},
    {0, "\"as_bool\":false},\"kind\"", "\"as_int\":0},\"kind\"", ERR_CONFIG, "no flag and graph"},
    {1, "\"use_pickle\":false", "\"use_pickle\":true", ERR_CONFIG, "stored as a pickle"},
    {1, "\"weight_1\"", "\"../weight_1\"", ERR_CORRUPT, "which is not there"},
    {1, "\"storage_offset\":{\"as_int\":1}", "\"storage_offset\":{\"as_int\":8}", ERR_CORRUPT,
     "reaches element 16 of a storage of 16"},
    {1, "\"storage_offset\":{\"as_int\":1}", "\"storage_offset\":{\"as_int\":-1}", ERR_CORRUPT,
     "an offset that is no number"},
    {1, "{\"as_int\":4}],\"storage", "{\"as_int\":4611686018427387904}],\"storage", ERR_CORRUPT,
     "strides that are too large"},
    {1, "{\"as_int\":4}],\"storage", "{\"as_int\":-4}],\"storage", ERR_CORRUPT, "a stride"},
    {1, "\"sizes\":[{\"as_int\":3}]", "\"sizes\":[{\"as_int\":-3}]", ERR_CORRUPT, "extent -3"},
    {1, "\"weight_2\"", "\"weight_0\"", ERR_CONFIG,
     "tensors a.b.weight and unused share some of their elements"},
    {1, "\"config\"", "\"konfig\"", ERR_CORRUPT, "no table"},
    {2, "[{\"as_int\":2},{\"as_int\":3}]", "[{\"as_int\":8000000000},{\"as_int\":1}]", ERR_CORRUPT,
     "reaches element"},
    {2, "{\"as_int\":3}],\"requires_grad\":true,\"strides\":[{\"as_int\":1},{\"as_int\":2}]",
     "{\"as_int\":90000000}],\"requires_grad\":true,\"strides\":[{\"as_int\":0},{\"as_int\":0}]",
     ERR_CONFIG, "more than 256 MiB"},
};

/* The text with the first `from` replaced. */
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);

    if (!at)
        fail_msg("the sample has no %s", from);
    return xasprintf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void expect(int rc, int code, const struct err *err, const char *message)
{
    if (rc != code || !strstr(err->msg, message))
        fail_msg("%d, want %d with \"%s\": %s", rc, code, message, rc < 0 ? err->msg : "(ok)");
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *texts[SAMPLE_TEXTS];
        char *text;
        int at = bad[i].text;
        struct import_network *n;
        struct archive a = {0};
        struct err err;

        memcpy(texts, sample.text, sizeof texts);
        while (at < SAMPLE_TEXTS - 1 && !strstr(texts[at], bad[i].from))
            at++;
        texts[at] = text = replaced(texts[at], bad[i].from, bad[i].to);
        sample_write(&a, texts);
        archive_end(&a, 0);
        expect(parse(&a, &n, &err), bad[i].code, &err, bad[i].message);
        assert_int_equal(strncmp(err.msg, "net.pt2: ", 9), 0);
        archive_fini(&a);
        free(text);
    }
}

/* Other files: their only members, and a part of the message. */
/* A packed network may say this of itself, though no reader makes it so. */
static void test_damaged(void **state)
{
    static const char *const why[] = {
        "it is tied to a tensor of another type or shape",
        "share their elements, and one of them is a parameter",
        "it is tied to a later tensor, or to a tied one",
        "two tensors have this name",
        "a value has another type or shape than its tensor",
        "an integer has a type or dimensions",
        "it has too many elements",
    };

    (void)state;
    for (int i = 0; i < (int)(sizeof why / sizeof *why); i++) {
        struct import_network *n = sample_network(0);
        int of_tensor = 0, integer = 0;
        struct err err;

        while (n->value[of_tensor].tensor < 0)
            of_tensor++;
        while (!n->value[integer].is_int)
            integer++;
        assert_int_equal(import_network_check(n, &err), 0);
        n->tensor[1].dim[0] += i == 0;
        n->tensor[1].role = i == 1 ? IMPORT_BUFFER : n->tensor[1].role;
        n->tensor[4].same_as = i == 2 ? 1 : n->tensor[4].same_as;
        n->tensor[4].name = i == 3 ? n->tensor[0].name : n->tensor[4].name;
        n->value[of_tensor].dim[0] += i == 4;
        n->value[integer].n_dims += i == 5;
        n->tensor[4].dim[0] = i == 6 ? INT64_C(1) << 41 : n->tensor[4].dim[0];
        expect(import_network_check(n, &err), i == 1 ? ERR_UNSUPPORTED : ERR_CORRUPT, &err, why[i]);
        import_network_free(n);
    }
}

static void test_foreign(void **state)
{
    static const struct {
        const char *first, *content, *second, *message;
    } rows[] = {
        {"net/data.pkl", "x", "net/version", "pickle of torch.save, which is never read"},
        {"net/constants.pkl", "x", "net/data.pkl", "TorchScript"},
        {"a.npy", "x", "b.npy", "no member archive_format"},
        {"net/archive_format", "pt3", "net/b", "archive_format is \"pt3\""},
        {"net/archive_format", "pt2", "net/b", "archive_version is \"\""},
        {"a/archive_format", "pt2", "b/archive_format", "two members archive_format"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct archive a = {0};
        struct import_network *n;
        struct err err;

        archive_text(&a, rows[i].first, rows[i].content);
        archive_text(&a, rows[i].second, "1");
        archive_end(&a, 0);
        expect(parse(&a, &n, &err), ERR_CONFIG, &err, rows[i].message);
        archive_fini(&a);
    }
}

static int parse_bytes(const void *data, size_t len, struct err *err)
{
    struct zip *zip;
    int rc = zip_parse(data, len, "net.pt2", &zip, err);

    if (rc == 0)
        zip_close(zip);
    return rc;
}

/* Two members, one byte of the directory changed: its offset there, the byte, the message. */
static void test_zip(void **state)
{
    static const struct {
        size_t at;
        int byte, code;
        const char *message;
    } rows[] = {
        {10, 8, ERR_CONFIG, "member a is compressed"},
        {8, 9, ERR_CONFIG, "member a is encrypted"},
        {0, 0, ERR_CORRUPT, "ends early"},
        {24, 200, ERR_CORRUPT, "sizes are wrong"},
        {28, 200, ERR_CORRUPT, "ends early"},
        {45, 1, ERR_CORRUPT, "does not lie in the file"},
        {46, 'b', ERR_CORRUPT, "not the one of the directory"},
        {47 + 42, 0, ERR_CORRUPT, "not the one of the directory"},
    };
    struct archive a = {0};
    struct err err;
    size_t directory;

    (void)state;
    archive_text(&a, "a", "one");
    directory = a.file.len;
    archive_text(&a, "b", "two");
    directory = a.file.len;
    archive_end(&a, 0);
    assert_int_equal(parse_bytes(a.file.data, a.file.len, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t *at = a.file.data + directory + rows[i].at, was = *at;

        *at = (uint8_t)rows[i].byte;
        expect(parse_bytes(a.file.data, a.file.len, &err), rows[i].code, &err, rows[i].message);
        *at = was;
    }
    for (size_t len = 0; len < a.file.len; len++)
        assert_true(parse_bytes(a.file.data, len, &err) < 0);
    expect(parse_bytes("\x80\2}", 3, &err), ERR_CONFIG, &err, "a pickle of torch.save");
    archive_fini(&a);
}

/* Both entries lead to one member, and two members of one name. */
static void test_zip_shared(void **state)
{
    struct archive a = {0};
    struct err err;

    (void)state;
    archive_text(&a, "a", "one");
    archive_text(&a, "a", "two");
    archive_end(&a, 0);
    expect(parse_bytes(a.file.data, a.file.len, &err), ERR_CORRUPT, &err, "two members");
    archive_fini(&a);
    archive_text(&a, "a", "one");
    {
        const size_t len = a.directory.len;
        uint8_t *copy = xmalloc(len);

        memcpy(copy, a.directory.data, len);
        buf_append(&a.directory, copy, len);
        a.n = 2;
        free(copy);
    }
    archive_end(&a, 0);
    expect(parse_bytes(a.file.data, a.file.len, &err), ERR_CORRUPT, &err, "share bytes");
    archive_fini(&a);
}

/* A changed byte of the network or of a constant is noticed. */
static void test_checksum(void **state)
{
    struct import_network *n;
    struct archive a = {0};
    struct err err;

    (void)state;
    sample_write(&a, sample.text);
    archive_end(&a, 0);
    for (size_t i = 0; i + 12 < a.file.len; i++)
        if (!memcmp(a.file.data + i, "tensor_0", 8) && a.file.data[i + 8] == 0) {
            a.file.data[i + 8] ^= 1; /* the constant's first byte */
            break;
        }
    expect(parse(&a, &n, &err), ERR_CORRUPT, &err, "tensor_0 has the checksum");
    archive_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),     cmocka_unit_test(test_pack),
        cmocka_unit_test(test_weights),  cmocka_unit_test(test_bad),
        cmocka_unit_test(test_damaged),  cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_zip),      cmocka_unit_test(test_zip_shared),
        cmocka_unit_test(test_checksum),
    };

    sample_read(&sample);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
