/* coll/proof - how two ranks prove to each other that they belong to one formation.
 *
 * The key is a SHA-256 over the endpoint blobs of all ranks in rank order.  Three messages of fixed
 * size, where the dialer is the rank that connects:
 *
 *   hello   dialer -> acceptor   header[16]  nonce[32]  mac[32]
 *   answer  acceptor -> dialer   header[16]  nonce[32]  mac[32]
 *   fresh   dialer -> acceptor   mac[32]
 *
 * Header, big-endian:   0 "dpL1"        4 version u16   6 from u16   8 to u16
 *                      10 channel u8   11 mode u8      12 four zeros
 *
 * Each mac is HMAC-SHA256 with the key, over a label of its own and over all bytes before it, of
 * all messages.  The labels differ, so no message can be sent back as another.  The answer covers
 * the dialer's nonce and `fresh` covers the acceptor's, so nothing that was recorded earlier is
 * valid again: a repeated hello gets an answer, but no link.
 *
 * Life:    dialer    proof_dial -> proof_read_answer -> proof_fresh -> proof_link_key
 *          acceptor  proof_read_hello -> proof_answer -> proof_read_fresh -> proof_link_key
 * Threads: any; the functions have no state but *p.
 * Errors:  0: the peer's bytes are right so far.  PROOF_STRANGER: they do not prove the key, and
 *          *err is not set.  ERR_PROTO: the peer has the key, but wants another mode; *err says so.
 */
#ifndef COLL_PROOF_H
#define COLL_PROOF_H

#include "coll/coll.h"

enum {
    PROOF_KEY = 32,
    PROOF_NONCE = 32,
    PROOF_MAC = 32,
    PROOF_HEADER = 16,
    PROOF_HELLO = PROOF_HEADER + PROOF_NONCE + PROOF_MAC,
    PROOF_ANSWER = PROOF_HELLO,
    PROOF_FRESH = PROOF_MAC,
    PROOF_STRANGER = 1,
};

enum proof_mode { PROOF_PLAIN, PROOF_TLS };

/* The link that is wanted. */
struct proof_link {
    int from, to; /* ranks; `from` dials */
    enum coll_channel channel;
    enum proof_mode mode;
};

struct proof {
    uint8_t key[PROOF_KEY];
    struct proof_link link;
    uint8_t said[PROOF_HELLO + PROOF_ANSWER]; /* the hello, and then the answer */
};

/* The key of the formation whose ranks have these blobs. */
void proof_key(const void *const *blobs, const size_t *lens, int n, uint8_t out[PROOF_KEY]);

/* Write the hello, or the answer.  Fail with ERR_IO: no random numbers. */
int proof_dial(struct proof *p, const uint8_t key[PROOF_KEY], struct proof_link link,
               uint8_t hello[PROOF_HELLO], struct err *err);
int proof_answer(struct proof *p, uint8_t answer[PROOF_ANSWER], struct err *err);

/* Check a hello.  `self` is the rank that reads it, of `size` ranks; `mode` is the mode that `self`
 * wants.  Fills p->link. */
int proof_read_hello(struct proof *p, const uint8_t key[PROOF_KEY], int self, int size,
                     enum proof_mode mode, const uint8_t hello[PROOF_HELLO], struct err *err);
int proof_read_answer(struct proof *p, const uint8_t answer[PROOF_ANSWER], struct err *err);
void proof_fresh(const struct proof *p, uint8_t fresh[PROOF_FRESH]);
int proof_read_fresh(const struct proof *p, const uint8_t fresh[PROOF_FRESH]);

/* A key for this one connection, which only the two sides know.  TLS uses it (coll/cipher.h). */
void proof_link_key(const struct proof *p, uint8_t out[PROOF_KEY]);

/* Overwrite all that is secret in *p. */
void proof_wipe(struct proof *p);

#endif
