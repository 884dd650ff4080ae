/* case_rows - short forms for the rows of the operator cases.
 *
 * A file cases_FAMILY.c has rows, and a line for it stands in cases.c. */
#ifndef TESTS_OP_CASE_ROWS_H
#define TESTS_OP_CASE_ROWS_H

#include "base/util.h"
#include "cases.h"
#include "op/control.h"
#include "op/scaler.h"
#include "op/seal.h"
#include "op/update.h"

#define IN(f, ...)                                                            \
    {                                                                         \
        FILL_##f,                                                             \
        {                                                                     \
            .n = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = { __VA_ARGS__ } \
        }                                                                     \
    }
#define ONLY(f)               \
    {                         \
        FILL_##f, { .n = -1 } \
    }
#define CONV(s0, s1, p0, p1, d0, d1, g, a) \
    {                                      \
        .conv = {                          \
            .stride = {s0, s1},            \
            .pad = {p0, p1},               \
            .dilation = {d0, d1},          \
            .groups = g,                   \
            .act = a                       \
        }                                  \
    }
#define POOL(k, k0, k1, s0, s1, p0, p1, count) \
    {                                          \
        .pool = {                              \
            .kind = POOL_##k,                  \
            .kernel = {k0, k1},                \
            .stride = {s0, s1},                \
            .pad = {p0, p1},                   \
            .count_pad = count                 \
        }                                      \
    }

#define ATTENTION(t, h, is_causal, drop)                                        \
    {                                                                           \
        .attention = {.length = t, .heads = h, .causal = is_causal, .p = drop } \
    }
#define ATTENTION_NEAR(t, h, rows, drop)                                                \
    {                                                                                   \
        .attention = {.length = t, .heads = h, .causal = 1, .window = rows, .p = drop } \
    }

/* A case of seal.  The two macros after it end a forward case, with gradients and without, and set
 * the usual tolerances. */
#define SEAL(name, check, control)                                                   \
    {                                                                                \
        name, OP_seal, {{{0}}},                                                      \
        {                                                                            \
            IN(NORMAL, 1), IN(NORMAL, SEALED_SLOTS *SEALED_LEN), ONLY(check),        \
                IN(control, CONTROL_LEN), ONLY(SCALARS), ONLY(METRICS), ONLY(WAITS), \
                IN(SCALER, SCALER_LEN), ONLY(WAITS)                                  \
        }                                                                            \
    }
#define WITH_GRAD .tol = 1e-5, .grad_tol = 5e-3, .training = 1
#define FORWARD   .tol = 1e-5

/* A case of an optimizer's operator (op/update.c), for n parameters in `rows` segments.  numbers:
 * attr.number.  check and control decide whether the update is applied.  copies: the copy and the
 * scaler. */
#define UPDATE(name, op, n, rows, numbers, check, control, scalars, copies, slots)               \
    {                                                                                            \
        name, OP_##op, {.number = numbers}, {IN(NORMAL, n), IN(NORMAL, n),                       \
                                             ONLY(check),   IN(control, CONTROL_LEN),            \
                                             ONLY(scalars), IN(SEGMENTS, rows, SEGMENT_COLUMNS), \
                                             copies,        slots},                              \
            .tol = 2e-7                                                                          \
    }
/* A case of muon.  The iterations make errors larger: a direction of little weight is stretched 3.4
 * times in each. */
#define MATRIX(name, n, numbers, check, control, copies)                                      \
    {                                                                                         \
        name, OP_muon, {.number = numbers}, {IN(NORMAL, n), IN(NORMAL, n),                    \
                                             ONLY(check),   IN(control, CONTROL_LEN),         \
                                             ONLY(SCALARS), IN(SEGMENTS, 1, SEGMENT_COLUMNS), \
                                             copies,        IN(NORMAL, n)},                   \
            .tol = 2e-5                                                                       \
    }
#define LIST(...)   \
    {               \
        __VA_ARGS__ \
    }
#define COPIES(n) IN(NORMAL, n), IN(SCALER, SCALER_LEN), ONLY(WAITS)
#define NO_COPIES ONLY(NONE), ONLY(NONE), ONLY(NONE)
#define KEPT      ONLY(NONE), ONLY(NONE), ONLY(WAITS)
#define SGD(m, d, n) \
    LIST([SGD_ATTR_MOMENTUM] = m, [SGD_ATTR_DAMPENING] = d, [SGD_ATTR_NESTEROV] = n)

#define ADAMW LIST([ADAMW_ATTR_BETA1] = 0.9, [ADAMW_ATTR_BETA2] = 0.999, [ADAMW_ATTR_EPS] = 1e-8)
#define ADAM                                                                            \
    LIST([ADAMW_ATTR_BETA1] = 0.9, [ADAMW_ATTR_BETA2] = 0.999, [ADAMW_ATTR_EPS] = 1e-8, \
         [ADAMW_ATTR_COUPLED] = 1)
#define ADAMW_MEANS(from)                                                               \
    LIST([ADAMW_ATTR_BETA1] = 0.9, [ADAMW_ATTR_BETA2] = 0.999, [ADAMW_ATTR_EPS] = 1e-8, \
         [ADAMW_ATTR_MEANS_FROM] = from)
#define ADAM_MEANS(from)                                                                \
    LIST([ADAMW_ATTR_BETA1] = 0.9, [ADAMW_ATTR_BETA2] = 0.999, [ADAMW_ATTR_EPS] = 1e-8, \
         [ADAMW_ATTR_COUPLED] = 1, [ADAMW_ATTR_MEANS_FROM] = from)
#define MUON(n_rows, is_nesterov, n_steps)                                                \
    LIST([MUON_ATTR_MOMENTUM] = 0.95, [MUON_ATTR_NESTEROV] = is_nesterov,                 \
         [MUON_ATTR_ROWS] = n_rows, [MUON_ATTR_RATIO] = 1.5, [MUON_ATTR_STEPS] = n_steps, \
         [MUON_ATTR_A] = 3.4445, [MUON_ATTR_B] = -4.775, [MUON_ATTR_C] = 2.0315)
#define LION LIST([LION_ATTR_BETA1] = 0.9, [LION_ATTR_BETA2] = 0.99)
#define LAMB                                                                         \
    LIST([LAMB_ATTR_BETA1] = 0.9, [LAMB_ATTR_BETA2] = 0.999, [LAMB_ATTR_EPS] = 1e-6, \
         [LAMB_ATTR_MOST] = 1e300)
/* corrects: 0 the direction, 1 the rate, 2 nothing (enum lamb_correction). */
#define LAMB_BOUND(least, most, corrects)                                            \
    LIST([LAMB_ATTR_BETA1] = 0.9, [LAMB_ATTR_BETA2] = 0.999, [LAMB_ATTR_EPS] = 1e-6, \
         [LAMB_ATTR_LEAST] = least, [LAMB_ATTR_MOST] = most, [LAMB_ATTR_CORRECTS] = corrects)
/* The two slots of adamw and lamb: the mean of the squares is positive. */
#define MOMENTS(n) IN(NORMAL, n), IN(POSITIVE, n)
#define SIGNED(n)  IN(NORMAL, n), IN(NORMAL, n) /* roots of negative numbers */

#endif
