/* signing - SHA-256 of files, and signatures (Ed25519) by keys in PEM files, as the program openssl
 * makes and checks them.
 *
 * Life:    signing_open_private / signing_open_public -> sign, check ... -> signing_key_free.
 * Threads: any; a key is used by one at a time.
 * Errors:  ERR_CONFIG for a key that is none, which names the file and what is wanted; ERR_IO.  A
 *          key itself is never shown. */
#ifndef NET_SIGNING_H
#define NET_SIGNING_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SIGNING_BYTES = 64, SIGNING_SHA256 = 65 }; /* a signature; 64 hex digits and NUL */

struct signing_key; /* opaque */

/* The private key in this file, which others than its owner must not be able to read. */
int signing_open_private(const char *path, struct signing_key **out, struct err *err);
int signing_open_public(const char *path, struct signing_key **out, struct err *err);
void signing_key_free(struct signing_key *k); /* NULL is fine */

/* Sign n_bytes with a private key. */
int signing_sign(struct signing_key *k, const void *data, size_t n_bytes,
                 uint8_t out[SIGNING_BYTES], struct err *err);
/* 1: the n_signature bytes are the signature of `data` by the owner of this key. */
int signing_is_valid(struct signing_key *k, const void *data, size_t n_bytes,
                     const uint8_t *signature, size_t n_signature);

/* SHA-256 as `sha256sum` prints it, in lower case. */
int signing_hash_file(const char *path, char out[SIGNING_SHA256], struct err *err);

#endif
