/* curves_impl - what curves.c and compare.c draw with: a panel's axes, and lines in it.
 *
 * Threads: any. */
#ifndef SEE_CURVES_IMPL_H
#define SEE_CURVES_IMPL_H

#include "base/buf.h"
#include "see/chart.h"
#include "see/history.h"

/* In pixels. */
enum {
    CURVES_PANEL_W = 470,
    CURVES_PANEL_H = 236,
    CURVES_LEFT = 62, /* of a panel's axes to its border */
    CURVES_RIGHT = 14,
    CURVES_ABOVE = 30,
    CURVES_BELOW = 34,
    CURVES_PLOT_W = CURVES_PANEL_W - CURVES_LEFT - CURVES_RIGHT,
    CURVES_PLOT_H = CURVES_PANEL_H - CURVES_ABOVE - CURVES_BELOW,
};

/* Where a panel is, and its two axes. */
struct curves_at {
    int x, y; /* of the axes' corner above left */
    struct chart_scale steps, values;
    double factor; /* of what is shown to what is known */
};

/* The classes of all that is drawn, as an element <style>.  Viewers that know no variables of CSS
 * show the light form. */
extern const char curves_style[];

/* Append text of the user's, for XML. */
void curves_escape(struct buf *out, const char *text);

void curves_axes(struct buf *out, const struct curves_at *at, const char *title);

/* From each point to the next; a point without a finite number is a gap.  `class` is one of CSS. */
void curves_line(struct buf *out, const struct curves_at *at, const struct history_line *line,
                 const char *class);

/* Points that are few, or stand alone between gaps, are dots, too. */
void curves_dots(struct buf *out, const struct curves_at *at, const struct history_line *line,
                 const char *class);

/* A mark at its step.  class: one of CSS; NULL: that of its kind.  who: begins its title, which is
 * shown where the pointer is; NULL: nobody. */
void curves_mark(struct buf *out, const struct curves_at *at, const struct history *h,
                 const struct history_mark *m, const char *class, const char *who);

#endif
