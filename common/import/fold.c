/* fold - one node at a time: its operands are found by name, its function by the tables, and its
 * result is compared with the type and shape that the export gave.  Integers are computed as int64,
 * float32 in double and rounded once, which is exact for + - * / and sqrt. */
#include "import/fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "import/fold_impl.h"

struct host_tensor host_of_file(const struct import_tensor *t)
{
    struct host_tensor x = {.type = t->type,
                            .n_dims = t->n_dims,
                            .data = (void *)t->bytes,
                            .memory = t->bytes,
                            .is_read_only = 1};
    int64_t n = 1;

    for (int d = t->n_dims - 1; d >= 0; d--) {
        x.dim[d] = t->dim[d];
        x.stride[d] = n;
        n *= t->dim[d];
    }
    return x;
}

static int fold_count(struct fold *f, int64_t bytes)
{
    *f->n_bytes += bytes;
    if (*f->n_bytes > FOLD_MAX_BYTES)
        fold_fail(f, "the constants of the network have more than %lld bytes",
                  (long long)FOLD_MAX_BYTES);
    return f->rc == 0;
}

int fold_new(struct fold *f, enum import_type type, int n_dims, const int64_t *dim)
{
    int64_t n = 1;

    if (f->rc < 0)
        return 0;
    if (n_dims > IMPORT_MAX_DIMS) {
        fold_fail(f, "a constant of %d dimensions, want %d at most", n_dims, IMPORT_MAX_DIMS);
        return 0;
    }
    f->out = (struct host_tensor){.type = type, .n_dims = n_dims};
    for (int d = n_dims - 1; d >= 0; d--) {
        f->out.dim[d] = dim[d];
        f->out.stride[d] = n;
        if (dim[d] < 0 || (dim[d] > 0 && n > FOLD_MAX_ELEMENTS / dim[d])) {
            fold_fail(f, "a constant of extent %lld and more, want %d elements at most",
                      (long long)dim[d], FOLD_MAX_ELEMENTS);
            return 0;
        }
        n *= dim[d];
    }
    if (!fold_count(f, n * (int64_t)import_type_size(type)))
        return 0;
    f->out.data = arena_alloc(f->a, (size_t)n * import_type_size(type) + 1);
    f->out.memory = f->out.data;
    return 1;
}

struct host_tensor fold_copy(struct fold *f, const struct host_tensor *t)
{
    const struct host_tensor kept = f->out;
    struct host_tensor to = *t;

    if (fold_new(f, t->type, t->n_dims, t->dim)) {
        to = f->out;
        fold_fill(&to, t);
    }
    f->out = kept;
    return to;
}

/* ---- arguments ---- */

const struct import_value *fold_says(const struct fold *f)
{
    return &f->net->value[f->node->out[f->which]];
}

enum import_type fold_type(const struct fold *f) { return fold_says(f)->type; }

const struct import_arg *fold_arg(const struct fold *f, const char *name, int place)
{
    const struct import_arg *a = import_arg_find(f->node, name, place);

    return a && a->kind != IMPORT_NONE ? a : NULL;
}

static int fold_is_int(const struct import_arg *a)
{
    return a->n > 0 && (a->kind == IMPORT_INT || a->kind == IMPORT_INTS || a->kind == IMPORT_FLAG ||
                        a->kind == IMPORT_DTYPE);
}

int64_t fold_size(struct fold *f, const char *name, int place, int64_t def)
{
    const struct import_arg *a = fold_arg(f, name, place);

    if (!a)
        return def;
    if (fold_is_int(a))
        return a->ints[0].number;
    fold_fail(f, "its %s is no integer", name);
    return def;
}

static void fold_needs_plain(struct fold *f, const struct import_arg *a)
{
    if (a && a->n > 0 && (a->kind == IMPORT_INT || a->kind == IMPORT_INTS) &&
        a->ints[0].value != IMPORT_NO_VALUE)
        fold_fail(f, "its %s is %s, a size that follows from the batch", a->name,
                  f->net->value[a->ints[0].value].name);
}

int64_t fold_int(struct fold *f, const char *name, int place, int64_t def)
{
    fold_needs_plain(f, fold_arg(f, name, place));
    return fold_size(f, name, place, def);
}

int fold_ints(struct fold *f, const char *name, int place, int64_t *to)
{
    const struct import_arg *a = fold_arg(f, name, place);

    if (!a || (a->kind != IMPORT_INTS && a->kind != IMPORT_INT) || a->n > IMPORT_MAX_DIMS) {
        fold_fail(f, "its %s is no list of %d integers at most", name, IMPORT_MAX_DIMS);
        return 0;
    }
    for (int i = 0; i < a->n; i++)
        to[i] = a->ints[i].number;
    return a->n;
}

double fold_real(struct fold *f, const char *name, int place, double def)
{
    const struct import_arg *a = fold_arg(f, name, place);

    if (a && a->kind == IMPORT_REAL)
        return a->reals[0];
    return a ? (double)fold_int(f, name, place, 0) : def;
}

struct host_tensor fold_in(struct fold *f, const char *name, int place, int *is_scalar)
{
    const struct import_arg *a = fold_arg(f, name, place);
    struct host_tensor t = {.type = IMPORT_I64}, kept = f->out;
    struct fold_num v = {0};

    *is_scalar = 1;
    if (a && a->kind == IMPORT_VALUE && f->value[a->values[0]]) {
        *is_scalar = 0;
        return *f->value[a->values[0]];
    }
    if (!a || (a->kind != IMPORT_REAL && a->kind != IMPORT_FLAG && a->kind != IMPORT_INT)) {
        fold_fail(f, "its %s is no constant", name);
        return t;
    }
    fold_needs_plain(f, a);
    t.type = a->kind == IMPORT_REAL   ? IMPORT_F64
             : a->kind == IMPORT_FLAG ? IMPORT_BOOL
                                      : IMPORT_I64;
    if (a->kind == IMPORT_REAL)
        v.f = a->reals[0];
    else
        v.i = a->ints[0].number;
    if (fold_new(f, t.type, 0, NULL)) {
        t = f->out;
        fold_put(&t, 0, v, t.type);
    }
    f->out = kept;
    return t;
}

struct host_tensor fold_tensor(struct fold *f, const char *name, int place)
{
    int is_scalar;
    struct host_tensor t = fold_in(f, name, place, &is_scalar);

    if (is_scalar)
        fold_fail(f, "its %s is no constant tensor", name);
    return t;
}

int fold_list(struct fold *f, const char *name, int place, const struct host_tensor **to, int most)
{
    const struct import_arg *a = fold_arg(f, name, place);

    if (!a || (a->kind != IMPORT_VALUES && a->kind != IMPORT_VALUE) || a->n > most) {
        fold_fail(f, "its %s is no list of %d tensors at most", name, most);
        return 0;
    }
    for (int i = 0; i < a->n; i++) {
        to[i] = a->values[i] == IMPORT_NO_VALUE ? NULL : f->value[a->values[i]];
        if (a->values[i] != IMPORT_NO_VALUE && !to[i])
            fold_fail(f, "tensor %d of its %s is no constant", i, name);
    }
    return a->n;
}

int fold_dim(struct fold *f, int64_t dim, int n)
{
    if (n == 0 && (dim == 0 || dim == -1))
        return 0;
    if (dim < 0)
        dim += n;
    if (dim >= 0 && dim < n)
        return (int)dim;
    fold_fail(f, "dimension %lld of %d", (long long)dim, n);
    return 0;
}

void fold_mixes(struct fold *f, const char *name, int place, int d)
{
    const struct import_arg *a = fold_arg(f, name, place);

    if (f->rc == 0 && a && a->kind == IMPORT_VALUE && d < IMPORT_MAX_DIMS &&
        f->net->value[a->values[0]].symbol[d] >= 0)
        fold_fail(f,
                  "its result depends on all of dimension %d of %s, which follows from the batch",
                  d, f->net->value[a->values[0]].name);
}

int64_t fold_wrap_index(struct fold *f, int64_t k, int64_t n)
{
    const int64_t at = k < 0 ? k + n : k;

    if (at >= 0 && at < n)
        return at;
    fold_fail(f, "index %lld of %lld", (long long)k, (long long)n);
    return 0;
}

/* ---- one node ---- */

int fold_is_in_place(const char *target)
{
    const char *dot = strchr(target, '.');
    const size_t n = dot ? (size_t)(dot - target) : strlen(target);

    return n > 1 && target[n - 1] == '_' && target[0] != '_';
}

/* 1: the names are equal, or target is row's operator in place. */
static int fold_is_row(const char *target, const char *row)
{
    const char *dot = strchr(row, '.');
    const size_t n = dot ? (size_t)(dot - row) : strlen(row);

    if (!strcmp(target, row))
        return 1;
    return fold_is_in_place(target) && !strncmp(target, row, n) && target[n] == '_' &&
           !strcmp(target + n + 1, row + n);
}

static const struct fold_row *fold_find(const char *target)
{
    const struct fold_row *const tables[] = {fold_made, fold_views, fold_math, fold_one,
                                             fold_parts};

    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (const struct fold_row *row = tables[t]; row->target; row++)
            if (fold_is_row(target, row->target))
                return row;
    return NULL;
}

int fold_can(const char *target) { return fold_find(target) != NULL; }

/* The result goes into the memory of `self`, whose names and views all see it. */
static void fold_write_back(struct fold *f)
{
    const struct host_tensor self = fold_tensor(f, "self", 0);
    struct host_tensor from;

    if (f->rc < 0 || (f->out.data == self.data && f->out.memory == self.memory &&
                      f->out.n_dims == self.n_dims)) /* detach_ changes nothing */
        return;
    if (self.is_read_only) {
        fold_fail(f, "it changes a constant of the file in place");
        return;
    }
    for (int d = 0; d < self.n_dims; d++)
        if (self.dim[d] > 1 && self.stride[d] == 0)
            fold_fail(f,
                      "it changes a constant in place that repeats its elements along dimension %d",
                      d);
    if (f->rc < 0)
        return;
    from = fold_expand_to(f, f->out, self.n_dims, self.dim);
    from = fold_copy(f, &from); /* it may be a view of the memory that changes */
    if (f->rc == 0)
        fold_fill(&self, &from);
    f->out = self;
}

static void fold_compare(struct fold *f)
{
    const struct import_value *says = fold_says(f);
    int same = says->type == f->out.type && says->n_dims == f->out.n_dims;
    int64_t n = 1;

    for (int d = 0; same && d < f->out.n_dims; d++) {
        same = says->dim[d] == f->out.dim[d];
        n *= says->dim[d];
    }
    if (!same)
        fold_fail(f, "it gives %s and %d dimensions, the export says %s and %d, or other extents",
                  import_type_name(f->out.type), f->out.n_dims, import_type_name(says->type),
                  says->n_dims);
    else if (n > FOLD_MAX_ELEMENTS)
        fold_fail(f, "a constant of %lld elements, want %d elements at most", (long long)n,
                  FOLD_MAX_ELEMENTS);
    else
        (void)fold_count(f, n * (int64_t)import_type_size(says->type));
}

int fold_node(struct fold_host *h, const struct import_network *n, const struct import_node *node,
              struct err *err)
{
    struct fold f = {
        .a = h->a, .n_bytes = &h->n_bytes, .net = n, .node = node, .value = h->value, .err = err};
    const struct fold_row *row = fold_find(node->target);

    if (!row || node->n_out < 1)
        return err_set(err, ERR_UNSUPPORTED, "%s of %s is not computed before training",
                       node->target, node->name);
    for (; f.which < node->n_out && f.rc == 0; f.which++) {
        if (node->out[f.which] == IMPORT_NO_VALUE)
            continue;
        f.kind = row->kind;
        row->fold(&f);
        if (f.rc == 0 && fold_is_in_place(node->target))
            fold_write_back(&f);
        if (f.rc == 0)
            fold_compare(&f);
        if (f.rc == 0)
            h->value[node->out[f.which]] = arena_copy(h->a, &f.out, sizeof f.out);
    }
    return f.rc < 0 ? err_wrap(err, "constant %s", node->target) : 0;
}
