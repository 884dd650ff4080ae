/* Tests of record.json and its signature: what is written is read again; anything else is refused,
 * and names the key.  A signature holds for its bytes and its key alone. */
#include "../test.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "folder.h"
#include "net/signing.h"
#include "report/attest.h"

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

#define TEXT(text) ((char *)(text)) /* only read */

static struct attest sample(void)
{
    return (struct attest){.version = TEXT("1.2"),
                           .program = TEXT(HASH),
                           .job = TEXT("train:\n  seed: 1\n"),
                           .data = TEXT("0123456789abcdef0123456789abcdef"),
                           .n_ranks = 4,
                           .device = TEXT("cpu"),
                           .strategy = TEXT("allreduce"),
                           .n_shares = 8,
                           .share_threads = 1,
                           .batch = 64,
                           .steps_per_epoch = 8,
                           .n_rows = 3,
                           .last_step = 24,
                           .hashes = TEXT(HASH),
                           .checkpoint = 24};
}

static void test_round_trip(void **state)
{
    const struct attest a = sample();
    struct attest b;
    struct err err;
    char *text = attest_text(&a), *again;

    (void)state;
    assert_int_equal(attest_parse(text, strlen(text), &b, &err), 0);
    assert_string_equal(b.job, a.job);
    assert_string_equal(b.hashes, HASH);
    assert_null(b.network);
    assert_null(b.model);
    assert_int_equal(b.n_shares, 8);
    assert_int_equal(b.last_step, 24);
    again = attest_text(&b);
    assert_string_equal(again, text);
    attest_fini(&b);
    free(again);
    free(text);
}

/* Each row: what stands in the text, what stands there instead, and what the message says. */
static void test_refused(void **state)
{
    static const char *const rows[][3] = {
        {"\"format\": 1", "\"format\": 2", "format is 2, want 1"},
        {"\"ranks\": 4", "\"ranks\": -4", "plan.ranks: want a number"},
        {"\"ranks\": 4", "\"ranks\": \"4\"", "plan.ranks: want a number"},
        {"\"ranks\": 4", "\"rank\": 4", "plan.ranks: want a number"},
        {"\"step\": 24", "\"step\": 9223372036854775807", "hashes.step: want a number"},
        {"\"device\": \"cpu\"", "\"device\": 1", "plan.device: want a line of printable ASCII"},
        {"\"device\": \"cpu\"", "\"device\": \"c\\npu\"", "plan.device: want a line"},
        {"\"version\": \"1", "\"version\": \"\\u001b[8m1", "program.version: want a line"},
        {"\"fingerprint\": \"0", "\"fingerprint\": \"", "data.fingerprint: want 32 hex digits"},
        {"\"fingerprint\": \"0", "\"fingerprint\": \"g", "data.fingerprint: want 32 hex digits"},
        {"\"sha256\": \"0", "\"sha256\": \"G", "program.sha256: want 64 hex digits"},
        {"{", "", "line 2"},
        {"\"shards\": 8", "\"ranks\": 8", "duplicate"},
    };
    const struct attest a = sample();
    char *text = attest_text(&a);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *at = strstr(text, rows[i][0]);
        struct attest b;
        struct err err;
        char *bad;

        assert_non_null(at);
        bad = xasprintf("%.*s%s%s", (int)(at - text), text, rows[i][1], at + strlen(rows[i][0]));
        assert_int_equal(attest_parse(bad, strlen(bad), &b, &err), ERR_CORRUPT);
        if (!strstr(err.msg, rows[i][2]))
            fail_msg("row %zu: %s", i, err.msg);
        free(bad);
    }
    free(text);
}

/* Write a new key of this kind, NAME, and its public half, NAME.pub. */
static void make_key(const char *kind, const char *name)
{
    EVP_PKEY *k = EVP_PKEY_Q_keygen(NULL, NULL, kind);
    char *public = xasprintf("%s.pub", name);
    FILE *f = fopen(name, "w"), *g = fopen(public, "w");

    assert_true(k && f && g);
    assert_int_equal(PEM_write_PrivateKey(f, k, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(PEM_write_PUBKEY(g, k), 1);
    fclose(f);
    fclose(g);
    assert_int_equal(chmod(name, 0600), 0);
    EVP_PKEY_free(k);
    free(public);
}

static void test_signature(void **state)
{
    uint8_t signature[SIGNING_BYTES];
    struct signing_key *key, *public, *other;
    struct err err;

    (void)state;
    make_key("ED25519", "one");
    make_key("ED25519", "two");
    assert_int_equal(signing_open_private("one", &key, &err), 0);
    assert_int_equal(signing_open_public("one.pub", &public, &err), 0);
    assert_int_equal(signing_open_public("two.pub", &other, &err), 0);
    assert_int_equal(signing_sign(key, "abc", 3, signature, &err), 0);
    assert_true(signing_is_valid(public, "abc", 3, signature, sizeof signature));
    assert_false(signing_is_valid(other, "abc", 3, signature, sizeof signature));
    assert_false(signing_is_valid(public, "abd", 3, signature, sizeof signature));
    assert_false(signing_is_valid(public, "abc", 2, signature, sizeof signature));
    assert_false(signing_is_valid(public, "abc", 3, signature, sizeof signature - 1));
    assert_false(signing_is_valid(public, "abc", 3, signature, 0));
    signature[7] ^= 1;
    assert_false(signing_is_valid(public, "abc", 3, signature, sizeof signature));
    signing_key_free(key);
    signing_key_free(public);
    signing_key_free(other);
}

static void refuse_key(int is_private, const char *path, const char *why)
{
    struct signing_key *key;
    struct err err;
    const int rc =
        is_private ? signing_open_private(path, &key, &err) : signing_open_public(path, &key, &err);

    assert_true(rc < 0);
    if (!strstr(err.msg, why))
        fail_msg("%s: %s", path, err.msg);
}

static void test_keys(void **state)
{
    (void)state;
    make_key("ED25519", "one");
    make_key("X25519", "foreign");
    write_text("text", "no key\n");
    assert_int_equal(chmod("text", 0600), 0);
    refuse_key(1, "missing", "key missing");
    refuse_key(1, "text", "want an Ed25519 private key");
    refuse_key(1, "one.pub", "its mode is");
    refuse_key(1, ".", "want a file");
    refuse_key(1, "foreign", "want an Ed25519 private key");
    refuse_key(0, "foreign.pub", "want an Ed25519 public key");
    refuse_key(0, "one", "want an Ed25519 public key");
    refuse_key(0, "text", "want an Ed25519 public key");
    assert_int_equal(chmod("one", 0640), 0);
    refuse_key(1, "one", "its mode is 0640, so others may read it");
}

static void test_hash(void **state)
{
    char hash[SIGNING_SHA256];
    struct err err;

    (void)state;
    write_text("abc", "abc"); /* FIPS 180-2, appendix B.1 */
    assert_int_equal(signing_hash_file("abc", hash, &err), 0);
    assert_string_equal(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(signing_hash_file("missing", hash, &err), ERR_IO);
    assert_int_equal(signing_hash_file(".", hash, &err), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refused),
        cmocka_unit_test_setup_teardown(test_signature, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_keys, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_hash, folder_setup, folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
