/* control - packs this rank's numbers into the control vector, and reads the sum of all ranks'.
 * Integers travel as digits of 8 bits (control.h says why). */
#include "op/control.h"

#include <math.h>
#include <string.h>

#include "ir/graph.h"

enum { LOSS_DIGITS = 8, COUNT_DIGITS = 4 };

#define LOSS_LIMIT 0x1p39 /* a rank's loss sum of this size or more is CONTROL_LOSS_CUT */

static void control_put_digits(uint64_t v, float *to, int n_digits)
{
    for (int i = 0; i < n_digits; i++, v >>= 8)
        to[i] = (float)(v & 255);
}

/* A negative sum has negative digits. */
static void control_put_loss(double loss, float *to)
{
    const double size = fabs(loss);

    control_put_digits(size < LOSS_LIMIT ? (uint64_t)(size * 0x1p24) : UINT64_MAX, to, LOSS_DIGITS);
    for (int i = 0; i < LOSS_DIGITS && loss < 0; i++)
        to[i] = 0 - to[i];
}

/* Digits are sums over ranks, so each may exceed 255 and carries.  A sum beyond int64 is cut to
 * CONTROL_LOSS_CUT, or to -CONTROL_LOSS_CUT, and so is a sum with a rank's that is cut. */
static int64_t get_digits(const float *from, int n_digits)
{
    int64_t v = 0;

    for (int i = n_digits - 1; i >= 0; i--) {
        const int is_negative = v < 0;

        if (__builtin_mul_overflow(v, 256, &v) || __builtin_add_overflow(v, (int64_t)from[i], &v))
            return is_negative ? -CONTROL_LOSS_CUT : CONTROL_LOSS_CUT;
    }
    return v;
}

void control_pack(const double *metrics, unsigned requests, int is_void, float *v)
{
    const double loss = metrics[METRIC_LOSS_SUM];

    memset(v, 0, CONTROL_LEN * sizeof *v);
    if (isfinite(loss))
        control_put_loss(loss, v + CONTROL_LOSS);
    control_put_digits((uint64_t)metrics[METRIC_CORRECT], v + CONTROL_CORRECT, COUNT_DIGITS);
    control_put_digits((uint64_t)metrics[METRIC_TARGETS], v + CONTROL_TARGETS, COUNT_DIGITS);
    control_put_digits((uint64_t)(metrics[METRIC_WEIGHT] * WEIGHT_UNITS), v + CONTROL_WEIGHT,
                       CONTROL_WEIGHT_DIGITS);
    v[CONTROL_NONFINITE] = !isfinite(loss) || metrics[METRIC_NONFINITE] > 0 || (requests >> 4 & 1);
    v[CONTROL_STOP] = requests & 1;
    v[CONTROL_CHECKPOINT] = requests >> 1 & 1;
    v[CONTROL_REGROUP] = requests >> 2 & 1;
    v[CONTROL_READY] = requests >> 3 & 1;
    v[CONTROL_VOID] = is_void != 0;
}

void control_read(const float *v, struct control *out)
{
    *out = (struct control){
        .loss = get_digits(v + CONTROL_LOSS, LOSS_DIGITS),
        .n_correct = get_digits(v + CONTROL_CORRECT, COUNT_DIGITS),
        .n_targets = get_digits(v + CONTROL_TARGETS, COUNT_DIGITS),
        .weight = get_digits(v + CONTROL_WEIGHT, CONTROL_WEIGHT_DIGITS),
        .n_nonfinite = (int)v[CONTROL_NONFINITE],
        .n_stop = (int)v[CONTROL_STOP],
        .n_checkpoint = (int)v[CONTROL_CHECKPOINT],
        .n_regroup = (int)v[CONTROL_REGROUP],
        .n_ready = (int)v[CONTROL_READY],
        .is_void = v[CONTROL_VOID] > 0,
        .is_spike = v[CONTROL_SPIKE] > 0,
    };
}
