/* base - turns frozen weights into codes, and appends the graph's nodes again, each behind those
 * that unpack what it reads.
 *
 * Forward and backward nodes unpack for themselves, so nothing that was unpacked stays in memory
 * between the two. */
#include "program/base.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/infer.h"
#include "op/op.h"
#include "tensor/blocks.h"

struct base {
    struct graph *g;
    enum dtype form, compute;
    struct err *err;
};

int base_is_scales(const char *name)
{
    const size_t n = strlen(name), m = strlen(BASE_SCALES);

    return n > m && !strcmp(name + n - m, BASE_SCALES);
}

/* ---- the values ---- */

static int base_takes(const struct value *v)
{
    return v->role == VALUE_PARAM && v->info->frozen && v->shape.n >= 2 &&
           (v->info->kind == PARAM_WEIGHT || v->info->kind == PARAM_EMBEDDING);
}

static void base_pack_value(struct base *b, int id)
{
    struct graph *g = b->g;
    int scales = NO_VALUE;

    if (b->form == DTYPE_I8)
        scales = graph_value(g, VALUE_BASE, DTYPE_F32,
                             SHAPE(blocks_of(shape_elements(&g->value[id].shape))),
                             arena_printf(&g->arena, "%s" BASE_SCALES, g->value[id].name));
    g->value[id].role = VALUE_BASE;
    g->value[id].dtype = b->form;
    g->value[id].partner = scales;
}

/* ---- the nodes ---- */

/* 1: the node reads the codes of a base through in[i], and needs the numbers. */
static int base_needs_numbers(const struct base *b, const struct node *n, int i)
{
    const struct value *v = n->in[i] == NO_VALUE ? NULL : &b->g->value[n->in[i]];
    const int is_typed = (int)(op_get(n->op)->typed_in >> i & 1);

    return v && v->role == VALUE_BASE && !(is_typed && v->dtype == b->compute);
}

/* The numbers of the codes, which a new node makes for n; NO_VALUE: *b->err says why not. */
static int base_unpack(struct base *b, const struct node *n, int codes)
{
    const int in[] = {[UNPACK_CODES] = codes, [UNPACK_SCALES] = b->g->value[codes].partner};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    const char *name = arena_printf(&b->g->arena, "%s.%s.unpack", n->name, b->g->value[codes].name);

    return graph_node(b->g, OP_unpack, NULL, in, 2, out, name, b->err) < 0 ? NO_VALUE
                                                                           : out[UNPACK_Y];
}

/* Append an embedding whose table is packed. */
static int base_append_rows(struct base *b, const struct node *n)
{
    const int table = n->in[EMBEDDING_TABLE];
    const int in[] = {[UNPACK_ROWS_CODES] = table,
                      [UNPACK_ROWS_SCALES] = b->g->value[table].partner,
                      [UNPACK_ROWS_TOKENS] = n->in[EMBEDDING_TOKENS],
                      [UNPACK_ROWS_POSITION] = n->in[EMBEDDING_POSITION]};
    int out[NODE_MAX_OUT] = {[UNPACK_ROWS_Y] = n->out[EMBEDDING_Y]};

    return graph_node(b->g, OP_unpack_rows, NULL, in, 4, out, n->name, b->err);
}

static void base_append_node(struct base *b, const struct node *n)
{
    const int id = graph_append(b->g, n);

    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NO_VALUE && b->g->value[n->out[i]].producer >= 0)
            b->g->value[n->out[i]].producer = id;
}

/* Append a node of the graph as it was, behind the nodes that it needs. */
static int base_append(struct base *b, struct node n)
{
    /* Positions that begin anew in each document are looked up in the whole table. */
    const int packs_rows = n.op == OP_embedding && !op_has(&n, EMBEDDING_STARTS) &&
                           base_needs_numbers(b, &n, EMBEDDING_TABLE);

    b->g->block = n.block;
    for (int i = 0; i < n.n_in; i++) {
        const int codes = n.in[i];

        if (!base_needs_numbers(b, &n, i) || (packs_rows && i == EMBEDDING_TABLE))
            continue;
        n.in[i] = base_unpack(b, &n, codes);
        if (n.in[i] == NO_VALUE)
            return b->err->code;
        for (int k = i + 1; k < n.n_in; k++)
            if (n.in[k] == codes)
                n.in[k] = n.in[i];
    }
    if (packs_rows)
        return base_append_rows(b, &n);
    base_append_node(b, &n);
    return 0;
}

static int base_append_all(struct base *b, const struct node *node, int n_nodes)
{
    struct graph *g = b->g;
    const int n_forward = g->n_forward, block = g->block;
    int rc = 0;

    g->n_nodes = 0;
    for (int k = 0; k < n_nodes && rc == 0; k++) {
        rc = base_append(b, node[k]);
        if (k + 1 == n_forward)
            g->n_forward = g->n_nodes;
    }
    g->block = block;
    return rc;
}

int program_pack_base(struct graph *g, enum dtype form, enum dtype compute, struct err *err)
{
    struct base b = {.g = g, .form = form, .compute = compute, .err = err};
    const int n_values = g->n_values, n_nodes = g->n_nodes;
    struct node *node;
    int rc;

    ASSERT(form == DTYPE_F32 || form == DTYPE_BF16 || form == DTYPE_I8);
    if (form == DTYPE_F32)
        return 0;
    for (int v = 0; v < n_values; v++)
        if (base_takes(&g->value[v]))
            base_pack_value(&b, v);
    node = xmalloc(((size_t)n_nodes + 1) * sizeof *node);
    memcpy(node, g->node, (size_t)n_nodes * sizeof *node);
    rc = base_append_all(&b, node, n_nodes);
    free(node);
    return rc;
}
