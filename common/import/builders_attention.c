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

/* A mask for scores of 4 dimensions; those along which it repeats stay 1.  A constant one that is
 * causal, or lets all keys be read, is none: the attention without a matrix does it. */
static void attention_mask(struct lower *l, struct lowered mask, int rank,
                           struct compose_attention *a)
{
    static const int plain[SHAPE_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7};
    const struct host_tensor *t = lower_host(&mask);
    const struct mask_form form = t ? mask_form_of(t) : (struct mask_form){.kind = MASK_OTHER};

    if (mask.kind == LOWERED_NONE || form.kind == MASK_ALL)
        return;
    if (form.kind == MASK_CAUSAL && form.offset == 0) {
        a->causal = 1;
        return;
    }
    if (mask.n < 2 || mask.n > rank) {
        lower_fail(l, ERR_UNSUPPORTED, "its mask has %d dimensions, want 2 to %d", mask.n, rank);
        return;
    }
    mask = lower_real_value(l, mask);
    if (rank == 3 && mask.n == 3)
        mask = lower_unsqueeze(l, mask, 1);
    mask = lower_arrange(l, lower_rank(l, mask, 4), plain);
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
                                  .causal = (int)lower_int(l, "is_causal", 5, 0),
                                  .scale = lower_real(l, "scale", 6, 0)};
    const int at = lower_value_of(l, "attn_mask", 3);
    struct extent dim[4];
    struct lowered y;

    (void)kind;
    if (lower_failed(l))
        return;
    a.is_bool = mask.kind != LOWERED_NONE && l->net->value[at].type == IMPORT_BOOL;
    attention_mask(l, mask, first.n, &a);
    a.q = q.value;
    a.k = k.value;
    a.v = v.value;
    if (lower_arg(l, "dropout_p", 4) && p > 0 && l->m->g->training &&
        lower_real(l, "dropout_p", 4, 0) > 0) {
        a.p = p;
        a.tag = l->m->n_dropouts++;
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
