/* drawing - has the disk's thread draw a run: curves.svg after epochs and at the end, and the plot
 * that stands behind the closing table on a terminal.
 *
 * A picture takes longer, the longer the run is.  So an epoch is left out if less than a hundred
 * times the last picture's time has passed since it; the end is never left out.
 *
 * Life:    drawing_new -> drawing_epoch ... -> drawing_end, once -> drawing_free, once the writer
 *          has done all tasks.
 * Threads: one at a time.
 * Errors:  a picture that cannot be written is left out, and the log says so once.  Nothing is
 *          drawn while another driver owns the run directory (ckpt/owner.h). */
#ifndef DRIVER_DRAWING_H
#define DRIVER_DRAWING_H

#include "base/writer.h"

struct drawing; /* opaque */

/* fd: where the plot will be shown. */
struct drawing *drawing_new(const char *run_dir, struct writer *disk, int fd);
void drawing_free(struct drawing *d); /* NULL is fine */

/* The events and rows of an epoch have been put to the writer. */
void drawing_epoch(struct drawing *d);

/* The last events and rows have been put, too. */
void drawing_end(struct drawing *d);

/* The plot's lines, once the writer has been flushed; "" if there is none. */
const char *drawing_plot(struct drawing *d);

#endif
