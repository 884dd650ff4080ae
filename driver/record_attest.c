/* The record of a run for strangers: record.json, and record.sig if the user gave a key.
 *
 * Both are removed when a run goes on, since they tell of its end.  record.json comes first: a
 * crash between the two leaves a record without signature, which --verify with a key refuses. */
#include "driver/record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "ckpt/generations.h"
#include "ckpt/owner.h"
#include "job/imported.h"
#include "report/attest.h"
#include "report/hashes.h"

static char *attest_path(const struct record *r, const char *name)
{
    return xasprintf("%s/%s", r->dir.path, name);
}

/* *out: SHA-256 of a file of the run; it stays NULL if there is none. */
static int attest_hash(const char *path, char **out, struct err *err)
{
    char hash[SIGNING_SHA256];

    if (access(path, F_OK) < 0)
        return 0;
    if (signing_hash_file(path, hash, err) < 0)
        return err->code;
    *out = xstrdup(hash);
    return 0;
}

static int attest_hash_of_run(const struct record *r, const char *name, char **out, struct err *err)
{
    char *path = attest_path(r, name);
    const int rc = attest_hash(path, out, err);

    free(path);
    return rc;
}

static int attest_rows_of(const struct record *r, struct attest *a, struct err *err)
{
    struct series_table t = {.n_rows = 0};
    int rc = series_read(r->dir.path, &hashes_series, &t, err);

    a->n_rows = t.n_rows;
    a->last_step = t.n_rows > 0 ? series_step(&t, t.n_rows - 1) : 0;
    series_table_fini(&t);
    return rc < 0 ? rc : attest_hash_of_run(r, hashes_series.name, &a->hashes, err);
}

/* Reading the weights takes time where they are large, so only a record that is signed has their
 * hash. */
static int attest_checkpoint(const struct record *r, struct attest *a, struct err *err)
{
    char *folder = generations_folder(r->dir.path), *model, name[GENERATION_NAME];
    struct generation *list = NULL;
    int n = 0, rc = generations_list(folder, &list, &n, err);

    a->checkpoint = n > 0 ? list[0].step : 0;
    free(list);
    if (rc == 0 && r->key && a->checkpoint > 0) {
        generation_name(a->checkpoint, name);
        model = xasprintf("%s/%s/model.safetensors", folder, name);
        log_info("reading %s for the signature", model);
        rc = attest_hash(model, &a->model, err);
        if (rc == 0 && !a->model)
            rc = err_set(err, ERR_IO, "%s is not there", model);
        free(model);
    }
    free(folder);
    return rc;
}

static void attest_plan(const struct record *r, struct attest *a)
{
    const struct job *job = r->job;
    const struct strategy_shares shares = strategy_shares(&job->strategy);

    a->n_ranks = r->n_ranks > 0 ? r->n_ranks : r->options->n_ranks;
    a->device = xstrdup(r->options->device);
    a->strategy = xstrdup(job->strategy.kind->group.name);
    a->n_shares = shares.n;
    a->share_threads = shares.n_threads;
    a->batch = job->train.global_batch;
    a->steps_per_epoch = r->steps_per_epoch;
}

static int attest_fill(const struct record *r, struct attest *a, struct err *err)
{
    char data[HASH_TEXT_LEN], *job = attest_path(r, "job.yaml");
    size_t len;
    int rc;

    hash_to_text(r->data, data);
    *a = (struct attest){.version = xstrdup(DPTRAIN_VERSION), .data = xstrdup(data)};
    attest_plan(r, a);
    rc = attest_read_file(job, &a->job, &len, err);
    free(job);
    if (rc < 0 || attest_hash("/proc/self/exe", &a->program, err) < 0 ||
        attest_hash_of_run(r, IMPORTED_FILE, &a->network, err) < 0 || attest_rows_of(r, a, err) < 0)
        return err->code;
    return attest_checkpoint(r, a, err);
}

static int attest_write(const struct record *r, const char *text, struct err *err)
{
    char *path = attest_path(r, ATTEST_FILE), *sig = attest_path(r, ATTEST_SIGNATURE);
    uint8_t signature[SIGNING_BYTES];
    int rc = run_dir_replace(path, text, strlen(text), err);

    if (rc == 0 && r->key)
        rc = signing_sign(r->key, text, strlen(text), signature, err);
    if (rc == 0 && r->key)
        rc = run_dir_replace(sig, signature, sizeof signature, err);
    free(path);
    free(sig);
    return rc;
}

void record_unattest(const struct record *r)
{
    char *path = attest_path(r, ATTEST_FILE), *sig = attest_path(r, ATTEST_SIGNATURE);

    if (!owner_is_other(r->dir.path)) {
        unlink(sig);
        unlink(path);
    }
    free(path);
    free(sig);
}

void record_attest(struct record *r)
{
    struct attest a = {NULL};
    struct err err;
    char *text;
    int rc;

    if (!r->dir.path || !(r->has_trained || r->is_done) || r->rates || r->steps_per_epoch == 0 ||
        owner_is_other(r->dir.path) || ckpt_check_run_dir(r->dir.path, &err) < 0)
        return;
    rc = attest_fill(r, &a, &err);
    if (rc == 0) {
        text = attest_text(&a);
        rc = attest_write(r, text, &err);
        free(text);
    }
    if (rc < 0)
        log_warn("%s/" ATTEST_FILE " could not be written: %s", r->dir.path, err.msg);
    else if (r->key)
        log_info("%s/" ATTEST_FILE " is signed: " ATTEST_SIGNATURE, r->dir.path);
    attest_fini(&a);
}
