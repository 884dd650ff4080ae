/* link - blocking sends and receives on one socket, or through shared memory.
 *
 * Another thread ends them with shutdown(2).  link.h says what a link promises. */
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
#include "base/clock.h"
#include "coll/cipher.h"

enum {
    LOOK_NS = 20 * 1000 * 1000
}; /* the time between two looks whether the peer was killed, while
      a rank waits for shared memory */

struct link {
    int fd;
    SSL *ssl;           /* NULL: not encrypted */
    size_t n_one_key;   /* bytes sent since the key was changed */
    struct shm *shm;    /* NULL: the socket carries the bytes */
    int64_t timeout_ns; /* 0: none */
};

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
    struct link *k = xcalloc(1, sizeof *k);

    k->fd = fd;
    k->ssl = parts.ssl;
    k->shm = parts.shm;
    k->timeout_ns = timeout_ms < INT64_MAX / 1000000 ? timeout_ms * 1000000 : 0;
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
    shm_free(k->shm);
    close(k->fd);
    free(k);
}

static int link_failed(int number, struct err *err)
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
        return link_failed(number, err);
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
    int rc;

    while (n_bytes) {
        size_t n;

        rc = k->n_one_key >= LINK_KEY_BYTES ? change_key(k, err) : 0;

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
    ERR_clear_error();
    rc = cipher_flush(k->ssl);
    return rc == 1 ? 0 : failed_ssl(k, rc, err);
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

/* ---- through shared memory ---- */

static int link_closed(struct err *err)
{
    return err_set(err, ERR_PEER, "it closed the connection");
}

static int link_broken(struct err *err)
{
    return err_set(err, ERR_PROTO, "it has broken the shared memory");
}

/* The time in ns that a call may wait without progress. */
static int64_t limit_ns(const struct link *k)
{
    return k->timeout_ns ? clock_mono_ns() + k->timeout_ns : INT64_MAX;
}

static int send_shm(struct link *k, const char *from, size_t n_bytes, struct err *err)
{
    ssize_t n = shm_send(k->shm, from, n_bytes);
    int64_t until_ns = 0;

    while (n >= 0 && (size_t)n < n_bytes && !shm_is_closed(k->shm)) {
        from += n;
        n_bytes -= (size_t)n;
        if (n > 0 || until_ns == 0)
            until_ns = limit_ns(k);
        shm_wait_to_send(k->shm, n_bytes < SHM_RING / 2 ? n_bytes : SHM_RING / 2, LOOK_NS);
        n = shm_send(k->shm, from, n_bytes);
        if (n == 0 && link_is_gone(k))
            return link_closed(err);
        if (n == 0 && clock_mono_ns() > until_ns)
            return err_set(err, ERR_TIMEOUT, "no progress");
    }
    if (n < 0)
        return link_broken(err);
    return shm_is_closed(k->shm) ? link_closed(err) : 0;
}

/* Bytes that the peer sent before it closed are received. */
static int recv_shm(struct link *k, char *to, size_t n_bytes, struct err *err)
{
    ssize_t n = shm_recv(k->shm, to, n_bytes);
    int64_t until_ns = 0;
    int is_over = 0;

    while (n >= 0 && (size_t)n < n_bytes) {
        to += n;
        n_bytes -= (size_t)n;
        if (n == 0 && is_over)
            return link_closed(err);
        if (n > 0 || until_ns == 0)
            until_ns = limit_ns(k);
        else if (clock_mono_ns() > until_ns)
            return err_set(err, ERR_TIMEOUT, "no progress");
        shm_wait_to_recv(k->shm, n_bytes < SHM_RING ? n_bytes : SHM_RING, LOOK_NS);
        is_over = shm_is_closed(k->shm) || (!shm_has_bytes(k->shm) && link_is_gone(k));
        n = shm_recv(k->shm, to, n_bytes);
    }
    return n < 0 ? link_broken(err) : 0;
}

/* ---- by the link's kind: plain, encrypted, shared memory ---- */

int link_send(struct link *k, const void *data, size_t n_bytes, struct err *err)
{
    const char *from = data;

    if (k->shm)
        return send_shm(k, from, n_bytes, err);
    if (k->ssl)
        return send_ssl(k, from, n_bytes, err);
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

int link_recv(struct link *k, void *to, size_t n_bytes, struct err *err)
{
    char *at = to;

    if (k->shm)
        return recv_shm(k, at, n_bytes, err);
    if (k->ssl)
        return recv_ssl(k, at, n_bytes, err);
    while (n_bytes) {
        const ssize_t n = recv(k->fd, at, n_bytes, MSG_WAITALL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return link_failed(errno, err);
        if (n == 0)
            return err_set(err, ERR_PEER, "it closed the connection");
        at += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

void link_shut(struct link *k)
{
    shutdown(k->fd, SHUT_RDWR);
    if (k->shm)
        shm_close(k->shm);
}

int link_is_shared(const struct link *k) { return k->shm != NULL; }

int link_is_gone(const struct link *k)
{
    struct pollfd p = {k->fd, POLLRDHUP, 0};

    return poll(&p, 1, 0) > 0 && p.revents;
}
