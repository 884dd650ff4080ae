/* ref_general - the naive kernels of the general operators: views, element-wise arithmetic and
 * reductions.  Every element is found by its coordinates, one after another. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* The kinds from EW_SQUARE on. */
static struct formula evaluate_later(enum elementwise kind, double a, double b, double p, double q)
{
    switch (kind) {
    case EW_SQUARE:
        return (struct formula){a * a, 2 * a, 0};
    case EW_ROOT:
        return (struct formula){sqrt(a), a > 0 ? 0.5 / sqrt(a) : 0, 0};
    case EW_LOG1P:
        return (struct formula){log1p(a), 1 / (1 + a), 0};
    case EW_EXPM1:
        return (struct formula){expm1(a), exp(a), 0};
    case EW_HARDSIGMOID:
        return (struct formula){fmin(fmax(a + 3, 0), 6) / 6, fabs(a) < 3 ? 1.0 / 6 : 0, 0};
    case EW_HARDSWISH:
        return (struct formula){a * fmin(fmax(a + 3, 0), 6) / 6,
                                a <= -3  ? 0
                                : a >= 3 ? 1
                                         : (2 * a + 3) / 6,
                                0};
    case EW_LEAKY:
        return (struct formula){a > 0 ? a : p * a, a > 0 ? 1 : p, 0};
    case EW_ELU:
        return (struct formula){q * (a > 0 ? a : p * (exp(a) - 1)), q * (a > 0 ? 1 : p * exp(a)),
                                0};
    case EW_SOFTPLUS:
        return (struct formula){p * a > q ? a : log(1 + exp(p * a)) / p,
                                p * a > q ? 1 : 1 / (1 + exp(-p * a)), 0};
    case EW_MISH:
        return (struct formula){
            a * tanh(log(1 + exp(a))),
            tanh(log(1 + exp(a))) + a / pow(cosh(log(1 + exp(a))), 2) / (1 + exp(-a)), 0};
    case EW_REMAINDER:
        return (struct formula){a - b * floor(a / b), 1, -floor(a / b)};
    case EW_SILU_MUL: {
        const double s = 1 / (1 + exp(-a));

        return (struct formula){a * s * b, b * (s + a * s * (1 - s)), a * s};
    }
    case EW_FLOOR:
        return (struct formula){floor(a), 0, 0};
    case EW_CEIL:
        return (struct formula){ceil(a), 0, 0};
    case EW_ROUND:
        return (struct formula){nearbyint(a), 0, 0};
    case EW_TRUNC:
        return (struct formula){trunc(a), 0, 0};
    case EW_SIGN:
        return (struct formula){(a > 0) - (a < 0), 0, 0};
    case EW_AND:
        return (struct formula){a != 0 && b != 0, 0, 0};
    case EW_OR:
        return (struct formula){a != 0 || b != 0, 0, 0};
    case EW_XOR:
        return (struct formula){(a != 0) != (b != 0), 0, 0};
    case EW_NOT:
        return (struct formula){a == 0, 0, 0};
    default:
        abort();
    }
}

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
        return (struct formula){fmin(fmax(a, p), q), a > p && a < q, 0};
    case EW_SIN:
        return (struct formula){sin(a), cos(a), 0};
    case EW_COS:
        return (struct formula){cos(a), -sin(a), 0};
    case EW_ERF:
        return (struct formula){erf(a), M_2_SQRTPI * exp(-a * a), 0};
    default:
        return evaluate_later(attr->elementwise.kind, a, b, p, q);
    }
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

void ref_matmul(const struct ref_node *n)
{
    const int ta = n->attr.matmul.transpose_a, tb = n->attr.matmul.transpose_b;
    const struct shape *y = &n->out_shape[MATMUL_Y];
    const struct shape *s[2] = {&n->in_shape[MATMUL_A], &n->in_shape[MATMUL_B]};
    const int64_t K = s[0]->dim[s[0]->n - (ta ? 2 : 1)];
    struct shape whole = *y;

    for (int64_t i = 0; i < shape_elements(y); i++) {
        int64_t at[SHAPE_MAX_DIMS], row, col, matrix[2];
        double sum = 0;

        coordinates(y, i, at);
        row = at[y->n - 2];
        col = at[y->n - 1];
        whole.n = y->n - 2;
        for (int k = 0; k < 2; k++) {
            struct shape batch = *s[k];

            batch.n -= 2;
            matrix[k] = broadcast(&batch, &whole, element(&whole, at)) * s[k]->dim[batch.n] *
                        s[k]->dim[batch.n + 1];
        }
        for (int64_t k = 0; k < K; k++) {
            const int64_t a = ta ? k * s[0]->dim[s[0]->n - 1] + row : row * K + k;
            const int64_t b = tb ? col * K + k : k * s[1]->dim[s[1]->n - 1] + col;

            sum += (double)((const float *)n->in[MATMUL_A])[matrix[0] + a] *
                   (double)((const float *)n->in[MATMUL_B])[matrix[1] + b];
        }
        ((float *)n->out[0])[i] = (float)sum;
    }
}

/* The sum of f over the elements of the line through element i. */
static double sum_of_line(const struct ref_node *n, int64_t i,
                          double (*f)(const struct ref_node *n, int64_t i))
{
    const struct shape *s = &n->in_shape[0];
    int64_t at[SHAPE_MAX_DIMS];
    double sum = 0;

    coordinates(s, i, at);
    for (int64_t k = 0; k < s->dim[n->attr.softmax.dim]; k++) {
        at[n->attr.softmax.dim] = k;
        sum += f(n, element(s, at));
    }
    return sum;
}

static double exp_of(const struct ref_node *n, int64_t i)
{
    return exp((double)((const float *)n->in[SOFTMAX_X])[i]);
}

/* e^x of a line that has -infinity alone has the sum 0. */
static double part_of_line(const struct ref_node *n, int64_t i)
{
    const double sum = sum_of_line(n, i, exp_of);

    return n->attr.softmax.safe && sum == 0 ? 0 : exp_of(n, i) / sum;
}

static double slope_of(const struct ref_node *n, int64_t i)
{
    const double y = (double)((const float *)n->in[SOFTMAX_GRAD_Y])[i];

    return (n->attr.softmax.log ? 1 : y) * (double)((const float *)n->in[SOFTMAX_GRAD_DY])[i];
}

void ref_softmax(const struct ref_node *n)
{
    for (int64_t i = 0; i < shape_elements(&n->in_shape[0]); i++) {
        const double y = part_of_line(n, i);

        ((float *)n->out[0])[i] = (float)(n->attr.softmax.log ? log(y) : y);
    }
}

void ref_softmax_grad(const struct ref_node *n)
{
    const float *y = n->in[SOFTMAX_GRAD_Y], *dy = n->in[SOFTMAX_GRAD_DY];

    for (int64_t i = 0; i < shape_elements(&n->in_shape[0]); i++) {
        const double sum = sum_of_line(n, i, slope_of), v = (double)y[i], d = (double)dy[i];

        ((float *)n->out[0])[i] = (float)(n->attr.softmax.log ? d - exp(v) * sum : v * (d - sum));
    }
}
