/* token_maker - documents become tokens, one after the other, each with its end token behind it.  A
 * text of any length is encoded piece by piece, and its tokens go to the file as they come. */
#include "data/token_maker.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "tokenizer/tokenizer.h"

enum { TOKENISER_PATIENCE_S = 10 }; /* between two log lines of a long work */

struct token_maker {
    const struct token_maker_job *job;
    struct tokenizer *tokenizer;
    struct tokenizer_work *work;
    struct token_writer writer;
    int32_t end, last; /* the end token, and the last one of the document so far; -1: none */
    enum token_file_kind kind;
    int64_t n_documents, n_empty;
    struct chat chat;         /* form CHAT_AUTO: not known yet */
    struct buf text, answers; /* of an example: struct chat_span */
    size_t n_given;           /* the first answers, which are of the prompt, and are not learnt */
    struct buf tokens, part;  /* int32_t: of an example's text, and of its beginning */
    int64_t told_ns;          /* when the log last heard of it */
};

static int token_maker_take(void *arg, const int32_t *token, size_t n, struct err *err)
{
    struct token_maker *const k = arg;

    k->last = token[n - 1];
    if (clock_mono_ns() - k->told_ns > TOKENISER_PATIENCE_S * INT64_C(1000000000)) {
        k->told_ns = clock_mono_ns();
        log_info("data.tokenizer: %lld million tokens so far",
                 (long long)(k->writer.n_tokens / 1000000));
    }
    return token_writer_put(&k->writer, token, n, 1, err);
}

/* The post-processor of some tokenizers ends a text by itself. */
static int token_maker_end_document(struct token_maker *k, struct err *err)
{
    int rc = 0;

    if (k->end >= 0 && k->last != k->end)
        rc = token_writer_put(&k->writer, &k->end, 1, 1, err);
    k->last = -1;
    k->n_documents++;
    return rc == 0 ? token_writer_end(&k->writer, err) : rc;
}

/* A token must end `what`. */
static int token_maker_check_end(const struct token_maker *k, const char *what, struct err *err)
{
    if (k->end >= 0 || k->job->marks->found)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "%s, but no file beside %s names the token that ends one (eos_token of "
                   "tokenizer_config.json); want its text as data.end_token, or none",
                   what, k->job->tokenizer);
}

/* A text, piece by piece. */
static int token_maker_take_text(struct token_maker *k, const struct document *d, struct err *err)
{
    int rc = k->n_documents > 0 ? token_maker_check_end(k, "a second document", err) : 0;

    if (rc == 0)
        rc = tokenizer_encode(k->work, d->text, d->n, TOKENIZER_SPECIAL, token_maker_take, k, err);
    if (rc == 0 && k->last < 0) { /* a tokenizer may have no token for any character of a text */
        k->n_empty++;
        return 0;
    }
    return rc == 0 ? token_maker_end_document(k, err) : rc;
}

/* ---- examples ---- */

static int token_maker_keep(void *arg, const int32_t *token, size_t n, struct err *err)
{
    return buf_try_append(arg, token, n * sizeof *token, "the tokens of an example", err);
}

/* Encode the first n bytes of k->text. */
static int token_maker_encode(struct token_maker *k, size_t n, int special, struct buf *out,
                              struct err *err)
{
    buf_clear(out);
    return tokenizer_encode(k->work, (const char *)k->text.data, n, special, token_maker_keep, out,
                            err);
}

/* How many of the example's tokens are of its first n bytes: those with which these bytes, encoded
 * alone, begin, too. */
static int token_maker_count(struct token_maker *k, size_t n, int special, size_t *count,
                             struct err *err)
{
    const size_t n_tokens = k->tokens.len / sizeof(int32_t);
    const int32_t *const whole = (const int32_t *)(const void *)k->tokens.data, *part;
    size_t n_part;

    *count = 0;
    if (n == k->text.len)
        *count = n_tokens;
    if (n == 0 || n == k->text.len)
        return 0;
    if (token_maker_encode(k, n, special, &k->part, err) < 0)
        return err->code;
    part = (const int32_t *)(const void *)k->part.data;
    n_part = k->part.len / sizeof *part;
    while (*count < n_tokens && *count < n_part && whole[*count] == part[*count])
        (*count)++;
    return 0;
}

/* Write k->tokens, of which those of the answers are learnt. */
static int token_maker_put_answers(struct token_maker *k, int special, struct err *err)
{
    const struct chat_span *const span = (const struct chat_span *)(const void *)k->answers.data;
    const int32_t *const token = (const int32_t *)(const void *)k->tokens.data;
    const size_t n = k->tokens.len / sizeof *token;
    size_t done = 0, place[2] = {0};
    int rc = 0;

    for (size_t i = k->n_given; rc == 0 && i < k->answers.len / sizeof *span; i++) {
        rc = token_maker_count(k, span[i].begin, special, &place[0], err);
        if (rc == 0)
            rc = token_maker_count(k, span[i].end, special, &place[1], err);
        place[0] = place[0] > done ? place[0] : done; /* a count may fall as the text grows */
        place[1] = place[1] > place[0] ? place[1] : place[0];
        if (rc == 0)
            rc = token_writer_put(&k->writer, token + done, place[0] - done, 0, err);
        if (rc == 0)
            rc = token_writer_put(&k->writer, token + place[0], place[1] - place[0], 1, err);
        done = place[1];
    }
    return rc == 0 ? token_writer_put(&k->writer, token + done, n - done, 0, err) : rc;
}

/* Encode the text of an example, and write its tokens. */
static int token_maker_put_example(struct token_maker *k, int special, struct err *err)
{
    int rc = token_maker_encode(k, k->text.len, special, &k->tokens, err);

    if (rc == 0)
        rc = token_maker_put_answers(k, special, err);
    if (rc == 0 && k->tokens.len > 0)
        memcpy(&k->last, k->tokens.data + k->tokens.len - sizeof k->last, sizeof k->last);
    return rc;
}

/* An example without a token is left out, but not one of a pair. */
static int token_maker_leave_out(struct token_maker *k, struct err *err)
{
    if (k->job->of_pairs)
        return err_set(err, ERR_CORRUPT,
                       "an answer has no token of %s; want texts that it knows, or remove the line",
                       k->job->tokenizer);
    k->n_empty++;
    return 0;
}

static int token_maker_take_prompt(struct token_maker *k, const struct document *d, struct err *err)
{
    const struct chat_span answer = {d->n, d->n + d->n_completion};

    if (token_maker_check_end(k, "a completion", err) < 0)
        return err->code;
    buf_append(&k->text, d->text, d->n);
    buf_append(&k->text, d->completion, d->n_completion);
    buf_append(&k->answers, &answer, sizeof answer);
    if (token_maker_put_example(k, TOKENIZER_SPECIAL, err) < 0)
        return err->code;
    if (k->tokens.len == 0 && k->end < 0)
        return token_maker_leave_out(k, err);
    return token_maker_end_document(k, err);
}

/* Find the form of conversations, when the first one comes. */
static int token_maker_find_form(struct token_maker *k, struct err *err)
{
    const struct token_maker_job *const job = k->job;
    const struct token_marks *const m = job->marks;
    const char *mark;

    if (k->chat.form != CHAT_AUTO)
        return 0;
    if (job->form == CHAT_AUTO && !m->template)
        return err_set(err, ERR_CONFIG,
                       "a conversation, but no file beside %s has a chat_template; want the form "
                       "as data.template: " CHAT_FORMS,
                       job->tokenizer);
    if (job->form != CHAT_AUTO && chat_choose(&k->chat, job->form, m->bos, m->eos, err) < 0)
        return err->code;
    if (job->form == CHAT_AUTO && chat_find(&k->chat, m->template, m->bos, m->eos, err) < 0) {
        k->chat.form = CHAT_AUTO;
        return err_set(err, err->code,
                       "the chat_template of %s is not read: %s; want the form that is meant, as "
                       "data.template: " CHAT_FORMS,
                       m->template_path, err->msg);
    }
    mark = chat_mark(k->chat.form);
    if (tokenizer_number(k->tokenizer, mark) < 0)
        log_warn("data.template %s writes %s, which is no token of %s: it becomes several tokens",
                 chat_word(k->chat.form), mark, job->tokenizer);
    log_info("data.template: conversations have the form %s%s%s", chat_word(k->chat.form),
             job->form == CHAT_AUTO ? ", by " : "", job->form == CHAT_AUTO ? m->template_path : "");
    return 0;
}

static int token_maker_take_chat(struct token_maker *k, const struct document *d, struct err *err)
{
    int rc = token_maker_find_form(k, err);

    for (int i = 0; i < d->n_given; i++)
        k->n_given += d->message[i].role == CHAT_ASSISTANT;
    if (rc == 0)
        rc = chat_write(&k->chat, d->message, d->n_messages, &k->text, &k->answers, err);
    if (rc == 0)
        rc = token_maker_put_example(k, TOKENIZER_BARE, err);
    k->last = -1;
    if (rc == 0 && k->tokens.len == 0)
        return token_maker_leave_out(k, err);
    k->n_documents += rc == 0;
    return rc == 0 ? token_writer_end(&k->writer, err) : rc;
}

/* ---- documents ---- */

/* A stream of texts and single examples are different data sets. */
static int token_maker_check_kind(struct token_maker *k, enum document_kind kind, struct err *err)
{
    static const char *const names[] = {
        [TOKEN_FILE_TEXTS] = "a text", [TOKEN_FILE_EXAMPLES] = "a prompt or a conversation"};
    const enum token_file_kind now = kind == DOCUMENT_TEXT ? TOKEN_FILE_TEXTS : TOKEN_FILE_EXAMPLES;

    if (k->n_documents == 0)
        k->kind = now;
    if (k->kind == now)
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "it is %s, but the first document is %s; want either kind in data.path, and the "
                   "other one in a data set of its own",
                   names[now], names[k->kind]);
}

static int token_maker_take_document(void *arg, const struct document *d, struct err *err)
{
    struct token_maker *const k = arg;

    if (d->kind == DOCUMENT_TEXT && d->n == 0) {
        k->n_empty++;
        return 0;
    }
    if (token_maker_check_kind(k, d->kind, err) < 0)
        return err->code;
    buf_clear(&k->text);
    buf_clear(&k->answers);
    k->n_given = 0;
    return d->kind == DOCUMENT_TEXT     ? token_maker_take_text(k, d, err)
           : d->kind == DOCUMENT_PROMPT ? token_maker_take_prompt(k, d, err)
                                        : token_maker_take_chat(k, d, err);
}

static int token_maker_open(struct token_maker *k, struct err *err)
{
    const struct token_maker_job *const job = k->job;

    if (tokenizer_read(&k->tokenizer, job->tokenizer, err) < 0)
        return err->code;
    if (!hash_equal(tokenizer_hash(k->tokenizer), job->hash))
        return err_set(err, ERR_CORRUPT, "%s was changed meanwhile; start the job again",
                       job->tokenizer);
    k->work = tokenizer_work_new(k->tokenizer);
    k->last = -1;
    k->told_ns = clock_mono_ns();
    return token_marks_end(job->marks, k->tokenizer, &k->end, err);
}

static void token_maker_tell(const struct token_maker *k, int64_t began_ns)
{
    const struct token_marks *const m = k->job->marks;
    const struct corpus *const c = k->job->corpus;
    char end[64] = "no token ends a document";

    if (k->chat.form != CHAT_AUTO)
        snprintf(end, sizeof end, "conversations end as their template has it");
    else if (k->end >= 0)
        snprintf(end, sizeof end, "token %d ends each", (int)k->end);
    log_info("data.tokenizer: %lld tokens of %lld document%s in %.1f s; %s%s%s",
             (long long)k->writer.n_tokens, (long long)k->n_documents,
             k->n_documents == 1 ? "" : "s", clock_since_s(began_ns), end,
             m->found && k->chat.form == CHAT_AUTO ? ", by " : "",
             m->found && k->chat.form == CHAT_AUTO ? m->found : "");
    if (k->n_empty > 0)
        log_info("data.tokenizer: %lld documents without a token are left out",
                 (long long)k->n_empty);
    if (c->n_other > 0)
        log_warn("%lld files that end neither in .txt nor in .jsonl are left out, such as %s",
                 (long long)c->n_other, c->other);
}

/* Write the tokens of all documents, and the header. */
static int token_maker_write(struct token_maker *k, struct err *err)
{
    const struct corpus *const c = k->job->corpus;
    const int64_t began_ns = clock_mono_ns();
    struct token_facts facts = {0};
    int rc;

    log_info("data.tokenizer: %lld file%s of %.1f MB to become tokens in %s", (long long)c->n,
             c->n == 1 ? "" : "s", (double)c->n_bytes * 1e-6, k->writer.path);
    rc = documents_each(c, k->job->of_pairs ? DOCUMENTS_OF_PAIRS : DOCUMENTS_OF_ANY,
                        token_maker_take_document, k, err);
    if (rc == 0 && k->n_documents == 0)
        rc = err_set(err, ERR_CORRUPT, "%s: no document has a token; want texts", c->file[0].path);
    if (rc < 0)
        return rc;
    facts.kind = k->job->of_pairs ? TOKEN_FILE_PAIRS : k->kind;
    facts.vocab = tokenizer_vocab(k->tokenizer);
    facts.end = k->end;
    rc = token_writer_finish(&k->writer, k->job->key, &facts, err);
    if (rc == 0)
        token_maker_tell(k, began_ns);
    return rc;
}

int token_maker_run(const struct token_maker_job *job, int fd, const char *path, struct err *err)
{
    struct token_maker k = {.job = job};
    int rc = token_maker_open(&k, err);

    token_writer_open(&k.writer, fd, path);
    if (rc == 0)
        rc = token_maker_write(&k, err);
    token_writer_drop(&k.writer);
    buf_fini(&k.text);
    buf_fini(&k.answers);
    buf_fini(&k.tokens);
    buf_fini(&k.part);
    tokenizer_work_free(k.work);
    tokenizer_free(k.tokenizer);
    return rc;
}
