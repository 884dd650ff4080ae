/* samehost - Unix sockets in the abstract namespace: they leave no file when a rank is killed.
 * A descriptor travels beside a byte, as SCM_RIGHTS. */
#include "coll/samehost.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

void samehost_name_of(const uint8_t random[ENDPOINT_RANDOM], struct samehost_name *out)
{
    static const char label[] = "dptrain same host";
    uint8_t text[sizeof label + ENDPOINT_RANDOM], hash[SHA256_DIGEST_LENGTH];

    memcpy(text, label, sizeof label);
    memcpy(text + sizeof label, random, ENDPOINT_RANDOM);
    SHA256(text, sizeof text, hash);
    memcpy(out->bytes, hash, sizeof out->bytes);
}

/* The first byte of an abstract name is zero. */
static socklen_t samehost_address(const struct samehost_name *name, struct sockaddr_un *out)
{
    char *at = out->sun_path + 1;

    *out = (struct sockaddr_un){0};
    out->sun_family = AF_UNIX;
    at += sprintf(at, "dptrain-");
    for (int i = 0; i < SAMEHOST_NAME; i++)
        at += sprintf(at, "%02x", name->bytes[i]);
    return (socklen_t)(at - (char *)out);
}

int samehost_listen(const struct samehost_name *name, int *fd, struct err *err)
{
    struct sockaddr_un sa;
    const socklen_t len = samehost_address(name, &sa);
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (s < 0)
        return err_sys(err, errno, "opening a Unix socket");
    if (bind(s, (struct sockaddr *)&sa, len) < 0 || listen(s, SOMAXCONN) < 0) {
        err_sys(err, errno, "listening for ranks of this machine");
        close(s);
        return err->code;
    }
    *fd = s;
    return 0;
}

int samehost_dial(const struct samehost_name *name)
{
    struct sockaddr_un sa;
    const socklen_t len = samehost_address(name, &sa);
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (s >= 0 && connect(s, (struct sockaddr *)&sa, len) < 0) {
        close(s);
        return -1;
    }
    return s;
}

/* Room for one descriptor beside a message, aligned as the kernel wants it. */
union beside {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
};

int samehost_give(int socket, int fd, struct err *err)
{
    char has_fd = fd >= 0;
    struct iovec io = {&has_fd, 1};
    union beside b = {.room = {0}};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

    if (has_fd) {
        m.msg_control = b.room;
        m.msg_controllen = sizeof b.room;
        b.head.cmsg_level = SOL_SOCKET;
        b.head.cmsg_type = SCM_RIGHTS;
        b.head.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&b.head), &fd, sizeof fd);
    }
    if (sendmsg(socket, &m, MSG_NOSIGNAL) != 1)
        return err_set(err, ERR_PEER, "sharing memory: %s", strerror(errno));
    return 0;
}

int samehost_take(int socket, int *fd, struct err *err)
{
    char has_fd;
    struct iovec io = {&has_fd, 1};
    union beside b = {.room = {0}};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = b.room, .msg_controllen = sizeof b.room};
    const ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n < 0)
        return err_set(err, ERR_PEER, "sharing memory: %s", strerror(errno));
    if (n == 0)
        return err_set(err, ERR_PEER, "it closed the connection");
    *fd = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    if (has_fd && *fd < 0)
        return err_set(err, ERR_NOMEM, "no descriptor is free for shared memory");
    return 0;
}
