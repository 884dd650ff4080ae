/* compose_recurrent - LSTM, GRU and RNN of several layers and both directions.
 *
 * Each direction of a layer is a linear node over all time steps, and a recurrent node behind it.
 * Between two layers the rows stay [N*T,H]. */
#include "op/compose.h"

#include "base/util.h"

/* One layer in one direction. */
struct line {
    const struct compose_recurrent *r;
    int64_t n, t, h; /* samples, time steps, hidden units */
    int which;       /* layer * directions + direction */
    int reverse;
};

static const struct shape *recurrent_shape(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

/* The initial state of the line; all 0 is NO_VALUE. */
static int recurrent_first(struct compose *c, const struct line *l, int states)
{
    return states == NO_VALUE ? NO_VALUE : compose_select(c, states, 0, l->which);
}

/* The state behind the last step of the line, [1,N,H]. */
static int recurrent_last(struct compose *c, const struct line *l, int rows)
{
    int x = compose_reshape(c, rows, SHAPE(l->n, l->t, l->h));

    x = compose_select(c, x, 1, l->reverse ? 0 : l->t - 1);
    return compose_reshape(c, x, SHAPE(1, l->n, l->h));
}

/* x [N*T,I] -> [N*T,H] */
static int recurrent_line(struct compose *c, const struct line *l, int x, int *cell)
{
    const struct compose_recurrent *r = l->r;
    const int *param = r->param + l->which * (r->has_bias ? 4 : 2);
    const union node_attr attr = {
        .recurrent = {.kind = r->kind, .length = l->t, .reverse = l->reverse}};
    const int gx = compose_append(c, OP_linear, NULL,
                                  (const int[]){x, param[0], r->has_bias ? param[2] : NO_VALUE}, 3);
    const int in[] = {[RECURRENT_GX] = gx,
                      [RECURRENT_W] = param[1],
                      [RECURRENT_B] = r->has_bias ? param[3] : NO_VALUE,
                      [RECURRENT_H0] = recurrent_first(c, l, r->h0),
                      [RECURRENT_C0] = recurrent_first(c, l, r->c0)};
    const int y = compose_append(c, OP_recurrent, &attr, in, 5);

    *cell = c->rc < 0 ? NO_VALUE : c->g->node[c->g->n_nodes - 1].out[RECURRENT_CELL];
    return y;
}

/* All of `states`, one behind the other. */
static int recurrent_join(struct compose *c, int *states, int n)
{
    int all = states[0];

    for (int i = 1; i < n; i += NODE_MAX_IN - 1) {
        const int more = (int)min_i64(n - i, NODE_MAX_IN - 1);
        int part[NODE_MAX_IN] = {all};

        for (int k = 0; k < more; k++)
            part[1 + k] = states[i + k];
        all = compose_concat(c, part, 1 + more, 0);
    }
    return all;
}

static int recurrent_check_input(struct compose *c, const struct compose_recurrent *r, int x)
{
    const struct shape *s = recurrent_shape(c, x), *w = recurrent_shape(c, r->param[1]);
    char text[SHAPE_TEXT_LEN];

    if (s->n != 3 || s->dim[1] < 1)
        c->rc = err_set(c->err, ERR_CONFIG,
                        "%s: the input is %s, want [N,T,I]: samples, time steps, features", c->name,
                        shape_text(s, text));
    else if (w->n != 2 || w->dim[1] < 1)
        c->rc = err_set(c->err, ERR_CONFIG, "%s: weight_hh is %s, want a matrix", c->name,
                        shape_text(w, text));
    return c->rc;
}

int compose_recurrent(struct compose *c, const struct compose_recurrent *r, int x, int *h_n,
                      int *c_n)
{
    const int dirs = r->bidirectional ? 2 : 1, n = r->layers * dirs;
    struct line l = {.r = r};
    int *last_h, *last_c;

    if (c->rc < 0 || recurrent_check_input(c, r, x) < 0)
        return NO_VALUE;
    last_h = arena_alloc(&c->g->arena, 2 * (size_t)n * sizeof *last_h);
    last_c = last_h + n;
    l.n = recurrent_shape(c, x)->dim[0];
    l.t = recurrent_shape(c, x)->dim[1];
    l.h = recurrent_shape(c, r->param[1])->dim[1];
    x = compose_reshape(c, x, SHAPE(l.n * l.t, recurrent_shape(c, x)->dim[2]));
    for (int k = 0; k < r->layers; k++) {
        int y[2], cell;

        if (k > 0)
            x = compose_dropout(c, x, r->dropout, r->tag + k - 1, l.t * max_i64(r->rows, 1), 0);
        for (l.reverse = 0; l.reverse < dirs; l.reverse++) {
            l.which = k * dirs + l.reverse;
            y[l.reverse] = recurrent_line(c, &l, x, &cell);
            last_h[l.which] = h_n ? recurrent_last(c, &l, y[l.reverse]) : NO_VALUE;
            last_c[l.which] = c_n ? recurrent_last(c, &l, cell) : NO_VALUE;
        }
        x = dirs > 1 ? compose_concat(c, y, dirs, 1) : y[0];
    }
    if (h_n)
        *h_n = recurrent_join(c, last_h, n);
    if (c_n)
        *c_n = recurrent_join(c, last_c, n);
    return compose_reshape(c, x, SHAPE(l.n, l.t, dirs * l.h));
}
