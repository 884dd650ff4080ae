/* The curves of several runs over one another: each quantity is a panel with a line for each run.
 */
#include <math.h>
#include <stdio.h>

#include "base/util.h"
#include "see/compare_impl.h"
#include "see/curves_impl.h"

static const struct {
    const char *title;
    enum history_of of;
    double factor;
    int may_log;
} compare_panels[] = {
    {"Training loss", HISTORY_TRAIN_LOSS, 1, 1},
    {"Validation loss", HISTORY_VALIDATION_LOSS, 1, 1},
    {"Training accuracy, %", HISTORY_TRAIN_ACCURACY, 100, 0},
    {"Validation accuracy, %", HISTORY_VALIDATION_ACCURACY, 100, 0},
    {"Learning rate", HISTORY_LEARNING_RATE, 1, 0},
    {"Gradient norm", HISTORY_GRAD_NORM, 1, 1},
    {"Samples per second", HISTORY_SPEED, 1, 0},
};

/* Okabe and Ito's colours that stand out from the background, each with another dash. */
static const struct {
    const char *light, *dark, *dash;
} compare_lines[COMPARE_MOST] = {
    {"#0072b2", "#56b4e9", "none"}, {"#d55e00", "#e69f00", "7 3"},
    {"#009e73", "#2fc79a", "2 3"},  {"#a3457f", "#e08fbf", "10 3 2 3"},
    {"#24292f", "#e6edf3", "4 2"},  {"#0072b2", "#56b4e9", "1 4"},
    {"#d55e00", "#e69f00", "12 4"}, {"#009e73", "#2fc79a", "6 2 1 2 1 2"},
};

void compare_put_style(struct buf *out)
{
    buf_printf(out, "%s<style>\n", curves_style);
    for (int i = 0; i < COMPARE_MOST; i++)
        buf_printf(out, ".r%d{stroke:%s;stroke-dasharray:%s}.dot.r%d{fill:%s;stroke:none}\n", i,
                   compare_lines[i].light, compare_lines[i].dash, i, compare_lines[i].light);
    buf_printf(out, "@media screen and (prefers-color-scheme:dark){\n");
    for (int i = 0; i < COMPARE_MOST; i++)
        buf_printf(out, ".r%d{stroke:%s}.dot.r%d{fill:%s}\n", i, compare_lines[i].dark, i,
                   compare_lines[i].dark);
    buf_printf(out,
               "}\n"
               ".gone{stroke-width:1.2;stroke-dasharray:3 4}\n"
               ".key{width:38px;height:10px;margin-right:8px}\n"
               "th{padding:4px 10px;text-align:right;white-space:normal;vertical-align:bottom}\n"
               "td:first-child,th:first-child,.job th{text-align:left}\n"
               ".job td{text-align:left;white-space:normal;overflow-wrap:anywhere;"
               "min-width:9em;max-width:30em;vertical-align:top}\n"
               ".job td:first-child{white-space:nowrap}\n"
               ".wide{max-height:none}#lines{min-width:720px;width:100%%;height:auto}\n"
               "@media print{#lines{min-width:0}}\n"
               "</style>\n");
}

static int64_t compare_last_step(const struct compare *c)
{
    int64_t last = 1;

    for (int i = 0; i < c->n; i++)
        last = max_i64(last, c->run[i].history.last_step);
    return last;
}

/* The range of the line over all runs; 0: no run has a number. */
static int compare_range(const struct compare *c, enum history_of of, double *least, double *most)
{
    int is_any = 0;

    for (int i = 0; i < c->n; i++) {
        double low, high;

        if (!history_range(&c->run[i].history.line[of], &low, &high))
            continue;
        *least = is_any ? fmin(*least, low) : low;
        *most = is_any ? fmax(*most, high) : high;
        is_any = 1;
    }
    return is_any;
}

static int compare_is_marked(enum history_mark_kind kind)
{
    return kind == HISTORY_LOST || kind == HISTORY_RECOVERED;
}

/* The losses and recoveries of a run, in its colour. */
static void compare_put_marks(struct buf *out, const struct curves_at *at,
                              const struct compare_run *run, int i)
{
    const struct history *h = &run->history;
    char class[32];

    for (int k = 0; k < h->n_marks; k++) {
        const struct history_mark *m = &h->mark[k];

        if (!compare_is_marked(m->kind))
            continue;
        snprintf(class, sizeof class, m->kind == HISTORY_LOST ? "gone r%d" : "dot r%d", i);
        curves_mark(out, at, h, m, class, run->name);
    }
    buf_printf(out, "\n");
}

static int compare_has_marks(const struct compare *c)
{
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->run[i].history.n_marks; k++)
            if (compare_is_marked(c->run[i].history.mark[k].kind))
                return 1;
    return 0;
}

static void compare_put_panel(struct buf *out, const struct compare *c, size_t panel, int n,
                              double least, double most)
{
    const double factor = compare_panels[panel].factor;
    const struct curves_at at = {
        .x = CURVES_LEFT + n % 2 * CURVES_PANEL_W,
        .y = CURVES_ABOVE + n / 2 * CURVES_PANEL_H,
        .steps = chart_scale_within(0, (double)compare_last_step(c), 6),
        .values = chart_scale(factor * least, factor * most, 5, compare_panels[panel].may_log),
        .factor = factor,
    };

    curves_axes(out, &at, compare_panels[panel].title);
    for (int i = 0; i < c->n; i++) {
        const struct history_line *line = &c->run[i].history.line[compare_panels[panel].of];
        char class[16];

        snprintf(class, sizeof class, "r%d", i);
        compare_put_marks(out, &at, &c->run[i], i);
        curves_line(out, &at, line, class);
        curves_dots(out, &at, line, class);
    }
}

void compare_put_curves(struct buf *out, const struct compare *c)
{
    struct buf panels = {0};
    double least = 0, most = 0;
    int n = 0;

    for (size_t i = 0; i < ARRAY_LEN(compare_panels); i++)
        if (compare_range(c, compare_panels[i].of, &least, &most))
            compare_put_panel(&panels, c, i, n++, least, most);
    buf_printf(out, "<h2>Curves over steps</h2>\n");
    if (n)
        buf_printf(
            out,
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Curves\">"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"lines\" viewBox=\"0 0 %d %d\" "
            "role=\"img\" aria-label=\"Curves of all runs over their steps\">\n%s</svg></div>\n",
            2 * CURVES_PANEL_W, (n + 1) / 2 * CURVES_PANEL_H, buf_cstr(&panels));
    if (n && compare_has_marks(c))
        buf_printf(out, "<p>A lost rank is an upright line in the colour of its run, a recovery a "
                        "diamond above.</p>\n");
    if (!n)
        buf_printf(out, "<p>No run has done a step.</p>\n");
    buf_fini(&panels);
}
