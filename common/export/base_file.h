/* base_file - the file that the frozen base of a run was taken from, in which checkpoints of
 * model.base: bfloat16 or int8 find what they do not have themselves: float32 weights.
 *
 * Life:    base_file_open -> base_file_read ... -> base_file_close (NULL is fine).
 * Threads: one at a time. */
#ifndef EXPORT_BASE_FILE_H
#define EXPORT_BASE_FILE_H

#include "base/err.h"
#include "model/model.h"
#include "tensor/shape.h"

struct base_file; /* opaque */

/* Fails with ERR_CONFIG or as the readers of such files do: the file is not there any more. */
int base_file_open(const struct model_options *m, struct base_file **out, struct err *err);
void base_file_close(struct base_file *f);

/* Read the tensor of this name and shape as float32.  Fails with ERR_CONFIG if the file has none.
 */
int base_file_read(struct base_file *f, const char *name, const struct shape *shape, float *to,
                   struct err *err);

#endif
