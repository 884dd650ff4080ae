/* trust - the secrets that a daemon shares with its peers, and the TLS context made of them.
 *
 * They come from the first of these that there is:
 *   --secret-file      all of these files: the first, and others while a secret is being changed
 *   --insecure         none
 *   a --local driver   a secret of its own, which its followers get by an inherited descriptor:
 *                      their --secret-file is a path below /proc/self/fd
 *   this user's        $XDG_RUNTIME_DIR/dptrain-secret, made by the daemon that needs it first.
 *                      Without --secret-file and --insecure both sides are on this machine, so
 *                      they find the same file if they are of the same user.
 *
 * A secret that outlives the job gets into no core dump, and no debugger of the same user reads it:
 * the process is not dumpable once it holds one.  A --local job's own secret ends with the job, and
 * its processes can be debugged.
 *
 * Life:    trust_open -> trust_close, when the last connection is gone.
 * Threads: main's.
 * Errors:  ERR_ARG a file (net/secret.h), ERR_IO, ERR_DEVICE, with the remedy. */
#ifndef DAEMON_TRUST_H
#define DAEMON_TRUST_H

#include "daemon/args.h"
#include "net/tls.h"

struct trust {
    struct tls_context *tls; /* NULL: there is no secret */
    int is_local;            /* fd is the secret that a --local driver hands down */
    int fd;
    char why_not[256]; /* this user's secret cannot be used, and why; "" if it can, or need not */
};

struct trust_options {
    enum tls_role role;
    const struct arg_list *files;
    int insecure;
    int is_local;   /* a driver that starts its followers itself */
    int has_guests; /* ... and that may take in others of this user, too */
};

int trust_open(const struct trust_options *o, struct trust *out, struct err *err);
void trust_close(struct trust *t);

/* Fail as trust_open would if one of the files holds no secret. */
int trust_check_files(const struct arg_list *files, struct err *err);

#endif
