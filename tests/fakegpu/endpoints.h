/* endpoints - the folder in which the ranks of a formation leave their endpoints for each other.
 *
 * Threads: any.
 * Errors:  ERR_IO (a folder), ERR_TIMEOUT, those of coll_poll; a file that cannot be written is not
 *          there. */
#ifndef TESTS_FAKEGPU_ENDPOINTS_H
#define TESTS_FAKEGPU_ENDPOINTS_H

#include "base/buf.h"
#include "coll/device.h"

enum { ENDPOINT_BYTES = 256 }; /* at most */

/* Make a folder; its name, with NUL, becomes the id. */
int endpoints_make(uint8_t id[COLL_ID_BYTES], struct err *err);

void endpoints_write(const char *folder, int rank, const struct buf *endpoint);

/* Wait for the endpoints of all ranks of c, into blob[size] with their lengths len[size]. */
int endpoints_gather(const char *folder, struct coll *c, int64_t deadline_ms,
                     uint8_t blob[][ENDPOINT_BYTES], size_t *len, struct err *err);

void endpoints_remove(const char *folder, int n_ranks);

#endif
