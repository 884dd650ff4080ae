/* secret - the key that the daemons of one cluster share, in a file.
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

void secret_wipe(struct secret *s);

#endif
