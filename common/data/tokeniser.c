/* tokeniser - documents become tokens, one after the other, each with its end token behind it.  A
 * text of any length is encoded piece by piece, and its tokens go to the file as they come. */
#include "data/tokeniser.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "tokenizer/tokenizer.h"

enum { TOKENISER_PATIENCE_S = 10 }; /* between two log lines of a long work */

struct tokeniser {
    const struct tokeniser_job *job;
    struct tokenizer *tokenizer;
    struct tokenizer_work *work;
    struct token_writer writer;
    int32_t end, last; /* the end token, and the last one of the document so far; -1: none */
    int64_t n_documents, n_empty;
    int64_t told_ns; /* when the log last heard of it */
};

static int tokeniser_take(void *arg, const int32_t *token, size_t n, struct err *err)
{
    struct tokeniser *const k = arg;

    k->last = token[n - 1];
    if (clock_mono_ns() - k->told_ns > TOKENISER_PATIENCE_S * INT64_C(1000000000)) {
        k->told_ns = clock_mono_ns();
        log_info("data.tokenizer: %lld million tokens so far",
                 (long long)(k->writer.n_tokens / 1000000));
    }
    return token_writer_put(&k->writer, token, n, 1, err);
}

/* The post-processor of some tokenizers ends a text by itself. */
static int tokeniser_end_document(struct tokeniser *k, struct err *err)
{
    int rc = 0;

    if (k->end >= 0 && k->last != k->end)
        rc = token_writer_put(&k->writer, &k->end, 1, 1, err);
    k->last = -1;
    k->n_documents++;
    return rc == 0 ? token_writer_end(&k->writer, err) : rc;
}

/* Two documents need a token between them. */
static int tokeniser_check_end(const struct tokeniser *k, struct err *err)
{
    if (k->n_documents == 0 || k->end >= 0 || k->job->marks->found)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "a second document, but no file beside %s names the token that ends one "
                   "(eos_token of tokenizer_config.json); want its text as data.end_token, or none",
                   k->job->tokenizer);
}

static int tokeniser_take_document(void *arg, const struct document *d, struct err *err)
{
    struct tokeniser *const k = arg;
    int rc;

    if (d->n == 0) {
        k->n_empty++;
        return 0;
    }
    rc = tokeniser_check_end(k, err);
    if (rc == 0)
        rc = tokenizer_encode(k->work, d->text, d->n, TOKENIZER_SPECIAL, tokeniser_take, k, err);
    if (rc == 0 && k->last < 0) { /* a tokenizer may have no token for any character of a text */
        k->n_empty++;
        return 0;
    }
    return rc == 0 ? tokeniser_end_document(k, err) : rc;
}

static int tokeniser_open(struct tokeniser *k, struct err *err)
{
    const struct tokeniser_job *const job = k->job;

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

static void tokeniser_tell(const struct tokeniser *k, int64_t began_ns)
{
    const struct token_marks *const m = k->job->marks;
    const struct corpus *const c = k->job->corpus;
    char end[64] = "no token ends a document";

    if (k->end >= 0)
        snprintf(end, sizeof end, "token %d ends each", (int)k->end);
    log_info("data.tokenizer: %lld tokens of %lld documents in %.1f s; %s%s%s",
             (long long)k->writer.n_tokens, (long long)k->n_documents, clock_since_s(began_ns), end,
             m->found ? ", by " : "", m->found ? m->found : "");
    if (k->n_empty > 0)
        log_info("data.tokenizer: %lld documents without a token are left out",
                 (long long)k->n_empty);
    if (c->n_other > 0)
        log_warn("%lld files that end neither in .txt nor in .jsonl are left out, such as %s",
                 (long long)c->n_other, c->other);
}

/* Write the tokens of all documents, and the header. */
static int tokeniser_write(struct tokeniser *k, struct err *err)
{
    const struct corpus *const c = k->job->corpus;
    const int64_t began_ns = clock_mono_ns();
    struct token_facts facts = {.kind = TOKEN_FILE_TEXTS};
    int rc;

    log_info("data.tokenizer: %lld files, %.1f MB, become tokens in %s", (long long)c->n,
             (double)c->n_bytes * 1e-6, k->writer.path);
    rc = documents_each(c, tokeniser_take_document, k, err);
    if (rc == 0 && k->n_documents == 0)
        rc = err_set(err, ERR_CORRUPT, "%s: no document has a token; want texts", c->file[0].path);
    if (rc < 0)
        return rc;
    facts.vocab = tokenizer_vocab(k->tokenizer);
    facts.end = k->end;
    rc = token_writer_finish(&k->writer, k->job->key, &facts, err);
    if (rc == 0)
        tokeniser_tell(k, began_ns);
    return rc;
}

int tokeniser_run(const struct tokeniser_job *job, int fd, const char *path, struct err *err)
{
    struct tokeniser k = {.job = job};
    int rc = tokeniser_open(&k, err);

    token_writer_open(&k.writer, fd, path);
    if (rc == 0)
        rc = tokeniser_write(&k, err);
    token_writer_drop(&k.writer);
    tokenizer_work_free(k.work);
    tokenizer_free(k.tokenizer);
    return rc;
}
