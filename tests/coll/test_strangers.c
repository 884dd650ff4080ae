/* coll/tcp: connections to a rank's port that are no rank's, at every moment of a formation's life.
 * They take nobody's place, fail no collective, and are counted. */
#include "../test.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/link.h"
#include "coll/proof.h"
#include "coll/tcp.h"

enum { LONG_MS = 100000, FLOOD = 1000 };

/* ---- a clock that jumps ---- */

/* The linker puts these in the place of clock_mono_ns. */
int64_t __real_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void);

static _Atomic int64_t ahead_ns;

int64_t __wrap_clock_mono_ns(void) { return __real_clock_mono_ns() + ahead_ns; }

/* ---- two ranks ---- */

struct two {
    struct coll *c[2];
    struct buf blobs[2];
    uint8_t key[PROOF_KEY];
};

/* port0: what rank 0's blob says instead of its own port; 0: its own. */
static void prepare_two_as(struct two *w, uint16_t port0, enum coll_encrypt encrypt)
{
    struct err err;

    memset(w, 0, sizeof *w);
    for (int r = 0; r < 2; r++) {
        const struct coll_tcp_options o = {.rank = r, .size = 2, .encrypt = encrypt};

        if (coll_tcp_prepare(&o, &w->c[r], &err) < 0)
            fail_msg("%s", err.msg);
        coll_tcp_endpoint(w->c[r], &w->blobs[r]);
    }
    if (port0) {
        w->blobs[0].data[14] = (uint8_t)(port0 >> 8);
        w->blobs[0].data[15] = (uint8_t)port0;
    }
    proof_key((const void *[]){w->blobs[0].data, w->blobs[1].data},
              (size_t[]){w->blobs[0].len, w->blobs[1].len}, 2, w->key);
}

static void prepare_two(struct two *w, uint16_t port0)
{
    prepare_two_as(w, port0, COLL_ENCRYPT_OFF);
}

static uint16_t port_in_blob(const struct two *w)
{
    return (uint16_t)(w->blobs[0].data[14] << 8 | w->blobs[0].data[15]);
}

static void free_two(struct two *w)
{
    for (int r = 0; r < 2; r++) {
        coll_free(w->c[r]);
        buf_fini(&w->blobs[r]);
    }
}

struct side {
    struct two *two;
    int rank, rc;
    float sum;
    struct err err;
    pthread_t thread;
};

static void *connect_side(void *arg)
{
    struct side *s = arg;
    const struct buf *b = s->two->blobs;

    s->rc = coll_tcp_connect(s->two->c[s->rank], (const void *[]){b[0].data, b[1].data},
                             (size_t[]){b[0].len, b[1].len}, LONG_MS, &s->err);
    return NULL;
}

static void *sum_side(void *arg)
{
    struct side *s = arg;
    int64_t t;

    s->sum = (float)(s->rank + 1);
    t = coll_allreduce(s->two->c[s->rank], COLL_BULK, &s->sum, 1, DTYPE_F32, 0, &s->err);
    s->rc = t < 0 ? (int)t : coll_wait(s->two->c[s->rank], t, &s->err);
    return NULL;
}

static void start(struct side *s, struct two *w, int rank, void *(*what)(void *))
{
    *s = (struct side){.two = w, .rank = rank};
    assert_int_equal(pthread_create(&s->thread, NULL, what, s), 0);
}

static void both(struct two *w, void *(*what)(void *))
{
    struct side s[2];

    for (int r = 0; r < 2; r++)
        start(&s[r], w, r, what);
    for (int r = 0; r < 2; r++)
        pthread_join(s[r].thread, NULL);
    for (int r = 0; r < 2; r++)
        if (s[r].rc < 0)
            fail_msg("rank %d: %s", r, s[r].err.msg);
    if (what == sum_side)
        assert_true(s[0].sum == 3 && s[1].sum == 3);
}

static int64_t n_strangers(const struct two *w)
{
    struct coll_stats s;

    coll_stats(w->c[0], &s);
    return s.n_strangers;
}

/* Rank 0 notices a stranger's end a moment later. */
static void wait_for_strangers(const struct two *w, int64_t n)
{
    const int64_t t0 = clock_mono_ns();

    while (n_strangers(w) < n && clock_since_s(t0) < 60)
        sched_yield();
    assert_int_equal(n_strangers(w), n);
}

/* ---- strangers ---- */

static int new_socket(void) { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

static void connect_to(int s, uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    assert_int_equal(connect(s, (const struct sockaddr *)&to, sizeof to), 0);
}

static int stranger(uint16_t port)
{
    const int s = new_socket();

    connect_to(s, port);
    return s;
}

static void say(int s, const void *bytes, size_t n)
{
    (void)!send(s, bytes, n, MSG_NOSIGNAL); /* it may be closed already */
}

static void silent(int s, const struct two *w) { (void)s, (void)w; }

static void http(int s, const struct two *w)
{
    static const char words[] = "GET / HTTP/1.1\r\nHost: rank-0\r\nUser-Agent: a scanner that "
                                "looks at every port\r\nAccept: */*\r\n\r\n";

    (void)w;
    say(s, words, sizeof words - 1);
}

static void garbage(int s, const struct two *w)
{
    uint8_t bytes[70000];

    (void)w;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i >> 3);
    say(s, bytes, sizeof bytes);
}

/* A header of Gloo's messages, whose offset and length add up to a small number and made that
 * library write out of bounds. */
static void old_header(int s, const struct two *w)
{
    static const uint64_t header[6] = {48 + 8208, 0, 0, 8208, (uint64_t)0 - 8192, 0};
    uint8_t rest[8208] = {0};

    (void)w;
    say(s, header, sizeof header);
    say(s, rest, sizeof rest);
}

static void slow(int s, const struct two *w)
{
    (void)w;
    for (int i = 0; i < 79; i++)
        say(s, &"dpL1"[i % 4], 1);
}

static struct proof say_hello(int s, const uint8_t key[PROOF_KEY], struct proof_link link)
{
    uint8_t hello[PROOF_HELLO];
    struct proof p;
    struct err err;

    assert_int_equal(proof_dial(&p, key, link, hello, &err), 0);
    say(s, hello, sizeof hello);
    return p;
}

static void wrong_key(int s, const struct two *w)
{
    uint8_t key[PROOF_KEY];

    memcpy(key, w->key, sizeof key);
    key[31] ^= 1;
    say_hello(s, key, (struct proof_link){1, 0, COLL_BULK, PROOF_PLAIN});
}

static void wrong_from(int s, const struct two *w)
{
    say_hello(s, w->key, (struct proof_link){2, 0, COLL_BULK, PROOF_PLAIN});
}

static void from_itself(int s, const struct two *w)
{
    say_hello(s, w->key, (struct proof_link){0, 0, COLL_BULK, PROOF_PLAIN});
}

static void wrong_to(int s, const struct two *w)
{
    say_hello(s, w->key, (struct proof_link){1, 1, COLL_BULK, PROOF_PLAIN});
}

static void wrong_channel(int s, const struct two *w)
{
    say_hello(s, w->key, (struct proof_link){1, 0, COLL_CHANNELS, PROOF_PLAIN});
}

/* The hello is right, as if it were repeated from a recording; what comes then is not. */
static void no_fresh_proof(int s, const struct two *w)
{
    uint8_t zeros[PROOF_FRESH] = {0};

    say_hello(s, w->key, (struct proof_link){1, 0, COLL_BULK, PROOF_PLAIN});
    say(s, zeros, sizeof zeros);
}

static void (*const attacks[])(int s, const struct two *w) = {
    silent,     http,        garbage,  old_header,    slow,          wrong_key,
    wrong_from, from_itself, wrong_to, wrong_channel, no_fresh_proof};

enum { N_ATTACKS = ARRAY_LEN(attacks) };

/* Every kind of stranger comes; each closes. */
static void attack(const struct two *w, uint16_t port)
{
    for (size_t i = 0; i < N_ATTACKS; i++) {
        const int s = stranger(port);

        attacks[i](s, w);
        close(s);
    }
}

/* Before the key is known, while rank 0 waits for rank 1, and when all are connected. */
static void test_every_moment(void **state)
{
    struct two w;
    struct side zero, one;

    (void)state;
    prepare_two(&w, 0);
    attack(&w, port_in_blob(&w));
    start(&zero, &w, 0, connect_side);
    wait_for_strangers(&w, N_ATTACKS);
    attack(&w, port_in_blob(&w));
    wait_for_strangers(&w, 2 * N_ATTACKS);
    start(&one, &w, 1, connect_side);
    pthread_join(zero.thread, NULL);
    pthread_join(one.thread, NULL);
    assert_int_equal(zero.rc, 0);
    assert_int_equal(one.rc, 0);
    for (int i = 0; i < 3; i++) {
        attack(&w, port_in_blob(&w));
        both(&w, sum_side);
    }
    wait_for_strangers(&w, 5 * N_ATTACKS);
    both(&w, sum_side);
    free_two(&w);
}

/* Strangers that neither speak nor close: more of them than there are places. */
static void test_flood(void **state)
{
    static int held[FLOOD];
    struct two w;

    (void)state;
    prepare_two(&w, 0);
    for (int i = 0; i < FLOOD; i++)
        held[i] = stranger(port_in_blob(&w));
    both(&w, connect_side);
    both(&w, sum_side);
    wait_for_strangers(&w, FLOOD); /* the last ones by the time that a hello may take */
    for (int i = 0; i < FLOOD; i++) {
        char byte;

        assert_true(recv(held[i], &byte, 1, 0) <= 0);
        close(held[i]);
    }
    both(&w, sum_side);
    free_two(&w);
}

/* ---- no descriptors ---- */

/* From now on no descriptor can be opened.  Returns the limit that was. */
static struct rlimit take_descriptors(void)
{
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the lowest free number */
    struct rlimit before, none;

    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

static void give_descriptors(struct rlimit before)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* A rank that cannot open a socket says so, and does not blame the rank that it dials. */
static void test_no_socket(void **state)
{
    struct rlimit before;
    struct side one;
    struct two w;

    (void)state;
    prepare_two(&w, 0);
    before = take_descriptors();
    start(&one, &w, 1, connect_side);
    pthread_join(one.thread, NULL);
    give_descriptors(before);
    assert_int_equal(one.rc, ERR_NOMEM);
    assert_non_null(strstr(one.err.msg, "connecting with rank 0: opening a socket: "));
    free_two(&w);
}

/* A hello is read also if a crowd is accepted in the same moment.  While there are no descriptors
 * rank 0 accepts nothing, so the crowd and the hello before it wait together. */
static void test_hello_before_crowd(void **state)
{
    enum { CROWD = 300 }; /* more than there are places */
    static int crowd[CROWD];
    uint8_t answer[PROOF_ANSWER];
    struct rlimit before;
    struct side zero, one;
    struct two w;
    int s;

    (void)state;
    prepare_two(&w, 0);
    start(&zero, &w, 0, connect_side);
    s = stranger(port_in_blob(&w));
    wrong_key(s, &w);
    wait_for_strangers(&w, 1); /* so rank 0 knows the key */
    close(s);
    s = new_socket();
    for (int i = 0; i < CROWD; i++)
        crowd[i] = new_socket();
    before = take_descriptors();
    connect_to(s, port_in_blob(&w));
    say_hello(s, w.key, (struct proof_link){1, 0, COLL_BULK, PROOF_PLAIN});
    for (int i = 0; i < CROWD; i++)
        connect_to(crowd[i], port_in_blob(&w));
    give_descriptors(before);
    assert_int_equal(recv(s, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    close(s);
    start(&one, &w, 1, connect_side);
    pthread_join(zero.thread, NULL);
    pthread_join(one.thread, NULL);
    assert_int_equal(zero.rc, 0);
    assert_int_equal(one.rc, 0);
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
    both(&w, sum_side);
    free_two(&w);
}

/* ---- between the ranks ---- */

static int listen_here(uint16_t *port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sa;
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(s, 16), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&sa, &len), 0);
    *port = ntohs(sa.sin_port);
    return s;
}

/* A process at rank 0's address sends rank 1's own hello back. */
static void test_reflected(void **state)
{
    uint8_t hello[PROOF_HELLO];
    struct side one;
    struct two w;
    uint16_t port;
    const int listener = listen_here(&port);
    int s;

    (void)state;
    prepare_two(&w, port);
    start(&one, &w, 1, connect_side);
    s = accept(listener, NULL, NULL);
    assert_int_equal(recv(s, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    say(s, hello, sizeof hello);
    pthread_join(one.thread, NULL);
    assert_int_equal(one.rc, ERR_PEER);
    assert_non_null(strstr(one.err.msg, "rank 0 cannot be reached at 127.0.0.1:"));
    assert_non_null(strstr(one.err.msg, "does not belong to this formation"));
    close(s);
    close(listener);
    free_two(&w);
}

static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER; /* of all wires */

/* Passes bytes on until one side ends, and keeps them. */
struct wire {
    int in, out;
    struct buf seen;
    size_t flip_at; /* one bit of this byte is changed; 0: none is */
    pthread_t thread;
};

static void *wire_main(void *arg)
{
    struct wire *w = arg;
    uint8_t bytes[4096];
    ssize_t n;

    while ((n = recv(w->in, bytes, sizeof bytes, 0)) > 0) {
        const size_t at = w->seen.len;

        pthread_mutex_lock(&seen_lock);
        buf_append(&w->seen, bytes, (size_t)n);
        pthread_mutex_unlock(&seen_lock);
        if (w->flip_at >= at && w->flip_at < at + (size_t)n && w->flip_at)
            bytes[w->flip_at - at] ^= 4;
        say(w->out, bytes, (size_t)n);
    }
    shutdown(w->out, SHUT_RDWR);
    return NULL;
}

/* Two ranks, connected through wires: those of even number carry what rank 1 sends. */
struct tapped {
    struct two two;
    int listener;
    uint16_t real; /* rank 0's own port */
    struct wire wires[2 * COLL_CHANNELS];
};

static void tap(struct tapped *t, enum coll_encrypt encrypt, size_t flip_at)
{
    struct side s[2];
    struct buf blob = {0};
    uint16_t port;

    memset(t, 0, sizeof *t);
    t->listener = listen_here(&port);
    prepare_two_as(&t->two, port, encrypt);
    coll_tcp_endpoint(t->two.c[0], &blob);
    t->real = (uint16_t)(blob.data[14] << 8 | blob.data[15]);
    buf_fini(&blob);
    for (int r = 0; r < 2; r++)
        start(&s[r], &t->two, r, connect_side);
    for (size_t i = 0; i < ARRAY_LEN(t->wires); i += 2) {
        t->wires[i].in = t->wires[i + 1].out = accept(t->listener, NULL, NULL);
        t->wires[i].out = t->wires[i + 1].in = stranger(t->real);
        for (size_t k = i; k < i + 2; k++) {
            t->wires[k].flip_at = flip_at;
            pthread_create(&t->wires[k].thread, NULL, wire_main, &t->wires[k]);
        }
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(s[r].thread, NULL);
        if (s[r].rc < 0)
            fail_msg("rank %d: %s", r, s[r].err.msg);
    }
}

static void untap(struct tapped *t)
{
    free_two(&t->two);
    for (size_t i = 0; i < ARRAY_LEN(t->wires); i++)
        pthread_join(t->wires[i].thread, NULL);
    for (size_t i = 0; i < ARRAY_LEN(t->wires); i++) {
        if (i % 2 == 0) {
            close(t->wires[i].in);
            close(t->wires[i].out);
        }
        buf_fini(&t->wires[i].seen);
    }
    close(t->listener);
}

/* Somebody between the ranks records a hello and repeats it, while the ranks are connected. */
static void test_replayed(void **state)
{
    uint8_t said[PROOF_HELLO + PROOF_FRESH], answer[PROOF_ANSWER];
    struct tapped t;

    (void)state;
    tap(&t, COLL_ENCRYPT_OFF, 0);
    for (size_t i = 0; i < ARRAY_LEN(t.wires); i += 2) {
        const int again = stranger(t.real);

        pthread_mutex_lock(&seen_lock);
        memcpy(said, t.wires[i].seen.data, sizeof said);
        pthread_mutex_unlock(&seen_lock);
        say(again, said, PROOF_HELLO);
        assert_int_equal(recv(again, answer, sizeof answer, MSG_WAITALL), sizeof answer);
        say(again, said + PROOF_HELLO, PROOF_FRESH);
        assert_true(recv(again, answer, 1, 0) <= 0);
        close(again);
    }
    wait_for_strangers(&t.two, COLL_CHANNELS);
    both(&t.two, sum_side);
    untap(&t);
}

/* ---- encryption ---- */

enum { N_KNOWN = 50000 };

/* Rank 1's parameters, so to say. */
static void *give_known(void *arg)
{
    static float x[2][N_KNOWN];
    struct side *s = arg;
    float *mine = x[s->rank];

    for (int i = 0; i < N_KNOWN; i++)
        mine[i] = s->rank == 1 ? (float)i * 0.37f : 0;
    s->rc = coll_broadcast(s->two->c[s->rank], mine, sizeof x[0], 1, &s->err);
    for (int i = 0; i < N_KNOWN && s->rc == 0; i++)
        if (mine[i] != (float)i * 0.37f)
            s->rc = err_set(&s->err, ERR_CORRUPT, "element %d", i);
    return NULL;
}

static bool wires_show(const struct tapped *t, const void *what, size_t n)
{
    bool found = false;

    pthread_mutex_lock(&seen_lock);
    for (size_t i = 0; i < ARRAY_LEN(t->wires); i++)
        found |= memmem(t->wires[i].seen.data, t->wires[i].seen.len, what, n) != NULL;
    pthread_mutex_unlock(&seen_lock);
    return found;
}

static void test_no_plaintext(void **state)
{
    static const float known[] = {1000 * 0.37f, 1001 * 0.37f, 1002 * 0.37f};
    struct tapped t;

    (void)state;
    tap(&t, COLL_ENCRYPT_OFF, 0);
    assert_string_equal(coll_tcp_protection(t.two.c[0]), "plain");
    both(&t.two, give_known);
    assert_true(wires_show(&t, known, sizeof known)); /* so the search finds what is there */
    untap(&t);
    tap(&t, COLL_ENCRYPT_ON, 0);
    assert_non_null(strstr(coll_tcp_protection(t.two.c[1]), "TLS by"));
    both(&t.two, give_known);
    assert_false(wires_show(&t, known, sizeof known));
    untap(&t);
}

/* A bit that changes on its way breaks the link; nothing wrong arrives. */
static void test_changed_on_the_way(void **state)
{
    struct side s[2];
    struct tapped t;

    (void)state;
    tap(&t, COLL_ENCRYPT_ON, 100000);
    for (int r = 0; r < 2; r++)
        start(&s[r], &t.two, r, give_known);
    pthread_join(s[0].thread, NULL);
    assert_int_equal(s[0].rc, ERR_PEER);
    assert_non_null(strstr(s[0].err.msg, "lost rank 1 (TLS: "));
    pthread_join(s[1].thread, NULL); /* rank 1 may have succeeded: its bytes had left */
    untap(&t);
}

/* More bytes than one key may encrypt. */
static void *give_much(void *arg)
{
    enum { EACH = 64 << 20, TIMES = LINK_KEY_BYTES / EACH + 2 };
    struct side *s = arg;
    uint8_t *x = calloc(1, EACH);

    for (int i = 1; i <= TIMES && s->rc == 0; i++) {
        if (s->rank == 1)
            memset(x, i, EACH);
        s->rc = coll_broadcast(s->two->c[s->rank], x, EACH, 1, &s->err);
        for (size_t k = 0; k < EACH && s->rc == 0; k += 4099)
            if (x[k] != (uint8_t)i)
                s->rc = err_set(&s->err, ERR_CORRUPT, "byte %zu of turn %d", k, i);
    }
    free(x);
    return NULL;
}

static void test_keys_change(void **state)
{
    struct two w;

    (void)state;
    prepare_two_as(&w, 0, COLL_ENCRYPT_ON);
    both(&w, connect_side);
    both(&w, give_much);
    both(&w, sum_side);
    free_two(&w);
}

/* A rank that has proven the key, and then is silent, is named. */
static void test_late_handshake(void **state)
{
    enum { A_MINUTE_MS = 60000 };
    uint8_t answer[PROOF_ANSWER], fresh[PROOF_FRESH];
    struct proof p;
    struct side zero;
    struct two w;
    struct err err;
    int s;

    (void)state;
    prepare_two_as(&w, 0, COLL_ENCRYPT_ON);
    start(&zero, &w, 0, connect_side);
    s = stranger(port_in_blob(&w));
    p = say_hello(s, w.key, (struct proof_link){1, 0, COLL_BULK, PROOF_TLS});
    assert_int_equal(recv(s, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_int_equal(proof_read_answer(&p, answer, &err), 0);
    proof_fresh(&p, fresh);
    say(s, fresh, sizeof fresh);
    ahead_ns += A_MINUTE_MS * INT64_C(1000000);
    pthread_join(zero.thread, NULL);
    assert_int_equal(zero.rc, ERR_PEER);
    assert_non_null(strstr(zero.err.msg, "with rank 1: TLS handshake: not complete after 60 s"));
    assert_int_equal(n_strangers(&w), 0);
    close(s);
    free_two(&w);
}

/* Ranks that want different links both say so, and do not wait. */
static void test_modes_differ(void **state)
{
    struct side s[2];
    struct two plain, tls, mixed;

    (void)state;
    prepare_two_as(&plain, 0, COLL_ENCRYPT_OFF);
    prepare_two_as(&tls, 0, COLL_ENCRYPT_ON);
    mixed = plain;
    mixed.c[1] = tls.c[1];
    mixed.blobs[1] = tls.blobs[1];
    for (int r = 0; r < 2; r++)
        start(&s[r], &mixed, r, connect_side);
    for (int r = 0; r < 2; r++) {
        pthread_join(s[r].thread, NULL);
        assert_int_equal(s[r].rc, ERR_PROTO);
        assert_non_null(strstr(s[r].err.msg, r ? "rank 0 wants plain links, this rank encrypted"
                                               : "rank 1 wants encrypted links, this rank plain"));
    }
    free_two(&plain);
    free_two(&tls);
}

/* Loopback alone needs no encryption, unless it is asked for. */
static void test_remote_only(void **state)
{
    struct two w;

    (void)state;
    prepare_two_as(&w, 0, COLL_ENCRYPT_REMOTE);
    both(&w, connect_side);
    assert_string_equal(coll_tcp_protection(w.c[0]), "plain");
    free_two(&w);
}

/* The key differs from formation to formation, and with every byte of every blob. */
static void test_key(void **state)
{
    struct two a, b;
    uint8_t other[PROOF_KEY];

    (void)state;
    prepare_two(&a, 0);
    prepare_two(&b, 0);
    assert_memory_not_equal(a.key, b.key, PROOF_KEY);
    for (size_t i = 0; i < a.blobs[1].len; i++) {
        a.blobs[1].data[i] ^= 1;
        proof_key((const void *[]){a.blobs[0].data, a.blobs[1].data},
                  (size_t[]){a.blobs[0].len, a.blobs[1].len}, 2, other);
        assert_memory_not_equal(a.key, other, PROOF_KEY);
        a.blobs[1].data[i] ^= 1;
    }
    free_two(&a);
    free_two(&b);
}

/* ---- the messages alone ---- */

static const struct proof_link some_link = {3, 1, COLL_URGENT, PROOF_PLAIN};

struct exchange {
    struct proof dialer, acceptor;
    uint8_t hello[PROOF_HELLO], answer[PROOF_ANSWER], fresh[PROOF_FRESH];
};

static void run_exchange(struct exchange *x, const uint8_t key[PROOF_KEY])
{
    struct err err;

    assert_int_equal(proof_dial(&x->dialer, key, some_link, x->hello, &err), 0);
    assert_int_equal(proof_read_hello(&x->acceptor, key, 1, 4, PROOF_PLAIN, x->hello, &err), 0);
    assert_int_equal(proof_answer(&x->acceptor, x->answer, &err), 0);
    assert_int_equal(proof_read_answer(&x->dialer, x->answer, &err), 0);
    proof_fresh(&x->dialer, x->fresh);
}

static void test_proof(void **state)
{
    static const uint8_t key[PROOF_KEY] = "a key";
    struct exchange x, y;
    uint8_t a[PROOF_KEY], b[PROOF_KEY];

    (void)state;
    run_exchange(&x, key);
    assert_int_equal(proof_read_fresh(&x.acceptor, x.fresh), 0);
    assert_int_equal(x.acceptor.link.from, 3);
    assert_int_equal(x.acceptor.link.channel, COLL_URGENT);
    proof_link_key(&x.dialer, a);
    proof_link_key(&x.acceptor, b);
    assert_memory_equal(a, b, PROOF_KEY);
    run_exchange(&y, key);
    proof_link_key(&y.dialer, b);
    assert_memory_not_equal(a, b, PROOF_KEY);
    assert_int_equal(proof_read_fresh(&y.acceptor, x.fresh), PROOF_STRANGER);
}

/* Every bit of every message counts. */
static void test_flipped_bits(void **state)
{
    static const uint8_t key[PROOF_KEY] = "a key";
    struct exchange x;
    struct proof p;
    struct err err;

    (void)state;
    run_exchange(&x, key);
    for (int bit = 0; bit < 8 * PROOF_HELLO; bit++) {
        const uint8_t mask = (uint8_t)(1 << bit % 8);

        x.hello[bit / 8] ^= mask;
        assert_int_equal(proof_read_hello(&p, key, 1, 4, PROOF_PLAIN, x.hello, &err),
                         PROOF_STRANGER);
        x.hello[bit / 8] ^= mask;
        p = x.dialer;
        x.answer[bit / 8] ^= mask;
        assert_int_equal(proof_read_answer(&p, x.answer, &err), PROOF_STRANGER);
        x.answer[bit / 8] ^= mask;
        if (bit >= 8 * PROOF_FRESH)
            continue;
        x.fresh[bit / 8] ^= mask;
        assert_int_equal(proof_read_fresh(&x.acceptor, x.fresh), PROOF_STRANGER);
        x.fresh[bit / 8] ^= mask;
    }
}

/* A right mac does not make a link that no rank may ask for. */
static void test_wrong_links(void **state)
{
    static const uint8_t key[PROOF_KEY] = "a key";
    static const struct proof_link links[] = {
        {1, 1, COLL_BULK, PROOF_PLAIN},     {0, 1, COLL_BULK, PROOF_PLAIN},
        {4, 1, COLL_BULK, PROOF_PLAIN},     {3, 2, COLL_BULK, PROOF_PLAIN},
        {3, 1, COLL_CHANNELS, PROOF_PLAIN},
    };
    uint8_t hello[PROOF_HELLO];
    struct proof p;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        assert_int_equal(proof_dial(&p, key, links[i], hello, &err), 0);
        assert_int_equal(proof_read_hello(&p, key, 1, 4, PROOF_PLAIN, hello, &err), PROOF_STRANGER);
    }
}

/* Ranks that differ in what they were told name that, on both sides. */
static void test_other_mode(void **state)
{
    static const uint8_t key[PROOF_KEY] = "a key";
    struct proof dialer, acceptor;
    uint8_t hello[PROOF_HELLO], answer[PROOF_ANSWER];
    struct err err;

    (void)state;
    assert_int_equal(proof_dial(&dialer, key, some_link, hello, &err), 0);
    assert_int_equal(proof_read_hello(&acceptor, key, 1, 4, PROOF_TLS, hello, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "rank 3 wants plain links, this rank encrypted ones"));
    assert_int_equal(proof_answer(&acceptor, answer, &err), 0);
    assert_int_equal(proof_read_answer(&dialer, answer, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "rank 1 wants encrypted links, this rank plain ones"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proof),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_other_mode),
        cmocka_unit_test(test_wrong_links),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_every_moment),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_no_socket),
        cmocka_unit_test(test_hello_before_crowd),
        cmocka_unit_test(test_reflected),
        cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_no_plaintext),
        cmocka_unit_test(test_changed_on_the_way),
        cmocka_unit_test(test_keys_change),
        cmocka_unit_test(test_late_handshake),
        cmocka_unit_test(test_modes_differ),
        cmocka_unit_test(test_remote_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
