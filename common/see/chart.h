/* chart - the scale of an axis: from numbers to places, and the round numbers beside it.
 *
 * Threads: any. */
#ifndef SEE_CHART_H
#define SEE_CHART_H

#include <stddef.h>

enum { CHART_MOST_TICKS = 12 };

struct chart_scale {
    double low, high; /* of the axis; low < high */
    int is_log;       /* low > 0 */
    double tick[CHART_MOST_TICKS];
    int n_ticks;
};

/* An axis that has all of [least, most] and ends at round numbers, with about `n` ticks.
 * may_log: it is logarithmic if least > 0 and most is 20 times least or more. */
struct chart_scale chart_scale(double least, double most, int n, int may_log);

/* An axis that ends just at `low` and `high`, with ticks at round numbers in between. */
struct chart_scale chart_scale_within(double low, double high, int n);

/* Where v is: 0 at `low`, 1 at `high`; held within. */
double chart_place(const struct chart_scale *s, double v);

/* A tick's number, short: "0.05", "20k", "1e-05". */
void chart_text(char *out, size_t cap, double v);

#endif
