/* print - writes a node as one line of text, for program_print:
 *   NAME (OPERATOR): input shape, ... -> output shape, ...
 * An output to which the node adds has += before its name. */
#include "base/buf.h"
#include "op/op.h"

/* adds: bit i is set if the node adds to value i. */
static void print_values(const struct graph *g, const int *id, int n, unsigned adds,
                         struct buf *out)
{
    char text[SHAPE_TEXT_LEN];

    for (int i = 0; i < n; i++) {
        if (i)
            buf_printf(out, ", ");
        if (id[i] == NO_VALUE)
            buf_printf(out, "-");
        else
            buf_printf(out, "%s%s %s", adds >> i & 1 ? "+= " : "", g->value[id[i]].name,
                       shape_text(&g->value[id[i]].shape, text));
    }
}

void node_print(const struct graph *g, const struct node *n, struct buf *out)
{
    buf_printf(out, "%s (%s): ", n->name, op_get(n->op)->name);
    print_values(g, n->in, n->n_in, 0, out);
    buf_printf(out, " -> ");
    print_values(g, n->out, n->n_out, n->adds, out);
    buf_printf(out, "\n");
}
