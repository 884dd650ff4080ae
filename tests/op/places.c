/* places - the guarded memory of one node's operands. */
#include "places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/half.h"

void world_fail(struct world *w, const struct node *n, const char *what)
{
    if (!is_wrong(w))
        snprintf(w->wrong, sizeof w->wrong, "case %s, node %s (%s): %s", w->c->name, n->name,
                 op_get(n->op)->name, what);
}

int places_input(const struct node *n, int value)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == value)
            return i;
    return -1;
}

void places_init(struct places *p, const struct world *w, const struct node *n, size_t scratch,
                 size_t shift, int in_place)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE) {
            guarded_init(&p->in[i], w->r->b, case_bytes(w->g, n->in[i]), shift);
            p->in_at[i] = p->in[i].at;
        }
    for (int i = 0; i < n->n_out; i++) {
        int same = n->out[i] == NO_VALUE ? -1 : places_input(n, n->out[i]);

        if (n->out[i] == NO_VALUE)
            continue;
        if (in_place && i == 0)
            same = op_get(n->op)->inplace_in;
        p->at[i] = same < 0 ? &p->out[i] : &p->in[same];
        if (same < 0)
            guarded_init(&p->out[i], w->r->b, case_bytes(w->g, n->out[i]), shift);
        p->out_at[i] = p->at[i]->at;
        p->now[i] = xmalloc(p->at[i]->n_bytes + 1);
    }
    guarded_init(&p->scratch, w->r->b, scratch, 0);
}

void places_fini(struct places *p)
{
    for (int i = 0; i < NODE_MAX_IN; i++)
        guarded_fini(&p->in[i]);
    for (int i = 0; i < NODE_MAX_OUT; i++) {
        guarded_fini(&p->out[i]);
        free(p->now[i]);
    }
    guarded_fini(&p->scratch);
}

double places_term(int64_t i) { return (double)(i * 7 % 13 - 6) / 4; }

static void load_terms(struct guarded *to, const struct value *v)
{
    const int64_t n = shape_elements(&v->shape);
    unsigned char *content = xcalloc(1, (size_t)n * dtype_size(v->dtype) + 1);

    for (int64_t i = 0; i < n; i++)
        real_put(content, v->dtype, i, (float)places_term(i));
    guarded_set(to, content);
    free(content);
}

void places_load(struct places *p, const struct world *w, const struct node *n)
{
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (p->at[i] == &p->out[i])
            guarded_set(&p->out[i], NULL);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE)
            guarded_set(&p->in[i], w->own[n->in[i]]);
    if (n->op == OP_commit) /* writes nothing if the step is not applied: the state keeps this */
        guarded_set(&p->out[0], w->own[n->out[0]]);
    for (int i = 0; i < n->n_out; i++)
        if (n->adds >> i & 1)
            load_terms(&p->out[i], &w->g->value[n->out[i]]);
    guarded_set(&p->scratch, NULL);
}

void places_check_guards(const struct places *p, struct world *w, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE && !guarded_intact(&p->in[i]))
            world_fail(w, n, "wrote outside an input");
    for (int i = 0; i < n->n_out; i++)
        if (p->at[i] == &p->out[i] && !guarded_intact(&p->out[i]))
            world_fail(w, n, "wrote outside an output");
    if (!guarded_intact(&p->scratch))
        world_fail(w, n, "wrote outside the scratch");
}

void places_check_inputs(const struct places *p, struct world *w, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        unsigned char *now;
        int written = 0;

        if (n->in[i] == NO_VALUE)
            continue;

        for (int j = 0; j < n->n_out; j++)
            written |= p->out_at[j] && p->out_at[j] == p->in_at[i];
        written |= n->in[i] == w->g->metrics && op_get(n->op)->flags & OP_EFFECT;
        now = xmalloc(p->in[i].n_bytes + 1);
        guarded_get(&p->in[i], now);
        if (!written && memcmp(now, w->own[n->in[i]], p->in[i].n_bytes))
            world_fail(w, n, "changed an input");
        free(now);
    }
}
