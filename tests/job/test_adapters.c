/* adapters: adapter_config.json as PEFT writes it is compared with the job, and what would be
 * another function is refused by name. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "job/adapters.h"
#include "job/job.h"

/* With ' for ".  NULL: there is no such file.  % in a message is the folder. */
static const struct {
    const char *config, *fails;
} cases[] = {
    {"{'peft_type': 'LORA', 'r': 4, 'lora_alpha': 16, 'bias': 'none', 'use_dora': false, "
     "'rank_pattern': {}, 'modules_to_save': null}",
     NULL},
    {"{'peft_type': 'LORA', 'r': 8, 'lora_alpha': 16}", "%/adapter_config.json: r is 8, and "
                                                        "model.lora.rank is 4"},
    {"{'peft_type': 'LORA', 'r': 4}", "lora_alpha is 8, and model.lora.alpha is 16"},
    {"{'peft_type': 'LORA', 'lora_alpha': 16}", "r is 8, and model.lora.rank is 4"},
    {"{'r': 4, 'lora_alpha': 16, 'use_rslora': true}",
     "use_rslora is true, and model.lora.rslora is false"},
    {"{'r': 4, 'lora_alpha': 16, 'use_dora': true}",
     "\"use_dora\" is true, want nothing: dptrain has plain LoRA alone"},
    {"{'peft_type': 'IA3'}", "\"peft_type\" is \"IA3\", want LORA"},
    {"{'bias': 'all'}", "\"bias\" is \"all\", want none"},
    {"{'rank_pattern': {'q_proj': 2}}", "\"rank_pattern\" is {\"q_proj\":2}, want nothing"},
    {"[]", "no object; want the JSON that PEFT writes beside adapter_model.safetensors"},
    {"{'r': 4", "%/adapter_config.json: "},
    {NULL, "%/adapter_config.json: "},
};

static char *with(const char *text, char what, const char *by)
{
    struct buf b = {0};
    char *copy;

    for (; *text; text++)
        buf_printf(&b, "%.*s", *text == what ? (int)strlen(by) : 1, *text == what ? by : text);
    copy = xstrdup(buf_cstr(&b));
    buf_fini(&b);
    return copy;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void configs(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        char folder[] = "/tmp/dptrain-adapters-XXXXXX";
        char *text = cases[i / 2].config ? with(cases[i / 2].config, '\'', "\"") : NULL,
             *want = NULL;
        char *file, *path;
        struct err err = {0};

        assert_non_null(mkdtemp(folder));
        file = xasprintf("%s/adapter_model.safetensors", folder);
        path = xasprintf("%s/adapter_config.json", folder);
        put(file, "");
        if (text)
            put(path, text);
        const struct lora_options o = {.rank = 4, .alpha = 16, .path = i % 2 ? file : folder};
        char *tensors = adapters_path(&o);

        assert_string_equal(tensors, file);
        assert_int_equal(adapters_check(&o, &err), cases[i / 2].fails ? ERR_CONFIG : 0);
        if (cases[i / 2].fails)
            want = with(cases[i / 2].fails, '%', folder);
        if (want && !strstr(err.msg, want))
            fail_msg("\"%s\" is not in \"%s\"", want, err.msg);
        remove_tree(folder);
        free(tensors);
        free(want);
        free(text);
        free(file);
        free(path);
    }
}

/* Keys of a job that contradict each other. */
static void keys(void **state)
{
    static const char *const texts[][2] = {
        {"model: {arch: gpt, lora: {path: /x}}\ndata: {format: text, path: /x}\n",
         "model.lora.path is /x, but model.lora.rank is 0"},
        {"model: {arch: gpt, lora: {rank: 4, path: /x}}\ndata: {format: text, path: /x}\n",
         "begins with random weights"},
        {"model: {arch: gpt, base: int8}\ndata: {format: text, path: /x}\n",
         "model.base is int8, which is for frozen weights, but there is no model.lora"},
        {"model: {arch: gpt, base: bfloat16, lora: {rank: 4}}\ndata: {format: text, path: /x}\n",
         "model.base is bfloat16, the form of a trained network, but the network begins with "
         "random weights"},
        {"model: {arch: gpt, base: int8, lora: {rank: 4}, init: {name: file, path: /w, missing: "
         "draw}}\ndata: {format: text, path: /x}\n",
         "model.init.missing is draw: checkpoints have no base"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct job *job = NULL;
        struct err err;

        assert_int_equal(job_parse(texts[i][0], strlen(texts[i][0]), "test", NULL, &job, &err),
                         ERR_CONFIG);
        assert_non_null(strstr(err.msg, texts[i][1]));
    }
}

static void hear_doubt(void *arg, const char *text) { buf_printf(arg, "%s", text); }

/* Keys of adapters without a rank are told. */
static void without_a_rank(void **state)
{
    static const char *const texts[][2] = {
        {"match: q", "model.lora.rank is 0"},
        {"alpha: 16", "model.lora.rank is 0"},
        {"rank: 4, match: q", ""},
        {"rank: 0", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char *text = xasprintf("model: {arch: gpt, lora: {%s}}\ndata: {format: text, path: /x}\n",
                               texts[i][0]);
        struct buf told = {0};
        struct job *job = NULL;
        struct err err;

        assert_int_equal(job_parse(text, strlen(text), "test", NULL, &job, &err), 0);
        job_doubt(job, 100, hear_doubt, &told);
        assert_non_null(strstr(buf_cstr(&told), texts[i][1]));
        assert_int_equal(told.len > 0, texts[i][1][0] != 0);
        buf_fini(&told);
        job_free(job);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(configs), cmocka_unit_test(keys),
                                       cmocka_unit_test(without_a_rank)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
