/* seal - OpenSSL's side of messages over a fabric: the secret of two ranks, the keys that follow
 * from it, and AES-128-GCM, which reads the bytes of plain links without changing them. */
#include "coll/fabric/seal.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "coll/cipher.h"

enum {
    NONCE = 12,
    KIND_AT = 2,
    NUMBER_AT = 8,
    /* The key changes after 2^20 messages, of 64 KiB at most: 2^32 blocks.  One key should not
     * encrypt more than some 2^34 (RFC 8446, section 5.5). */
    AGE_SHIFT = 20,
};

struct seal {
    EVP_CIPHER_CTX *ctx;
    int is_opener, hides;
    uint64_t age; /* of the key in ctx: numbers >> AGE_SHIFT */
    uint8_t key[SEAL_KEY];
};

static int seal_failed(const char *what, struct err *err)
{
    return err_set(err, ERR_DEVICE, "OpenSSL: %s: %s", what, cipher_why());
}

int seal_own_new(EVP_PKEY **out, uint8_t public_half[SEAL_PUBLIC], struct err *err)
{
    EVP_PKEY *own = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    size_t len = SEAL_PUBLIC;

    if (own && EVP_PKEY_get_raw_public_key(own, public_half, &len) == 1 && len == SEAL_PUBLIC) {
        *out = own;
        return 0;
    }
    EVP_PKEY_free(own);
    return seal_failed("making a key of X25519", err);
}

/* The secret that both ranks can compute, and nobody else. */
static int seal_agree(EVP_PKEY *own, const uint8_t peer[SEAL_PUBLIC], uint8_t secret[SEAL_PUBLIC],
                      struct err *err)
{
    EVP_PKEY *other = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, peer, SEAL_PUBLIC);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(own, NULL);
    size_t len = SEAL_PUBLIC;
    const int ok = other && ctx && EVP_PKEY_derive_init(ctx) == 1 &&
                   EVP_PKEY_derive_set_peer(ctx, other) == 1 &&
                   EVP_PKEY_derive(ctx, secret, &len) == 1 && len == SEAL_PUBLIC;

    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(other);
    if (ok)
        return 0;
    return err_set(err, ERR_PROTO, "no secret follows from its half: %s", cipher_why());
}

int seal_key(EVP_PKEY *own, const uint8_t peer[SEAL_PUBLIC], const uint8_t formation[PROOF_KEY],
             struct proof_link link, uint8_t out[SEAL_KEY], struct err *err)
{
    static const char label[32] = "dptrain fabric: messages";
    uint8_t text[sizeof label + 6 + SEAL_PUBLIC], mac[PROOF_MAC];
    uint8_t *at = text + sizeof label;
    unsigned len = sizeof mac;

    memcpy(text, label, sizeof label);
    at[0] = (uint8_t)(link.from >> 8), at[1] = (uint8_t)link.from;
    at[2] = (uint8_t)(link.to >> 8), at[3] = (uint8_t)link.to;
    at[4] = (uint8_t)link.channel, at[5] = (uint8_t)link.mode;
    if (seal_agree(own, peer, at + 6, err) < 0)
        return err->code;
    ASSERT(HMAC(EVP_sha256(), formation, PROOF_KEY, text, sizeof text, mac, &len) &&
           len == sizeof mac);
    memcpy(out, mac, SEAL_KEY);
    OPENSSL_cleanse(text, sizeof text);
    OPENSSL_cleanse(mac, sizeof mac);
    return 0;
}

/* Make the key of this age the one that is used. */
static int seal_turn(struct seal *s, uint64_t age)
{
    uint8_t text[8], mac[PROOF_MAC];
    unsigned len = sizeof mac;
    int ok;

    for (int i = 0; i < 8; i++)
        text[i] = (uint8_t)(age >> (56 - 8 * i));
    ok = HMAC(EVP_sha256(), s->key, SEAL_KEY, text, sizeof text, mac, &len) != NULL &&
         EVP_CipherInit_ex(s->ctx, EVP_aes_128_gcm(), NULL, mac, NULL, !s->is_opener) == 1;
    OPENSSL_cleanse(mac, sizeof mac);
    s->age = age;
    return ok;
}

int seal_new(const uint8_t key[SEAL_KEY], int is_opener, int hides, struct seal **out,
             struct err *err)
{
    struct seal *s = xcalloc(1, sizeof *s);

    s->is_opener = is_opener;
    s->hides = hides;
    memcpy(s->key, key, SEAL_KEY);
    s->ctx = EVP_CIPHER_CTX_new();
    if (s->ctx && seal_turn(s, 0)) {
        *out = s;
        return 0;
    }
    seal_free(s);
    return seal_failed("preparing AES-128-GCM", err);
}

void seal_free(struct seal *s)
{
    if (!s)
        return;
    EVP_CIPHER_CTX_free(s->ctx);
    OPENSSL_cleanse(s, sizeof *s);
    free(s);
}

/* Pass the head and the bytes through the cipher.  A seal that does not hide only reads them. */
static int seal_pass(struct seal *s, const uint8_t head[SEAL_HEAD], uint8_t *data, size_t n)
{
    uint8_t nonce[NONCE] = {head[KIND_AT]};
    uint64_t age = 0;
    int got;

    memcpy(nonce + NONCE - 8, head + NUMBER_AT, 8);
    for (int i = 0; i < 8; i++)
        age = age << 8 | head[NUMBER_AT + i];
    age >>= AGE_SHIFT;
    return (age == s->age || seal_turn(s, age)) &&
           EVP_CipherInit_ex(s->ctx, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(s->ctx, NULL, &got, head, SEAL_HEAD) == 1 &&
           (!n || EVP_CipherUpdate(s->ctx, s->hides ? data : NULL, &got, data, (int)n) == 1);
}

void seal_close(struct seal *s, const uint8_t head[SEAL_HEAD], uint8_t *data, size_t n,
                uint8_t mark[SEAL_MARK])
{
    uint8_t none[16];
    int got;

    ASSERT(!s->is_opener && seal_pass(s, head, data, n) &&
           EVP_CipherFinal_ex(s->ctx, none, &got) == 1 && got == 0 &&
           EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, SEAL_MARK, mark) == 1);
}

int seal_open(struct seal *s, const uint8_t head[SEAL_HEAD], uint8_t *data, size_t n,
              const uint8_t mark[SEAL_MARK])
{
    uint8_t want[SEAL_MARK], none[16];
    int got, ok;

    ASSERT(s->is_opener);
    memcpy(want, mark, sizeof want);
    ok = seal_pass(s, head, data, n) &&
         EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_SET_TAG, SEAL_MARK, want) == 1 &&
         EVP_CipherFinal_ex(s->ctx, none, &got) == 1;
    if (!ok)
        ERR_clear_error();
    return ok;
}
