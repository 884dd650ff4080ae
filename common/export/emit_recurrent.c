/* Recurrent layers, each in one direction, as LSTM, GRU or RNN.
 *
 * Our node begins behind the product with the input, which ONNX's operators have in them: emit.c
 * leaves that product out, and it is read here (emit_product_of).  PyTorch's gates stand in another
 * order than ONNX's.  The parameters stay as they are, and a Gather puts the rows in order, which
 * onnxruntime does once, when it reads the model. */
#include "base/util.h"
#include "export/emit.h"

enum { MOST_GATES = 4, MOST_INPUTS = 7 };

/* By kind: the operator, and the places of ONNX's gates among PyTorch's. */
static const struct {
    const char *op, *activation;
    int n_gates, gate[MOST_GATES];
} recurrent_kinds[] = {
    [RECURRENT_LSTM] = {"LSTM", NULL, 4, {0, 3, 1, 2}}, /* i o f c of i f g o */
    [RECURRENT_GRU] = {"GRU", NULL, 3, {1, 0, 2}},      /* z r h of r z n */
    [RECURRENT_TANH] = {"RNN", "Tanh", 1, {0}},
    [RECURRENT_RELU] = {"RNN", "Relu", 1, {0}},
};

/* The rows of the gates, of `hidden` each, in ONNX's order. */
static const char *gates_in_order(struct emit *e, enum recurrent kind, const char *x,
                                  int64_t hidden)
{
    const int n = recurrent_kinds[kind].n_gates;
    int64_t *row;

    if (n == 1)
        return x;
    row = arena_alloc(&e->o->arena, sizeof *row * (size_t)(n * hidden));
    for (int g = 0; g < n; g++)
        for (int64_t i = 0; i < hidden; i++)
            row[g * hidden + i] = recurrent_kinds[kind].gate[g] * hidden + i;
    x = emit_2(e, "Gather", x, emit_list(e, row, (int)(n * hidden)));
    return x;
}

/* One direction, which ONNX wants as a dimension in front. */
static const char *one_direction(struct emit *e, const char *x)
{
    return x ? emit_2(e, "Unsqueeze", x, emit_list(e, (int64_t[]){0}, 1)) : NULL;
}

/* Both biases, [1,2*G*H]; NULL: there are none. */
static const char *recurrent_biases(struct emit *e, enum recurrent kind, const char *const *bias,
                                    int64_t hidden)
{
    const int64_t n = recurrent_kinds[kind].n_gates * hidden;
    float *none = arena_alloc(&e->o->arena, sizeof *none * (size_t)n);
    const char *part[2];

    if (!bias[0] && !bias[1])
        return NULL;
    for (int i = 0; i < 2; i++)
        part[i] =
            bias[i] ? gates_in_order(e, kind, bias[i], hidden) : emit_floats(e, none, &SHAPE(n));
    emit_int(e, "axis", 0);
    return one_direction(e, emit_2(e, "Concat", part[0], part[1]));
}

/* 1: of the cell's states at all steps nothing but the last one is read, as h_n and c_n are. */
static int reads_last_cell(const struct emit *e, const struct node *n)
{
    const int cell = n->out[RECURRENT_CELL];
    const int64_t last = n->attr.recurrent.reverse ? 0 : n->attr.recurrent.length - 1;

    if (e->uses[cell] != 1)
        return 0;
    for (int k = (int)(n - e->g->node) + 1; k < e->g->n_nodes; k++) {
        const struct node *view = &e->g->node[k], *part = view + 1;

        if (view->op == OP_reshape && view->in[RESHAPE_X] == cell)
            return k + 1 < e->g->n_nodes && part->op == OP_slice &&
                   part->in[SLICE_X] == view->out[RESHAPE_Y] &&
                   e->uses[view->out[RESHAPE_Y]] == 1 && part->attr.slice.dim == 1 &&
                   part->attr.slice.start == last && part->attr.slice.stop == last + 1;
    }
    return 0;
}

/* The last state of the cell [1,N,H] in the places of all steps, of which the last one is read. */
static void put_cell(struct emit *e, const struct node *n, const char *last, int64_t hidden)
{
    struct emitted *v = &e->value[n->out[RECURRENT_CELL]];
    const char *x = emit_order(e, last, (int64_t[]){1, 0, 2}, 3);

    if (!reads_last_cell(e, n))
        emit_fail(e, ERR_UNSUPPORTED, "the state of its cell at each step");
    x = emit_2(e, "Expand", x, emit_list(e, (int64_t[]){1, n->attr.recurrent.length, 1}, 3));
    v->name[FORM_PLAIN] = emit_to_shape(e, x, (int64_t[]){-1, hidden}, 2);
    v->type = ONNX_FLOAT;
}

static void recurrent_attributes(struct emit *e, const struct node *n, int64_t hidden)
{
    const enum recurrent kind = n->attr.recurrent.kind;

    emit_int(e, "hidden_size", hidden);
    if (n->attr.recurrent.reverse)
        onnx_attr_text(e->o, "direction", "reverse");
    if (kind == RECURRENT_GRU)
        emit_int(e, "linear_before_reset", 1);
    if (recurrent_kinds[kind].activation)
        onnx_attr_texts(e->o, "activations", recurrent_kinds[kind].activation);
}

void emit_recurrent(struct emit *e, const struct node *n)
{
    const struct node *product = emit_product_of(e->g, n);
    const enum recurrent kind = n->attr.recurrent.kind;
    const int64_t hidden = emit_shape(e, n->in[RECURRENT_W])->dim[1];
    const char *in[MOST_INPUTS] = {NULL}, *out[3], *bias[2], *y;
    const int is_lstm = kind == RECURRENT_LSTM, n_out = is_lstm ? 3 : 1;
    int64_t width;

    if (!product) {
        emit_fail(e, ERR_UNSUPPORTED, "its input is not made by a linear layer");
        return;
    }
    width = emit_shape(e, product->in[LINEAR_X])->dim[1];
    bias[0] = product->n_in > LINEAR_B && product->in[LINEAR_B] != NO_VALUE
                  ? emit_get(e, product->in[LINEAR_B], FORM_PLAIN)
                  : NULL;
    bias[1] = emit_in(e, RECURRENT_B);
    y = emit_to_shape(e, emit_get(e, product->in[LINEAR_X], FORM_PLAIN),
                      (int64_t[]){-1, n->attr.recurrent.length, width}, 3);
    in[0] = emit_order(e, y, (int64_t[]){1, 0, 2}, 3); /* [T,N,I] */
    y = gates_in_order(e, kind, emit_get(e, product->in[LINEAR_W], FORM_PLAIN), hidden);
    in[1] = one_direction(e, y);
    in[2] = one_direction(e, gates_in_order(e, kind, emit_in(e, RECURRENT_W), hidden));
    in[3] = recurrent_biases(e, kind, bias, hidden);
    in[5] = one_direction(e, emit_in(e, RECURRENT_H0));
    in[6] = is_lstm ? one_direction(e, emit_in(e, RECURRENT_C0)) : NULL;
    recurrent_attributes(e, n, hidden);
    emit_outputs(e, recurrent_kinds[kind].op, in, is_lstm ? 7 : 6, out, n_out);
    y = emit_2(e, "Squeeze", out[0], emit_list(e, (int64_t[]){1}, 1)); /* of [T,1,N,H] */
    y = emit_order(e, y, (int64_t[]){1, 0, 2}, 3);
    emit_put(e, emit_to_shape(e, y, (int64_t[]){-1, hidden}, 2), FORM_PLAIN);
    if (is_lstm && n->out[RECURRENT_CELL] != NO_VALUE && e->uses[n->out[RECURRENT_CELL]])
        put_cell(e, n, out[2], hidden);
}
