/* Pairs of answers to a prompt, for model.loss dpo: of each line a sample of two texts, first that
 * with the rejected answer, and answers that the loss compares; bad lines are refused with file,
 * line and remedy. */
#include "../test.h"

#include "text_place.h"

enum { CONTEXT = 8, LONG = 90 };

static struct dataset_request pairs_request(enum dataset_purpose purpose, int64_t context)
{
    struct dataset_request r = request(purpose, context, 0);

    r.wants_pairs = 1;
    return r;
}

/* Letters stand for bytes, '~' for "th", '|' for the end token, '.' for what is ignored. */
static int32_t number_of(char letter)
{
    return letter == '|' ? TOKEN_END : letter == '~' ? TOKEN_TH : letter == '.' ? -100 : letter;
}

static void check_text(const int32_t *token, const int32_t *answer, const char *tokens,
                       const char *answers)
{
    for (int k = 0; k < CONTEXT; k++)
        if (token[k] != number_of(tokens[k]) || answer[k] != number_of(answers[k]))
            fail_msg("place %d: %d -> %d, want %d -> %d", k, (int)token[k], (int)answer[k],
                     (int)number_of(tokens[k]), (int)number_of(answers[k]));
}

static void check_pair(const struct dataset *ds, int64_t i, const char *const rejected[2],
                       const char *const chosen[2])
{
    int32_t x[2 * CONTEXT], y[2 * CONTEXT], better = 0;
    struct err err;

    if (dataset_gather(ds, &i, 1, (void *[]){x, &better, y}, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(better, 1);
    check_text(x, y, rejected[0], rejected[1]);
    check_text(x + CONTEXT, y + CONTEXT, chosen[0], chosen[1]);
}

static void pairs_are_two_texts(void **state)
{
    struct place p = place_new(*state);
    struct dataset *ds;

    write_texts(p.data, "a.jsonl",
                "{\"prompt\": \"ab\", \"chosen\": \"cd\", \"rejected\": \"e\", \"messages\": 1}\n"
                "{\"prompt\": \"\", \"chosen\": \"th\", \"rejected\": \"abcdefghij\"}\n");
    place_set(&p, "data.validation", "none");
    place_set(&p, "data.end_token", "<end>");
    ds = open_ok(&format_text, p.settings, pairs_request(DATASET_TRAIN, CONTEXT));
    assert_int_equal(ds->n_samples, 2);
    assert_int_equal(sample_answers(&ds->spec), 2);
    assert_int_equal(sample_n_predictions(&ds->spec), 1);
    assert_int_equal(ds->spec.field[0].n_classes, TOKENIZER_VOCAB);
    check_pair(ds, 0, (const char *[]){"abe|||||", ".e|....."},
               (const char *[]){"abcd||||", ".cd|...."});
    check_pair(ds, 1, (const char *[]){"abcdefgh", "bcdefghi"},
               (const char *[]){"~|||||||", "|......."});
    dataset_close(ds);
    place_free(&p);
}

/* The same lines are other tokens where no pairs are wanted, so both files are kept. */
static void the_last_tenth_of_the_pairs_validates(void **state)
{
    struct place p = place_new(*state);
    struct buf b = {0};
    struct dataset *ds;

    for (int i = 0; i < 20; i++)
        buf_printf(&b,
                   "{\"prompt\": \"%c\", \"completion\": \"x\", \"chosen\": \"y\", "
                   "\"rejected\": \"z\"}\n",
                   'a' + i);
    write_file(p.data, "a.jsonl", &b);
    buf_fini(&b);
    place_set(&p, "data.end_token", "<end>");
    ds = open_ok(&format_text, p.settings, pairs_request(DATASET_TRAIN, CONTEXT));
    assert_int_equal(ds->n_samples, 18);
    check_pair(ds, 17, (const char *[]){"rz||||||", "z|......"},
               (const char *[]){"ry||||||", "y|......"});
    dataset_close(ds);
    ds = open_ok(&format_text, p.settings, pairs_request(DATASET_VALIDATION, CONTEXT));
    assert_int_equal(ds->n_samples, 2);
    check_pair(ds, 0, (const char *[]){"sz||||||", "z|......"},
               (const char *[]){"sy||||||", "y|......"});
    dataset_close(ds);
    ds = open_ok(&format_text, p.settings, request(DATASET_VALIDATION, CONTEXT, 0));
    assert_int_equal(sample_answers(&ds->spec), -1);
    assert_int_equal(ds->n_samples, 2);
    dataset_close(ds);
    place_free(&p);
}

#define USER(text)   "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ANSWER(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"

/* clang-format off */
static const char talks[] =
    "{\"prompt\": [" USER("q") "], \"chosen\": [" ANSWER("y") "], "
    "\"rejected\": [" ANSWER("n") "]}\n"
    "{\"chosen\": [" USER("q") ", " ANSWER("p") ", " USER("q") ", " ANSWER("yy") ", " USER("q") ", "
    ANSWER("w") "], \"rejected\": [" USER("q") ", " ANSWER("p") ", " USER("q") ", "
    ANSWER("n") "]}\n"
    "{\"prompt\": null, \"chosen\": [" USER("q") ", " ANSWER("b") "], "
    "\"rejected\": [" USER("q") ", " ANSWER("a") "]}\n";
/* clang-format on */

/* The learnt tokens of text `at` of a pair, as letters; end marks are '|'. */
static void learnt_of(const struct dataset *ds, int64_t i, int at, char *to)
{
    enum { STOP = TOKEN_FIRST_SPECIAL + 3 };
    int32_t y[2 * LONG];
    struct err err;

    if (dataset_gather(ds, &i, 1, (void *[]){NULL, NULL, y}, &err) < 0)
        fail_msg("%s", err.msg);
    for (int k = 0; k < LONG; k++)
        if (y[at * LONG + k] != SAMPLE_IGNORED)
            *to++ = y[at * LONG + k] == STOP ? '|' : (char)y[at * LONG + k];
    *to = 0;
}

/* Answers of the prompt are not learnt, given as such or as what both lists begin with. */
static void conversations_are_pairs_too(void **state)
{
    static const char *const wanted[][2] = {{"n|", "y|"}, {"n|", "yy|w|"}, {"a|", "b|"}};
    struct place p = place_new(*state);
    struct dataset *ds;
    char text[64];

    write_texts(p.data, "a.jsonl", talks);
    write_texts(*state, "chat_template.jinja",
                "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
                "'\\n'}}");
    place_set(&p, "data.validation", "none");
    ds = open_ok(&format_text, p.settings, pairs_request(DATASET_TRAIN, LONG));
    assert_int_equal(ds->n_samples, 3);
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < 2; at++) {
            learnt_of(ds, i, at, text);
            assert_string_equal(text, wanted[i][at]);
        }
    dataset_close(ds);
    place_free(&p);
}

static void pairs_hear(void *arg, const char *text) { buf_printf(arg, "%s\n", text); }

static void long_answers_are_cut_or_refused(void **state)
{
    struct place p = place_new(*state);
    struct dataset_request r = pairs_request(DATASET_TRAIN, CONTEXT);
    struct buf heard = {0};
    struct dataset *ds = NULL;
    struct err err = {0};

    r.warn = pairs_hear;
    r.warn_arg = &heard;
    write_texts(p.data, "a.jsonl",
                "{\"prompt\": \"abc\", \"chosen\": \"defgh\", \"rejected\": \"defghi\"}\n"
                "{\"prompt\": \"abcdefghijklm\", \"chosen\": \"n\", \"rejected\": \"op\"}\n");
    place_set(&p, "data.validation", "none");
    place_set(&p, "data.end_token", "<end>");
    ds = open_ok(&format_text, p.settings, r);
    check_pair(ds, 0, (const char *[]){"abcdefgh", "..defghi"},
               (const char *[]){"abcdefgh", "..defgh|"});
    check_pair(ds, 1, (const char *[]){"abcdefgh", "........"},
               (const char *[]){"abcdefgh", "........"});
    assert_string_equal(buf_cstr(&heard),
                        "3 of 4 answers are cut at model.context, 8 tokens, as the longest has 16; "
                        "2 of them have nothing left to learn (data.too_long refuse would refuse "
                        "them)\n");
    dataset_close(ds);
    place_set(&p, "data.too_long", "refuse");
    assert_int_equal(open_set(&ds, &format_text, p.settings, &r, &err), ERR_CONFIG);
    assert_string_equal(err.msg,
                        "text: data.too_long is refuse, and 3 of 4 answers do not fit into "
                        "model.context, 8 tokens: the longest has 16; want a larger "
                        "model.context, or data.too_long cut");
    buf_fini(&heard);
    place_free(&p);
}

/* ---- bad input ---- */

#define KINDS                                                                                  \
    "; want three texts \"prompt\", \"chosen\" and \"rejected\", or three lists of messages, " \
    "where "                                                                                   \
    "\"prompt\" may be left out if both others begin with it"

static const struct bad {
    const char *line, *want; /* behind "text: FILE: line 2: " */
} bad[] = {
    {"[1]", "it is no mapping of JSON; want one on each line, such as {\"prompt\": \"...\", "
            "\"chosen\": \"...\", \"rejected\": \"...\"}"},
    {"{\"prompt\": \"a\", \"chosen\": \"b\"}",
     "it has the keys \"prompt\", \"chosen\"; want three texts \"prompt\", \"chosen\" and "
     "\"rejected\", or these as lists of messages, of which \"prompt\" may be left out"},
    {"{\"chosen\": \"a\", \"rejected\": \"b\"}",
     "it has the keys \"chosen\", \"rejected\"; want three texts \"prompt\", \"chosen\" and "
     "\"rejected\", or these as lists of messages, of which \"prompt\" may be left out"},
    {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"\"}",
     "\"rejected\" has no answer of one character or more; want one, or remove the line"},
    {"{\"prompt\": \"a\", \"chosen\": 1, \"rejected\": \"b\"}", "\"chosen\" is no text" KINDS},
    {"{\"prompt\": \"a\", \"chosen\": \"c\", \"rejected\": [1]}", "\"rejected\" is no text" KINDS},
    {"{\"prompt\": \"a\", \"chosen\": [" ANSWER("b") "], \"rejected\": [" ANSWER("c") "]}",
     "\"prompt\" is no list, but \"chosen\" is one" KINDS},
    {"{\"chosen\": [" ANSWER("b") "], \"rejected\": [" ANSWER("c") "]}",
     "there is no \"prompt\", and \"chosen\" and \"rejected\" begin with different messages; want "
     "the prompt's in \"prompt\", or in both lists"},
    {"{\"prompt\": [" USER("a") "], \"chosen\": [" ANSWER("") "], \"rejected\": [" ANSWER("c") "]}",
     "\"chosen\" has no answer of one character or more; want one, or remove the line"},
    {"{\"prompt\": [" USER("a") "], \"chosen\": [" ANSWER("b") "], \"rejected\": [{}]}",
     "\"rejected\": message 1 has no \"role\"; want system, user or assistant"},
    {"{\"prompt\": [], \"chosen\": [" ANSWER("b") "], \"rejected\": [" ANSWER("c") "]}",
     "\"prompt\" is no list of 1 to 1048576 messages, each {\"role\": \"user\", \"content\": "
     "\"...\"}"},
};

static void bad_pairs_are_refused(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char *folder = xasprintf("%s/%zu", (char *)*state, i), want[1024],
             *lines = xasprintf("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n%s\n",
                                bad[i].line),
             *all = xasprintf("text: @/data/a.jsonl: line 2: %s", bad[i].want);
        const struct dataset_request r = pairs_request(DATASET_TRAIN, CONTEXT);
        struct dataset *ds = NULL;
        struct err err = {0};
        struct place p;

        assert_int_equal(mkdir(folder, 0777), 0);
        p = place_new(folder);
        write_texts(p.data, "a.jsonl", lines);
        place_set(&p, "data.end_token", "<end>");
        place_set(&p, "data.template", "chatml");
        assert_int_equal(open_set(&ds, &format_text, p.settings, &r, &err), ERR_CORRUPT);
        assert_string_equal(err.msg, fill_in(want, sizeof want, all, folder));
        place_free(&p);
        free(folder);
        free(lines);
        free(all);
    }
}

/* Data that are no pairs, pairs where none are wanted, and packed pairs. */
static void other_data_are_refused(void **state)
{
    struct place p = place_new(*state);
    const struct dataset_request pairs = pairs_request(DATASET_TRAIN, CONTEXT),
                                 plain = request(DATASET_TRAIN, CONTEXT, 0);
    struct dataset *ds = NULL;
    struct err err = {0};

    write_texts(p.data, "a.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}");
    place_set(&p, "data.end_token", "<end>");
    assert_int_equal(open_set(&ds, &format_text, p.settings, &plain, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "want model.loss dpo for pairs of answers, or a text"));
    place_set(&p, "data.pack", "true");
    assert_int_equal(open_set(&ds, &format_text, p.settings, &pairs, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "in a row of its own; want data.pack false"));
    p.settings[--p.n] = (struct setting){NULL, NULL};
    write_texts(p.data, "b.txt", "some text");
    assert_int_equal(open_set(&ds, &format_text, p.settings, &pairs, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "b.txt: it is one text, but model.loss dpo compares two"));
    place_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(pairs_are_two_texts),         IN_FOLDER(the_last_tenth_of_the_pairs_validates),
        IN_FOLDER(conversations_are_pairs_too), IN_FOLDER(long_answers_are_cut_or_refused),
        IN_FOLDER(bad_pairs_are_refused),       IN_FOLDER(other_data_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
