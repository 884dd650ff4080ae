/* program - makes a program of a graph, with a kernel for each node and places in the shared
 * spaces, and runs its stages. */
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/spans.h"
#include "base/util.h"
#include "program/impl.h"

size_t value_bytes(const struct value *v)
{
    return (size_t)shape_elements(&v->shape) * dtype_size(v->dtype);
}

static int all_outputs_empty(const struct graph *g, const struct node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NO_VALUE && value_bytes(&g->value[n->out[i]]))
            return 0;
    return 1;
}

/* 1: the node has no step: the engine runs it, it is an alias, or with batch 0 it has nothing to
 * compute. */
static int is_skipped(const struct graph *g, const struct node *n)
{
    const struct op_def *def = op_get(n->op);

    if (def->flags & (OP_ALIAS | OP_ENGINE))
        return 1;
    return g->batch == 0 && all_outputs_empty(g, n) &&
           ((def->flags & OP_ROWS) || !(def->flags & OP_EFFECT));
}

static int make_step(struct program *p, int k, struct err *err)
{
    const struct graph *g = p->graph;
    const struct node *n = &g->node[k];
    struct step *s = &p->step[p->n_steps];
    int rc;

    if (is_skipped(g, n))
        return 0;
    s->node = k;
    p->n_steps++;
    p->n_forward_steps += k < g->n_forward;
    if (g->batch == 0 && (op_get(n->op)->flags & OP_ROWS))
        return 0;
    rc = backend_make_kernel(p->backend, g, n, &s->kernel, err);
    if (rc < 0)
        return err_wrap(err, "%s (%s)", n->name, op_get(n->op)->name);
    if (s->kernel->scratch_bytes > p->scratch_bytes)
        p->scratch_bytes = s->kernel->scratch_bytes;
    return 0;
}

static int program_make_steps(struct program *p, struct err *err)
{
    int rc = 0;

    p->step = xcalloc((size_t)p->graph->n_nodes + 1, sizeof *p->step);
    for (int k = 0; rc == 0 && k < p->graph->n_nodes; k++)
        rc = make_step(p, k, err);
    if (!p->graph->n_forward) /* never differentiated, so all nodes are forward */
        p->n_forward_steps = p->n_steps;
    return rc;
}

/* Set the offset of v to that of the segment, in this alphabetical table, that is named as the
 * value `named` is. */
static int program_locate(struct program *p, int v, int named, const struct segment *const *table,
                          int n_segments, struct err *err)
{
    const struct value *value = &p->graph->value[named];
    const int at = layout_find(table, n_segments, value->name);
    const struct segment *s = at < 0 ? NULL : table[at];
    char seen[SHAPE_TEXT_LEN], want[SHAPE_TEXT_LEN];

    if (!s)
        return err_set(err, ERR_CONFIG, "%s is not in the layout", value->name);
    if (!shape_equal(&s->shape, &value->shape))
        return err_set(err, ERR_CONFIG, "%s is %s, the layout has %s", value->name,
                       shape_text(&value->shape, seen), shape_text(&s->shape, want));
    p->place[v].offset = (size_t)s->offset;
    if (value->role != VALUE_BASE) /* whose offsets are bytes */
        p->place[v].offset *= dtype_size(p->graph->value[v].dtype);
    return 0;
}

/* Set the offset of a value that lies in one of the shared spaces. */
static int locate_value(struct program *p, int v, struct err *err)
{
    const struct value *value = &p->graph->value[v];
    const struct layout *l = p->layout;

    if (value->role == VALUE_PARAM || value->role == VALUE_COPY || value->role == VALUE_GRAD ||
        value->role == VALUE_BASE || value->role == VALUE_STATE || value->role == VALUE_SHADOW)
        ASSERT(l);
    switch (value->role) {
    case VALUE_PARAM:
        return program_locate(p, v, v, l->param_by_name, l->n_params, err);
    case VALUE_GRAD:
    case VALUE_COPY:
        return program_locate(p, v, value->partner, l->param_by_name, l->n_params, err);
    case VALUE_BASE:
        return program_locate(p, v, v, l->base_by_name, l->n_base, err);
    case VALUE_STATE:
        return program_locate(p, v, v, l->state_by_name, l->n_states, err);
    case VALUE_SHADOW:
        return program_locate(p, v, value->partner, l->state_by_name, l->n_states, err);
    default:
        return 0;
    }
}

static int program_prepare(struct program *p, struct err *err)
{
    int rc = program_fuse(p->graph, p->backend, err);

    if (rc < 0)
        return rc;
    if (p->graph->recompute && p->graph->n_forward)
        program_recompute(p->graph, !p->layout || !p->layout->gathers);
    program_prune(p->graph);
    p->place = xcalloc((size_t)p->graph->n_values, sizeof *p->place);
    for (int v = 0; rc == 0 && v < p->graph->n_values; v++)
        rc = locate_value(p, v, err);
    if (rc < 0 || (rc = program_make_steps(p, err)) < 0 || (rc = program_make_stages(p, err)) < 0)
        return rc;
    program_plan(p);
    return 0;
}

int program_new(struct backend *b, struct graph *g, const struct layout *layout,
                struct program **out, struct err *err)
{
    struct program *p = xcalloc(1, sizeof *p);
    int rc;

    p->backend = b;
    p->graph = g;
    p->layout = layout;
    rc = program_prepare(p, err);
    if (rc < 0) {
        program_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    for (int s = 0; s < p->n_steps; s++)
        if (p->step[s].kernel)
            p->step[s].kernel->ops->free(p->step[s].kernel);
    backend_free(p->backend, p->constants);
    graph_free(p->graph);
    free(p->step);
    free(p->stage);
    free(p->sync_value);
    free(p->set);
    free(p->place);
    free(p);
}

int program_n_stages(const struct program *p) { return p->n_stages; }

const struct stage *program_stage(const struct program *p, int i)
{
    ASSERT(i >= 0 && i < p->n_stages);
    return &p->stage[i];
}

static int zero_outputs(struct program *p, const struct node *n, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < n->n_out; i++)
        if (n->out[i] != NO_VALUE && !(n->adds >> i & 1))
            rc = backend_zero(p->backend, p->place[n->out[i]].address,
                              value_bytes(&p->graph->value[n->out[i]]), err);
    return rc;
}

int program_run_step(struct program *p, int s, struct err *err)
{
    const struct node *n = &p->graph->node[p->step[s].node];
    struct kernel *k = p->step[s].kernel;
    const int64_t traced_ns = spans_begin();
    int rc = k ? k->ops->run(k, err) : zero_outputs(p, n, err);

    spans_end(traced_ns, n->name, op_get(n->op)->name);
    return rc < 0 ? err_wrap(err, "%s (%s)", n->name, op_get(n->op)->name) : 0;
}

int program_run_stage(struct program *p, int i, struct err *err)
{
    const struct stage *st = program_stage(p, i);
    int rc = 0;

    for (int s = st->from; rc == 0 && st->kind == STAGE_RUN && s < st->to; s++)
        rc = program_run_step(p, s, err);
    return rc;
}

int program_n_sets(const struct program *p) { return p->n_sets; }

const int *program_set(const struct program *p, int i, int *n)
{
    ASSERT(i >= 0 && i < p->n_sets);
    *n = p->set[i].n;
    return p->set[i].bucket;
}

int program_most_open(const struct program *p)
{
    int most = 0, n_complete = 0;

    for (int i = 0; i < p->n_stages; i++) {
        const struct stage *s = &p->stage[i];

        if (s->kind == STAGE_RUN && s->last_bucket + 1 - n_complete > most)
            most = s->last_bucket + 1 - n_complete;
        n_complete += s->kind == STAGE_BUCKET;
    }
    return most;
}

int64_t program_batch(const struct program *p) { return p->graph->batch; }

static void *program_address_of(const struct program *p, int v)
{
    return v == NO_VALUE ? NULL : p->place[v].address;
}

void *program_input(const struct program *p, int i)
{
    ASSERT(i >= 0 && i < p->graph->n_inputs);
    return program_address_of(p, p->graph->input[i]);
}

const void *program_output(const struct program *p, const char *name, const struct value **value)
{
    const struct graph *g = p->graph;

    for (int i = 0; i < g->n_outputs; i++)
        if (!strcmp(g->output[i].name, name)) {
            if (value)
                *value = &g->value[g->output[i].value];
            return program_address_of(p, g->output[i].value);
        }
    return NULL;
}

const void *program_logits(const struct program *p)
{
    return program_address_of(p, p->graph->logits);
}

static const char *stage_text(const struct stage *s)
{
    static const char *const text[] = {"run", "bucket", "sync", "gather"};

    return text[s->kind];
}

void program_print(const struct program *p, struct buf *out)
{
    for (int i = 0; i < p->n_stages; i++) {
        const struct stage *st = &p->stage[i];

        buf_printf(out, "%s%s", st->backward ? "backward " : "", stage_text(st));
        if (st->kind == STAGE_BUCKET)
            buf_printf(out, " %d", st->bucket);
        buf_printf(out, "\n");
        for (int s = st->from; st->kind == STAGE_RUN && s < st->to; s++) {
            const struct node *n = &p->graph->node[p->step[s].node];

            buf_printf(out, "  ");
            if (n->out[0] != NO_VALUE)
                buf_printf(out, "@%zu ", p->place[p->place[n->out[0]].root].offset);
            node_print(p->graph, n, out);
        }
    }
    buf_printf(out, "arena %zu bytes, of these %zu scratch\n", program_arena_bytes(p),
               p->scratch_bytes);
}
