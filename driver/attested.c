/* attested - first the signature, then the files, then the steps: what is cheap comes first, and
 * nothing is computed of a run whose files are not those of its record.
 *
 * Steps are computed as --replay does it (driver/replay.h), the newest first: one whose rows were
 * compared on the way to a newer one is not computed once more.
 *
 * Failure modes: there is no record, as the run trains or its driver was killed; a step cannot be
 * computed, which ends the check; a signal. */
#include "driver/attested.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/util.h"
#include "driver/again.h"
#include "driver/ask.h"
#include "driver/replay.h"
#include "job/imported.h"
#include "job/job.h"
#include "net/signing.h"
#include "report/attest.h"
#include "report/hashes.h"

enum { ATTESTED_STEPS = 3, ATTESTED_MOST_STEPS = 1000 };

enum attested_signature { SIG_NONE, SIG_UNCHECKED, SIG_VALID, SIG_WRONG, SIG_MISSING };

static const char *const signature_words[] = {"none", "unchecked", "valid", "wrong", "missing"};

struct attested {
    const struct options *options;
    char *run;
    struct attest record;
    enum attested_signature signature;
    int is_same_program;
    char program[SIGNING_SHA256]; /* this one's */
    uint64_t seed;
    int64_t step[ATTESTED_MOST_STEPS];
    int n_steps;
    json_t *files, *steps; /* names of files that differ; the outcomes of steps */
    int n_wrong;           /* steps that differ, or have nothing to be compared with */
};

int attested_is_run(const char *text)
{
    char *named = xasprintf("runs/%s", text);
    const int is = *text && (!isdigit((unsigned char)*text) || access(text, F_OK) == 0 ||
                             access(named, F_OK) == 0);

    free(named);
    return is;
}

/* ---- record and signature ---- */

static char *attested_path(const struct attested *v, const char *name)
{
    return xasprintf("%s/%s", v->run, name);
}

/* The signature is that of the key.  Nothing that goes wrong here ends as valid. */
static int attested_check_signature(struct attested *v, const char *text, size_t len,
                                    struct err *err)
{
    char *path = attested_path(v, ATTEST_SIGNATURE), *signature = NULL;
    struct signing_key *key = NULL;
    const int is_there = access(path, F_OK) == 0;
    size_t n = 0;
    int rc = 0;

    v->signature = is_there ? SIG_UNCHECKED : SIG_NONE;
    if (v->options->key) {
        v->signature = is_there ? SIG_WRONG : SIG_MISSING;
        rc = signing_open_public(v->options->key, &key, err);
    }
    if (key && is_there)
        rc = attest_read_file(path, &signature, &n, err);
    if (signature && signing_is_valid(key, text, len, (const uint8_t *)signature, n))
        v->signature = SIG_VALID;
    free(signature);
    signing_key_free(key);
    free(path);
    return rc;
}

static int attested_read(struct attested *v, struct err *err)
{
    char *path = attested_path(v, ATTEST_FILE), *text = NULL;
    size_t len = 0;
    int rc;

    if (access(path, F_OK) < 0)
        rc = err_set(err, ERR_CONFIG,
                     "%s is not there; a run writes it at its end, so this one trains, or its "
                     "driver was killed (--resume goes on with it)",
                     path);
    else
        rc = attest_read_file(path, &text, &len, err);
    if (rc == 0 && attest_parse(text, len, &v->record, err) < 0)
        rc = err_wrap(err, "%s", path);
    if (rc == 0)
        rc = attested_check_signature(v, text, len, err);
    if (rc == 0)
        rc = signing_hash_file("/proc/self/exe", v->program, err);
    if (rc == 0)
        v->is_same_program = !strcmp(v->program, v->record.program);
    free(text);
    free(path);
    return rc;
}

/* ---- files ---- */

static void attested_blame(struct attested *v, const char *file, const char *why)
{
    json_t *o = json_object();

    json_object_set_new(o, "file", json_string(file));
    json_object_set_new(o, "why", json_string(why));
    json_array_append_new(v->files, o);
}

/* wanted: NULL: the run has no such file. */
static void attested_check_hash(struct attested *v, const char *name, const char *wanted)
{
    char *path = attested_path(v, name), hash[SIGNING_SHA256];
    struct err err;

    if (access(path, F_OK) < 0) {
        if (wanted)
            attested_blame(v, name, "it is not there");
    } else if (!wanted) {
        attested_blame(v, name, "the record has no such file");
    } else if (signing_hash_file(path, hash, &err) < 0) {
        attested_blame(v, name, err.msg);
    } else if (strcmp(hash, wanted) != 0) {
        attested_blame(v, name, "its SHA-256 is not the recorded one");
    }
    free(path);
}

static void attested_check_job(struct attested *v)
{
    static const char name[] = "job.yaml";
    char *path = attested_path(v, name), *text = NULL;
    struct err err;
    size_t len = 0;

    if (attest_read_file(path, &text, &len, &err) < 0)
        attested_blame(v, name, err.msg);
    else if (strlen(v->record.job) != len || memcmp(v->record.job, text, len) != 0)
        attested_blame(v, name, "it is not the recorded job");
    free(text);
    free(path);
}

/* The plan follows from the job. */
static void attested_check_plan(struct attested *v)
{
    const struct attest *a = &v->record;
    char *path = attested_path(v, "job.yaml");
    struct job *job = NULL;
    struct err err;

    if (job_load(path, NULL, 0, &job, &err) < 0) {
        attested_blame(v, "job.yaml", err.msg);
    } else {
        const struct strategy_shares shares = strategy_shares(&job->strategy);

        if (strcmp(a->strategy, job->strategy.kind->group.name) != 0 || a->n_shares != shares.n ||
            a->share_threads != shares.n_threads || a->batch != job->train.global_batch)
            attested_blame(v, ATTEST_FILE, "its plan is not that of its job");
        job_free(job);
    }
    free(path);
}

/* Steps are drawn from the rows that the record tells of. */
static void attested_check_rows(struct attested *v)
{
    struct series_table t = {.n_rows = 0};
    struct err err;

    if (series_read(v->run, &hashes_series, &t, &err) < 0)
        attested_blame(v, hashes_series.name, err.msg);
    else if (t.n_rows != v->record.n_rows ||
             (t.n_rows > 0 ? series_step(&t, t.n_rows - 1) : 0) != v->record.last_step)
        attested_blame(v, ATTEST_FILE, "it tells of other rows than hashes.csv has");
    series_table_fini(&t);
}

static void attested_check_files(struct attested *v)
{
    char *model =
        xasprintf("checkpoints/step-%08lld/model.safetensors", (long long)v->record.checkpoint);

    attested_check_job(v);
    attested_check_plan(v);
    attested_check_hash(v, IMPORTED_FILE, v->record.network);
    attested_check_hash(v, hashes_series.name, v->record.hashes);
    attested_check_rows(v);
    if (v->record.model)
        attested_check_hash(v, model, v->record.model);
    else if (v->options->key && v->record.checkpoint > 0)
        attested_blame(v, ATTEST_FILE, "it has no hash of the weights, as signed ones have");
    free(model);
}

/* ---- steps ---- */

static int attested_later_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) - (x > y);
}

static int attested_has(const struct attested *v, int64_t step)
{
    for (int i = 0; i < v->n_steps; i++)
        if (v->step[i] == step)
            return 1;
    return 0;
}

static int attested_seed(struct attested *v, struct err *err)
{
    v->seed = (uint64_t)v->options->sample_seed;
    if (args_has(&v->options->args, "seed"))
        return 0;
    if (getrandom(&v->seed, sizeof v->seed, 0) != (ssize_t)sizeof v->seed)
        return err_set(err, ERR_IO, "no random bytes for a seed; --seed gives one");
    v->seed >>= 64 - 53; /* what --seed takes */
    return 0;
}

/* Each step of hashes.csv is as likely as any other. */
static int attested_draw(struct attested *v, struct err *err)
{
    const int64_t wanted = v->options->step ? v->options->step : ATTESTED_STEPS;
    const int64_t n = min_i64(wanted, v->record.last_step);
    struct rng_stream s;

    if (wanted > ATTESTED_MOST_STEPS)
        return err_set(err, ERR_ARG, "--step is %lld, want at most %d steps", (long long)wanted,
                       ATTESTED_MOST_STEPS);
    if (attested_seed(v, err) < 0)
        return err->code;
    rng_stream_init(&s, v->seed, RNG_AUDIT, 0);
    while (v->n_steps < n) {
        const int64_t step = 1 + (int64_t)rng_next_below(&s, (uint64_t)v->record.last_step);

        if (!attested_has(v, step))
            v->step[v->n_steps++] = step;
    }
    qsort(v->step, (size_t)v->n_steps, sizeof *v->step, attested_later_first);
    return 0;
}

static void attested_add(struct attested *v, int64_t step, const struct replayed *r)
{
    const int is_other = strcmp(r->data, v->record.data) != 0;
    const int is_same = !is_other && r->differs_at == 0 && r->n_same > 0;
    char *how = r->how ? xstrdup(r->how) : NULL; /* it has fields of the run's files */
    json_t *o = json_object();

    if (how)
        text_clean(how);
    json_object_set_new(o, "step", json_integer(step));
    json_object_set_new(o, "from", json_integer(r->from));
    json_object_set_new(o, "to", json_integer(r->to));
    json_object_set_new(o, "rows", json_integer(r->n_same));
    json_object_set_new(o, "same", json_boolean(is_same));
    json_object_set_new(o, "differs_at", r->differs_at ? json_integer(r->differs_at) : json_null());
    json_object_set_new(o, "how",
                        is_other  ? json_string("the data are others, by their fingerprint")
                        : how     ? json_string(how)
                        : is_same ? json_null()
                                  : json_string("there is no row to compare with"));
    json_array_append_new(v->steps, o);
    v->n_wrong += !is_same;
    free(how);
}

static int attested_compute(struct attested *v, struct err *err)
{
    struct again a = {.folder = NULL};
    struct replayed r = {.from = INT64_MAX};
    int rc = again_init(&a, v->options, v->options->run_dir, v->run, err);

    for (int i = 0; i < v->n_steps && rc == 0; i++) {
        char *name = xasprintf("step-%lld", (long long)v->step[i]);

        if (v->step[i] <= r.from) { /* else it lies within the steps computed last */
            free(r.how);
            rc = replay_step(v->options, v->run, v->step[i], &a, name, &r, err);
        }
        if (rc == 0)
            attested_add(v, v->step[i], &r);
        else
            err_wrap(err, "step %lld", (long long)v->step[i]);
        again_drop(&a, name);
        free(name);
    }
    free(r.how);
    again_fini(&a);
    return rc;
}

/* ---- telling ---- */

static int attested_is_trusted(const struct attested *v)
{
    return v->signature != SIG_WRONG && v->signature != SIG_MISSING;
}

static int attested_is_same(const struct attested *v)
{
    return attested_is_trusted(v) && json_array_size(v->files) == 0 && v->n_wrong == 0 &&
           v->n_steps > 0;
}

static const char *attested_text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static long long attested_number(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

static void attested_put_signature(const struct attested *v)
{
    static const char *const text[] = {
        [SIG_NONE] = "none: anybody may have written this record",
        [SIG_UNCHECKED] = "not checked: --key names the public key",
        [SIG_VALID] = "valid: of the key",
        [SIG_WRONG] = "WRONG: the record is not what the key has signed:",
        [SIG_MISSING] = "MISSING: the record is not signed, want a signature of"};

    printf("signature  %s%s%s\n", text[v->signature], v->options->key ? " " : "",
           v->options->key ? v->options->key : "");
}

static void attested_put_text(const struct attested *v)
{
    const struct attest *a = &v->record;
    json_t *o;
    size_t i;

    printf("record     %s: dpdriver %s (%s), %lld rank%s, %s, up to step %lld\n", v->run,
           a->version,
           v->is_same_program ? "this very program" : "another build, whose bits may differ",
           (long long)a->n_ranks, a->n_ranks == 1 ? "" : "s", a->strategy, (long long)a->last_step);
    attested_put_signature(v);
    json_array_foreach(v->files, i, o)
    {
        printf("file       %s: %s\n", attested_text(o, "file"), attested_text(o, "why"));
    }
    if (i == 0)
        printf("files      as recorded%s\n",
               a->model || a->checkpoint == 0
                   ? ""
                   : ", but for the weights, of which the record has no hash");
    if (v->n_steps > 0)
        printf("seed       %llu\n", (unsigned long long)v->seed);
    json_array_foreach(v->steps, i, o)
    {
        const int is_same = json_is_true(json_object_get(o, "same"));
        const char *how = attested_text(o, "how");

        printf("step %-5lld %s: %lld row%s of hashes.csv the same, from step %lld to %lld%s%s\n",
               attested_number(o, "step"), is_same ? "the same" : "DIFFERS",
               attested_number(o, "rows"), attested_number(o, "rows") == 1 ? "" : "s",
               attested_number(o, "from"), attested_number(o, "to"), how ? "; " : "",
               how ? how : "");
    }
    if (attested_is_same(v))
        printf("verdict    the same: files, and %d of %lld steps\n", v->n_steps,
               (long long)a->last_step);
    else
        printf("verdict    DIFFERS: %s\n", !attested_is_trusted(v)         ? "signature"
                                           : json_array_size(v->files) > 0 ? "files"
                                           : v->n_steps > 0
                                               ? "steps"
                                               : "no step has a hash (checkpoint.hashes)");
}

static void attested_put_json(const struct attested *v)
{
    json_t *o = json_object();

    json_object_set_new(o, "same", json_boolean(attested_is_same(v)));
    json_object_set_new(o, "signature", json_string(signature_words[v->signature]));
    json_object_set_new(o, "same_program", json_boolean(v->is_same_program));
    json_object_set(o, "files", v->files);
    json_object_set_new(o, "weights", json_string(v->record.model ? "checked" : "unchecked"));
    json_object_set_new(o, "last_step", json_integer(v->record.last_step));
    json_object_set_new(o, "seed", json_integer((json_int_t)v->seed));
    json_object_set(o, "steps", v->steps);
    json_dumpf(o, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(o);
}

/* ---- all of it ---- */

static int attested_do(struct attested *v, struct err *err)
{
    int rc = attested_read(v, err);

    if (rc == 0)
        attested_check_files(v);
    if (rc == 0 && attested_is_trusted(v) && json_array_size(v->files) == 0 &&
        v->record.last_step > 0) {
        rc = attested_draw(v, err);
        if (rc == 0)
            rc = attested_compute(v, err);
    }
    if (rc < 0)
        return rc;
    if (v->options->common.log_format == LOG_JSON)
        attested_put_json(v);
    else
        attested_put_text(v);
    return attested_is_same(v) ? STATUS_OK : STATUS_FAILED;
}

int attested_run(const struct options *o)
{
    struct attested v = {.options = o, .files = json_array(), .steps = json_array()};
    struct err err;
    int status = STATUS_USAGE;

    v.run = ask_find_run("--verify", o->verify);
    if (v.run)
        status = attested_do(&v, &err);
    if (status < 0) {
        log_error("--verify %s: %s", v.run, err.msg);
        status = err.code == ERR_CANCELED ? STATUS_STOPPED : STATUS_USAGE;
    }
    json_decref(v.files);
    json_decref(v.steps);
    attest_fini(&v.record);
    free(v.run);
    return status;
}
