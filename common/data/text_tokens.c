/* text_tokens - texts by a tokenizer.json.
 *
 * Texts are a stream of tokens, cut into samples of the model's context, as the format tokens does.
 * Of prompts and conversations each is a sample: its tokens, and targets that are ignored where
 * nothing is to be learnt; behind its end are ignored targets alone.  Of pairs each is a sample
 * with two such texts.  With data.pack a sample has several documents or examples (text_packed.h).
 * The last tenth of the tokens, or of the examples, validates, or files of its own do. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/sequence.h"
#include "data/text_impl.h"
#include "data/text_packed.h"
#include "data/token_cache.h"

struct text_tokens {
    struct dataset base;
    struct token_file file;
    int64_t first; /* of this part's tokens, examples or pairs: training's 0, validation's after
                      nine tenths */
    int64_t n;     /* tokens, examples or pairs of this part */
    struct packing packing; /* data.pack */
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
                            enum dataset_purpose purpose, int of_pairs, struct err *err)
{
    char *folder = text_tokens_folder(o);
    char *tokenizer = text_tokens_is_folder(o->tokenizer)
                          ? xasprintf("%s/tokenizer.json", o->tokenizer)
                          : xstrdup(o->tokenizer);
    struct corpus corpus;
    int rc = text_tokens_list(&corpus, o, purpose, folder, err);

    if (rc == 0) {
        rc = token_cache_open(out,
                              &(struct token_cache){.corpus = &corpus,
                                                    .tokenizer = tokenizer,
                                                    .end_token = o->end_token,
                                                    .form = o->form,
                                                    .of_pairs = of_pairs,
                                                    .cache = o->cache,
                                                    .beside = folder},
                              err);
        corpus_fini(&corpus);
    }
    free(folder);
    free(tokenizer);
    return rc;
}

int text_tokens_prepare(const struct text_options *o, const struct dataset_request *request,
                        struct err *err)
{
    const int n = text_tokens_has_files(o) ? 2 : 1;

    for (int purpose = 0; purpose < n; purpose++) {
        struct token_file f;

        if (text_tokens_find(&f, o, (enum dataset_purpose)purpose, request->wants_pairs, err) < 0)
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

/* The number that stands behind the end of an example; it has no effect, as nothing behind it is
 * learnt. */
static int32_t text_tokens_filler(const struct text_tokens *t)
{
    return t->file.facts.end < 0 ? 0 : t->file.facts.end;
}

/* The inputs or targets of document i: to[context], with room for as many bytes. */
static int text_tokens_document(const struct text_tokens *t, int64_t i, int is_target, int32_t *to,
                                uint8_t *unlearnt, struct err *err)
{
    const int64_t context = sequence_context(&t->base);
    int64_t first, n;

    if (token_file_document(&t->file, i, &first, &n, err) < 0)
        return err->code;
    n = min_i64(n - 1, context); /* the last token is a target alone */
    if (token_file_read(&t->file, first + is_target, n, to, unlearnt, err) < 0)
        return err->code;
    for (int64_t k = 0; k < n && is_target; k++)
        to[k] = unlearnt[k] ? SAMPLE_IGNORED : to[k];
    for (int64_t k = n; k < context; k++)
        to[k] = is_target ? SAMPLE_IGNORED : text_tokens_filler(t);
    return 0;
}

static int text_tokens_example(const struct dataset *ds, int64_t i, int field, void *room,
                               const void **row, struct err *err)
{
    const struct text_tokens *t = container_of(ds, struct text_tokens, base);
    int32_t *const to = room;

    *row = room;
    return text_tokens_document(t, t->first + i, field == SEQUENCE_TARGETS, to,
                                (uint8_t *)(to + sequence_context(ds)), err);
}

static int text_tokens_pair(const struct dataset *ds, int64_t i, int field, void *room,
                            const void **row, struct err *err)
{
    const struct text_tokens *t = container_of(ds, struct text_tokens, base);
    const int64_t context = sequence_context(ds), pair = 2 * (t->first + i);
    const int is_target = field == SEQUENCE_ANSWERS;
    int32_t *const to = room;
    uint8_t *const unlearnt = (uint8_t *)(to + 2 * context);

    *row = room;
    if (field == SEQUENCE_CHOSEN) {
        *to = 1;
        return 0;
    }
    if (text_tokens_document(t, pair, is_target, to, unlearnt, err) < 0)
        return err->code;
    return text_tokens_document(t, pair + 1, is_target, to + context, unlearnt, err);
}

static int text_tokens_packed(const struct dataset *ds, int64_t i, int field, void *room,
                              const void **row, struct err *err)
{
    const struct text_tokens *t = container_of(ds, struct text_tokens, base);
    int32_t *const to = room;

    *row = room;
    return text_packed_row(&t->packing, &t->file, i, field, to,
                           (uint8_t *)(to + sequence_context(ds)), err);
}

static void text_tokens_close(struct dataset *ds)
{
    struct text_tokens *t = container_of(ds, struct text_tokens, base);

    packing_fini(&t->packing);
    token_file_close(&t->file);
    free(t);
}

static const struct dataset_ops text_tokens_ops = {
    .name = "text", .row = text_tokens_row, .close = text_tokens_close};

static const struct dataset_ops text_tokens_example_ops = {
    .name = "text", .row = text_tokens_example, .close = text_tokens_close};

static const struct dataset_ops text_tokens_pair_ops = {
    .name = "text", .row = text_tokens_pair, .close = text_tokens_close};

static const struct dataset_ops text_tokens_packed_ops = {
    .name = "text", .row = text_tokens_packed, .close = text_tokens_close};

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

/* ---- examples that are too long ---- */

struct text_tokens_long {
    int64_t n;       /* more tokens than fit in */
    int64_t n_empty; /* of these, how many have nothing left to learn once they are cut */
    int64_t most;    /* tokens of the longest */
};

/* The texts of a sample. */
static int64_t text_tokens_each(const struct text_tokens *t)
{
    return t->base.ops == &text_tokens_pair_ops ? 2 : 1;
}

/* 1: within the sample, document `i` has a token that is learnt; < 0: an error. */
static int text_tokens_learns(const struct text_tokens *t, int64_t i, struct err *err)
{
    const int64_t context = sequence_context(&t->base);
    int32_t *const room = xmalloc((size_t)context * (sizeof *room + 1));
    int rc = text_tokens_document(t, i, 1, room, (uint8_t *)(room + context), err);
    int learns = 0;

    for (int64_t k = 0; rc == 0 && k < context; k++)
        learns |= room[k] != SAMPLE_IGNORED;
    free(room);
    return rc < 0 ? rc : learns;
}

static int text_tokens_find_long(const struct text_tokens *t, struct text_tokens_long *out,
                                 struct err *err)
{
    const int64_t begin = text_tokens_each(t) * t->first;

    *out = (struct text_tokens_long){0};
    for (int64_t i = begin; i < begin + text_tokens_each(t) * t->base.n_samples; i++) {
        int64_t first, n;
        int learns;

        if (token_file_document(&t->file, i, &first, &n, err) < 0)
            return err->code;
        if (n - 1 <= sequence_context(&t->base))
            continue;
        learns = text_tokens_learns(t, i, err);
        if (learns < 0)
            return learns;
        out->n++;
        out->n_empty += !learns;
        out->most = max_i64(out->most, n);
    }
    return 0;
}

static int text_tokens_check_long(const struct text_tokens *t, const struct text_options *o,
                                  const struct dataset_request *request, struct err *err)
{
    const char *const what = text_tokens_each(t) == 2 ? "answers" : "examples";
    const int64_t n = text_tokens_each(t) * t->base.n_samples;
    struct text_tokens_long l;

    if (text_tokens_find_long(t, &l, err) < 0)
        return err->code;
    if (l.n > 0 && o->too_long == TEXT_REFUSE)
        return err_set(err, ERR_CONFIG,
                       "data.too_long is refuse, and %lld of %lld %s do not fit into "
                       "model.context, %lld tokens: the longest has %lld; want a larger "
                       "model.context, or data.too_long cut",
                       (long long)l.n, (long long)n, what, (long long)sequence_context(&t->base),
                       (long long)l.most);
    if (l.n > 0)
        dataset_warn(request,
                     "%lld of %lld %s are cut at model.context, %lld tokens, as the longest "
                     "has %lld; %lld of them have nothing left to learn (data.too_long refuse "
                     "would refuse them)",
                     (long long)l.n, (long long)n, what, (long long)sequence_context(&t->base),
                     (long long)l.most, (long long)l.n_empty);
    return 0;
}

/* ---- opening ---- */

static int text_tokens_count(struct text_tokens *t, const char *what, struct err *err)
{
    if (t->base.ops == &text_tokens_ops)
        return sequence_samples(&t->base.n_samples, &t->base, t->n, what, err);
    t->base.n_samples = t->n;
    t->base.room_bytes += (size_t)sequence_context(&t->base);
    return t->n > 0 ? 0
                    : err_set(err, ERR_CORRUPT,
                              "%s: there is no %s; give more, or set data.validation none", what,
                              text_tokens_each(t) == 2 ? "pair" : "example");
}

/* The tokens, examples or pairs of the file. */
static int64_t text_tokens_all(const struct token_facts *f)
{
    return f->kind == TOKEN_FILE_TEXTS   ? f->n_tokens
           : f->kind == TOKEN_FILE_PAIRS ? f->n_documents / 2
                                         : f->n_documents;
}

/* Divide them between training and validation. */
static int text_tokens_take_part(struct text_tokens *t, const struct text_options *o,
                                 enum dataset_purpose purpose, struct err *err)
{
    const int is_train = purpose == DATASET_TRAIN, is_cut = !strcmp(o->validation, TEXT_LAST_TENTH);
    const int64_t n = text_tokens_all(&t->file.facts),
                  n_train = is_cut ? n / 10 * 9 + n % 10 * 9 / 10 : n;
    const char *const what = !is_cut    ? "the texts"
                             : is_train ? "the first nine tenths of the texts"
                                        : "the last tenth of the texts";

    t->first = is_cut && !is_train ? n_train : 0;
    t->n = is_train || !is_cut ? n_train : n - n_train;
    return o->pack && t->file.facts.kind == TOKEN_FILE_TEXTS ? 0 : text_tokens_count(t, what, err);
}

/* Samples of several documents, or examples, of this part.  Of an example what does not fit into a
 * sample is left out; a text goes on in another sample. */
static int text_tokens_pack(struct text_tokens *t, struct err *err)
{
    const int64_t context = sequence_context(&t->base);
    const int is_text = t->file.facts.kind == TOKEN_FILE_TEXTS;
    const struct text_packed_part part =
        is_text
            ? (struct text_packed_part){.end = t->file.facts.n_documents,
                                        .from = t->first,
                                        .to = t->first + t->n}
            : (struct text_packed_part){
                  .number = t->first, .end = t->first + t->n, .to = INT64_MAX, .most = context + 1};

    if (text_packed_find(&t->packing, context, &t->file, &part, err) < 0)
        return err->code;
    if (t->packing.n_samples == 0)
        return err_set(err, ERR_CORRUPT,
                       "no document has two tokens, of which the second is the target of the "
                       "first; give more text, or set data.validation none");
    t->base.ops = &text_tokens_packed_ops;
    t->base.n_samples = t->packing.n_samples;
    t->base.room_bytes += is_text ? (size_t)context : 0;
    sequence_pack(&t->base);
    return 0;
}

int text_tokens_open(struct dataset **out, const struct text_options *o,
                     const struct dataset_request *request, struct err *err)
{
    static const struct dataset_ops *const ops[] = {[TOKEN_FILE_TEXTS] = &text_tokens_ops,
                                                    [TOKEN_FILE_EXAMPLES] =
                                                        &text_tokens_example_ops,
                                                    [TOKEN_FILE_PAIRS] = &text_tokens_pair_ops};
    struct text_tokens *t = xcalloc(1, sizeof *t);
    int rc = text_tokens_find(&t->file, o, request->purpose, request->wants_pairs, err);

    if (rc == 0)
        rc = text_tokens_check_vocab(t, o, request, err);
    if (rc == 0)
        rc = sequence_init(&t->base, ops[t->file.facts.kind], request,
                           max_i64(request->vocab, t->file.facts.vocab), err);
    if (rc == 0 && t->file.facts.kind == TOKEN_FILE_PAIRS)
        sequence_pair(&t->base);
    if (rc == 0)
        rc = text_tokens_take_part(t, o, request->purpose, err);
    if (rc == 0 && t->file.facts.kind != TOKEN_FILE_TEXTS)
        rc = text_tokens_check_long(t, o, request, err);
    if (rc == 0 && o->pack)
        rc = text_tokens_pack(t, err);
    if (rc < 0)
        text_tokens_close(&t->base);
    else
        *out = &t->base;
    return rc;
}
