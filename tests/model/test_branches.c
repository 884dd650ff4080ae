/* test_branches - lists of layers that branch, repeat, have several inputs or an output for each
 * place: their parameters, and the messages for what does not fit. */
#include "../test.h"

#include "base/buf.h"
#include "base/util.h"
#include "count.h"
#include "model/layers.h"

/* Values with names, repetition, several inputs, and outputs at each place: parameters by the
 * places of their layers. */
static const struct sample_field
    image = {"x", SAMPLE_INPUT, DTYPE_F32, {3, {8, 6, 1}}, 0, DTYPE_F32, SAMPLE_AS_IS},
    ids = {"ids", SAMPLE_INPUT, DTYPE_I32, {1, {4}}, 0, DTYPE_I32, SAMPLE_AS_IS},
    pixels = {"y", SAMPLE_CLASS, DTYPE_I32, {2, {8, 6}}, 3, DTYPE_I32, SAMPLE_AS_IS},
    tags = {"y", SAMPLE_CLASS, DTYPE_I32, {1, {4}}, 3, DTYPE_I32, SAMPLE_AS_IS},
    same = {"y", SAMPLE_REAL, DTYPE_F32, {3, {8, 6, 1}}, 0, DTYPE_F32, SAMPLE_AS_IS},
    colours = {"y", SAMPLE_REAL, DTYPE_F32, {3, {8, 6, 3}}, 0, DTYPE_F32, SAMPLE_AS_IS},
    label = {"y", SAMPLE_CLASS, DTYPE_I32, {0, {0}}, 3, DTYPE_I32, SAMPLE_AS_IS};
static const struct {
    int n_fields;
    const struct sample_field *field[3];
    const char *layers, *params; /* or a message */
    int64_t rows;                /* of the logits, for a sample; 0: it is a message */
} cases[] = {
    {2,
     {&image, &pixels},
     "[conv: {channels: 2, kernel: [3, 1], padding: [1, 0]}, {relu: , save: a}, max_pool: 2, "
     "upsample: {scale: 2, mode: bilinear}, concat: a, conv: {channels: 4, kernel: 1}]",
     "0.weight[2,1,3,1] 0.bias[2] 5.weight[4,4,1,1] 5.bias[4]",
     48},
    {2,
     {&ids, &tags},
     "[embedding: {width: 6, vocab: 9}, {repeat: 2, layers: [{rms_norm: , save: x}, attention: "
     "{heads: 3, kv_heads: 1, bias: false}, add: x]}, linear: 3]",
     "0.weight[9,6] 1.0.0.weight[6] 1.0.1.in_proj_weight[10,6] 1.0.1.out_proj.weight[6,6] "
     "1.1.0.weight[6] 1.1.1.in_proj_weight[10,6] 1.1.1.out_proj.weight[6,6] 2.weight[3,6] "
     "2.bias[3]",
     4},
    {2,
     {&image, &same},
     "[flatten, linear: 48, reshape: [8, 6, -1]]",
     "1.weight[48,48] 1.bias[48]",
     1},
    {2,
     {&image, &same},
     "[conv: {channels: 1, kernel: 2, padding: same}, {split: a}]",
     "0.weight[1,1,2,2] 0.bias[1]",
     1},
    {3,
     {&image, &ids, &label},
     "[mean, save: a, input: ids, embedding: {width: 2, vocab: 5}, position, conv1d: "
     "{channels: "
     "4, kernel: 3}, permute: [0, 2, 1], max, concat: {with: a, dim: 1}, linear: 3]",
     "3.weight[5,2] 4.weight[4,2] 5.weight[4,2,3] 5.bias[4] 9.weight[3,3] 9.bias[3]",
     1},
    {2,
     {&image, &colours},
     "[flatten, linear: 144, {repeat: 1000, layers: [relu]}, reshape: [8, 6, 3]]",
     "1.weight[144,48] 1.bias[144]",
     1},
    {2,
     {&image, &colours},
     "[flatten, linear: 144]",
     "gives rows, [2,144], and the target is images, [8,6,3]: end with reshape: [8, 6, 3]",
     0},
    {2,
     {&ids, &label},
     "[embedding: {width: 2, vocab: 5}, conv1d: {channels: 4, kernel: [3, 1]}, mean, linear: 3]",
     "1: kernel is [3, 1] and its input is sequences, want one number",
     0},
    {2,
     {&image, &pixels},
     "[conv: {channels: 3, kernel: 3}]",
     "gives [2,6,4,3], want [N,8,6,3]: a number for each class at each place of the target",
     0},
    {2, {&image, &pixels}, "[flatten, linear: 144]", "gives [2,144], want [N,8,6,3]", 0},
    {2,
     {&image, &pixels},
     "[conv: {channels: 2, kernel: 1}]",
     "gives [2,8,6,2], want [N,8,6,3]",
     0},
    {2,
     {&image, &same},
     "[conv: {channels: 2, kernel: 1}]",
     "gives [2,8,6,2], want [N,8,6,1]: as many numbers as the target has, in its shape",
     0},
    {2,
     {&ids, &tags},
     "[linear: 3]",
     "0: linear reads [2,4] of whole numbers, want real numbers; put embedding",
     0},
    {2, {&ids, &tags}, "[embedding: 6, linear: 3]", "0: embedding needs vocab", 0},
    {2, {&image, &pixels}, "[embedding: 6]", "0: its input is [2,8,6,1] of real numbers", 0},
    {2,
     {&image, &label},
     "[attention: {heads: 1}]",
     "0: its input is [2,8,6,1], want sequences",
     0},
    {2,
     {&ids, &tags},
     "[embedding: {width: 6, vocab: 9}, attention: {heads: 4}]",
     "1: its input has 6 features, want a multiple of heads, 4",
     0},
    {2,
     {&ids, &tags},
     "[embedding: {width: 6, vocab: 9}, attention: {heads: 3, kv_heads: 2}]",
     "1: heads is 3, want a multiple of kv_heads, 2",
     0},
    {2,
     {&ids, &tags},
     "[embedding: {width: 6, vocab: 9}, attention: {heads: 2, rope: true}]",
     "1: a head has 3 numbers, want an even number for rope",
     0},
    {2,
     {&image, &label},
     "[save: a, max_pool: 2, concat: a]",
     "2 (concat): its input is [2,4,3,1], but \"a\" is [2,8,6,1]; want shapes that differ in "
     "dimension 3 alone",
     0},
    {2,
     {&image, &label},
     "[save: a, max_pool: 2, mul: a]",
     "2 (mul): its input is [2,4,3,1], but \"a\" is [2,8,6,1]; want equal extents, or 1",
     0},
    {2,
     {&image, &label},
     "[save: a, {concat: {with: a, dim: 4}}]",
     "1: dim is 4 and its input [2,8,6,1], want 1 to 3, or -1 for the last",
     0},
    {2,
     {&image, &label},
     "[{split: {into: [a, b], sizes: [3, 4], dim: 1}}, add: b]",
     "0: its input is [2,8,6,1], want 2 sizes whose sum is 8, the extent of dimension 1",
     0},
    {2, {&image, &label}, "[reshape: [5, -1]]", "0: its input is [2,8,6,1], want a shape of 48", 0},
    {2, {&image, &label}, "[permute: [0, 2, 1]]", "want each number from 0 to 3 once in order", 0},
    {2, {&image, &label}, "[permute: [1, 0, 2, 3]]", "and 0, the samples, first", 0},
    {2,
     {&image, &label},
     "[conv: {channels: 1, kernel: 3, stride: 2, padding: same}]",
     "0: padding is same and stride 2, want stride 1",
     0},
    {2, {&image, &label}, "[conv1d: {channels: 1, kernel: 3}]", "want sequences [N,T,C]", 0},
    {2, {&image, &label}, "[input: z]", "0: the data have no input \"z\", want one of x", 0},
    {3, {&image, &ids, &label}, "[max, linear: 3]", "no layer reads the input \"ids\"", 0},
};

static struct sample_spec spec_of(size_t i)
{
    struct sample_spec spec = {.n_fields = cases[i].n_fields};

    for (int k = 0; k < spec.n_fields; k++)
        spec.field[k] = *cases[i].field[k];
    return spec;
}

static void listed_branches(void **state)
{
    struct buf seen = {0};

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        const struct layers_options own = {.layers = cases[i / 2].layers};
        const struct sample_spec spec = spec_of(i / 2);
        const struct model_options o = {
            .kind = &arch_layers,
            .options = &own,
            .loss = spec.field[1].role == SAMPLE_REAL ? LOSS_MSE : LOSS_CROSS_ENTROPY};
        const int64_t rows = cases[i / 2].rows, batch = i % 2 && rows ? 0 : 2;
        struct graph *g;
        struct err err = {0};
        const int rc = model_build(&o, &spec, batch, i % 2 == 0, 0, &g, &err);

        buf_clear(&seen);
        if (rc == 0) {
            list(g, VALUE_PARAM, &seen);
            assert_int_equal(g->value[g->logits].shape.dim[0], batch * rows);
            graph_free(g);
        } else {
            buf_printf(&seen, "%s", err.msg);
        }
        if ((rc == 0) != (rows > 0) || !strstr(buf_cstr(&seen), cases[i / 2].params))
            fail_msg("%s: %s", cases[i / 2].layers, buf_cstr(&seen));
    }
    buf_fini(&seen);
}

/* The numbers that embeddings take of an input, and the lines of --check. */
static void listed_limits(void **state)
{
    static const struct sample_spec words = {
        2,
        {{"ids", SAMPLE_INPUT, DTYPE_I32, {1, {4}}, 0, DTYPE_I32, SAMPLE_AS_IS},
         {"y", SAMPLE_CLASS, DTYPE_I32, {0, {0}}, 3, DTYPE_I32, SAMPLE_AS_IS}}};
    const struct layers_options own = {
        .layers = "[embedding: {width: 6, vocab: 9}, {mean: , save: a}, input, embedding: {width: "
                  "6, vocab: 7}, mean, add: a, linear: 3]"};
    const struct model_options o = {.kind = &arch_layers, .options = &own};
    int64_t least = INT32_MIN, most = INT32_MAX;
    struct buf text = {0};

    (void)state;
    layers_limit(&o, &words, 0, &least, &most);
    assert_int_equal(least, 0);
    assert_int_equal(most, 6);
    layers_print(&o, &words, &text);
    assert_non_null(strstr(buf_cstr(&text), "\n3            embedding          [4,6]"));
    assert_non_null(strstr(buf_cstr(&text), "[3]                        21\n"));
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed_branches),
        cmocka_unit_test(listed_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
