/* control - packs this rank's numbers into the control vector, and reads the sum of all ranks'.
 * Integers travel as digits of 8 bits (control.h says why). */
#include "op/control.h"

#include <math.h>
#include <string.h>

#include "ir/graph.h"

enum { LOSS_DIGITS = 8, COUNT_DIGITS = 4 };

#define LOSS_LIMIT 0x1p39 /* a rank's loss sum from there on is CONTROL_LOSS_CUT */

static void control_put_digits(uint64_t v, float *to, int n_digits)
{
    for (int i = 0; i < n_digits; i++, v >>= 8)
        to[i] = (float)(v & 255);
}

/* Digits are sums over ranks, so each may exceed 255 and carries.  A sum beyond int64 is cut to
 * CONTROL_LOSS_CUT, and so is any sum with a rank's that is cut. */
static int64_t get_digits(const float *from, int n_digits)
{
    int64_t v = 0;

    for (int i = n_digits - 1; i >= 0; i--) {
        int64_t digit = (int64_t)from[i];

        if (v > (INT64_MAX - digit) >> 8)
            return CONTROL_LOSS_CUT;
        v = (v << 8) + digit;
    }
    return v;
}

void control_pack(const double *metrics, unsigned requests, int is_void, float *v)
{
    double loss = metrics[METRIC_LOSS_SUM];

    memset(v, 0, CONTROL_LEN * sizeof *v);
    if (isfinite(loss) && loss > 0)
        control_put_digits(loss < LOSS_LIMIT ? (uint64_t)(loss * 0x1p24) : UINT64_MAX,
                           v + CONTROL_LOSS, LOSS_DIGITS);
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
    };
}
