/* two - two ranks of coll/tcp in this process, for the tests that connect them by hand, connect to
 * the port of one of them, or stand between them.
 *
 * Link such a test with --wrap=clock_mono_ns: its clock runs two_ahead_ns before the real one. */
#ifndef TESTS_COLL_TWO_H
#define TESTS_COLL_TWO_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "coll/coll.h"
#include "coll/proof.h"
#include "coll/tcp.h"

extern _Atomic int64_t two_ahead_ns;

struct two {
    struct coll *c[2];
    struct buf blobs[2];
    uint8_t key[PROOF_KEY];
};

/* Listen, but do not connect yet.  o: of both ranks, except that rank 1 does not bind; its rank and
 * size are not read.  port0: what rank 0's blob says instead of its own port; 0: its own. */
void two_prepare_with(struct two *w, uint16_t port0, const struct coll_tcp_options *o);
void two_prepare_as(struct two *w, uint16_t port0, enum coll_encrypt encrypt);
void two_prepare(struct two *w, uint16_t port0); /* not encrypted */
void two_free(struct two *w);

uint16_t two_port(const struct two *w); /* rank 0's, as its blob says */
void two_set_port(struct two *w, uint16_t port);

/* coll_tcp_connect with the blobs of w. */
int two_connect_within(struct two *w, int rank, int64_t deadline_ms, struct err *err);

/* The work of one rank, on a thread of its own. */
struct side {
    struct two *two;
    int rank, rc;
    float sum;
    struct err err;
    pthread_t thread;
};

void *two_connect(void *arg); /* takes a struct side; its deadline is never reached */
void *two_sum(void *arg);     /* likewise: both ranks then hold 3 */

void two_start(struct side *s, struct two *w, int rank, void *(*what)(void *));
void two_both(struct two *w, void *(*what)(void *)); /* fails the test if one of them fails */

/* The strangers that rank 0 has counted.  It notices the end of one a moment later. */
int64_t two_n_strangers(const struct two *w);
void two_wait_for_strangers(const struct two *w, int64_t n);

/* A connection to this port of the machine.  Bytes may not arrive, because the rank may have closed
 * the connection already. */
int stranger_new(uint16_t port);
int stranger_socket(void); /* not connected yet */
void stranger_connect(int s, uint16_t port);
void stranger_say(int s, const void *bytes, size_t n);
struct proof stranger_hello(int s, const uint8_t key[PROOF_KEY], struct proof_link link);

#endif
