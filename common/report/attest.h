/* attest - record.json: what a run was, so that a stranger can check it.
 *
 *   {"format": 1, "program": {"version", "sha256"}, "job": {"yaml"}, "network": {"sha256"},
 *    "data": {"fingerprint"}, "plan": {"ranks", "device", "strategy", ...},
 *    "hashes": {"rows", "step", "sha256"}, "checkpoint": {"step", "model_sha256"}}
 *
 * record.sig beside it has the signature of its bytes (net/signing.h), if it is signed: 64
 * bytes, as "openssl pkeyutl -verify -rawin" takes them.
 *
 * Life:    attest_parse -> its members -> attest_fini; or members that the caller owns ->
 *          attest_text.
 * Threads: any; no state.
 * Errors:  ERR_CORRUPT, which says what was seen and wanted. */
#ifndef REPORT_ATTEST_H
#define REPORT_ATTEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define ATTEST_FILE      "record.json"
#define ATTEST_SIGNATURE "record.sig"

enum { ATTEST_MOST_BYTES = 64 << 20 };

struct attest {
    char *version, *program;         /* of dpdriver; SHA-256 of its file */
    char *job;                       /* job.yaml */
    char *network;                   /* SHA-256 of network.bin; NULL: there is none */
    char *data;                      /* the fingerprint of both sets, 32 hex digits */
    int64_t n_ranks;                 /* at the end */
    char *device;                    /* rank 0's */
    char *strategy;                  /* its name */
    int64_t n_shares, share_threads; /* strategy.shards; 0: none */
    int64_t batch, steps_per_epoch;
    int64_t n_rows, last_step; /* of hashes.csv */
    char *hashes;              /* its SHA-256; NULL: there is none */
    int64_t checkpoint;        /* the step of the newest one; 0: none */
    char *model;               /* SHA-256 of its model.safetensors; NULL: not told */
};

/* The bytes of a file of a run, for free(), with a zero behind them.  Fails with ERR_IO, ERR_NOMEM,
 * and with ERR_CORRUPT if there are more than ATTEST_MOST_BYTES. */
int attest_read_file(const char *path, char **out, size_t *len, struct err *err);

/* The text of record.json, for free(). */
char *attest_text(const struct attest *a);
/* Read such a text, which may be anything. */
int attest_parse(const char *text, size_t len, struct attest *out, struct err *err);
void attest_fini(struct attest *a);

#endif
