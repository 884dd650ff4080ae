/* One panel for each kind of number, two side by side.  A panel without a number is left out.
 * Coordinates are pixels from above left, as SVG has them. */
#include "see/curves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/util.h"
#include "report/run_dir.h"
#include "see/curves_impl.h"

/* In pixels. */
enum {
    HEAD = 54, /* the title's */
    FOOT = 34, /* the legend's */
};

static const struct curves_panel {
    const char *title;
    int line[2];       /* enum history_of; -1: none */
    const char *of[2]; /* the lines' names, where there are two */
    double factor;     /* of what is shown to what is known */
    int may_log;
} curves_panels[] = {
    {"Loss", {HISTORY_TRAIN_LOSS, HISTORY_VALIDATION_LOSS}, {"training", "validation"}, 1, 1},
    {"Accuracy, %",
     {HISTORY_TRAIN_ACCURACY, HISTORY_VALIDATION_ACCURACY},
     {"training", "validation"},
     100,
     0},
    {"Learning rate", {HISTORY_LEARNING_RATE, -1}, {NULL}, 1, 0},
    {"Gradient norm", {HISTORY_GRAD_NORM, -1}, {NULL}, 1, 1},
    {"Samples per second", {HISTORY_SPEED, -1}, {NULL}, 1, 0},
};

static const struct {
    const char *class, *text;
    const char *shape; /* from its lower tip on, as a path has it; NULL: a line through the panel */
} curves_marks[] = {
    [HISTORY_LOST] = {"lost", "rank lost, others went on", NULL},
    [HISTORY_RECOVERED] = {"well", "recovered", "l4.5 -5l-4.5 -5l-4.5 5z"},
    [HISTORY_CHECKPOINT] = {"saved", "checkpoint", "l-3.5 -6h7z"},
    [HISTORY_RESUMED] = {"again", "resumed", NULL},
    [HISTORY_LEADER] = {"lead", "another driver leads", NULL},
};

_Static_assert(ARRAY_LEN(curves_marks) == HISTORY_MARK_COUNT, "a row for each kind");

const char curves_style[] =
    "<style>\n"
    "text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#24292f}\n"
    ".back{fill:#fff}.name{font-size:17px;font-weight:600}.head{font-weight:600}\n"
    ".soft{fill:#57606a}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#6e7781;stroke-width:1}\n"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}.band{stroke:none;opacity:.18}\n"
    ".one{stroke:#0072b2}.two{stroke:#d55e00;stroke-dasharray:6 3}\n"
    ".band.one,.dot.one{fill:#0072b2}.dot.two{fill:#d55e00;stroke-dasharray:none}\n"
    ".lost{stroke:#cc3311;stroke-width:1.5;stroke-dasharray:4 3}\n"
    ".again{stroke:#6e7781;stroke-width:1.5;stroke-dasharray:1 3}\n"
    ".lead{stroke:#882255;stroke-width:1.5;stroke-dasharray:8 3 2 3}\n"
    ".saved{fill:#6e7781;stroke:none}.well{fill:#009e73;stroke:none}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}.back{fill:#0d1117}.soft{fill:#9da7b3}.grid{stroke:#2a313a}\n"
    ".axis{stroke:#8b949e}.one{stroke:#56b4e9}.two{stroke:#e69f00}\n"
    ".band.one,.dot.one{fill:#56b4e9}.dot.two{fill:#e69f00}\n"
    ".lost{stroke:#ff7b72}.again{stroke:#9da7b3}.lead{stroke:#cc99bb}.saved{fill:#9da7b3}\n"
    ".well{fill:#2fc79a}}\n"
    "@media print{text{fill:#000}.back{fill:#fff}.soft{fill:#333}.grid{stroke:#ccc}\n"
    ".axis{stroke:#444}.one{stroke:#0072b2}.two{stroke:#d55e00}\n"
    ".band.one,.dot.one{fill:#0072b2}.dot.two{fill:#d55e00}}\n"
    "</style>\n";

static double curves_x(const struct curves_at *at, double step)
{
    return at->x + CURVES_PLOT_W * chart_place(&at->steps, step);
}

static double curves_y(const struct curves_at *at, double v)
{
    return at->y + CURVES_PLOT_H * (1 - chart_place(&at->values, at->factor * v));
}

void curves_escape(struct buf *out, const char *text)
{
    char *clean = xstrdup(text);

    text_clean(clean);
    for (const char *at = clean; *at; at++)
        if (*at == '&')
            buf_printf(out, "&amp;");
        else if (*at == '<')
            buf_printf(out, "&lt;");
        else
            buf_append(out, at, 1);
    free(clean);
}

/* ---- a panel ---- */

void curves_axes(struct buf *out, const struct curves_at *at, const char *title)
{
    char text[32];

    buf_printf(out, "<text class=\"head\" x=\"%d\" y=\"%d\">%s</text>\n", at->x, at->y - 12, title);
    for (int i = 0; i < at->values.n_ticks; i++) {
        const double y = at->y + CURVES_PLOT_H * (1 - chart_place(&at->values, at->values.tick[i]));

        chart_text(text, sizeof text, at->values.tick[i]);
        buf_printf(out,
                   "<path class=\"grid\" d=\"M%d %.1fh%d\"/>"
                   "<text class=\"soft\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                   at->x, y, CURVES_PLOT_W, at->x - 6, y + 4, text);
    }
    for (int i = 0; i < at->steps.n_ticks; i++) {
        const double x = curves_x(at, at->steps.tick[i]);

        chart_text(text, sizeof text, at->steps.tick[i]);
        buf_printf(out,
                   "<path class=\"axis\" d=\"M%.1f %dv4\"/>"
                   "<text class=\"soft\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                   x, at->y + CURVES_PLOT_H, x, at->y + CURVES_PLOT_H + 17, text);
    }
    buf_printf(out, "<path class=\"axis\" d=\"M%d %dh%d\"/>\n", at->x, at->y + CURVES_PLOT_H,
               CURVES_PLOT_W);
}

/* A number of the picture with one decimal.  printf would take most of the time of a picture. */
static char *curves_tenths(char *at, double v)
{
    long tenths = lrint(10 * v);
    char digits[24];
    int n = 0;

    if (tenths < 0)
        *at++ = '-';
    for (tenths = labs(tenths); tenths || n < 2; tenths /= 10)
        digits[n++] = (char)('0' + tenths % 10);
    while (n > 1)
        *at++ = digits[--n];
    *at++ = '.';
    *at++ = digits[0];
    return at;
}

/* A command of a path, 'M' or 'L', with its point. */
static void curves_to(struct buf *out, char command, double x, double y)
{
    char text[64], *at = text;

    *at++ = command;
    at = curves_tenths(at, x);
    *at++ = ' ';
    at = curves_tenths(at, y);
    buf_append(out, text, (size_t)(at - text));
}

void curves_line(struct buf *out, const struct curves_at *at, const struct history_line *line,
                 const char *class)
{
    int is_gap = 1;

    buf_printf(out, "<path class=\"line %s\" d=\"", class);
    for (int i = 0; i < line->n; i++) {
        const struct history_point *p = &line->point[i];

        if (p->n)
            curves_to(out, is_gap ? 'M' : 'L', curves_x(at, (double)p->step),
                      curves_y(at, p->mean));
        is_gap = !p->n;
    }
    buf_printf(out, "\"/>\n");
}

void curves_dots(struct buf *out, const struct curves_at *at, const struct history_line *line,
                 const char *class)
{
    enum { FEW = 40 };

    for (int i = 0; i < line->n; i++) {
        const struct history_point *p = line->point + i;
        const int is_alone = (i == 0 || !p[-1].n) && (i + 1 == line->n || !p[1].n);

        if (p->n && (line->n <= FEW || is_alone))
            buf_printf(out, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\"/>", class,
                       curves_x(at, (double)p->step), curves_y(at, p->mean));
    }
    buf_printf(out, "\n");
}

/* The range of the numbers that a point is the mean of. */
static void curves_band(struct buf *out, const struct curves_at *at,
                        const struct history_line *line, const char *class)
{
    char command = 'M';

    if (line->n_each < 2 || line->n < 2)
        return;
    buf_printf(out, "<path class=\"band %s\" d=\"", class);
    for (int i = 0; i < line->n; i++)
        if (line->point[i].n) {
            curves_to(out, command, curves_x(at, (double)line->point[i].step),
                      curves_y(at, line->point[i].most));
            command = 'L';
        }
    for (int i = line->n; i-- > 0;)
        if (line->point[i].n)
            curves_to(out, 'L', curves_x(at, (double)line->point[i].step),
                      curves_y(at, line->point[i].least));
    buf_printf(out, "Z\"/>\n");
}

/* A checkpoint's mark stands on the axis below; that of a recovery is on the border above. */
void curves_mark(struct buf *out, const struct curves_at *at, const struct history *h,
                 const struct history_mark *m, const char *class, const char *who)
{
    const char *shape = curves_marks[m->kind].shape;
    const long long step = history_mark_step(h, m);
    const double x = curves_x(at, (double)step);
    const int is_below = m->kind == HISTORY_CHECKPOINT;

    buf_printf(out, "<path class=\"%s\" d=\"M%.1f %d", class ? class : curves_marks[m->kind].class,
               x, is_below ? at->y + CURVES_PLOT_H : at->y + (shape ? 5 : 0));
    if (shape)
        buf_printf(out, "%s\"><title>", shape);
    else
        buf_printf(out, "v%d\"><title>", CURVES_PLOT_H);
    if (who)
        curves_escape(out, who);
    buf_printf(out, who ? ": " : "");
    curves_escape(out, m->text);
    buf_printf(out, ", step %lld</title></path>", step);
}

/* Checkpoints that would cover one another are left out. */
static void curves_draw_marks(struct buf *out, const struct curves_at *at, const struct history *h)
{
    double last_x = -1;

    for (int i = 0; i < h->n_marks; i++) {
        const struct history_mark *m = &h->mark[i];
        const double x = curves_x(at, (double)history_mark_step(h, m));

        if (m->kind == HISTORY_CHECKPOINT && fabs(x - last_x) < 3)
            continue;
        if (m->kind == HISTORY_CHECKPOINT)
            last_x = x;
        curves_mark(out, at, h, m, NULL, NULL);
    }
    buf_printf(out, "\n");
}

/* The names of a panel's two lines, at its upper right. */
static void curves_name_lines(struct buf *out, const struct curves_at *at,
                              const struct curves_panel *p)
{
    static const char *const class[] = {"one", "two"};

    for (int i = 0; i < 2 && p->of[1]; i++) {
        const int x = at->x + CURVES_PLOT_W - 190 + 95 * i;

        buf_printf(out,
                   "<path class=\"line %s\" d=\"M%d %dh18\"/>"
                   "<text class=\"soft\" x=\"%d\" y=\"%d\">%s</text>\n",
                   class[i], x, at -> y - 16, x + 23, at -> y - 12, p -> of[i]);
    }
}

/* The range of both lines; 0: there is nothing to draw. */
static int curves_range(const struct history *h, const struct curves_panel *p, double *least,
                        double *most)
{
    int is_any = 0;

    for (int i = 0; i < 2; i++) {
        double low, high;

        if (p->line[i] < 0 || !history_range(&h->line[p->line[i]], &low, &high))
            continue;
        *least = p->factor * (is_any ? fmin(*least / p->factor, low) : low);
        *most = p->factor * (is_any ? fmax(*most / p->factor, high) : high);
        is_any = 1;
    }
    return is_any;
}

static void curves_draw_panel(struct buf *out, const struct history *h, int n,
                              const struct curves_panel *p, double least, double most)
{
    static const char *const class[] = {"one", "two"};
    const struct curves_at at = {
        .x = CURVES_LEFT + n % 2 * CURVES_PANEL_W,
        .y = HEAD + CURVES_ABOVE + n / 2 * CURVES_PANEL_H,
        .steps = chart_scale_within(0, (double)max_i64(h->last_step, 1), 6),
        .values = chart_scale(least, most, 5, p->may_log),
        .factor = p->factor,
    };

    curves_axes(out, &at, p->title);
    curves_draw_marks(out, &at, h);
    for (int i = 0; i < 2; i++)
        if (p->line[i] >= 0) {
            curves_band(out, &at, &h->line[p->line[i]], class[i]);
            curves_line(out, &at, &h->line[p->line[i]], class[i]);
            curves_dots(out, &at, &h->line[p->line[i]], class[i]);
        }
    curves_name_lines(out, &at, p);
}

/* ---- the picture ---- */

/* The kinds of marks that there are, each with its meaning. */
static void curves_legend(struct buf *out, const struct history *h, int y)
{
    int x = CURVES_LEFT;

    for (int kind = 0; kind < HISTORY_MARK_COUNT; kind++) {
        int is_seen = 0;

        for (int i = 0; i < h->n_marks; i++)
            is_seen |= (int)h->mark[i].kind == kind;
        if (!is_seen)
            continue;
        buf_printf(out, "<path class=\"%s\" d=\"M%d %d%s\"/>", curves_marks[kind].class, x + 4,
                   curves_marks[kind].shape ? y : y + 2,
                   curves_marks[kind].shape ? curves_marks[kind].shape : "v-13");
        buf_printf(out, "<text class=\"soft\" x=\"%d\" y=\"%d\">%s</text>\n", x + 14, y,
                   curves_marks[kind].text);
        x += 34 + 7 * (int)strlen(curves_marks[kind].text);
    }
}

static void curves_title(struct buf *out, const struct history *h, const char *name)
{
    char step[32];

    chart_text(step, sizeof step, (double)h->last_step);
    buf_printf(out, "<text class=\"name\" x=\"%d\" y=\"30\">", CURVES_LEFT);
    curves_escape(out, name);
    buf_printf(out,
               "</text><text class=\"soft\" x=\"%d\" y=\"47\">step %lld, epoch %lld%s</text>\n",
               CURVES_LEFT, (long long)h->last_step, (long long)h->n_epochs,
               h->is_done ? ", finished" : "");
}

void curves_svg(const struct history *h, const char *name, struct buf *out)
{
    struct buf panels = {0};
    double least = 0, most = 0;
    int n = 0, width, height;

    for (size_t i = 0; i < ARRAY_LEN(curves_panels); i++)
        if (curves_range(h, &curves_panels[i], &least, &most))
            curves_draw_panel(&panels, h, n++, &curves_panels[i], least, most);
    width = CURVES_PANEL_W * 2;
    height = HEAD + (n + 1) / 2 * CURVES_PANEL_H + FOOT;
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
               "height=\"%d\" role=\"img\"><title>Curves of the run ",
               width, height, width, height);
    curves_escape(out, name);
    buf_printf(out, "</title>\n%s<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n", curves_style,
               width, height);
    curves_title(out, h, name);
    buf_append(out, panels.data, panels.len);
    curves_legend(out, h, height - 14);
    buf_printf(out, "</svg>\n");
    buf_fini(&panels);
}

int curves_save(const struct history *h, const char *run_dir, struct err *err)
{
    char *path, *real;
    struct buf out = {0};
    int rc;

    if (h->last_step <= 0)
        return 0;
    path = xasprintf("%s/curves.svg", run_dir);
    real = realpath(run_dir, NULL);
    curves_svg(h, real && real[1] ? strrchr(real, '/') + 1 : run_dir, &out);
    rc = run_dir_replace(path, out.data, out.len, err);
    free(path);
    free(real);
    buf_fini(&out);
    return rc;
}
