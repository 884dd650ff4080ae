/* link - one link: its socket, and what all its forms share.  link.h says what a link promises, and
 * coll/link_impl.h lists the forms.
 *
 * Sends and receives block.  Another thread ends them with shutdown(2). */
#include "coll/link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/fabric/fabric.h"
#include "coll/link_impl.h"

/* The window is half of the send buffer that the kernel reports, because the kernel doubles the
 * size for its own overhead. */
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

struct link *link_new(struct link_parts parts, int64_t timeout_ms)
{
    const struct timeval tv = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    const int yes = 1, sndbuf = LINK_SNDBUF, fd = parts.fd;
    int granted = 0;
    socklen_t len = sizeof granted;
    struct link *k = parts.shm      ? link_over_shm(parts.shm, parts.patience)
                     : parts.fabric ? link_over_fabric(parts.fabric,
                                                       (enum coll_channel)parts.channel, parts.rank)
                     : parts.ssl    ? link_over_tls(parts.ssl)
                                    : link_over_socket();

    if (parts.fabric && !parts.shm)
        SSL_free(parts.ssl); /* it has proven the key; no byte follows on the socket */
    k->fd = fd;
    k->timeout_ns = timeout_ms < INT64_MAX / 1000000 ? timeout_ms * 1000000 : 0;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &granted, &len) == 0)
        k->n_buffer = (size_t)granted;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    return k;
}

void link_free(struct link *k)
{
    if (!k)
        return;
    if (k->ops->fini)
        k->ops->fini(k);
    close(k->fd);
    free(k);
}

int link_send(struct link *k, const void *data, size_t n_bytes, struct err *err)
{
    return k->ops->send(k, data, n_bytes, err);
}

int link_recv(struct link *k, void *to, size_t n_bytes, struct err *err)
{
    return k->ops->recv(k, to, n_bytes, err);
}

int link_flush(struct link *k, struct err *err)
{
    return k->ops->flush ? k->ops->flush(k, err) : 0;
}

void link_shut(struct link *k)
{
    if (k->ops->shut)
        k->ops->shut(k);
    shutdown(k->fd, SHUT_RDWR);
}

int link_is_shared(const struct link *k) { return k->ops == &link_shm_ops; }

int link_has_room(const struct link *k, size_t n_bytes)
{
    return k->ops->has_room && k->ops->has_room(k, n_bytes);
}

int link_is_gone(const struct link *k)
{
    struct pollfd p = {k->fd, POLLRDHUP, 0};

    return poll(&p, 1, 0) > 0 && p.revents;
}

/* ---- for the forms ---- */

int link_failed(int number, struct err *err)
{
    if (number == EAGAIN || number == EWOULDBLOCK)
        return link_stalled(err);
    return err_set(err, ERR_PEER, "%s", strerror(number));
}

int link_closed(struct err *err) { return err_set(err, ERR_PEER, "it closed the connection"); }

int link_stalled(struct err *err) { return err_set(err, ERR_TIMEOUT, "no progress"); }

int64_t link_limit_ns(const struct link *k)
{
    return k->timeout_ns ? clock_mono_ns() + k->timeout_ns : INT64_MAX;
}
