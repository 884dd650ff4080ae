/* weights: what is taken from a file of weights, what is told of, and what is refused. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "program/base.h"
#include "program/program.h"
#include "state/weights.h"
#include "tensor/blocks.h"

enum { VOCAB = 7, CONTEXT = 4, WIDTH = 4, MOST_TENSORS = 64 };

static const struct sample_spec tokens = {
    2,
    {{"text", SAMPLE_INPUT, DTYPE_I32, {1, {CONTEXT}}, VOCAB, DTYPE_I32, SAMPLE_AS_IS},
     {"next", SAMPLE_CLASS, DTYPE_I32, {1, {CONTEXT}}, VOCAB, DTYPE_I32, SAMPLE_AS_IS}}};

/* A small GPT's state, and a file for it. */
struct desk {
    char folder[32], *path;
    struct job *job;
    struct layout *layout;
    struct backend *b;
    struct state *s;
    struct buf told;
    struct st_tensor tensor[MOST_TENSORS];
    int n_tensors;
    float *ones; /* the content of every tensor but those that a test gives */
};

static void hear(void *arg, const char *text)
{
    struct desk *d = arg;

    buf_printf(&d->told, "%s\n", text);
}

static void make_layout(struct desk *d)
{
    const struct program_precision single = {DTYPE_F32, DTYPE_F32};
    const enum dtype form = d->job->model.base == BASE_INT8 ? DTYPE_I8 : DTYPE_F32;
    struct graph *g = NULL;
    struct err err;

    assert_int_equal(model_build(&d->job->model, &tokens, 1, 1, 0, &g, &err), 0);
    assert_int_equal(program_differentiate(g, &err), 0);
    assert_int_equal(program_pack_base(g, form, DTYPE_F32, &err), 0);
    assert_int_equal(program_set_precision(g, single, &err), 0);
    assert_int_equal(layout_new(g, 1 << 20, &d->layout, &err), 0);
    graph_free(g);
}

/* more: keys of the model. */
static void desk_open(struct desk *d, const char *more, const char *missing)
{
    char *text;
    struct err err;

    *d = (struct desk){.folder = "/tmp/dptrain-weights-XXXXXX"};
    assert_non_null(mkdtemp(d->folder));
    d->path = xasprintf("%s/w.safetensors", d->folder);
    d->ones = xcalloc(1 << 12, sizeof *d->ones);
    for (int i = 0; i < 1 << 12; i++)
        d->ones[i] = 1;
    text = xasprintf("model: {arch: gpt, layers: 1, heads: 1, width: %d, context: %d%s, "
                     "init: {name: file, path: %s%s}}\ndata: {format: text, path: /x}\n",
                     WIDTH, CONTEXT, more, d->path, missing);
    assert_int_equal(job_parse(text, strlen(text), "test", NULL, &d->job, &err), 0);
    free(text);
    make_layout(d);
    assert_int_equal(backend_open_cpu(1, &d->b, &err), 0);
    assert_int_equal(state_new(d->b, d->layout, NULL, 0, &d->s, &err), 0);
    d->s->warn = hear;
    d->s->warn_arg = d;
}

static void desk_close(struct desk *d)
{
    state_free(d->s);
    layout_free(d->layout);
    backend_close(d->b);
    job_free(d->job);
    buf_fini(&d->told);
    remove_tree(d->folder);
    free(d->path);
    free(d->ones);
}

static void add(struct desk *d, const char *name, enum dtype dtype, struct shape shape,
                const void *data)
{
    assert_true(d->n_tensors < MOST_TENSORS);
    d->tensor[d->n_tensors++] = (struct st_tensor){name, dtype, shape, data};
}

/* All parameters, without the first `cut` letters of their names, but for the one called `but`. */
static void add_all(struct desk *d, size_t cut, const char *but)
{
    for (int i = 0; i < d->layout->n_params; i++)
        if (!but || strcmp(d->layout->param[i].name, but) != 0)
            add(d, d->layout->param[i].name + cut, DTYPE_F32, d->layout->param[i].shape, d->ones);
}

static int load(struct desk *d, struct err *err)
{
    struct hash128 hash;

    (void)unlink(d->path); /* of an earlier call */
    assert_int_equal(st_write(d->path, d->tensor, d->n_tensors, NULL, &hash, err), 0);
    return state_init(d->s, d->job, err);
}

static void must_load(struct desk *d)
{
    struct err err;

    if (load(d, &err) < 0)
        fail_msg("%s", err.msg);
}

static void must_fail(struct desk *d, const char *text)
{
    struct err err;

    assert_int_equal(load(d, &err), ERR_CONFIG);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" does not hold \"%s\"", err.msg, text);
}

static const float *param_of(const struct desk *d, const char *name)
{
    for (int i = 0; i < d->layout->n_params; i++)
        if (!strcmp(d->layout->param[i].name, name))
            return (float *)state_data(d->s, &slot_parameters) + d->layout->param[i].offset;
    fail_msg("no parameter %s", name);
    return NULL;
}

/* The first element of a parameter. */
static float first_of(const struct desk *d, const char *name) { return *param_of(d, name); }

static const size_t prefix = sizeof "transformer." - 1;

/* Files as Hugging Face's hub and its library have them: without and with the prefix, with masks,
 * with the tied weight twice. */
static void files_of_other_programs(void **state)
{
    static const float mask[CONTEXT * CONTEXT] = {0};

    (void)state;
    for (int is_bare = 0; is_bare < 2; is_bare++) {
        struct desk d;

        desk_open(&d, "", "");
        add_all(&d, is_bare ? prefix : 0, NULL);
        add(&d, "h.0.attn.bias", DTYPE_F32, SHAPE(1, 1, CONTEXT, CONTEXT), mask);
        add(&d, "h.0.attn.masked_bias", DTYPE_F32, (struct shape){0}, mask);
        add(&d, "lm_head.weight", DTYPE_F32, SHAPE(VOCAB, WIDTH), d.ones);
        must_load(&d);
        assert_int_equal(d.told.len, 0);
        assert_true(first_of(&d, "transformer.wte.weight") == 1);
        assert_true(first_of(&d, "transformer.h.0.mlp.c_proj.weight") == 1);
        desk_close(&d);
    }
}

/* A model with one weight cannot take a file with two. */
static void tied_weights_that_differ(void **state)
{
    static const float zeros[VOCAB * WIDTH] = {0};
    struct desk d;

    (void)state;
    desk_open(&d, "", "");
    add_all(&d, 0, NULL);
    add(&d, "lm_head.weight", DTYPE_F32, SHAPE(VOCAB, WIDTH), zeros);
    must_fail(&d, "tensor \"lm_head.weight\" is not equal to \"transformer.wte.weight\", but this "
                  "model has one parameter for both; model.tied: false has two");
    desk_close(&d);
    desk_open(&d, ", tied: false", "");
    add_all(&d, 0, "lm_head.weight");
    add(&d, "lm_head.weight", DTYPE_F32, SHAPE(VOCAB, WIDTH), zeros);
    must_load(&d);
    assert_true(first_of(&d, "lm_head.weight") == 0);
    desk_close(&d);
}

/* Of a run that diverged, in each type.  The message names tensor, element and value. */
static void numbers_that_are_not_finite(void **state)
{
    static const uint16_t halves[3][4] = {{0x3f80, 0x3f80, 0xff80, 0x7fc0}, {0x3c00, 0x7e00}};
    static const float floats[WIDTH] = {1, 1, 1, (float)INFINITY};
    static const struct {
        enum dtype type;
        const void *data;
        const char *text;
    } cases[] = {
        {DTYPE_BF16, halves[0], "tensor \"transformer.ln_f.bias\", element 2 is -inf, want finite"},
        {DTYPE_F16, halves[1], "tensor \"transformer.ln_f.bias\", element 1 is nan, want finite"},
        {DTYPE_F32, floats, "tensor \"transformer.ln_f.bias\", element 3 is inf, want finite"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct desk d;

        desk_open(&d, "", "");
        add_all(&d, 0, "transformer.ln_f.bias");
        add(&d, "transformer.ln_f.bias", cases[i].type, SHAPE(WIDTH), cases[i].data);
        must_fail(&d, cases[i].text);
        must_fail(&d, "name an earlier checkpoint in model.init.path");
        desk_close(&d);
    }
}

static void write_text(const struct desk *d, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", d->folder, name);
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    free(path);
}

/* transformers' config.json is beside the file; job/pretrained.h compares it. */
static void config_is_compared(void **state)
{
    struct desk d;

    (void)state;
    desk_open(&d, "", "");
    add_all(&d, 0, NULL);
    write_text(&d, "config.json",
               "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 4, "
               "\"n_positions\": 4, \"vocab_size\": 7}");
    must_fail(&d, "n_head is 2, model.heads is 1 (want model.heads: 2)");
    write_text(&d, "config.json",
               "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 1, \"n_embd\": 4, "
               "\"n_positions\": 4, \"vocab_size\": 7}");
    must_load(&d);
    assert_non_null(strstr(buf_cstr(&d.told), "resid_pdrop is 0.1, model.dropout is 0"));
    desk_close(&d);
    desk_open(&d, ", tied: true", "");
    add_all(&d, 0, "transformer.ln_f.bias");
    write_text(&d, "config.json",
               "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 1, \"n_embd\": 4, "
               "\"n_positions\": 4}");
    must_fail(&d, "1 difference; config.json lacks tie_word_embeddings, for which the job has "
                  "transformers' defaults; give them there (model.init.missing: draw would");
    desk_close(&d);
}

/* Half of the tensors in each of two files, with an index of them. */
static void files_with_an_index(void **state)
{
    struct buf index = {0};
    struct hash128 hash;
    struct desk d;
    struct err err;
    int half;

    (void)state;
    desk_open(&d, "", "");
    add_all(&d, 0, NULL);
    half = d.n_tensors / 2;
    buf_printf(&index, "{\"weight_map\": {");
    for (int i = 0; i < d.n_tensors; i++)
        buf_printf(&index, "%s\"%s\": \"%d\"", i ? ", " : "", d.tensor[i].name, i < half);
    buf_printf(&index, "}}");
    write_text(&d, "model.safetensors.index.json", buf_cstr(&index));
    for (int k = 0; k < 2; k++) {
        char *path = xasprintf("%s/%d", d.folder, k);

        assert_int_equal(st_write(path, d.tensor + (k ? 0 : half), k ? half : d.n_tensors - half,
                                  NULL, &hash, &err),
                         0);
        free(path);
    }
    d.job->model.init.path = d.folder;
    if (state_init(d.s, d.job, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(first_of(&d, d.tensor[0].name) == 1);
    assert_true(first_of(&d, d.tensor[d.n_tensors - 1].name) == 1);
    buf_fini(&index);
    desk_close(&d);
}

/* A file for another number of tokens, with a tensor too many and one too few. */
static void add_other(struct desk *d)
{
    add_all(d, 0, "transformer.wte.weight");
    add(d, "transformer.wte.weight", DTYPE_F32, SHAPE(VOCAB + 2, WIDTH), d->ones);
    for (int i = 0; i < d->n_tensors; i++)
        if (!strcmp(d->tensor[i].name, "transformer.ln_f.bias"))
            d->tensor[i].name = "score.bias";
}

static const char another_shape[] = "tensor \"transformer.wte.weight\" is F32 [9,4], this model "
                                    "wants F32 [7,4]",
                  too_few[] = "no tensor \"transformer.ln_f.bias\", which this model has",
                  too_many[] = "tensor \"score.bias\" is not part of this model";

static void differences_are_listed(void **state)
{
    struct desk d;

    (void)state;
    desk_open(&d, "", "");
    add_other(&d);
    must_fail(&d, another_shape);
    must_fail(&d, too_few);
    must_fail(&d, too_many);
    must_fail(&d, "3 differences (model.init.missing: draw would begin anew");
    assert_true(first_of(&d, "transformer.ln_f.weight") == 0); /* nothing was drawn, or taken */
    assert_true(first_of(&d, "transformer.h.0.mlp.c_proj.weight") == 0);
    assert_int_equal(d.told.len, 0);
    desk_close(&d);
}

/* A tensor that the file lacks has the initial values that it would have without a file. */
static void differences_are_drawn(void **state)
{
    struct desk d;
    float drawn;

    (void)state;
    desk_open(&d, "", ", missing: draw");
    d.job->model.init.name = INIT_PYTORCH;
    add_other(&d);
    must_load(&d); /* without the file */
    drawn = first_of(&d, "transformer.wte.weight");
    assert_true(drawn != 0 && drawn != 1);
    d.job->model.init.name = INIT_FILE;
    must_load(&d);
    assert_true(first_of(&d, "transformer.wte.weight") == drawn);
    assert_true(first_of(&d, "transformer.ln_f.bias") == 0);
    assert_true(first_of(&d, "transformer.h.0.mlp.c_proj.weight") == 1);
    assert_non_null(strstr(buf_cstr(&d.told), another_shape));
    assert_non_null(strstr(buf_cstr(&d.told), too_few));
    assert_non_null(strstr(buf_cstr(&d.told), ": begins anew: "));
    assert_non_null(strstr(buf_cstr(&d.told), ": ignored: "));
    assert_non_null(strstr(buf_cstr(&d.told), too_many));
    desk_close(&d);
}

static int n_drawn[MOST_TENSORS];

static void count_drawing(const struct job *job, const struct layout *l, int i, int64_t first,
                          int64_t n, void *to)
{
    (void)job, (void)l, (void)first, (void)n, (void)to;
    n_drawn[i]++;
}

static const struct slot_def counted = {.name = "counted",
                                        .suffix = ".counted",
                                        .scope = SLOT_PER_PARAMETER,
                                        .dtype = DTYPE_F32,
                                        .file = SLOT_IN_MODEL,
                                        .init_part = count_drawing};

/* Initial values of large models take long to draw.  So nothing is drawn of which the file has the
 * values, or if the file is refused. */
static void only_what_lacks_is_drawn(void **state)
{
    static const struct slot_def *const more[] = {&counted};
    char *name[MOST_TENSORS] = {NULL};
    const int lacking = 2;
    struct desk d;
    struct err err;

    (void)state;
    desk_open(&d, "", ", missing: draw");
    state_free(d.s);
    assert_int_equal(state_new(d.b, d.layout, more, 1, &d.s, &err), 0);
    add_all(&d, 0, NULL);
    for (int i = 0; i < d.layout->n_params; i++)
        if (i != lacking) {
            name[i] = xasprintf("%s.counted", d.layout->param[i].name);
            add(&d, name[i], DTYPE_F32, d.layout->param[i].shape, d.ones);
        }
    must_load(&d);
    for (int i = 0; i < d.layout->n_params; i++)
        assert_int_equal(n_drawn[i], i == lacking);
    d.job->model.init.missing = MISSING_ERROR;
    must_fail(&d, "1 difference ");
    assert_int_equal(n_drawn[lacking], 1);
    desk_close(&d);
    for (int i = 0; i < MOST_TENSORS; i++)
        free(name[i]);
}

/* Files of half precision are widened. */
static void halves_are_widened(void **state)
{
    static const uint16_t f16[WIDTH] = {0x3c00, 0xc000, 0x0001, 0x7bff},
                          bf16[WIDTH] = {0x3f80, 0xc000, 0x0001, 0x7f7f};
    static const float of_f16[WIDTH] = {1, -2, 0x1p-24F, 65504},
                       of_bf16[WIDTH] = {1, -2, 0x1p-133F, 0x1.fep127F};
    struct desk d;

    (void)state;
    desk_open(&d, "", "");
    for (int i = 0; i < d.layout->n_params; i++) {
        const char *name = d.layout->param[i].name;
        const int is_bias = !strcmp(name, "transformer.ln_f.bias"),
                  is_weight = !strcmp(name, "transformer.ln_f.weight");

        add(&d, name,
            is_bias     ? DTYPE_F16
            : is_weight ? DTYPE_BF16
                        : DTYPE_F32,
            d.layout->param[i].shape,
            is_bias     ? (const void *)f16
            : is_weight ? (const void *)bf16
                        : d.ones);
    }
    must_load(&d);
    assert_memory_equal(param_of(&d, "transformer.ln_f.bias"), of_f16, sizeof of_f16);
    assert_memory_equal(param_of(&d, "transformer.ln_f.weight"), of_bf16, sizeof of_bf16);
    desk_close(&d);
}

/* The codes and scales of the base's tensors, which all come from `x`. */
static void expect_packed(const struct desk *d, const float *x)
{
    const char *base = state_data(d->s, &slot_base);
    int8_t codes[1 << 10];
    float scales[1 << 6];

    for (int i = 0; i < d->layout->n_base; i++) {
        const struct segment *s = &d->layout->base[i];

        if (base_is_scales(s->name))
            continue;
        blocks_pack(x, s->length, codes, scales);
        assert_memory_equal(base + s->offset, codes, (size_t)s->length);
        assert_memory_equal(base + s[1].offset, scales,
                            (size_t)blocks_of(s->length) * sizeof *scales);
    }
}

/* model.base: a new run takes it, and so does one that resumes, in whose checkpoint it is not. */
static void base_is_packed(void **state)
{
    struct desk d;
    struct err err;
    struct slot *slot = NULL;
    struct hash128 hash;
    float x[1 << 10];

    (void)state;
    for (int i = 0; i < 1 << 10; i++)
        x[i] = 0.01f * (float)(i * 7919 % 1009 - 500);
    desk_open(&d, ", base: int8, lora: {rank: 1}", "");
    add_all(&d, 0, NULL);
    for (int i = 0; i < d.layout->n_base; i += 2) /* a codes' scales come behind it */
        add(&d, d.layout->base[i].name, DTYPE_F32, d.layout->base[i].shape, x);
    must_load(&d);
    expect_packed(&d, x);
    for (int k = 0; k < d.s->n_slots; k++)
        if (d.s->slot[k].def == &slot_base)
            slot = &d.s->slot[k];
    assert_false(slot_is_saved(slot->def));
    memset(slot->data, 0, slot->n_bytes);
    hash = d.s->at.base;
    assert_int_equal(state_take_base(d.s, d.job, hash, &err), 0);
    assert_true(hash_equal(hash, d.s->at.base) && !hash_equal(hash, (struct hash128){0}));
    expect_packed(&d, x);
    assert_int_equal(state_take_base(d.s, d.job, (struct hash128){0}, &err), 0);
    x[3] += 1;
    must_load(&d);
    assert_int_equal(state_take_base(d.s, d.job, hash, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "has other weights than when the run began (their hash is "));
    d.tensor[d.n_tensors - 1].name = "another.weight";
    assert_int_equal(load(&d, &err), ERR_CONFIG);
    assert_int_equal(state_take_base(d.s, d.job, hash, &err), ERR_CONFIG);
    assert_non_null(
        strstr(err.msg, "the frozen base, which checkpoints do not have: model.init: "));
    assert_non_null(strstr(err.msg, ": 1 difference "));
    desk_close(&d);
}

/* Another type is no matter of drawing, and a file of another model is a mistake. */
static void refused_in_any_case(void **state)
{
    struct desk d;

    (void)state;
    desk_open(&d, "", ", missing: draw");
    add_all(&d, 0, "transformer.ln_f.bias");
    add(&d, "transformer.ln_f.bias", DTYPE_I32, SHAPE(WIDTH), d.ones);
    must_fail(&d, "tensor \"transformer.ln_f.bias\" is I32 [4], this model wants F32 [4]");
    desk_close(&d);
    desk_open(&d, "", ", missing: draw");
    add(&d, "conv1.weight", DTYPE_F32, SHAPE(WIDTH), d.ones);
    must_fail(&d, "none of its tensors fits this model: tensor \"conv1.weight\" is not part");
    desk_close(&d);
}

/* A message names some differences, and counts the others. */
static void many_differences(void **state)
{
    static char name[20][8];
    struct desk d;

    (void)state;
    desk_open(&d, "", ", missing: draw");
    add_all(&d, 0, NULL);
    for (int i = 0; i < 20; i++) {
        snprintf(name[i], sizeof name[i], "x%d", i);
        add(&d, name[i], DTYPE_F32, SHAPE(WIDTH), d.ones);
    }
    must_load(&d);
    assert_non_null(strstr(buf_cstr(&d.told), "\"x7\" is not part of this model; and 12 more\n"));
    assert_null(strstr(buf_cstr(&d.told), "\"x8\""));
    desk_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_other_programs),
        cmocka_unit_test(tied_weights_that_differ),
        cmocka_unit_test(numbers_that_are_not_finite),
        cmocka_unit_test(differences_are_listed),
        cmocka_unit_test(config_is_compared),
        cmocka_unit_test(files_with_an_index),
        cmocka_unit_test(differences_are_drawn),
        cmocka_unit_test(base_is_packed),
        cmocka_unit_test(halves_are_widened),
        cmocka_unit_test(refused_in_any_case),
        cmocka_unit_test(many_differences),
        cmocka_unit_test(only_what_lacks_is_drawn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
