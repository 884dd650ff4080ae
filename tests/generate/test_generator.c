/* Tests that the logits of a generator, which keeps keys and values, are those of the network for
 * its whole context: one token at a time, in pieces, and across places where the cache grows. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "generate/generator.h"
#include "generate/unroll.h"
#include "import/arch.h"
#include "import/folder.h"
#include "model/gpt.h"
#include "program/program.h"

enum { CONTEXT = 150, VOCAB = 19 };

static const struct gpt_options gpt = {
    .layers = 2, .heads = 2, .width = 16, .context = CONTEXT, .vocab = VOCAB, .tied = 1};

/* A window, fewer heads of keys, and rotary positions. */
static const char mistral[] =
    "{\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], "
    "\"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"intermediate_size\": 24, \"vocab_size\": 19, "
    "\"max_position_embeddings\": 150, \"sliding_window\": 21, \"hidden_act\": \"silu\", "
    "\"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": false}";

struct rig {
    struct model_options model;
    struct import_options import;
    struct unroll_request of;
    struct layout *layout;
    float *param;
    char path[64];
    struct st_file *file;
};

static struct err err;

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%s", err.msg);
}

static int32_t token_at(int64_t i)
{
    return (int32_t)(rng_draw(3, RNG_TEST, 1, (uint64_t)i).v[0] % VOCAB);
}

/* Write weights to a file, all drawn. */
static void rig_write(struct rig *r)
{
    const struct layout *l = r->layout;
    struct st_tensor *tensor = xcalloc((size_t)l->n_params, sizeof *tensor);
    struct hash128 hash;

    must(try_alloc((void **)&r->param, (size_t)l->n_total * sizeof(float), "a test", &err));
    for (int i = 0; i < l->n_params; i++) {
        const struct segment *s = &l->param[i];
        float *to = r->param + s->offset;

        for (int64_t k = 0; k < s->length; k++)
            to[k] = rng_to_unit(rng_draw(5, RNG_TEST, (uint64_t)i, (uint64_t)k).v[0]) - 0.5f +
                    (s->info.kind == PARAM_NORM);
        tensor[i] =
            (struct st_tensor){.name = s->name, .dtype = DTYPE_F32, .shape = s->shape, .data = to};
    }
    snprintf(r->path, sizeof r->path, "/tmp/dptrain_generator_%d", (int)getpid());
    unlink(r->path);
    must(st_write(r->path, tensor, l->n_params, NULL, &hash, &err));
    must(st_open(r->path, &r->file, &err));
    free(tensor);
}

static void rig_open(struct rig *r, const char *config)
{
    struct graph *g;

    *r = (struct rig){.model = {.kind = &arch_gpt, .options = &gpt}};
    if (config) {
        must(folder_parse(config, strlen(config), "a test", CONTEXT, &r->import.network, &err));
        r->import.inputs = "{}";
        r->model = (struct model_options){.kind = &arch_import, .options = &r->import};
    }
    r->of = (struct unroll_request){.model = &r->model, .context = CONTEXT, .vocab = VOCAB};
    must(unroll_model(&r->of, 1, 1, 0, &g, &err));
    must(program_differentiate(g, &err));
    must(layout_new(g, 1 << 20, &r->layout, &err));
    graph_free(g);
    rig_write(r);
}

static void rig_close(struct rig *r)
{
    unlink(r->path);
    st_close(r->file);
    layout_free(r->layout);
    import_network_free(r->import.network);
    free(r->param);
}

/* The logits [CONTEXT,VOCAB] of the network for its whole context, for free(). */
static float *rig_whole(const struct rig *r)
{
    struct step_scalars scalars = {0};
    double metrics[METRIC_COUNT] = {0};
    struct program_spaces spaces = {.param = r->param, .metrics = metrics, .scalars = &scalars};
    float *logits = xcalloc((size_t)CONTEXT * VOCAB, sizeof *logits);
    struct program *p;
    struct backend *b;
    struct graph *g;
    void *arena;

    must(backend_open_cpu(1, &b, &err));
    must(unroll_model(&r->of, CONTEXT, 0, 0, &g, &err));
    must(program_new(b, g, r->layout, &p, &err));
    must(backend_alloc(b, program_arena_bytes(p), "a test", &arena, &err));
    must(program_bind(p, &spaces, arena, &err));
    for (int64_t i = 0; i < CONTEXT; i++) {
        ((int32_t *)program_input(p, 0))[i] = token_at(i);
        ((int32_t *)program_input(p, 1))[i] = 0;
    }
    for (int i = 0; i < program_n_stages(p); i++)
        must(program_run_stage(p, i, &err));
    memcpy(logits, program_logits(p), (size_t)CONTEXT * VOCAB * sizeof *logits);
    program_free(p);
    backend_free(b, arena);
    backend_close(b);
    return logits;
}

/* Feed all tokens in pieces of n. */
static void check_pieces(const struct rig *r, const float *whole, int64_t n)
{
    const struct generator_request q = {
        .model = &r->model, .weights = r->file, .context = CONTEXT, .n_threads = 1};
    struct generator *g;
    int32_t token[CONTEXT];
    const float *logits;

    must(generator_open(&q, &g, &err));
    assert_int_equal(generator_vocab(g), VOCAB);
    for (int64_t at = 0; at < CONTEXT; at += n) {
        const int64_t len = min_i64(n, CONTEXT - at), last = at + len - 1;

        assert_int_equal(generator_room(g), CONTEXT - at);
        for (int64_t i = 0; i < len; i++)
            token[i] = token_at(at + i);
        must(generator_feed(g, token, len, &logits, &err));
        for (int64_t v = 0; v < VOCAB; v++)
            if (!(fabsf(logits[v] - whole[last * VOCAB + v]) < 1e-4f))
                fail_msg("token %d, logit %d: %g, want %g", (int)last, (int)v, (double)logits[v],
                         (double)whole[last * VOCAB + v]);
    }
    assert_int_equal(generator_room(g), 0);
    generator_close(g);
}

static void check_all(const char *config)
{
    static const int64_t pieces[] = {1, 16, 37, CONTEXT};
    struct rig r;
    float *whole;

    rig_open(&r, config);
    whole = rig_whole(&r);
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        check_pieces(&r, whole, pieces[i]);
    free(whole);
    rig_close(&r);
}

static void test_positions(void **state)
{
    (void)state;
    check_all(NULL);
}

static void test_rotary(void **state)
{
    (void)state;
    check_all(mistral);
}

/* Weights of another network, and a network of pictures. */
static void test_refused(void **state)
{
    struct gpt_options other = gpt;
    struct generator_request q = {.context = CONTEXT, .n_threads = 1};
    struct model_options model;
    struct generator *g = NULL;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    model = r.model;
    q.model = &model;
    q.weights = r.file;
    other.width = 32;
    model.options = &other;
    assert_int_equal(generator_open(&q, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "want ["));
    other = gpt;
    other.layers = 3;
    assert_int_equal(generator_open(&q, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "has no tensor \"transformer.h.2."));
    model.kind = &arch_lenet;
    assert_true(generator_open(&q, &g, &err) < 0);
    assert_null(g);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
