/* tokens_packed - samples of whole documents out of files of tokens: a token of the job's choice
 * ends each document, and the end of a file, too. */
#include "base/util.h"
#include "data/tokens_impl.h"

/* A document that the text's tokens [begin, end) are. */
static int tokens_packed_add(struct tokens *s, const struct tokens_text *t, int64_t begin,
                             int64_t end, struct err *err)
{
    return packing_add(&s->packing, t->at + begin, end - begin, err);
}

/* Find the documents of a text; it has none if no token is the end. */
static int tokens_packed_find(struct tokens *s, const struct tokens_text *t, int64_t end,
                              struct err *err)
{
    const int64_t n = tokens_count(t);
    int64_t block[TOKENS_BLOCK], begin = 0, n_ends = 0;
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < n; i += TOKENS_BLOCK) {
        const int64_t len = min_i64(n - i, TOKENS_BLOCK);

        npy_wholes(&t->array, npy_element(&t->array, i), len, block);
        rc = tokens_check(s, t, i, len, block, err);
        for (int64_t k = 0; rc == 0 && k < len; k++)
            if (block[k] == end) {
                rc = tokens_packed_add(s, t, begin, i + k + 1, err);
                begin = i + k + 1;
                n_ends++;
            }
    }
    if (rc == 0 && n_ends == 0)
        return err_set(err, ERR_CORRUPT,
                       "%s: none of its %lld tokens is %lld, which ends a document "
                       "(data.end_token); want the end token of the file's tokenizer, or set "
                       "data.pack false",
                       t->path, (long long)n, (long long)end);
    return rc < 0 ? rc : tokens_packed_add(s, t, begin, n, err);
}

int tokens_pack(struct tokens *s, int64_t end, struct err *err)
{
    packing_init(&s->packing, sequence_context(&s->base));
    for (int i = 0; i < s->n_texts; i++)
        if (tokens_packed_find(s, &s->text[i], end, err) < 0)
            return err->code;
    if (s->packing.n_samples == 0)
        return err_set(err, ERR_CORRUPT,
                       "%s: its documents have one token each, want one with two at least, of "
                       "which the second is the target of the first; is data.end_token wrong?",
                       s->text[0].path);
    sequence_pack(&s->base);
    s->base.n_samples = s->packing.n_samples;
    return 0;
}

/* The text with token number `at` of all texts. */
static const struct tokens_text *tokens_packed_text(const struct tokens *s, int64_t at)
{
    int low = 0, high = s->n_texts;

    while (high - low > 1) {
        const int middle = (low + high) / 2;

        if (s->text[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    return &s->text[low];
}

int tokens_packed_row(const struct tokens *s, int64_t i, int field, int32_t *room, uint8_t *raw,
                      struct err *err)
{
    const struct packing *p = &s->packing;
    int64_t n = 0;

    if (field == SEQUENCE_STARTS) {
        packing_starts(p, i, room);
        return 0;
    }
    for (const struct packing_piece *k = packing_first(p, i); k; k = packing_next(p, k)) {
        const struct tokens_text *t = tokens_packed_text(s, k->at);

        if (tokens_read(s, t, k->at - t->at + (field == SEQUENCE_TARGETS), k->n, room + n, raw,
                        err) < 0)
            return err->code;
        n += k->n;
    }
    for (; n < p->context; n++)
        room[n] = field == SEQUENCE_TARGETS ? SAMPLE_IGNORED : 0;
    return 0;
}
