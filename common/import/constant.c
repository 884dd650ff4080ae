/* constant - nodes whose tensors are all constants, which are folded (import/fold.h), and constants
 * as values of the graph: of F32 where arithmetic reads them (booleans are 0 and 1), of I32 where
 * they are indices. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/lower_impl.h"

struct lowered lower_constant(struct lower *l, const struct host_tensor *t)
{
    struct lowered x = {.kind = LOWERED_HOST};

    x.constant = arena_alloc(&l->arena, sizeof *x.constant);
    *x.constant = (struct lower_constant){.t = t, .value = {NO_VALUE, NO_VALUE}};
    x.n = t ? t->n_dims : 0;
    for (int d = 0; d < x.n; d++) {
        x.dim[d] = extent_of(t->dim[d]);
        x.at[d] = d;
    }
    return x;
}

const struct host_tensor *lower_host(const struct lowered *x)
{
    return x->kind == LOWERED_HOST ? x->constant->t : NULL;
}

/* ---- folding ---- */

static int constant_starts(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

/* 1: the elements of this argument do not matter, at most its shape or type, which the file says.
 */
static int constant_is_shape(const char *target, const struct import_arg *a)
{
    const int is_other = !strcmp(a->name, "other");

    return constant_starts(target, "new_") || strstr(target, "_like.") ||
           (is_other && (constant_starts(target, "expand_as.") ||
                         constant_starts(target, "type_as.") || !strcmp(target, "to.other")));
}

/* 1: all tensors whose elements n reads are constants, by is_constant. */
static int constant_inputs(const struct import_node *n, int (*is_constant)(const void *of, int v),
                           const void *of)
{
    for (int i = 0; i < n->n_args; i++) {
        const struct import_arg *a = &n->arg[i];

        if ((a->kind != IMPORT_VALUE && a->kind != IMPORT_VALUES) ||
            constant_is_shape(n->target, a))
            continue;
        for (int k = 0; k < a->n; k++)
            if (a->values[k] != IMPORT_NO_VALUE && !is_constant(of, a->values[k]))
                return 0;
    }
    return 1;
}

static int constant_is_here(const void *of, int v)
{
    const struct lower *l = of;

    return l->host[v] && !l->is_stale[v];
}

static int constant_is_marked(const void *of, int v) { return ((const char *)of)[v]; }

char *lower_constants(const struct import_network *n)
{
    char *marked = xcalloc((size_t)n->n_values + n->n_nodes + 1, 1), *node = marked + n->n_values;

    for (int v = 0; v < n->n_values; v++)
        marked[v] = n->value[v].tensor >= 0 && n->tensor[n->value[v].tensor].bytes &&
                    n->tensor[n->value[v].tensor].role != IMPORT_PARAMETER;
    for (int k = 0; k < n->n_nodes; k++) {
        node[k] = (char)(fold_can(n->node[k].target) &&
                         constant_inputs(&n->node[k], constant_is_marked, marked));
        for (int i = 0; node[k] && i < n->node[k].n_out; i++)
            if (n->node[k].out[i] != IMPORT_NO_VALUE)
                marked[n->node[k].out[i]] = 1;
    }
    memmove(marked, node, (size_t)n->n_nodes);
    return marked;
}

/* A view has the base of the value whose elements it shares. */
static void constant_track(struct lower *l, const struct import_node *n, int out)
{
    for (int i = 0; i < n->n_args; i++) {
        const struct import_arg *a = &n->arg[i];

        for (int k = 0; (a->kind == IMPORT_VALUE || a->kind == IMPORT_VALUES) && k < a->n; k++) {
            const int v = a->values[k];
            const struct host_tensor *x = v == IMPORT_NO_VALUE ? NULL : l->host[v];

            if (!x || x->memory != l->host[out]->memory)
                continue;
            lower_join(l, out, l->base[v]);
            l->is_view[out] = (char)(l->is_view[v] || x->n_dims != l->host[out]->n_dims ||
                                     x->data != l->host[out]->data ||
                                     memcmp(x->dim, l->host[out]->dim, sizeof x->dim) ||
                                     memcmp(x->stride, l->host[out]->stride, sizeof x->stride));
            return;
        }
    }
}

int lower_fold(struct lower *l, const struct import_node *n)
{
    const int in_place = fold_is_in_place(n->target);

    if (lower_failed(l) || !fold_can(n->target) || !constant_inputs(n, constant_is_here, l))
        return 0;
    l->c.rc = fold_node(&l->fold, l->net, n, l->c.err);
    for (int i = 0; i < n->n_out && !lower_failed(l); i++) {
        const int out = n->out[i];

        if (out == IMPORT_NO_VALUE)
            continue;
        l->value[out] = lower_constant(l, l->host[out]);
        constant_track(l, n, out);
        lower_note_view(l, n);
        if (!in_place)
            continue;
        l->age++;
        for (int v = l->next[out]; v != out; v = l->next[v]) /* made of the elements before */
            if (l->value[v].kind == LOWERED_VALUE)
                l->is_stale[v] = 1;
    }
    return 1;
}

/* ---- values of the graph ---- */

/* The length of the rows along dimension 0 that every sample of the batch repeats, as masks of
 * windows have them, [batch * windows, heads, T, T]; 0: it is no such constant. */
static int64_t constant_period(const struct lower *l, const struct host_tensor *t)
{
    const int64_t n = host_count(t);
    int64_t period;

    if (t->n_dims < 3 || l->batch < 2 || t->dim[0] <= l->batch || t->dim[0] % l->batch)
        return 0;
    period = n / l->batch;
    for (int64_t i = period, m; i < n; i += m) {
        struct fold_num v[FOLD_RUN], first[FOLD_RUN];

        m = fold_read(t, i % period, min_i64(n - i, period - i % period), first);
        fold_read(t, i, m, v);
        for (int k = 0; k < m; k++)
            if (v[k].f != first[k].f)
                return 0;
    }
    return t->dim[0] / l->batch;
}

/* Where all elements along a dimension are equal it is 1 in the graph value.  The first of several
 * dimensions, if it is as long as the batch, then is the batch. */
static struct shape constant_extents(const struct lower *l, const struct host_tensor *t,
                                     struct lowered *x)
{
    struct shape s = {.n = t->n_dims};
    const int64_t period = constant_period(l, t);

    for (int d = 0; d < t->n_dims; d++) {
        s.dim[d] = t->dim[d];
        if (t->dim[d] == 1 || !host_is_even(t, d))
            continue;
        s.dim[d] = 1;
        x->repeats |= 1u << d;
        if (d == 0 && t->n_dims > 1 && t->dim[d] == l->batch)
            x->dim[d] = (struct extent){1, 1, 1};
    }
    if (period && s.dim[0] > 1) {
        x->dim[0] = (struct extent){1, period, 1};
        s.dim[0] = extent_size(l, x->dim[0]);
    }
    return s;
}

static int32_t constant_bits(struct lower *l, struct fold_num v, int is_index)
{
    const float f = (float)v.f;
    int32_t bits;

    if (is_index && (v.i < INT32_MIN || v.i > INT32_MAX))
        lower_fail(l, ERR_UNSUPPORTED, "a constant has the index %lld, want 31 bits",
                   (long long)v.i);
    if (is_index)
        return (int32_t)v.i;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* The n elements of the value with the extents `s`, whose dimension 0 repeats those of t. */
static void constant_elements(struct lower *l, const struct host_tensor *t, const struct shape *s,
                              int is_index, int32_t *to)
{
    const int64_t n = shape_elements(s);
    struct host_tensor once = *t;
    struct fold_num v[FOLD_RUN];
    int64_t n_once;

    for (int d = 0; d < s->n; d++)
        once.dim[d] = min_i64(s->dim[d], t->dim[d]);
    n_once = host_count(&once);
    for (int64_t i = 0, m; i < n && !lower_failed(l); i += m) {
        m = fold_read(&once, i % n_once, min_i64(n - i, n_once - i % n_once), v);
        for (int k = 0; k < m; k++)
            to[i + k] = constant_bits(l, v[k], is_index);
    }
}

static struct lowered constant_value(struct lower *l, struct lowered x, int is_index)
{
    struct lower_constant *c = x.constant;
    const struct host_tensor *t = c->t;
    struct shape s;
    int32_t *to;
    int64_t n;

    if (!t) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it reads a buffer without elements here, such as a running "
                   "statistic");
        return x;
    }
    s = constant_extents(l, t, &x);
    if (c->value[is_index] != NO_VALUE && c->age[is_index] == l->age)
        return lower_with(x, c->value[is_index]);
    n = shape_elements(&s);
    if (!compose_has_room(&l->c, n, 1))
        return x;
    to = arena_alloc(&l->arena, (size_t)n * sizeof *to + 1);
    constant_elements(l, t, &s, is_index, to);
    if (lower_failed(l))
        return x;
    c->age[is_index] = l->age;
    c->value[is_index] = graph_const(l->m->g, is_index ? DTYPE_I32 : DTYPE_F32, s, to, l->c.name);
    return lower_with(x, c->value[is_index]);
}

struct lowered lower_real_value(struct lower *l, struct lowered x)
{
    if (lower_failed(l) || x.kind == LOWERED_VALUE)
        return x;
    if (x.kind == LOWERED_HOST)
        return constant_value(l, x, 0);
    if (x.kind == LOWERED_DRAW)
        return lower_draw_value(l, x);
    lower_fail(l, ERR_UNSUPPORTED, "%s",
               x.kind == LOWERED_INT    ? "it reads an integer as a tensor"
               : x.kind == LOWERED_NEXT ? "it reads a running statistic or a counter in the step "
                                          "that updates it"
                                        : "it reads a value that does not exist");
    return x;
}

struct lowered lower_index_value(struct lower *l, struct lowered x)
{
    const struct host_tensor *t = lower_host(&x);

    if (!lower_failed(l) && t && !host_is_real(t->type) && t->type != IMPORT_BOOL)
        return constant_value(l, x, 1);
    x = lower_real_value(l, x);
    if (!lower_failed(l) && l->m->g->value[x.value].dtype != DTYPE_I32)
        lower_fail(l, ERR_UNSUPPORTED, "its indices are %s, want integers",
                   dtype_name(l->m->g->value[x.value].dtype));
    return x;
}

void lower_check_index(struct lower *l, const struct lowered *x, int64_t extent)
{
    const struct host_tensor *t = lower_host(x);
    const int64_t n = t && !host_is_real(t->type) ? host_count(t) : 0;

    for (int64_t i = 0; i < n && !lower_failed(l); i++)
        if (host_integer(t, i) < 0 || host_integer(t, i) >= extent)
            lower_fail(l, ERR_CONFIG, "index %lld of an extent of %lld",
                       (long long)host_integer(t, i), (long long)extent);
}

/* ---- indices that count from the end, and masks ---- */

/* The places where a mask of one dimension is true, or the indices without negative ones. */
static struct host_tensor *constant_picks(struct lower *l, const struct host_tensor *t,
                                          int64_t extent)
{
    const int is_mask = t->type == IMPORT_BOOL || t->type == IMPORT_U8;
    struct host_tensor *y = arena_alloc(&l->arena, sizeof *y);
    const int64_t n = host_count(t);
    int64_t *to = arena_alloc(&l->arena, (size_t)n * sizeof *to + 1), k = 0;

    if (host_is_real(t->type) || (is_mask && (t->n_dims != 1 || t->dim[0] != extent)))
        lower_fail(l, ERR_UNSUPPORTED,
                   "its index is %s of %d dimensions, want integers or a mask of %lld",
                   import_type_name(t->type), t->n_dims, (long long)extent);
    for (int64_t i = 0; i < n && !lower_failed(l); i++) {
        const int64_t v = host_integer(t, i), at = is_mask ? i : v < 0 ? v + extent : v;

        if (is_mask && v == 0)
            continue;
        if (at < 0 || at >= extent)
            lower_fail(l, ERR_CONFIG, "index %lld of an extent of %lld", (long long)v,
                       (long long)extent);
        to[k++] = at;
    }
    *y = (struct host_tensor){.type = IMPORT_I64, .n_dims = t->n_dims, .data = to, .memory = to};
    for (int d = t->n_dims - 1, stride = 1; d >= 0; d--) {
        y->dim[d] = is_mask ? k : t->dim[d];
        y->stride[d] = stride;
        stride *= (int)y->dim[d];
    }
    return y;
}

struct lowered lower_pick_value(struct lower *l, struct lowered x, int64_t extent)
{
    const struct host_tensor *t = lower_host(&x);

    if (!lower_failed(l) && t)
        t = constant_picks(l, t, extent);
    if (lower_failed(l) || t)
        return lower_failed(l) ? x : lower_index_value(l, lower_constant(l, t));
    x = lower_index_value(l, x);
    if (lower_failed(l))
        return x;
    if (extent > INT32_MAX)
        lower_fail(l, ERR_UNSUPPORTED, "its index is of %lld elements, want 31 bits",
                   (long long)extent);
    if (lower_failed(l))
        return x;
    return lower_with(
        x, compose_integers(&l->c, INTEGERS_FROM_END, x.value, NO_VALUE, (int32_t)extent));
}
