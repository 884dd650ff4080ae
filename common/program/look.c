/* look - runs a stage node by node, and shows the tensors of each node to a function.
 *
 * A tensor is shown before the next node runs, because that one may write to the same memory. */
#include "program/impl.h"

struct looking {
    program_look *look;
    void *arg;
};

static int look_at_value(struct program *p, const struct node *n, int v, int given,
                         const struct looking *l, struct err *err)
{
    const struct program_sight s = {.node = n->name,
                                    .op = op_get(n->op)->name,
                                    .value = &p->graph->value[v],
                                    .is_given = given,
                                    .at = p->place[v].address};

    return l->look(l->arg, &s, err);
}

static int look_at_step(struct program *p, int s, const struct looking *l, struct err *err)
{
    const struct node *n = &p->graph->node[p->step[s].node];
    int rc = 0;

    for (int i = 0; i < n->n_in && rc == 0; i++) {
        /* The tensor may be the samples under another shape. */
        const int v = n->in[i] == NO_VALUE ? NO_VALUE : p->place[n->in[i]].root;

        if (is_given(p->graph, v))
            rc = look_at_value(p, n, v, 1, l, err);
    }
    if (rc == 0)
        rc = program_run_step(p, s, err);
    for (int i = 0; i < n->n_out && rc == 0; i++)
        if (n->out[i] != NO_VALUE)
            rc = look_at_value(p, n, n->out[i], 0, l, err);
    return rc;
}

int program_look_at_stage(struct program *p, int i, program_look *look, void *arg, struct err *err)
{
    const struct stage *st = program_stage(p, i);
    const struct looking l = {look, arg};
    int rc = 0;

    for (int s = st->from; rc == 0 && st->kind == STAGE_RUN && s < st->to; s++)
        rc = look_at_step(p, s, &l, err);
    return rc;
}
