/* check - what every reader of a foreign network promises, so that those who use one need not look.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/network.h"

/* More elements than any memory holds; products of two such numbers need care. */
#define CHECK_MAX_ELEMENTS ((int64_t)1 << 40)

struct check {
    const struct import_network *n;
    char *made; /* for each value: 1 once it is made */
    struct err *err;
};

static int check_fail(const struct check *c, const char *what, const char *name)
{
    return err_set(c->err, ERR_CORRUPT, "%s: %s: %s; the network is damaged: export it again",
                   c->n->path, name ? name : "", what);
}

static int check_shape(const struct check *c, int n_dims, const int64_t *dim, const char *name)
{
    int64_t n = 1;

    if (n_dims < 0 || n_dims > IMPORT_MAX_DIMS)
        return check_fail(c, "it has more than 8 dimensions", name);
    for (int i = 0; i < n_dims; i++) {
        if (dim[i] < 0)
            return check_fail(c, "an extent is negative", name);
        if (dim[i] > 0 && n > CHECK_MAX_ELEMENTS / dim[i])
            return check_fail(c, "it has too many elements", name);
        n *= dim[i] > 0 ? dim[i] : 1;
    }
    return 0;
}

static int check_value_of(const struct check *c, const struct import_value *v,
                          const struct import_tensor *t)
{
    if (v->type != t->type || v->n_dims != t->n_dims ||
        memcmp(v->dim, t->dim, (size_t)t->n_dims * sizeof *t->dim) != 0)
        return check_fail(c, "a value has another type or shape than its tensor", v->name);
    return 0;
}

static int check_values(const struct check *c)
{
    const struct import_network *n = c->n;

    for (int i = 0; i < n->n_values; i++) {
        const struct import_value *v = &n->value[i];

        if (!v->name || v->tensor < -1 || v->tensor >= n->n_tensors)
            return check_fail(c, "a value is of a tensor that is not there", v->name);
        if (v->is_int && v->tensor >= 0)
            return check_fail(c, "a tensor's value is an integer", v->name);
        if (v->is_int && (v->type != 0 || v->n_dims != 0))
            return check_fail(c, "an integer has a type or dimensions", v->name);
        if (v->is_int)
            continue;
        if ((unsigned)v->type >= IMPORT_TYPE_COUNT)
            return check_fail(c, "its type is unknown", v->name);
        if (check_shape(c, v->n_dims, v->dim, v->name) < 0)
            return c->err->code;
        for (int d = 0; d < v->n_dims; d++)
            if (v->symbol[d] < -1 || v->symbol[d] >= n->n_symbols)
                return check_fail(c, "an extent's symbol is not there", v->name);
        if (v->tensor >= 0 && check_value_of(c, v, &n->tensor[v->tensor]) < 0)
            return c->err->code;
        c->made[i] = v->tensor >= 0;
    }
    return 0;
}

/* Tied tensors are one: the second is lowered as the first. */
static int check_tie(const struct check *c, const struct import_tensor *t,
                     const struct import_tensor *first)
{
    if (t->type != first->type || t->n_dims != first->n_dims ||
        memcmp(t->dim, first->dim, (size_t)t->n_dims * sizeof *t->dim) != 0)
        return check_fail(c, "it is tied to a tensor of another type or shape", t->name);
    if ((t->role == IMPORT_PARAMETER) != (first->role == IMPORT_PARAMETER))
        return err_set(c->err, ERR_UNSUPPORTED,
                       "%s: %s and %s share their elements, and one of them is a parameter, the "
                       "other is not; give one of them a copy (clone) and export the network again",
                       c->n->path, t->name, first->name);
    return 0;
}

static int check_by_name(const void *a, const void *b)
{
    return strcmp((*(const struct import_tensor *const *)a)->name,
                  (*(const struct import_tensor *const *)b)->name);
}

/* Each tensor has a name of its own, by which a checkpoint knows it. */
static int check_names(const struct check *c)
{
    const size_t n = (size_t)c->n->n_tensors;
    const struct import_tensor **sorted;
    void *memory;
    int rc = 0;

    if (try_alloc(&memory, (n + 1) * sizeof *sorted, "a network's names", c->err) < 0)
        return c->err->code;
    sorted = memory;
    for (size_t i = 0; i < n; i++)
        sorted[i] = &c->n->tensor[i];
    qsort(sorted, n, sizeof *sorted, check_by_name);
    for (size_t i = 1; i < n && rc == 0; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            rc = check_fail(c, "two tensors have this name", sorted[i]->name);
    free(memory);
    return rc;
}

static int check_tensors(const struct check *c)
{
    for (int i = 0; i < c->n->n_tensors; i++) {
        const struct import_tensor *t = &c->n->tensor[i];

        if (!t->name || (unsigned)t->type >= IMPORT_TYPE_COUNT ||
            (unsigned)t->role > IMPORT_CONSTANT)
            return check_fail(c, "a tensor's type or role is unknown", t->name);
        if (check_shape(c, t->n_dims, t->dim, t->name) < 0)
            return c->err->code;
        if (t->same_as < -1 || t->same_as >= i ||
            (t->same_as >= 0 && c->n->tensor[t->same_as].same_as >= 0))
            return check_fail(c, "it is tied to a later tensor, or to a tied one", t->name);
        if (t->same_as >= 0 && check_tie(c, t, &c->n->tensor[t->same_as]) < 0)
            return c->err->code;
        if (t->role == IMPORT_CONSTANT && !t->bytes)
            return check_fail(c, "a constant has no elements", t->name);
        if (t->offset < 0)
            return check_fail(c, "its offset is negative", t->name);
        for (int d = 0; d < t->n_dims; d++)
            if (t->stride[d] < 0)
                return check_fail(c, "a stride is negative", t->name);
    }
    return 0;
}

static int check_symbols(const struct check *c)
{
    for (int i = 0; i < c->n->n_symbols; i++) {
        const struct import_symbol *s = &c->n->symbol[i];

        if (!s->name || s->of < -1 || s->of >= i)
            return check_fail(c, "a symbol follows from a later one", s->name);
    }
    return 0;
}

/* The value v is read: it is made, and is an integer or not. */
static int import_check_read(const struct check *c, const char *name, int v, int is_int)
{
    if (v < 0 || v >= c->n->n_values)
        return check_fail(c, "it reads a value that is not there", name);
    if (!c->made[v])
        return check_fail(c, "it reads a value before that is made", name);
    if (c->n->value[v].is_int != is_int)
        return check_fail(
            c, is_int ? "it reads a tensor as an integer" : "it reads an integer as a tensor",
            name);
    return 0;
}

static int check_make(const struct check *c, const char *name, int v)
{
    if (v < 0 || v >= c->n->n_values)
        return check_fail(c, "it makes a value that is not there", name);
    if (c->made[v])
        return check_fail(c, "it makes a value a second time", name);
    c->made[v] = 1;
    return 0;
}

static int check_counts(const struct import_arg *a)
{
    const int ints = a->ints != NULL, reals = a->reals != NULL, values = a->values != NULL;

    if (a->n < 0)
        return 0;
    switch (a->kind) {
    case IMPORT_NONE:
        return a->n == 0;
    case IMPORT_INT:
    case IMPORT_FLAG:
        return a->n == 1 && ints;
    case IMPORT_DTYPE:
        return a->n == 1 && ints && a->ints[0].value < 0 && a->ints[0].number >= 0 &&
               a->ints[0].number < IMPORT_TYPE_COUNT;
    case IMPORT_INTS:
    case IMPORT_FLAGS:
        return a->n == 0 || ints;
    case IMPORT_REAL:
        return a->n == 1 && reals;
    case IMPORT_REALS:
        return a->n == 0 || reals;
    case IMPORT_TEXT:
        return a->text != NULL;
    case IMPORT_VALUE:
        return a->n == 1 && values;
    case IMPORT_VALUES:
        return a->n == 0 || values;
    }
    return 0;
}

static int check_arg(const struct check *c, const struct import_node *n, const struct import_arg *a)
{
    const int is_list = a->kind == IMPORT_VALUES;

    if (!a->name || !check_counts(a))
        return check_fail(c, "an argument has another number of elements than its kind", n->name);
    for (int i = 0; a->ints && i < a->n; i++)
        if (a->ints[i].value != IMPORT_NO_VALUE &&
            import_check_read(c, n->name, a->ints[i].value, 1) < 0)
            return c->err->code;
    for (int i = 0; a->values && i < a->n; i++)
        if (!(is_list && a->values[i] == IMPORT_NO_VALUE) &&
            import_check_read(c, n->name, a->values[i], 0) < 0)
            return c->err->code;
    return 0;
}

static int check_nodes(const struct check *c)
{
    for (int i = 0; i < c->n->n_nodes; i++) {
        const struct import_node *n = &c->n->node[i];

        if (!n->target || !n->module || !n->name)
            return check_fail(c, "a node has no name", n->name);
        for (int k = 0; k < n->n_args; k++)
            if (check_arg(c, n, &n->arg[k]) < 0)
                return c->err->code;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] != IMPORT_NO_VALUE && check_make(c, n->name, n->out[k]) < 0)
                return c->err->code;
    }
    return 0;
}

static int check_ports(const struct check *c, int is_input)
{
    const struct import_port *p = is_input ? c->n->input : c->n->output;
    const int count = is_input ? c->n->n_inputs : c->n->n_outputs;

    for (int i = 0; i < count; i++) {
        const int rc = !p[i].name ? check_fail(c, "an input or output has no name", NULL)
                       : is_input ? check_make(c, p[i].name, p[i].value)
                                  : import_check_read(c, p[i].name, p[i].value, 0);

        if (rc < 0)
            return rc;
    }
    return 0;
}

int import_network_check(const struct import_network *n, struct err *err)
{
    struct check c = {n, NULL, err};
    void *made;
    int rc;

    if (n->n_values > IMPORT_MAX_VALUES || n->n_nodes > IMPORT_MAX_NODES ||
        n->n_tensors > IMPORT_MAX_TENSORS || n->n_symbols > IMPORT_MAX_VALUES)
        return check_fail(&c, "it has too many nodes, values or tensors", "network");
    if (try_alloc(&made, (size_t)n->n_values + 1, "a network's values", err) < 0)
        return err->code;
    c.made = made;
    rc = check_symbols(&c) < 0 || check_tensors(&c) < 0 || check_names(&c) < 0 ||
                 check_values(&c) < 0 || check_ports(&c, 1) < 0 || check_nodes(&c) < 0 ||
                 check_ports(&c, 0) < 0
             ? err->code
             : 0;
    free(made);
    return rc;
}

int64_t import_tensor_elements(const struct import_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dims; i++)
        n *= t->dim[i];
    return n;
}
