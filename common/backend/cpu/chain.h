/* chain - a kernel made of oneDNN primitives that run one after another.
 *
 * The caller checks only chain_finish: the first failure is kept, later calls do nothing, and
 * chain_finish returns that failure.
 *
 *     struct chain *c = chain_new(b, g, n, err);
 *     int x = chain_tensor(c, CHAIN_IN, 0, dn_image(...));
 *     ...
 *     chain_add(c, pd, args, n_args);
 *     return chain_finish(c, out);
 *
 * If a primitive wants another layout than a tensor has, chain_add puts a temporary in the scratch,
 * and a reorder before the primitive (for an input) or after it (for an output).  Temporaries of a
 * chain lie side by side; the primitives' own scratchpads share the space behind them.
 *
 * The primitives compute in the types of the node's operands.  Where oneDNN has no BF16 (processors
 * without AVX-512), or none that multiplies faster than F32 (dn_widens_bf16), they compute in F32:
 * the chain widens BF16 inputs before the first primitive, and rounds BF16 outputs after the last.
 *
 * Life:    chain_new -> tensors, steps -> chain_finish, which gives the kernel or frees all.
 * Threads: the engine's. */
#ifndef BACKEND_CPU_CHAIN_H
#define BACKEND_CPU_CHAIN_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/onednn.h"

struct chain;

enum { CHAIN_MAX_ARGS = 6, CHAIN_NONE = -1 };
enum chain_place { CHAIN_IN, CHAIN_OUT, CHAIN_TEMP };

struct chain_arg {
    int arg;    /* DNNL_ARG_... */
    int tensor; /* from chain_tensor; CHAIN_NONE: the primitive has no such argument */
    int is_out;
    /* 1: the output is added to what the tensor holds.  The primitive writes a temporary, and the
     * reorder behind it adds.  Not for an output that the chain rounds (BF16). */
    int adds;
    /* Of the output, in place, once it is in its tensor and before it is rounded: one that
     * dn_loses_nan names, or ACT_NONE.  BF16 that is not rounded takes relu alone. */
    enum activation act;
};

/* The kernel of node n.  NULL: failed, *err says why. */
struct chain *chain_new(struct cpu *b, const struct graph *g, const struct node *n,
                        struct err *err);
/* The same for primitives that multiply: convolutions and inner products. */
struct chain *chain_new_products(struct cpu *b, const struct graph *g, const struct node *n,
                                 struct err *err);

/* A tensor of the chain: in[index] or out[index] of the node, or a temporary (index ignored), which
 * has the node's element type. */
int chain_tensor(struct chain *c, enum chain_place place, int index, struct dn_layout layout);

const struct dn_md *chain_md(struct chain *c, int tensor); /* NULL for CHAIN_NONE */
struct dn_md chain_any(struct chain *c, int tensor);       /* same extents, any layout */

/* For the functions that make primitive descriptors. */
struct onednn *chain_onednn(struct chain *c);
struct err *chain_err(struct chain *c);

/* Append the primitive of pd.  Takes pd.  rc is the result of making pd; if that failed, pd is not
 * used. */
void chain_add(struct chain *c, int rc, dnnl_primitive_desc_t pd, const struct chain_arg *args,
               int n_args);

void chain_reorder(struct chain *c, int from, int to);
/* The same for two tensors that may have one address; nothing is done then. */
void chain_copy(struct chain *c, int from, int to);
void chain_sum(struct chain *c, int a, int b, int y); /* y = a + b; b may have extents of 1 */

int chain_finish(struct chain *c, struct kernel **out); /* c NULL: returns chain_new's failure */

#endif
