/* cipher - OpenSSL's side of encrypted links: one context in which everything but TLS 1.3 with a
 * pre-shared key is switched off, and the key of each connection. */
#include "coll/cipher.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define SUITE "TLS_AES_128_GCM_SHA256"

enum { CIPHER_BUFFER = 128 << 10 }; /* bytes that one system call moves: several records */

static const unsigned char identity[] = "dptrain-link-1"; /* of every key: only one is possible */
static const unsigned char suite_id[2] = {0x13, 0x01};

struct cipher {
    SSL_CTX *ssl;
};

/* ---- the key ---- */

/* The session with this connection's key.  During the handshake the key is the SSL object's
 * application data. */
static SSL_SESSION *cipher_key_of(SSL *ssl)
{
    const unsigned char *key = SSL_get_app_data(ssl);
    const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *s = key && suite ? SSL_SESSION_new() : NULL;

    if (s && SSL_SESSION_set1_master_key(s, key, PROOF_KEY) && SSL_SESSION_set_cipher(s, suite) &&
        SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
        return s;
    SSL_SESSION_free(s);
    return NULL;
}

static int cipher_on_offer(SSL *ssl, const unsigned char *id, size_t len, SSL_SESSION **out)
{
    *out = NULL;
    if (len == sizeof identity - 1 && !memcmp(id, identity, len))
        *out = cipher_key_of(ssl);
    return 1;
}

static int cipher_on_use(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *len,
                         SSL_SESSION **out)
{
    (void)md; /* there is one suite only */
    *id = identity;
    *len = sizeof identity - 1;
    *out = cipher_key_of(ssl);
    return *out != NULL;
}

int cipher_begin(const struct cipher *c, int fd, int is_server, uint8_t key[PROOF_KEY], SSL **out,
                 struct err *err)
{
    SSL *ssl = SSL_new(c->ssl);

    if (!ssl || !SSL_set_fd(ssl, fd) || !SSL_set_app_data(ssl, key)) {
        SSL_free(ssl);
        return err_set(err, ERR_NOMEM, "no TLS object for a link: %s", cipher_why());
    }
    if (is_server) {
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
        SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* no certificate is trusted */
    }
    *out = ssl;
    return 0;
}

/* Put a buffer before the socket, which both directions have shared so far.  Without memory for it,
 * each record stays a system call of its own. */
static void cipher_gather_records(SSL *ssl)
{
    BIO *socket = SSL_get_wbio(ssl), *buffer = BIO_new(BIO_f_buffer());

    if (!buffer || BIO_set_write_buffer_size(buffer, CIPHER_BUFFER) != 1 || !BIO_up_ref(socket)) {
        BIO_free(buffer);
        ERR_clear_error();
        return;
    }
    SSL_set0_wbio(ssl, BIO_push(buffer, socket));
}

/* With OpenSSL 3.5.9 links that read ahead broke with "bad record type" when the peer had changed
 * its key; with 3.0 they never did.  The record layer is new since 3.2.  From there on a buffer
 * below OpenSSL reads ahead.  Without memory for it, each record takes system calls of its own. */
static void cipher_read_ahead(SSL *ssl)
{
    BIO *socket = SSL_get_rbio(ssl), *buffer;

    if (OpenSSL_version_num() < 0x30200000UL) {
        SSL_set_default_read_buffer_len(ssl, CIPHER_BUFFER);
        SSL_set_read_ahead(ssl, 1);
        return;
    }
    buffer = BIO_new(BIO_f_buffer());
    if (!buffer || BIO_set_read_buffer_size(buffer, CIPHER_BUFFER) != 1 || !BIO_up_ref(socket)) {
        BIO_free(buffer);
        ERR_clear_error();
        return;
    }
    SSL_set0_rbio(ssl, BIO_push(buffer, socket));
}

/* Let OpenSSL move several records with one system call.  Kernel TLS gains nothing by it: it takes
 * bytes of any number at once, and cannot read ahead, because its records come decrypted. */
void cipher_end_handshake(SSL *ssl)
{
    SSL_set_app_data(ssl, NULL);
    SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_AUTO_RETRY);
    if (!cipher_is_kernel(ssl))
        cipher_gather_records(ssl);
    if (!BIO_get_ktls_recv(SSL_get_rbio(ssl)))
        cipher_read_ahead(ssl);
}

int cipher_flush(SSL *ssl) { return BIO_flush(SSL_get_wbio(ssl)) == 1 ? 1 : -1; }

int cipher_is_kernel(const SSL *ssl) { return BIO_get_ktls_send(SSL_get_wbio(ssl)) != 0; }

const char *cipher_why(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());

    ERR_clear_error();
    return text ? text : "no reason given";
}

/* ---- the context ---- */

static int cipher_configure(SSL_CTX *s)
{
    SSL_CTX_set_options(s, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                               SSL_OP_ENABLE_KTLS);
    SSL_CTX_set_session_cache_mode(s, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_psk_find_session_callback(s, cipher_on_offer);
    SSL_CTX_set_psk_use_session_callback(s, cipher_on_use);
    return SSL_CTX_set_min_proto_version(s, TLS1_3_VERSION) &&
           SSL_CTX_set_max_proto_version(s, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(s, 0) &&
           SSL_CTX_set_max_early_data(s, 0) && SSL_CTX_set_ciphersuites(s, SUITE) &&
           SSL_CTX_set1_groups_list(s, "X25519:P-256");
}

int cipher_new(struct cipher **out, struct err *err)
{
    struct cipher *c = xcalloc(1, sizeof *c);

    c->ssl = SSL_CTX_new(TLS_method());
    if (c->ssl && cipher_configure(c->ssl)) {
        *out = c;
        return 0;
    }
    cipher_free(c);
    return err_set(err, ERR_DEVICE, "OpenSSL cannot do TLS 1.3 with " SUITE " and a key: %s",
                   cipher_why());
}

void cipher_free(struct cipher *c)
{
    if (!c)
        return;
    SSL_CTX_free(c->ssl);
    free(c);
}
