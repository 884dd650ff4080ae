/* generator - a language model that takes tokens one after another, and says what may follow.
 *
 * It keeps the keys and values of all tokens so far, so a token costs one pass over the weights
 * whatever came before (generate/unroll.h).  The numbers are float32.  Tokens of a long text are
 * taken in pieces of several rows, a new token alone.  The cache, and the programs that read it,
 * grow with the text, up to the network's context.
 *
 * Life:    generator_open -> generator_feed ... -> generator_close.
 * Threads: one, that on which it was opened.
 * Errors:  ERR_UNSUPPORTED (no language model, or of a kind that cannot be computed token by
 *          token), ERR_CONFIG (weights of another network), ERR_NOMEM, and those of reading. */
#ifndef GENERATE_GENERATOR_H
#define GENERATE_GENERATOR_H

#include "ckpt/safetensors.h"
#include "model/model.h"

struct generator; /* opaque */

struct generator_request {
    const struct model_options *model; /* borrowed until generator_close */
    const struct st_file *weights;     /* a checkpoint's; borrowed during the call */
    int64_t context;                   /* tokens that the network takes at most, >= 2 */
    int64_t vocab;                     /* different tokens; 0: as many as the weights have */
    int n_threads;
};

int generator_open(const struct generator_request *r, struct generator **out, struct err *err);
void generator_close(struct generator *g); /* NULL is fine */

int64_t generator_vocab(const struct generator *g);

/* The tokens that it can still take. */
int64_t generator_room(const struct generator *g);

/* Take n >= 1 tokens, at most generator_room.  *logits [generator_vocab()] are those of the token
 * that follows, valid until the next call. */
int generator_feed(struct generator *g, const int32_t *token, int64_t n, const float **logits,
                   struct err *err);

#endif
