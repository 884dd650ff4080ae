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

const struct import_builder import_recurrent[] = {
    {"lstm.input", builders_recurrent, RECURRENT_LSTM},
    {"gru.input", builders_recurrent, RECURRENT_GRU},
    {"rnn_tanh.input", builders_recurrent, RECURRENT_TANH},
    {"rnn_relu.input", builders_recurrent, RECURRENT_RELU},
    {0},
};
