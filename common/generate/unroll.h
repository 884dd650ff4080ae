/* unroll - the graph of a language model for a few tokens at a time, whose attention reads the keys
 * and values of all tokens before them from a cache.
 *
 * The model is built twice: for `rows` tokens, which gives the nodes, and for its whole context,
 * which says what depends on a token's place: tables with a row for each place (rotary positions),
 * and windows of attention.  In the graph of few tokens each such table becomes an input, and each
 * attention becomes nodes that read the cache, the rows at hand, and a mask:
 *
 *     [H heads, R rows at hand, P places of the cache, D numbers of a head]
 *     scores [H,R,P+R] = (q k_cache^T, q k^T) / sqrt(D) + mask [R,P+R]
 *     y [H,R,D] = softmax(scores) (v_cache, v)
 *
 * The loss is left out.  This is right where causal attention alone joins tokens, which is what
 * data.pack needs, too (model_arch.packs, import_network.packs).
 *
 * Life:    unroll_build -> the owner takes `g`, and places all inputs -> unroll_fini.
 * Threads: one at a time.
 * Errors:  ERR_CONFIG, ERR_UNSUPPORTED: the network cannot be computed token by token. */
#ifndef GENERATE_UNROLL_H
#define GENERATE_UNROLL_H

#include "model/model.h"

/* An attention.  Its values are inputs: the cache F32 [heads,P,width], which is read, and what is
 * to be added to it, F32 [heads,R,width], which is written. */
struct unroll_layer {
    int64_t heads, width, window; /* window: as attr.attention.window */
    int key, value;               /* the cache */
    int new_key, new_value;
    int mask; /* F32 [R,P+R]; layers of equal windows have one */
};

/* An input that has a row for each token: those of its places. */
struct unroll_table {
    int value;
    int64_t width;
    const float *rows; /* [context,width], in the graph of the whole context; NULL: the input is
                        * I32 [1,R], the places themselves */
};

struct unroll {
    struct graph *g;
    int64_t rows, places, context, vocab;
    struct unroll_layer *layer;
    struct unroll_table *table;
    int n_layers, n_tables;
    struct graph *whole; /* of the whole context */
};

struct unroll_request {
    const struct model_options *model;
    int64_t context, vocab; /* tokens that the network takes at most, different tokens */
    int64_t rows, places;   /* R < context, P */
};

int unroll_build(const struct unroll_request *r, struct unroll *out, struct err *err);
void unroll_fini(
    struct unroll *u); /* of a zeroed one, too; g only if the owner has left it there */

/* The graph as model_build makes it, for samples of n tokens.  has_starts: with the field of packed
 * documents. */
int unroll_model(const struct unroll_request *r, int64_t n, int training, int has_starts,
                 struct graph **out, struct err *err);

#endif
