/* coll/tcp: connections to a rank's port that are no rank's, at every moment of a formation's life.
 * They take nobody's place, fail no collective, and are counted. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "two.h"

enum { FLOOD = 1000 };

/* ---- what strangers do ---- */

static void silent(int s, const struct two *w) { (void)s, (void)w; }

static void http(int s, const struct two *w)
{
    static const char words[] = "GET / HTTP/1.1\r\nHost: rank-0\r\nUser-Agent: a scanner that "
                                "looks at every port\r\nAccept: */*\r\n\r\n";

    (void)w;
    stranger_say(s, words, sizeof words - 1);
}

static void garbage(int s, const struct two *w)
{
    uint8_t bytes[70000];

    (void)w;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i >> 3);
    stranger_say(s, bytes, sizeof bytes);
}

/* A header of Gloo's messages, whose offset and length add up to a small number and made that
 * library write out of bounds. */
static void old_header(int s, const struct two *w)
{
    static const uint64_t header[6] = {48 + 8208, 0, 0, 8208, (uint64_t)0 - 8192, 0};
    uint8_t rest[8208] = {0};

    (void)w;
    stranger_say(s, header, sizeof header);
    stranger_say(s, rest, sizeof rest);
}

static void slow(int s, const struct two *w)
{
    (void)w;
    for (int i = 0; i < 79; i++)
        stranger_say(s, &"dpL1"[i % 4], 1);
}

static void wrong_key(int s, const struct two *w)
{
    uint8_t key[PROOF_KEY];

    memcpy(key, w->key, sizeof key);
    key[31] ^= 1;
    stranger_hello(s, key, (struct proof_link){1, 0, COLL_BULK, PROOF_PLAIN});
}

static void wrong_from(int s, const struct two *w)
{
    stranger_hello(s, w->key, (struct proof_link){2, 0, COLL_BULK, PROOF_PLAIN});
}

static void from_itself(int s, const struct two *w)
{
    stranger_hello(s, w->key, (struct proof_link){0, 0, COLL_BULK, PROOF_PLAIN});
}

static void wrong_to(int s, const struct two *w)
{
    stranger_hello(s, w->key, (struct proof_link){1, 1, COLL_BULK, PROOF_PLAIN});
}

static void wrong_channel(int s, const struct two *w)
{
    stranger_hello(s, w->key, (struct proof_link){1, 0, COLL_CHANNELS, PROOF_PLAIN});
}

/* The hello is right, as if it were repeated from a recording; what comes then is not. */
static void no_fresh_proof(int s, const struct two *w)
{
    uint8_t zeros[PROOF_FRESH] = {0};

    stranger_hello(s, w->key, (struct proof_link){1, 0, COLL_BULK, PROOF_PLAIN});
    stranger_say(s, zeros, sizeof zeros);
}

static void (*const attacks[])(int s, const struct two *w) = {
    silent,     http,        garbage,  old_header,    slow,          wrong_key,
    wrong_from, from_itself, wrong_to, wrong_channel, no_fresh_proof};

enum { N_ATTACKS = ARRAY_LEN(attacks) };

/* Every kind of stranger comes; each closes. */
static void attack(const struct two *w, uint16_t port)
{
    for (size_t i = 0; i < N_ATTACKS; i++) {
        const int s = stranger_new(port);

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
    two_prepare(&w, 0);
    attack(&w, two_port(&w));
    two_start(&zero, &w, 0, two_connect);
    two_wait_for_strangers(&w, N_ATTACKS);
    attack(&w, two_port(&w));
    two_wait_for_strangers(&w, 2 * N_ATTACKS);
    two_start(&one, &w, 1, two_connect);
    pthread_join(zero.thread, NULL);
    pthread_join(one.thread, NULL);
    assert_int_equal(zero.rc, 0);
    assert_int_equal(one.rc, 0);
    for (int i = 0; i < 3; i++) {
        attack(&w, two_port(&w));
        two_both(&w, two_sum);
    }
    two_wait_for_strangers(&w, 5 * N_ATTACKS);
    two_both(&w, two_sum);
    two_free(&w);
}

/* Strangers that neither speak nor close: more of them than there are places. */
static void test_flood(void **state)
{
    static int held[FLOOD];
    struct two w;

    (void)state;
    two_prepare(&w, 0);
    for (int i = 0; i < FLOOD; i++)
        held[i] = stranger_new(two_port(&w));
    two_both(&w, two_connect);
    two_both(&w, two_sum);
    two_wait_for_strangers(&w, FLOOD); /* the last ones by the time that a hello may take */
    for (int i = 0; i < FLOOD; i++) {
        char byte;

        assert_true(recv(held[i], &byte, 1, 0) <= 0);
        close(held[i]);
    }
    two_both(&w, two_sum);
    two_free(&w);
}

/* A flood from one address takes the places of its own connections only: the oldest of all, which
 * comes from another address, stays. */
static void test_flood_of_one_source(void **state)
{
    const struct sockaddr_in other = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    enum { PLACES = 64, MORE = 70 }; /* of one source, links_thread.c; there are more in all */
    int held[MORE], oldest = stranger_socket();
    struct two w;
    char byte;

    (void)state;
    two_prepare(&w, 0);
    assert_int_equal(bind(oldest, (const struct sockaddr *)&other, sizeof other), 0);
    stranger_connect(oldest, two_port(&w));
    for (int i = 0; i < MORE; i++)
        held[i] = stranger_new(two_port(&w));
    assert_int_equal(recv(held[0], &byte, 1, 0), 0);
    two_wait_for_strangers(&w, MORE - PLACES);
    assert_int_equal(recv(oldest, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    for (int i = 0; i < MORE; i++)
        close(held[i]);
    close(oldest);
    two_free(&w);
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
    two_prepare(&w, 0);
    before = take_descriptors();
    two_start(&one, &w, 1, two_connect);
    pthread_join(one.thread, NULL);
    give_descriptors(before);
    assert_int_equal(one.rc, ERR_NOMEM);
    assert_non_null(strstr(one.err.msg, "connecting with rank 0: opening a socket: "));
    two_free(&w);
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
    two_prepare(&w, 0);
    two_start(&zero, &w, 0, two_connect);
    s = stranger_new(two_port(&w));
    wrong_key(s, &w);
    two_wait_for_strangers(&w, 1); /* so rank 0 knows the key */
    close(s);
    s = stranger_socket();
    for (int i = 0; i < CROWD; i++)
        crowd[i] = stranger_socket();
    before = take_descriptors();
    stranger_connect(s, two_port(&w));
    stranger_hello(s, w.key, (struct proof_link){1, 0, COLL_BULK, PROOF_PLAIN});
    for (int i = 0; i < CROWD; i++)
        stranger_connect(crowd[i], two_port(&w));
    give_descriptors(before);
    assert_int_equal(recv(s, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    close(s);
    two_start(&one, &w, 1, two_connect);
    pthread_join(zero.thread, NULL);
    pthread_join(one.thread, NULL);
    assert_int_equal(zero.rc, 0);
    assert_int_equal(one.rc, 0);
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
    two_both(&w, two_sum);
    two_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_moment),        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_flood_of_one_source), cmocka_unit_test(test_no_socket),
        cmocka_unit_test(test_hello_before_crowd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
