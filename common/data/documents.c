/* documents - reads texts, and lines of JSON.  A file is mapped while its documents are handed out,
 * and a line's JSON lives as long as its document. */
#include "data/documents_impl.h"

#include <string.h>

#include "base/util.h"
#include "data/foreign.h"
#include "data/mapped.h"

/* ---- lines of JSON ---- */

/* Append the keys of a mapping, for a message. */
static void documents_list_keys(json_t *root, struct buf *out)
{
    enum { MOST = 200 };

    for (void *i = json_object_iter(root); i && out->len < MOST; i = json_object_iter_next(root, i))
        buf_printf(out, "%s\"%.40s\"", out->len ? ", " : "", json_object_iter_key(i));
}

int documents_fail_keys(json_t *root, const char *want, struct err *err)
{
    struct buf keys = {0};
    int rc;

    documents_list_keys(root, &keys);
    rc = err_set(err, ERR_CORRUPT, "it has %s%s; want %s", keys.len ? "the keys " : "no keys",
                 keys.len ? buf_cstr(&keys) : "", want);
    buf_fini(&keys);
    return rc;
}

static int documents_take_prompt(const json_t *prompt, const json_t *completion,
                                 documents_take *take, void *arg, struct err *err)
{
    const struct document d = {.kind = DOCUMENT_PROMPT,
                               .text = json_string_value(prompt),
                               .n = json_string_length(prompt),
                               .completion = json_string_value(completion),
                               .n_completion = json_string_length(completion)};

    if (!d.text || !d.completion)
        return err_set(err, ERR_CORRUPT,
                       "\"%s\" is no text; want two texts, \"prompt\" and \"completion\"",
                       d.text ? "completion" : "prompt");
    return take(arg, &d, err);
}

/* Members of a message that would change what it says. */
static int documents_check_message(const json_t *j, int number, struct err *err)
{
    static const char *const others[] = {"tool_calls", "function_call", "reasoning_content",
                                         "tool_call_id"};

    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        const json_t *const other = json_object_get(j, others[i]);

        if (other && !json_is_null(other))
            return err_set(err, ERR_CORRUPT,
                           "message %d has \"%s\", which is not read; want messages of text alone",
                           number, others[i]);
    }
    return 0;
}

static int documents_read_message(const json_t *j, int number, struct chat_message *out,
                                  struct err *err)
{
    const json_t *const content = json_object_get(j, "content");
    const char *const role = json_string_value(json_object_get(j, "role"));
    int k = 0;

    if (!role)
        return err_set(err, ERR_CORRUPT,
                       "message %d has no \"role\"; want system, user or assistant", number);
    while (chat_roles[k] && strcmp(chat_roles[k], role) != 0)
        k++;
    if (!chat_roles[k])
        return err_set(err, ERR_CORRUPT,
                       "message %d has the role \"%.40s\"; want system, user or assistant", number,
                       role);
    if (documents_check_message(j, number, err) < 0)
        return err->code;
    if (!json_is_string(content))
        return err_set(err, ERR_CORRUPT, "message %d (%s) has no text \"content\"", number, role);
    *out = (struct chat_message){(enum chat_role)k, json_string_value(content),
                                 json_string_length(content)};
    return 0;
}

int documents_read_messages(const json_t *messages, const char *key, struct buf *out,
                            struct err *err)
{
    enum { MOST = 1 << 20 };
    const size_t n = json_array_size(messages);
    struct chat_message m;

    if (!json_is_array(messages) || n == 0 || n > MOST)
        return err_set(err, ERR_CORRUPT,
                       "\"%s\" is no list of 1 to %d messages, each {\"role\": \"user\", "
                       "\"content\": \"...\"}",
                       key, MOST);
    for (size_t i = 0; i < n; i++) {
        if (documents_read_message(json_array_get(messages, i), (int)i + 1, &m, err) < 0)
            return err->code;
        buf_append(out, &m, sizeof m);
    }
    return 0;
}

static int documents_take_chat(const json_t *messages, documents_take *take, void *arg,
                               struct err *err)
{
    struct buf b = {0};
    struct document d = {.kind = DOCUMENT_CHAT};
    int rc = documents_read_messages(messages, "messages", &b, err), n_answers = 0;

    d.message = (const struct chat_message *)(const void *)b.data;
    d.n_messages = (int)(b.len / sizeof *d.message);
    for (int i = 0; rc == 0 && i < d.n_messages; i++)
        n_answers += d.message[i].role == CHAT_ASSISTANT;
    if (rc == 0 && n_answers == 0)
        rc = err_set(err, ERR_CORRUPT,
                     "no message has the role assistant, so there is nothing to learn; want an "
                     "answer, or remove the line");
    if (rc == 0)
        rc = take(arg, &d, err);
    buf_fini(&b);
    return rc;
}

const json_t *documents_key(const json_t *root, const char *key)
{
    const json_t *const j = json_object_get(root, key);

    return json_is_null(j) ? NULL : j;
}

static int documents_take_any(json_t *root, documents_take *take, void *arg, struct err *err)
{
    static const char want[] = "a text \"text\", or two texts \"prompt\" and \"completion\", or a "
                               "list \"messages\"",
                      pairs[] = "model.loss dpo for pairs of answers, or a text \"text\", two "
                                "texts \"prompt\" and \"completion\", or a list \"messages\"";
    const json_t *const text = documents_key(root, "text"),
                        *const messages = documents_key(root, "messages"),
                        *const prompt = documents_key(root, "prompt"),
                        *const completion = documents_key(root, "completion");

    if (messages)
        return documents_take_chat(messages, take, arg, err);
    if (prompt && completion)
        return documents_take_prompt(prompt, completion, take, arg, err);
    if (!json_is_string(text))
        return documents_fail_keys(
            root, documents_key(root, "chosen") && documents_key(root, "rejected") ? pairs : want,
            err);
    return take(arg,
                &(struct document){.text = json_string_value(text), .n = json_string_length(text)},
                err);
}

static int documents_take_root(json_t *root, enum documents_of of, documents_take *take, void *arg,
                               struct err *err)
{
    if (!json_is_object(root))
        return err_set(err, ERR_CORRUPT,
                       "it is no mapping of JSON; want one on each line, such as %s",
                       of == DOCUMENTS_OF_PAIRS
                           ? "{\"prompt\": \"...\", \"chosen\": \"...\", \"rejected\": \"...\"}"
                           : "{\"text\": \"...\"}");
    return of == DOCUMENTS_OF_PAIRS ? documents_take_pair(root, take, arg, err)
                                    : documents_take_any(root, take, arg, err);
}

static int documents_take_line(const char *line, size_t n, enum documents_of of,
                               documents_take *take, void *arg, struct err *err)
{
    /* Numbers are left out, however large. */
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
    json_error_t at;
    json_t *const root = json_loadb(line, n, flags, &at);
    int rc;

    if (!root)
        return err_set(err, ERR_CORRUPT, "column %d: %s; want a mapping of JSON on each line",
                       at.column, at.text);
    rc = documents_take_root(root, of, take, arg, err);
    json_decref(root);
    return rc;
}

static int documents_is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return 0;
    return 1;
}

int documents_each_line(const char *s, size_t n, enum documents_of of, documents_take *take,
                        void *arg, struct err *err)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order, as some editors write it */
    int64_t number = 1;
    size_t at = n >= strlen(mark) && !memcmp(s, mark, strlen(mark)) ? strlen(mark) : 0;

    for (; at < n; number++) {
        const char *const end = memchr(s + at, '\n', n - at);
        const size_t len = end ? (size_t)(end - s) - at : n - at;

        if (!documents_is_blank(s + at, len) &&
            documents_take_line(s + at, len, of, take, arg, err) < 0)
            return err_wrap(err, "line %lld", (long long)number);
        at += len + 1;
    }
    return 0;
}

/* ---- files ---- */

static int documents_take_file(const struct corpus_file *f, const struct mapped *m,
                               enum documents_of of, documents_take *take, void *arg,
                               struct err *err)
{
    const struct foreign *const other = foreign_find(m->bytes, m->n_bytes);
    const char *const s = (const char *)m->bytes;

    if (other && !other->is_text)
        return err_set(err, ERR_CORRUPT, "it is %s, want a text", other->what);
    if (f->is_lines)
        return documents_each_line(s, m->n_bytes, of, take, arg, err);
    if (of == DOCUMENTS_OF_PAIRS)
        return err_set(err, ERR_CORRUPT,
                       "it is one text, but model.loss dpo compares two answers to a prompt; want "
                       ".jsonl files with \"prompt\", \"chosen\" and \"rejected\" on each line");
    return take(arg, &(struct document){.text = s, .n = m->n_bytes}, err);
}

int documents_each(const struct corpus *c, enum documents_of of, documents_take *take, void *arg,
                   struct err *err)
{
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < c->n; i++) {
        struct mapped m;

        rc = mapped_open(&m, c->file[i].path, err);
        if (rc == 0 && (int64_t)m.n_bytes != c->file[i].n_bytes)
            rc = err_set(err, ERR_CORRUPT,
                         "%s has %lld bytes, and had %lld when the job began; want files that do "
                         "not change meanwhile",
                         c->file[i].path, (long long)m.n_bytes, (long long)c->file[i].n_bytes);
        if (rc == 0 && documents_take_file(&c->file[i], &m, of, take, arg, err) < 0)
            rc = err_wrap(err, "%s", c->file[i].path);
        mapped_close(&m);
    }
    return rc;
}
