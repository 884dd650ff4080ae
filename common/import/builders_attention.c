/* builders_attention - scaled_dot_product_attention, with or without masks and causality, by
 * compose_attention. */
#include "import/lower_impl.h"

/* All of one rank 4, heads second. */
static struct lowered attention_operand(struct lower *l, const char *name, int place)
{
    struct lowered x = lower_in(l, name, place);

    if (!lower_failed(l) && (x.n < 3 || x.n > 4)) {
        lower_fail(l, ERR_UNSUPPORTED, "its %s has %d dimensions, want 3 or 4", name, x.n);
        return x;
    }
    if (x.n == 3)
        x = lower_unsqueeze(l, x, 1);
    return lower_plain(l, x);
}

/* The form of a mask of T x S, which is told once for all layers that read it; MASK_OTHER: it is no
 * constant, or of another size. */
static struct mask_form attention_form(const struct lower *l, const struct lowered *mask, int64_t T,
                                       int64_t S)
{
    const struct host_tensor *t = mask->kind == LOWERED_NONE ? NULL : lower_host(mask);
    struct lower_constant *c = mask->constant;

    if (!t || t->n_dims < 2 || t->dim[t->n_dims - 1] != S || t->dim[t->n_dims - 2] != T)
        return (struct mask_form){.kind = MASK_OTHER};
    if (!c->has_form || c->form_age != l->age)
        c->form = mask_form_of(t);
    c->has_form = 1;
    c->form_age = l->age;
    return c->form;
}

/* 1: the mask lets every key be read, or those that causal attention reads: no matrix is needed. */
static int attention_is_plain(const struct lower *l, const struct lowered *mask, int64_t T,
                              int64_t S, int *causal)
{
    const struct mask_form form = attention_form(l, mask, T, S);

    if (form.kind == MASK_ALL)
        return 1;
    if (form.kind == MASK_OTHER || form.offset != 0 || T != S ||
        (form.kind == MASK_SLIDING && form.width < S))
        return 0;
    *causal = 1;
    return 1;
}

/* Packed documents: rows see no column before their document.  A mask is causal, or the window of a
 * layer that slides. */
static void attention_packed(struct lower *l, const struct lowered *mask, const struct lowered *q,
                             const struct lowered *k, struct compose_attention *a)
{
    const int64_t T = extent_exported(l, q->dim[2]), S = extent_exported(l, k->dim[2]);
    const struct mask_form form = attention_form(l, mask, T, S);
    const int slides = form.kind == MASK_SLIDING && form.offset == 0;

    a->starts = net_starts(l->m);
    if (mask->kind != LOWERED_NONE)
        a->causal = slides || (form.kind == MASK_CAUSAL && form.offset == 0);
    a->window = slides && form.width < S ? form.width : 0;
    if (!a->causal || T != S || T != l->m->g->value[a->starts].shape.dim[1] ||
        !q->dim[0].is_batch || q->dim[0].outer != 1 || q->dim[0].inner != 1)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it cannot keep packed documents apart, as it is not causal, or not of whole "
                   "samples; set data.pack false");
}

/* The mask as compose_attention takes it: extents of 1 where it repeats. */
static void attention_mask(struct lower *l, struct lowered mask, const struct lowered *q,
                           const struct lowered *k, int rank, struct compose_attention *a)
{
    static const int plain[SHAPE_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int at = lower_value_of(l, "attn_mask", 3);

    if (attention_is_plain(l, &mask, extent_exported(l, q->dim[2]), extent_exported(l, k->dim[2]),
                           &a->causal))
        return;
    a->is_bool = l->net->value[at].type == IMPORT_BOOL;
    if (mask.n < 2 || mask.n > rank) {
        lower_fail(l, ERR_UNSUPPORTED, "its mask has %d dimensions, want 2 to %d", mask.n, rank);
        return;
    }
    if (rank == 3 && mask.n == 3)
        mask = lower_unsqueeze(l, mask, 1);
    mask = lower_arrange(l, lower_rank(l, mask, 4), plain);
    lower_refuse_batch(l, &mask, 0xe, "masks");
    a->mask = mask.value;
}

static void builders_attention(struct lower *l, int kind)
{
    const struct lowered first = lower_in(l, "query", 0);
    const struct lowered q = attention_operand(l, "query", 0), k = attention_operand(l, "key", 1),
                         v = attention_operand(l, "value", 2);
    const struct lowered mask = lower_in(l, "attn_mask", 3);
    const double p = lower_drop_rate(l, lower_real(l, "dropout_p", 4, 0));
    struct compose_attention a = {.mask = NO_VALUE,
                                  .starts = NO_VALUE,
                                  .causal = (int)lower_int(l, "is_causal", 5, 0),
                                  .scale = lower_real(l, "scale", 6, 0)};
    struct extent dim[4];
    struct lowered y;
    int is_on = lower_arg(l, "dropout_p", 4) && p > 0 && l->m->g->training;

    (void)kind;
    lower_refuse_batch(l, &q, 0xe, "combines");
    lower_refuse_batch(l, &k, 0xe, "combines");
    lower_refuse_batch(l, &v, 0xe, "combines");
    if (lower_failed(l))
        return;
    if (net_starts(l->m) != NO_VALUE)
        attention_packed(l, &mask, &q, &k, &a);
    else if (mask.kind != LOWERED_NONE)
        attention_mask(l, mask, &q, &k, first.n, &a);
    a.q = q.value;
    a.k = k.value;
    a.v = v.value;
    is_on = is_on && lower_real(l, "dropout_p", 4, 0) > 0;
    if (is_on && (!q.dim[0].is_batch || q.dim[0].outer != 1))
        lower_fail(l, ERR_UNSUPPORTED,
                   "its dropout has no dimension whose outermost part is the batch, so its random "
                   "numbers would depend on the number of ranks");
    if (is_on && !lower_failed(l)) {
        a.p = p;
        a.tag = l->m->n_dropouts++;
        a.rows = q.dim[0].inner;
    }
    for (int d = 0; d < 4; d++)
        dim[d] = d < 3 ? q.dim[d] : v.dim[3];
    if (lower_failed(l))
        return;
    y = lower_plain_value(l, compose_attention(&l->c, &a), 4, dim);
    lower_set(l, 0, first.n == 3 ? lower_squeeze(l, y, 1u << 1) : y);
}

const struct import_builder import_attention[] = {
    {"scaled_dot_product_attention.default", builders_attention, 0},
    {0},
};
