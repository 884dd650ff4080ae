/* A character of Braille has two columns of four dots: U+2800 and a bit for each dot.  A validation
 * takes the place of the dots in its character. */
#include "see/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "see/chart.h"

enum { PLOT_ROWS = 8, PLOT_MOST = 120, PLOT_MARGIN = 9 };

struct plot {
    int columns, is_utf8;
    int64_t last_step;
    struct chart_scale loss;
    unsigned char dots[PLOT_ROWS][PLOT_MOST]; /* bits of Braille */
    char mark[PLOT_ROWS][PLOT_MOST];          /* a character in place of the dots, or 0 */
};

/* The bit of the dot in column `x` (0, 1) and row `y` (0 to 3, from above); Unicode, chapter 21. */
static unsigned plot_bit(int x, int y)
{
    static const unsigned char bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

    return bits[x][y];
}

/* Where a number is, counted in dots from above left. */
static void plot_where(const struct plot *p, double step, double v, int *x, int *y)
{
    const int w = 2 * p->columns, h = 4 * PLOT_ROWS;

    *x = (int)min_i64((int64_t)(step / (double)p->last_step * w), w - 1);
    *y = (int)min_i64((int64_t)((1 - chart_place(&p->loss, v)) * h), h - 1);
}

static void plot_dot(struct plot *p, int x, int y)
{
    p->dots[y / 4][x / 2] |= (unsigned char)plot_bit(x % 2, y % 4);
}

/* Each column of dots has the mean of its points, and what is between neighbours is filled. */
static void plot_line(struct plot *p, const struct history_line *line)
{
    int last_x = -1, last_y = 0;

    for (int i = 0; i < line->n; i++) {
        int x, y;

        if (!line->point[i].n) {
            last_x = -1;
            continue;
        }
        plot_where(p, (double)line->point[i].step, line->point[i].mean, &x, &y);
        for (int k = last_x < 0 ? x : last_x + 1; k < x; k++)
            plot_dot(p, k, last_y + (y - last_y) * (k - last_x) / (x - last_x));
        plot_dot(p, x, y);
        last_x = x;
        last_y = y;
    }
}

static void plot_marks(struct plot *p, const struct history_line *line)
{
    for (int i = 0; i < line->n; i++) {
        int x, y;

        if (!line->point[i].n)
            continue;
        plot_where(p, (double)line->point[i].step, line->point[i].mean, &x, &y);
        p->mark[y / 4][x / 2] = 'o';
    }
}

static void plot_cell(const struct plot *p, int row, int column, struct buf *out)
{
    const unsigned dots = p->dots[row][column];

    if (p->mark[row][column])
        buf_printf(out, "%c", p->mark[row][column]);
    else if (!p->is_utf8)
        buf_printf(out, "%c", dots ? '*' : ' ');
    else if (dots) /* U+2800 and above in UTF-8 */
        buf_printf(out, "\xe2%c%c", 0xa0 | (int)(dots >> 6), 0x80 | (int)(dots & 0x3f));
    else
        buf_printf(out, " ");
}

/* The number beside a row, where the axis has a tick in it. */
static void plot_label(const struct plot *p, int row, char *out, size_t cap)
{
    out[0] = 0;
    for (int i = 0; i < p->loss.n_ticks && !out[0]; i++) {
        const double at = (1 - chart_place(&p->loss, p->loss.tick[i])) * PLOT_ROWS;

        if (min_i64((int64_t)at, PLOT_ROWS - 1) == row)
            chart_text(out, cap, p->loss.tick[i]);
    }
}

static void plot_rows(const struct plot *p, struct buf *out)
{
    char label[32];

    for (int row = 0; row < PLOT_ROWS; row++) {
        size_t end;

        plot_label(p, row, label, sizeof label);
        buf_printf(out, "%*s %s", PLOT_MARGIN - 2, label, p->is_utf8 ? "\xe2\x94\x82" : "|");
        end = out->len;
        for (int i = 0; i < p->columns; i++) {
            plot_cell(p, row, i, out);
            if (out->data[out->len - 1] != ' ')
                end = out->len;
        }
        out->len = end;
        buf_printf(out, "\n");
    }
}

void plot_loss(const struct history *h, int columns, int is_utf8, struct buf *out)
{
    const struct history_line *train = &h->line[HISTORY_TRAIN_LOSS],
                              *validation = &h->line[HISTORY_VALIDATION_LOSS];
    struct plot p = {.columns = (int)min_i64(max_i64(columns, 40), PLOT_MOST) - PLOT_MARGIN,
                     .is_utf8 = is_utf8,
                     .last_step = h->last_step};
    double least, most, low, high;
    char step[32];

    if (train->n < 3 || h->last_step < 1 || !history_range(train, &least, &most))
        return;
    if (history_range(validation, &low, &high)) {
        least = fmin(least, low);
        most = fmax(most, high);
    }
    p.loss = chart_scale(least, most, 4, 1);
    plot_line(&p, train);
    plot_marks(&p, validation);
    plot_rows(&p, out);
    chart_text(step, sizeof step, (double)h->last_step);
    buf_printf(out, "%*s loss, %s training%s, to step %s\n\n", PLOT_MARGIN - 1, "",
               is_utf8 ? "\xe2\xa0\xa4" : "*", validation->n ? ", o validation" : "", step);
}
