/* Fuzz target: the input is a stranger's bytes to a driver's TLS port, or to a follower that takes
 * the stranger for a driver.  The connection ends or waits, its user gets no byte, and little
 * memory is kept.  The input's first byte chooses the side, and the size of the pieces in which the
 * other bytes come. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "net/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct victim {
    struct tls tls;
    int is_gone, is_ended;
};

static void on_bytes(void *arg, const void *data, size_t len)
{
    (void)arg;
    (void)data;
    (void)len;
    ASSERT(!"bytes from a stranger");
}

static void on_open(void *arg)
{
    (void)arg;
    ASSERT(!"a stranger has proven to know the secret");
}

static void on_ended(void *arg, const struct err *why)
{
    struct victim *v = arg;

    ASSERT(!v->is_ended && (!why || why->msg[0]));
    v->is_ended = 1;
}

static void on_gone(void *arg) { ((struct victim *)arg)->is_gone = 1; }

static const struct tls_events events = {{on_bytes, on_ended, on_gone}, on_open};

/* Make the victim's connection of one end of a pair of sockets, which needs no port and which no
 * other process can reach.  Returns the stranger's end, or -1 if no more files can be opened. */
static int connect_pair(uv_loop_t *loop, struct victim *v, const struct tls_context *c)
{
    int ends[2];
    struct err err;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    ASSERT(tls_init(&v->tls, loop, c, 1 << 20, &events, v, &err) == 0);
    ASSERT(uv_tcp_open(&v->tls.stream.tcp, ends[0]) == 0);
    ASSERT(tls_start(&v->tls, &err) == 0);
    return ends[1];
}

/* Pass on bytes as the stream would. */
static void give(struct victim *v, const uint8_t *data, size_t size, size_t step)
{
    for (size_t i = 0; i < size && !v->is_ended; i += step)
        v->tls.stream.events->bytes(v->tls.stream.arg, data + i,
                                    min_i64((int64_t)step, (int64_t)(size - i)));
    ASSERT(v->is_ended || v->tls.head.len <= 64 << 10);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tls_texts texts = {"other", "plain"};
    static struct tls_context *contexts[2];
    struct secret s;
    struct err err;
    struct victim v = {0};
    uv_loop_t loop;
    int peer;

    if (size < 1 || size > TLS_MAX_STRANGER)
        return 0;
    for (int role = 0; role < 2 && !contexts[role]; role++) {
        memset(&s, 7, sizeof s);
        ASSERT(tls_context_new(&s, 1, (enum tls_role)role, &texts, &contexts[role], &err) == 0);
    }
    if (uv_loop_init(&loop) < 0)
        return 0; /* no more files */
    peer = connect_pair(&loop, &v, contexts[data[0] & 1]);
    if (peer >= 0) {
        give(&v, data + 1, size - 1, 1 + (size_t)(data[0] >> 1) * 16);
        tls_close(&v.tls, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
        ASSERT(v.is_gone);
        close(peer);
    }
    ASSERT(uv_loop_close(&loop) == 0);
    return 0;
}
