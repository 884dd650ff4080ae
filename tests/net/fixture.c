/* fixture - the shared parts of the net tests: the loop, both sides of a connection, a server, and
 * raw sockets. */
#include "fixture.h"

#include "../test.h"

#include <arpa/inet.h>
#include <unistd.h>

#include "base/alloc.h"

static void on_deadline(uv_timer_t *t) { *(int *)t->data = 1; }

void run_until(uv_loop_t *loop, const int *flag)
{
    uv_timer_t deadline;
    int late = 0;

    uv_timer_init(loop, &deadline);
    deadline.data = &late;
    uv_timer_start(&deadline, on_deadline, DEADLINE_MS, 0);
    while (!late && !*flag)
        uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&deadline, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
    assert_false(late);
}

int loop_setup(void **state)
{
    uv_loop_t *loop = xcalloc(1, sizeof *loop);

    assert_int_equal(uv_loop_init(loop), 0);
    *state = loop;
    return 0;
}

/* The test has closed everything: the loop must end by itself, with no handle left. */
int loop_teardown(void **state)
{
    uv_loop_t *loop = *state;

    alarm(DEADLINE_MS / 1000);
    uv_run(loop, UV_RUN_DEFAULT);
    alarm(0);
    assert_int_equal(uv_loop_close(loop), 0);
    free(loop);
    return 0;
}

static void on_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    struct side *s = arg;

    assert_true(len > 0 && body[0] == body[len - 1]);
    s->n_frames++;
    s->n_bytes += len;
    s->has_frame = 1;
    if (s->answer)
        conn_send(c, s->answer);
    s->answer = NULL;
    if (s->close_on_frame) {
        conn_close(c);
        s->conn = NULL;
    }
}

static void on_closed(void *arg, struct conn *c, const struct err *why)
{
    struct side *s = arg;

    assert_ptr_equal(s->conn, c);
    assert_false(s->is_closed);
    s->conn = NULL;
    s->is_closed = 1;
    s->is_plain = why == NULL;
    if (why)
        s->why = *why;
}

const struct conn_events side_events = {on_frame, on_closed};

struct frame *frame_of(size_t n, char fill)
{
    struct frame *f = frame_new(n);

    memset(f->data + FRAME_HEADER, fill, n);
    return f;
}

void server_accepted(void *arg, struct conn *c)
{
    struct server *s = arg;
    struct side *side = &s->side[s->n_accepted++ % 128];

    side->conn = c;
    s->has_one = 1;
    conn_listen(c, &side_events, side);
    if (s->n_accepted <= s->n_to_welcome)
        conn_welcome(c);
}

void server_open_like(uv_loop_t *loop, struct server *s, const struct listener_options *like)
{
    struct listener_options o = *like;
    struct err err;

    o.host = "127.0.0.1";
    o.accepted = server_accepted;
    o.arg = s;
    memset(s, 0, sizeof *s);
    assert_int_equal(listener_new(loop, &o, &s->listener, &err), 0);
    assert_true(listener_port(s->listener) > 0);
}

void server_open(uv_loop_t *loop, struct server *s, int max_strangers, int stranger_ms)
{
    server_open_like(loop, s,
                     &(struct listener_options){.max_strangers = max_strangers,
                                                .stranger_ms = stranger_ms,
                                                .room_after_ms = NEVER_MS});
}

int hold_port(int *port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)); /* as libuv does */
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
    *port = ntohs(sa.sin_port);
    return fd;
}

int raw_connect_from(const struct server *s, const char *number)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)listener_port(s->listener)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in own = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(inet_pton(AF_INET, number, &own.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

int raw_connect(const struct server *s) { return raw_connect_from(s, "127.0.0.1"); }
