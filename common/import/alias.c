/* alias - values that share memory, and what operators in place change.
 *
 * An operator in place (add_, relu_) makes a new value; all names of the changed tensor then mean
 * that one.  A view of it with another shape, or of a part, becomes stale: it is made again when it
 * is read (import/write.c), or reading it fails.
 * Constants share their elements as PyTorch's tensors do, so that a view of a constant sees the
 * change (import/constant.c). */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/lower_impl.h"

/* 1: target is the operator `name`, of any overload. */
static int alias_is(const char *target, const char *name)
{
    const size_t n = strlen(name);

    return !strncmp(target, name, n) && (target[n] == '.' || !target[n]);
}

/* ---- the file's own tensors ---- */

static int alias_is_count(const char *name)
{
    static const char end[] = "num_batches_tracked";
    const size_t n = strlen(name), m = sizeof end - 1;

    return n >= m && !strcmp(name + n - m, end);
}

static int alias_by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The name of a batch norm's tensor without its last part; in the arena. */
static char *alias_module_of(struct arena *a, const char *name)
{
    const char *dot = strrchr(name, '.');

    return arena_printf(a, "%.*s", dot ? (int)(dot - name) : 0, name);
}

char *lower_norm_uses(const struct import_network *n)
{
    char *use = xcalloc((size_t)n->n_tensors + 1, 1);
    char **module = xcalloc((size_t)n->n_tensors + 1, sizeof *module), *of;
    struct arena a = {0};
    size_t n_modules = 0;

    for (int k = 0; k < n->n_nodes; k++)
        for (int i = 0; strstr(n->node[k].target, "batch_norm") && i < n->node[k].n_args; i++) {
            const struct import_arg *arg = &n->node[k].arg[i];
            const int t = arg->kind == IMPORT_VALUE && !strncmp(arg->name, "running_", 8)
                              ? n->value[arg->values[0]].tensor
                              : -1;

            if (t >= 0 && n->tensor[t].role == IMPORT_BUFFER)
                use[t] = NORM_STATISTIC;
        }
    for (int t = 0; t < n->n_tensors; t++)
        if (use[t])
            module[n_modules++] = alias_module_of(&a, n->tensor[t].name);
    qsort(module, n_modules, sizeof *module, alias_by_text);
    for (int t = 0; t < n->n_tensors; t++) {
        const char *name = n->tensor[t].name;

        if (n->tensor[t].role != IMPORT_BUFFER || n->tensor[t].n_dims != 0 || !alias_is_count(name))
            continue;
        of = alias_module_of(&a, name);
        if (bsearch(&of, module, n_modules, sizeof *module, alias_by_text))
            use[t] = NORM_COUNT;
    }
    arena_fini(&a);
    free(module);
    return use;
}

static const char *alias_role(const struct import_tensor *t)
{
    return t->role == IMPORT_PARAMETER ? "a parameter"
           : t->role == IMPORT_BUFFER  ? "a buffer"
                                       : "a constant of the module";
}

int lower_guard(struct lower *l, const struct import_node *n)
{
    const int self = lower_value_of(l, "self", 0);
    const int t = self == IMPORT_NO_VALUE ? -1 : l->net->value[l->base[self]].tensor;
    const int in_place = fold_is_in_place(n->target);

    if (lower_failed(l) || t < 0)
        return 0;
    if (l->norm[t] == NORM_COUNT && (alias_is(n->target, "add_") || alias_is(n->target, "add") ||
                                     alias_is(n->target, "copy_"))) {
        if (n->n_out > 0 && n->out[0] != IMPORT_NO_VALUE)
            l->base[n->out[0]] = l->base[self]; /* a norm used again counts on */
        return 1;
    }
    if (!in_place || alias_is(n->target, "detach_") ||
        (l->norm[t] == NORM_STATISTIC && alias_is(n->target, "copy_")))
        return 0;
    lower_fail(l, ERR_UNSUPPORTED,
               "it changes %s, %s, in place; the network's own tensors change by the optimizer and "
               "by batch norms alone: compute a new tensor instead, or leave the update out",
               l->net->tensor[t].name, alias_role(&l->net->tensor[t]));
    return 1;
}

/* ---- names of one tensor ---- */

void lower_join(struct lower *l, int v, int base)
{
    int before = v;

    if (l->base[v] == base)
        return;
    while (l->next[before] != v)
        before = l->next[before];
    l->next[before] = l->next[v];
    l->next[v] = l->next[base];
    l->next[base] = v;
    l->base[v] = base;
}

void lower_rebind(struct lower *l, int changed, int out)
{
    const int base = l->base[changed];

    lower_join(l, out, base);
    l->is_view[out] = l->is_view[changed];
    for (int v = l->next[out]; v != out; v = l->next[v]) {
        l->host[v] = NULL;
        if (l->is_view[v] == l->is_view[changed] && (v == changed || !l->is_view[v])) {
            l->value[v] = l->value[out];
            l->is_stale[v] = 0;
        } else if (l->value[v].kind != LOWERED_NONE) {
            l->is_stale[v] = 1;
        }
    }
}

static void alias_share(struct lower *l, const struct import_node *n, int is_view)
{
    const int from =
        lower_value_of(l, n->n_args && !strcmp(n->arg[0].name, "input") ? "input" : "self", 0);

    for (int i = 0; i < n->n_out && from != IMPORT_NO_VALUE; i++) {
        if (n->out[i] == IMPORT_NO_VALUE)
            continue;
        lower_join(l, n->out[i], l->base[from]);
        l->is_view[n->out[i]] = (char)(is_view || l->is_view[from]);
    }
}

/* The tensor that n changed has its new value as the first output. */
static void alias_change(struct lower *l, const struct import_node *n)
{
    const int changed = lower_value_of(l, "self", 0), out = n->out[0];

    if (changed == IMPORT_NO_VALUE || changed == out)
        return;
    if (lower_can_write(l, changed))
        lower_write(l, changed, out);
    else
        lower_rebind(l, changed, out);
}

/* Views, and operators that may give their input itself, share its memory.  One without its
 * gradient counts as a view: what an operator in place changes has, or lacks, a gradient that the
 * others have not. */
void lower_track(struct lower *l, const struct import_node *n)
{
    static const char *const same[] = {"alias", "detach", "detach_", NULL};
    static const char *const maybe[] = {"dropout",    "feature_dropout", "alpha_dropout", "type_as",
                                        "reshape_as", "view_as",         "diagonal",      "movedim",
                                        "mT",         "numpy_T",         "narrow",        NULL};

    if (lower_failed(l))
        return;
    lower_note_view(l, n);
    for (int i = 0; same[i]; i++)
        if (alias_is(n->target, same[i])) {
            alias_share(l, n, n->no_gradient || alias_is(n->target, "detach"));
            return;
        }
    if (fold_is_in_place(n->target)) {
        if (n->n_out > 0 && n->out[0] != IMPORT_NO_VALUE)
            alias_change(l, n);
        return;
    }
    for (int i = 0; maybe[i]; i++)
        if (alias_is(n->target, maybe[i])) {
            alias_share(l, n, 1);
            return;
        }
    for (const struct import_builder *b = import_views; b->target; b++)
        if (!strcmp(b->target, n->target) && b->kind >= 0)
            alias_share(l, n, 1);
}
