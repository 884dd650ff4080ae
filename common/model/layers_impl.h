/* layers_impl - what the files of model.layers share.
 *
 *   layers.c        the network, and the job's keys
 *   layers_walk.c   the list: names, branches, repetition
 *   layers_read.c   the keys of one layer
 *   layers_kinds.c  the table of layers
 *
 * Only these files include this header.
 *
 * Threads: as the graph; the table is constant. */
#ifndef MODEL_LAYERS_IMPL_H
#define MODEL_LAYERS_IMPL_H

#include "config/tree.h"
#include "model/layer.h"

enum { LAYERS_MOST_OPERANDS = NODE_MAX_IN - 1 };

/* A list of names. */
struct layer_names {
    int n;
    const char *v[LAYERS_MOST_OPERANDS];
};

/* The keys of all kinds of layers; each kind has rows for some.  Pairs are for rows and columns. */
struct layer_args {
    int64_t channels, groups, units, size, vocab, width, dim;
    int64_t kernel[2], stride[2], padding[2], dilation[2], output_padding[2], scale[2];
    int bias, is_smooth;
    double p, eps, std;
    struct layer_recurrent recurrent;
    struct layer_heads heads;
    struct layer_names names;
    struct option_ints list;
    struct layer_operand operand[LAYERS_MOST_OPERANDS]; /* KIND_READS: those of `names` */
    int *part;                                          /* KIND_SAVES: [names.n], to be filled */
};

/* The form that h must have (net_fold, net_unfold). */
enum layer_form {
    FORM_WHOLE, /* sequences are [N,T,C] */
    FORM_ROWS,  /* they are rows */
    FORM_ANY,
};

enum {
    KIND_READS = 1,   /* `names` are saved values */
    KIND_SAVES = 2,   /* `names` are new ones, of its parts */
    KIND_INDICES = 4, /* h is whole numbers, not real ones */
};

struct layer_kind {
    const char *name;
    const struct option *row; /* NULL: the layer has no keys.  A value alone is the first one's */
    int n_rows;
    enum activation act; /* of a layer that is an activation alone */
    void (*build)(struct net *m, const char *name, const struct layer_args *a);
    enum layer_form form;
    unsigned flags;
};

/* A row of type OPT_INT with this count is a pair, one of type OPT_NAME a list of names.  Others
 * with lists are of type OPT_INTS. */
enum { COUNT_PAIR = 2, COUNT_NAMES = LAYERS_MOST_OPERANDS };

extern const struct layer_kind layer_kinds[];
extern const int n_layer_kinds;

/* ---- reading ---- */

struct reading {
    struct arena *arena;
    size_t *at; /* of a failure: where in the text */
    struct err *err;
};

int layers_fail(const struct reading *r, const struct tree *t, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

int layers_is_word(const struct tree *t, const char *word);

/* The kind with this word.  Fails, and names all. */
int layers_find_kind(const struct reading *r, const struct tree *word,
                     const struct layer_kind **out);

/* The layer's keys.  args: what stands behind the word, or NULL. */
int layers_read_args(const struct reading *r, const struct layer_kind *k, const struct tree *word,
                     const struct tree *args, struct layer_args *a);

/* One name, which is `key`'s value. */
int layers_read_name(const struct reading *r, const char *key, const struct tree *value,
                     const char **out);
/* A whole number from 1 to `most`. */
int layers_read_count(const struct reading *r, const char *key, const struct tree *value,
                      int64_t most, int64_t *out);

/* ---- the list ---- */

/* h becomes the field `name` of the samples, or the first one; `layer` is for the message. */
int layers_take_input(struct net *m, const char *layer, const char *name);

/* Build the layers of the list in m, whose h is their input; m NULL: the list is only checked.
 * outline gets a line for each layer; NULL: none is wanted. */
int layers_walk(const char *text, size_t len, const struct reading *r, struct net *m,
                struct buf *outline);

#endif
