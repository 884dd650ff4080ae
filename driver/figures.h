/* figures - prints what an evaluation tells beside loss and accuracy (judge/judge.h) for people.
 *
 * Threads: the driver's loop. */
#ifndef DRIVER_FIGURES_H
#define DRIVER_FIGURES_H

#include <jansson.h>

#include "base/buf.h"

/* Append tables: of classes or labels, of confusions, or of outputs that are numbers.  Of more than
 * 20 classes these are the ones with the lowest F1, and the largest confusions. */
void figures_print(const json_t *figures, struct buf *out);

#endif
