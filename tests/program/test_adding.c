/* test_adding - a program of the CPU's kernels that adds up micro-batches needs no more scratch
 * than one that does not: the kernels that make large gradients add in place. */
#include "../test.h"

#include "backend/cpu/onednn.h"
#include "backend/cpu/outer.h"
#include "backend/cpu/tile.h"
#include "model/gpt.h"
#include "model/layer.h"
#include "model/resnet.h"
#include "program/impl.h"
#include "rig.h"

/* The resnet's samples are enough for Winograd's tiles.  The largest gradient of the gpt is that of
 * its tokens' table, which the head shares; its samples are few, and so are its logits. */
enum { IMAGES = 8, TEXTS = 1, LENGTH = 32, VOCABULARY = 4096, WIDTH = 128 };
enum { TABLE = VOCABULARY * WIDTH };

static struct graph *resnet18(void)
{
    static const struct sample_spec images = SAMPLE_IMAGES(32, 32, 3, 10);
    static const struct resnet_options options = {.stem = STEM_CIFAR};
    const struct model_options o = {.kind = &arch_resnet18, .options = &options};
    struct graph *g;

    rig_must(model_build(&o, &images, IMAGES, 1, 0, &g, &rig_err));
    return g;
}

/* The gradient of the second filter is the largest, and oneDNN makes it. */
static void build_strided(struct net *m, const void *options)
{
    (void)options;
    layer_input(m);
    layer_conv2d(m, "conv1", 64, 3, 1);
    layer_conv(
        m, "conv2",
        &(struct layer_conv){.channels = 256, .kernel = {3, 3}, .stride = {2, 2}, .no_bias = 1});
    layer_activation(m, "relu", ACT_RELU);
    layer_flatten(m, "flatten");
    layer_linear(m, "fc", net_n_outputs(m));
}

static struct graph *strided(void)
{
    static const struct sample_spec images = SAMPLE_IMAGES(12, 12, 3, 10);
    static const struct model_arch arch = {.group = {.name = "strided"}, .build = build_strided};
    const struct model_options o = {.kind = &arch};
    struct graph *g;

    rig_must(model_build(&o, &images, 1, 1, 0, &g, &rig_err));
    return g;
}

static struct graph *gpt(void)
{
    static const struct sample_spec text = SAMPLE_SEQUENCES(LENGTH, VOCABULARY);
    static const struct gpt_options options = {
        .layers = 2, .heads = 2, .width = WIDTH, .context = LENGTH, .tied = 1};
    const struct model_options o = {.kind = &arch_gpt, .options = &options};
    struct graph *g;

    rig_must(model_build(&o, &text, TEXTS, 1, 0, &g, &rig_err));
    return g;
}

/* Of the program of this graph, with layers and gradients of these types. */
static size_t scratch_of(struct graph *g, int accumulates, struct program_precision types)
{
    struct backend *b;
    struct program *p;
    struct layout *l;
    size_t n_bytes;

    rig_must(backend_open_cpu(1, &b, &rig_err));
    rig_must(program_differentiate(g, &rig_err));
    if (accumulates)
        program_accumulate(g);
    rig_must(program_set_precision(g, types, &rig_err));
    rig_must(layout_new(g, 1 << 20, &l, &rig_err));
    rig_must(program_new(b, g, l, &p, &rig_err));
    n_bytes = p->scratch_bytes;
    program_free(p);
    layout_free(l);
    backend_close(b);
    return n_bytes;
}

/* oneDNN's convolution writes the gradient in a layout of its own, and the reorder behind it adds.
 */
static void of_a_strided_convolution(void **state)
{
    const struct program_precision f32 = {DTYPE_F32, DTYPE_F32};

    (void)state;
    assert_int_equal(scratch_of(strided(), 1, f32), scratch_of(strided(), 0, f32));
}

static void of_a_resnet(void **state)
{
    const struct program_precision f32 = {DTYPE_F32, DTYPE_F32}, bf16 = {DTYPE_BF16, DTYPE_F32};

    (void)state;
    if (!outer_available() && !tile_available())
        skip(); /* oneDNN makes all of them */
    assert_int_equal(scratch_of(resnet18(), 1, f32), scratch_of(resnet18(), 0, f32));
    if (!dn_has_amx()) /* else oneDNN makes all of them in BF16 */
        assert_int_equal(scratch_of(resnet18(), 1, bf16), scratch_of(resnet18(), 0, bf16));
}

/* A table's gradient of BF16 is added up in F32, in the scratch. */
static void of_a_gpt(void **state)
{
    const struct program_precision wide = {DTYPE_BF16, DTYPE_F32}, half = {DTYPE_BF16, DTYPE_BF16};
    const size_t once = scratch_of(gpt(), 0, wide), micro = scratch_of(gpt(), 1, wide);
    const size_t tied = scratch_of(gpt(), 0, half);

    (void)state;
    printf("%zu bytes, with micro-batches %zu, with gradients of BF16 %zu\n", once, micro, tied);
    assert_true(micro < once + TABLE * sizeof(float) / 2);
    assert_true(tied < TABLE * (sizeof(float) + sizeof(uint16_t)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_strided_convolution),
        cmocka_unit_test(of_a_resnet),
        cmocka_unit_test(of_a_gpt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
