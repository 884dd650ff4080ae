/* coll/fabric: the messages of a rail, over a fake of libfabric that loses the order of reports, is
 * busy, and lets others write. */
#include "../test.h"

#include <openssl/evp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "coll/fabric/fabric.h"
#include "coll/fabric/load.h"
#include "coll/fabric/rail.h"
#include "ranks.h"

/* ---- the terms of two ranks ---- */

static struct rail_terms terms[2];
static uint8_t halves[2][SEAL_PUBLIC];

static void make_terms(int hides)
{
    struct err err;

    for (int r = 0; r < 2; r++) {
        terms[r] = (struct rail_terms){
            .rank = r, .size = 2, .hides = hides, .half = halves, .key = "of the formation"};
        assert_int_equal(seal_own_new(&terms[r].own, halves[r], &err), 0);
    }
}

static void free_terms(void)
{
    for (int r = 0; r < 2; r++)
        EVP_PKEY_free(terms[r].own);
}

/* ---- a fake of libfabric ---- */

enum { FAKE_MOST = 256, FAKE_MEMORY = 4, HUGE_PAGE = 2 << 20 };

struct fabric_port {
    struct posted {
        void *at;
        size_t n;
        struct fabric_op *op;
    } posted[FAKE_MOST];
    struct letter {
        uint8_t *bytes;
        size_t n;
    } inbox[FAKE_MOST];
    struct fabric_done done[FAKE_MOST];
    int n_posted, n_inbox, n_done;
    struct fabric_bytes memory[FAKE_MEMORY];
    int n_memory;
    int is_busy;               /* send says so, until it is 0 */
    int is_reversed;           /* reports come last first */
    int breaks;                /* messages cannot be sent */
    enum fabric_outcome comes; /* how messages come */
};

static struct fabric_port *ports[3];

static void fake_handler(int number) { (void)number; }

static int fake_open(const char *provider, const char *ip, size_t n_bytes, struct fabric_port **out,
                     struct err *err)
{
    (void)ip, (void)n_bytes, (void)err;
    signal(SIGINT, fake_handler);
    *out = ports[provider[0] - '0'] = xcalloc(1, sizeof **out);
    (*out)->breaks = provider[0] == '2';
    return 0;
}

static void fake_close(struct fabric_port *p)
{
    for (int i = 0; i < p->n_inbox; i++)
        free(p->inbox[i].bytes);
    free(p);
}

static int fake_memory(struct fabric_port *p, void *at, size_t n_bytes, void **handle,
                       struct err *err)
{
    (void)err;
    assert_int_equal((uintptr_t)at % HUGE_PAGE, 0);
    assert_true(p->n_memory < FAKE_MEMORY);
    *handle = at;
    p->memory[p->n_memory++] = (struct fabric_bytes){at, n_bytes, at};
    return 0;
}

/* The message lies in the memory of its handle. */
static void fake_check(const struct fabric_port *p, struct fabric_bytes b)
{
    const uintptr_t at = (uintptr_t)b.at;
    int n_found = 0;

    for (int i = 0; i < p->n_memory; i++)
        n_found += p->memory[i].handle == b.handle && at >= (uintptr_t)p->memory[i].at &&
                   at + b.n_bytes <= (uintptr_t)p->memory[i].at + p->memory[i].n_bytes;
    assert_int_equal(n_found, 1);
}

static void fake_put(struct fabric_port *to, const void *data, size_t n)
{
    assert_true(to->n_inbox < FAKE_MOST);
    to->inbox[to->n_inbox] = (struct letter){xmalloc(n + 1), n};
    memcpy(to->inbox[to->n_inbox++].bytes, data, n);
}

static int fake_send(struct fabric_port *p, uint64_t to, struct fabric_bytes bytes,
                     struct fabric_op *op, struct err *err)
{
    (void)err;
    fake_check(p, bytes);
    if (p->is_busy)
        return FABRIC_BUSY;
    if (!p->breaks)
        fake_put(ports[to], bytes.at, bytes.n_bytes);
    p->done[p->n_done++] =
        (struct fabric_done){.op = op, .outcome = p->breaks ? FABRIC_FAILED : FABRIC_DONE};
    return 0;
}

static int fake_receive(struct fabric_port *p, struct fabric_bytes bytes, struct fabric_op *op,
                        struct err *err)
{
    (void)err;
    fake_check(p, bytes);
    assert_true(p->n_posted < FAKE_MOST);
    p->posted[p->n_posted++] = (struct posted){bytes.at, bytes.n_bytes, op};
    return 0;
}

static int fake_poll(struct fabric_port *p, struct fabric_done *done, int n, struct err *err)
{
    int count = 0;

    (void)err;
    while (p->n_inbox && p->n_posted) {
        const struct posted to = p->posted[0];
        const struct letter from = p->inbox[0];

        assert_true(from.n <= to.n);
        memcpy(to.at, from.bytes, from.n);
        free(from.bytes);
        memmove(p->posted, p->posted + 1, (size_t)--p->n_posted * sizeof *p->posted);
        memmove(p->inbox, p->inbox + 1, (size_t)--p->n_inbox * sizeof *p->inbox);
        p->done[p->n_done++] =
            (struct fabric_done){.op = to.op, .n_bytes = from.n, .outcome = p->comes};
    }
    while (count < n && p->n_done) {
        done[count++] = p->done[p->is_reversed ? p->n_done - 1 : 0];
        p->n_done--;
        if (!p->is_reversed)
            memmove(p->done, p->done + 1, (size_t)p->n_done * sizeof *p->done);
    }
    return count;
}

static int fake_add(struct fabric_port *p, const void *address, size_t len, uint64_t *to,
                    struct err *err)
{
    (void)p, (void)len, (void)err;
    *to = *(const uint8_t *)address;
    return 0;
}

static int fake_sleep_on(struct fabric_port *p, int *has_fd)
{
    (void)p;
    *has_fd = 0;
    return -1;
}

static const struct fabric_ops fake = {.open = fake_open,
                                       .close = fake_close,
                                       .add = fake_add,
                                       .memory = fake_memory,
                                       .send = fake_send,
                                       .receive = fake_receive,
                                       .poll = fake_poll,
                                       .sleep_on = fake_sleep_on};

/* ---- rails ---- */

static struct rail *rails[2];

static void begin_rails(int hides)
{
    struct err err;

    make_terms(hides);
    for (int r = 0; r < 2; r++) {
        const uint8_t other = (uint8_t)(1 - r);

        terms[r].ops = &fake;
        assert_int_equal(rail_new(&terms[r], r ? "1" : "0", "", COLL_BULK, &rails[r], &err), 0);
        assert_int_equal(rail_add(rails[r], 1 - r, &other, 1, &err), 0);
        assert_int_equal(rail_begin(rails[r], &err), 0);
    }
}

static void end_rails(void)
{
    for (int r = 0; r < 2; r++)
        rail_free(rails[r]);
    free_terms();
}

static void poll_both(void)
{
    struct err err;

    for (int i = 0; i < 4; i++)
        assert_true(rail_poll(rails[i % 2], &err) >= 0);
}

static int64_t say(int from, const void *data, size_t n)
{
    struct err err;
    const int64_t done = rail_send(rails[from], 1 - from, data, n, &err);

    assert_true(done >= 0);
    return done;
}

static int64_t hear(int self, void *to, size_t n)
{
    struct err err;
    const int64_t done = rail_recv(rails[self], 1 - self, to, n, &err);

    assert_true(done >= 0);
    return done;
}

/* A rank may be a window ahead, and no more; each half window that is read lets it go on. */
static void test_window(void **state)
{
    uint32_t x = 0, y;

    (void)state;
    begin_rails(0);
    for (uint32_t i = 0; i < MESH_WINDOW; i++)
        assert_int_equal(say(0, &i, sizeof i), sizeof i);
    poll_both();
    assert_int_equal(say(0, &x, sizeof x), 0);
    for (uint32_t i = 0; i < 3 * MESH_WINDOW; i++) {
        assert_int_equal(hear(1, &y, sizeof y), sizeof y);
        assert_int_equal(y, i);
        poll_both();
        if (i % (MESH_WINDOW / 2) == MESH_WINDOW / 2 - 1)
            for (uint32_t k = 0; k < MESH_WINDOW / 2; k++) {
                x = MESH_WINDOW + i - (MESH_WINDOW / 2 - 1) + k;
                assert_int_equal(say(0, &x, sizeof x), sizeof x);
            }
        poll_both();
    }
    assert_int_equal(say(1, &x, sizeof x), sizeof x); /* credits have numbers of their own */
    poll_both();
    assert_int_equal(hear(0, &y, sizeof y), sizeof y);
    assert_int_equal(y, x);
    assert_int_equal(rail_n_strangers(rails[0]) + rail_n_strangers(rails[1]), 0);
    end_rails();
}

/* Long and odd pieces both ways, reports last first, and a port that is busy now and then. */
static void test_bytes(void **state)
{
    enum { TOTAL = 3 * RAIL_PIECE + 12345 };
    static uint8_t sent[TOTAL], got[2][TOTAL];
    size_t n_out[2] = {0}, n_in[2] = {0};

    (void)state;
    for (size_t i = 0; i < TOTAL; i++)
        sent[i] = (uint8_t)(i * 31 + (i >> 8));
    begin_rails(1);
    for (uint32_t i = 0; n_in[0] + n_in[1] < 2 * (size_t)TOTAL; i++) {
        const int r = (int)(i & 1);
        const size_t most = 1 + i * 7919 % (2 * RAIL_PIECE);

        ports[r]->is_reversed = i % 3 == 0;
        ports[r]->is_busy = i % 5 == 0;
        if (n_out[r] < TOTAL)
            n_out[r] += (size_t)say(r, sent + n_out[r], min_size(most, TOTAL - n_out[r]));
        poll_both();
        n_in[r] += (size_t)hear(r, got[r] + n_in[r], min_size(most / 2 + 1, TOTAL - n_in[r]));
        assert_true(i < 100000);
    }
    for (int r = 0; r < 2; r++)
        assert_memory_equal(got[r], sent, TOTAL);
    assert_int_equal(rail_n_strangers(rails[0]) + rail_n_strangers(rails[1]), 0);
    end_rails();
}

/* Others write to the port: nothing of it is heard, all is counted, and the link goes on. */
static void test_strangers(void **state)
{
    static const char said[] = "the right bytes";
    char heard[sizeof said] = "";
    uint8_t forged[200] = {0}, *first;
    size_t n;

    (void)state;
    begin_rails(0);
    fake_put(ports[1], "x", 1);
    fake_put(ports[1], forged, sizeof forged);
    forged[1] = 77; /* of a rank that is not there */
    fake_put(ports[1], forged, sizeof forged);
    say(0, said, sizeof said);
    first = ports[1]->inbox[3].bytes;
    n = ports[1]->inbox[3].n;
    fake_put(ports[1], first, n); /* said again */
    memcpy(forged, first, n);
    forged[n - 1] ^= 1;
    fake_put(ports[1], forged, n);
    poll_both();
    assert_int_equal(rail_n_strangers(rails[1]), 4);
    assert_int_equal(hear(1, heard, sizeof heard), sizeof said);
    assert_string_equal(heard, said);
    forged[n - 1] ^= 1;
    fake_put(ports[1], forged, n); /* and again, after it was read */
    poll_both();
    assert_int_equal(hear(1, heard, sizeof heard), 0);
    for (int i = 0; i < 20; i++) {
        say(0, said, sizeof said);
        poll_both();
        assert_int_equal(hear(1, heard, sizeof heard), sizeof said);
    }
    end_rails();
}

/* Messages come again, before and after they are read, and the first one all the time: each is
 * heard once, no room gets lost, and an old count of what was read takes no credit away. */
static void test_replays(void **state)
{
    uint8_t first[2][64];
    int n_posted[2] = {0};

    (void)state;
    begin_rails(0);
    for (uint32_t i = 0; i < 8 * MESH_WINDOW; i++) {
        const int to = (int)(i & 1);
        struct fabric_port *p = ports[to];
        const struct letter *last;
        uint32_t heard;

        assert_int_equal(say(1 - to, &i, sizeof i), sizeof i);
        last = &p->inbox[p->n_inbox - 1];
        assert_int_equal(last->n, SEAL_HEAD + SEAL_MARK + sizeof i);
        if (i < 2)
            memcpy(first[to], last->bytes, last->n);
        fake_put(p, last->bytes, last->n);
        poll_both();
        assert_int_equal(hear(to, &heard, sizeof heard), sizeof heard);
        assert_int_equal(heard, i);
        fake_put(p, first[to], SEAL_HEAD + SEAL_MARK + sizeof i);
        poll_both();
        assert_int_equal(hear(to, &heard, sizeof heard), 0);
        if (i < 4)
            n_posted[to] = p->n_posted;
    }
    for (int r = 0; r < 2; r++)
        assert_int_equal(ports[r]->n_posted, n_posted[r]);
    assert_int_equal(rail_n_strangers(rails[0]) + rail_n_strangers(rails[1]), 0);
    end_rails();
}

/* A message of one byte from rank 0 to rank 1, by the right key, and with this number. */
static void put_numbered(uint8_t number, uint8_t said)
{
    const struct proof_link link = {0, 1, COLL_BULK, PROOF_PLAIN};
    uint8_t key[SEAL_KEY], bytes[SEAL_HEAD + SEAL_MARK + 1] = {0};
    struct seal *s;
    struct err err;

    assert_int_equal(seal_key(terms[0].own, halves[1], terms[0].key, link, key, &err), 0);
    assert_int_equal(seal_new(key, 0, 0, &s, &err), 0);
    bytes[SEAL_HEAD - 1] = number;
    bytes[SEAL_HEAD + SEAL_MARK] = said;
    seal_close(s, bytes, bytes + SEAL_HEAD + SEAL_MARK, 1, bytes + SEAL_HEAD);
    fake_put(ports[1], bytes, sizeof bytes);
    seal_free(s);
    poll_both();
}

/* The number of a message may be a window ahead of what was read, and no more. */
static void test_too_far(void **state)
{
    uint8_t heard;

    (void)state;
    begin_rails(0);
    put_numbered(MESH_WINDOW, 'x');
    assert_int_equal(hear(1, &heard, 1), 0);
    for (uint8_t i = MESH_WINDOW; i-- > 0;)
        put_numbered(i, i);
    for (uint8_t i = 0; i < MESH_WINDOW; i++) {
        assert_int_equal(hear(1, &heard, 1), 1);
        assert_int_equal(heard, i);
    }
    end_rails();
}

/* A rank that the fabric cannot reach is told to whoever sends to it, once that is known. */
static void test_unreachable(void **state)
{
    struct err err;

    (void)state;
    begin_rails(0);
    ports[0]->breaks = 1;
    say(0, "x", 1);
    assert_int_equal(rail_n_sending(rails[0], 1), 1);
    poll_both();
    assert_int_equal(rail_n_sending(rails[0], 1), 0);
    assert_int_equal(rail_send(rails[0], 1, "x", 1, &err), ERR_PEER);
    assert_non_null(strstr(err.msg, "the fabric cannot reach it"));
    end_rails();
}

/* Link this test with --wrap=fabric_load. */
int __wrap_fabric_load(const struct fabric_ops **out, struct err *err);

int __wrap_fabric_load(const struct fabric_ops **out, struct err *err)
{
    (void)err;
    signal(SIGTERM, fake_handler);
    *out = &fake;
    return 0;
}

static void ours(int number) { (void)number; }

/* Libraries that take signals, when they are loaded and when they are opened, do not keep them. */
static void test_handlers(void **state)
{
    struct fabric *f;
    struct err err;

    (void)state;
    signal(SIGTERM, ours);
    signal(SIGINT, SIG_IGN);
    assert_int_equal(fabric_new("0", "", 0, 2, &f, &err), 0);
    assert_ptr_equal(signal(SIGTERM, SIG_DFL), ours);
    assert_ptr_equal(signal(SIGINT, SIG_DFL), SIG_IGN);
    fabric_free(f);
}

/* The socket of the peer lives: whoever flushes, receives or sends is told nevertheless. */
static void test_unreachable_link(void **state)
{
    static const uint8_t key[PROOF_KEY] = "of the formation";
    struct endpoint_fabric e = {.len = {1, 1}};
    struct fabric *f;
    struct link *k;
    struct err err;
    int pair[2];
    char byte;

    (void)state;
    make_terms(0);
    memcpy(e.half, halves[1], sizeof e.half);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(fabric_new("2", "", 0, 2, &f, &err), 0);
    assert_int_equal(fabric_meet(f, 1, &e, &err), 0);
    assert_int_equal(fabric_begin(f, key, 0, &err), 0);
    k = link_new((struct link_parts){.fd = pair[0], .fabric = f, .rank = 1}, 100000);
    assert_int_equal(link_send(k, "x", 1, &err), 0);
    assert_int_equal(link_flush(k, &err), ERR_PEER);
    assert_int_equal(link_recv(k, &byte, 1, &err), ERR_PEER);
    assert_non_null(strstr(err.msg, "the fabric cannot reach it"));
    assert_int_equal(link_send(k, "x", 1, &err), ERR_PEER);
    link_free(k);
    close(pair[1]);
    fabric_free(f);
    free_terms();
}

/* A message that is too long is a stranger's.  One that fails costs its room, which is replaced.
 * If as many fail as there was room for, that ends the rail. */
static void test_outcomes(void **state)
{
    struct err err;
    int rc = 0, n, n_posted;

    (void)state;
    begin_rails(0);
    ports[1]->comes = FABRIC_TOO_LONG;
    say(0, "x", 1);
    poll_both();
    assert_int_equal(rail_n_strangers(rails[1]), 1);
    ports[1]->comes = FABRIC_CANCELED;
    say(0, "x", 1);
    poll_both();
    assert_int_equal(rail_n_strangers(rails[1]), 1);
    ports[1]->comes = FABRIC_FAILED;
    n_posted = ports[1]->n_posted;
    for (n = 0; n < 3 * RAIL_ROOM && rc >= 0; n++) {
        assert_int_equal(ports[1]->n_posted, n_posted);
        fake_put(ports[1], "x", 1);
        rc = rail_poll(rails[1], &err);
    }
    assert_int_equal(rc, ERR_DEVICE);
    assert_true(n > RAIL_ROOM);
    end_rails();
}

/* Messages that fail are replaced, the last one from a second block of memory. */
static void test_memory(void **state)
{
    struct err err;
    char got;

    (void)state;
    for (int has_memory = 0; has_memory < 2; has_memory++) {
        begin_rails(0);
        assert_int_equal(say(0, "x", 1), 1);
        poll_both();
        assert_int_equal(hear(1, &got, 1), 1);
        alloc_fail_at(!has_memory);
        ports[1]->comes = FABRIC_FAILED;
        for (int i = 1; i <= 2 * RAIL_ROOM; i++) {
            assert_int_equal(ports[1]->n_memory, 1);
            fake_put(ports[1], "x", 1);
            assert_int_equal(rail_poll(rails[1], &err),
                             i < 2 * RAIL_ROOM || has_memory ? 1 : ERR_NOMEM);
        }
        assert_int_equal(ports[1]->n_memory, 1 + has_memory);
        alloc_fail_at(0);
        end_rails();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),      cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_replays),     cmocka_unit_test(test_too_far),
        cmocka_unit_test(test_unreachable), cmocka_unit_test(test_unreachable_link),
        cmocka_unit_test(test_outcomes),    cmocka_unit_test(test_handlers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
