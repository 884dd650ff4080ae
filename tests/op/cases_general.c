/* cases_general - the rows of the operator cases for views, element-wise arithmetic and reductions.
 * cases.c joins the files. */
#include "case_rows.h"

#define PERMUTE(...)                     \
    {                                    \
        .permute.order = { __VA_ARGS__ } \
    }
#define SLICE(d, from, to, by)                                      \
    {                                                               \
        .slice = {.dim = d, .start = from, .stop = to, .step = by } \
    }
#define TO(...)                              \
    {                                        \
        .reshape.shape = SHAPE_(__VA_ARGS__) \
    }
#define SHAPE_(...)                                                       \
    {                                                                     \
        .n = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = { __VA_ARGS__ } \
    }
#define EW(k)                            \
    {                                    \
        .elementwise = {.kind = EW_##k } \
    }
#define EW_OF(k, a, b)                  \
    {                                   \
        .elementwise = { EW_##k, a, b } \
    }
#define REDUCE(k, over, keeps)                                       \
    {                                                                \
        .reduce = {.kind = REDUCE_##k, .axes = over, .keep = keeps } \
    }
/* A kind of two operands of one shape, and one of one operand. */
#define PAIR(name, k, f)                                                         \
    {                                                                            \
        name, OP_elementwise, EW(k), {IN(f, 3, 5, 7), IN(f, 3, 5, 7)}, WITH_GRAD \
    }
#define UNARY(name, k, f)                                      \
    {                                                          \
        name, OP_elementwise, EW(k), {IN(f, 3, 35)}, WITH_GRAD \
    }
#define FLAT(name, k, f)                                           \
    {                                                              \
        name, OP_elementwise, EW(k), {IN(f, 3, 35)}, .training = 1 \
    }
#define COMPARE(name, k)                                                          \
    {                                                                             \
        name, OP_elementwise, EW(k), {IN(FEW, 3, 50), IN(FEW, 50)}, .training = 1 \
    }

static const struct op_case rows[] = {
    {"permute", OP_permute, PERMUTE(2, 0, 1), {IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"permute_rows", OP_permute, PERMUTE(1, 0, 2), {IN(NORMAL, 3, 5, 67)}, WITH_GRAD},
    {"permute_eight", /* as many dimensions as there can be */
     OP_permute,
     PERMUTE(7, 0, 2, 1, 4, 6, 5, 3),
     {IN(NORMAL, 2, 3, 1, 2, 3, 2, 2, 3)},
     WITH_GRAD},
    {"permute_nothing", OP_permute, PERMUTE(0, 1), {IN(NORMAL, 5, 7)}, WITH_GRAD},
    {"permute_numbers", OP_permute, PERMUTE(1, 0), {IN(INDEX, 5, 7)}},
    {"permute_empty", OP_permute, PERMUTE(1, 0), {IN(NORMAL, 0, 7)}, .training = 1},
    {"slice", OP_slice, SLICE(1, 1, 4, 1), {IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"slice_steps", OP_slice, SLICE(2, 1, 66, 3), {IN(NORMAL, 3, 5, 67)}, WITH_GRAD},
    {"slice_first", OP_slice, SLICE(0, 0, 3, 2), {IN(NORMAL, 5, 7)}, WITH_GRAD},
    {"slice_nothing", OP_slice, SLICE(1, 2, 2, 1), {IN(NORMAL, 3, 5)}, .training = 1},
    {"slice_tokens", OP_slice, SLICE(1, 2, 5, 2), {IN(TOKENS, 7, 5)}},
    {"expand", OP_expand, TO(3, 5, 4, 7), {IN(NORMAL, 5, 1, 7)}, WITH_GRAD},
    {"expand_one", OP_expand, TO(3, 50), {IN(NORMAL, 1)}, WITH_GRAD},
    {"expand_rows", OP_expand, TO(3, 50), {IN(NORMAL, 3, 1)}, WITH_GRAD},
    {"concat",
     OP_concat,
     {.concat.dim = 1},
     {IN(NORMAL, 3, 5, 7), IN(NORMAL, 3, 1, 7), IN(NORMAL, 3, 2, 7)},
     WITH_GRAD},
    {"concat_last",
     OP_concat,
     {.concat.dim = 1},
     {IN(NORMAL, 70, 3), IN(NORMAL, 70, 8)},
     WITH_GRAD},
    {"concat_first", OP_concat, {.concat.dim = 0}, {IN(NORMAL, 3, 5), IN(NORMAL, 4, 5)}, WITH_GRAD},
    {"concat_alone", OP_concat, {.concat.dim = 0}, {IN(NORMAL, 3, 5)}, WITH_GRAD},
    {"concat_nothing",
     OP_concat,
     {.concat.dim = 1},
     {IN(NORMAL, 3, 0), IN(NORMAL, 3, 4)},
     .tol = 1e-6},
    {"concat_many",
     OP_concat,
     {.concat.dim = 1},
     {IN(NORMAL, 2, 1), IN(NORMAL, 2, 2), IN(NORMAL, 2, 3), IN(NORMAL, 2, 1), IN(NORMAL, 2, 2),
      IN(NORMAL, 2, 3), IN(NORMAL, 2, 1), IN(NORMAL, 2, 2), IN(NORMAL, 2, 3), IN(NORMAL, 2, 1),
      IN(NORMAL, 2, 2), IN(NORMAL, 2, 3)},
     WITH_GRAD},

    PAIR("elementwise_add", ADD, NORMAL),
    PAIR("elementwise_sub", SUB, NORMAL),
    PAIR("elementwise_mul", MUL, NORMAL),
    PAIR("elementwise_div", DIV, POSITIVE),
    PAIR("elementwise_max", MAX, NORMAL),
    PAIR("elementwise_min", MIN, NORMAL),
    PAIR("elementwise_pow", POW, POSITIVE),
    COMPARE("elementwise_eq", EQ),
    COMPARE("elementwise_ne", NE),
    COMPARE("elementwise_lt", LT),
    COMPARE("elementwise_le", LE),
    COMPARE("elementwise_gt", GT),
    COMPARE("elementwise_ge", GE),
    {"elementwise_max_ties",
     OP_elementwise,
     EW(MAX),
     {IN(FEW, 3, 50), IN(FEW, 3, 50)},
     .training = 1},
    {"elementwise_where",
     OP_elementwise,
     EW(WHERE),
     {IN(NORMAL, 3, 50), IN(NORMAL, 50), IN(FEW, 3, 1)},
     WITH_GRAD},
    {"elementwise_rows", /* all forms of broadcasting */
     OP_elementwise,
     EW(MUL),
     {IN(NORMAL, 3, 5, 7), IN(NORMAL, 5, 1)},
     WITH_GRAD},
    {"elementwise_columns", OP_elementwise, EW(SUB), {IN(NORMAL, 7), IN(NORMAL, 30, 7)}, WITH_GRAD},
    {"elementwise_both",
     OP_elementwise,
     EW(DIV),
     {IN(NORMAL, 3, 1, 67), IN(POSITIVE, 5, 1)},
     WITH_GRAD},
    {"elementwise_one", OP_elementwise, EW(ADD), {IN(NORMAL, 3, 67), IN(NORMAL, 1)}, WITH_GRAD},
    {"elementwise_long", /* several pieces */
     OP_elementwise,
     EW(MUL),
     {IN(NORMAL, 7, 301), IN(NORMAL, 7, 1)},
     WITH_GRAD},
    {"elementwise_second_alone",
     OP_elementwise,
     EW(MUL),
     {IN(NORMAL, 3, 67), IN(NORMAL, 67)},
     WITH_GRAD,
     .only_in = ELEMENTWISE_B},
    {"elementwise_empty",
     OP_elementwise,
     EW(MUL),
     {IN(NORMAL, 0, 5), IN(NORMAL, 5)},
     .training = 1},
    UNARY("neg", NEG, NORMAL),
    UNARY("abs", ABS, SPACED),
    UNARY("exp", EXP, NORMAL),
    UNARY("log", LOG, POSITIVE),
    UNARY("sqrt", SQRT, POSITIVE),
    UNARY("rsqrt", RSQRT, POSITIVE),
    UNARY("reciprocal", RECIPROCAL, POSITIVE),
    UNARY("sin", SIN, NORMAL),
    UNARY("cos", COS, NORMAL),
    UNARY("erf", ERF, NORMAL),
    {"power", OP_elementwise, EW_OF(POWER, 1.5f, 0), {IN(POSITIVE, 3, 35)}, WITH_GRAD},
    {"power_cube", OP_elementwise, EW_OF(POWER, 3, 0), {IN(NORMAL, 3, 35)}, WITH_GRAD},
    {"power_none",
     OP_elementwise,
     EW_OF(POWER, 0, 0),
     {IN(NORMAL, 3, 5)},
     .tol = 1e-6,
     .training = 1},
    {"clip", OP_elementwise, EW_OF(CLIP, -0.51f, 0.31f), {IN(SPACED, 3, 35)}, WITH_GRAD},
    UNARY("square", SQUARE, NORMAL),
    UNARY("root", ROOT, POSITIVE),
    {"root_of_zero", OP_elementwise, EW(ROOT), {IN(ZERO, 3, 35)}, .tol = 1e-6, .training = 1},
    UNARY("log1p", LOG1P, POSITIVE),
    UNARY("expm1", EXPM1, NORMAL),
    UNARY("hardsigmoid", HARDSIGMOID, SPACED),
    UNARY("hardswish", HARDSWISH, SPACED),
    {"hardswish_kinks",
     OP_elementwise,
     EW(HARDSWISH),
     {IN(KINKS, 3, 7)},
     .tol = 1e-5,
     .training = 1},
    {"hardsigmoid_kinks",
     OP_elementwise,
     EW(HARDSIGMOID),
     {IN(KINKS, 3, 7)},
     .tol = 1e-5,
     .training = 1},
    {"clip_kinks",
     OP_elementwise,
     EW_OF(CLIP, 0, 6),
     {IN(KINKS, 3, 7)},
     .tol = 1e-5,
     .training = 1},
    {"leaky_kinks",
     OP_elementwise,
     EW_OF(LEAKY, 0.2f, 0),
     {IN(KINKS, 3, 7)},
     .tol = 1e-5,
     .training = 1},
    {"leaky", OP_elementwise, EW_OF(LEAKY, 0.2f, 0), {IN(SPACED, 3, 35)}, WITH_GRAD},
    {"elu", OP_elementwise, EW_OF(ELU, 1.5f, 1.25f), {IN(SPACED, 3, 35)}, WITH_GRAD},
    {"softplus", OP_elementwise, EW_OF(SOFTPLUS, 1.5f, 20), {IN(NORMAL, 3, 35)}, WITH_GRAD},
    {"softplus_threshold",
     OP_elementwise,
     EW_OF(SOFTPLUS, 2, 1),
     {IN(SPACED, 3, 35)},
     .tol = 1e-5,
     .training = 1},
    UNARY("mish", MISH, NORMAL),
    {"remainder",
     OP_elementwise,
     EW(REMAINDER),
     {IN(SPACED, 3, 35), IN(POSITIVE, 3, 1)},
     .tol = 1e-5,
     .training = 1},
    {"remainder_exact",
     OP_elementwise,
     EW(REMAINDER),
     {IN(KINKS, 3, 7), IN(KINKS_NEXT, 3, 7)},
     .tol = 1e-5,
     .training = 1},
    PAIR("silu_mul", SILU_MUL, NORMAL),
    {"silu_mul_long", /* several pieces */
     OP_elementwise,
     EW(SILU_MUL),
     {IN(NORMAL, 3, 1111), IN(NORMAL, 1, 1111)},
     .tol = 1e-5,
     .training = 1},
    FLAT("floor", FLOOR, NORMAL),
    FLAT("ceil", CEIL, NORMAL),
    FLAT("round", ROUND, NORMAL),
    FLAT("round_halves", ROUND, KINKS),
    FLAT("trunc", TRUNC, NORMAL),
    FLAT("sign", SIGN, FEW),
    FLAT("not", NOT, FEW),
    COMPARE("elementwise_and", AND),
    COMPARE("elementwise_or", OR),
    COMPARE("elementwise_xor", XOR),
    {"affine", OP_elementwise, EW_OF(AFFINE, 2, -3), {IN(NORMAL, 3, 35)}, WITH_GRAD},

    {"sum", OP_reduce, REDUCE(SUM, 2, 0), {IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"sum_rows", OP_reduce, REDUCE(SUM, 1, 0), {IN(NORMAL, 30, 67)}, WITH_GRAD},
    {"sum_columns", OP_reduce, REDUCE(SUM, 2, 1), {IN(NORMAL, 30, 167)}, WITH_GRAD},
    {"sum_all", OP_reduce, REDUCE(SUM, 7, 0), {IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"sum_nothing", OP_reduce, REDUCE(SUM, 0, 0), {IN(NORMAL, 3, 5)}, WITH_GRAD},
    {"sum_two", OP_reduce, REDUCE(SUM, 5, 1), {IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"sum_empty", OP_reduce, REDUCE(SUM, 1, 0), {IN(NORMAL, 0, 5)}, .training = 1},
    {"mean", OP_reduce, REDUCE(MEAN, 6, 0), {IN(NORMAL, 3, 4, 5, 7)}, WITH_GRAD},
    {"mean_last", OP_reduce, REDUCE(MEAN, 4, 1), {IN(NORMAL, 3, 4, 70)}, WITH_GRAD},
    {"reduce_max", OP_reduce, REDUCE(MAX, 2, 0), {IN(SPACED, 3, 5, 7)}, WITH_GRAD},
    {"reduce_max_ties", OP_reduce, REDUCE(MAX, 2, 1), {IN(FEW, 3, 50)}, .tol = 1e-6, .training = 1},
    {"reduce_max_last", OP_reduce, REDUCE(MAX, 2, 1), {IN(SPACED, 3, 130)}, WITH_GRAD},
    {"reduce_min", OP_reduce, REDUCE(MIN, 5, 0), {IN(SPACED, 3, 5, 7)}, WITH_GRAD},
    {"var", OP_reduce, REDUCE(VAR, 2, 0), {IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"var_last",
     OP_reduce,
     {.reduce = {.kind = REDUCE_VAR, .axes = 2, .keep = 1, .correction = 1}},
     {IN(NORMAL, 3, 130)},
     WITH_GRAD},
    {"matmul", OP_matmul, {{{0}}}, {IN(NORMAL, 5, 7), IN(NORMAL, 7, 3)}, WITH_GRAD},
    {"matmul_tiles", OP_matmul, {{{0}}}, {IN(NORMAL, 35, 67), IN(NORMAL, 67, 33)}, WITH_GRAD},
    {"matmul_batch",
     OP_matmul,
     {{{0}}},
     {IN(NORMAL, 3, 2, 5, 7), IN(NORMAL, 3, 2, 7, 4)},
     WITH_GRAD},
    {"matmul_first",
     OP_matmul,
     {.matmul.transpose_a = 1},
     {IN(NORMAL, 3, 7, 5), IN(NORMAL, 3, 7, 4)},
     WITH_GRAD},
    {"matmul_second",
     OP_matmul,
     {.matmul.transpose_b = 1},
     {IN(NORMAL, 3, 5, 7), IN(NORMAL, 3, 4, 7)},
     WITH_GRAD},
    {"matmul_both", OP_matmul, {.matmul = {1, 1}}, {IN(NORMAL, 7, 5), IN(NORMAL, 3, 7)}, WITH_GRAD},
    {"matmul_broadcast",
     OP_matmul,
     {.matmul.transpose_b = 1},
     {IN(NORMAL, 3, 1, 5, 7), IN(NORMAL, 4, 6, 7)},
     WITH_GRAD},
    {"matmul_one_matrix", OP_matmul, {{{0}}}, {IN(NORMAL, 5, 7), IN(NORMAL, 4, 7, 3)}, WITH_GRAD},
    {"matmul_empty", OP_matmul, {{{0}}}, {IN(NORMAL, 0, 5, 7), IN(NORMAL, 7, 3)}, .training = 1},
    {"softmax", OP_softmax, {.softmax.dim = 1}, {IN(NORMAL, 7, 10)}, WITH_GRAD},
    {"softmax_inner", OP_softmax, {.softmax.dim = 1}, {IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"softmax_first", OP_softmax, {.softmax.dim = 0}, {IN(NORMAL, 6, 35)}, WITH_GRAD},
    {"softmax_wide",
     OP_softmax,
     {.softmax.dim = 1},
     {IN(NORMAL, 3, 1301)},
     .tol = 1e-5,
     .training = 1},
    {"softmax_one", OP_softmax, {.softmax.dim = 1}, {IN(NORMAL, 3, 1)}, .tol = 1e-5, .training = 1},
    {"softmax_safe", /* a line of -infinity alone, and one of others */
     OP_softmax,
     {.softmax = {.dim = 1, .safe = 1}},
     {IN(HIDDEN, 7, 40)},
     .tol = 1e-5,
     .training = 1},
    {"softmax_empty", OP_softmax, {.softmax.dim = 1}, {IN(NORMAL, 0, 5)}, .training = 1},
    {"log_softmax", OP_softmax, {.softmax = {1, 1}}, {IN(NORMAL, 7, 10)}, WITH_GRAD},
    {"log_softmax_inner", OP_softmax, {.softmax = {1, 1}}, {IN(NORMAL, 2, 7, 10)}, WITH_GRAD},
};

const struct op_case_family cases_general = {rows, ARRAY_LEN(rows)};
