/* chat - recognises the forms of conversations, and writes them.  A template is looked through as a
 * text; nothing of it is run. */
#include "data/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

const char *const chat_roles[CHAT_N_ROLES + 1] = {
    [CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant", NULL};

static const char *const chat_words[] = {CHAT_FORM_WORDS};

/* ---- forms ---- */

/* The marks of a form's templates, and the form as it mostly is. */
static const struct chat_shape {
    const char *marks[5]; /* texts that a template of the form has */
    const char *begin, *end;
    struct chat chat;
} chat_shapes[] = {
    [CHAT_CHATML] = {{"<|im_start|>", "<|im_end|>"},
                     NULL,
                     NULL,
                     {.part = {{"<|im_start|>system\n", "<|im_end|>\n"},
                               {"<|im_start|>user\n", "<|im_end|>\n"},
                               {"<|im_start|>assistant\n", "<|im_end|>\n"}},
                      .mark = sizeof "<|im_end|>" - 1,
                      .has_system = 1}},
    [CHAT_LLAMA3] = {{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                     "<|begin_of_text|>",
                     NULL,
                     {.part = {{"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
                               {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
                               {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"}},
                      .mark = sizeof "<|eot_id|>" - 1,
                      .trims = {1, 1, 1},
                      .has_system = 1}},
    [CHAT_MISTRAL] = {{"[INST]", "[/INST]", "eos_token"},
                      "<s>",
                      "</s>",
                      {.part = {{"", ""}, {"[INST] ", "[/INST]"}, {"", ""}},
                       .lead = " ",
                       .alternates = 1}},
    [CHAT_PHI3] = {{"<|user|>", "<|end|>", "<|assistant|>"},
                   NULL,
                   NULL,
                   {.part = {{"<|system|>\n", "<|end|>\n"},
                             {"<|user|>\n", "<|end|>\n"},
                             {"<|assistant|>\n", "<|end|>\n"}},
                    .mark = sizeof "<|end|>" - 1,
                    .has_system = 1}},
    [CHAT_GEMMA] = {{"<start_of_turn>", "<end_of_turn>", "model"},
                    "<bos>",
                    NULL,
                    {.part = {{"", ""},
                              {"<start_of_turn>user\n", "<end_of_turn>\n"},
                              {"<start_of_turn>model\n", "<end_of_turn>\n"}},
                     .mark = sizeof "<end_of_turn>" - 1,
                     .trims = {1, 1, 1},
                     .has_system = 1,
                     .system_is_of_user = 1,
                     .alternates = 1}},
};

const char *chat_word(enum chat_form form) { return chat_words[form]; }

const char *chat_mark(enum chat_form form) { return chat_shapes[form].marks[0]; }

static int chat_copy(char *to, size_t room, const char *from, struct err *err)
{
    if (strlen(from) >= room)
        return err_set(err, ERR_CONFIG, "the text \"%.40s...\" has %zu bytes, want at most %zu",
                       from, strlen(from), room - 1);
    memcpy(to, from, strlen(from) + 1);
    return 0;
}

/* The end mark of Mistral's answers is the end token. */
static int chat_set_end(struct chat *c, const char *end, struct err *err)
{
    c->mark = strlen(end);
    return chat_copy(c->part[CHAT_ASSISTANT].after, sizeof c->part[0].after, end, err);
}

int chat_choose(struct chat *out, enum chat_form form, const char *begin, const char *end,
                struct err *err)
{
    const struct chat_shape *const s = &chat_shapes[form];

    ASSERT(form != CHAT_AUTO);
    *out = s->chat;
    out->form = form;
    if (s->begin && chat_copy(out->begin, sizeof out->begin, begin ? begin : s->begin, err) < 0)
        return err->code;
    return s->end ? chat_set_end(out, end ? end : s->end, err) : 0;
}

/* ---- templates ---- */

/* Behind s there is the end of a text, "+", and the begin of another one, or nothing of it. */
static const char *chat_skip_join(const char *s)
{
    const char *at = s;

    if (*at != '\'' && *at != '"')
        return s;
    at++;
    at += strspn(at, " ");
    if (*at != '+')
        return s;
    at++;
    at += strspn(at, " ");
    return *at == '\'' || *at == '"' ? at + 1 : s;
}

/* Where the template goes on if `s` begins with `want`, in which '\n' may be written as two
 * characters; NULL: it begins otherwise. */
static const char *chat_after(const char *s, const char *want)
{
    for (s = chat_skip_join(s); *want; want++) {
        if (*want == '\n' && s[0] == '\\' && s[1] == 'n')
            s += 2;
        else if (*s == *want)
            s++;
        else
            return NULL;
    }
    return s;
}

/* 1: somewhere in the template `mark` is followed by `then`. */
static int chat_has(const char *template, const char *mark, const char *then)
{
    for (const char *at = template; (at = strstr(at, mark)); at += strlen(mark))
        if (chat_after(at + strlen(mark), then))
            return 1;
    return 0;
}

/* 1: somewhere in the template a blank stands before `mark`, in the same text. */
static int chat_has_before(const char *template, const char *mark)
{
    const char *at = template;

    while ((at = strstr(at, mark))) {
        if (at - template >= 2 && at[-1] == ' ' && (at[-2] == '\'' || at[-2] == '"'))
            return 1;
        at += strlen(mark);
    }
    return 0;
}

/* 1: the blanks around a message's content are left out: content'] | trim, content.strip(). */
static int chat_has_trim(const char *template)
{
    static const char content[] = "content";

    for (const char *at = template; (at = strstr(at, content));) {
        at += strlen(content);
        at += strspn(at, "'\"] ");
        if (!strncmp(at, ".strip()", 8))
            return 1;
        if (*at == '|' && !strncmp(at + 1 + strspn(at + 1, " "), "trim", 4))
            return 1;
    }
    return 0;
}

/* Refuse a template that does more than write messages. */
static int chat_check_more(const char *template, struct err *err)
{
    static const struct {
        const char *has, *what;
    } more[] = {
        {"think>", "it leaves out thoughts, or adds empty ones"},
        {"reasoning_content", "it writes thoughts"},
        {"strftime_now", "it writes today's date"},
        {"Cutting Knowledge", "it writes dates into the system message"},
        {"<<SYS>>", "it is of Llama 2"},
        {"[SYSTEM_PROMPT]", "it has a system message of another form"},
    };

    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        if (strstr(template, more[i].has))
            return err_set(err, ERR_CONFIG, "it has \"%s\": %s", more[i].has, more[i].what);
    return 0;
}

static int chat_is_of(const char *template, const struct chat_shape *s)
{
    if (!s->marks[0])
        return 0;
    for (int i = 0; s->marks[i]; i++)
        if (!strstr(template, s->marks[i]))
            return 0;
    return 1;
}

/* Copy a text of the template up to `end`.  0: it is none: it ends before, or is no plain text. */
static int chat_take_text(const char *s, const char *end, char *to, size_t room)
{
    size_t n = 0;

    while (strncmp(s, end, strlen(end)) != 0) {
        const int is_escape = s[0] == '\\' && s[1] && strchr("n'\"\\", s[1]);

        if (!*s || (!is_escape && strchr("'\"{}\\", *s)) || n + 1 >= room)
            return 0;
        to[n++] = is_escape && s[1] == 'n' ? '\n' : s[is_escape];
        s += is_escape ? 2 : 1;
    }
    to[n] = 0;
    return n > 0;
}

/* The system message that a conversation without one gets. */
static int chat_find_system(struct chat *c, const char *template, struct err *err)
{
    static const char before[] = "<|im_start|>system";
    const char *text;

    for (const char *at = template; (at = strstr(at, before));) {
        at += strlen(before);
        text = chat_after(at, "\n");
        if (!text || strchr("'\"{", *text)) /* a message's own text follows */
            continue;
        if (chat_take_text(text, "<|im_end|>", c->system, sizeof c->system))
            return 0;
        return err_set(err, ERR_CONFIG,
                       "its own system message is no plain text of at most %zu bytes",
                       sizeof c->system - 1);
    }
    c->system[0] = 0;
    return 0;
}

static int chat_fail_form(const char *what, struct err *err)
{
    return err_set(err, ERR_CONFIG, "its marks are not followed by what the form has: %s", what);
}

/* Blanks in Mistral's templates differ from version to version. */
static int chat_find_mistral(struct chat *c, const char *t, struct err *err)
{
    const char *const open = chat_has(t, "[INST]", " ") ? "[INST] " : "[INST]",
                      *const close = chat_has_before(t, "[/INST]") ? " [/INST]" : "[/INST]";
    const int leads = strstr(t, "' ' + message") || strstr(t, "\" \" + message");

    snprintf(c->part[CHAT_USER].before, sizeof c->part[0].before, "%s%s",
             chat_has_before(t, "[INST]") ? " " : "", open);
    snprintf(c->part[CHAT_USER].after, sizeof c->part[0].after, "%s", close);
    snprintf(c->lead, sizeof c->lead, "%s", leads ? " " : "");
    c->trims[CHAT_ASSISTANT] = chat_has_trim(t);
    if (strstr(t, "eos_token + ' '") || strstr(t, "eos_token + \" \"")) {
        struct buf after = {0};
        int rc;

        buf_printf(&after, "%s ", c->part[CHAT_ASSISTANT].after);
        rc = chat_copy(c->part[CHAT_ASSISTANT].after, sizeof c->part[0].after, buf_cstr(&after),
                       err);
        buf_fini(&after);
        return rc;
    }
    return 0;
}

/* Phi-3's first templates begin the answer together with the question, and have no system. */
static int chat_find_phi3(struct chat *c, const char *t, const char *end, struct err *err)
{
    c->has_system = strstr(t, "<|system|>") != NULL;
    c->alternates = chat_has(t, "<|end|>", "\n' + '<|assistant|>");
    if (!chat_has(t, "<|user|>", "\n") || !chat_has(t, "<|end|>", "\n"))
        return chat_fail_form("<|user|> and <|end|>, each with a new line", err);
    if (!strstr(t, "else %}{{ eos_token") && !strstr(t, "else %}{{eos_token"))
        return 0;
    return chat_copy(c->end, sizeof c->end, end ? end : "", err);
}

static int chat_find_details(struct chat *c, const char *t, const char *end, struct err *err)
{
    c->trims[CHAT_SYSTEM] = c->trims[CHAT_USER] = c->trims[CHAT_ASSISTANT] = chat_has_trim(t);
    switch (c->form) {
    case CHAT_CHATML:
        if (chat_find_system(c, t, err) < 0)
            return err->code;
        return chat_has(t, "<|im_end|>", "\n") ? 0
                                               : chat_fail_form("<|im_end|> and a new line", err);
    case CHAT_LLAMA3:
        return chat_has(t, "<|end_header_id|>", "\n\n")
                   ? 0
                   : chat_fail_form("<|end_header_id|> and two new lines", err);
    case CHAT_MISTRAL:
        c->trims[CHAT_SYSTEM] = c->trims[CHAT_USER] = 0;
        return chat_find_mistral(c, t, err);
    case CHAT_PHI3:
        return chat_find_phi3(c, t, end, err);
    default:
        c->has_system = c->system_is_of_user = strstr(t, "first_user_prefix") != NULL;
        return chat_has(t, "<end_of_turn>", "\n")
                   ? 0
                   : chat_fail_form("<end_of_turn> and a new line", err);
    }
}

int chat_find(struct chat *out, const char *template, const char *begin, const char *end,
              struct err *err)
{
    size_t form = CHAT_AUTO + 1;

    while (form < ARRAY_LEN(chat_shapes) && !chat_is_of(template, &chat_shapes[form]))
        form++;
    if (form == ARRAY_LEN(chat_shapes))
        return err_set(err, ERR_CONFIG, "it has the marks of no form that is known here");
    if (chat_check_more(template, err) < 0)
        return err_wrap(err, "it is like %s, but", chat_words[form]);
    if (chat_choose(out, (enum chat_form)form, begin, end, err) < 0)
        return err->code;
    if (!strstr(template, "bos_token"))
        out->begin[0] = 0;
    else if (!begin)
        return err_set(err, ERR_CONFIG,
                       "it writes bos_token, which tokenizer_config.json does not name");
    else if (chat_copy(out->begin, sizeof out->begin, begin, err) < 0)
        return err->code;
    return chat_find_details(out, template, end, err) < 0
               ? err_wrap(err, "it is like %s, but", chat_words[form])
               : 0;
}

/* ---- writing ---- */

static int chat_is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void chat_trim(struct chat_message *m)
{
    while (m->n > 0 && chat_is_blank(m->text[0]))
        m->text++, m->n--;
    while (m->n > 0 && chat_is_blank(m->text[m->n - 1]))
        m->n--;
}

static void chat_put(struct buf *out, const char *text) { buf_append(out, text, strlen(text)); }

static void chat_write_one(const struct chat *c, struct chat_message m,
                           const struct chat_message *prefix, struct buf *out, struct buf *answers)
{
    struct chat_span span;

    if (c->trims[m.role])
        chat_trim(&m);
    chat_put(out, c->part[m.role].before);
    if (prefix) {
        buf_append(out, prefix->text, prefix->n);
        chat_put(out, "\n\n");
    }
    span.begin = out->len;
    if (m.role == CHAT_ASSISTANT)
        chat_put(out, c->lead);
    buf_append(out, m.text, m.n);
    span.end = out->len + c->mark;
    chat_put(out, c->part[m.role].after);
    if (m.role == CHAT_ASSISTANT)
        buf_append(answers, &span, sizeof span);
}

static int chat_check(const struct chat *c, const struct chat_message *m, int n, struct err *err)
{
    const int has_system = n > 0 && m[0].role == CHAT_SYSTEM;

    if (has_system && !c->has_system)
        return err_set(err, ERR_CORRUPT,
                       "message 1 is the system's, for which the template has no place; want its "
                       "text in the first user's message");
    for (int i = has_system; i < n && c->alternates; i++) {
        const enum chat_role want = (i - has_system) % 2 ? CHAT_ASSISTANT : CHAT_USER;

        if (m[i].role != want)
            return err_set(err, ERR_CORRUPT,
                           "message %d has the role %s, want %s: in the form %s they take turns",
                           i + 1, chat_roles[m[i].role], chat_roles[want], chat_words[c->form]);
    }
    return 0;
}

int chat_write(const struct chat *c, const struct chat_message *message, int n, struct buf *out,
               struct buf *answers, struct err *err)
{
    const int has_system = n > 0 && message[0].role == CHAT_SYSTEM;
    const struct chat_message *prefix = has_system && c->system_is_of_user ? message : NULL;

    if (chat_check(c, message, n, err) < 0)
        return err->code;
    chat_put(out, c->begin);
    if (c->system[0] && !has_system)
        chat_write_one(c, (struct chat_message){CHAT_SYSTEM, c->system, strlen(c->system)}, NULL,
                       out, answers);
    for (int i = prefix ? 1 : 0; i < n; i++) {
        chat_write_one(c, message[i], prefix, out, answers);
        prefix = NULL;
    }
    chat_put(out, c->end);
    return 0;
}
