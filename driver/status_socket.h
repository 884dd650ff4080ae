/* status_socket - RUN_DIR/status.sock, where `dpdriver --status` gets the live table.
 *
 * Only this user may connect (mode 0600).  Whoever does is sent one JSON object and the end:
 * of report/status.h (status_put_both).  Nothing is read from it.  A client that does not
 * read is closed after a while and holds nobody up; more than a few at once are turned away.
 *
 * The path may be longer than an address can hold: it is reached through the folder's descriptor.
 * What a killed driver left is replaced: who has claimed the run directory is its only driver.
 *
 * Life:    status_socket_open -> ... -> status_socket_close; freed when the loop has closed it.
 * Threads: the loop's.
 * Errors:  ERR_IO (a file system without sockets, ...): the job can go on without. */
#ifndef DRIVER_STATUS_SOCKET_H
#define DRIVER_STATUS_SOCKET_H

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    STATUS_CLIENTS = 16,      /* at once */
    STATUS_PATIENCE_MS = 5000 /* for one to read what it was sent */
};

struct status_socket;

/* `describe` appends what a client is sent. */
int status_socket_open(uv_loop_t *loop, const char *run_dir,
                       void (*describe)(void *arg, struct buf *out), void *arg,
                       struct status_socket **out, struct err *err);
void status_socket_close(struct status_socket *s); /* and remove it from the folder; NULL is fine */

/* ---- the other end ---- */

enum { STATUS_NOBODY = 1 };

/* What the driver of `run_dir` sends, appended to *out.  STATUS_NOBODY: none is running there.
 * ERR_TIMEOUT: it does not answer; ERR_IO. */
int status_socket_ask(const char *run_dir, struct buf *out, struct err *err);

#endif
