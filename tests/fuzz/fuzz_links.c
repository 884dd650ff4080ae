/* Fuzz target: the input's first byte chooses what the rest is to a rank's data port or its peers:
 * what a stranger sends, what answers instead of a rank, a hello whose mac is right, so that its
 * fields are looked at, or an endpoint blob.  No input becomes a link. */
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
    .rank = SELF, .size = SIZE, .has_key = true, .mode = PROOF_PLAIN, .key = "the fuzzer's key"};

/* All the bytes come, then the end. */
static int accept_bytes(const uint8_t *data, size_t size)
{
    const struct endpoint_addr nowhere = {.family = 4};
    struct shake *s;
    struct err err;
    int fds[2], outcome;

    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    (void)!send(fds[1], data, size, MSG_NOSIGNAL);
    shutdown(fds[1], SHUT_WR);
    s = shake_accept(fds[0], &nowhere);
    do
        outcome = shake_step(s, &terms, &err);
    while (outcome == SHAKE_PENDING);
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
    static void (*const ways[])(const uint8_t *data, size_t size) = {as_stranger, as_rank,
                                                                     as_answer, as_endpoint};

    if (size > 0)
        ways[data[0] % ARRAY_LEN(ways)](data + 1, size - 1);
    return 0;
}
