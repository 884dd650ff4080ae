/* infer - helpers that the operators' files share: checks of inputs whose messages name node,
 * operator and operand, extents of windows, and where gradients are written. */
#include "op/infer.h"

#include <stdarg.h>
#include <stdio.h>

#include "tensor/half.h"

int op_fail(const struct node *n, struct err *err, const char *fmt, ...)
{
    char text[384];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(err, ERR_CONFIG, "%s (%s): %s", n->name, op_get(n->op)->name, text);
}

static int op_may_be_half(const struct node *n, int i, enum dtype dtype)
{
    const struct op_def *def = op_get(n->op);

    return (def->typed_in | def->wide_in) >> i & 1 && dtype_is_half(dtype);
}

int op_want(const struct graph *g, const struct node *n, int i, enum dtype dtype, int n_dims,
            struct err *err)
{
    const char *what = op_get(n->op)->in_name[i];
    const struct value *v;
    char text[SHAPE_TEXT_LEN];

    if (!op_has(n, i))
        return 0;
    v = op_in(g, n, i);
    if (v->dtype != dtype && !(dtype == DTYPE_F32 && op_may_be_half(n, i, v->dtype)))
        return op_fail(n, err, "%s is %s, want %s", what, dtype_name(v->dtype), dtype_name(dtype));
    if (n_dims >= 0 ? v->shape.n != n_dims : v->shape.n < 1)
        return op_fail(n, err, "%s is %s, want %s%d dimensions", what, shape_text(&v->shape, text),
                       n_dims >= 0 ? "" : "at least ", n_dims >= 0 ? n_dims : 1);
    return 0;
}

int op_want_shape(const struct graph *g, const struct node *n, int i, struct shape want,
                  struct err *err)
{
    int rc = op_want(g, n, i, DTYPE_F32, want.n, err);
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN];

    if (rc < 0 || !op_has(n, i) || shape_equal(op_shape(g, n, i), &want))
        return rc;
    return op_fail(n, err, "%s is %s, want %s", op_get(n->op)->in_name[i],
                   shape_text(op_shape(g, n, i), seen), shape_text(&want, wanted));
}

int op_want_labels(const struct graph *g, const struct node *n, int x, int labels, struct err *err)
{
    int rc = op_want(g, n, x, DTYPE_F32, 2, err);

    if (rc == 0)
        rc = op_want(g, n, labels, DTYPE_I32, -1, err);
    if (rc == 0 && shape_elements(op_shape(g, n, labels)) != op_shape(g, n, x)->dim[0])
        return op_fail(n, err, "%lld labels for %lld samples",
                       (long long)shape_elements(op_shape(g, n, labels)),
                       (long long)op_shape(g, n, x)->dim[0]);
    return rc;
}

int op_want_starts(const struct graph *g, const struct node *n, int i, int64_t rows, int64_t length,
                   struct err *err)
{
    const int rc = op_want(g, n, i, DTYPE_I32, -1, err);
    const struct shape *s;

    if (rc < 0 || !op_has(n, i))
        return rc;
    s = op_shape(g, n, i);
    if (shape_elements(s) == rows && op_last_dim(s) == length)
        return 0;
    return op_fail(n, err, "%s has %lld elements in rows of %lld, want %lld in rows of %lld",
                   op_get(n->op)->in_name[i], (long long)shape_elements(s),
                   (long long)op_last_dim(s), (long long)rows, (long long)length);
}

void op_out(struct value out[NODE_MAX_OUT], int i, enum dtype dtype, struct shape shape)
{
    out[i].dtype = dtype;
    out[i].shape = shape;
}

int64_t op_window_extent(int64_t in, int kernel, int stride, int pad, int dilation)
{
    int64_t room = in + 2 * (int64_t)pad - ((int64_t)dilation * (kernel - 1) + 1);

    return room < 0 ? 0 : room / stride + 1;
}

int64_t op_window_ceil(int64_t in, int kernel, int stride, int64_t before, int64_t after)
{
    const int64_t room = in + before + after - kernel;
    const int64_t n = (room < 0 ? 0 : (room + stride - 1) / stride) + 1;

    return n - ((n - 1) * stride >= in + before);
}

int64_t op_last_dim(const struct shape *s) { return s->dim[s->n - 1]; }

int64_t op_rows(const struct shape *s)
{
    int64_t rows = 1;

    for (int i = 0; i < s->n - 1; i++)
        rows *= s->dim[i];
    return rows;
}

int op_grad_out(struct graph *g, int value)
{
    if (g->value[value].role == VALUE_PARAM && g->value[value].n_uses > 0 &&
        !g->value[value].read_twice)
        return graph_grad_of(g, value);
    return NODE_NEW_OUT;
}

int op_grad_wanted(struct graph *g, const struct node *n, const int want[NODE_MAX_IN], int i)
{
    return want[i] ? op_grad_out(g, n->in[i]) : NODE_NO_OUT;
}

const char *op_name(struct graph *g, const struct node *n, const char *suffix)
{
    return arena_printf(&g->arena, "%s.%s", n->name, suffix);
}
