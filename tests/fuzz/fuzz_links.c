/* Fuzz target: the input's first byte chooses what the rest is to a rank's data port or its peers:
 * what a stranger sends, what answers instead of a rank, a hello or an answer whose mac is right,
 * so that its fields are looked at, what a rank sends after the whole proof, or an endpoint blob.
 * No input becomes a link but a plain one after the proof. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "coll/endpoint.h"
#include "coll/shake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SELF = 2, SIZE = 4 };

static const struct shake_terms terms = {
    .rank = SELF, .size = SIZE, .has_key = 1, .mode = PROOF_PLAIN, .key = "the fuzzer's key"};

static const struct endpoint_addr nowhere = {.family = 4};

static int run(struct shake *s, const struct shake_terms *t)
{
    struct err err = {0};
    int outcome;

    do
        outcome = shake_step(s, t, &err);
    while (outcome == SHAKE_PENDING);
    ASSERT(outcome >= 0 || err.msg[0]);
    return outcome;
}

/* All the bytes come, then the end. */
static int accept_bytes(const uint8_t *data, size_t size)
{
    struct shake *s;
    int fds[2], outcome;

    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    (void)!send(fds[1], data, size, MSG_NOSIGNAL);
    shutdown(fds[1], SHUT_WR);
    s = shake_accept(fds[0], &nowhere);
    outcome = run(s, &terms);
    shake_free(s);
    close(fds[1]);
    return outcome;
}

static void as_stranger(const uint8_t *data, size_t size)
{
    const int outcome = accept_bytes(data, size);

    ASSERT(outcome == (size < PROOF_HELLO ? SHAKE_CLOSED : SHAKE_STRANGER));
}

/* The header and nonce are the input's; a right mac is added. */
static void as_rank(const uint8_t *data, size_t size)
{
    enum { LABEL = 32, MARKED = PROOF_HEADER + PROOF_NONCE };
    uint8_t text[LABEL + MARKED] = "dptrain link: hello", hello[PROOF_HELLO] = {0};
    unsigned len = PROOF_MAC;
    struct proof p;
    struct err err;
    int rc;

    memcpy(hello, data, size < MARKED ? size : MARKED);
    memcpy(text + LABEL, hello, MARKED);
    ASSERT(HMAC(EVP_sha256(), terms.key, PROOF_KEY, text, sizeof text, hello + MARKED, &len));
    rc = proof_read_hello(&p, terms.key, SELF, SIZE, PROOF_PLAIN, hello, &err);
    if (rc != PROOF_STRANGER)
        ASSERT(p.link.from > SELF && p.link.from < SIZE && p.link.to == SELF &&
               (int)p.link.channel >= 0 && p.link.channel < COLL_CHANNELS);
    rc = accept_bytes(hello, sizeof hello);
    ASSERT(rc == SHAKE_CLOSED || rc == SHAKE_STRANGER || rc == ERR_PROTO);
}

static void as_answer(const uint8_t *data, size_t size)
{
    const struct proof_link link = {SELF, 0, COLL_BULK, PROOF_PLAIN};
    uint8_t hello[PROOF_HELLO], answer[PROOF_ANSWER] = {0};
    struct proof p;
    struct err err;

    ASSERT(proof_dial(&p, terms.key, link, hello, &err) == 0);
    memcpy(answer, data, size < sizeof answer ? size : sizeof answer);
    ASSERT(proof_read_answer(&p, answer, &err) == PROOF_STRANGER);
    ASSERT(proof_read_answer(&p, hello, &err) == PROOF_STRANGER);
}

/* The answer of the rank that was dialled, whose header the input changes; the mac is right. */
static void as_right_answer(const uint8_t *data, size_t size)
{
    enum { LABEL = 32, MARKED = PROOF_HEADER + PROOF_NONCE };
    const struct proof_link link = {SELF, 0, COLL_BULK, PROOF_PLAIN};
    uint8_t text[LABEL + PROOF_HELLO + MARKED] = "dptrain link: answer", answer[PROOF_ANSWER];
    unsigned len = PROOF_MAC;
    struct proof p, other;
    struct err err = {0};
    int rc;

    ASSERT(proof_dial(&p, terms.key, link, text + LABEL, &err) == 0);
    other = p;
    ASSERT(proof_answer(&other, answer, &err) == 0);
    for (size_t i = 0; i < size && i < PROOF_HEADER; i++)
        answer[i] ^= data[i];
    memcpy(text + LABEL + PROOF_HELLO, answer, MARKED);
    ASSERT(HMAC(EVP_sha256(), terms.key, PROOF_KEY, text, sizeof text, answer + MARKED, &len));
    rc = proof_read_answer(&p, answer, &err);
    ASSERT(rc == PROOF_STRANGER || (rc == ERR_PROTO && err.msg[0]) ||
           (rc == 0 && !memcmp(answer, other.said + PROOF_HELLO, PROOF_HEADER)));
}

/* Send what a rank with the key sends for a link of this mode, and then the bytes. */
static void prove(int fd, struct shake *s, const struct shake_terms *t, const uint8_t *data,
                  size_t size)
{
    const struct proof_link link = {SELF + 1, SELF, COLL_BULK, t->mode};
    uint8_t hello[PROOF_HELLO], answer[PROOF_ANSWER], fresh[PROOF_FRESH];
    struct proof p;
    struct err err;

    ASSERT(proof_dial(&p, t->key, link, hello, &err) == 0);
    ASSERT(send(fd, hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
    ASSERT(shake_step(s, t, &err) == SHAKE_PENDING);
    ASSERT(recv(fd, answer, sizeof answer, 0) == sizeof answer);
    ASSERT(proof_read_answer(&p, answer, &err) == 0);
    proof_fresh(&p, fresh);
    ASSERT(send(fd, fresh, sizeof fresh, MSG_NOSIGNAL) == sizeof fresh);
    (void)!send(fd, data, size, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
}

/* The input's first byte says how the link is: plain, encrypted, or by memory of one machine. */
static void as_member(const uint8_t *data, size_t size)
{
    static struct cipher *cipher;
    struct shake_terms t = terms;
    struct shake *s;
    struct err err;
    int fds[2], outcome, is_near;

    if (size == 0)
        return;
    if (!cipher)
        ASSERT(cipher_new(&cipher, &err) == 0);
    t.cipher = cipher;
    t.mode = data[0] & 1 ? PROOF_TLS : PROOF_PLAIN;
    is_near = data[0] & 2;
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    s = shake_accept(fds[0], is_near ? NULL : &nowhere);
    prove(fds[1], s, &t, data + 1, size - 1);
    outcome = run(s, &t);
    if (is_near) /* a byte of 0 says that there is no memory: the socket is the link */
        ASSERT((outcome == SHAKE_DONE) == (size > 1 && data[1] == 0));
    else
        ASSERT((outcome == SHAKE_DONE) == (t.mode == PROOF_PLAIN));
    shake_free(s);
    close(fds[1]);
}

static void as_endpoint(const uint8_t *data, size_t size)
{
    struct endpoint e;
    struct buf again = {0};
    struct err err;

    if (endpoint_parse(data, size, &e, &err) < 0)
        return;
    ASSERT(e.rank >= 0 && e.rank < e.size && e.size <= COLL_TCP_MAX_RANKS);
    endpoint_pack(&e, &again);
    ASSERT(endpoint_parse(again.data, again.len, &e, &err) == 0);
    buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ways[])(const uint8_t *data, size_t size) = {
        as_stranger, as_rank, as_answer, as_endpoint, as_right_answer, as_member};

    if (size > 0)
        ways[data[0] % ARRAY_LEN(ways)](data + 1, size - 1);
    return 0;
}
