/* secret - the key that the daemons of one cluster, one user or one job share, in a file.
 *
 * The file is one line of text:  dptrain-secret-1 <64 hex digits>\n
 * The word is the format's version, the digits are 32 random bytes.
 *
 * Threads: any.
 * Errors:  ERR_ARG the file (missing, mode, owner, content), with the remedy; ERR_IO. */
#ifndef NET_SECRET_H
#define NET_SECRET_H

#include <stdint.h>

#include "base/err.h"

enum { SECRET_BYTES = 32 };

struct secret {
    uint8_t key[SECRET_BYTES];
};

/* Make a new secret in the file `path`, mode 0600.  An existing file is never touched. */
int secret_make(const char *path, struct err *err);

/* Read a secret.  The file must be a regular file of this process's user that no other user may
 * read or write, and must hold one secret and nothing else.  In $CREDENTIALS_DIRECTORY, which
 * systemd guards, it may belong to root and be readable to its group.  The caller wipes *out when
 * done (secret_wipe); after a failure it is wiped already. */
int secret_read(const char *path, struct secret *out, struct err *err);

/* Read the secret in `path`, a file of secret_read's kind.  If there is none, make it: of several
 * processes that do so at once, all get the same secret.  ERR_IO: it cannot be made. */
int secret_share(const char *path, struct secret *out, struct err *err);

/* Make a secret that no other process knows, in a file without a name.  *fd, which the caller
 * closes, is closed on exec; a child that keeps it open finds the file at the path of
 * secret_descriptor_path.  Nobody can write the file any more. */
int secret_make_nameless(struct secret *out, int *fd, struct err *err);

enum { SECRET_PATH = 32 };

void secret_descriptor_path(int fd, char out[SECRET_PATH]);
int secret_is_descriptor(const char *path); /* 1: the path is one of these */

void secret_wipe(struct secret *s);

#endif
