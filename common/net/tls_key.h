/* tls_key - all that is derived from one secret for the control plane.
 *
 * The secret itself is used for nothing but deriving: the key of the TLS handshake, the key that
 * names the first one, and the driver's own key (X25519).  A follower keeps only the public half of
 * the last: so a follower that is taken over cannot play the driver for others by what it holds.
 *
 *   name    "dptrain-3:" salt mac      16 bytes each; the salt is new in each connection and
 *           mac = HMAC(naming key, salt): strangers can neither tell which key it is nor that two
 *           connections use the same one
 *   proof   HMAC(agreed, value): 32 bytes, the first that a driver sends.  Both ends of this one
 *           TLS connection export the value.  Agreed is the X25519 of the driver's key and the
 *           follower's key of this handshake (RFC 8446 section 4.2.8): only the two that have the
 *           private halves can compute it.  A signature would cost the follower twice as much.
 *
 * Threads: any; a key is used by one at a time. */
#ifndef NET_TLS_KEY_H
#define NET_TLS_KEY_H

#include <openssl/ssl.h>

#include "net/tls.h"

enum { TLS_KEY_BYTES = 32 };

struct tls_key {
    SSL_SESSION *session; /* the key of the handshake, as OpenSSL wants it */
    EVP_PKEY *driver;     /* X25519; a follower has the public half */
    EVP_MAC_CTX *mac;     /* HMAC-SHA256, without a key */
    uint8_t naming[TLS_KEY_BYTES];
};

/* Returns 0, or -1: OpenSSL could not; *k must be ended in both cases. */
int tls_key_init(struct tls_key *k, SSL_CTX *ssl, const struct secret *s, enum tls_role role);
void tls_key_fini(struct tls_key *k); /* wipes it; all zero is fine */

/* Write a new name of the key to `out`; 0, or -1: no random bytes. */
int tls_key_name(const struct tls_key *k, uint8_t out[TLS_NAME]);

int tls_key_is_name(const uint8_t *name, size_t len); /* 1: of some key */
int tls_key_is_of_other_version(const uint8_t *name, size_t len);
int tls_key_is_named(const struct tls_key *k, const uint8_t name[TLS_NAME]);

int tls_key_prove(const struct tls_key *k, SSL *ssl, uint8_t out[TLS_PROOF]); /* 0, -1 */
int tls_key_is_proven(const struct tls_key *k, SSL *ssl, const uint8_t proof[TLS_PROOF]);

#endif
