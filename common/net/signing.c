/* signing - libcrypto does all of it.  A key that has a passphrase is refused: a driver cannot ask
 * for it when its job ends. */
#include "net/signing.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

struct signing_key {
    EVP_PKEY *pkey;
};

/* ---- keys ---- */

static int signing_no_passphrase(char *buf, int size, int is_written, void *arg)
{
    (void)buf;
    (void)size;
    (void)is_written;
    (void)arg;
    return -1;
}

/* Open the file without waiting for a FIFO's other end. */
static int signing_open_file(const char *path, int is_private, FILE **out, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    int rc = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        rc = err_set(err, ERR_CONFIG, "key %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = err_set(err, ERR_CONFIG, "key %s: want a file", path);
    else if (is_private && (st.st_mode & (S_IRWXG | S_IRWXO)))
        rc = err_set(err, ERR_CONFIG,
                     "key %s: its mode is %04o, so others may read it; want 0600 (\"chmod 600\")",
                     path, (unsigned)st.st_mode & 07777);
    if (rc == 0)
        *out = fdopen(fd, "r");
    if (rc == 0 && !*out)
        rc = err_sys(err, errno, "key %s", path);
    if (rc < 0 && fd >= 0)
        close(fd);
    return rc;
}

static int signing_open(const char *path, int is_private, struct signing_key **out, struct err *err)
{
    EVP_PKEY *pkey;
    FILE *f;

    if (signing_open_file(path, is_private, &f, err) < 0)
        return err->code;
    pkey = is_private ? PEM_read_PrivateKey(f, NULL, signing_no_passphrase, NULL)
                      : PEM_read_PUBKEY(f, NULL, signing_no_passphrase, NULL);
    fclose(f);
    if (!pkey || EVP_PKEY_get_id(pkey) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(pkey);
        return err_set(
            err, ERR_CONFIG, "key %s: want an Ed25519 %s key as PEM%s (\"openssl %s\" makes one)",
            path, is_private ? "private" : "public", is_private ? ", without a passphrase" : "",
            is_private ? "genpkey -algorithm ed25519 -out KEY"
                       : "pkey -in KEY -pubout -out PUBLIC");
    }
    *out = xmalloc(sizeof **out);
    (*out)->pkey = pkey;
    return 0;
}

int signing_open_private(const char *path, struct signing_key **out, struct err *err)
{
    return signing_open(path, 1, out, err);
}

int signing_open_public(const char *path, struct signing_key **out, struct err *err)
{
    return signing_open(path, 0, out, err);
}

void signing_key_free(struct signing_key *k)
{
    if (k)
        EVP_PKEY_free(k->pkey); /* wipes it */
    free(k);
}

/* ---- signatures ---- */

int signing_sign(struct signing_key *k, const void *data, size_t n_bytes,
                 uint8_t out[SIGNING_BYTES], struct err *err)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    size_t n = SIGNING_BYTES;
    const int is_done = c && EVP_DigestSignInit(c, NULL, NULL, NULL, k->pkey) == 1 &&
                        EVP_DigestSign(c, out, &n, data, n_bytes) == 1 && n == SIGNING_BYTES;

    EVP_MD_CTX_free(c);
    return is_done ? 0 : err_set(err, ERR_CONFIG, "the key does not sign");
}

int signing_is_valid(struct signing_key *k, const void *data, size_t n_bytes,
                     const uint8_t *signature, size_t n_signature)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    const int is_valid = c && n_signature == SIGNING_BYTES &&
                         EVP_DigestVerifyInit(c, NULL, NULL, NULL, k->pkey) == 1 &&
                         EVP_DigestVerify(c, signature, n_signature, data, n_bytes) == 1;

    EVP_MD_CTX_free(c);
    return is_valid;
}

/* ---- SHA-256 ---- */

static int signing_read_all(int fd, EVP_MD_CTX *c)
{
    enum { PIECE = 1 << 16 };
    uint8_t *piece = xmalloc(PIECE);
    ssize_t n;

    while ((n = read(fd, piece, PIECE)) > 0)
        if (EVP_DigestUpdate(c, piece, (size_t)n) != 1)
            break;
    free(piece);
    return n == 0;
}

int signing_hash_file(const char *path, char out[SIGNING_SHA256], struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    uint8_t hash[EVP_MAX_MD_SIZE];
    struct stat st;
    unsigned n = 0;
    int is_done;

    if (fd < 0) {
        EVP_MD_CTX_free(c);
        return err_sys(err, errno, "%s", path);
    }
    errno = EIO;
    is_done = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && c &&
              EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1 && signing_read_all(fd, c) &&
              EVP_DigestFinal_ex(c, hash, &n) == 1;
    if (!is_done)
        err_sys(err, errno, "SHA-256 of %s", path);
    close(fd);
    EVP_MD_CTX_free(c);
    if (!is_done)
        return err->code;
    for (unsigned i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", hash[i]);
    return 0;
}
