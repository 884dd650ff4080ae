/* link - blocking sends and receives on one socket.  Another thread ends them with shutdown(2).
 * link.h says what a link promises. */
#include "coll/link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "coll/cipher.h"

struct link {
    int fd;
    SSL *ssl;         /* NULL: plain */
    size_t n_one_key; /* bytes sent since the key was changed */
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

struct link *link_new(int fd, SSL *ssl, int64_t timeout_ms)
{
    const struct timeval tv = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    const int yes = 1, sndbuf = LINK_SNDBUF;
    struct link *k = xcalloc(1, sizeof *k);

    k->fd = fd;
    k->ssl = ssl;
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
    SSL_free(k->ssl);
    close(k->fd);
    free(k);
}

static int failed(int number, struct err *err)
{
    if (number == EAGAIN || number == EWOULDBLOCK)
        return err_set(err, ERR_TIMEOUT, "no progress");
    return err_set(err, ERR_PEER, "%s", strerror(number));
}

/* ---- encrypted ---- */

/* rc: what the SSL call returned. */
static int failed_ssl(struct link *k, int rc, struct err *err)
{
    const int number = errno, e = SSL_get_error(k->ssl, rc);
    const int reason = ERR_GET_REASON(ERR_peek_error());

    if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
        return err_set(err, ERR_TIMEOUT, "no progress");
    if (e == SSL_ERROR_ZERO_RETURN || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        ERR_clear_error();
        return err_set(err, ERR_PEER, "it closed the connection");
    }
    if (e == SSL_ERROR_SYSCALL && number)
        return failed(number, err);
    return err_set(err, ERR_PEER, "TLS: %s", cipher_why());
}

/* One key should not encrypt more than some 2^24 records (RFC 8446, section 5.5).  Kernel TLS of
 * this OpenSSL cannot change keys. */
static int change_key(struct link *k, struct err *err)
{
    k->n_one_key = 0;
    if (cipher_is_kernel(k->ssl) || SSL_key_update(k->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
        return 0;
    return err_set(err, ERR_DEVICE, "changing the key of a link: %s", cipher_why());
}

static int send_ssl(struct link *k, const char *from, size_t n_bytes, struct err *err)
{
    while (n_bytes) {
        size_t n;
        int rc = k->n_one_key >= LINK_KEY_BYTES ? change_key(k, err) : 0;

        if (rc < 0)
            return rc;
        ERR_clear_error();
        rc = SSL_write_ex(k->ssl, from, n_bytes, &n);
        if (rc != 1)
            return failed_ssl(k, rc, err);
        k->n_one_key += n;
        from += n;
        n_bytes -= n;
    }
    return 0;
}

static int recv_ssl(struct link *k, char *at, size_t n_bytes, struct err *err)
{
    while (n_bytes) {
        size_t n;
        int rc;

        ERR_clear_error();
        rc = SSL_read_ex(k->ssl, at, n_bytes, &n);
        if (rc != 1)
            return failed_ssl(k, rc, err);
        at += n;
        n_bytes -= n;
    }
    return 0;
}

/* ---- by the link's kind: plain or encrypted ---- */

int link_send(struct link *k, const void *data, size_t n_bytes, struct err *err)
{
    const char *from = data;

    if (k->ssl)
        return send_ssl(k, from, n_bytes, err);
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

    if (k->ssl)
        return recv_ssl(k, at, n_bytes, err);
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
