/* inputs - which field each input takes, and what the network says about the numbers of a field:
 * the rows of the tables that an input is an index of. */
#include "import/inputs.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "config/tree.h"

/* ---- model.inputs ---- */

static int inputs_read(const char *text, size_t len, struct arena *arena, const struct tree **out,
                       size_t *at, struct err *err)
{
    const struct tree *t;

    if (tree_parse(text, len, arena, &t, at, err) < 0)
        return err->code;
    *at = t->at;
    if (t->kind != TREE_MAP)
        return err_set(err, ERR_CONFIG,
                       "want a mapping from inputs of the network to fields of the samples, such "
                       "as {input_ids: tokens}");
    for (int i = 0; i < t->n; i++) {
        *at = t->child[i]->at;
        if (t->child[i]->kind != TREE_WORD)
            return err_set(err, ERR_CONFIG, "%s: want the name of one field", t->key[i]->text);
    }
    *out = t;
    return 0;
}

int import_inputs_check(const char *text, size_t len, size_t *at, struct err *err)
{
    const struct tree *t;
    struct arena arena;
    int rc;

    arena_init(&arena);
    rc = inputs_read(text, len, &arena, &t, at, err);
    arena_fini(&arena);
    return rc;
}

/* ---- who takes what ---- */

static int inputs_find_field(const struct sample_spec *s, const char *name)
{
    for (int i = 0; i < s->n_fields; i++)
        if (!strcmp(s->field[i].name, name))
            return i;
    return -1;
}

static int inputs_find_port(const struct import_network *n, const char *name)
{
    for (int i = 0; i < n->n_inputs; i++)
        if (!strcmp(n->input[i].name, name))
            return i;
    return -1;
}

static int inputs_fail(const struct import_network *n, const char *what, const char *why,
                       struct err *err)
{
    struct buf names = {0};
    int rc;

    for (int i = 0; i < n->n_inputs; i++)
        buf_printf(&names, "%s%s", i ? ", " : "",
                   *n->input[i].name ? n->input[i].name : "(unnamed)");
    rc = err_set(err, ERR_CONFIG, "model.inputs: %s %s; %s has the inputs %s", what, why, n->path,
                 buf_cstr(&names));
    buf_fini(&names);
    return rc;
}

static int inputs_is_read(const struct import_network *n, int value)
{
    for (int k = 0; k < n->n_nodes; k++)
        for (int a = 0; a < n->node[k].n_args; a++) {
            const struct import_arg *arg = &n->node[k].arg[a];

            for (int i = 0; (arg->kind == IMPORT_VALUE || arg->kind == IMPORT_VALUES) && i < arg->n;
                 i++)
                if (arg->values[i] == value)
                    return 1;
        }
    for (int i = 0; i < n->n_outputs; i++)
        if (n->output[i].value == value)
            return 1;
    return 0;
}

/* The input of each field that model.inputs names; taken[] notes the fields.  Only by it the target
 * is an input, too: a network that computes its loss needs that. */
static int inputs_by_choice(const struct import_network *n, const struct tree *t,
                            const struct sample_spec *s, int *field, int *taken, struct err *err)
{
    for (int i = 0; i < t->n; i++) {
        const int at = inputs_find_port(n, t->key[i]->text),
                  f = inputs_find_field(s, t->child[i]->text);

        if (at < 0)
            return inputs_fail(n, t->key[i]->text, "is no input of the network", err);
        if (f < 0)
            return inputs_fail(n, t->child[i]->text, "is no field of the samples", err);
        field[at] = f;
        taken[f] = 1;
    }
    return 0;
}

static void inputs_by_name(const struct import_network *n, const struct sample_spec *s, int *field,
                           int *taken)
{
    for (int i = 0; i < n->n_inputs; i++) {
        const int f = inputs_find_field(s, n->input[i].name);

        if (field[i] >= 0 || f < 0 || taken[f] || s->field[f].role != SAMPLE_INPUT)
            continue;
        field[i] = f;
        taken[f] = 1;
    }
}

static int inputs_in_order(const struct import_network *n, const struct sample_spec *s, int *field,
                           const int *taken, struct err *err)
{
    int i = 0;

    for (int f = 0; f < s->n_fields; f++) {
        if (s->field[f].role != SAMPLE_INPUT || taken[f])
            continue;
        while (i < n->n_inputs && (field[i] >= 0 || !inputs_is_read(n, n->input[i].value)))
            i++;
        if (i == n->n_inputs)
            return inputs_fail(n, s->field[f].name,
                               "is a field of the samples that no input is left for", err);
        field[i] = f;
    }
    for (i = 0; i < n->n_inputs; i++)
        if (field[i] < 0 && inputs_is_read(n, n->input[i].value))
            return inputs_fail(n, n->input[i].name,
                               "is an input for which the samples have no field (the target feeds "
                               "one that model.inputs names with it)",
                               err);
    return 0;
}

int import_inputs_find(const struct import_options *o, const struct sample_spec *s, int *field,
                       struct err *err)
{
    const struct import_network *n = o->network;
    int taken[SAMPLE_MAX_FIELDS] = {0}, rc;
    const struct tree *t = NULL;
    struct arena arena;
    size_t at;

    for (int i = 0; i < n->n_inputs; i++)
        field[i] = -1;
    arena_init(&arena);
    rc = inputs_read(o->inputs, strlen(o->inputs), &arena, &t, &at, err);
    if (rc < 0)
        (void)err_wrap(err, "model.inputs");
    else
        rc = inputs_by_choice(n, t, s, field, taken, err);
    arena_fini(&arena);
    if (rc < 0)
        return rc;
    inputs_by_name(n, s, field, taken);
    return inputs_in_order(n, s, field, taken, err);
}

/* ---- the numbers that the network takes ---- */

/* 1: the operator gives elements of its first argument, and no others. */
static int inputs_is_view(const char *target)
{
    static const char *const views[] = {
        "view.",      "reshape.",   "flatten.",    "unflatten.", "transpose.", "permute.",
        "unsqueeze.", "squeeze.",   "expand.",     "slice.",     "select.",    "split.",
        "chunk.",     "contiguous", "alias.",      "clone.",     "detach.",    "to.",
        "t.",         "unbind.",    "lift_fresh_", "repeat.",    "swapaxes.",  "split_with_sizes."};

    for (size_t i = 0; i < ARRAY_LEN(views); i++)
        if (!strncmp(target, views[i], strlen(views[i])))
            return 1;
    return 0;
}

static int inputs_arg_value(const struct import_node *k, const char *name, int place)
{
    const struct import_arg *a = import_arg_find(k, name, place);

    return a && a->kind == IMPORT_VALUE && a->n > 0 ? a->values[0] : IMPORT_NO_VALUE;
}

/* The rows of the smallest table that the input is an index of; INT64_MAX: there is none. */
static int64_t inputs_rows(const struct import_network *n, int input)
{
    char *same = xcalloc((size_t)n->n_values + 1, 1); /* values that have the input's numbers */
    int64_t rows = INT64_MAX;

    if (n->input[input].value != IMPORT_NO_VALUE)
        same[n->input[input].value] = 1;
    for (int i = 0; i < n->n_nodes; i++) {
        const struct import_node *k = &n->node[i];
        const int self = inputs_arg_value(k, "self", 0);

        if (!strcmp(k->target, "embedding.default")) {
            const int table = inputs_arg_value(k, "weight", 0),
                      index = inputs_arg_value(k, "indices", 1);

            if (table != IMPORT_NO_VALUE && index != IMPORT_NO_VALUE && same[index] &&
                n->value[table].n_dims > 0)
                rows = min_i64(rows, n->value[table].dim[0]);
        } else if (self != IMPORT_NO_VALUE && same[self] && inputs_is_view(k->target)) {
            for (int o = 0; o < k->n_out; o++)
                if (k->out[o] != IMPORT_NO_VALUE)
                    same[k->out[o]] = 1;
        }
    }
    free(same);
    return rows;
}

static void inputs_limit_type(enum import_type t, int64_t *least, int64_t *most)
{
    static const struct {
        enum import_type type;
        int64_t least, most;
    } row[] = {{IMPORT_I16, INT16_MIN, INT16_MAX},
               {IMPORT_I8, INT8_MIN, INT8_MAX},
               {IMPORT_U8, 0, UINT8_MAX}};

    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (row[i].type == t) {
            *least = max_i64(*least, row[i].least);
            *most = min_i64(*most, row[i].most);
        }
}

void import_inputs_limit(const void *arg, const struct sample_spec *s, int field, int64_t *least,
                         int64_t *most)
{
    const struct import_options *o = import_options_of(arg);
    const struct import_network *n = o ? o->network : NULL;
    int *taken = n ? xcalloc((size_t)n->n_inputs + 1, sizeof *taken) : NULL;
    struct err told_later; /* when the graph is made */

    for (int i = 0; n && import_inputs_find(o, s, taken, &told_later) == 0 && i < n->n_inputs;
         i++) {
        const int value = n->input[i].value;
        const int64_t rows = taken[i] == field ? inputs_rows(n, i) : INT64_MAX;

        if (taken[i] != field || value == IMPORT_NO_VALUE)
            continue;
        inputs_limit_type(n->value[value].type, least, most);
        if (rows < INT64_MAX) {
            *least = max_i64(*least, 0);
            *most = min_i64(*most, rows - 1);
        }
    }
    free(taken);
}

static const struct import_value *inputs_tokens(const struct import_options *o)
{
    const struct import_network *n = o ? o->network : NULL;
    const int v = n && n->n_inputs > 0 ? n->input[0].value : IMPORT_NO_VALUE;

    if (v == IMPORT_NO_VALUE || n->value[v].n_dims != 2 ||
        (n->value[v].type != IMPORT_I64 && n->value[v].type != IMPORT_I32))
        return NULL;
    return &n->value[v];
}

int64_t import_inputs_context(const struct import_options *o)
{
    const struct import_value *v = inputs_tokens(o);

    return v ? v->dim[1] : 0;
}

int64_t import_inputs_vocab(const struct import_options *o)
{
    const int64_t rows = inputs_tokens(o) ? inputs_rows(o->network, 0) : INT64_MAX;

    return rows < INT64_MAX ? rows : 0;
}

/* ---- telling ---- */

static void inputs_print_port(const struct import_network *n, int i, struct buf *out)
{
    const struct import_value *v =
        n->input[i].value == IMPORT_NO_VALUE ? NULL : &n->value[n->input[i].value];

    buf_printf(out, "%s", *n->input[i].name ? n->input[i].name : "(unnamed)");
    for (int d = 0; v && d < v->n_dims; d++)
        buf_printf(out, "%s%lld%s", d ? "," : " [", (long long)v->dim[d],
                   d + 1 == v->n_dims ? "]" : "");
    if (v)
        buf_printf(out, " %s", import_type_name(v->type));
}

void import_inputs_print(const struct import_options *o, const struct sample_spec *s,
                         struct buf *out)
{
    const struct import_network *n = o->network;
    int *taken = xcalloc((size_t)n->n_inputs + 1, sizeof *taken);
    struct err ignored;
    const int rc = import_inputs_find(o, s, taken, &ignored);

    for (int f = 0; rc == 0 && f < s->n_fields; f++) {
        const char *between = " feeds ";

        buf_printf(out, "%-18s ",
                   s->field[f].role == SAMPLE_INPUT     ? "field"
                   : s->field[f].role == SAMPLE_STARTS  ? "documents"
                   : s->field[f].role == SAMPLE_ANSWERS ? "answers"
                                                        : "target");
        sample_field_print(&s->field[f], out);
        buf_printf(out, ", %s", dtype_name(s->field[f].dtype));
        for (int i = 0; i < n->n_inputs; i++)
            if (taken[i] == f) {
                buf_printf(out, "%s", between);
                inputs_print_port(n, i, out);
                between = " and ";
            }
        buf_printf(out, "\n");
    }
    free(taken);
}
