/* coll/tcp: a process between two ranks, which reads, repeats and changes what they send.  It is
 * noticed; and where links are encrypted, it reads nothing. */
#include "../test.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "coll/link.h"
#include "two.h"

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
    two_prepare(&w, port);
    two_start(&one, &w, 1, two_connect);
    s = accept(listener, NULL, NULL);
    assert_int_equal(recv(s, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    stranger_say(s, hello, sizeof hello);
    pthread_join(one.thread, NULL);
    assert_int_equal(one.rc, ERR_PEER);
    assert_non_null(strstr(one.err.msg, "rank 0 cannot be reached at 127.0.0.1:"));
    assert_non_null(strstr(one.err.msg, "does not belong to this formation"));
    close(s);
    close(listener);
    two_free(&w);
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
        stranger_say(w->out, bytes, (size_t)n);
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
    two_prepare_as(&t->two, port, encrypt);
    coll_tcp_endpoint(t->two.c[0], &blob);
    t->real = (uint16_t)(blob.data[14] << 8 | blob.data[15]);
    buf_fini(&blob);
    for (int r = 0; r < 2; r++)
        two_start(&s[r], &t->two, r, two_connect);
    for (size_t i = 0; i < ARRAY_LEN(t->wires); i += 2) {
        t->wires[i].in = t->wires[i + 1].out = accept(t->listener, NULL, NULL);
        t->wires[i].out = t->wires[i + 1].in = stranger_new(t->real);
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
    two_free(&t->two);
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
        const int again = stranger_new(t.real);

        pthread_mutex_lock(&seen_lock);
        memcpy(said, t.wires[i].seen.data, sizeof said);
        pthread_mutex_unlock(&seen_lock);
        stranger_say(again, said, PROOF_HELLO);
        assert_int_equal(recv(again, answer, sizeof answer, MSG_WAITALL), sizeof answer);
        stranger_say(again, said + PROOF_HELLO, PROOF_FRESH);
        assert_true(recv(again, answer, 1, 0) <= 0);
        close(again);
    }
    two_wait_for_strangers(&t.two, COLL_CHANNELS);
    two_both(&t.two, two_sum);
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

static int wires_show(const struct tapped *t, const void *what, size_t n)
{
    int found = 0;

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
    two_both(&t.two, give_known);
    assert_true(wires_show(&t, known, sizeof known)); /* so the search finds what is there */
    untap(&t);
    tap(&t, COLL_ENCRYPT_ON, 0);
    assert_non_null(strstr(coll_tcp_protection(t.two.c[1]), "TLS by"));
    two_both(&t.two, give_known);
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
        two_start(&s[r], &t.two, r, give_known);
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
    two_prepare_as(&w, 0, COLL_ENCRYPT_ON);
    two_both(&w, two_connect);
    two_both(&w, give_much);
    two_both(&w, two_sum);
    two_free(&w);
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
    two_prepare_as(&w, 0, COLL_ENCRYPT_ON);
    two_start(&zero, &w, 0, two_connect);
    s = stranger_new(two_port(&w));
    p = stranger_hello(s, w.key, (struct proof_link){1, 0, COLL_BULK, PROOF_TLS});
    assert_int_equal(recv(s, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_int_equal(proof_read_answer(&p, answer, &err), 0);
    proof_fresh(&p, fresh);
    stranger_say(s, fresh, sizeof fresh);
    two_ahead_ns += A_MINUTE_MS * INT64_C(1000000);
    pthread_join(zero.thread, NULL);
    assert_int_equal(zero.rc, ERR_PEER);
    assert_non_null(strstr(zero.err.msg, "with rank 1: TLS handshake: not complete after 60 s"));
    assert_int_equal(two_n_strangers(&w), 0);
    close(s);
    two_free(&w);
}

/* Ranks that want different links both say so, and do not wait. */
static void test_modes_differ(void **state)
{
    struct side s[2];
    struct two plain, tls, mixed;

    (void)state;
    two_prepare_as(&plain, 0, COLL_ENCRYPT_OFF);
    two_prepare_as(&tls, 0, COLL_ENCRYPT_ON);
    mixed = plain;
    mixed.c[1] = tls.c[1];
    mixed.blobs[1] = tls.blobs[1];
    for (int r = 0; r < 2; r++)
        two_start(&s[r], &mixed, r, two_connect);
    for (int r = 0; r < 2; r++) {
        pthread_join(s[r].thread, NULL);
        assert_int_equal(s[r].rc, ERR_PROTO);
        assert_non_null(strstr(s[r].err.msg, r ? "rank 0 wants plain links, this rank encrypted"
                                               : "rank 1 wants encrypted links, this rank plain"));
    }
    two_free(&plain);
    two_free(&tls);
}

/* Loopback alone needs no encryption, unless it is asked for. */
static void test_remote_only(void **state)
{
    struct two w;

    (void)state;
    two_prepare_as(&w, 0, COLL_ENCRYPT_REMOTE);
    two_both(&w, two_connect);
    assert_string_equal(coll_tcp_protection(w.c[0]), "plain");
    two_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reflected),    cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_no_plaintext), cmocka_unit_test(test_changed_on_the_way),
        cmocka_unit_test(test_keys_change),  cmocka_unit_test(test_late_handshake),
        cmocka_unit_test(test_modes_differ), cmocka_unit_test(test_remote_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
