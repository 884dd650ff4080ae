/* Ticks are at 1, 2 or 5 times a power of ten.  A linear axis ends at ticks; a logarithmic one ends
 * at the numbers themselves. */
#include "see/chart.h"

#include <math.h>
#include <stdio.h>

#include "base/util.h"

static void chart_tick(struct chart_scale *s, double v)
{
    if (s->n_ticks < CHART_MOST_TICKS)
        s->tick[s->n_ticks++] = v;
}

/* The least of 1, 2, 5, 10 times a power of ten that is not below v > 0. */
static double chart_round_up(double v)
{
    const double power = pow(10, floor(log10(v)));
    static const double of[] = {1, 2, 5};

    for (size_t i = 0; i < ARRAY_LEN(of); i++)
        if (v <= of[i] * power * (1 + 1e-9))
            return of[i] * power;
    return 10 * power;
}

static void chart_linear(struct chart_scale *s, double least, double most, int n)
{
    const double middle = fabs(least) > fabs(most) ? fabs(least) : fabs(most);
    double each;

    if (most - least <= 1e-12 * middle || most == least) { /* a line that is level */
        const double room = middle > 0 ? 0.1 * middle : 1;

        least -= least >= 0 && least < room ? least : room;
        most += room;
    }
    each = chart_round_up((most - least) / n);
    s->low = each * floor(least / each + 1e-9);
    s->high = each * ceil(most / each - 1e-9);
    for (int i = 0; i < CHART_MOST_TICKS && s->low + i * each <= s->high + 0.5 * each; i++)
        chart_tick(s, fabs(s->low + i * each) < 1e-9 * each ? 0 : s->low + i * each);
}

/* Powers of ten, or where they are fewer than three, 2 and 5 times them, too. */
static void chart_log(struct chart_scale *s, double least, double most, int n)
{
    const int first = (int)floor(log10(least)), last = (int)ceil(log10(most));
    const int few = last - first < 3, skip = 1 + (last - first) / n;
    static const double of[] = {1, 2, 5};

    s->is_log = 1;
    s->low = least;
    s->high = most;
    for (int p = first; p <= last; p += few ? 1 : skip)
        for (int i = 0; i < (few ? 3 : 1); i++) {
            const double v = of[i] * pow(10, p);

            if (v >= least * 0.999 && v <= most * 1.001)
                chart_tick(s, v);
        }
}

struct chart_scale chart_scale(double least, double most, int n, int may_log)
{
    struct chart_scale s = {0};

    if (may_log && least > 0 && most >= 20 * least)
        chart_log(&s, least, most, n);
    else
        chart_linear(&s, least, most, n);
    return s;
}

struct chart_scale chart_scale_within(double low, double high, int n)
{
    struct chart_scale s = chart_scale(low, high, n, 0);

    while (s.n_ticks && s.tick[s.n_ticks - 1] > high)
        s.n_ticks--;
    s.low = low;
    s.high = high;
    return s;
}

double chart_place(const struct chart_scale *s, double v)
{
    const double at = s->is_log ? (v > 0 ? log(v / s->low) / log(s->high / s->low) : 0)
                                : (v - s->low) / (s->high - s->low);

    return fmin(fmax(at, 0), 1);
}

void chart_text(char *out, size_t cap, double v)
{
    const double size = fabs(v);

    if (size >= 1e3 && size < 1e6)
        snprintf(out, cap, "%.4gk", v / 1e3);
    else if (size >= 1e6 && size < 1e9)
        snprintf(out, cap, "%.4gM", v / 1e6);
    else
        snprintf(out, cap, "%.4g", v);
}
