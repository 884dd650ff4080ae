/* Conversations as texts: each form writes what networks were tuned with, and answers are found in
 * it; templates are recognised, with what differs between them, or refused by what they have.
 * interop/chat compares with transformers. */
#include "../test.h"

#include "data/chat.h"

static const struct chat_message talk[] = {{CHAT_SYSTEM, " Be kind.", 9},
                                           {CHAT_USER, "Hi ", 3},
                                           {CHAT_ASSISTANT, " Hello", 6},
                                           {CHAT_USER, "Why?", 4},
                                           {CHAT_ASSISTANT, "", 0}};

enum { N_TALK = ARRAY_LEN(talk) };

/* The text of messages, with answers in braces; an error's message is its text. */
static void write_talk(const struct chat *c, const struct chat_message *m, int n, struct buf *out)
{
    struct buf text = {0}, answers = {0};
    struct err err = {0};
    const int rc = chat_write(c, m, n, &text, &answers, &err);
    const struct chat_span *const span = (const struct chat_span *)(const void *)answers.data;
    size_t at = 0;

    for (size_t i = 0; rc == 0 && i < answers.len / sizeof *span; i++) {
        assert_in_range(span[i].begin, at, span[i].end);
        buf_append(out, text.data + at, span[i].begin - at);
        buf_printf(out, "{");
        buf_append(out, text.data + span[i].begin, span[i].end - span[i].begin);
        buf_printf(out, "}");
        at = span[i].end;
    }
    if (rc == 0)
        buf_append(out, text.data + at, text.len - at);
    else
        buf_printf(out, "%s", err.msg);
    buf_fini(&text);
    buf_fini(&answers);
}

static const struct chosen {
    enum chat_form form;
    int first; /* of talk */
    const char *begin, *end, *want;
} chosen[] = {
    {CHAT_CHATML, 0, NULL, NULL,
     "<|im_start|>system\n Be kind.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
     "<|im_start|>assistant\n{ Hello<|im_end|>}\n<|im_start|>user\nWhy?<|im_end|>\n"
     "<|im_start|>assistant\n{<|im_end|>}\n"},
    {CHAT_LLAMA3, 0, NULL, NULL,
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n{Hello<|eot_id|>}"
     "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n{<|eot_id|>}"},
    {CHAT_MISTRAL, 1, NULL, "</e>", "<s>[INST] Hi [/INST]{  Hello</e>}[INST] Why?[/INST]{ </e>}"},
    {CHAT_MISTRAL, 0, NULL, NULL,
     "message 1 is the system's, for which the template has no place; want its text in the first "
     "user's message"},
    {CHAT_MISTRAL, 2, NULL, NULL,
     "message 1 has the role assistant, want user: in the form mistral they take turns"},
    {CHAT_PHI3, 1, "<s>", NULL,
     "<|user|>\nHi <|end|>\n<|assistant|>\n{ Hello<|end|>}\n<|user|>\nWhy?<|end|>\n"
     "<|assistant|>\n{<|end|>}\n"},
    {CHAT_GEMMA, 0, "<b>", NULL,
     "<b><start_of_turn>user\n Be kind.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
     "{Hello<end_of_turn>}\n<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"
     "{<end_of_turn>}\n"},
};

static void forms_that_are_chosen_write_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(chosen); i++) {
        const struct chosen *c = &chosen[i];
        struct chat chat;
        struct buf text = {0};
        struct err err;

        assert_int_equal(chat_choose(&chat, c->form, c->begin, c->end, &err), 0);
        write_talk(&chat, talk + c->first, N_TALK - c->first, &text);
        assert_string_equal(buf_cstr(&text), c->want);
        buf_fini(&text);
    }
}

#define MESSAGE "{{'<|im_start|>' + message['role'] + '\\n' + message['content']"
#define IM_END  " + '<|im_end|>' + '\\n'}}"
#define TURNS   "{{bos_token}}{% for message in messages %}"

static const struct found {
    const char *template, *begin, *want; /* of talk from number 1 on, 2 messages; or the error */
} found[] = {
    {MESSAGE IM_END, NULL,
     "<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n{ "
     "Hello<|im_end|>}\n"},
    {MESSAGE " | trim" IM_END, NULL,
     "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{Hello<|im_end|>}\n"},
    {"{{'<|im_start|>system\nIt\\'s me.\\n<|im_end|>\n'}}" MESSAGE IM_END, NULL,
     "<|im_start|>system\nIt's me.\n<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
     "<|im_start|>assistant\n{ Hello<|im_end|>}\n"},
    {"{{bos_token}}" MESSAGE IM_END, "<b>",
     "<b><|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n{ Hello<|im_end|>}\n"},
    {"{{'<|im_start|>system\n{% set x = 1 %}<|im_end|>\n'}}" MESSAGE IM_END, NULL,
     "<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n{ Hello<|im_end|>}\n"},
    {"{{'<|im_start|>system\nA \\t tab.<|im_end|>\n'}}" MESSAGE IM_END, NULL,
     "it is like chatml, but: its own system message is no plain text of at most 1023 bytes"},
    {"{{bos_token}}" MESSAGE IM_END, NULL,
     "it writes bos_token, which tokenizer_config.json does not name"},
    {MESSAGE " + '<|im_end|>'}}", NULL,
     "it is like chatml, but: its marks are not followed by what the form has: <|im_end|> and a "
     "new line"},
    {MESSAGE IM_END "{% if '</think>' in content %}", NULL,
     "it is like chatml, but: it has \"think>\": it leaves out thoughts, or adds empty ones"},
    {TURNS "{{' [INST] ' + message['content'] + ' [/INST]'}}{{' ' + message['content'] + "
           "eos_token}}",
     "<s>", "<s> [INST] Hi  [/INST]{  Hello</s>}"},
    {TURNS "{{'[INST]' + message['content'] + '[/INST]'}}{{message['content'] | trim + eos_token + "
           "' '}}",
     "<s>", "<s>[INST]Hi [/INST]{Hello</s>} "},
    {TURNS "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{{'<|assistant|>\n'}}", "<s>",
     "<s><|user|>\nHi <|end|>\n<|assistant|>\n{ Hello<|end|>}\n"},
    {"{{'<|user|>' + message['content'] + '<|end|>'}}{{'<|assistant|>'}}", NULL,
     "it is like phi3, but: its marks are not followed by what the form has: <|user|> and <|end|>, "
     "each with a new line"},
    {"{{'<start_of_turn>' + role + '\n' + message['content'] + '<end_of_turn>\n'}} model", NULL,
     "<start_of_turn>user\nHi <end_of_turn>\n<start_of_turn>model\n{ Hello<end_of_turn>}\n"},
    {"<<SYS>> [INST] [/INST] eos_token", NULL,
     "it is like mistral, but: it has \"<<SYS>>\": it is of Llama 2"},
    {"{{message['content']}}", NULL, "it has the marks of no form that is known here"},
    {"", NULL, "it has the marks of no form that is known here"},
};

static void templates_are_recognised(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(found); i++) {
        const struct found *f = &found[i];
        struct chat chat;
        struct buf text = {0};
        struct err err = {0};
        const int rc = chat_find(&chat, f->template, f->begin, "</s>", &err);

        if (rc == 0)
            write_talk(&chat, talk + 1, 2, &text);
        assert_string_equal(rc == 0 ? buf_cstr(&text) : err.msg, f->want);
        buf_fini(&text);
    }
}

/* A network's own system message is that of conversations without one. */
static void a_system_message_replaces_the_networks(void **state)
{
    static const char template[] = "{{'<|im_start|>system\nMine.<|im_end|>\n'}}" MESSAGE IM_END;
    struct chat chat;
    struct buf text = {0};
    struct err err;

    (void)state;
    assert_int_equal(chat_find(&chat, template, NULL, NULL, &err), 0);
    write_talk(&chat, talk, 2, &text);
    assert_string_equal(buf_cstr(&text), "<|im_start|>system\n Be kind.<|im_end|>\n"
                                         "<|im_start|>user\nHi <|im_end|>\n");
    buf_fini(&text);
}

/* A text that is too long for its place is refused, wherever it comes from. */
static void long_marks_are_refused(void **state)
{
    char mark[200];
    struct chat chat;
    struct err err;

    (void)state;
    memset(mark, 'x', sizeof mark - 1);
    mark[sizeof mark - 1] = 0;
    assert_int_equal(chat_choose(&chat, CHAT_MISTRAL, mark, NULL, &err), ERR_CONFIG);
    assert_int_equal(chat_choose(&chat, CHAT_MISTRAL, NULL, mark, &err), ERR_CONFIG);
    assert_int_equal(chat_find(&chat, "{{bos_token}}" MESSAGE IM_END, mark, NULL, &err),
                     ERR_CONFIG);
    assert_string_equal(err.msg, "the text \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\" has 199 "
                                 "bytes, want at most 63");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_that_are_chosen_write_messages),
        cmocka_unit_test(templates_are_recognised),
        cmocka_unit_test(a_system_message_replaces_the_networks),
        cmocka_unit_test(long_marks_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
