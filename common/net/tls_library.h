/* tls_library - the part of OpenSSL that tls.c needs: the context, a BIO, and the text of errors.
 *
 * Threads: the loop's. */
#ifndef NET_TLS_LIBRARY_H
#define NET_TLS_LIBRARY_H

#include <openssl/ssl.h>

#include "net/tls_key.h"

struct tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *bio;
    struct tls_key key[TLS_MAX_SECRETS];
    int n_keys;
    enum tls_role role;
    const struct tls_texts *texts;
    struct tls_turn {
        int key;      /* a follower's next connection offers this one */
        int n_failed; /* so many keys before it were refused since one was accepted */
    } * turn;
};

/* An SSL object that reads t->in and writes t->out.  NULL: OpenSSL could not make one. */
SSL *tls_library_ssl(struct tls *t);

/* Fill *err with the reason why the last SSL call on t failed; returns its code. */
int tls_library_explain(const struct tls *t, struct err *err);

#endif
