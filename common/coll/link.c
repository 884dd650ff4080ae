/* link - blocking sends and receives on one socket.  Another thread ends them with shutdown(2).
 * link.h says what a link promises. */
#include "coll/link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"

struct link {
    int fd;
};

/* Half of what the kernel says it grants, because the kernel adds as much again for its own
 * overhead. */
int link_window(uint32_t *out, struct err *err)
{
    const int wanted = LINK_SNDBUF;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), granted = 0;
    socklen_t len = sizeof granted;

    if (s < 0)
        return err_sys(err, errno, "opening a socket");
    setsockopt(s, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
    getsockopt(s, SOL_SOCKET, SO_SNDBUF, &granted, &len);
    close(s);
    *out = (uint32_t)granted / 2;
    return 0;
}

struct link *link_new(int fd, int64_t timeout_ms)
{
    const struct timeval tv = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    const int yes = 1, sndbuf = LINK_SNDBUF;
    struct link *k = xcalloc(1, sizeof *k);

    k->fd = fd;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    return k;
}

void link_free(struct link *k)
{
    if (!k)
        return;
    close(k->fd);
    free(k);
}

static int failed(int number, struct err *err)
{
    if (number == EAGAIN || number == EWOULDBLOCK)
        return err_set(err, ERR_TIMEOUT, "no progress");
    return err_set(err, ERR_PEER, "%s", strerror(number));
}

int link_send(struct link *k, const void *data, size_t n_bytes, struct err *err)
{
    const char *from = data;

    while (n_bytes) {
        const ssize_t n = send(k->fd, from, n_bytes, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(errno, err);
        from += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

int link_recv(struct link *k, void *to, size_t n_bytes, struct err *err)
{
    char *at = to;

    while (n_bytes) {
        const ssize_t n = recv(k->fd, at, n_bytes, MSG_WAITALL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(errno, err);
        if (n == 0)
            return err_set(err, ERR_PEER, "it closed the connection");
        at += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

void link_shut(struct link *k) { shutdown(k->fd, SHUT_RDWR); }

bool link_is_gone(const struct link *k)
{
    struct pollfd p = {k->fd, POLLRDHUP, 0};

    return poll(&p, 1, 0) > 0 && p.revents;
}
