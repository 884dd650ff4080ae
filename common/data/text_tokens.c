/* text_tokens - texts by a tokenizer.json: a stream of tokens, cut into samples of the model's
 * context, as the format tokens does.  The last tenth of the tokens validates, or files of its own
 * do. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/sequence.h"
#include "data/text_impl.h"
#include "data/tokenised.h"

struct text_tokens {
    struct dataset base;
    struct token_file file;
    int64_t first; /* of this part's tokens: training's 0, validation's after nine tenths */
};

/* ---- where texts are ---- */

static int text_tokens_is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* data.path, or the folder of the file that it is; for free(). */
static char *text_tokens_folder(const struct text_options *o)
{
    const char *const slash = strrchr(o->path, '/');

    if (text_tokens_is_folder(o->path) || !slash)
        return xstrdup(o->path);
    return xasprintf("%.*s", slash == o->path ? 1 : (int)(slash - o->path), o->path);
}

/* 1: validation is by files of its own. */
static int text_tokens_has_files(const struct text_options *o)
{
    return strcmp(o->validation, TEXT_LAST_TENTH) != 0 &&
           strcmp(o->validation, DATASET_WORD_NONE) != 0;
}

/* List the files of a purpose; those of training have the last tenth that validates, too. */
static int text_tokens_list(struct corpus *out, const struct text_options *o,
                            enum dataset_purpose purpose, const char *folder, struct err *err)
{
    if (purpose == DATASET_VALIDATION && text_tokens_has_files(o))
        return corpus_list(out, folder, o->validation, err);
    if (o->train && !text_tokens_is_folder(o->path))
        return err_set(err, ERR_CONFIG,
                       "data.train is %.60s, but data.path is %s, which is no folder; want the "
                       "folder that holds both, or no data.train",
                       o->train, o->path);
    return corpus_list(out, o->path, o->train, err);
}

static int text_tokens_find(struct token_file *out, const struct text_options *o,
                            enum dataset_purpose purpose, struct err *err)
{
    char *folder = text_tokens_folder(o);
    char *tokenizer = text_tokens_is_folder(o->tokenizer)
                          ? xasprintf("%s/tokenizer.json", o->tokenizer)
                          : xstrdup(o->tokenizer);
    struct corpus corpus;
    int rc = text_tokens_list(&corpus, o, purpose, folder, err);

    if (rc == 0) {
        rc = tokenised_open(out,
                            &(struct tokenised){.corpus = &corpus,
                                                .tokenizer = tokenizer,
                                                .end_token = o->end_token,
                                                .cache = o->cache,
                                                .beside = folder},
                            err);
        corpus_fini(&corpus);
    }
    free(folder);
    free(tokenizer);
    return rc;
}

int text_tokens_prepare(const struct text_options *o, struct err *err)
{
    const int n = text_tokens_has_files(o) ? 2 : 1;

    for (int purpose = 0; purpose < n; purpose++) {
        struct token_file f;

        if (text_tokens_find(&f, o, (enum dataset_purpose)purpose, err) < 0)
            return err->code;
        token_file_close(&f);
    }
    return 0;
}

/* ---- the data set ---- */

static int text_tokens_row(const struct dataset *ds, int64_t i, int field, void *room,
                           const void **row, struct err *err)
{
    const struct text_tokens *t = container_of(ds, struct text_tokens, base);
    const int64_t n = sequence_context(ds);

    *row = room;
    return token_file_read(&t->file, t->first + i * n + (field == SEQUENCE_TARGETS), n, room, NULL,
                           err);
}

static void text_tokens_close(struct dataset *ds)
{
    struct text_tokens *t = container_of(ds, struct text_tokens, base);

    token_file_close(&t->file);
    free(t);
}

static const struct dataset_ops text_tokens_ops = {
    .name = "text", .row = text_tokens_row, .close = text_tokens_close};

/* The network may have more tokens than the tokenizer, but not fewer. */
static int text_tokens_check_vocab(const struct text_tokens *t, const struct text_options *o,
                                   const struct dataset_request *request, struct err *err)
{
    const int64_t vocab = t->file.facts.vocab;

    if (request->vocab == 0 || request->vocab >= vocab)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "data.tokenizer: %s has %lld tokens, but the network has %lld (model.vocab, or "
                   "vocab_size of its config.json); want the network's own tokenizer, or a network "
                   "with at least as many",
                   o->tokenizer, (long long)vocab, (long long)request->vocab);
}

/* Divide the tokens between training and validation. */
static int text_tokens_take_part(struct text_tokens *t, const struct text_options *o,
                                 enum dataset_purpose purpose, struct err *err)
{
    const int is_train = purpose == DATASET_TRAIN, is_cut = !strcmp(o->validation, TEXT_LAST_TENTH);
    const int64_t n = t->file.facts.n_tokens, n_train = is_cut ? n / 10 * 9 + n % 10 * 9 / 10 : n;
    const char *const what = !is_cut    ? "the texts"
                             : is_train ? "the first nine tenths of the texts"
                                        : "the last tenth of the texts";

    t->first = is_cut && !is_train ? n_train : 0;
    return sequence_samples(&t->base.n_samples, &t->base,
                            is_train || !is_cut ? n_train : n - n_train, what, err);
}

int text_tokens_open(struct dataset **out, const struct text_options *o,
                     const struct dataset_request *request, struct err *err)
{
    struct text_tokens *t = xcalloc(1, sizeof *t);
    int rc = text_tokens_find(&t->file, o, request->purpose, err);

    if (rc == 0)
        rc = text_tokens_check_vocab(t, o, request, err);
    if (rc == 0)
        rc = sequence_init(&t->base, &text_tokens_ops, request,
                           max_i64(request->vocab, t->file.facts.vocab), err);
    if (rc == 0)
        rc = text_tokens_take_part(t, o, request->purpose, err);
    if (rc < 0)
        text_tokens_close(&t->base);
    else
        *out = &t->base;
    return rc;
}
