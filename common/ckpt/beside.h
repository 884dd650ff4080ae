/* beside - files that a generation has beside its own: those of the tokenizer, with which
 * transformers reads the checkpoint of a network that came from a folder.
 *
 * Threads: any.
 * Errors:  as ckpt/file.h. */
#ifndef CKPT_BESIDE_H
#define CKPT_BESIDE_H

#include "base/err.h"

int beside_is_name(const char *name); /* 1: such a file is called so */

/* Copy those that the folder `from` has into `folder`, which has none of them, and fsync it.  A
 * folder that is not there, as on another machine, has none.  One that cannot be copied is left
 * out, and the log tells it. */
int beside_copy(const char *from, const char *folder, struct err *err);

#endif
