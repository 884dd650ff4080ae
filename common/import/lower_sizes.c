/* lower_sizes - sizes that the export left open: Dim("batch").
 *
 * The symbol of the first input's first dimension is the batch.  Other symbols keep the numbers
 * that they had at export.  Shapes are found from value to value, as in a file without symbols, and
 * each must then have the batch where the file has it.  The nodes that compute sizes make no value,
 * since the file has the numbers that they came to; as numbers in arithmetic those of the batch are
 * refused. */
#include <string.h>

#include "import/lower_impl.h"

static int sizes_root(const struct lower *l, int symbol)
{
    while (symbol >= 0 && l->net->symbol[symbol].of >= 0)
        symbol = l->net->symbol[symbol].of;
    return symbol;
}

void lower_sizes_begin(struct lower *l)
{
    l->batch_symbol = -1;
    for (int i = 0; i < l->net->n_inputs; i++) {
        const int at = l->net->input[i].value;
        const struct import_value *v = &l->net->value[at];

        if (at == IMPORT_NO_VALUE || v->is_int || v->n_dims == 0 ||
            l->choices->input[i] == NO_VALUE)
            continue;
        l->batch_symbol = sizes_root(l, v->symbol[0]);
        return;
    }
}

int lower_is_batch(const struct lower *l, const struct import_value *v, int d)
{
    return l->batch_symbol < 0 ? -1 : sizes_root(l, v->symbol[d]) == l->batch_symbol;
}

void lower_sizes_refuse(struct lower *l)
{
    const struct import_node *n = l->node;

    if (n->n_out > 0 && n->out[0] != IMPORT_NO_VALUE && l->net->value[n->out[0]].is_int)
        return;
    for (int i = 0; i < n->n_args; i++) {
        const struct import_arg *a = &n->arg[i];
        const int of = a->kind == IMPORT_INT && a->n > 0 ? a->ints[0].value : IMPORT_NO_VALUE;
        static const char *const numbers[] = {"other", "value", "exponent",   "alpha", "beta",
                                              "min",   "max",   "fill_value", NULL};

        for (int k = 0; of != IMPORT_NO_VALUE && numbers[k]; k++)
            if (!strcmp(a->name, numbers[k]))
                lower_fail(l, ERR_UNSUPPORTED,
                           "its %s is a size that the export left open (%s): the result would "
                           "depend on the number of samples of a rank",
                           a->name, l->net->value[of].name);
    }
}

void lower_sizes_check(struct lower *l)
{
    for (int i = 0; i < l->node->n_out && l->batch_symbol >= 0 && !lower_failed(l); i++) {
        const int out = l->node->out[i];
        const struct lowered *x = out == IMPORT_NO_VALUE ? NULL : &l->value[out];

        if (!x || x->kind != LOWERED_VALUE || x->n != l->net->value[out].n_dims)
            continue;
        for (int d = 0; d < x->n; d++)
            if (x->dim[d].is_batch != lower_is_batch(l, &l->net->value[out], d))
                lower_fail(l, ERR_UNSUPPORTED,
                           x->dim[d].is_batch
                               ? "dimension %d of its result is the batch, but a fixed size, %lld, "
                                 "in the file"
                               : "dimension %d of its result, %lld, follows from the batch in the "
                                 "file, but not from its inputs",
                           d, (long long)l->net->value[out].dim[d]);
    }
}

/* A size: its number is in the file. */
static void builders_size(struct lower *l, int kind)
{
    (void)l;
    (void)kind;
}

const struct import_builder import_sizes[] = {
    {"sym_size.int", builders_size, 0},
    {"_operator.add", builders_size, 0},
    {"_operator.sub", builders_size, 0},
    {"_operator.mul", builders_size, 0},
    {"_operator.floordiv", builders_size, 0},
    {"_operator.mod", builders_size, 0},
    {"_operator.neg", builders_size, 0},
    {"sym_constrain_range.default", builders_size, 0},
    {"sym_constrain_range_for_size.default", builders_size, 0},
    {"_assert_scalar.default", builders_size, 0},
    {0},
};
