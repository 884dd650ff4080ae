/* OpenSSL's side of tls.c: a BIO over the connection's own buffers, the pre-shared key, the context
 * with everything else switched off, and its errors in words. */
#include "net/tls_library.h"

#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

#define SUITE "TLS_AES_128_GCM_SHA256"

/* Suites of older versions, which are never used: each handshake walks the list of them several
 * times, so it has one. */
#define OLDER "ECDHE-ECDSA-AES128-GCM-SHA256"

/* A peer of ours never changes keys within a connection, and sends no other handshake message that
 * late. */
enum { MAX_LATE = 16 };

/* ---- bytes ---- */

static int bio_create(BIO *b)
{
    BIO_set_init(b, 1);
    return 1;
}

static int bio_read(BIO *b, char *out, int len)
{
    struct tls *t = BIO_get_data(b);
    size_t n = (size_t)(len > 0 ? len : 0);

    BIO_clear_retry_flags(b);
    if (t->n_late > MAX_LATE || (t->state == TLS_SHAKING && t->n_unproven > TLS_MAX_STRANGER))
        return -1;
    if (n > t->n_in)
        n = t->n_in;
    if (n == 0) {
        BIO_set_retry_read(b);
        return -1;
    }
    memcpy(out, t->in, n);
    t->in += n;
    t->n_in -= n;
    if (t->state == TLS_SHAKING)
        t->n_unproven += n;
    return (int)n;
}

static int bio_write(BIO *b, const char *data, int len)
{
    struct tls *t = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    if (len > 0)
        buf_append(&t->out, data, (size_t)len);
    return len;
}

static long bio_ctrl(BIO *b, int what, long num, void *ptr)
{
    (void)b;
    (void)num;
    (void)ptr;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_bio_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "dptrain stream");

    if (!m || !BIO_meth_set_create(m, bio_create) || !BIO_meth_set_read(m, bio_read) ||
        !BIO_meth_set_write(m, bio_write) || !BIO_meth_set_ctrl(m, bio_ctrl)) {
        BIO_meth_free(m);
        return NULL;
    }
    return m;
}

SSL *tls_library_ssl(struct tls *t)
{
    SSL *ssl = SSL_new(t->context->ssl);
    BIO *bio = ssl ? BIO_new(t->context->bio) : NULL;

    if (!bio) {
        SSL_free(ssl);
        return NULL;
    }
    BIO_set_data(bio, t);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, t);
    t->key = t->context->turn->key;
    if (t->context->role == TLS_DRIVER)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

/* ---- the key ---- */

static SSL_SESSION *session_of(const struct tls_key *k)
{
    return SSL_SESSION_up_ref(k->session) ? k->session : NULL;
}

/* The peer offers a key by its name.  A key that this side has not is answered as if it were the
 * first: the handshake then fails because the keys differ, and both sides can say so. */
static int tls_library_on_offer(SSL *ssl, const unsigned char *name, size_t len, SSL_SESSION **out)
{
    struct tls *t = SSL_get_app_data(ssl);
    const struct tls_context *c = t->context;

    *out = NULL;
    t->key = 0;
    t->is_of_other_version = tls_key_is_of_other_version(name, len);
    if (!tls_key_is_name(name, len))
        return 1;
    for (int i = 0; i < c->n_keys; i++)
        if (tls_key_is_named(&c->key[i], name))
            t->key = i;
    *out = session_of(&c->key[t->key]);
    return 1;
}

static int tls_library_on_use(SSL *ssl, const EVP_MD *md, const unsigned char **name, size_t *len,
                              SSL_SESSION **out)
{
    struct tls *t = SSL_get_app_data(ssl);
    const struct tls_key *k = &t->context->key[t->key];

    (void)md; /* there is one suite only */
    if (tls_key_name(k, t->name) < 0)
        return 0;
    *name = t->name;
    *len = sizeof t->name;
    *out = session_of(k);
    return *out != NULL;
}

/* ---- the context ---- */

static void on_message(int is_written, int version, int type, const void *data, size_t len,
                       SSL *ssl, void *arg)
{
    struct tls *t = SSL_get_app_data(ssl);

    (void)version;
    (void)data;
    (void)len;
    (void)arg;
    if (!is_written && type == SSL3_RT_HANDSHAKE && t && t->state != TLS_SHAKING)
        t->n_late++;
}

static int tls_library_configure(struct tls_context *c)
{
    SSL_CTX *s = c->ssl;

    SSL_CTX_set_app_data(s, c);
    SSL_CTX_set_options(s, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(s, SSL_MODE_RELEASE_BUFFERS); /* thousands of quiet connections */
    SSL_CTX_set_session_cache_mode(s, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_msg_callback(s, on_message);
    if (c->role == TLS_DRIVER) {
        SSL_CTX_set_psk_find_session_callback(s, tls_library_on_offer);
    } else {
        SSL_CTX_set_psk_use_session_callback(s, tls_library_on_use);
        /* A peer that shows a certificate instead of the key is refused: no certificate is trusted.
         */
        SSL_CTX_set_verify(s, SSL_VERIFY_PEER, NULL);
    }
    return SSL_CTX_set_min_proto_version(s, TLS1_3_VERSION) &&
           SSL_CTX_set_max_proto_version(s, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(s, 0) &&
           SSL_CTX_set_max_early_data(s, 0) && SSL_CTX_set_ciphersuites(s, SUITE) &&
           SSL_CTX_set_cipher_list(s, OLDER) &&
           SSL_CTX_set1_groups_list(s, "X25519"); /* the driver's proof needs it */
}

static int make_keys(struct tls_context *c, const struct secret *s, int n)
{
    for (; c->n_keys < n; c->n_keys++)
        if (tls_key_init(&c->key[c->n_keys], c->ssl, &s[c->n_keys], c->role) < 0) {
            tls_key_fini(&c->key[c->n_keys]);
            return 0;
        }
    return 1;
}

int tls_context_new(const struct secret *s, int n, enum tls_role role,
                    const struct tls_texts *texts, struct tls_context **out, struct err *err)
{
    struct tls_context *c = xcalloc(1, sizeof *c);
    char why[256];

    ASSERT(0 < n && n <= TLS_MAX_SECRETS);
    c->role = role;
    c->texts = texts;
    c->turn = xcalloc(1, sizeof *c->turn);
    c->ssl = SSL_CTX_new(role == TLS_DRIVER ? TLS_server_method() : TLS_client_method());
    c->bio = make_bio_method();
    if (c->ssl && c->bio && tls_library_configure(c) && make_keys(c, s, n)) {
        *out = c;
        return 0;
    }
    ERR_error_string_n(ERR_peek_last_error(), why, sizeof why);
    ERR_clear_error();
    tls_context_free(c);
    return err_set(err, ERR_DEVICE, "OpenSSL cannot do TLS 1.3 with " SUITE " and a key: %s", why);
}

int tls_context_next(struct tls_context *c)
{
    c->turn->key = (c->turn->key + 1) % c->n_keys;
    c->turn->n_failed = (c->turn->n_failed + 1) % c->n_keys;
    return c->turn->n_failed != 0;
}

void tls_context_free(struct tls_context *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_keys; i++)
        tls_key_fini(&c->key[i]);
    SSL_CTX_free(c->ssl);
    BIO_meth_free(c->bio);
    free(c->turn);
    free(c);
}

/* ---- what errors mean ---- */

static const struct reason {
    int role, reason, code;
    const char *text; /* NULL: the secrets differ */
} reasons[] = {
    {TLS_DRIVER, SSL_R_BINDER_DOES_NOT_VERIFY, ERR_REFUSED, NULL},
    {TLS_DRIVER, SSL_R_BAD_PSK, ERR_REFUSED, NULL},
    {TLS_DRIVER, SSL_R_UNSUPPORTED_PROTOCOL, ERR_REFUSED,
     "it offers only TLS older than 1.3, so it is no dpfollower"},
    {TLS_DRIVER, SSL_R_VERSION_TOO_LOW, ERR_REFUSED,
     "it offers only TLS older than 1.3, so it is no dpfollower"},
    {TLS_DRIVER, SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, ERR_REFUSED,
     "it offers no key, so it is no dpfollower with --secret-file"},
    {TLS_DRIVER, SSL_R_NO_SHARED_CIPHER, ERR_REFUSED,
     "it offers no key and cipher of ours, so it is no dpfollower with --secret-file"},
    {TLS_DRIVER, SSL_R_NO_SUITABLE_KEY_SHARE, ERR_REFUSED,
     "it offers no key exchange of ours, so it is no dpfollower with --secret-file"},
    {TLS_FOLLOWER, SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER, ERR_REFUSED, NULL},
    {TLS_FOLLOWER, SSL_R_TLSV1_ALERT_DECRYPT_ERROR, ERR_REFUSED, NULL},
    {TLS_FOLLOWER, SSL_R_CERTIFICATE_VERIFY_FAILED, ERR_REFUSED,
     "it shows a certificate instead of knowing the secret, so it is no dpdriver of yours"},
    {TLS_FOLLOWER, SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, ERR_REFUSED,
     "it speaks TLS but does not take the key, so it is no dpdriver of yours, or one of another "
     "version"},
    {TLS_FOLLOWER, SSL_R_UNSUPPORTED_PROTOCOL, ERR_REFUSED,
     "it speaks only TLS older than 1.3, so it is no dpdriver"},
    {TLS_FOLLOWER, SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, ERR_REFUSED,
     "it speaks only TLS older than 1.3, so it is no dpdriver"},
};

static const struct reason *known_reason(const struct tls *t, int reason)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].role == (int)t->context->role && reasons[i].reason == reason)
            return &reasons[i];
    return NULL;
}

static const char *flood_of(const struct tls *t)
{
    if (t->n_late > MAX_LATE)
        return "it changes keys again and again";
    if (t->state == TLS_SHAKING && t->n_unproven > TLS_MAX_STRANGER)
        return "more than 64 KiB came before it had proven to know the secret";
    return NULL;
}

int tls_library_explain(const struct tls *t, struct err *err)
{
    unsigned long e = ERR_peek_error();
    const struct reason *known =
        ERR_GET_LIB(e) == ERR_LIB_SSL ? known_reason(t, ERR_GET_REASON(e)) : NULL;
    const char *flood = flood_of(t), *text = ERR_reason_error_string(e);

    ERR_clear_error();
    if (t->is_of_other_version)
        return err_set(err, ERR_REFUSED,
                       "%s is of another version of dptrain: install the same version on all "
                       "machines",
                       t->stream.peer);
    if (flood)
        return err_set(err, ERR_PROTO, "from %s: %s", t->stream.peer, flood);
    if (known && t->state == TLS_SHAKING && !known->text)
        return err_set(err, known->code, "%s: the secrets differ: %s", t->stream.peer,
                       t->context->texts->differ);
    if (known && t->state == TLS_SHAKING)
        return err_set(err, known->code, "%s: %s", t->stream.peer, known->text);
    return err_set(err, ERR_PROTO, "from %s: TLS%s: %s", t->stream.peer,
                   t->state == TLS_SHAKING ? " handshake" : "", text ? text : "broken");
}
