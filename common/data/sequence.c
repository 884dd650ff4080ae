/* sequence - the spec of token sequences, and how many samples a text is.  The formats tokens and
 * text differ only in where the tokens of a sample come from. */
#include "data/sequence.h"

enum { MOST_CONTEXT = 1 << 20, MOST_VOCAB = 1 << 30 };

int sequence_init(struct dataset *ds, const struct dataset_ops *ops,
                  const struct dataset_request *request, int64_t vocab, struct err *err)
{
    const int64_t context = request->context;

    if (context < 1)
        return err_set(err, ERR_CONFIG,
                       "the job's model has no model.context, which says how many tokens a sample "
                       "has; want a model.arch that reads tokens");
    if (context > MOST_CONTEXT || vocab > MOST_VOCAB)
        return err_set(err, ERR_CONFIG,
                       "samples of %lld tokens out of %lld, want at most %d (model.context) out of "
                       "%d (model.vocab)",
                       (long long)context, (long long)vocab, MOST_CONTEXT, MOST_VOCAB);
    *ds = (struct dataset){.ops = ops,
                           .spec = SAMPLE_SEQUENCES(context, vocab),
                           .room_bytes = (size_t)context * sizeof(int32_t)};
    return 0;
}

void sequence_pack(struct dataset *ds)
{
    ds->spec.field[SEQUENCE_STARTS] =
        (struct sample_field)SAMPLE_STARTS_FIELD(sequence_context(ds));
    ds->spec.n_fields = SEQUENCE_STARTS + 1;
}

void sequence_pair(struct dataset *ds)
{
    const int64_t context = sequence_context(ds), vocab = ds->spec.field[SEQUENCE_TOKENS].n_classes;

    ds->spec = (struct sample_spec)SAMPLE_PAIRS(context, vocab);
    ds->room_bytes = 2 * (size_t)context * sizeof(int32_t);
}

int sequence_samples(int64_t *n_samples, const struct dataset *ds, int64_t n_tokens,
                     const char *what, struct err *err)
{
    const int64_t context = sequence_context(ds);

    *n_samples = n_tokens > 0 ? (n_tokens - 1) / context : 0;
    if (*n_samples > 0)
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "%s: %lld tokens, want at least %lld: model.context, and one that is the last "
                   "target; give more text, or set model.context lower",
                   what, (long long)n_tokens, (long long)context + 1);
}
