/* pretrained: what a job leaves out is taken from transformers' config.json beside its weights;
 * what contradicts it is refused or told; and what is written says the same again. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "job/job.h"
#include "job/pretrained.h"

#define DATA "data: {format: tokens, path: /x}\n"
#define SMALL_NET                                                                       \
    "'model_type': 'gpt2', 'n_layer': 2, 'n_head': 4, 'n_embd': 8, 'n_positions': 16, " \
    "'vocab_size': 61"
#define SAME_NET "arch: gpt, layers: 2, heads: 4, width: 8, context: 16, vocab: 61"

static const struct fill_case {
    const char *config; /* with ' for "; NULL: there is none */
    const char *model;  /* keys beside init */
    const char *data;   /* NULL: DATA */
    /* A part of job.yaml, or of the message if it has a blank at its end.  @ is the path of the
     * weights, % the folder. */
    const char *want;
    const char *name; /* the weights' path in the folder; NULL: their file, and the folder itself */
} fill_cases[] = {
    {"{" SMALL_NET "}", "arch: gpt", NULL,
     "layers: 2\n  heads: 4\n  width: 8\n  context: 16\n  vocab: 61\n  dropout: 0.1\n  tied: true"},
    {"{" SMALL_NET ", 'tie_word_embeddings': false, 'embd_pdrop': 0.25, 'resid_pdrop': 0.25}",
     "arch: gpt, layers: 3, dropout: 0.5", NULL,
     "layers: 3\n  heads: 4\n  width: 8\n  context: 16\n  vocab: 61\n  dropout: 0.5\n  tied: "
     "false"},
    {"{'model_type': 'gpt2', 'num_hidden_layers': 5, 'hidden_size': 24, 'resid_pdrop': 0.0}",
     "arch: gpt", NULL,
     "layers: 5\n  heads: 12\n  width: 24\n  context: 1024\n  vocab: 50257\n  dropout: 0\n"},
    {"{" SMALL_NET "}", "context: 8", NULL, "arch: gpt\n"},
    {"{" SMALL_NET "}", "arch: gpt", "data: {format: text, path: /x}\n", "vocab: 0\n"},
    {"{" SMALL_NET "}", "arch: gpt", "data: {format: text, path: /x, tokenizer: /t}\n",
     "vocab: 61\n"},
    {"{" SMALL_NET "}", "arch: gpt2", NULL, "layers: 12\n  heads: 12\n"},
    {"{" SMALL_NET "}", "arch: lenet", NULL, "arch: lenet\n"},
    {"{'model_type': 'llama', 'n_layer': 2}", "arch: gpt", NULL, "layers: 4\n"},
    {"{'n_layer': 2}", "arch: gpt", NULL, "layers: 4\n"},
    {NULL, "arch: gpt", NULL, "layers: 4\n"},
    {NULL, "loss: mse", NULL,
     "model.arch is missing, and model.init.path: @ does not tell it: there is no %/config.json; "
     "give model.arch (\"dpdriver --help-job\" lists them), or the folder of weights with "
     "transformers' config.json of model_type \"gpt2\" "},
    {NULL, "loss: mse", NULL,
     "model.init.path: %/none does not tell it: No such file or directory ", .name = "none"},
    {"{" SMALL_NET "}", "loss: mse", NULL,
     "model.init.path: %/config.json describes weights and holds none; give the folder, "
     "model.safetensors or model.safetensors.index.json ",
     .name = "config.json"},
    {"{'model_type': 'gpt_neo'}", "loss: mse", NULL,
     "model.init.path: @ does not tell it: %/config.json has model_type \"gpt_neo\"; give "
     "model.arch "},
    {"{'model_type': 2}", "loss: mse", NULL,
     "model.init.path: @ does not tell it: %/config.json has no model_type; give model.arch "},
    {"{'model_type': 'gpt2', 'n_head': '4'}", "arch: gpt", NULL,
     "config.json: n_head is the text \"4\", want a number without quotes, such as 12 "},
    {"{'model_type': 'gpt2', 'tie_word_embeddings': 'false'}", "arch: gpt", NULL,
     "config.json: tie_word_embeddings is the text \"false\", want true or false without quotes "},
    {"{'model_type': 'gpt2', 'n_layer': -2}", "arch: gpt", NULL,
     "config.json: n_layer: model.layers is -2, want an integer from 1 to 1000 blocks "},
    {"{'model_type': 'gpt2', 'n_layer': []}", "arch: gpt", NULL,
     "config.json: n_layer: model.layers is \"a list or an object\", want an integer "},
    {"{'model_type': 'gpt2', 'n_layer'", "arch: gpt", NULL,
     "want the JSON of transformers' config.json, or no such file beside the weights "},
    {"[]", "arch: gpt", NULL,
     "config.json: no JSON object; want the JSON of transformers' config.json, or no such "},
};

static const struct check_case {
    const char *config, *model, *missing;
    const char *want, *told; /* parts; NULL: none */
} check_cases[] = {
    {"{" SMALL_NET "}", SAME_NET ", dropout: 0.1"},
    {"{" SMALL_NET ", 'activation_function': 'gelu_pytorch_tanh', 'layer_norm_epsilon': 0.00001}",
     SAME_NET ", dropout: 0.1"},
    {"{" SMALL_NET "}", "arch: gpt, layers: 2, heads: 2, width: 8, context: 16, vocab: 61", NULL,
     "config.json: 1 difference from the job: n_head is 4, model.heads is 2 (want model.heads: 4)"},
    {"{" SMALL_NET "}", "arch: gpt, layers: 3, heads: 2, width: 8, context: 16, vocab: 61", NULL,
     "config.json: 2 differences from the job: n_layer is 2, model.layers is 3 (want model.layers: "
     "2); n_head is 4, model.heads is 2 (want model.heads: 4)"},
    {"{" SMALL_NET "}", "arch: gpt, layers: 3, heads: 2, width: 8, context: 8, vocab: 65", "draw",
     "config.json: 1 difference from the job: n_head is 4, model.heads is 2 (want model.heads: 4)"},
    {"{" SMALL_NET "}", "arch: gpt, layers: 3, width: 8, context: 8, vocab: 65, dropout: 0.1",
     "draw"},
    {"{" SMALL_NET ", 'activation_function': 'gelu', 'layer_norm_epsilon': 1e-6, "
     "'scale_attn_weights': false, 'scale_attn_by_inverse_layer_idx': true}",
     SAME_NET, "draw",
     "config.json: 4 differences from the job: activation_function is gelu, this network has "
     "gelu_new alone (without config.json beside them, the weights are taken nevertheless); "
     "layer_norm_epsilon is 1e-06, this network has 1e-05 alone"},
    {"{" SMALL_NET "}", "arch: gpt2_medium", NULL, "n_layer is 2, model.layers is 24"},
    {"{" SMALL_NET ", 'attn_pdrop': 0}", SAME_NET ", dropout: 0.1", NULL, NULL,
     "config.json: attn_pdrop is 0, model.dropout is 0.1; training goes by the job"},
    {"{'model_type': 'llama'}", SAME_NET, NULL,
     "config.json: model_type is \"llama\", want \"gpt2\", which model.arch: gpt is in"},
    {"{'n_head': 2}", SAME_NET, NULL, NULL, "config.json has no model_type, so it is not"},
    {"{'model_type': 'gpt2', 'n_layer': 2, 'n_head': '4'}", SAME_NET, NULL,
     "config.json: n_head is the text \"4\", want a number without quotes, such as 12"},
    {"{'model_type': 'resnet'}", "arch: lenet"},
    {NULL, SAME_NET},
};

struct desk {
    char folder[32], *weights; /* an empty file */
    struct buf told;
};

static void hear(void *arg, const char *text) { buf_printf(arg, "%s\n", text); }

static FILE *create(const char *path)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    return f;
}

static void desk_open(struct desk *d, const char *config)
{
    *d = (struct desk){.folder = "/tmp/dptrain-pre-XXXXXX"};
    assert_non_null(mkdtemp(d->folder));
    d->weights = xasprintf("%s/w.safetensors", d->folder);
    assert_int_equal(fclose(create(d->weights)), 0);
    if (config) {
        char *path = xasprintf("%s/config.json", d->folder);
        FILE *f = create(path);

        for (; *config; config++)
            fputc(*config == '\'' ? '"' : *config, f);
        assert_int_equal(fclose(f), 0);
        free(path);
    }
}

static void desk_close(struct desk *d)
{
    assert_int_equal(remove_tree(d->folder), 0);
    buf_fini(&d->told);
    free(d->weights);
}

static int make_job(const char *path, const char *model, const char *missing, const char *data,
                    struct job **out, struct err *err)
{
    char *text = xasprintf("model: {%s, init: {name: file, path: %s, missing: %s}}\n%s", model,
                           path, missing ? missing : "error", data ? data : DATA);
    const int rc = job_parse(text, strlen(text), "test", NULL, out, err);

    free(text);
    return rc;
}

static void must_hold(const char *text, const char *part)
{
    const size_t n = strlen(part) - (part[strlen(part) - 1] == ' ');
    char *trimmed = xasprintf("%.*s", (int)n, part);

    if (!strstr(text, trimmed))
        fail_msg("\"%s\" is not in \"%s\"", trimmed, text);
    free(trimmed);
}

static char *fill_in(const char *text, const char *path, const char *folder)
{
    struct buf all = {0};
    char *filled;

    for (; *text; text++)
        if (*text == '@' || *text == '%')
            buf_printf(&all, "%s", *text == '@' ? path : folder);
        else
            buf_printf(&all, "%c", *text);
    filled = xstrdup(buf_cstr(&all));
    buf_fini(&all);
    return filled;
}

static void gaps_are_filled(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(fill_cases); i++) {
        const struct fill_case *c = &fill_cases[i / 2];
        const int must_fail = c->want[strlen(c->want) - 1] == ' ';
        struct desk d;
        struct job *job = NULL;
        struct err err = {0};
        char *path, *want;
        int rc;

        desk_open(&d, c->config);
        path =
            c->name ? xasprintf("%s/%s", d.folder, c->name) : xstrdup(i % 2 ? d.weights : d.folder);
        want = fill_in(c->want, path, d.folder);
        rc = make_job(path, c->model, NULL, c->data, &job, &err);
        if ((rc < 0) != must_fail)
            fail_msg("case %zu: %s", i / 2, rc < 0 ? err.msg : "is no error");
        if (rc == 0)
            job_write(job, &d.told);
        must_hold(rc < 0 ? err.msg : buf_cstr(&d.told), want);
        free(want);
        free(path);
        job_free(job);
        desk_close(&d);
    }
}

static void contradictions_are_refused_or_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(check_cases); i++) {
        const struct check_case *c = &check_cases[i];
        struct desk d;
        struct job *job = NULL;
        struct err err = {0};
        int rc;

        desk_open(&d, c->config);
        if (make_job(d.weights, c->model, c->missing, NULL, &job, &err) < 0)
            fail_msg("case %zu: %s", i, err.msg);
        rc = pretrained_check(job, hear, &d.told, &err);
        if ((rc < 0) != (c->want != NULL))
            fail_msg("case %zu: %s", i, rc < 0 ? err.msg : "is no error");
        if (c->want)
            must_hold(err.msg, c->want);
        if (c->told)
            must_hold(buf_cstr(&d.told), c->told);
        else
            assert_int_equal(d.told.len, 0);
        job_free(job);
        desk_close(&d);
    }
}

/* A job that leaves all to the file which another job has written is like that one. */
static void what_is_written_is_read(void **state)
{
    static const char net[] = "arch: gpt, layers: 2, heads: 4, width: 8, context: 16, vocab: 0, "
                              "dropout: 0.25, tied: false";
    struct buf text = {0};
    struct desk d;
    struct job *job = NULL;
    struct err err = {0};

    (void)state;
    desk_open(&d, NULL);
    assert_int_equal(make_job(d.weights, net, NULL, NULL, &job, &err), 0);
    pretrained_write(job, 61, &text);
    job_free(job);
    desk_close(&d);
    must_hold(buf_cstr(&text), "\"architectures\": [\n    \"GPT2LMHeadModel\"\n  ]");
    must_hold(buf_cstr(&text), "\"bos_token_id\": null");
    desk_open(&d, buf_cstr(&text));
    assert_int_equal(make_job(d.weights, "loss: cross_entropy", NULL, NULL, &job, &err), 0);
    job_write(job, &d.told);
    must_hold(buf_cstr(&d.told), "layers: 2\n  heads: 4\n  width: 8\n  context: 16\n  vocab: 61\n"
                                 "  dropout: 0.25\n  tied: false\n");
    job_free(job);
    desk_close(&d);
    buf_fini(&text);
}

/* transformers' own vocabulary has transformers' own tokens for begin and end. */
static void other_networks_have_none(void **state)
{
    static const char *const archs[] = {"arch: gpt2", "arch: lenet"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        struct buf text = {0};
        struct desk d;
        struct job *job = NULL;
        struct err err = {0};

        desk_open(&d, NULL);
        assert_int_equal(make_job(d.weights, archs[i], NULL, NULL, &job, &err), 0);
        pretrained_write(job, 10, &text);
        if (i == 0) {
            must_hold(buf_cstr(&text), "\"vocab_size\": 50257");
            assert_null(strstr(buf_cstr(&text), "token_id"));
        } else {
            assert_int_equal(text.len, 0);
        }
        job_free(job);
        desk_close(&d);
        buf_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_are_filled),
        cmocka_unit_test(contradictions_are_refused_or_told),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(other_networks_have_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
