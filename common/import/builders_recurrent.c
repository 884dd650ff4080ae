/* builders_recurrent - torch.nn.LSTM, GRU and RNN, by compose_recurrent.
 *
 * The arguments are the input, the initial states (of an LSTM a list of h and c), the list of
 * parameters, has_biases, num_layers, dropout, train, bidirectional and batch_first. */
#include "import/lower_impl.h"

#include "base/util.h"

/* 1: a constant of zeros alone, as PyTorch makes it where the caller gives no state. */
static int recurrent_is_zero(const struct lowered *x)
{
    const struct host_tensor *t = lower_host(x);

    for (int64_t i = 0; t && i < host_count(t); i++)
        if (host_element(t, i) != 0)
            return 0;
    return t != NULL;
}

/* The initial state [lines,N,H]: NO_VALUE if it is 0. */
static int recurrent_state(struct lower *l, int value, int lines, const struct lowered *x)
{
    static const int plain[] = {0, 1, 2};
    struct lowered h = lower_at(l, value);
    const int64_t n = extent_size(l, x->dim[0]);
    struct shape s;

    if (lower_failed(l) || recurrent_is_zero(&h))
        return NO_VALUE;
    if (h.n != 3) {
        lower_fail(l, ERR_UNSUPPORTED, "its initial state has %d dimensions, want 3", h.n);
        return NO_VALUE;
    }
    lower_refuse_batch(l, &h, 5, "begins with states of");
    h = lower_arrange(l, h, plain);
    if (lower_failed(l))
        return NO_VALUE;
    s = l->m->g->value[h.value].shape;
    if (s.dim[1] != 1 && !h.dim[1].is_batch)
        lower_fail(l, ERR_UNSUPPORTED,
                   "its initial state is a constant that differs from sample to sample, want one "
                   "for all samples");
    if (s.dim[1] != 1 && h.dim[1].is_batch && !extent_equal(h.dim[1], x->dim[0]))
        lower_fail(
            l, ERR_UNSUPPORTED,
            "its initial states are those of other samples than its input has in their place");
    s.dim[0] = lines;
    s.dim[1] = n;
    return compose_expand(&l->c, h.value, s);
}

/* The graph values of a list of tensors. */
static const int *recurrent_list(struct lower *l, const struct import_arg *a)
{
    int *param = arena_alloc(&l->arena, (size_t)a->n * sizeof *param);

    for (int i = 0; i < a->n; i++)
        param[i] = lower_plain(l, lower_real_value(l, lower_at(l, a->values[i]))).value;
    return param;
}

/* Reads the arguments; fails if the list of parameters has another length than they say. */
static int recurrent_options(struct lower *l, struct compose_recurrent *r)
{
    const struct import_arg *a = lower_arg(l, "params", 2);
    const int64_t has_bias = lower_int(l, "has_biases", 3, 1),
                  layers = lower_int(l, "num_layers", 4, 1),
                  both = lower_int(l, "bidirectional", 7, 0);
    const int64_t want = layers * (both ? 2 : 1) * (has_bias ? 4 : 2);

    if (lower_failed(l))
        return l->c.rc;
    if (layers < 1 || !a || a->kind != IMPORT_VALUES || a->n != want) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it has %d parameters in %lld layers, want %lld: weight_ih and weight_hh%s of "
                   "each layer and direction (there are no projections)",
                   a ? a->n : 0, (long long)layers, (long long)want,
                   has_bias ? ", bias_ih and bias_hh" : "");
        return l->c.rc;
    }
    r->has_bias = has_bias != 0;
    r->layers = (int)layers;
    r->bidirectional = both != 0;
    r->param = recurrent_list(l, a);
    return l->c.rc;
}

/* Dropout between the layers is on where the file has the module in training, or in evaluation as a
 * whole. */
static void recurrent_dropout(struct lower *l, const struct lowered *x, struct compose_recurrent *r)
{
    const int is_on = (int)lower_int(l, "train", 6, 1) || l->net->is_eval;

    if (!is_on || r->layers == 1)
        return;
    r->dropout = lower_drop_rate(l, lower_real(l, "dropout", 5, 0));
    if (r->dropout > 0 && (!x->dim[0].is_batch || x->dim[0].outer != 1)) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "its dropout has no dimension whose outermost part is the batch, so its random "
                   "numbers would depend on the number of ranks");
        return;
    }
    r->tag = l->m->n_dropouts;
    r->rows = x->dim[0].inner;
    l->m->n_dropouts += r->layers - 1;
}

/* Sets `states`, h and, of an LSTM, c. */
static void recurrent_states(struct lower *l, const struct lowered *x, struct compose_recurrent *r)
{
    const struct import_arg *a = lower_arg(l, "hx", 1);
    const int n = r->kind == RECURRENT_LSTM ? 2 : 1, lines = r->layers * (r->bidirectional ? 2 : 1);

    r->h0 = r->c0 = NO_VALUE;
    if (n == 1) {
        r->h0 = recurrent_state(l, lower_value_of(l, "hx", 1), lines, x);
        return;
    }
    if (!a || a->kind != IMPORT_VALUES || a->n != n) {
        lower_fail(l, ERR_UNSUPPORTED, "its initial state has %d parts, want h and c",
                   a ? a->n : 0);
        return;
    }
    r->h0 = recurrent_state(l, a->values[0], lines, x);
    r->c0 = recurrent_state(l, a->values[1], lines, x);
}

static void recurrent_set(struct lower *l, const struct compose_recurrent *r,
                          const struct lowered *x, int batch_first)
{
    static const int time_first[] = {1, 0, 2};
    int last[2] = {NO_VALUE, NO_VALUE};
    const int y = compose_recurrent(&l->c, r, x->value, &last[0],
                                    r->kind == RECURRENT_LSTM ? &last[1] : NULL);
    struct extent dim[] = {x->dim[0], x->dim[1], {0}};
    struct lowered out;

    if (lower_failed(l))
        return;
    dim[2] = extent_of(l->m->g->value[y].shape.dim[2]);
    out = lower_plain_value(l, y, 3, dim);
    lower_set(l, 0, batch_first ? out : lower_permute(out, time_first));
    for (int i = 0; i < (r->kind == RECURRENT_LSTM ? 2 : 1); i++) {
        const struct shape *s = &l->m->g->value[last[i]].shape;

        dim[0] = extent_of(s->dim[0]);
        dim[1] = x->dim[0];
        dim[2] = extent_of(s->dim[2]);
        lower_set(l, 1 + i, lower_plain_value(l, last[i], 3, dim));
    }
}

static void builders_recurrent(struct lower *l, int kind)
{
    static const int time_first[] = {1, 0, 2};
    struct lowered x = lower_in(l, "input", 0);
    struct compose_recurrent r = {.kind = (enum recurrent)kind};
    const int batch_first = (int)lower_int(l, "batch_first", 8, 0);

    if (!lower_failed(l) && x.n != 3)
        lower_fail(l, ERR_UNSUPPORTED,
                   "its input has %d dimensions, want 3 (packed sequences and "
                   "single samples are not read)",
                   x.n);
    if (lower_failed(l) || recurrent_options(l, &r) < 0)
        return;
    x = lower_real_value(l, x);
    if (!batch_first)
        x = lower_permute(x, time_first);
    lower_refuse_batch(l, &x, 6, "combines");
    x = lower_plain(l, x);
    if (lower_failed(l))
        return;
    recurrent_dropout(l, &x, &r);
    recurrent_states(l, &x, &r);
    recurrent_set(l, &r, &x, batch_first);
}

/* ---- one step ---- */

/* The operand `name` [N,..] times its weights, plus its bias: the gates [N,G*H]. */
static struct lowered cell_gates(struct lower *l, struct lowered x, int at)
{
    struct lowered w = lower_plain(l, lower_in(l, at ? "w_hh" : "w_ih", 2 + at)),
                   b = lower_in(l, at ? "b_hh" : "b_ih", 4 + at);
    int in[3] = {NO_VALUE, NO_VALUE, NO_VALUE};

    x = lower_plain(l, x);
    if (b.kind != LOWERED_NONE)
        b = lower_plain(l, b);
    if (!lower_failed(l) && (x.n != 2 || w.n != 2 || !extent_equal(x.dim[1], w.dim[1])))
        lower_fail(l, ERR_UNSUPPORTED,
                   "its input has %d dimensions and its weight %d, want rows [N,I] and [G*H,I]",
                   x.n, w.n);
    lower_refuse_batch(l, &x, 2, "sums over");
    lower_refuse_batch(l, &w, ~0u, "has weights with");
    if (lower_failed(l))
        return x;
    in[0] = x.value;
    in[1] = w.value;
    in[2] = b.kind == LOWERED_NONE ? NO_VALUE : b.value;
    x.dim[1] = w.dim[0];
    return lower_with(x, compose_append(&l->c, OP_linear, NULL, in, 3));
}

/* Gate k of n, through its function. */
static int cell_gate(struct lower *l, int gates, int k, int n, enum activation kind)
{
    const int64_t h = lower_failed(l) ? 0 : l->m->g->value[gates].shape.dim[1] / n;
    const int x = compose_slice(&l->c, gates, 1, k * h, (k + 1) * h, 1);

    return kind == ACT_NONE ? x : compose_activation(&l->c, kind, x);
}

/* The states, each as rows of its own: those of a constant, which are zeros, too. */
static struct lowered cell_state(struct lower *l, struct lowered x, const struct lowered *like)
{
    x = lower_real_value(l, x);
    if (lower_failed(l) || x.n != 2 || extent_equal(x.dim[0], like->dim[0]))
        return x;
    if (!(x.repeats & 1) && !extent_is_one(x.dim[0]))
        lower_fail(l, ERR_UNSUPPORTED,
                   "its state is that of other samples than its input has in their place");
    x.dim[0] = like->dim[0];
    x.repeats |= 1;
    return x;
}

/* x of the sums of both sides, the input's and the state's. */
static int cell_sum(struct lower *l, const struct lowered *a, const struct lowered *b)
{
    return lower_failed(l) ? NO_VALUE : compose_elementwise(&l->c, EW_ADD, a->value, b->value);
}

static void builders_lstm_cell(struct lower *l, int kind)
{
    const struct import_arg *hx = lower_arg(l, "hx", 1);
    const struct lowered x = lower_in(l, "input", 0);
    struct lowered a, b, c;
    int gates, y, next;

    (void)kind;
    if (!hx || hx->kind != IMPORT_VALUES || hx->n != 2)
        lower_fail(l, ERR_UNSUPPORTED, "its state has %d parts, want h and c", hx ? hx->n : 0);
    if (lower_failed(l))
        return;
    a = cell_gates(l, x, 0);
    b = cell_gates(l, cell_state(l, lower_at(l, hx->values[0]), &x), 1);
    c = lower_plain(l, cell_state(l, lower_at(l, hx->values[1]), &x));
    gates = cell_sum(l, &a, &b);
    if (lower_failed(l))
        return;
    y = compose_elementwise(&l->c, EW_MUL, cell_gate(l, gates, 0, 4, ACT_SIGMOID),
                            cell_gate(l, gates, 2, 4, ACT_TANH));
    next = compose_elementwise(&l->c, EW_MUL, cell_gate(l, gates, 1, 4, ACT_SIGMOID), c.value);
    next = compose_elementwise(&l->c, EW_ADD, next, y);
    y = compose_elementwise(&l->c, EW_MUL, cell_gate(l, gates, 3, 4, ACT_SIGMOID),
                            compose_activation(&l->c, ACT_TANH, next));
    if (lower_failed(l))
        return;
    lower_set(l, 0, lower_plain_value(l, y, 2, c.dim));
    lower_set(l, 1, lower_plain_value(l, next, 2, c.dim));
}

static void builders_gru_cell(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "input", 0);
    const struct lowered a = cell_gates(l, x, 0),
                         h = lower_plain(l, cell_state(l, lower_in(l, "hx", 1), &x)),
                         b = cell_gates(l, h, 1);
    int gate[2], y;

    (void)kind;
    for (int k = 0; k < 2 && !lower_failed(l); k++)
        gate[k] = compose_activation(&l->c, ACT_SIGMOID,
                                     compose_elementwise(&l->c, EW_ADD,
                                                         cell_gate(l, a.value, k, 3, ACT_NONE),
                                                         cell_gate(l, b.value, k, 3, ACT_NONE)));
    if (lower_failed(l))
        return;
    y = compose_elementwise(&l->c, EW_MUL, gate[0], cell_gate(l, b.value, 2, 3, ACT_NONE));
    y = compose_elementwise(&l->c, EW_ADD, cell_gate(l, a.value, 2, 3, ACT_NONE), y);
    y = compose_activation(&l->c, ACT_TANH, y);
    y = compose_elementwise(&l->c, EW_ADD, y,
                            compose_elementwise(&l->c, EW_MUL, gate[1],
                                                compose_elementwise(&l->c, EW_SUB, h.value, y)));
    if (!lower_failed(l))
        lower_set(l, 0, lower_plain_value(l, y, 2, h.dim));
}

/* kind: the activation. */
static void builders_rnn_cell(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "input", 0), a = cell_gates(l, x, 0),
                         b = cell_gates(l, cell_state(l, lower_in(l, "hx", 1), &x), 1);
    const int y = compose_activation(&l->c, (enum activation)kind, cell_sum(l, &a, &b));

    if (!lower_failed(l))
        lower_set(l, 0, lower_plain_value(l, y, 2, a.dim));
}

const struct import_builder import_recurrent[] = {
    {"lstm.input", builders_recurrent, RECURRENT_LSTM},
    {"gru.input", builders_recurrent, RECURRENT_GRU},
    {"rnn_tanh.input", builders_recurrent, RECURRENT_TANH},
    {"rnn_relu.input", builders_recurrent, RECURRENT_RELU},
    {"lstm_cell.default", builders_lstm_cell, 0},
    {"gru_cell.default", builders_gru_cell, 0},
    {"rnn_tanh_cell.default", builders_rnn_cell, ACT_TANH},
    {"rnn_relu_cell.default", builders_rnn_cell, ACT_RELU},
    {0},
};
