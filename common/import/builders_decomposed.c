/* builders_decomposed - operators that only run_decompositions() writes.  Those that differ from
 * the usual ones in the order of arguments alone stand beside them. */
#include "base/util.h"
#include "import/lower_impl.h"

/* A tensor of one number with the shape of another, the batch included; that of a constant is
 * folded. */
static void builders_full_like(struct lower *l, int kind)
{
    const float v = (float)lower_real(l, "fill_value", 1, 0);
    const struct lowered like = lower_in(l, "self", 0);
    struct lowered x = {.kind = LOWERED_VALUE, .n = like.n};
    struct shape s = {.n = like.n};

    (void)kind;
    if (lower_failed(l))
        return;
    for (int d = 0; d < x.n; d++) {
        x.dim[d] = like.dim[d];
        x.at[d] = d;
        x.repeats |= extent_is_one(x.dim[d]) ? 0 : 1u << d;
        s.dim[d] = 1;
    }
    x.value = graph_const(l->m->g, DTYPE_F32, s, &v, "number");
    lower_set(l, 0, x);
}

/* The end of adaptive_avg_pool2d to one element: a mean, which gets the strides that it has. */
static void builders_as_strided(struct lower *l, int kind)
{
    const int from = lower_value_of(l, "self", 0);
    const struct import_value *x = from == IMPORT_NO_VALUE ? NULL : &l->net->value[from],
                              *y = &l->net->value[l->node->out[0]];
    int64_t stride[SHAPE_MAX_DIMS], dense = 1;
    const int n_strides = lower_ints(l, "stride", 2, stride, SHAPE_MAX_DIMS);
    int is_mean = x && x->n_dims == y->n_dims && n_strides == y->n_dims &&
                  lower_int(l, "storage_offset", 3, 0) == 0;

    (void)kind;
    for (int d = is_mean ? x->n_dims - 1 : -1; is_mean && d >= 0; d--) {
        is_mean = x->dim[d] == y->dim[d] && (d < 2 || x->dim[d] == 1) &&
                  (x->dim[d] == 1 || stride[d] == dense);
        dense *= x->dim[d];
    }
    if (!is_mean)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it reads a tensor's memory by strides, which depend on how PyTorch stored it");
    lower_set(l, 0, lower_in(l, "self", 0));
}

static void builders_index_select(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0)), index;
    const int dim = lower_dim(l, "dim", 1, x.n, 0);

    (void)kind;
    lower_refuse_batch(l, &x, 1u << dim, "takes elements of");
    index = lower_in(l, "index", 2);
    if (!lower_failed(l))
        lower_check_index(l, &index, extent_exported(l, x.dim[dim]));
    index = lower_plain(l, lower_index_value(l, index));
    if (!lower_failed(l) && index.n != 1)
        lower_fail(l, ERR_UNSUPPORTED, "its index has %d dimensions, want 1", index.n);
    if (lower_failed(l))
        return;
    x.value = compose_index_select(&l->c, x.value, x.at[dim], index.value);
    x.dim[dim] = index.dim[0];
    lower_set(l, 0, x);
}

/* x with src in place of a slice, or with kind 1 of a select. */
static void builders_slice_scatter(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0), src = lower_in(l, "src", 1);

    if (!lower_failed(l))
        lower_set(l, 0, lower_written(l, x, src, kind));
}

/* src with the extents of the tensor that it replaces. */
static struct lowered copied_as(struct lower *l, const struct lowered *self, struct lowered src)
{
    src = lower_rank(l, lower_as_real(l, src), self->n);
    for (int d = 0; d < self->n && !lower_failed(l); d++) {
        if (extent_is_one(src.dim[d]) && !extent_is_one(self->dim[d])) {
            src.dim[d] = self->dim[d];
            src.repeats |= 1u << d;
        } else if (!extent_equal(src.dim[d], self->dim[d]) &&
                   (src.n != self->n || self->kind != LOWERED_HOST)) {
            lower_fail(l, ERR_UNSUPPORTED,
                       "dimension %d is the batch in what it writes or where it writes it, and not "
                       "in the other: the network depends on the batch of its export, %lld",
                       d, (long long)l->batch);
        }
    }
    return src;
}

enum { COPY, COPY_FILL, COPY_NEW };

/* A tensor gets the elements of another one.  At the end of a program without operators in place a
 * buffer gets its next value so. */
static void builders_copy(struct lower *l, int kind)
{
    const struct import_tensor *t = kind == COPY_NEW ? NULL : lower_tensor(l, "self", 0);
    const struct lowered x = lower_in(l, kind == COPY_FILL ? "value" : "src", 1);
    struct lowered self;

    if (t && !lower_failed(l) && (x.kind != LOWERED_NEXT || t != &l->net->tensor[x.tensor]))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it changes %s, but steps here change parameters, and the running statistics of "
                   "batch norms, alone",
                   t->name);
    if (t || lower_failed(l)) {
        lower_set(l, 0, x);
        return;
    }
    self = lower_in(l, "self", 0);
    if (!lower_failed(l) && lower_is_whole(l->net->value[lower_value_of(l, "self", 0)].type))
        lower_fail(l, ERR_UNSUPPORTED, "it writes into whole numbers, which are no constants then");
    if (!lower_failed(l))
        lower_set(l, 0, copied_as(l, &self, x));
}

const struct import_builder import_decomposed[] = {
    {"full_like.default", builders_full_like, 0},
    {"as_strided.default", builders_as_strided, 0},
    {"index_select.default", builders_index_select, 0},
    {"slice_scatter.default", builders_slice_scatter, 0},
    {"select_scatter.default", builders_slice_scatter, 1},
    {"copy_.default", builders_copy, COPY},
    {"fill_.Tensor", builders_copy, COPY_FILL},
    {"copy.default", builders_copy, COPY_NEW},
    {0},
};
