/* link_tls - the form of a link whose socket carries records of TLS (coll/cipher.h).
 *
 * The timeouts are the socket's: a call of TLS that would have to wait longer has failed. */
#include <errno.h>
#include <openssl/err.h>

#include "base/alloc.h"
#include "base/util.h"
#include "coll/cipher.h"
#include "coll/link_impl.h"

struct link_tls {
    struct link base; /* first */
    SSL *ssl;         /* on the link's socket */
    size_t n_one_key; /* bytes sent since the key was changed */
};

static struct link_tls *tls_of(struct link *k) { return container_of(k, struct link_tls, base); }

/* rc: what the SSL call returned. */
static int tls_failed(struct link_tls *t, int rc, struct err *err)
{
    const int number = errno, e = SSL_get_error(t->ssl, rc);
    const int reason = ERR_GET_REASON(ERR_peek_error());

    if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
        return link_stalled(err);
    if (e == SSL_ERROR_ZERO_RETURN || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        ERR_clear_error();
        return link_closed(err);
    }
    if (e == SSL_ERROR_SYSCALL && number)
        return link_failed(number, err);
    return err_set(err, ERR_PEER, "TLS: %s", cipher_why());
}

/* One key should not encrypt more than some 2^24 records (RFC 8446, section 5.5).  Kernel TLS of
 * this OpenSSL cannot change keys. */
static int change_key(struct link_tls *t, struct err *err)
{
    t->n_one_key = 0;
    if (cipher_is_kernel(t->ssl) || SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
        return 0;
    return err_set(err, ERR_DEVICE, "changing the key of a link: %s", cipher_why());
}

static int link_tls_send(struct link *k, const void *data, size_t n_bytes, struct err *err)
{
    struct link_tls *t = tls_of(k);
    const char *from = data;
    int rc;

    while (n_bytes) {
        size_t n;

        rc = t->n_one_key >= LINK_KEY_BYTES ? change_key(t, err) : 0;

        if (rc < 0)
            return rc;
        ERR_clear_error();
        rc = SSL_write_ex(t->ssl, from, n_bytes, &n);
        if (rc != 1)
            return tls_failed(t, rc, err);
        t->n_one_key += n;
        from += n;
        n_bytes -= n;
    }
    ERR_clear_error();
    rc = cipher_flush(t->ssl);
    return rc == 1 ? 0 : tls_failed(t, rc, err);
}

static int link_tls_recv(struct link *k, void *to, size_t n_bytes, struct err *err)
{
    struct link_tls *t = tls_of(k);
    char *at = to;

    while (n_bytes) {
        size_t n;
        int rc;

        ERR_clear_error();
        rc = SSL_read_ex(t->ssl, at, n_bytes, &n);
        if (rc != 1)
            return tls_failed(t, rc, err);
        at += n;
        n_bytes -= n;
    }
    return 0;
}

static void tls_fini(struct link *k) { SSL_free(tls_of(k)->ssl); }

static const struct link_ops link_tls_ops = {
    .send = link_tls_send, .recv = link_tls_recv, .fini = tls_fini};

struct link *link_over_tls(SSL *ssl)
{
    struct link_tls *t = xcalloc(1, sizeof *t);

    t->base.ops = &link_tls_ops;
    t->ssl = ssl;
    return &t->base;
}
