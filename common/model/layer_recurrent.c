/* layer_recurrent - LSTM and GRU, by compose_recurrent.
 *
 * Their input and output are [N,T,C], or rows [N*T,C] of tokens. */
#include "model/layer_impl.h"
#include "op/compose.h"

/* The parameters of all layers, by PyTorch's names; the first has `in` features. */
static int *recurrent_params(struct net *m, const char *name, const struct compose_recurrent *r,
                             int64_t units, int64_t in)
{
    static const char *const what[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const int dirs = r->bidirectional ? 2 : 1, n = 4 * dirs * r->layers;
    const int64_t rows = (r->kind == RECURRENT_LSTM ? 4 : 3) * units;
    int *param = arena_alloc(&m->g->arena, (size_t)n * sizeof *param);

    for (int i = 0; i < n; i++) {
        const int layer = i / 4 / dirs, k = i % 4;
        const struct param_info info = {PARAM_UNIFORM, net_uniform_bound(units),
                                        k < 2 ? PARAM_WEIGHT : PARAM_BIAS, 0};
        const char *suffix =
            arena_printf(&m->g->arena, "%s_l%d%s", what[k], layer, i / 4 % dirs ? "_reverse" : "");
        const int64_t columns = k == 1 ? units : layer == 0 ? in : dirs * units;

        param[i] = net_param(m, name, suffix, k < 2 ? SHAPE(rows, columns) : SHAPE(rows), info);
    }
    return param;
}

/* h as [N,T,C]; fails if it has no time steps. */
static int recurrent_input(struct net *m, struct compose *c, const char *name)
{
    const struct shape s = *net_shape(m);
    char text[SHAPE_TEXT_LEN];

    if (s.n == 2 && m->length > 0)
        return compose_reshape(c, m->h, SHAPE(s.dim[0] / m->length, m->length, s.dim[1]));
    if (s.n != 3)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want [N,T,C]: C numbers for each of T time steps",
                        name, shape_text(&s, text));
    return m->h;
}

/* The last states of the last layer, [N,directions*H], of all states [lines,N,H]. */
static int recurrent_last_layer(struct compose *c, const struct compose_recurrent *r, int states)
{
    const int dirs = r->bidirectional ? 2 : 1, n = r->layers * dirs;
    int part[2];

    for (int d = 0; d < dirs; d++)
        part[d] = compose_select(c, states, 0, n - dirs + d);
    return dirs > 1 ? compose_concat(c, part, dirs, 1) : part[0];
}

void layer_recurrent(struct net *m, const char *name, enum recurrent kind,
                     const struct layer_recurrent *r)
{
    struct compose_recurrent all = {.kind = kind,
                                    .layers = (int)r->layers,
                                    .bidirectional = r->bidirectional,
                                    .dropout = r->dropout,
                                    .tag = m->n_dropouts,
                                    .has_bias = 1,
                                    .h0 = NO_VALUE,
                                    .c0 = NO_VALUE};
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    int x, states = NO_VALUE;
    struct shape before;

    if (m->rc < 0)
        return;
    before = *net_shape(m);
    x = recurrent_input(m, &c, name);
    if (m->rc < 0 || (m->rc = c.rc) < 0)
        return;
    all.param = recurrent_params(m, name, &all, r->units, m->g->value[x].shape.dim[2]);
    m->n_dropouts += r->dropout > 0 ? all.layers - 1 : 0;
    x = compose_recurrent(&c, &all, x, r->last ? &states : NULL, NULL);
    if (r->last) {
        x = recurrent_last_layer(&c, &all, states);
        m->length = 0;
    } else if (before.n == 2) {
        x = compose_reshape(&c, x, SHAPE(before.dim[0], (r->bidirectional ? 2 : 1) * r->units));
    }
    m->rc = c.rc;
    m->h = x;
}
