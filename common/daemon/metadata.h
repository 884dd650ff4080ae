/* metadata - asks the metadata service of the cloud that this machine belongs to, whether the cloud
 * takes it back.
 *
 * The names of the machine's maker (DMI) tell the cloud; on other machines nothing is asked.  The
 * service answers at 169.254.169.254, without a proxy.  HTTP is libcurl's, which is loaded here, by
 * its soname, and which other machines need not have.
 *
 * Life:    metadata_find, metadata_open -> metadata_ask ... -> metadata_close.
 * Threads: one at a time. */
#ifndef DAEMON_METADATA_H
#define DAEMON_METADATA_H

#include "base/err.h"
#include "session/notice.h"

/* A folder that is read in place of /sys/class/dmi/id, for a container where that is elsewhere. */
#define METADATA_VARIABLE "DPTRAIN_DMI"

enum metadata_cloud { METADATA_NONE, METADATA_AWS, METADATA_GCP, METADATA_AZURE };

struct metadata; /* opaque */

/* dmi: that folder; NULL: METADATA_VARIABLE's, or /sys/class/dmi/id. */
enum metadata_cloud metadata_find(const char *dmi);
const char *metadata_name(enum metadata_cloud cloud); /* "aws", ... */

/* cloud: not METADATA_NONE.  ERR_UNSUPPORTED: libcurl cannot be loaded. */
int metadata_open(enum metadata_cloud cloud, struct metadata **out, struct err *err);
void metadata_close(struct metadata *m); /* NULL is fine */

/* Takes up to some seconds, or less once stop_fd is readable.  1: *out is the notice.  0: none.
 * ERR_IO, ERR_PROTO: the service does not answer, or not as it should. */
int metadata_ask(struct metadata *m, int stop_fd, struct notice *out, struct err *err);

#endif
