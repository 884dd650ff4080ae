/* Tests of a reader of the stream that the ring of notes overtakes: what it gets is a beginning of
 * what was published, without a hole. */
#include "../test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http.h"

enum { LINE = 100000 };

static char line[LINE];

static int make_text(void *arg, struct buf *out)
{
    (void)arg;
    buf_printf(out, "{}\n");
    return 200;
}

static const struct http_document live = {"/status", "application/json", make_text};

static struct http *open_on(uv_loop_t *loop)
{
    const struct http_options o = {.host = "127.0.0.1",
                                   .most = 64,
                                   .documents = &live,
                                   .n_documents = 1,
                                   .live = &live,
                                   .live_event = "status",
                                   .stream = "/events"};
    struct http *h;
    struct err err;

    assert_int_equal(uv_loop_init(loop), 0);
    assert_int_equal(http_open(loop, &o, &h, &err), 0);
    return h;
}

static int dial(struct http *h)
{
    static const char request[] = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const int port = atoi(strrchr(http_url(h), ':') + 1), room = 65536;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void turn(uv_loop_t *loop, int n)
{
    for (int i = 0; i < n; i++) {
        uv_run(loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
}

/* Take what there is.  Returns 1 if the server has closed. */
static int take(int fd, struct buf *out)
{
    static char block[65536];
    ssize_t n;

    while ((n = recv(fd, block, sizeof block, 0)) > 0)
        buf_append(out, block, (size_t)n);
    return n == 0 || errno != EAGAIN;
}

static void publish(struct http *h, int i)
{
    char start[16];
    const int n = snprintf(start, sizeof start, "<%d>", i);

    memcpy(line, start, (size_t)n);
    http_publish(h, "row", NULL, line, sizeof line);
    memset(line, 'x', (size_t)n);
}

/* Each number after a '<' is one more than that before it.  Returns how many there are. */
static int count(struct buf *out)
{
    int n = 0;

    for (const char *at = buf_cstr(out); (at = strchr(at, '<')); at++)
        assert_int_equal(atoi(at + 1), n++);
    return n;
}

/* How many of n notes a reader gets that stands still until the last one is published.  The streams
 * are woken after the first n_first, and then after each few. */
static int n_read_of(int n, int n_first)
{
    uv_loop_t loop;
    struct http *h = open_on(&loop);
    struct buf out = {0};
    const int fd = dial(h);
    int n_read;

    turn(&loop, 5);
    for (int i = 0; i < n; i++) {
        publish(h, i);
        turn(&loop, i + 1 == n_first ? 250 : 2);
    }
    for (int i = 0; i < 300 && !take(fd, &out); i++)
        turn(&loop, 1);
    n_read = count(&out);
    http_close(h);
    close(fd);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    buf_fini(&out);
    return n_read;
}

/* The reader's sockets are full, the ring has just dropped its next note, and it reads again before
 * the streams are woken.  How much fits in sockets differs between kernels. */
static void an_overtaken_reader_is_cut(void **state)
{
    int n;

    (void)state;
    memset(line, 'x', sizeof line);
    n = n_read_of(200, 0);
    assert_in_range(n, 1, 199);
    for (int i = 10; i < 14; i++) {
        for (int n_first = 0; n_first < 3; n_first++)
            assert_in_range(n_read_of(n + i, n_first), 1, n + i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_overtaken_reader_is_cut)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
