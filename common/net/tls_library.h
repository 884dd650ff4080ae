/* tls_library - what tls.c needs of OpenSSL: the context, the way to bytes, and what errors mean.
 *
 * Threads: the loop's. */
#ifndef NET_TLS_LIBRARY_H
#define NET_TLS_LIBRARY_H

#include <openssl/ssl.h>

#include "net/tls.h"

struct tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *bio;
    SSL_SESSION *session; /* the key, as OpenSSL wants it */
    enum tls_role role;
};

/* One that reads t->in and writes t->out.  NULL: OpenSSL could not. */
SSL *tls_library_ssl(struct tls *t);

/* Why the SSL call that has just failed on t did: fills *err, returns its code. */
int tls_library_explain(const struct tls *t, struct err *err);

#endif
