/* status_socket - RUN_DIR/status.sock, where `dpdriver --status`, `--drain` and the other requests
 * reach a driver.
 *
 * Only this user may connect (mode 0600).  A client sends one line; it gets one JSON object, and
 * the connection is closed (driver/answer.h).  The line is bounded before it is read; bytes that
 * are no line are answered, too.  A client that does not send its line or read its answer is closed
 * after STATUS_PATIENCE_MS, and delays nothing.  At most STATUS_CLIENTS are served at once; others
 * are turned away.
 *
 * The path may be longer than a socket's address can hold, so it is reached through the folder's
 * descriptor.  A socket that a killed driver left is replaced, because the process that has claimed
 * the run directory is its only driver.
 *
 * Life:    status_socket_open -> ... -> status_socket_close; freed when the loop has closed it.
 * Threads: the loop's.
 * Errors:  ERR_IO (a file system without sockets, ...); the job can go on without this socket. */
#ifndef DRIVER_STATUS_SOCKET_H
#define DRIVER_STATUS_SOCKET_H

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    STATUS_CLIENTS = 16,       /* at once */
    STATUS_REQUEST = 300,      /* bytes in a line, without its end */
    STATUS_PATIENCE_MS = 5000, /* for a client to send its line, and again to read the answer */
};

struct status_socket;

struct status_client { /* the process that asks, as the kernel reports it; -1: not known */
    int64_t uid, pid;
};

/* `answer` appends the answer to a client's request.  `request` is printable ASCII; NULL: the
 * client sent something else. */
int status_socket_open(uv_loop_t *loop, const char *run_dir,
                       void (*answer)(void *arg, const struct status_client *who,
                                      const char *request, struct buf *out),
                       void *arg, struct status_socket **out, struct err *err);
void status_socket_close(struct status_socket *s); /* and remove it from the folder; NULL is fine */

/* ---- the other end ---- */

enum { STATUS_NOBODY = 1 };

/* Ask the driver of `run_dir` and append its answer to *out.  STATUS_NOBODY: no driver is running
 * there.  ERR_TIMEOUT: it does not answer; ERR_IO. */
int status_socket_ask(const char *run_dir, const char *request, struct buf *out, struct err *err);

/* 0: a driver is running there; else as status_socket_ask. */
int status_socket_find(const char *run_dir, struct err *err);

#endif
