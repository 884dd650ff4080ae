/* Tests of what a mux makes of raw bytes: pieces may come in any parts, no more is sent than the
 * other side has granted, and whatever is not in order ends the connection with one error. */
#include "mux_party.h"

#include "base/clock.h"

struct wire { /* bytes to be sent */
    uint8_t data[1 << 20];
    size_t n;
};

static struct wire wire;

static void wire_greet(void)
{
    uint8_t greeting[PIECE_GREETING];

    piece_greet(&(struct piece_greeting){.side = PIECE_CONNECTS}, greeting);
    memcpy(wire.data, greeting + PIECE_MAGIC,
           PIECE_GREETING - PIECE_MAGIC); /* the magic was read */
    wire.n = PIECE_GREETING - PIECE_MAGIC;
}

static void wire_put(uint32_t channel, enum piece_kind kind, uint32_t len)
{
    piece_put(&(struct piece){channel, kind, len}, wire.data + wire.n);
    wire.n += PIECE_HEADER;
    if (kind == PIECE_DATA) {
        memcpy(wire.data + wire.n, pattern, len);
        wire.n += len;
    }
}

static void wire_credit(uint32_t channel, uint32_t n)
{
    wire_put(channel, PIECE_CREDIT, PIECE_CREDIT_LEN);
    piece_put_number(n, wire.data + wire.n);
    wire.n += PIECE_CREDIT_LEN;
}

static void wire_send(uv_loop_t *loop, int fd, size_t step)
{
    for (size_t i = 0; i < wire.n; i += step) {
        const size_t n = wire.n - i < step ? wire.n - i : step;

        assert_int_equal(send(fd, wire.data + i, n, MSG_NOSIGNAL), (ssize_t)n);
        mux_turn(loop, 2);
    }
    wire.n = 0;
}

/* Read one piece, and the bytes behind its header. */
static struct piece read_piece(uv_loop_t *loop, int fd, uint8_t *data)
{
    uint8_t head[PIECE_HEADER];
    struct piece p;
    struct err err;

    for (int i = 0; recv(fd, head, sizeof head, MSG_PEEK) < PIECE_HEADER; i++) {
        assert_true(i < 1000);
        mux_turn(loop, 1);
    }
    assert_int_equal(read(fd, head, sizeof head), sizeof head);
    assert_int_equal(piece_get(head, &p, &err), 0);
    for (uint32_t n = 0; n < p.len; mux_turn(loop, 1)) {
        const ssize_t part = recv(fd, data + n, p.len - n, 0);

        n += part > 0 ? (uint32_t)part : 0;
    }
    return p;
}

static void expect_piece(uv_loop_t *loop, int fd, uint32_t channel, enum piece_kind kind)
{
    uint8_t data[PIECE_MAX];
    const struct piece p = read_piece(loop, fd, data);

    assert_int_equal(p.kind, kind);
    assert_int_equal(p.channel, channel);
    if (kind == PIECE_CREDIT)
        assert_int_equal(piece_get_number(data), MUX_WINDOW);
}

static void expect_greeting(int fd)
{
    uint8_t greeting[PIECE_GREETING], want[PIECE_GREETING];

    assert_int_equal(read(fd, greeting, sizeof greeting), sizeof greeting);
    piece_greet(&(struct piece_greeting){.side = PIECE_ACCEPTS}, want);
    assert_memory_equal(greeting, want, sizeof want);
}

/* The same pieces, whole and byte by byte. */
static void test_parts(void **state)
{
    static const size_t steps[] = {1, 3, 7, 1 << 20};

    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct party p;
        int fd = party_accept(&p, *state), n_done = 0;
        size_t sent = 0;

        wire_greet();
        wire_put(1, PIECE_OPEN, 0);
        wire_put(3, PIECE_OPEN, 0);
        wire_send(*state, fd, steps[i]);
        wire_put(3, PIECE_DATA, 100);
        wire_put(1, PIECE_DATA, 256);
        wire_put(1, PIECE_DATA, 44);
        wire_put(3, PIECE_END, 0);
        wire_send(*state, fd, steps[i]);
        assert_int_equal(p.n_offered, 2);
        assert_int_equal(p.line[0].n_bytes, 300);
        assert_int_equal(p.line[1].n_bytes, 100);
        assert_int_equal(p.line[1].n_ends, 1);
        expect_greeting(fd);
        expect_piece(*state, fd, 1, PIECE_CREDIT);
        expect_piece(*state, fd, 3, PIECE_CREDIT);
        line_send(&p.line[1], &sent, 10, &n_done);
        mux_end(&p.line[1].ch);
        expect_piece(*state, fd, 3, PIECE_DATA);
        expect_piece(*state, fd, 3, PIECE_END);
        assert_true(p.line[1].is_over && n_done == 1);
        assert_int_equal(n_channels_of(p.mux), 1);
        mux_abort(p.mux);
        assert_true(p.line[0].is_broken && !p.is_ended);
        mux_turn(*state, 5);
        close(fd);
    }
}

/* The accepting side sends no more than was granted. */
static void test_send_window(void **state)
{
    static uint8_t data[PIECE_MAX];
    struct party p;
    int fd = party_accept(&p, *state), n_done = 0;
    size_t sent = 0, come = 0;

    wire_greet();
    wire_put(1, PIECE_OPEN, 0);
    wire_send(*state, fd, 1 << 20);
    expect_greeting(fd);
    expect_piece(*state, fd, 1, PIECE_CREDIT);
    line_send(&p.line[0], &sent, MUX_WINDOW + 1000, &n_done);
    while (come < MUX_WINDOW)
        come += read_piece(*state, fd, data).len;
    mux_turn(*state, 20);
    assert_true(recv(fd, data, 1, MSG_PEEK) < 0);
    assert_int_equal(mux_n_unsent(&p.line[0].ch), 1000);
    wire_credit(1, 400);
    wire_send(*state, fd, 1 << 20);
    assert_int_equal(read_piece(*state, fd, data).len, 400);
    wire_credit(1, MUX_WINDOW);
    wire_send(*state, fd, 1 << 20);
    assert_int_equal(read_piece(*state, fd, data).len, 600);
    assert_int_equal(n_done, 1);
    mux_abort(p.mux);
    mux_turn(*state, 5);
    close(fd);
}

struct bad {
    uint32_t channel;
    int kind;
    uint32_t len;
    const char *says;
};

/* Each comes on a connection with channel 2, which is taken, and channel 4, which waits. */
static const struct bad bads[] = {
    {2, 0, 0, "a piece of kind 0, want 1 to 5"},
    {2, 6, 0, "a piece of kind 6, want 1 to 5"},
    {2, 255, 0xffffff, "a piece of kind 255"},
    {0, PIECE_OPEN, 0, "a piece (open) of channel 0"},
    {6, PIECE_OPEN, 1, "a piece (open) of 1 bytes, want 0 to 0"},
    {4, PIECE_OPEN, 0, "it opens channel 4 after channel 4"},
    {1, PIECE_OPEN, 0, "it opens channel 1 after channel 4"},
    {2, PIECE_DATA, 0, "a piece (data) of 0 bytes, want 1 to 16384"},
    {2, PIECE_DATA, PIECE_MAX + 1, "a piece (data) of 16385 bytes, want 1 to 16384"},
    {5, PIECE_DATA, 1, "channel 5, which was not opened"},
    {4, PIECE_DATA, 1, "it sends on channel 4, which was not taken yet"},
    {4, PIECE_CREDIT, 4, "it sends on channel 4, which was not taken yet"},
    {2, PIECE_CREDIT, 3, "a piece (credit) of 3 bytes, want 4 to 4"},
    {2, PIECE_CREDIT, 4, "it grants channel 2 1 bytes more than 262144, at most 262144"},
    {2, PIECE_END, 1, "a piece (end) of 1 bytes"},
    {2, PIECE_BREAK, 9, "a piece (break) of 9 bytes"},
};

static void test_bad_pieces(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bads); i++) {
        struct party p;
        int fd = party_accept(&p, *state);

        wire_greet();
        wire_put(2, PIECE_OPEN, 0);
        wire_send(*state, fd, 1 << 20);
        p.is_shy = 1;
        wire_put(4, PIECE_OPEN, 0);
        piece_put(&(struct piece){bads[i].channel, (enum piece_kind)bads[i].kind, bads[i].len},
                  wire.data + wire.n);
        wire.n += PIECE_HEADER;
        piece_put_number(1, wire.data + wire.n);
        wire.n += 4;
        wire_send(*state, fd, 1 << 20);
        assert_true(p.is_ended);
        assert_int_equal(p.status, UV_EPROTO);
        assert_int_equal(p.why.code, ERR_PROTO);
        assert_true(p.line[0].is_broken);
        assert_string_equal(p.line[0].why.msg, p.why.msg);
        if (!strstr(p.why.msg, bads[i].says) || strncmp(p.why.msg, "the relay at ", 13) != 0)
            fail_msg("\"%s\" is not in: %s", bads[i].says, p.why.msg);
        mux_turn(*state, 5);
        close(fd);
    }
}

static void expect_end(void **state, int fd, struct party *p, int code, const char *says)
{
    wire_send(*state, fd, 1 << 20);
    assert_true(p->is_ended);
    assert_int_equal(p->why.code, code);
    if (!strstr(p->why.msg, says))
        fail_msg("\"%s\" is not in: %s", says, p->why.msg);
    mux_turn(*state, 5);
    close(fd);
}

/* More than is granted, more after the end, and too many channels. */
static void test_bad_order(void **state)
{
    struct party p;
    int fd = party_accept(&p, *state);

    wire_greet();
    wire_put(1, PIECE_OPEN, 0);
    wire_send(*state, fd, 1 << 20);
    p.line[0].is_lazy = 1;
    for (int i = 0; i < MUX_WINDOW / PIECE_MAX; i++) {
        wire_put(1, PIECE_DATA, PIECE_MAX);
        wire_send(*state, fd, 1 << 20);
    }
    assert_int_equal(p.line[0].n_bytes, MUX_WINDOW);
    wire_put(1, PIECE_DATA, 1);
    expect_end(state, fd, &p, ERR_PROTO, "it sends 1 bytes on channel 1, which may have 0");

    fd = party_accept(&p, *state);
    wire_greet();
    wire_put(1, PIECE_OPEN, 0);
    wire_send(*state, fd, 1 << 20);
    wire_put(1, PIECE_END, 0);
    wire_put(1, PIECE_DATA, 1);
    expect_end(state, fd, &p, ERR_PROTO, "it goes on after the end of channel 1");

    fd = party_accept(&p, *state);
    p.is_shy = 1;
    wire_greet();
    for (uint32_t i = 0; i < MUX_MAX_CHANNELS; i++)
        wire_put(1 + i, PIECE_OPEN, 0);
    wire_send(*state, fd, 1 << 14);
    assert_int_equal(mux_n_waiting(p.mux), MUX_MAX_CHANNELS);
    wire_put(5000, PIECE_OPEN, 0);
    expect_end(state, fd, &p, ERR_PROTO, "it opens more than 1024 channels");
}

/* A peer that opens and ends channels again and again, and reads nothing, is not given memory for
 * ever. */
static void test_flood(void **state)
{
    struct party p;
    int fd = party_accept(&p, *state);
    uint32_t number = 0;

    p.is_shy = 1;
    wire_greet();
    while (!p.is_ended && number < 1 << 20) {
        for (int i = 0; i < 100; i++) {
            wire_put(++number, PIECE_OPEN, 0);
            wire_put(number, PIECE_END, 0);
        }
        send(fd, wire.data, wire.n, MSG_NOSIGNAL);
        wire.n = 0;
        mux_turn(*state, 2);
    }
    assert_true(p.is_ended);
    assert_non_null(strstr(p.why.msg, "it does not read"));
    mux_turn(*state, 5);
    close(fd);
}

static void test_greetings(void **state)
{
    static const struct {
        uint8_t rest[4];
        int code;
        const char *says;
    } cases[] = {
        {{1, 1, 0, 0}, ERR_UNSUPPORTED, "version 1 of the relays' protocol and this side 2"},
        {{2, 3, 0, 0}, ERR_PROTO, "its greeting ends with 03 00 00, want 01, 00 or 01, and 00"},
        {{2, 1, 2, 0}, ERR_PROTO, "its greeting ends with 01 02 00, want 01, 00 or 01, and 00"},
        {{2, 1, 0, 1}, ERR_PROTO, "its greeting ends with 01 00 01, want 01, 00 or 01, and 00"},
        {{2, 2, 0, 0}, ERR_PEER, "connected the socket with itself"},
        {{2, 1, 1, 0}, ERR_REFUSED, "it has a secret, and this side has none"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct party p;
        int fd = party_accept(&p, *state);

        memcpy(wire.data, cases[i].rest, 4);
        wire.n = 4;
        wire_send(*state, fd, 1);
        expect_greeting(fd);
        expect_end(state, fd, &p, cases[i].code, cases[i].says);
    }
}

/* An answer leaves in the turn of the loop in which the bytes came, before idle handles run.  If an
 * end is behind it, it leaves with that in the next turn. */
static void test_answers(void **state)
{
    struct party p;
    int fd = party_accept(&p, *state);
    uint8_t data[64];

    wire_greet();
    wire_put(1, PIECE_OPEN, 0);
    wire_send(*state, fd, sizeof wire.data);
    expect_greeting(fd);
    expect_piece(*state, fd, 1, PIECE_CREDIT);
    p.line[0].answer = "yes";
    for (int ends = 0; ends < 2; ends++) {
        p.line[0].ends_then = ends;
        p.line[0].n_bytes = 0;
        wire_put(1, PIECE_DATA, 5);
        assert_int_equal(send(fd, wire.data, wire.n, MSG_NOSIGNAL), (ssize_t)wire.n);
        wire.n = 0;
        mux_turn(*state, 1);
        if (ends) {
            assert_int_equal(recv(fd, data, sizeof data, 0), -1);
            mux_turn(*state, 1);
        }
        assert_int_equal(recv(fd, data, sizeof data, 0),
                         PIECE_HEADER + 3 + (ends ? PIECE_HEADER : 0));
        assert_memory_equal(data + PIECE_HEADER, "yes", 3);
        assert_int_equal(p.line[0].n_answered, ends + 1);
    }
    mux_abort(p.mux);
    close(fd);
}

int main(void)
{
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_parts),     LOOP_TEST(test_send_window), LOOP_TEST(test_bad_pieces),
        LOOP_TEST(test_bad_order), LOOP_TEST(test_flood),       LOOP_TEST(test_greetings),
        LOOP_TEST(test_answers),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    pattern_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
