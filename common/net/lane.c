/* Packets of one address each, with one descriptor (SCM_RIGHTS).  A packet is whole or not there,
 * so neither side waits for the rest of one. */
#include "net/lane.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

int lane_make(int *relay_end, int *process_end, struct err *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return err_sys(err, errno, "--relay: cannot make a pair of sockets");
    *relay_end = pair[0];
    *process_end = pair[1];
    return 0;
}

/* One packet: an address, and room for one descriptor. */
struct packet {
    struct sockaddr_storage to;
    struct iovec part;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message;
};

static void packet_init(struct packet *p)
{
    *p = (struct packet){.part = {&p->to, sizeof p->to}};
    p->message = (struct msghdr){.msg_iov = &p->part,
                                 .msg_iovlen = 1,
                                 .msg_control = p->control,
                                 .msg_controllen = sizeof p->control};
}

static size_t size_of_address(const struct sockaddr *a)
{
    return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

int lane_ask(int lane, const struct sockaddr *to, int *stream)
{
    struct packet p;
    struct cmsghdr *c;
    int pair[2], rc = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return uv_translate_sys_error(errno);
    packet_init(&p);
    memcpy(&p.to, to, size_of_address(to));
    c = CMSG_FIRSTHDR(&p.message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof pair[1]);
    memcpy(CMSG_DATA(c), &pair[1], sizeof pair[1]);
    if (sendmsg(lane, &p.message, MSG_NOSIGNAL) < 0)
        rc = uv_translate_sys_error(errno);
    close(pair[1]);
    if (rc < 0)
        close(pair[0]);
    else
        *stream = pair[0];
    return rc;
}

/* The descriptor that came with a packet, or -1. */
static int descriptor_in(struct packet *p)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(&p->message);
    int fd = -1;

    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

int lane_take(int lane, struct sockaddr_storage *to, int *stream)
{
    for (;;) {
        struct packet p;
        ssize_t n;

        packet_init(&p);
        n = recvmsg(lane, &p.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN ? 0 : -1;
        *stream = descriptor_in(&p);
        *to = p.to;
        if (n == sizeof p.to && *stream >= 0 &&
            (to->ss_family == AF_INET || to->ss_family == AF_INET6))
            return 1;
        if (*stream >= 0)
            close(*stream);
    }
}
