/* curves - curves.svg: loss, accuracy, learning rate, gradient norm and speed of a run over its
 * steps, with lost ranks, recoveries and checkpoints marked.
 *
 * The picture needs nothing but itself.  It has a light and a dark form, by the viewer's scheme
 * (prefers-color-scheme), and the light one in print.  Colours are those of Okabe and Ito, which
 * colour-blind people can tell apart (https://jfly.uni-koeln.de/color); lines differ in dashes,
 * too.
 *
 * Threads: any.
 * Errors:  ERR_IO; the picture that was there stays. */
#ifndef SEE_CURVES_H
#define SEE_CURVES_H

#include "base/buf.h"
#include "see/history.h"

/* Append the picture; `name` is the run's, any text. */
void curves_svg(const struct history *h, const char *name, struct buf *out);

/* Write curves.svg into the run's folder.  A run without a step has none yet: 0. */
int curves_save(const struct history *h, const char *run_dir, struct err *err);

#endif
