/* link_socket - the form of a link whose bytes go through its socket as they are.
 *
 * The kernel wakes a call that waits when the peer ends, and after the socket's timeout. */
#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "coll/link_impl.h"

static int socket_send(struct link *k, const void *data, size_t n_bytes, struct err *err)
{
    const char *from = data;

    while (n_bytes) {
        const ssize_t n = send(k->fd, from, n_bytes, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return link_failed(errno, err);
        from += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

static int socket_recv(struct link *k, void *to, size_t n_bytes, struct err *err)
{
    char *at = to;

    while (n_bytes) {
        const ssize_t n = recv(k->fd, at, n_bytes, MSG_WAITALL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return link_failed(errno, err);
        if (n == 0)
            return link_closed(err);
        at += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

/* A message is copied into the send buffer, if that has room beside what the peer has not
 * acknowledged.  A quarter of the buffer's size is surely for bytes; the kernel takes some itself.
 */
static int socket_has_room(const struct link *k, size_t n_bytes)
{
    int waiting = 0;

    return ioctl(k->fd, SIOCOUTQ, &waiting) == 0 && (size_t)waiting + n_bytes <= k->n_buffer / 4;
}

static const struct link_ops link_socket_ops = {
    .send = socket_send, .recv = socket_recv, .has_room = socket_has_room};

struct link *link_over_socket(void)
{
    struct link *k = xcalloc(1, sizeof *k);

    k->ops = &link_socket_ops;
    return k;
}
