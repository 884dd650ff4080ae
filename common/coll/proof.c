/* proof - writes and checks the messages that proof.h describes.
 *
 * Nothing here reads beyond the fixed size of a message, and the mac is compared before any field
 * is read. */
#include "coll/proof.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

#include "base/util.h"

enum { VERSION = 1, LABEL = 32 };

static const char magic[4] = {'d', 'p', 'L', '1'};

/* ---- the key ---- */

static void add_length(EVP_MD_CTX *h, size_t n)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)n >> (56 - 8 * i));
    ASSERT(EVP_DigestUpdate(h, bytes, sizeof bytes) == 1);
}

void proof_key(const void *const *blobs, const size_t *lens, int n, uint8_t out[PROOF_KEY])
{
    static const char label[LABEL] = "dptrain formation key 1";
    EVP_MD_CTX *h = EVP_MD_CTX_new();

    ASSERT(h && EVP_DigestInit_ex(h, EVP_sha256(), NULL) == 1);
    ASSERT(EVP_DigestUpdate(h, label, sizeof label) == 1);
    for (int i = 0; i < n; i++) {
        add_length(h, lens[i]);
        ASSERT(EVP_DigestUpdate(h, blobs[i], lens[i]) == 1);
    }
    ASSERT(EVP_DigestFinal_ex(h, out, NULL) == 1);
    EVP_MD_CTX_free(h);
}

/* The mac of the first n bytes that were said. */
static void mac_of(const struct proof *p, const char *label, size_t n, uint8_t out[PROOF_MAC])
{
    uint8_t text[LABEL + sizeof p->said] = {0};
    unsigned len = PROOF_MAC;

    memcpy(text, label, strlen(label));
    memcpy(text + LABEL, p->said, n);
    ASSERT(HMAC(EVP_sha256(), p->key, PROOF_KEY, text, LABEL + n, out, &len) && len == PROOF_MAC);
}

static int is_mac(const struct proof *p, const char *label, size_t n, const uint8_t mac[PROOF_MAC])
{
    uint8_t want[PROOF_MAC];

    mac_of(p, label, n, want);
    return CRYPTO_memcmp(want, mac, PROOF_MAC) == 0;
}

/* ---- messages ---- */

static const char of_hello[] = "dptrain link: hello";
static const char of_answer[] = "dptrain link: answer";
static const char of_fresh[] = "dptrain link: fresh";
static const char of_link[] = "dptrain link: key";

static void proof_put16(uint8_t *at, int v)
{
    at[0] = (uint8_t)((unsigned)v >> 8);
    at[1] = (uint8_t)v;
}

static int proof_get16(const uint8_t *at) { return at[0] << 8 | at[1]; }

static void put_header(uint8_t *at, int from, int to, const struct proof_link *l)
{
    memset(at, 0, PROOF_HEADER);
    memcpy(at, magic, sizeof magic);
    proof_put16(at + 4, VERSION);
    proof_put16(at + 6, from);
    proof_put16(at + 8, to);
    at[10] = (uint8_t)l->channel;
    at[11] = (uint8_t)l->mode;
}

/* The message at `at` of p->said, from its header to its mac. */
static int write_message(struct proof *p, size_t at, const char *label, int from, int to,
                         struct err *err)
{
    uint8_t *m = p->said + at;

    put_header(m, from, to, &p->link);
    if (getrandom(m + PROOF_HEADER, PROOF_NONCE, 0) != PROOF_NONCE)
        return err_sys(err, errno, "random numbers");
    mac_of(p, label, at + PROOF_HEADER + PROOF_NONCE, m + PROOF_HEADER + PROOF_NONCE);
    return 0;
}

/* Copy a message of the peer to p->said.  1: its mac is right. */
static int proof_take_message(struct proof *p, size_t at, const char *label, const uint8_t *message)
{
    memcpy(p->said + at, message, PROOF_HELLO);
    return is_mac(p, label, at + PROOF_HEADER + PROOF_NONCE, message + PROOF_HEADER + PROOF_NONCE);
}

static const char *mode_name(int mode) { return mode == PROOF_TLS ? "encrypted" : "plain"; }

static int check_mode(int seen, enum proof_mode want, int rank, struct err *err)
{
    if (seen == (int)want)
        return 0;
    return err_set(
        err, ERR_PROTO,
        "rank %d wants %s links, this rank %s ones: they differ in cluster.encrypt or in "
        "--secret-file",
        rank, mode_name(seen), mode_name((int)want));
}

int proof_dial(struct proof *p, const uint8_t key[PROOF_KEY], struct proof_link link,
               uint8_t hello[PROOF_HELLO], struct err *err)
{
    int rc;

    *p = (struct proof){0};
    memcpy(p->key, key, PROOF_KEY);
    p->link = link;
    rc = write_message(p, 0, of_hello, link.from, link.to, err);
    memcpy(hello, p->said, PROOF_HELLO);
    return rc;
}

int proof_read_hello(struct proof *p, const uint8_t key[PROOF_KEY], int self, int size,
                     enum proof_mode mode, const uint8_t hello[PROOF_HELLO], struct err *err)
{
    uint8_t want[PROOF_HEADER];

    *p = (struct proof){0};
    memcpy(p->key, key, PROOF_KEY);
    if (!proof_take_message(p, 0, of_hello, hello))
        return PROOF_STRANGER;
    p->link = (struct proof_link){.from = proof_get16(hello + 6),
                                  .to = self,
                                  .channel = (enum coll_channel)hello[10],
                                  .mode = (enum proof_mode)hello[11]};
    put_header(want, p->link.from, self, &p->link);
    if (memcmp(hello, want, PROOF_HEADER) != 0 || p->link.from <= self || p->link.from >= size ||
        hello[10] >= COLL_CHANNELS)
        return PROOF_STRANGER;
    p->link.mode = mode; /* the answer contains the mode that this rank wants */
    return check_mode(hello[11], mode, p->link.from, err);
}

int proof_answer(struct proof *p, uint8_t answer[PROOF_ANSWER], struct err *err)
{
    const int rc = write_message(p, PROOF_HELLO, of_answer, p->link.to, p->link.from, err);

    memcpy(answer, p->said + PROOF_HELLO, PROOF_ANSWER);
    return rc;
}

int proof_read_answer(struct proof *p, const uint8_t answer[PROOF_ANSWER], struct err *err)
{
    uint8_t want[PROOF_HEADER];

    if (!proof_take_message(p, PROOF_HELLO, of_answer, answer))
        return PROOF_STRANGER;
    put_header(want, p->link.to, p->link.from, &p->link);
    want[11] = answer[11];
    if (memcmp(answer, want, PROOF_HEADER) != 0)
        return PROOF_STRANGER;
    return check_mode(answer[11], p->link.mode, p->link.to, err);
}

void proof_fresh(const struct proof *p, uint8_t fresh[PROOF_FRESH])
{
    mac_of(p, of_fresh, sizeof p->said, fresh);
}

int proof_read_fresh(const struct proof *p, const uint8_t fresh[PROOF_FRESH])
{
    return is_mac(p, of_fresh, sizeof p->said, fresh) ? 0 : PROOF_STRANGER;
}

void proof_link_key(const struct proof *p, uint8_t out[PROOF_KEY])
{
    mac_of(p, of_link, sizeof p->said, out);
}

void proof_wipe(struct proof *p) { OPENSSL_cleanse(p, sizeof *p); }
