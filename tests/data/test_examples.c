/* Prompts and conversations: of each line a sample, whose answers alone are learnt, the rest and
 * what is behind its end being ignored; samples that are too long are cut or refused. */
#include "../test.h"

#include "text_place.h"

enum { CONTEXT = 8, PAD = TOKEN_END };

/* Row i: inputs in which a byte stands for itself, '~' for "th" and '|' for the end token or what
 * fills up; targets likewise, with '.' where they are ignored. */
static void check_row(const struct dataset *ds, int64_t i, const char *inputs, const char *targets)
{
    int32_t x[CONTEXT], y[CONTEXT];
    struct err err;

    if (dataset_gather(ds, &i, 1, (void *[]){x, y}, &err) < 0)
        fail_msg("%s", err.msg);
    for (int k = 0; k < CONTEXT; k++) {
        const int32_t want[2] = {inputs[k] == '|'   ? TOKEN_END
                                 : inputs[k] == '~' ? TOKEN_TH
                                                    : inputs[k],
                                 targets[k] == '|'   ? TOKEN_END
                                 : targets[k] == '~' ? TOKEN_TH
                                 : targets[k] == '.' ? SAMPLE_IGNORED
                                                     : targets[k]};

        if (x[k] != want[0] || y[k] != want[1])
            fail_msg("sample %lld, place %d: %d -> %d, want %d -> %d", (long long)i, k, (int)x[k],
                     (int)y[k], (int)want[0], (int)want[1]);
    }
}

static void hear(void *arg, const char *text) { buf_printf(arg, "%s\n", text); }

static void prompts_are_not_learnt(void **state)
{
    struct place p = place_new(*state);
    struct dataset *ds;

    write_texts(p.data, "a.jsonl",
                "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n"
                "{\"prompt\": \"\", \"completion\": \"th\", \"text\": 1}\n"
                "{\"prompt\": \"at\", \"completion\": \"hx\"}\n"
                "{\"prompt\": \"ab\", \"completion\": \"\"}\n");
    place_set(&p, "data.validation", "none");
    place_set(&p, "data.end_token", "<end>");
    ds = open_ok(&format_text, p.settings, request(DATASET_TRAIN, CONTEXT, 0));
    assert_int_equal(ds->n_samples, 4);
    check_row(ds, 0, "abcd||||", ".cd|....");
    check_row(ds, 1, "~|||||||", "|.......");
    check_row(ds, 2, "a~x|||||", "~x|....."); /* a token over the boundary */
    check_row(ds, 3, "ab||||||", ".|......");
    dataset_close(ds);
    place_free(&p);
}

static void the_last_tenth_of_the_examples_validates(void **state)
{
    struct place p = place_new(*state);
    struct buf b = {0};
    struct dataset *ds;

    for (int i = 0; i < 20; i++)
        buf_printf(&b, "{\"prompt\": \"%c\", \"completion\": \"x\"}\n", 'a' + i);
    write_file(p.data, "a.jsonl", &b);
    buf_fini(&b);
    place_set(&p, "data.end_token", "<end>");
    ds = open_ok(&format_text, p.settings, request(DATASET_TRAIN, CONTEXT, 0));
    assert_int_equal(ds->n_samples, 18);
    check_row(ds, 17, "rx||||||", "x|......");
    dataset_close(ds);
    ds = open_ok(&format_text, p.settings, request(DATASET_VALIDATION, CONTEXT, 0));
    assert_int_equal(ds->n_samples, 2);
    check_row(ds, 0, "sx||||||", "x|......");
    dataset_close(ds);
    place_free(&p);
}

/* ChatML's marks are tokens of the tokenizer: 259 and 260. */
static void answers_of_conversations_are_learnt(void **state)
{
    enum { LONG = 40, START = TOKEN_FIRST_SPECIAL + 2, STOP };
    struct place p = place_new(*state);
    struct dataset *ds;
    int32_t x[LONG], y[LONG];
    struct err err;
    int n = 0;

    write_texts(p.data, "a.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
                "\"assistant\", \"content\": \"r\"}]}");
    write_texts(*state, "chat_template.jinja",
                "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
                "'\\n'}}");
    place_set(&p, "data.validation", "none");
    ds = open_ok(&format_text, p.settings, request(DATASET_TRAIN, LONG, 0));
    assert_int_equal(dataset_gather(ds, (int64_t[]){0}, 1, (void *[]){x, y}, &err), 0);
    assert_int_equal(x[0], START);
    assert_int_equal(x[7], STOP);
    for (int k = 0; k < LONG; k++)
        if (y[k] != SAMPLE_IGNORED) {
            assert_int_equal(y[k], n == 0 ? 'r' : STOP);
            assert_int_equal(x[k], n == 0 ? '\n' : 'r');
            n++;
        }
    assert_int_equal(n, 2);
    dataset_close(ds);
    place_free(&p);
}

static void long_examples_are_cut_or_refused(void **state)
{
    struct place p = place_new(*state);
    struct dataset_request r = request(DATASET_TRAIN, CONTEXT, 0);
    struct buf heard = {0};
    struct dataset *ds = NULL;
    struct err err = {0};

    r.warn = hear;
    r.warn_arg = &heard;
    write_texts(p.data, "a.jsonl",
                "{\"prompt\": \"abc\", \"completion\": \"defgh\"}\n"
                "{\"prompt\": \"abc\", \"completion\": \"defghi\"}\n"
                "{\"prompt\": \"abcdefghijklm\", \"completion\": \"n\"}\n");
    place_set(&p, "data.validation", "none");
    place_set(&p, "data.end_token", "<end>");
    ds = open_ok(&format_text, p.settings, r);
    check_row(ds, 0, "abcdefgh", "..defgh|"); /* it just fits in */
    check_row(ds, 1, "abcdefgh", "..defghi");
    check_row(ds, 2, "abcdefgh", "........");
    assert_string_equal(buf_cstr(&heard),
                        "2 of 3 examples are cut at model.context, 8 tokens, as the longest has "
                        "15; 1 of them have nothing left to learn (data.too_long refuse would "
                        "refuse them)\n");
    dataset_close(ds);
    place_set(&p, "data.too_long", "refuse");
    assert_int_equal(open_set(&ds, &format_text, p.settings, &r, &err), ERR_CONFIG);
    assert_string_equal(err.msg,
                        "text: data.too_long is refuse, and 2 of 3 examples do not fit into "
                        "model.context, 8 tokens: the longest has 15; want a larger "
                        "model.context, or data.too_long cut");
    buf_fini(&heard);
    place_free(&p);
}

/* ---- bad input ---- */

#define CHAT(messages) "{\"messages\": [" messages "]}"
#define USER           "{\"role\": \"user\", \"content\": \"x\"}"
#define ANSWER         "{\"role\": \"assistant\", \"content\": \"y\"}"

static const struct bad {
    const char *line, *template; /* template NULL: no file has one */
    const char *form;            /* data.template; NULL: auto */
    int code;
    const char *want; /* behind "text: FILE: line 2: " */
} bad[] = {
    {CHAT("{\"content\": \"x\"}"), NULL, NULL, ERR_CORRUPT,
     "message 1 has no \"role\"; want system, user or assistant"},
    {CHAT(USER ", {\"role\": \"tool\", \"content\": \"x\"}"), NULL, NULL, ERR_CORRUPT,
     "message 2 has the role \"tool\"; want system, user or assistant"},
    {CHAT(USER ", {\"role\": \"assistant\", \"content\": null}"), NULL, NULL, ERR_CORRUPT,
     "message 2 (assistant) has no text \"content\""},
    {CHAT("{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [1]}"), NULL, NULL,
     ERR_CORRUPT, "message 1 has \"tool_calls\", which is not read; want messages of text alone"},
    {CHAT(USER), NULL, NULL, ERR_CORRUPT,
     "no message has the role assistant, so there is nothing to learn; want an answer, or remove "
     "the line"},
    {"{\"messages\": \"x\"}", NULL, NULL, ERR_CORRUPT,
     "\"messages\" is no list of 1 to 1048576 messages, each {\"role\": \"user\", \"content\": "
     "\"...\"}"},
    {CHAT(""), NULL, NULL, ERR_CORRUPT,
     "\"messages\" is no list of 1 to 1048576 messages, each {\"role\": \"user\", \"content\": "
     "\"...\"}"},
    {"{\"prompt\": [], \"completion\": \"x\"}", NULL, NULL, ERR_CORRUPT,
     "\"prompt\" is no text; want two texts, \"prompt\" and \"completion\""},
    {"{\"prompt\": \"x\"}", NULL, NULL, ERR_CORRUPT,
     "it has the keys \"prompt\"; want a text \"text\", or two texts \"prompt\" and "
     "\"completion\", or a list \"messages\""},
    {"{\"text\": \"x\"}", NULL, NULL, ERR_CORRUPT,
     "it is a text, but the first document is a prompt or a conversation; want either kind in "
     "data.path, and the other one in a data set of its own"},
    {CHAT(USER "," ANSWER), NULL, NULL, ERR_CONFIG,
     "a conversation, but no file beside @/tokenizer.json has a chat_template; want the form as "
     "data.template: chatml, llama3, mistral, phi3 or gemma"},
    {CHAT(USER "," ANSWER), "{{message['content']}}", NULL, ERR_CONFIG,
     "the chat_template of @/chat_template.jinja is not read: it has the marks of no form that is "
     "known here; want the form that is meant, as data.template: chatml, llama3, mistral, phi3 or "
     "gemma"},
    {CHAT(ANSWER), "{{message['content']}}", "mistral", ERR_CORRUPT,
     "message 1 has the role assistant, want user: in the form mistral they take turns"},
};

static void check_bad(const char *folder, const struct bad *c)
{
    struct place p = place_new(folder);
    const struct dataset_request r = request(DATASET_TRAIN, CONTEXT, 0);
    struct dataset *ds = NULL;
    struct err err = {0};
    char *lines = xasprintf("{\"prompt\": \"a\", \"completion\": \"b\"}\n%s\n", c->line),
         *all = xasprintf("text: @/data/a.jsonl: line 2: %s", c->want), want[1024];

    write_texts(p.data, "a.jsonl", lines);
    if (c->template)
        write_texts(folder, "chat_template.jinja", c->template);
    place_set(&p, "data.end_token", "<end>");
    if (c->form)
        place_set(&p, "data.template", c->form);
    assert_int_equal(open_set(&ds, &format_text, p.settings, &r, &err), c->code);
    assert_string_equal(err.msg, fill_in(want, sizeof want, all, folder));
    free(lines);
    free(all);
    place_free(&p);
}

static void bad_examples_are_refused(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char *folder = xasprintf("%s/%zu", (char *)*state, i);

        assert_int_equal(mkdir(folder, 0777), 0);
        check_bad(folder, &bad[i]);
        free(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(prompts_are_not_learnt),
        IN_FOLDER(the_last_tenth_of_the_examples_validates),
        IN_FOLDER(answers_of_conversations_are_learnt),
        IN_FOLDER(long_examples_are_cut_or_refused),
        IN_FOLDER(bad_examples_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
