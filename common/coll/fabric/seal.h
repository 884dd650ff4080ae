/* coll/fabric/seal - the keys and marks of messages between two ranks over a fabric.
 *
 * A fabric has no connections, so each message proves by itself who sent it: AES-128-GCM over its
 * head and its bytes.  Each direction of each channel has a key of its own.  It comes from the key
 * of the formation (coll/proof.h) and a secret of the two ranks (X25519), whose halves are new in
 * each formation.  So recorded traffic stays unreadable even if the formation's key becomes known.
 *
 * Head, big-endian:  0 from u16   2 kind u8   3 zero   4 ack u32   8 number u64
 * The kind and the number are the nonce, so no two messages of a direction may have both alike.
 *
 * Threads: one at a time for each struct seal; the rest any.
 * Errors:  ERR_DEVICE: OpenSSL fails; ERR_PROTO: the peer's half is none. */
#ifndef COLL_FABRIC_SEAL_H
#define COLL_FABRIC_SEAL_H

#include <openssl/types.h>

#include "coll/coll.h"
#include "coll/proof.h"

enum { SEAL_PUBLIC = 32, SEAL_HEAD = 16, SEAL_MARK = 16, SEAL_KEY = 16 };

struct seal; /* opaque: one direction */

/* This rank's half of its secrets, and its public side. */
int seal_own_new(EVP_PKEY **out, uint8_t public_half[SEAL_PUBLIC], struct err *err);

/* The key of messages from rank link.from to rank link.to on its channel, between the rank of `own`
 * and the one of `peer`.  The link's mode counts, too. */
int seal_key(EVP_PKEY *own, const uint8_t peer[SEAL_PUBLIC], const uint8_t formation[PROOF_KEY],
             struct proof_link link, uint8_t out[SEAL_KEY], struct err *err);

/* is_opener: for messages that arrive.  hides: the bytes are encrypted, too. */
int seal_new(const uint8_t key[SEAL_KEY], int is_opener, int hides, struct seal **out,
             struct err *err);
void seal_free(struct seal *s); /* NULL is fine */

/* Mark a message; encrypts n bytes at data in place, if the seal hides. */
void seal_close(struct seal *s, const uint8_t head[SEAL_HEAD], uint8_t *data, size_t n,
                uint8_t mark[SEAL_MARK]);

/* 1: the message is as it was closed; data are decrypted.  0: it is not, and data are undefined. */
int seal_open(struct seal *s, const uint8_t head[SEAL_HEAD], uint8_t *data, size_t n,
              const uint8_t mark[SEAL_MARK]);

#endif
