/* onnx_ops_unrolled - the recurrent layers of ONNX that PyTorch has not, step by step: GRU whose
 * reset comes before the product, and LSTM with peepholes.
 *
 * Legend: T steps, N batch, H state, D directions.  The happy path: the products of the inputs of
 * all steps are one node; then each step has nodes of its own. */
#include "import/onnx_unrolled.h"

#include "base/util.h"

enum { UNROLLED_MOST = 1024 }; /* steps: each one has about 20 nodes */

/* One direction. */
struct unrolled {
    struct onnx *o;
    int64_t T, N, H;
    int gates;       /* ONNX's: of GRU z, r, h; of LSTM i, o, f, c */
    int inputs;      /* [T,N,gates*H]: products of the inputs */
    int weight;      /* [gates*H,H], of the state */
    int bias;        /* [gates*H]; IMPORT_NO_VALUE: none */
    int peepholes;   /* [3*H]: i, o, f; IMPORT_NO_VALUE: none */
    int first[2];    /* h and c before the first step, [N,H] */
    int *y, last[2]; /* y: of each step, [1,N,H] */
};

static int unrolled_gates(const struct unrolled *u, int x, int dim, int from, int n)
{
    return x == IMPORT_NO_VALUE ? x : onnx_slice(u->o, x, dim, from * u->H, (from + n) * u->H, 1);
}

static int unrolled_linear(struct onnx *o, int x, int weight, int bias)
{
    struct import_value v = *onnx_value(o, x);

    v.dim[v.n_dims - 1] = onnx_value(o, weight)->dim[0];
    onnx_put_value(o, "input", x);
    onnx_put_value(o, "weight", weight);
    onnx_put_value(o, "bias", bias);
    return onnx_make(o, "linear.default", v.type, v.n_dims, v.dim);
}

static int unrolled_sigmoid(struct onnx *o, int x) { return onnx_unary(o, "sigmoid.default", x); }

static int unrolled_sum(struct onnx *o, int a, int b) { return onnx_pair(o, "add.Tensor", a, b); }

static int unrolled_times(struct onnx *o, int a, int b) { return onnx_pair(o, "mul.Tensor", a, b); }

/* h' = n + z (h - n), n = tanh(x + (r h) R + b) */
static void unrolled_gru(const struct unrolled *u, int x, int state[2])
{
    struct onnx *o = u->o;
    const int h = state[0];
    const int both = unrolled_sigmoid(
        o, unrolled_sum(o, unrolled_gates(u, x, 1, 0, 2),
                        unrolled_linear(o, h, unrolled_gates(u, u->weight, 0, 0, 2),
                                        unrolled_gates(u, u->bias, 0, 0, 2))));
    const int kept = unrolled_times(o, unrolled_gates(u, both, 1, 1, 1), h);
    const int fresh =
        onnx_unary(o, "tanh.default",
                   unrolled_sum(o, unrolled_gates(u, x, 1, 2, 1),
                                unrolled_linear(o, kept, unrolled_gates(u, u->weight, 0, 2, 1),
                                                unrolled_gates(u, u->bias, 0, 2, 1))));

    state[0] = unrolled_sum(
        o, fresh,
        unrolled_times(o, unrolled_gates(u, both, 1, 0, 1), onnx_pair(o, "sub.Tensor", h, fresh)));
}

/* The sigmoid of gate g, which sees the state c by its peephole. */
static int unrolled_peep(const struct unrolled *u, int x, int g, int c)
{
    x = unrolled_gates(u, x, 1, g, 1);
    if (u->peepholes != IMPORT_NO_VALUE)
        x = unrolled_sum(u->o, x,
                         unrolled_times(u->o, c, unrolled_gates(u, u->peepholes, 0, g, 1)));
    return unrolled_sigmoid(u->o, x);
}

/* c' = f c + i tanh(g), h' = o tanh(c'), where o sees c' */
static void unrolled_lstm(const struct unrolled *u, int x, int state[2])
{
    struct onnx *o = u->o;
    const int sum = unrolled_sum(o, x, unrolled_linear(o, state[0], u->weight, u->bias));
    const int in = unrolled_peep(u, sum, 0, state[1]), keep = unrolled_peep(u, sum, 2, state[1]);
    const int fresh = onnx_unary(o, "tanh.default", unrolled_gates(u, sum, 1, 3, 1));

    state[1] = unrolled_sum(o, unrolled_times(o, keep, state[1]), unrolled_times(o, in, fresh));
    state[0] = unrolled_times(o, unrolled_peep(u, sum, 1, state[1]),
                              onnx_unary(o, "tanh.default", state[1]));
}

static void unrolled_walk(struct unrolled *u, int is_back)
{
    int state[2] = {u->first[0], u->first[1]};

    for (int64_t i = 0; i < u->T && !onnx_failed(u->o); i++) {
        const int64_t t = is_back ? u->T - 1 - i : i;
        const int x = onnx_reshape(u->o, onnx_slice(u->o, u->inputs, 0, t, t + 1, 1),
                                   (int64_t[]){u->N, u->gates * u->H}, 2);

        if (u->gates == 3)
            unrolled_gru(u, x, state);
        else
            unrolled_lstm(u, x, state);
        u->y[t] = onnx_reshape(u->o, state[0], (int64_t[]){1, u->N, u->H}, 3);
    }
    u->last[0] = state[0];
    u->last[1] = state[1];
}

/* Direction d of x [D,..], without that dimension; IMPORT_NO_VALUE stays. */
static int unrolled_direction(struct onnx *o, int x, int d)
{
    int y;
    struct import_value v;

    if (x == IMPORT_NO_VALUE)
        return x;
    y = onnx_slice(o, x, 0, d, d + 1, 1);
    v = *onnx_value(o, y);
    return onnx_reshape(o, y, v.dim + 1, v.n_dims - 1);
}

/* One direction: its states of all steps, [T,N,H], and the last ones, [1,N,H]. */
static int unrolled_one(struct onnx *o, const struct onnx_cells *c, int d, int last[2])
{
    const struct import_value x = *onnx_value(o, c->x);
    struct unrolled u = {.o = o, .T = x.dim[0], .N = x.dim[1], .H = c->H, .gates = c->gates};
    const int b = unrolled_direction(o, onnx_in(o, 3), d);

    u.weight = unrolled_direction(o, onnx_in(o, 2), d);
    u.bias = unrolled_gates(&u, b, 0, c->gates, c->gates);
    u.inputs = unrolled_linear(o, c->x, unrolled_direction(o, onnx_in(o, 1), d),
                               unrolled_gates(&u, b, 0, 0, c->gates));
    u.peepholes = unrolled_direction(o, c->gates == 4 ? onnx_in(o, 7) : IMPORT_NO_VALUE, d);
    for (int i = 0; i < c->n_states; i++)
        u.first[i] = unrolled_direction(o, c->first[i], d);
    u.y = arena_alloc(&o->memory, (size_t)u.T * sizeof *u.y);
    unrolled_walk(&u, c->is_back || d == 1);
    if (onnx_failed(o))
        return IMPORT_NO_VALUE;
    for (int i = 0; i < c->n_states; i++)
        last[i] = onnx_reshape(o, u.last[i], (int64_t[]){1, u.N, u.H}, 3);
    return u.T == 1 ? u.y[0] : onnx_join(o, 0, u.y, (int)u.T);
}

void onnx_unroll(struct onnx *o, const struct onnx_cells *c, int *out)
{
    const int64_t steps = onnx_value(o, c->x)->dim[0];
    int y[2], last[2][2];

    if (steps < 1 || steps > UNROLLED_MOST)
        onnx_fail(o, ERR_UNSUPPORTED,
                  "it has %lld steps, and dptrain computes such a layer step by step, of which "
                  "there may be 1 to %d; want a layer as PyTorch's, with linear_before_reset 1 and "
                  "without peepholes",
                  (long long)steps, UNROLLED_MOST);
    for (int d = 0; d < c->n_dirs && !onnx_failed(o); d++)
        y[d] = unrolled_one(o, c, d, last[d]);
    if (onnx_failed(o))
        return;
    out[0] = c->n_dirs == 1 ? y[0] : onnx_join(o, 2, y, 2);
    for (int i = 0; i < c->n_states; i++)
        out[1 + i] =
            c->n_dirs == 1 ? last[0][i] : onnx_join(o, 0, (int[]){last[0][i], last[1][i]}, 2);
}
