/* builders_integers - arithmetic of whole numbers that depend on the samples, such as positions
 * that are counted by a mask.  It is exact: a result that could leave 31 bits is refused, so every
 * value that takes part has known bounds.  Those begin at booleans and constants. */
#include <math.h>

#include "base/util.h"
#include "import/lower_impl.h"

enum { INTEGERS_MOST_VIEWS = 64 }; /* between a value and the one whose bounds are known */

int lower_is_whole(enum import_type type) { return type >= IMPORT_I64 && type <= IMPORT_U8; }

struct lowered lower_bounded(struct lowered x, int64_t low, int64_t high)
{
    x.bounded = x.value + 1;
    x.low = low;
    x.high = high;
    return x;
}

/* 1: x, or what it is a view of, has known bounds. */
static int integers_are_bounded(const struct lower *l, const struct lowered *x)
{
    const struct graph *g = l->m->g;
    int v = x->value;

    for (int i = 0; i < INTEGERS_MOST_VIEWS && x->bounded; i++) {
        const struct node *made = g->value[v].producer < 0 ? NULL : &g->node[g->value[v].producer];

        if (v == x->bounded - 1)
            return 1;
        if (!made || (made->op != OP_reshape && made->op != OP_permute && made->op != OP_expand &&
                      made->op != OP_slice))
            return 0;
        v = made->in[0];
    }
    return 0;
}

static struct lowered integers_constant(struct lower *l, struct lowered x,
                                        const struct host_tensor *t)
{
    const int64_t n = host_count(t);
    int64_t low = INT64_MAX, high = INT64_MIN;

    for (int64_t i = 0; i < n; i++) {
        low = min_i64(low, host_integer(t, i));
        high = max_i64(high, host_integer(t, i));
    }
    x = lower_index_value(l, x);
    return n && !lower_failed(l) ? lower_bounded(x, low, high) : x;
}

struct lowered lower_whole(struct lower *l, struct lowered x, enum import_type type)
{
    const struct host_tensor *t = lower_host(&x);

    if (lower_failed(l))
        return x;
    if (t && lower_is_whole(t->type))
        return integers_constant(l, x, t);
    x = lower_real_value(l, x);
    if (lower_failed(l) || l->m->g->value[x.value].dtype == DTYPE_I32)
        return x;
    x = lower_with(x, compose_cast(&l->c, x.value, DTYPE_I32));
    return type == IMPORT_BOOL ? lower_bounded(x, 0, 1) : x;
}

struct lowered lower_as_real(struct lower *l, struct lowered x)
{
    x = lower_real_value(l, x);
    if (lower_failed(l) || l->m->g->value[x.value].dtype != DTYPE_I32)
        return x;
    return lower_with(x, compose_cast(&l->c, x.value, DTYPE_F32));
}

/* Fails unless the numbers fit into the type that the file has for the result, and into 31 bits. */
static void integers_want(struct lower *l, int64_t low, int64_t high)
{
    const enum import_type type = l->net->value[l->node->out[0]].type;
    const int64_t most = type == IMPORT_U8    ? UINT8_MAX
                         : type == IMPORT_I8  ? INT8_MAX
                         : type == IMPORT_I16 ? INT16_MAX
                                              : INT32_MAX,
                  least = type == IMPORT_U8 ? 0 : -most - 1;

    if (low < least || high > most)
        lower_fail(l, ERR_UNSUPPORTED, "its whole numbers are from %lld to %lld, want %lld to %lld",
                   (long long)low, (long long)high, (long long)least, (long long)most);
}

/* Fails unless both have bounds, and the result fits; these are *low and *high. */
static void integers_fit(struct lower *l, enum integers kind, const struct lowered *a,
                         const struct lowered *b, int64_t *low, int64_t *high)
{
    const int64_t x[2] = {a->low, a->high}, y[2] = {b->low, b->high};

    if (!integers_are_bounded(l, a) || !integers_are_bounded(l, b)) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it computes with whole numbers of the samples, whose result could leave 31 "
                   "bits; make a mask boolean first, such as by mask.bool().long()");
        return;
    }
    *low = INT64_MAX;
    *high = INT64_MIN;
    for (int i = 0; i < 4; i++) {
        const int64_t v = x[i / 2], w = y[i % 2],
                      r = kind == INTEGERS_ADD   ? v + w
                          : kind == INTEGERS_SUB ? v - w
                          : kind == INTEGERS_MUL ? v * w
                          : kind == INTEGERS_MIN ? min_i64(v, w)
                                                 : max_i64(v, w);

        *low = min_i64(*low, r);
        *high = max_i64(*high, r);
    }
    integers_want(l, *low, *high);
}

/* Operand `name`: a tensor, or a number. */
static struct lowered integers_operand(struct lower *l, const char *name, int place)
{
    const struct import_arg *a = lower_arg(l, name, place);
    const int v = lower_value_of(l, name, place);
    int32_t number;

    if (a && (a->kind == IMPORT_INT || a->kind == IMPORT_FLAG)) {
        struct lowered x = {.kind = LOWERED_VALUE};

        number = (int32_t)lower_int(l, name, place, 0);
        x.value = graph_const(l->m->g, DTYPE_I32, (struct shape){0}, &number, "number");
        return lower_bounded(x, number, number);
    }
    return lower_whole(l, lower_in(l, name, place),
                       v == IMPORT_NO_VALUE ? IMPORT_I64 : l->net->value[v].type);
}

static int integers_kind(enum elementwise kind)
{
    return kind == EW_ADD   ? INTEGERS_ADD
           : kind == EW_SUB ? INTEGERS_SUB
           : kind == EW_MUL ? INTEGERS_MUL
           : kind == EW_MAX ? INTEGERS_MAX
           : kind == EW_MIN ? INTEGERS_MIN
                            : INTEGERS_COUNT;
}

/* a kind b, with broadcasting. */
struct lowered lower_integers_of(struct lower *l, enum integers kind, struct lowered a,
                                 struct lowered b)
{
    struct lowered *const both[] = {&a, &b}, y = lower_meet(l, both, 2);

    for (int d = 0; d < y.n && !lower_failed(l); d++)
        for (int i = 0; i < 2 && !(y.repeats >> d & 1); i++)
            if (extent_is_one(both[i]->dim[d]) && !extent_is_one(y.dim[d])) {
                both[i]->dim[d] = y.dim[d];
                both[i]->repeats |= 1u << d;
            }
    for (int d = 0; d < y.n; d++)
        if (y.repeats >> d & 1) /* neither has elements of its own there */
            a.repeats &= ~(1u << d), b.repeats &= ~(1u << d), a.dim[d] = b.dim[d] = extent_of(1);
    a = lower_spread(l, a);
    b = lower_spread(l, b);
    if (lower_failed(l))
        return y;
    y.is_mixed = a.is_mixed || b.is_mixed;
    return lower_with(y, compose_integers(&l->c, kind, a.value, b.value, 0));
}

/* A difference saturates, so its sign is right for all numbers. */
int lower_compare_integers(struct lower *l, enum elementwise kind)
{
    const int v = lower_value_of(l, "self", 0), w = lower_value_of(l, "other", 1);
    struct lowered a, b;

    if (kind < EW_EQ || kind > EW_GE || lower_failed(l) || v == IMPORT_NO_VALUE ||
        w == IMPORT_NO_VALUE || !lower_is_whole(l->net->value[v].type) ||
        !lower_is_whole(l->net->value[w].type))
        return 0;
    a = integers_operand(l, "self", 0);
    b = integers_operand(l, "other", 1);
    if (!lower_failed(l))
        a = lower_integers_of(l, INTEGERS_SUB, a, b);
    if (!lower_failed(l))
        lower_set(l, 0, lower_with(a, compose_compare(&l->c, kind, a.value, 0)));
    return 1;
}

int lower_integers(struct lower *l, enum elementwise kind)
{
    const int of = integers_kind(kind);
    struct lowered a, b, y;
    int64_t low = 0, high = 0;

    if (lower_failed(l) || !lower_is_whole(l->net->value[l->node->out[0]].type))
        return 0;
    a = integers_operand(l, "self", 0);
    b = integers_operand(l, "other", 1);
    if (!lower_failed(l) && (of == INTEGERS_COUNT || lower_real(l, "alpha", 2, 1) != 1))
        lower_fail(l, ERR_UNSUPPORTED, "it computes with whole numbers, which are no constants");
    if (!lower_failed(l))
        integers_fit(l, (enum integers)of, &a, &b, &low, &high);
    if (lower_failed(l))
        return 1;
    y = lower_integers_of(l, (enum integers)of, a, b);
    if (lower_failed(l))
        return 1;
    lower_set(l, 0, lower_bounded(y, low, high));
    return 1;
}

int lower_clip_integers(struct lower *l, double least, double most)
{
    const int v = lower_value_of(l, "self", 0);
    const int32_t low = (int32_t)fmin(fmax(ceil(least), INT32_MIN), INT32_MAX),
                  high = (int32_t)fmin(fmax(floor(most), INT32_MIN), INT32_MAX);
    struct lowered x;
    int64_t from = low, to = high;

    if (lower_failed(l) || v == IMPORT_NO_VALUE || !lower_is_whole(l->net->value[v].type) ||
        !lower_is_whole(l->net->value[l->node->out[0]].type))
        return 0;
    x = lower_spread(l, lower_whole(l, lower_in(l, "self", 0), l->net->value[v].type));
    if (lower_failed(l))
        return 1;
    if (integers_are_bounded(l, &x)) {
        from = min_i64(max_i64(x.low, low), high);
        to = min_i64(max_i64(x.high, low), high);
    }
    x = lower_with(x, compose_integers(&l->c, INTEGERS_MAX, x.value, NO_VALUE, low));
    x = lower_with(x, compose_integers(&l->c, INTEGERS_MIN, x.value, NO_VALUE, high));
    if (!lower_failed(l))
        lower_set(l, 0, lower_bounded(x, from, to));
    return 1;
}

void lower_integer_sum(struct lower *l, int dim, int is_scan, int keep)
{
    const int v = lower_value_of(l, "self", 0);
    struct lowered x = lower_whole(l, lower_in(l, "self", 0), l->net->value[v].type);
    int64_t low, high, n;

    if (lower_failed(l))
        return;
    n = extent_exported(l, x.dim[dim]);
    low = min_i64(x.low, 0) * n;
    high = max_i64(x.high, 0) * n;
    if (!integers_are_bounded(l, &x)) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it adds up whole numbers of the samples, whose sum could leave 31 bits; make a "
                   "mask boolean first, such as by mask.bool().long()");
        return;
    }
    integers_want(l, low, high);
    if (lower_failed(l))
        return;
    x = lower_last(l, x, dim);
    if (lower_failed(l))
        return;
    x = lower_with(x, compose_integers(&l->c, INTEGERS_PREFIX, x.value, NO_VALUE, 0));
    if (!is_scan) {
        x.value = compose_slice(&l->c, x.value, x.n - 1, n - 1, n, 1);
        x.dim[dim] = extent_of(1);
    }
    x = lower_bounded(x, low, high);
    lower_set(l, 0, is_scan || keep ? x : lower_squeeze(l, x, 1u << dim));
}
