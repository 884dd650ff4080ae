/* http_world - the server's documents, its folder and the beginning of its stream, and a client
 * whose sockets do not block: the loop runs between its calls. */
#include "http_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../test.h"
#include "base/clock.h"

sem_t held;

static int make_text(void *arg, struct buf *out)
{
    struct world *w = arg;

    buf_printf(out, "{\"made\":%d}\n", ++w->n_made);
    return 200;
}

static int make_ill(void *arg, struct buf *out)
{
    (void)arg;
    buf_printf(out, "ill\n");
    return 503;
}

static const struct http_document documents[] = {
    {"/status", "application/json", make_text},
    {"/health", "text/plain", make_ill, .is_open = 1},
};

/* A stream begins with this. */
static void begin_stream(void *arg, const char *last, struct buf *out)
{
    (void)arg;
    if (last && !strcmp(last, "x-1"))
        return;
    http_put_note(out, "event", "x-1", last ? last : "none", last ? strlen(last) : 4);
}

static int knows_id(void *arg, const char *last)
{
    (void)arg;
    return !strncmp(last, "x-", 2);
}

/* ---- a folder ---- */

static char *root_of(void *arg)
{
    const struct world *w = arg;

    return w->has_root ? strdup("root") : NULL;
}

/* In a thread of the pool.  "hold" waits for the test. */
static int read_name(const char *root, const char *name, struct buf *out)
{
    if (!strcmp(name, "hold"))
        sem_wait(&held);
    buf_printf(out, "%s has [%s]", root, name);
    return strstr(name, "..") ? 404 : 200;
}

static const struct http_folder folders[] = {{"/files", "text/plain", root_of, read_name}};

void open_at(struct world *w, const char *host, const char *token)
{
    struct http_options o = {.host = host,
                             .most = 64,
                             .documents = documents,
                             .n_documents = ARRAY_LEN(documents),
                             .live = &documents[0],
                             .live_event = "status",
                             .stream = "/events",
                             .begin = begin_stream,
                             .knows = knows_id,
                             .folders = folders,
                             .n_folders = ARRAY_LEN(folders),
                             .arg = w};
    struct err err;

    *w = (struct world){.port = 0};
    snprintf(o.token, sizeof o.token, "%s", token);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(http_open(&w->loop, &o, &w->http, &err), 0);
    w->port = atoi(strrchr(http_url(w->http), ':') + 1);
}

void world_end(struct world *w)
{
    http_close(w->http);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}

int dial(const struct world *w)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)w->port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

int hear(struct world *w, int fd, const char *wanted, struct buf *out)
{
    const int64_t until = clock_mono_ns() + (int64_t)20000000000;
    char block[65536];

    while (clock_mono_ns() < until) {
        const ssize_t n = recv(fd, block, sizeof block, 0);

        if (n > 0)
            buf_append(out, block, (size_t)n);
        if (wanted && strstr(buf_cstr(out), wanted))
            return 1;
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return !wanted;
        if (n < 0) {
            struct pollfd p = {.fd = fd, .events = POLLIN};

            uv_run(&w->loop, UV_RUN_NOWAIT);
            poll(&p, 1, 1);
        }
    }
    return 0;
}

void ask(struct world *w, const char *request, struct buf *out)
{
    const int fd = dial(w);

    buf_clear(out);
    say(fd, request);
    assert_true(hear(w, fd, NULL, out));
    close(fd);
}

int begins(struct buf *b, const char *text) { return !strncmp(buf_cstr(b), text, strlen(text)); }
