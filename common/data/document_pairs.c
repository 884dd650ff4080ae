/* document_pairs - lines with two answers to a prompt, of which one was chosen: texts, or messages.
 * Where there is no prompt, it is what both conversations begin with. */
#include <string.h>

#include "base/util.h"
#include "data/documents_impl.h"

static const char *const pair_keys[] = {"rejected", "chosen"}; /* in the order of documents */

/* The value of `key` is of another kind than that of "chosen". */
static int pairs_fail_kind(const char *key, int is_chat, struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "\"%s\" is no %s; want three texts \"prompt\", \"chosen\" and \"rejected\", or "
                   "three lists of messages, where \"prompt\" may be left out if both others begin "
                   "with it",
                   key, is_chat ? "list, but \"chosen\" is one" : "text");
}

static int pairs_fail_empty(const char *key, struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "\"%s\" has no answer of one character or more; want one, or remove the line",
                   key);
}

/* ---- texts ---- */

static int pairs_take_texts(const json_t *prompt, const json_t *const answer[2],
                            documents_take *take, void *arg, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < 2; i++)
        if (json_string_length(answer[i]) == 0)
            return pairs_fail_empty(pair_keys[i], err);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = take(arg,
                  &(struct document){.kind = DOCUMENT_PROMPT,
                                     .text = json_string_value(prompt),
                                     .n = json_string_length(prompt),
                                     .completion = json_string_value(answer[i]),
                                     .n_completion = json_string_length(answer[i])},
                  err);
    return rc;
}

/* ---- conversations ---- */

struct pairs_chat {
    struct buf all[2]; /* struct chat_message: the prompt's, and the answer's behind them */
    int n_given;
};

static const struct chat_message *pairs_messages(const struct buf *b, int *n)
{
    *n = (int)(b->len / sizeof(struct chat_message));
    return (const struct chat_message *)(const void *)b->data;
}

static int pairs_is_same(const struct chat_message *a, const struct chat_message *b)
{
    return a->role == b->role && a->n == b->n && (a->n == 0 || !memcmp(a->text, b->text, a->n));
}

/* How many messages both conversations begin with; the last one of each is an answer. */
static int pairs_common(const struct pairs_chat *p)
{
    int n[2], same = 0;
    const struct chat_message *const a = pairs_messages(&p->all[0], &n[0]), *const b =
                                                                                pairs_messages(
                                                                                    &p->all[1],
                                                                                    &n[1]);

    while (same < n[0] - 1 && same < n[1] - 1 && pairs_is_same(&a[same], &b[same]))
        same++;
    return same;
}

/* Behind the prompt is an answer that says something. */
static int pairs_check_answer(const struct pairs_chat *p, int i, struct err *err)
{
    int n, says = 0;
    const struct chat_message *const m = pairs_messages(&p->all[i], &n);

    for (int k = p->n_given; k < n; k++)
        says |= m[k].role == CHAT_ASSISTANT && m[k].n > 0;
    return says ? 0 : pairs_fail_empty(pair_keys[i], err);
}

static int pairs_read_list(const json_t *list, const char *key, struct buf *out, struct err *err)
{
    if (documents_read_messages(list, key, out, err) < 0)
        return json_array_size(list) > 0 ? err_wrap(err, "\"%s\"", key) : err->code;
    return 0;
}

static int pairs_read_chat(struct pairs_chat *p, const json_t *prompt,
                           const json_t *const answer[2], struct err *err)
{
    for (int i = 0; i < 2; i++) {
        if (prompt && pairs_read_list(prompt, "prompt", &p->all[i], err) < 0)
            return err->code;
        p->n_given = (int)(p->all[i].len / sizeof(struct chat_message));
        if (pairs_read_list(answer[i], pair_keys[i], &p->all[i], err) < 0)
            return err->code;
    }
    if (!prompt)
        p->n_given = pairs_common(p);
    if (p->n_given == 0)
        return err_set(err, ERR_CORRUPT,
                       "there is no \"prompt\", and \"chosen\" and \"rejected\" begin with "
                       "different messages; want the prompt's in \"prompt\", or in both lists");
    for (int i = 0; i < 2; i++)
        if (pairs_check_answer(p, i, err) < 0)
            return err->code;
    return 0;
}

static int pairs_take_chats(const json_t *prompt, const json_t *const answer[2],
                            documents_take *take, void *arg, struct err *err)
{
    struct pairs_chat p = {0};
    int rc = pairs_read_chat(&p, prompt, answer, err);

    for (int i = 0; i < 2 && rc == 0; i++) {
        struct document d = {.kind = DOCUMENT_CHAT, .n_given = p.n_given};

        d.message = pairs_messages(&p.all[i], &d.n_messages);
        rc = take(arg, &d, err);
    }
    buf_fini(&p.all[0]);
    buf_fini(&p.all[1]);
    return rc;
}

/* ---- lines ---- */

int documents_take_pair(json_t *root, documents_take *take, void *arg, struct err *err)
{
    const json_t *const prompt = documents_key(root, "prompt"),
                        *const answer[2] = {documents_key(root, pair_keys[0]),
                                            documents_key(root, pair_keys[1])};
    const int is_chat = json_is_array(answer[1]);

    if (!answer[0] || !answer[1] || (!prompt && !is_chat))
        return documents_fail_keys(root,
                                   "three texts \"prompt\", \"chosen\" and \"rejected\", or these "
                                   "as lists of messages, of which \"prompt\" may be left out",
                                   err);
    for (int i = 0; i < 2; i++)
        if (is_chat ? !json_is_array(answer[i]) : !json_is_string(answer[i]))
            return pairs_fail_kind(pair_keys[i], is_chat, err);
    if (prompt && (is_chat ? !json_is_array(prompt) : !json_is_string(prompt)))
        return pairs_fail_kind("prompt", is_chat, err);
    return is_chat ? pairs_take_chats(prompt, answer, take, arg, err)
                   : pairs_take_texts(prompt, answer, take, arg, err);
}
