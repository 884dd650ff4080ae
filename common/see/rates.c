/* A range test's smoothing, its suggestion, and how both are shown.  A test has some hundred steps,
 * so nothing here needs to be fast. */
#include "see/rates.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "see/curves_impl.h"

enum {
    RATES_PART = 40,  /* steps / RATES_PART neighbours on each side are averaged */
    RATES_ROWS = 13,  /* of the table */
    RATES_WIDE = 620, /* of the picture, in pixels */
    RATES_HIGH = 360,
};

void rates_add(struct rates *r, int64_t step, double rate, double loss)
{
    while (r->n > 0 && r->point[r->n - 1].step >= step)
        r->n--;
    if (r->n == r->room) {
        r->room = r->room ? 2 * r->room : 256;
        r->point = xrealloc(r->point, (size_t)r->room * sizeof *r->point);
    }
    r->point[r->n++] = (struct rates_point){
        .step = step, .rate = rate, .loss = isfinite(loss) ? loss : NAN, .smoothed = NAN};
}

void rates_fini(struct rates *r)
{
    free(r->point);
    *r = (struct rates){0};
}

/* ---- the suggestion ---- */

static int rates_reach(const struct rates *r) { return (int)max_i64(1, r->n / RATES_PART); }

static double rates_mean(const struct rates *r, int from, int to)
{
    double sum = 0;
    int n = 0;

    for (int i = (int)max_i64(from, 0); i <= to && i < r->n; i++)
        if (!isnan(r->point[i].loss)) {
            sum += r->point[i].loss;
            n++;
        }
    return n > 0 ? sum / n : NAN;
}

static int rates_lowest(const struct rates *r)
{
    int lowest = -1;

    for (int i = 0; i < r->n; i++)
        if (!isnan(r->point[i].smoothed) &&
            (lowest < 0 || r->point[i].smoothed < r->point[lowest].smoothed))
            lowest = i;
    return lowest;
}

/* The fall of the smoothed loss around point i; rates grow by the same factor everywhere. */
static double rates_fall(const struct rates *r, int i, int reach)
{
    return r->point[i - reach].smoothed - r->point[i + reach].smoothed;
}

void rates_find(struct rates *r)
{
    const int reach = rates_reach(r);
    double most = 0;
    int lowest;

    r->steepest = r->lowest = 0;
    for (int i = 0; i < r->n; i++)
        r->point[i].smoothed = isnan(r->point[i].loss) ? NAN : rates_mean(r, i - reach, i + reach);
    lowest = rates_lowest(r);
    if (lowest < 0)
        return;
    r->lowest = r->point[lowest].rate;
    for (int i = reach; i + reach <= lowest; i++)
        if (rates_fall(r, i, reach) > most) {
            most = rates_fall(r, i, reach);
            r->steepest = r->point[i].rate;
        }
}

/* ---- showing it ---- */

static void rates_put_loss(struct buf *out, double v)
{
    if (isnan(v))
        buf_printf(out, "  %10s", "-");
    else
        buf_printf(out, "  %10.5g", v);
}

static void rates_put_row(const struct rates_point *p, struct buf *out)
{
    buf_printf(out, "%8lld  %13.3g", (long long)p->step, p->rate);
    rates_put_loss(out, p->loss);
    rates_put_loss(out, p->smoothed);
    buf_printf(out, "\n");
}

void rates_put_table(const struct rates *r, struct buf *out)
{
    const int n = (int)min_i64(RATES_ROWS, r->n);

    buf_printf(out, "%8s  %13s  %10s  %10s\n", "step", "learning rate", "loss", "smoothed");
    for (int i = 0; i < n; i++)
        rates_put_row(&r->point[n > 1 ? (int64_t)i * (r->n - 1) / (n - 1) : 0], out);
    if (r->steepest > 0)
        buf_printf(
            out, "suggestion: optimizer.lr=%.2g, where the loss falls most; it is lowest at %.2g\n",
            r->steepest, r->lowest);
    else
        buf_printf(out, "no suggestion: the loss falls at none of these rates; try others by --set "
                        "schedule.first_lr and schedule.last_lr, or more steps by --set "
                        "train.max_steps\n");
}

static void rates_put_number(struct buf *out, const char *key, double v)
{
    if (v > 0)
        buf_printf(out, "\"%s\": %.3g", key, v);
    else
        buf_printf(out, "\"%s\": null", key);
}

void rates_put_json(const struct rates *r, struct buf *out)
{
    buf_printf(out, "{\"steps\": %d, ", r->n);
    rates_put_number(out, "suggestion", r->steepest);
    buf_printf(out, ", ");
    rates_put_number(out, "lowest", r->lowest);
    buf_printf(out, "}\n");
}

static void rates_put_cell(struct buf *out, double v)
{
    if (isnan(v))
        buf_printf(out, ",nan");
    else
        buf_printf(out, ",%.9g", v);
}

void rates_put_csv(const struct rates *r, struct buf *out)
{
    buf_printf(out, "step,learning_rate,loss,smoothed\n");
    for (int i = 0; i < r->n; i++) {
        buf_printf(out, "%lld,%.9g", (long long)r->point[i].step, r->point[i].rate);
        rates_put_cell(out, r->point[i].loss);
        rates_put_cell(out, r->point[i].smoothed);
        buf_printf(out, "\n");
    }
}

/* ---- the picture ---- */

/* The axes, and the rectangle between them. */
struct rates_frame {
    struct chart_scale rate, loss;
    int x, y, w, h;
};

static double rates_x(const struct rates_frame *f, double rate)
{
    return f->x + f->w * chart_place(&f->rate, rate);
}

static double rates_y(const struct rates_frame *f, double loss)
{
    return f->y + f->h * (1 - chart_place(&f->loss, loss));
}

/* The losses that are shown: beyond twice the range from the lowest to the first one, a diverging
 * loss would leave no room for the others. */
static struct rates_frame rates_frame(const struct rates *r)
{
    double least = NAN, first = NAN, most;
    struct rates_frame f = {.x = 64, .y = 48, .w = RATES_WIDE - 84, .h = RATES_HIGH - 100};

    for (int i = 0; i < r->n; i++) {
        least = fmin(least, r->point[i].smoothed);
        first = isnan(first) ? r->point[i].smoothed : first;
    }
    most = isnan(least) ? 1 : first + fmax(first - least, 1e-3 * fabs(first) + 1e-9);
    f.loss = chart_scale(isnan(least) ? 0 : least, most, 5, 0);
    f.rate = chart_scale(r->point[0].rate, r->point[r->n - 1].rate, 7, 1);
    return f;
}

static void rates_put_axes(const struct rates_frame *f, struct buf *out)
{
    char text[32];

    for (int i = 0; i < f->loss.n_ticks; i++) {
        chart_text(text, sizeof text, f->loss.tick[i]);
        buf_printf(out,
                   "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text class=\"soft\" "
                   "text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                   f->x, rates_y(f, f->loss.tick[i]), f->w, f->x - 6,
                   rates_y(f, f->loss.tick[i]) + 4, text);
    }
    for (int i = 0; i < f->rate.n_ticks; i++) {
        chart_text(text, sizeof text, f->rate.tick[i]);
        buf_printf(out,
                   "<path class=\"axis\" d=\"M%.1f %dv4\"/><text class=\"soft\" "
                   "text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                   rates_x(f, f->rate.tick[i]), f->y + f->h, rates_x(f, f->rate.tick[i]),
                   f->y + f->h + 17, text);
    }
    buf_printf(out,
               "<path class=\"axis\" d=\"M%d %dh%d\"/><text class=\"soft\" "
               "text-anchor=\"middle\" x=\"%d\" y=\"%d\">learning rate</text>\n",
               f->x, f->y + f->h, f->w, f->x + f->w / 2, f->y + f->h + 36);
}

static void rates_put_line(const struct rates *r, const struct rates_frame *f, int is_smoothed,
                           struct buf *out)
{
    int is_gap = 1;

    buf_printf(out, "<path class=\"line %s\" d=\"", is_smoothed ? "one" : "two");
    for (int i = 0; i < r->n; i++) {
        const double v = is_smoothed ? r->point[i].smoothed : r->point[i].loss;

        if (!isnan(v))
            buf_printf(out, "%c%.1f %.1f", is_gap ? 'M' : 'L', rates_x(f, r->point[i].rate),
                       rates_y(f, v));
        is_gap = isnan(v);
    }
    buf_printf(out, "\"/>\n");
}

void rates_put_svg(const struct rates *r, const char *name, struct buf *out)
{
    struct rates_frame f;

    if (r->n < 2)
        return;
    f = rates_frame(r);
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
               "viewBox=\"0 0 %d %d\">\n%s<rect class=\"back\" width=\"100%%\" "
               "height=\"100%%\"/>\n<text class=\"name\" x=\"%d\" y=\"28\">",
               RATES_WIDE, RATES_HIGH, RATES_WIDE, RATES_HIGH, curves_style, f.x);
    curves_escape(out, name);
    buf_printf(out, ": loss by learning rate</text>\n");
    rates_put_axes(&f, out);
    rates_put_line(r, &f, 0, out);
    rates_put_line(r, &f, 1, out);
    if (r->steepest > 0)
        buf_printf(out,
                   "<path class=\"lost\" d=\"M%.1f %dv%d\"/><text x=\"%.1f\" y=\"%d\">%.2g, where "
                   "the loss falls most</text>\n",
                   rates_x(&f, r->steepest), f.y, f.h, rates_x(&f, r->steepest) + 6, f.y + 12,
                   r->steepest);
    buf_printf(out, "</svg>\n");
}
