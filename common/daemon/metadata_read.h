/* metadata_read - what the answers of the clouds' metadata services say about this machine's end.
 *
 * Formats: AWS "Spot Instance interruption notices"; Google Cloud "Preemptible VM instances" and
 * "host maintenance events"; Azure "Scheduled Events", 2020-07-01.
 *
 * Threads: any; pure.
 * Errors:  1: *out is the notice.  0: the machine stays.  ERR_PROTO: no such answer. */
#ifndef DAEMON_METADATA_READ_H
#define DAEMON_METADATA_READ_H

#include <stddef.h>

#include "base/err.h"
#include "session/notice.h"

/* Each: text [n] is the body; now_s is the time of day, in seconds since 1970. */

/* spot/instance-action: {"action": "terminate", "time": "2026-11-29T20:00:00Z"}. */
int metadata_read_aws(const char *text, size_t n, int64_t now_s, struct notice *out,
                      struct err *err);

/* instance/preempted: TRUE or FALSE; instance/maintenance-event: NONE or what happens.  A machine
 * that moves while it runs stays. */
int metadata_read_gcp(const char *text, size_t n, struct notice *out, struct err *err);

/* scheduledevents: a list of events of this machine and others; vm is this machine's name there.  A
 * pause (Freeze) is no end. */
int metadata_read_azure(const char *text, size_t n, const char *vm, int64_t now_s,
                        struct notice *out, struct err *err);

#endif
