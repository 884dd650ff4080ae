/* coll/cipher - TLS 1.3 on an established connection, with a key that both ends know already.
 *
 * Each connection has a key of its own (proof_link_key), so there are no certificates, tickets or
 * early data.  The exchange of ephemeral keys (psk_dhe_ke) keeps recorded traffic unreadable even
 * if the key becomes known later.  The kernel encrypts if it can (kernel TLS), else OpenSSL.
 *
 * Life:    cipher_new once.  For each connection: cipher_begin -> SSL_do_handshake until it is done
 *          -> cipher_end_handshake -> SSL_read, SSL_write, cipher_flush -> SSL_free.
 * Threads: several may use a struct cipher; an SSL object is used by one at a time. */
#ifndef COLL_CIPHER_H
#define COLL_CIPHER_H

#include <openssl/ssl.h>

#include "base/err.h"
#include "coll/proof.h"

struct cipher; /* opaque */

/* Fails with ERR_DEVICE: the library lacks something that is needed. */
int cipher_new(struct cipher **out, struct err *err);
void cipher_free(struct cipher *c); /* NULL is fine */

/* An SSL object on the socket fd, whose handshake has not begun.  The key is borrowed until
 * cipher_end_handshake or SSL_free.  Fails with ERR_NOMEM. */
int cipher_begin(const struct cipher *c, int fd, int is_server, uint8_t key[PROOF_KEY], SSL **out,
                 struct err *err);

/* Prepare for large transfers, once the handshake is done.  From now on SSL_write may keep records,
 * which cipher_flush sends. */
void cipher_end_handshake(SSL *ssl);

/* Send what SSL_write kept.  Returns as SSL_write does: 1, or -1 for SSL_get_error. */
int cipher_flush(SSL *ssl);

/* 1: the kernel encrypts what is sent. */
int cipher_is_kernel(const SSL *ssl);

/* The reason why the last call on an SSL object failed, from OpenSSL's queue, which it empties. */
const char *cipher_why(void);

#endif
