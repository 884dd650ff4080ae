/* plot - a small plot of a run's loss for a terminal, in dots of Braille.
 *
 * Threads: any. */
#ifndef SEE_PLOT_H
#define SEE_PLOT_H

#include "base/buf.h"
#include "see/history.h"

/* Append the plot, lines of at most `columns` (40 to 120) characters: training loss in dots, and
 * the validations as "o".  Nothing, if there are fewer than three numbers.  is_utf8: 0: the
 * terminal knows ASCII alone, and dots are "*". */
void plot_loss(const struct history *h, int columns, int is_utf8, struct buf *out);

#endif
