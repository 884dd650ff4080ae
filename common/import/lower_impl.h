/* lower_impl - the state of a lowering, and what builders of operators are made of.
 *
 * A builder reads its inputs by lower_in and arguments by lower_int and its like, appends nodes by
 * l->c (op/compose.h), and sets its outputs by lower_set.  After a failure all functions do nothing
 * and give harmless values, so a builder is a plain list of calls; the loop in lower.c looks at
 * l->c.rc after each node.
 *
 * Threads: as the graph. */
#ifndef IMPORT_LOWER_IMPL_H
#define IMPORT_LOWER_IMPL_H

#include "import/fold.h"
#include "import/lower.h"
#include "op/compose.h"

/* An extent: outer * inner, and if is_batch outer * batch * inner: the batch lies inside `outer`
 * and outside `inner` repetitions. */
struct extent {
    int64_t outer, inner;
    int is_batch;
};

enum lowered_kind {
    LOWERED_NONE,
    LOWERED_VALUE, /* a graph value */
    LOWERED_HOST,  /* a constant, `constant`, which becomes a graph value where an operator reads
                      it; its dimensions are those at export */
    LOWERED_INT,   /* one integer: dim[0] */
    LOWERED_NEXT,  /* the next value of the buffer `tensor`, a running statistic */
    LOWERED_DRAW,  /* random numbers, 0 or `scale`: see import/builders_random.c */
};

/* A constant, and the graph values that it has become: [0] of F32, [1] of I32.  They are made anew
 * after operators in place changed constants. */
struct lower_constant {
    const struct host_tensor *t; /* NULL: the elements are not in memory */
    int value[2], age[2];
    struct mask_form form; /* as a mask of attention, if has_form */
    int has_form, form_age;
};

struct lowered {
    enum lowered_kind kind;
    int value;
    int n;
    struct extent dim[SHAPE_MAX_DIMS]; /* as PyTorch has it */
    int at[SHAPE_MAX_DIMS];            /* dimension d is dimension at[d] of the graph value */
    unsigned repeats;                  /* bit d: the graph value has extent 1 there */
    int tensor;                        /* NEXT: of the network's tensors */
    struct lower_constant *constant;   /* HOST */
    int stage;                         /* DRAW: see there */
    double keep, scale;                /* DRAW */
    int64_t tag;                       /* DRAW: of its random numbers */
    int is_mixed;                      /* it depends on several samples: see lower_batch.c */
    int bounded; /* VALUE: 1 + the graph value whose whole numbers are low .. high; 0: unknown */
    int64_t low, high;
};

/* Why a value must not be read. */
enum stale {
    STALE_NOT,
    STALE_CHANGED, /* what shares its memory was changed, it was not */
    STALE_COUNTS,  /* it counts the steps of a batch norm */
    STALE_TIED,    /* a buffer in the memory of a trained parameter, without a gradient */
};

/* The use that batch norms make of a tensor of the file. */
enum norm_use {
    NORM_NONE,
    NORM_STATISTIC, /* a running mean or variance */
    NORM_COUNT,     /* the number of its steps, which the writer of checkpoints counts */
};

/* The node of which a view is output `out`; NULL: the value is no view that can be made again. */
struct lower_view {
    const struct import_node *node;
    int out;
};

struct lower {
    struct net *m;
    struct compose c; /* its rc is the lowering's */
    const struct import_network *net;
    const struct import_choices *choices;
    const struct import_node *node; /* being built */
    struct lowered *value;          /* of the network's values */
    struct host_tensor **host;      /* [values]: the constant that it is, or NULL */
    struct fold_host fold;          /* of them */
    char *norm;                     /* [tensors]: enum norm_use */
    int age;                        /* how often an operator in place changed constants */
    int *base, *next; /* [values]: the value whose memory this one shares, and the next of those
                       * that share it, in a ring */
    char *is_view;    /* [values]: 1: it has a part or another shape of the base */
    char *is_stale;   /* [values]: enum stale */
    struct lower_view *view; /* [values] */
    int n_refreshed;         /* views that are being made again, each to make another one */
    int *param;              /* [tensors]: graph value; NO_VALUE: none yet */
    int64_t batch;           /* at export */
    int batch_symbol;        /* of the network's symbols; -1: none */
    int reads_mixed;         /* 1: the node reads a value that is mixed */
    const char *block;       /* the module whose block is open, its first block_length letters */
    size_t block_length;     /* 0: none is open */
    struct arena arena;      /* of the lowering alone */
};

char *lower_norm_uses(const struct import_network *n); /* [tensors]: enum norm_use; to free */

struct import_builder {
    const char *target;
    void (*build)(struct lower *l, int kind);
    int kind; /* handed to build */
};

/* ---- hostile files: gate.c ---- */

/* Sums and products of two such integers, and of one and an extent, fit in 64 bits. */
#define LOWER_MAX_INT ((int64_t)INT32_MAX)
/* Fails unless the node has a first output that is a tensor: builders rely on it. */
void lower_gate(struct lower *l);
/* Fails unless the outputs that the builder set are what the file says: type, and shape at export.
 */
void lower_net(struct lower *l);
/* Fails unless a product's operands have n_a and n_b dimensions, 0: one or more; 1: they do. */
int lower_have_ranks(struct lower *l, const struct lowered *a, int n_a, const struct lowered *b,
                     int n_b);
/* The dimensions of the argument `dim` as bits; all n of them if it is absent. */
unsigned lower_dims(struct lower *l, int place, int n);
/* How many of x's last dimensions a norm takes, and the number of their elements: those that the
 * argument normalized_shape names. */
int lower_normalized(struct lower *l, const struct lowered *x, int64_t *n);

/* Tables, each ended by a target of NULL; and all of them, ended by NULL. */
extern const struct import_builder import_layers[], import_linear[], import_norms[], import_sizes[],
    import_decomposed[], import_math[], import_views[], import_random[], import_attention[],
    import_lines[], import_index[], import_recurrent[], import_images[], import_formulas[],
    import_einsum[], import_choose[], import_products[], import_scatter[], import_losses[];
extern const struct import_builder *const import_tables[];

/* "node relu_3 (relu.default) in layer1.0: ..."  Sets l->c.rc. */
void lower_fail(struct lower *l, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int lower_failed(const struct lower *l);
double lower_drop_rate(const struct lower *l, double of_file); /* the choice, or the file's */
/* The name of the node's parameter or buffer, or NULL. */
const struct import_tensor *lower_tensor(const struct lower *l, const char *name, int place);

/* ---- arguments of the node, by name or place ---- */

const struct import_arg *lower_arg(const struct lower *l, const char *name, int place);
int lower_value_of(const struct lower *l, const char *name, int place); /* a network's value */
/* The lowered value; fails if it has none, or is stale. */
struct lowered lower_at(struct lower *l, int value);
/* The lowered input; kind LOWERED_NONE if it is absent. */
struct lowered lower_in(struct lower *l, const char *name, int place);
/* Integers from -LOWER_MAX_INT to LOWER_MAX_INT; others fail. */
int64_t lower_int(struct lower *l, const char *name, int place, int64_t def);
/* Likewise, but others become the nearest of these: the start or end of a slice. */
int64_t lower_clamped(const struct lower *l, const char *name, int place, int64_t def);
double lower_real(const struct lower *l, const char *name, int place, double def);
/* Up to `most` integers, a single one as a list of one; returns their number, 0 if absent. */
int lower_ints(struct lower *l, const char *name, int place, int64_t *to, int most);
/* Two integers; one counts for both, `def` if absent. */
void lower_pair(struct lower *l, const char *name, int place, int def, int to[2]);
int lower_dim(struct lower *l, const char *name, int place, int n, int def); /* a dimension of n */

/* ---- lowered values ---- */

struct extent extent_of(int64_t n);
int64_t extent_size(const struct lower *l, struct extent e);     /* for the graph's batch */
int64_t extent_exported(const struct lower *l, struct extent e); /* at export */

int extent_is_one(struct extent e);
int extent_equal(struct extent a, struct extent b);

/* Fail if one of x's dimensions `dims` has the batch in it: "it reduces dimension 0, the batch".
 * Every operator asks whose result for one element depends on others along these dimensions. */
void lower_refuse_batch(struct lower *l, const struct lowered *x, unsigned dims, const char *does);
void lower_batch_check(struct lower *l, struct lowered *x); /* an output of the node */

/* ---- symbolic sizes (lower_sizes.c) ---- */

void lower_sizes_begin(struct lower *l);
/* 1: the file says that extent d of the network's value follows from the batch; 0: it does not;
 * -1: the export fixed all sizes. */
int lower_is_batch(const struct lower *l, const struct import_value *v, int d);
void lower_sizes_refuse(struct lower *l); /* numbers of the node that follow from the batch */
void lower_sizes_check(struct lower *l);  /* that its outputs have the batch where the file says */

/* ---- blocks of train.recompute (lower_block.c) ---- */

/* The nodes that follow are those of `module`, "" at the end: begin or end a block. */
void lower_block(struct lower *l, const char *module);

/* ---- gradients (lower_gradient.c) ---- */

/* The outputs of the node, whose graph values begin at n_before, have no gradient. */
void lower_without_gradient(struct lower *l, int n_before, int is_in_place);
void lower_detach(struct lower *l); /* the node is a detach */

void lower_set(struct lower *l, int i, struct lowered v); /* output i of the node */
/* x with `value` in place of its graph value, which has the same layout. */
struct lowered lower_with(struct lowered x, int value);
/* x, in the layout before the permute if one made it. */
struct lowered lower_unturned(const struct lower *l, struct lowered x);
/* A graph value whose dimensions stand in PyTorch's order; permutes are looked through. */
struct lowered lower_plain_value(const struct lower *l, int value, int n, const struct extent *dim);
/* Images [N,H,W,C]; n is the extent of N. */
struct lowered lower_image_value(const struct lower *l, int value, struct extent n);

/* x as a graph value: a constant becomes one of F32.  A dimension along which all of its elements
 * are equal has extent 1 there, so that a constant of the batch holds for any batch. */
struct lowered lower_real_value(struct lower *l, struct lowered x);
/* A constant, as lowering knows it; of a network's value. */
struct lowered lower_constant(struct lower *l, const struct host_tensor *t);
/* The constant that x is; NULL: it depends on inputs or parameters, or its elements are not here.
 */
const struct host_tensor *lower_host(const struct lowered *x);
struct lowered lower_index_value(struct lower *l, struct lowered x); /* of I32 */
/* Fails if x is a constant with an index that is none of the extent, which PyTorch refuses, too. */
void lower_check_index(struct lower *l, const struct lowered *x, int64_t extent);
/* Likewise for indices of an extent, where negative ones count from the end and a constant mask
 * stands for the places where it is true. */
struct lowered lower_pick_value(struct lower *l, struct lowered x, int64_t extent);
/* 1: the node's tensors are all constants, and it was computed, or failed. */
int lower_fold(struct lower *l, const struct import_node *n);
/* For each node 1 if its tensors are all constants and it can be computed; to free. */
char *lower_constants(const struct import_network *n);

/* ---- memory that values share (alias.c) ---- */

/* Before node n is built: fails if it changes a parameter or buffer in place.  1: nothing is to be
 * built, since it counts the steps of a batch norm. */
int lower_guard(struct lower *l, const struct import_node *n);
void lower_track(struct lower *l, const struct import_node *n); /* after it was built */
/* `out` is what value `changed` became: all of its names mean it now, and its views are stale. */
void lower_rebind(struct lower *l, int changed, int out);
/* ---- changes of views (write.c) ---- */

void lower_note_view(struct lower *l, const struct import_node *n); /* it was built, or folded */
int lower_can_write(const struct lower *l, int v); /* 1: v is a view that can be written through */
/* An operator in place made `out` of the view `changed`: what it shows gets the change, too. */
void lower_write(struct lower *l, int changed, int out);
/* x with y in place of the part that l->node takes, or writes: a slice, or a select. */
struct lowered lower_written(struct lower *l, struct lowered x, struct lowered y, int is_select);
/* Make the stale view v again.  0: it is none that can be. */
int lower_refresh(struct lower *l, int v);
void lower_build(struct lower *l); /* the outputs of l->node, by its builder */

/* The value v, which no other one shares memory with yet, shares that of `base`. */
void lower_join(struct lower *l, int v, int base);

/* The graph value of x with its dimensions in the order `at` (all of x's). */
struct lowered lower_arrange(struct lower *l, struct lowered x, const int *at);
struct lowered lower_plain(struct lower *l, struct lowered x);  /* in PyTorch's order */
struct lowered lower_spread(struct lower *l, struct lowered x); /* nothing repeats any more */
struct lowered lower_channels_last(struct lower *l, struct lowered x); /* dimension 1 is last */
struct lowered lower_last(struct lower *l, struct lowered x, int dim); /* dimension dim is last */
/* x with as many dimensions, ones in front. */
struct lowered lower_rank(struct lower *l, struct lowered x, int n);
struct lowered lower_unsqueeze(struct lower *l, struct lowered x, int dim);
struct lowered lower_squeeze(struct lower *l, struct lowered x, unsigned dims);
/* x without the dimensions `dims`, which its graph value has lost. */
struct lowered lower_without(struct lowered x, unsigned dims, int value);
struct lowered lower_permute(struct lowered x, const int *order);
/* x in the shape that it has at export (`to`). */
struct lowered lower_reshape(struct lower *l, struct lowered x, const int64_t *to, int n);
/* The bits of graph dimensions for bits of x's dimensions. */
unsigned lower_axes(const struct lowered *x, unsigned dims);

void lower_conv1d(struct lower *l, int kind); /* the builder */
/* Likewise of a transposed convolution; kind 1: the arguments are those of convolution. */
void lower_conv_transposed(struct lower *l, int kind);

/* x without dims, or with extents of 1 there.  Over everything the result is mixed; over the batch
 * beside others it fails. */
struct lowered lower_reduce(struct lower *l, enum reduction kind, struct lowered x, unsigned dims,
                            int keep);
/* The binary arithmetic of a and b, with broadcasting. */
struct lowered lower_binary(struct lower *l, enum elementwise kind, struct lowered a,
                            struct lowered b);
void lower_round(struct lower *l, int kind); /* the builder of floor and its like */

/* ---- whole numbers that are computed at run time (builders_integers.c) ---- */

/* x as a graph value of I32: booleans are 0 and 1. */
struct lowered lower_whole(struct lower *l, struct lowered x, enum import_type type);
/* Whole numbers as F32, which operators of real numbers read; others as they are. */
struct lowered lower_as_real(struct lower *l, struct lowered x);
/* 1: the node's result is made of whole numbers alone, and it was built, or failed. */
int lower_integers(struct lower *l, enum elementwise kind);
/* Likewise for a comparison of two tensors of whole numbers. */
int lower_compare_integers(struct lower *l, enum elementwise kind);
/* The sums of whole numbers along a dimension: all of them (cumsum), or the last one, whose
 * dimension is kept or not. */
void lower_integer_sum(struct lower *l, int dim, int is_scan, int keep);
/* Likewise for a clamp of whole numbers. */
int lower_clip_integers(struct lower *l, double least, double most);
struct lowered lower_bounded(struct lowered x, int64_t low, int64_t high); /* x is low .. high */
/* a kind b of I32, with broadcasting. */
struct lowered lower_integers_of(struct lower *l, enum integers kind, struct lowered a,
                                 struct lowered b);
/* Output i: the place of the largest or least element along dim; the argument keepdim is read. */
void lower_set_place(struct lower *l, int i, struct lowered x, int dim, int least);
int lower_is_read(const struct lower *l, int value); /* 1: a node or an output reads the value */
int lower_is_whole(enum import_type type);           /* an integer, no boolean */

/* 1: a b, or a + b, ends a formula that is one operator here, whose result is *y
 * (import/recognise.c). */
int lower_recognise(struct lower *l, const struct lowered *a, const struct lowered *b,
                    struct lowered *y);
int lower_recognise_sum(struct lower *l, const struct lowered *a, const struct lowered *b,
                        struct lowered *y);
/* a, b and c in one layout and rank, and the layout of the result. */
struct lowered lower_meet(struct lower *l, struct lowered *const *x, int n);
/* x times a draw, or a draw divided by a number. */
struct lowered lower_draw_times(struct lower *l, struct lowered draw, struct lowered x);
struct lowered lower_draw_value(struct lower *l, struct lowered draw); /* of empty: zeros */
struct lowered lower_draw_over(struct lower *l, struct lowered draw, double by);
/* Uniform random numbers plus `keep`: their floor is 1 with that probability. */
struct lowered lower_draw_plus(struct lower *l, struct lowered x, double keep);

#endif
