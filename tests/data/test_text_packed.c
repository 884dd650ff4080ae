/* Packed documents of texts by a tokenizer.json: whole documents in samples, divided between
 * training and validation, and not of bytes or characters. */
#include "../test.h"

#include "data/sequence.h"
#include "sequence_set.h"
#include "tokenizer_file.h"

enum { CONTEXT = 6, IGNORED = SAMPLE_IGNORED };

static const char *tokenizer;

static struct dataset *open_packed(const char *folder, const char *validation,
                                   enum dataset_purpose purpose)
{
    char *path = xasprintf("%s/a.jsonl", folder);
    const struct setting settings[] = {{"data.path", path},         {"data.tokenizer", tokenizer},
                                       {"data.end_token", "<end>"}, {"data.validation", validation},
                                       {"data.pack", "true"},       {NULL}};
    struct dataset *ds = open_ok(&format_text, settings, request(purpose, CONTEXT, 0));

    free(path);
    assert_int_equal(sample_starts(&ds->spec), SEQUENCE_STARTS);
    return ds;
}

static void check_sample(const struct dataset *ds, int64_t i, const int32_t want[3][CONTEXT])
{
    int32_t to[3][CONTEXT];
    struct err err;

    assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){to[0], to[1], to[2]}, &err), 0);
    assert_memory_equal(to, want, sizeof to);
}

static void documents_are_packed(void **state)
{
    static const int32_t want[2][3][CONTEXT] = {
        {{'a', 'b', 'c', 'd', 'x', 'y'},
         {'b', 'c', 'd', TOKEN_END, 'y', TOKEN_END},
         {0, 0, 0, 0, 4, 4}},
        {{'q', 0, 0, 0, 0, 0},
         {TOKEN_END, IGNORED, IGNORED, IGNORED, IGNORED, IGNORED},
         {0, 1, 2, 3, 4, 5}}};
    struct dataset *ds;

    tokenizer = *state;
    write_tokenizer(*state, 0);
    write_texts(*state, "a.jsonl", "{\"text\": \"abcd\"}\n{\"text\": \"xy\"}\n{\"text\": \"q\"}\n");
    ds = open_packed(*state, "none", DATASET_TRAIN);
    assert_int_equal(ds->n_samples, 2);
    for (int i = 0; i < 2; i++)
        check_sample(ds, i, want[i]);
    dataset_close(ds);
}

/* Of 21 documents of 5 tokens nine tenths end within the 19th: its first 4 tokens train, and the
 * last one is alone, without a target. */
static void the_last_tenth_validates(void **state)
{
    static const int32_t whole[3][CONTEXT] = {{'a', 'b', 'c', 'd', 0, 0},
                                              {'b', 'c', 'd', TOKEN_END, IGNORED, IGNORED},
                                              {0, 0, 0, 0, 4, 5}},
                         begun[3][CONTEXT] = {{'a', 'b', 'c', 0, 0, 0},
                                              {'b', 'c', 'd', IGNORED, IGNORED, IGNORED},
                                              {0, 0, 0, 3, 4, 5}};
    struct buf text = {0};
    struct dataset *ds;

    tokenizer = *state;
    write_tokenizer(*state, 0);
    for (int i = 0; i < 21; i++)
        buf_printf(&text, "{\"text\": \"abcd\"}\n");
    write_texts(*state, "a.jsonl", buf_cstr(&text));
    buf_fini(&text);
    ds = open_packed(*state, "last_tenth", DATASET_TRAIN);
    assert_int_equal(ds->n_samples, 19);
    check_sample(ds, 17, whole);
    check_sample(ds, 18, begun);
    dataset_close(ds);
    ds = open_packed(*state, "last_tenth", DATASET_VALIDATION);
    assert_int_equal(ds->n_samples, 2);
    check_sample(ds, 0, whole);
    dataset_close(ds);
}

/* Prompts are no targets, and the end of an example that is too long is in no sample. */
static void examples_are_packed(void **state)
{
    static const int32_t want[2][3][CONTEXT] = {
        {{'a', 'b', 'c', 'x', 'y', 0},
         {IGNORED, 'c', TOKEN_END, 'y', TOKEN_END, IGNORED},
         {0, 0, 0, 3, 3, 5}},
        {{'d', 'e', 'f', 'g', 'h', 'i'}, {IGNORED, 'f', 'g', 'h', 'i', 'j'}, {0, 0, 0, 0, 0, 0}}};
    struct dataset *ds;

    tokenizer = *state;
    write_tokenizer(*state, 0);
    write_texts(*state, "a.jsonl",
                "{\"prompt\": \"ab\", \"completion\": \"c\"}\n"
                "{\"prompt\": \"de\", \"completion\": \"fghijkl\"}\n"
                "{\"prompt\": \"x\", \"completion\": \"y\"}\n");
    ds = open_packed(*state, "none", DATASET_TRAIN);
    assert_int_equal(ds->n_samples, 2);
    for (int i = 0; i < 2; i++)
        check_sample(ds, i, want[i]);
    dataset_close(ds);
}

static void other_texts_are_refused(void **state)
{
    const struct setting settings[] = {{"data.path", *state}, {"data.pack", "true"}, {NULL}};
    const struct dataset_request r = request(DATASET_TRAIN, CONTEXT, 0);
    struct dataset *ds = NULL;
    struct err err = {0};

    assert_int_equal(open_set(&ds, &format_text, settings, &r, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "data.pack is for data.tokenizer FILE, a tokenizer.json; it is "
                                    "chars"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(documents_are_packed),
        IN_FOLDER(the_last_tenth_validates),
        IN_FOLDER(examples_are_packed),
        IN_FOLDER(other_texts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
