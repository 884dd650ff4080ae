/* folder_impl - what the parts of the folder's reader share: the description of a network by its
 * config.json, and the appending of nodes.
 *
 * Threads: one reading is one thread's. */
#ifndef IMPORT_FOLDER_IMPL_H
#define IMPORT_FOLDER_IMPL_H

#include "import/folder.h"

enum { FOLDER_MOST_LAYERS = 1000, FOLDER_MOST_CLASSES = 1 << 20, FOLDER_BATCH = 13 };

/* Where a family has RMS norms of queries and keys. */
enum folder_qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_ALL };

/* Which products of the attention have a bias. */
enum folder_bias { BIAS_NONE, BIAS_KEY, BIAS_QKV };

enum folder_window {
    WINDOW_NONE,   /* sliding_window means nothing to it */
    WINDOW_ALL,    /* all layers slide, where sliding_window is a number */
    WINDOW_TYPES,  /* with use_sliding_window, by layer_types or from max_window_layers on */
    WINDOW_PATTERN /* by layer_types, or all but each sliding_window_pattern-th */
};

/* Where the norms of a layer stand. */
enum folder_norms {
    NORMS_BEFORE, /* attention and MLP */
    NORMS_BEHIND, /* them */
    NORMS_BOTH
};

struct folder_form;

/* A family is the difference from Llama, or a form of its own. */
struct folder_family {
    const char *type;               /* model_type */
    const struct folder_form *form; /* NULL: as Llama, by the rows of folder_config.c */
    int packs; /* as import_network.packs: its positions are rotary (folder_rope.c), or learnt */
    enum folder_bias bias;
    enum folder_qk_norm qk_norm;
    enum folder_window window;
    enum folder_norms norms;
    int norms_add_one;       /* 1: a norm multiplies by 1 + weight */
    int scales_embedding;    /* 1: by the root of hidden_size */
    int has_gelu;            /* 1: the gate is gelu's by tanh, not silu */
    const char *const *keys; /* of its config.json alone, ended by NULL; NULL: none */
    int is_joined;           /* 1: qkv_proj and gate_up_proj are one product each */
    int skips_rope;          /* 1: no_rope_layers says which layers have no rotary positions */
    int has_mlp_bias;
    /* Of keys that config.json lacks: */
    int tied;
    int64_t head_dim; /* 0: hidden_size / num_attention_heads */
    double theta;
    double sliding_theta; /* 0: layers that slide have the positions of the others */
    double query_scalar;  /* 0: head_dim */
    int64_t padding;      /* -1: none */
    int64_t span;         /* sliding_window; 0: none */
};

struct folder_layer {
    int slides, has_rope;
};

enum rope_kind {
    ROPE_DIVIDED, /* all frequencies, by `factor` */
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONG /* each column by a factor of its own (folder_config.column) */
};

/* Rotary positions of layers. */
struct folder_rope {
    enum rope_kind kind;
    double theta, factor, low, high;
    double positions; /* of pre-training */
    double scale;     /* of cos and sin */
};

enum { FOLDER_MOST_HEAD = 4096 };

/* The network by its config.json. */
struct folder_config {
    const struct folder_family *family;
    const char *path; /* the folder's */
    int64_t vocab, width, inner, layers, heads, groups, head_dim, positions, window, padding,
        context;
    double eps, std, dropout;
    double drop_results, drop_rows; /* GPT-2: of attention and MLP; of the embedding */
    int64_t classes;                /* of networks that classify */
    int64_t side, patch, channels;  /* of networks of pictures */
    int64_t types;                  /* BERT: rows of the table of token types */
    double drop_head;               /* BERT: before the classifier; below 0: drop_results */
    int scales_by_layer;            /* GPT-2: scores of layer i are divided by i + 1, too */
    double query_scalar;            /* scores are divided by its root; 0: head_dim */
    double cap;                     /* of logits: cap tanh(x / cap); 0: none */
    int tied, attention_bias, mlp_bias;
    struct folder_rope rope[2];            /* of layers that do not slide, and of those that do */
    float column[2][FOLDER_MOST_HEAD / 2]; /* ROPE_LONG: up to `positions` tokens, and beyond */
    struct folder_layer layer[FOLDER_MOST_LAYERS];
};

/* Fill c, but for the context, from config.json's text.  *written gets the text that a checkpoint
 * has beside its float32 weights, for free(). */
int folder_config_read(const char *text, size_t len, struct folder_config *c, char **written,
                       struct err *err);
const struct folder_family *folder_family_of(const char *type); /* NULL: there is none */
char *folder_family_names(void);                                /* "llama, ..."; for free() */

/* cos and sin of the rotary positions `rope` of c, [context, head_dim] each, as transformers
 * computes them in float32. */
void folder_turns(const struct folder_config *c, const struct folder_rope *rope, float *cosine,
                  float *sine);

/* ---- nodes ---- */

struct folder_make {
    struct import_network *n;
    const char *module; /* of the nodes that follow */
    struct import_arg *arg;
    int n_args, room_values, room_nodes, room_tensors;
};

/* Room for a network of so many layers. */
void folder_make_begin(struct folder_make *m, struct import_network *n, int64_t layers);
/* Enter the module, a format and its arguments. */
void folder_module(struct folder_make *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

int folder_input(struct folder_make *m, const char *name, int64_t context);
/* The parameter `name` of the present module, [a,b], or [a] if b is 0. */
int folder_param(struct folder_make *m, const char *name, int64_t a, int64_t b);
int folder_constant(struct folder_make *m, const char *name, enum import_type type, int64_t a,
                    int64_t b, const void *elements); /* [1,1,a,b] */

/* The same, [a], that begins as zeros with model.init: random. */
int folder_zeros(struct folder_make *m, const char *name, int64_t a);

/* Any other shape, and an input of pictures. */
int folder_param_of(struct folder_make *m, const char *name, int n_dims, const int64_t *dim);
int folder_pixels(struct folder_make *m, const char *name, int64_t channels, int64_t side);

/* The numbers 0 to n - 1, [1,n]. */
int folder_numbers(struct folder_make *m, const char *name, int64_t n);

/* Append nodes; each returns the value that it makes. */
int folder_embed(struct folder_make *m, int table, int tokens, int64_t padding);
int folder_linear(struct folder_make *m, int x, int weight, int bias); /* bias: or NO_VALUE */
/* The layer `name` of the module `of`, with its weight [out,in] and bias. */
int folder_dense(struct folder_make *m, const char *of, const char *name, int x, int64_t out,
                 int has_bias);
int folder_rms_norm(struct folder_make *m, int x, int weight, double eps); /* weight: likewise */
int folder_layer_norm(struct folder_make *m, int x, double eps); /* with its two parameters */
int folder_product(struct folder_make *m, int x, int weight);    /* x weight, [in,out] */
int folder_dropout(struct folder_make *m, int x, double p);
int folder_heads(struct folder_make *m, int x, int64_t heads); /* [N,T,H*D]: [N,T,H,D] */
int folder_join(struct folder_make *m, int x);                 /* and back */
int folder_turn(struct folder_make *m, int x);                 /* [N,T,H,D] and [N,H,T,D] */
int folder_both(struct folder_make *m, const char *target, int a, int b); /* as a is */
int folder_one(struct folder_make *m, const char *target, int x);
int folder_with(struct folder_make *m, const char *target, int x, double other);
int folder_gelu_tanh(struct folder_make *m, int x);
int folder_slice(struct folder_make *m, int x, int64_t start, int64_t end); /* of the last */
int folder_cat(struct folder_make *m, int a, int b);                        /* of the last */
/* x [N,C,S,S] to [N,tokens,out], a token for each patch of its sides; bias may be NO_VALUE. */
int folder_patches(struct folder_make *m, int x, int weight, int bias);
/* x [N,T,C] with a row before its own, the same in all samples; and its first row, [N,C]. */
int folder_put_before(struct folder_make *m, int row, int x);
int folder_first(struct folder_make *m, int x);
/* [N,1,1,T]: 1 where the token is another one than the padding. */
int folder_is_no_padding(struct folder_make *m, int tokens, int64_t padding);
/* mask: a value, or NO_VALUE: causal, or FOLDER_SEES_ALL.  scale: of scores; 0: by the root of
 * the head's width. */
enum { FOLDER_SEES_ALL = -2 };
int folder_attend(struct folder_make *m, const int qkv[3], int mask, double dropout, double scale);

/* ---- forms ---- */

extern const struct folder_form folder_bert, folder_gpt2, folder_vit;

#endif
