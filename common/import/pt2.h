/* pt2 - reads the file that torch.export.save writes (.pt2).
 *
 * The file is a zip archive with the network as JSON of PyTorch's export schema, of which major
 * version 8 is read; fields that are not known here are ignored.  Pickles in the archive are never
 * read.  Graphs of no_grad blocks are inlined.  A buffer that a decomposed file changes by its
 * signature is changed by a last node "copy_.default".  Parameters that the network does not use
 * are among the tensors, too, because a state dict has them.
 *
 * The elements of constants and of small buffers are read (`bytes` of import/network.h); buffers
 * that batch norms update are not.  Those of parameters are left in the file: import/weights.h
 * reads them.
 *
 * Threads: any.
 * Errors:  ERR_IO (missing, unreadable), ERR_CONFIG (another kind of file, another version, what
 *          is not supported), ERR_CORRUPT (damaged), ERR_NOMEM; they begin with the path. */
#ifndef IMPORT_PT2_H
#define IMPORT_PT2_H

#include "import/network.h"
#include "import/zip.h"

int pt2_read(const char *path, struct import_network **out, struct err *err);
/* The same of an archive that is open. */
int pt2_parse(const struct zip *zip, struct import_network **out, struct err *err);
/* The tensors of its two tables alone, which takes a tenth of the time: no values and no nodes. */
int pt2_parse_state(const struct zip *zip, struct import_network **out, struct err *err);

#endif
