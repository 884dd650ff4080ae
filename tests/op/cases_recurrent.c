/* cases_recurrent - the rows of the operator cases for LSTM, GRU and RNN. */
#include "case_rows.h"

#define RECURRENT(k, t, back)                                               \
    {                                                                       \
        .recurrent = {.kind = RECURRENT_##k, .length = t, .reverse = back } \
    }
/* gx, w and b for `rows` steps, g gates and h units. */
#define OPERANDS(rows, g, h) \
    IN(NORMAL, rows, (g) * (h)), IN(NORMAL, (g) * (h), h), IN(NORMAL, (g) * (h))
#define PLAIN(rows, g, h) IN(NORMAL, rows, (g) * (h)), IN(NORMAL, (g) * (h), h)

static const struct op_case rows[] = {
    {"lstm", OP_recurrent, RECURRENT(LSTM, 5, 0), {OPERANDS(15, 4, 6)}, WITH_GRAD},
    {"lstm_reverse", OP_recurrent, RECURRENT(LSTM, 4, 1), {OPERANDS(8, 4, 5)}, WITH_GRAD},
    {"lstm_states",
     OP_recurrent,
     RECURRENT(LSTM, 3, 0),
     {PLAIN(6, 4, 5), ONLY(NONE), IN(NORMAL, 2, 5), IN(NORMAL, 2, 5)},
     WITH_GRAD},
    {"lstm_states_reverse",
     OP_recurrent,
     RECURRENT(LSTM, 3, 1),
     {OPERANDS(6, 4, 3), IN(NORMAL, 2, 3), IN(NORMAL, 2, 3)},
     WITH_GRAD},
    {"lstm_one_step", OP_recurrent, RECURRENT(LSTM, 1, 0), {OPERANDS(3, 4, 17)}, WITH_GRAD},
    {"lstm_many", /* several blocks of samples on CPUs, several tiles on GPUs */
     OP_recurrent,
     RECURRENT(LSTM, 2, 0),
     {OPERANDS(146, 4, 19)},
     .tol = 1e-5,
     .training = 1},
    {"lstm_of_w", OP_recurrent, RECURRENT(LSTM, 3, 0), {PLAIN(6, 4, 4)}, WITH_GRAD, .only_in = 1},
    {"lstm_of_b",
     OP_recurrent,
     RECURRENT(LSTM, 3, 0),
     {OPERANDS(6, 4, 4)},
     WITH_GRAD,
     .only_in = 2},
    {"lstm_evaluation",
     OP_recurrent,
     RECURRENT(LSTM, 5, 0),
     {OPERANDS(10, 4, 6)},
     FORWARD,
     .no_out = 1},
    {"lstm_empty", OP_recurrent, RECURRENT(LSTM, 5, 0), {OPERANDS(0, 4, 6)}, .training = 1},
    {"gru", OP_recurrent, RECURRENT(GRU, 5, 0), {OPERANDS(15, 3, 6)}, WITH_GRAD},
    {"gru_reverse",
     OP_recurrent,
     RECURRENT(GRU, 4, 1),
     {PLAIN(8, 3, 5), ONLY(NONE), IN(NORMAL, 2, 5)},
     WITH_GRAD},
    {"gru_of_b", OP_recurrent, RECURRENT(GRU, 3, 0), {OPERANDS(6, 3, 4)}, WITH_GRAD, .only_in = 2},
    {"gru_many",
     OP_recurrent,
     RECURRENT(GRU, 3, 0),
     {OPERANDS(66, 3, 33)},
     .tol = 1e-5,
     .training = 1},
    {"gru_evaluation",
     OP_recurrent,
     RECURRENT(GRU, 5, 0),
     {OPERANDS(10, 3, 6)},
     FORWARD,
     .no_out = 1},
    {"rnn_tanh", OP_recurrent, RECURRENT(TANH, 5, 0), {OPERANDS(15, 1, 6)}, WITH_GRAD},
    {"rnn_relu",
     OP_recurrent,
     RECURRENT(RELU, 3, 1),
     {PLAIN(6, 1, 5), ONLY(NONE), IN(NORMAL, 2, 5)},
     WITH_GRAD},
};

const struct op_case_family cases_recurrent = {rows, ARRAY_LEN(rows)};
