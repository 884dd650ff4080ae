/* sequence - what data sets of token sequences have in common.
 *
 * Sample i of n tokens, with `context` tokens a sample (the job's model.context), is the tokens
 * i*context .. i*context + context - 1; its targets are the tokens one place later.  So n tokens
 * are (n - 1) / context samples, and every token but the last few is an input once.
 *
 * With data.pack a sample is made of whole documents instead (data/packing.h), and has one field
 * more, SEQUENCE_STARTS: for each token the place in the sample of its document's first token.  A
 * network then lets no token see another document, and counts its position from there.
 *
 * Of pairs (model.loss: dpo) a sample has two texts, and other fields: SAMPLE_PAIRS.
 *
 * Threads: pure. */
#ifndef DATA_SEQUENCE_H
#define DATA_SEQUENCE_H

#include "data/dataset.h"

enum { SEQUENCE_TOKENS, SEQUENCE_TARGETS, SEQUENCE_STARTS }; /* the fields */
enum { SEQUENCE_CHOSEN = 1, SEQUENCE_ANSWERS };              /* those of pairs behind the tokens */

/* data.pack, for the member at `at` of a format's own struct. */
#define SEQUENCE_PACK_ROW(at)                                                                     \
    {                                                                                             \
        "data.pack", OPT_BOOL, at, "false",                                                       \
            .help = "Samples are made of whole documents, several in one: no token sees another " \
                    "document, or is another one's target, and positions begin anew in each. "    \
                    "For networks with causal attention: model.arch gpt or gpt2, or a folder of " \
                    "transformers' (model.import)."                                               \
    }

/* Make the base of a data set of sequences, all but n_samples, with `vocab` different tokens; rows
 * are I32, made in the caller's room.  Fails with ERR_CONFIG if the model has no context. */
int sequence_init(struct dataset *ds, const struct dataset_ops *ops,
                  const struct dataset_request *request, int64_t vocab, struct err *err);

/* Give the data set the field SEQUENCE_STARTS. */
void sequence_pack(struct dataset *ds);

/* Let the samples be pairs. */
void sequence_pair(struct dataset *ds);

/* Tokens of a sample, or of each text of a pair. */
static inline int64_t sequence_context(const struct dataset *ds)
{
    const struct shape *s = &ds->spec.field[SEQUENCE_TOKENS].shape;

    return s->dim[s->n - 1];
}

/* The samples that n tokens of the text `what` are; fails with ERR_CORRUPT if there is none. */
int sequence_samples(int64_t *n_samples, const struct dataset *ds, int64_t n_tokens,
                     const char *what, struct err *err);

#endif
