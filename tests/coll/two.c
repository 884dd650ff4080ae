/* two - two ranks in threads of this process, and sockets that connect to the port of rank 0. */
#include "two.h"

#include "../test.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "coll/tcp.h"

enum { LONG_MS = 100000 };

/* ---- a clock that jumps ---- */

/* The linker puts these in the place of clock_mono_ns. */
int64_t __real_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void);

_Atomic int64_t two_ahead_ns;

int64_t __wrap_clock_mono_ns(void) { return __real_clock_mono_ns() + two_ahead_ns; }

/* ---- two ranks ---- */

void two_prepare_with(struct two *w, uint16_t port0, const struct coll_tcp_options *o)
{
    struct err err;

    memset(w, 0, sizeof *w);
    for (int r = 0; r < 2; r++) {
        struct coll_tcp_options own = *o;

        own.rank = r;
        own.size = 2;
        own.bind = r == 0 ? o->bind : NULL;
        if (coll_tcp_prepare(&own, &w->c[r], &err) < 0)
            fail_msg("%s", err.msg);
        coll_tcp_endpoint(w->c[r], &w->blobs[r]);
    }
    if (port0)
        two_set_port(w, port0);
    proof_key((const void *[]){w->blobs[0].data, w->blobs[1].data},
              (size_t[]){w->blobs[0].len, w->blobs[1].len}, 2, w->key);
}

void two_prepare_as(struct two *w, uint16_t port0, enum coll_encrypt encrypt)
{
    two_prepare_with(w, port0, &(struct coll_tcp_options){.encrypt = encrypt});
}

void two_prepare(struct two *w, uint16_t port0) { two_prepare_as(w, port0, COLL_ENCRYPT_OFF); }

uint16_t two_port(const struct two *w)
{
    return (uint16_t)(w->blobs[0].data[14] << 8 | w->blobs[0].data[15]);
}

void two_set_port(struct two *w, uint16_t port)
{
    w->blobs[0].data[14] = (uint8_t)(port >> 8);
    w->blobs[0].data[15] = (uint8_t)port;
}

void two_free(struct two *w)
{
    for (int r = 0; r < 2; r++) {
        coll_free(w->c[r]);
        buf_fini(&w->blobs[r]);
    }
}

int two_connect_within(struct two *w, int rank, int64_t deadline_ms, struct err *err)
{
    const struct buf *b = w->blobs;

    return coll_tcp_connect(w->c[rank], (const void *[]){b[0].data, b[1].data},
                            (size_t[]){b[0].len, b[1].len}, deadline_ms, err);
}

void *two_connect(void *arg)
{
    struct side *s = arg;

    s->rc = two_connect_within(s->two, s->rank, LONG_MS, &s->err);
    return NULL;
}

void *two_sum(void *arg)
{
    struct side *s = arg;
    int64_t t;

    s->sum = (float)(s->rank + 1);
    t = coll_allreduce(s->two->c[s->rank], COLL_BULK, &s->sum, 1, DTYPE_F32, 0, &s->err);
    s->rc = t < 0 ? (int)t : coll_wait(s->two->c[s->rank], t, &s->err);
    return NULL;
}

void two_start(struct side *s, struct two *w, int rank, void *(*what)(void *))
{
    *s = (struct side){.two = w, .rank = rank};
    assert_int_equal(pthread_create(&s->thread, NULL, what, s), 0);
}

void two_both(struct two *w, void *(*what)(void *))
{
    struct side s[2];

    for (int r = 0; r < 2; r++)
        two_start(&s[r], w, r, what);
    for (int r = 0; r < 2; r++)
        pthread_join(s[r].thread, NULL);
    for (int r = 0; r < 2; r++)
        if (s[r].rc < 0)
            fail_msg("rank %d: %s", r, s[r].err.msg);
    if (what == two_sum)
        assert_true(s[0].sum == 3 && s[1].sum == 3);
}

int64_t two_n_strangers(const struct two *w)
{
    struct coll_stats s;

    coll_stats(w->c[0], &s);
    return s.n_strangers;
}

void two_wait_for_strangers(const struct two *w, int64_t n)
{
    const int64_t t0 = clock_mono_ns();

    while (two_n_strangers(w) < n && clock_since_s(t0) < 60)
        sched_yield();
    assert_int_equal(two_n_strangers(w), n);
}

int stranger_socket(void) { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

void stranger_connect(int s, uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    assert_int_equal(connect(s, (const struct sockaddr *)&to, sizeof to), 0);
}

int stranger_new(uint16_t port)
{
    const int s = stranger_socket();

    stranger_connect(s, port);
    return s;
}

void stranger_say(int s, const void *bytes, size_t n)
{
    (void)!send(s, bytes, n, MSG_NOSIGNAL); /* it may be closed already */
}

struct proof stranger_hello(int s, const uint8_t key[PROOF_KEY], struct proof_link link)
{
    uint8_t hello[PROOF_HELLO];
    struct proof p;
    struct err err;

    assert_int_equal(proof_dial(&p, key, link, hello, &err), 0);
    stranger_say(s, hello, sizeof hello);
    return p;
}
