/* Deriving keys, naming them, and the driver's proof.
 * A secret is 32 random bytes, so HMAC-SHA256 of a label derives an independent key for each use.
 */
#include "net/tls_key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>

#define NAMES "dptrain-"
#define FORM  NAMES "3:"

enum { FORM_LEN = sizeof FORM - 1, SALT = 16, MAC = 16 };

_Static_assert((int)TLS_NAME == (int)FORM_LEN + (int)SALT + (int)MAC, "form, salt and mac");
_Static_assert((int)TLS_KEY_BYTES == (int)SECRET_BYTES, "HMAC-SHA256 gives 32 bytes");
_Static_assert((int)TLS_PROOF == (int)TLS_KEY_BYTES, "it is one");

/* TLS_AES_128_GCM_SHA256, the only suite */
static const unsigned char suite_id[2] = {0x13, 0x01};

/* OpenSSL looks an algorithm up by its name, which takes longer than an HMAC.  So that is done once
 * for a key, and each use copies what was found. */
static EVP_MAC_CTX *make_mac(void)
{
    char digest[] = "SHA256";
    const OSSL_PARAM what[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;

    EVP_MAC_free(hmac);
    if (mac && EVP_MAC_CTX_set_params(mac, what))
        return mac;
    EVP_MAC_CTX_free(mac);
    return NULL;
}

static int tls_key_hmac(const EVP_MAC_CTX *mac, const uint8_t key[TLS_KEY_BYTES], const void *text,
                        size_t len, uint8_t out[TLS_KEY_BYTES])
{
    EVP_MAC_CTX *c = mac ? EVP_MAC_CTX_dup(mac) : NULL;
    size_t n = 0;
    const int is_done = c && EVP_MAC_init(c, key, TLS_KEY_BYTES, NULL) &&
                        EVP_MAC_update(c, text, len) && EVP_MAC_final(c, out, &n, TLS_KEY_BYTES);

    EVP_MAC_CTX_free(c); /* wipes it */
    return is_done && n == TLS_KEY_BYTES ? 0 : -1;
}

static int tls_key_derive(const struct tls_key *k, const struct secret *s, const char *use,
                          uint8_t out[TLS_KEY_BYTES])
{
    return tls_key_hmac(k->mac, s->key, use, strlen(use), out);
}

/* OpenSSL lets a key expire as if it were a session's: 304 s after it was made, unless told
 * otherwise (SSL_SESSION_set_timeout).  So long, in seconds, it does not, not even if the clock is
 * set right meanwhile. */
enum { LASTING_S = INT32_MAX };

static int make_session(struct tls_key *k, SSL_CTX *ctx, const uint8_t key[TLS_KEY_BYTES])
{
    SSL *ssl = SSL_new(ctx); /* only a connection can look a suite up */
    const SSL_CIPHER *suite = ssl ? SSL_CIPHER_find(ssl, suite_id) : NULL;

    k->session = SSL_SESSION_new();
    SSL_free(ssl);
    return suite && k->session && SSL_SESSION_set1_master_key(k->session, key, TLS_KEY_BYTES) &&
                   SSL_SESSION_set_cipher(k->session, suite) &&
                   SSL_SESSION_set_protocol_version(k->session, TLS1_3_VERSION) &&
                   SSL_SESSION_set_timeout(k->session, LASTING_S)
               ? 0
               : -1;
}

static EVP_PKEY *public_half(const EVP_PKEY *whole)
{
    uint8_t half[TLS_KEY_BYTES];
    size_t n = sizeof half;

    if (!EVP_PKEY_get_raw_public_key(whole, half, &n) || n != sizeof half)
        return NULL;
    return EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, half, n);
}

static int make_driver(struct tls_key *k, const uint8_t seed[TLS_KEY_BYTES], enum tls_role role)
{
    EVP_PKEY *whole = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, seed, TLS_KEY_BYTES);

    if (whole && role == TLS_FOLLOWER) {
        k->driver = public_half(whole);
        EVP_PKEY_free(whole); /* wipes it */
    } else {
        k->driver = whole;
    }
    return k->driver ? 0 : -1;
}

int tls_key_init(struct tls_key *k, SSL_CTX *ssl, const struct secret *s, enum tls_role role)
{
    uint8_t handshake[TLS_KEY_BYTES], seed[TLS_KEY_BYTES];
    int rc = -1;

    *k = (struct tls_key){.mac = make_mac()};
    if (tls_key_derive(k, s, "dptrain 3: follower connects to driver", handshake) == 0 &&
        tls_key_derive(k, s, "dptrain 3: name of the key", k->naming) == 0 &&
        tls_key_derive(k, s, "dptrain 3: the driver proves its role", seed) == 0 &&
        make_session(k, ssl, handshake) == 0)
        rc = make_driver(k, seed, role);
    OPENSSL_cleanse(handshake, sizeof handshake);
    OPENSSL_cleanse(seed, sizeof seed);
    return rc;
}

void tls_key_fini(struct tls_key *k)
{
    SSL_SESSION_free(k->session); /* wipes the key */
    EVP_PKEY_free(k->driver);
    EVP_MAC_CTX_free(k->mac);
    OPENSSL_cleanse(k, sizeof *k);
}

/* ---- its name ---- */

static int tls_key_put_name(const struct tls_key *k, const uint8_t salt[SALT],
                            uint8_t out[TLS_NAME])
{
    uint8_t mac[TLS_KEY_BYTES];

    if (tls_key_hmac(k->mac, k->naming, salt, SALT, mac) < 0)
        return -1;
    memcpy(out, FORM, FORM_LEN);
    memmove(out + FORM_LEN, salt, SALT);
    memcpy(out + FORM_LEN + SALT, mac, MAC);
    return 0;
}

int tls_key_name(const struct tls_key *k, uint8_t out[TLS_NAME])
{
    uint8_t salt[SALT];

    if (getrandom(salt, sizeof salt, 0) != (ssize_t)sizeof salt)
        return -1;
    return tls_key_put_name(k, salt, out);
}

int tls_key_is_name(const uint8_t *name, size_t len)
{
    return len == TLS_NAME && !memcmp(name, FORM, FORM_LEN);
}

int tls_key_is_of_other_version(const uint8_t *name, size_t len)
{
    return len > strlen(NAMES) && !memcmp(name, NAMES, strlen(NAMES)) &&
           !tls_key_is_name(name, len);
}

int tls_key_is_named(const struct tls_key *k, const uint8_t name[TLS_NAME])
{
    uint8_t mine[TLS_NAME];

    return tls_key_put_name(k, name + FORM_LEN, mine) == 0 &&
           CRYPTO_memcmp(mine, name, TLS_NAME) == 0;
}

/* ---- the driver's proof ---- */

/* A value that only the two ends of this connection know, and that no other connection has. */
static int tls_key_exported(SSL *ssl, uint8_t out[TLS_KEY_BYTES])
{
    static const char label[] = "EXPORTER-dptrain-driver";

    return SSL_export_keying_material(ssl, out, TLS_KEY_BYTES, label, sizeof label - 1, NULL, 0, 0);
}

/* The X25519 of one's private key and the other's public one.  Any 32 bytes are a public key, so
 * OpenSSL is not asked to check it; it refuses a result of zeros. */
static int tls_key_agree(EVP_PKEY *own, EVP_PKEY *other, uint8_t out[TLS_KEY_BYTES])
{
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new(own, NULL);
    size_t n = TLS_KEY_BYTES;
    const int is_done = c && EVP_PKEY_derive_init(c) == 1 &&
                        EVP_PKEY_derive_set_peer_ex(c, other, 0) == 1 &&
                        EVP_PKEY_derive(c, out, &n) == 1 && n == TLS_KEY_BYTES;

    EVP_PKEY_CTX_free(c);
    return is_done ? 0 : -1;
}

static int tls_key_make_proof(const struct tls_key *k, SSL *ssl, EVP_PKEY *own, EVP_PKEY *other,
                              uint8_t out[TLS_PROOF])
{
    uint8_t agreed[TLS_KEY_BYTES], value[TLS_KEY_BYTES];
    int rc = -1;

    if (tls_key_exported(ssl, value) == 1 && tls_key_agree(own, other, agreed) == 0)
        rc = tls_key_hmac(k->mac, agreed, value, sizeof value, out);
    OPENSSL_cleanse(agreed, sizeof agreed);
    return rc;
}

int tls_key_prove(const struct tls_key *k, SSL *ssl, uint8_t out[TLS_PROOF])
{
    EVP_PKEY *theirs = NULL;
    int rc = -1;

    if (SSL_get_peer_tmp_key(ssl, &theirs) == 1)
        rc = tls_key_make_proof(k, ssl, k->driver, theirs, out);
    EVP_PKEY_free(theirs);
    return rc;
}

int tls_key_is_proven(const struct tls_key *k, SSL *ssl, const uint8_t proof[TLS_PROOF])
{
    EVP_PKEY *mine = NULL;
    uint8_t right[TLS_PROOF];
    const int is_right = SSL_get_tmp_key(ssl, &mine) == 1 &&
                         tls_key_make_proof(k, ssl, mine, k->driver, right) == 0 &&
                         CRYPTO_memcmp(right, proof, sizeof right) == 0;

    EVP_PKEY_free(mine);
    return is_right;
}
