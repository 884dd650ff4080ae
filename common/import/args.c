/* args - the arguments of the node that is being built, by their names in the schema of its
 * operator, or by their places. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

void lower_fail(struct lower *l, int code, const char *fmt, ...)
{
    char text[512];
    va_list args;

    if (l->c.rc < 0)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    l->c.rc = err_set(l->c.err, code, "%s", text);
}

int lower_failed(const struct lower *l) { return l->c.rc < 0; }

double lower_drop_rate(const struct lower *l, double of_file)
{
    return l->choices->dropout >= 0 ? l->choices->dropout : of_file;
}

const struct import_arg *lower_arg(const struct lower *l, const char *name, int place)
{
    const struct import_arg *a = import_arg_find(l->node, name, place);

    return a && a->kind != IMPORT_NONE ? a : NULL;
}

int lower_value_of(const struct lower *l, const char *name, int place)
{
    const struct import_arg *a = lower_arg(l, name, place);

    return a && (a->kind == IMPORT_VALUE || a->kind == IMPORT_VALUES) && a->n > 0 ? a->values[0]
                                                                                  : IMPORT_NO_VALUE;
}

const struct import_tensor *lower_tensor(const struct lower *l, const char *name, int place)
{
    const int v = lower_value_of(l, name, place);

    return v == IMPORT_NO_VALUE || l->net->value[v].tensor < 0
               ? NULL
               : &l->net->tensor[l->net->value[v].tensor];
}

/* An integer of the file within what sums and products of extents can bear. */
static int64_t args_bounded(struct lower *l, const char *name, int64_t v)
{
    if (v >= -LOWER_MAX_INT && v <= LOWER_MAX_INT)
        return v;
    lower_fail(l, ERR_UNSUPPORTED, "%s is %lld, want -%lld to %lld", name, (long long)v,
               (long long)LOWER_MAX_INT, (long long)LOWER_MAX_INT);
    return 0;
}

static int args_has_ints(const struct import_arg *a)
{
    return a && a->n > 0 &&
           (a->kind == IMPORT_INT || a->kind == IMPORT_FLAG || a->kind == IMPORT_INTS ||
            a->kind == IMPORT_FLAGS || a->kind == IMPORT_DTYPE);
}

int64_t lower_int(struct lower *l, const char *name, int place, int64_t def)
{
    const struct import_arg *a = lower_arg(l, name, place);

    if (a && a->kind == IMPORT_REAL && a->n > 0) {
        if (fabs(a->reals[0]) <= (double)LOWER_MAX_INT)
            return (int64_t)a->reals[0];
        lower_fail(l, ERR_UNSUPPORTED, "%s is %g, want an integer", name, a->reals[0]);
    }
    return args_has_ints(a) ? args_bounded(l, name, a->ints[0].number) : def;
}

int64_t lower_clamped(const struct lower *l, const char *name, int place, int64_t def)
{
    const struct import_arg *a = lower_arg(l, name, place);
    const int64_t v = args_has_ints(a) ? a->ints[0].number : def;

    return max_i64(-LOWER_MAX_INT, min_i64(v, LOWER_MAX_INT));
}

double lower_real(const struct lower *l, const char *name, int place, double def)
{
    const struct import_arg *a = lower_arg(l, name, place);

    if (a && (a->kind == IMPORT_REAL || a->kind == IMPORT_REALS) && a->n > 0)
        return a->reals[0];
    return a && (a->kind == IMPORT_INT || a->kind == IMPORT_FLAG) ? (double)a->ints[0].number : def;
}

int lower_ints(struct lower *l, const char *name, int place, int64_t *to, int most)
{
    const struct import_arg *a = lower_arg(l, name, place);

    if (!a || (a->kind != IMPORT_INT && a->kind != IMPORT_INTS && a->kind != IMPORT_FLAGS))
        return 0;
    if (a->n > most) {
        lower_fail(l, ERR_UNSUPPORTED, "%s has %d numbers, want %d at most", name, a->n, most);
        return 0;
    }
    for (int i = 0; i < a->n; i++)
        to[i] = args_bounded(l, name, a->ints[i].number);
    return a->n;
}

void lower_pair(struct lower *l, const char *name, int place, int def, int to[2])
{
    enum { MOST = 1 << 20 };
    int64_t v[2] = {def, def};
    const int n = lower_ints(l, name, place, v, 2);

    if (n == 1)
        v[1] = v[0];
    for (int i = 0; i < 2; i++) {
        if (v[i] < 0 || v[i] > MOST)
            lower_fail(l, ERR_UNSUPPORTED, "%s is %lld, want 0 to %d", name, (long long)v[i], MOST);
        to[i] = v[i] < 0 || v[i] > MOST ? def : (int)v[i];
    }
}

int lower_dim(struct lower *l, const char *name, int place, int n, int def)
{
    const int64_t v = lower_int(l, name, place, def), dim = v < 0 ? v + n : v;

    if (dim >= 0 && dim < n)
        return (int)dim;
    lower_fail(l, ERR_CONFIG, "%s is %lld, want a dimension of %d", name, (long long)v, n);
    return 0;
}

struct lowered lower_at(struct lower *l, int v)
{
    if (v == IMPORT_NO_VALUE || lower_failed(l))
        return (struct lowered){0};
    if (l->is_stale[v] && (l->is_stale[v] != STALE_CHANGED || !lower_refresh(l, v)))
        lower_fail(l, ERR_UNSUPPORTED, "it reads %s, %s", l->net->value[v].name,
                   l->is_stale[v] == STALE_COUNTS ? "which counts the steps of a batch norm"
                   : l->is_stale[v] == STALE_TIED
                       ? "a buffer in the memory of a trained parameter without its gradient"
                       : "which shares its memory with a tensor that an operator in place changed "
                         "before");
    else if (l->value[v].kind == LOWERED_NONE)
        lower_fail(l, ERR_CONFIG, "it reads %s, which nothing feeds", l->net->value[v].name);
    l->reads_mixed |= l->value[v].is_mixed;
    return l->value[v];
}

struct lowered lower_in(struct lower *l, const char *name, int place)
{
    return lower_at(l, lower_value_of(l, name, place));
}

int lower_is_read(const struct lower *l, int value)
{
    for (int k = 0; k < l->net->n_nodes; k++)
        for (int a = 0; a < l->net->node[k].n_args; a++) {
            const struct import_arg *arg = &l->net->node[k].arg[a];

            for (int i = 0; i < arg->n; i++)
                if ((arg->kind == IMPORT_VALUE || arg->kind == IMPORT_VALUES) &&
                    arg->values[i] == value)
                    return 1;
        }
    for (int i = 0; i < l->net->n_outputs; i++)
        if (l->net->output[i].value == value)
            return 1;
    return 0;
}
