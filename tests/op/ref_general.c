/* ref_general - the naive kernels of the general operators: views, element-wise arithmetic and
 * reductions.  Every element is found by its coordinates, one after another. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ref_kernels.h"
#include "tensor/half.h"

/* The coordinates of element i. */
static void coordinates(const struct shape *s, int64_t i, int64_t at[SHAPE_MAX_DIMS])
{
    for (int d = s->n - 1; d >= 0; d--) {
        at[d] = i % s->dim[d];
        i /= s->dim[d];
    }
}

static int64_t element(const struct shape *s, const int64_t at[SHAPE_MAX_DIMS])
{
    int64_t i = 0;

    for (int d = 0; d < s->n; d++)
        i = i * s->dim[d] + at[d];
    return i;
}

/* The element of x that is broadcast to element i of y. */
static int64_t broadcast(const struct shape *x, const struct shape *y, int64_t i)
{
    int64_t at[SHAPE_MAX_DIMS], from[SHAPE_MAX_DIMS];

    coordinates(y, i, at);
    for (int d = 0; d < x->n; d++)
        from[d] = x->dim[d] == 1 ? 0 : at[d + y->n - x->n];
    return element(x, from);
}

/* Copies an element; the widened half types have the size of a float. */
static void move(const struct ref_node *n, int64_t to, int in, int64_t from)
{
    const size_t size = dtype_is_half(n->in_type[in]) ? sizeof(float) : dtype_size(n->in_type[in]);

    memcpy((char *)n->out[0] + (size_t)to * size, (const char *)n->in[in] + (size_t)from * size,
           size);
}

void ref_permute(const struct ref_node *n)
{
    const struct shape *x = &n->in_shape[0], *y = &n->out_shape[0];
    int64_t at[SHAPE_MAX_DIMS], from[SHAPE_MAX_DIMS];

    for (int64_t i = 0; i < shape_elements(y); i++) {
        coordinates(y, i, at);
        for (int d = 0; d < y->n; d++)
            from[n->attr.permute.order[d]] = at[d];
        move(n, i, 0, element(x, from));
    }
}

void ref_slice(const struct ref_node *n)
{
    const struct shape *x = &n->in_shape[0], *y = &n->out_shape[0];
    int64_t at[SHAPE_MAX_DIMS];

    for (int64_t i = 0; i < shape_elements(y); i++) {
        coordinates(y, i, at);
        at[n->attr.slice.dim] = n->attr.slice.start + at[n->attr.slice.dim] * n->attr.slice.step;
        move(n, i, 0, element(x, at));
    }
}

void ref_slice_grad(const struct ref_node *n)
{
    const struct shape *dy = &n->in_shape[0], *dx = &n->out_shape[0];
    int64_t at[SHAPE_MAX_DIMS];

    memset(n->out[0], 0, (size_t)shape_elements(dx) * sizeof(float));
    for (int64_t i = 0; i < shape_elements(dy); i++) {
        coordinates(dy, i, at);
        at[n->attr.slice.dim] = n->attr.slice.start + at[n->attr.slice.dim] * n->attr.slice.step;
        move(n, element(dx, at), 0, i);
    }
}

void ref_expand(const struct ref_node *n)
{
    for (int64_t i = 0; i < shape_elements(&n->out_shape[0]); i++)
        move(n, i, 0, broadcast(&n->in_shape[0], &n->out_shape[0], i));
}

void ref_concat(const struct ref_node *n)
{
    const int dim = n->attr.concat.dim;
    int64_t at[SHAPE_MAX_DIMS];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[0]); i++) {
        int in = 0;

        coordinates(&n->out_shape[0], i, at);
        for (; at[dim] >= n->in_shape[in].dim[dim]; in++)
            at[dim] -= n->in_shape[in].dim[dim];
        move(n, i, in, element(&n->in_shape[in], at));
    }
}

/* The result in double, and the derivatives by a and b. */
struct formula {
    double y, da, db;
};

static struct formula evaluate(const union node_attr *attr, double a, double b, double c)
{
    const double p = (double)attr->elementwise.p, q = (double)attr->elementwise.q;

    switch (attr->elementwise.kind) {
    case EW_ADD:
        return (struct formula){a + b, 1, 1};
    case EW_SUB:
        return (struct formula){a - b, 1, -1};
    case EW_MUL:
        return (struct formula){a * b, b, a};
    case EW_DIV:
        return (struct formula){a / b, 1 / b, -a / b / b};
    case EW_MAX:
        return (struct formula){fmax(a, b), (a > b) + 0.5 * (a == b), (b > a) + 0.5 * (a == b)};
    case EW_MIN:
        return (struct formula){fmin(a, b), (a < b) + 0.5 * (a == b), (b < a) + 0.5 * (a == b)};
    case EW_POW:
        return (struct formula){pow(a, b), b * pow(a, b - 1), pow(a, b) * log(a)};
    case EW_EQ:
        return (struct formula){a == b, 0, 0};
    case EW_NE:
        return (struct formula){a != b, 0, 0};
    case EW_LT:
        return (struct formula){a < b, 0, 0};
    case EW_LE:
        return (struct formula){a <= b, 0, 0};
    case EW_GT:
        return (struct formula){a > b, 0, 0};
    case EW_GE:
        return (struct formula){a >= b, 0, 0};
    case EW_WHERE:
        return c != 0 ? (struct formula){a, 1, 0} : (struct formula){b, 0, 1};
    case EW_AFFINE:
        return (struct formula){p * a + q, p, 0};
    case EW_NEG:
        return (struct formula){-a, -1, 0};
    case EW_ABS:
        return (struct formula){fabs(a), (a > 0) - (a < 0), 0};
    case EW_EXP:
        return (struct formula){exp(a), exp(a), 0};
    case EW_LOG:
        return (struct formula){log(a), 1 / a, 0};
    case EW_SQRT:
        return (struct formula){sqrt(a), 0.5 / sqrt(a), 0};
    case EW_RSQRT:
        return (struct formula){1 / sqrt(a), -0.5 / sqrt(a) / a, 0};
    case EW_RECIPROCAL:
        return (struct formula){1 / a, -1 / a / a, 0};
    case EW_POWER:
        return (struct formula){pow(a, p), p * pow(a, p - 1), 0};
    case EW_CLIP:
        return (struct formula){fmin(fmax(a, p), q), a >= p && a <= q, 0};
    case EW_SIN:
        return (struct formula){sin(a), cos(a), 0};
    case EW_COS:
        return (struct formula){cos(a), -sin(a), 0};
    case EW_ERF:
        return (struct formula){erf(a), M_2_SQRTPI * exp(-a * a), 0};
    case EW_COUNT:
        break;
    }
    abort();
}

static struct formula evaluate_at(const struct ref_node *n, const struct shape *y, int64_t i)
{
    double v[3] = {0};

    for (int k = 0; k < 3; k++)
        if (n->in[k])
            v[k] = (double)((const float *)n->in[k])[broadcast(&n->in_shape[k], y, i)];
    return evaluate(&n->attr, v[0], v[1], v[2]);
}

void ref_elementwise(const struct ref_node *n)
{
    const struct shape *y = &n->out_shape[0];

    for (int64_t i = 0; i < shape_elements(y); i++)
        ((float *)n->out[0])[i] = (float)evaluate_at(n, y, i).y;
}

void ref_elementwise_grad(const struct ref_node *n)
{
    const struct shape *y = &n->in_shape[ELEMENTWISE_GRAD_DY];
    const float *dy = n->in[ELEMENTWISE_GRAD_DY];
    float *da = n->out[ELEMENTWISE_GRAD_DA], *db = n->out[ELEMENTWISE_GRAD_DB];

    for (int64_t i = 0; i < shape_elements(y); i++) {
        const struct formula f = evaluate_at(n, y, i);

        if (da)
            da[i] = (float)(f.da * (double)dy[i]);
        if (db)
            db[i] = (float)(f.db * (double)dy[i]);
    }
}

/* The element of y that element i of x is reduced to. */
static int64_t reduced_to(const struct ref_node *n, int64_t i)
{
    const struct shape *x = &n->in_shape[0];
    int64_t at[SHAPE_MAX_DIMS], to = 0;

    coordinates(x, i, at);
    for (int d = 0; d < x->n; d++)
        if (!(n->attr.reduce.axes >> d & 1))
            to = to * x->dim[d] + at[d];
    return to;
}

void ref_reduce(const struct ref_node *n)
{
    const int64_t n_x = shape_elements(&n->in_shape[0]), n_y = shape_elements(&n->out_shape[0]);
    const enum reduction kind = n->attr.reduce.kind;
    const double count = n_y ? (double)(n_x / n_y) : 0;
    const float *x = n->in[0];
    double *sum = ref_sums(n_y), *squares = ref_sums(n_y);
    float *y = n->out[0];

    for (int64_t i = 0; i < n_y; i++)
        y[i] = kind == REDUCE_MAX ? -INFINITY : INFINITY;
    for (int64_t i = 0; i < n_x; i++) {
        const int64_t to = reduced_to(n, i);

        sum[to] += (double)x[i];
        if (isnan(x[i]) || (kind == REDUCE_MAX ? x[i] > y[to] : x[i] < y[to]))
            y[to] = x[i];
    }
    for (int64_t i = 0; i < n_x; i++)
        squares[reduced_to(n, i)] += pow((double)x[i] - sum[reduced_to(n, i)] / count, 2);
    for (int64_t i = 0; i < n_y; i++)
        if (kind == REDUCE_SUM || kind == REDUCE_MEAN)
            y[i] = (float)(sum[i] / (kind == REDUCE_MEAN && n_x ? count : 1));
        else if (kind == REDUCE_VAR)
            y[i] = (float)(squares[i] / (count - n->attr.reduce.correction));
    free(sum);
    free(squares);
}
