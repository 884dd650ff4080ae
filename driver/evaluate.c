/* Finds the checkpoint that --checkpoint means, and the job of its run; and prints the result of an
 * evaluation. */
#include "driver/evaluate.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "deepspeed/deepspeed.h"
#include "driver/figures.h"
#include "driver/record.h"

/* ---- the run ---- */

/* runs/NAME, where NAME is from --set name=NAME, from --job, or the demo's.  A job file may need
 * other settings to be a job; without --job these are for the job of the run that is looked for. */
static char *default_run(const struct options *o)
{
    const char *sets[ARG_MAX_LIST];
    struct buf notes = {0};
    struct job *job = NULL;
    struct err ignored;
    size_t n = 0;
    char *path;

    for (size_t i = 0; i < o->sets.n; i++)
        if (o->job || !strncmp(o->sets.item[i], "name=", 5))
            sets[n++] = o->sets.item[i];
    path = deepspeed_load(max_i64(o->n_ranks, 1), o->job, sets, n, &job, &notes, &ignored) == 0
               ? record_path(o, job)
               : xstrdup("runs/demo");
    job_free(job);
    buf_fini(&notes);
    return path;
}

char *evaluate_run(const struct options *o)
{
    char *wanted = o->run_dir ? xstrdup(o->run_dir) : default_run(o);
    struct run_dir_request q = {.path = wanted, .is_explicit = o->run_dir != NULL, .resume = 1};
    char *folder = run_dir_to_resume(&q);

    free(wanted);
    return folder;
}

static int has_checkpoints(const char *folder)
{
    char *path = xasprintf("%s/checkpoints", folder);
    const int has = access(path, F_OK) == 0;

    free(path);
    return has;
}

/* ---- the checkpoint ---- */

static int find_latest(const char *run, struct evaluation *out, struct err *err)
{
    if (!has_checkpoints(run))
        return err_set(err, ERR_CONFIG,
                       "there is no checkpoint in %s; give --run-dir, or --checkpoint and the "
                       "folder of a run or of a checkpoint",
                       run);
    out->from = xstrdup(run);
    out->job = xasprintf("%s/job.yaml", run);
    out->is_latest = 1;
    return 0;
}

static int find_best(const char *run, struct evaluation *out, struct err *err)
{
    char *folder = NULL;
    int rc = ckpt_find_best(run, &folder, err);

    if (rc < 0)
        return rc;
    out->from = rc == 0 ? realpath(folder, NULL) : NULL;
    if (rc == 0)
        free(folder);
    if (!out->from)
        return err_set(err, ERR_CONFIG,
                       "there is no best checkpoint in %s; train.best keeps one, and --checkpoint "
                       "latest is the newest",
                       run);
    out->job = xasprintf("%s/job.yaml", run);
    return 0;
}

/* --checkpoint is a folder, or the text file that stands for a link to one.  If it is
 * RUN/checkpoints/NAME, its job is that of the run in RUN. */
static int find_folder(const char *folder, struct evaluation *out, struct err *err)
{
    char *named = ckpt_named_by(folder);

    if (!named && !ckpt_is_folder(folder))
        return find_latest(folder, out, err);
    out->from = realpath(named ? named : folder, NULL);
    free(named);
    if (!out->from)
        return err_set(err, ERR_CONFIG, "%s: there is no such folder", folder);
    out->job = xasprintf("%s/../../job.yaml", out->from);
    return 0;
}

static int find_checkpoint(const struct options *o, struct evaluation *out, struct err *err)
{
    const char *which = o->checkpoint ? o->checkpoint : "latest";
    char *run;
    int rc;

    if (strcmp(which, "latest") != 0 && strcmp(which, "best") != 0)
        return find_folder(which, out, err);
    run = evaluate_run(o);
    rc = !strcmp(which, "best") ? find_best(run, out, err) : find_latest(run, out, err);
    free(run);
    return rc;
}

int evaluate_find(const struct options *o, struct evaluation *out, struct err *err)
{
    int rc;

    *out = (struct evaluation){.from = NULL};
    rc = find_checkpoint(o, out, err);
    if (rc == 0 && o->job) {
        free(out->job);
        out->job = NULL;
    }
    if (rc == 0 && out->job && access(out->job, F_OK) != 0)
        rc = err_set(err, ERR_CONFIG,
                     "%s is missing: --job names the job that these weights were trained by",
                     out->job);
    if (rc == 0)
        return 0;
    evaluate_fini(out);
    return err_wrap(err, "--checkpoint %s", o->checkpoint ? o->checkpoint : "latest");
}

void evaluate_fini(struct evaluation *e)
{
    free(e->from);
    free(e->job);
    *e = (struct evaluation){.from = NULL};
}

/* ---- the result ---- */

static char *checkpoint_of(const struct evaluation *e, int64_t step)
{
    return e->is_latest ? xasprintf("%s/checkpoints/step-%08lld", e->from, (long long)step)
                        : xstrdup(e->from);
}

/* 1: print the perplexity, because the model is one of tokens: it has several targets a sample. */
static int has_perplexity(const struct session_epoch *e)
{
    return e->n_targets > e->n_samples && e->validation_accuracy != NOT_MEASURED;
}

/* The measures of samples that have labels. */
static void put_measures(struct buf *b, const struct session_epoch *e)
{
    buf_printf(b, " validation loss %.6g", e->validation_loss);
    if (e->validation_accuracy != NOT_MEASURED)
        buf_printf(b, ", accuracy %.2f %%", 100 * e->validation_accuracy);
    if (e->has_top5)
        buf_printf(b, ", top-5 %.2f %%", 100 * e->validation_top5);
    if (has_perplexity(e))
        buf_printf(b, ", perplexity %.6g", exp(e->validation_loss));
    if (e->has_average)
        buf_printf(b, ", averaged weights' %.6g", e->average_validation_loss);
    if (e->has_average && e->average_validation_accuracy != NOT_MEASURED)
        buf_printf(b, ", %.2f %%", 100 * e->average_validation_accuracy);
    buf_printf(b, ",");
}

static void evaluate_put_text(struct buf *b, const char *path, const char *logits,
                              const struct session_epoch *e)
{
    json_t *figures = e->figures ? json_loads(e->figures, 0, NULL) : NULL;
    const char *table = json_string_value(json_object_get(figures, "predictions"));

    buf_printf(b, "%s:", path);
    if (e->is_unlabelled)
        buf_printf(b, " no labels,");
    else
        put_measures(b, e);
    buf_printf(b, " %lld samples%s%s", (long long)e->n_samples, logits ? "; logits in " : "",
               logits ? logits : "");
    buf_printf(b, "%s%s\n", table ? ", predictions in " : "", table ? table : "");
    figures_print(figures, b);
    json_decref(figures);
}

static json_t *evaluate_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

/* The same as members of an object. */
static void set_measures(json_t *o, const struct session_epoch *e)
{
    json_object_set_new(o, "targets", json_integer(e->n_targets));
    json_object_set_new(o, "validation_loss", evaluate_number(e->validation_loss));
    if (e->validation_accuracy != NOT_MEASURED)
        json_object_set_new(o, "validation_accuracy", evaluate_number(e->validation_accuracy));
    if (e->has_top5)
        json_object_set_new(o, "validation_top5", evaluate_number(e->validation_top5));
    if (has_perplexity(e))
        json_object_set_new(o, "validation_perplexity", evaluate_number(exp(e->validation_loss)));
    if (e->has_average)
        json_object_set_new(o, "average_validation_loss",
                            evaluate_number(e->average_validation_loss));
    if (e->has_average && e->average_validation_accuracy != NOT_MEASURED)
        json_object_set_new(o, "average_validation_accuracy",
                            evaluate_number(e->average_validation_accuracy));
    if (e->has_average && e->has_top5)
        json_object_set_new(o, "average_validation_top5",
                            evaluate_number(e->average_validation_top5));
}

static void put_json(struct buf *b, const char *path, const char *logits,
                     const struct session_epoch *e)
{
    json_t *o = json_object(), *figures = e->figures ? json_loads(e->figures, 0, NULL) : NULL;
    char *text;

    json_object_set_new(o, "checkpoint", json_string(path));
    json_object_set_new(o, "step", json_integer(e->step));
    json_object_set_new(o, "samples", json_integer(e->n_samples));
    if (!e->is_unlabelled)
        set_measures(o, e);
    json_object_update(o, figures);
    json_decref(figures);
    if (logits)
        json_object_set_new(o, "logits", json_string(logits));
    text = json_dumps(o, JSON_COMPACT);
    buf_printf(b, "%s\n", text);
    free(text);
    json_decref(o);
}

void evaluate_print(const struct options *o, const struct evaluation *e,
                    const struct session_event *done)
{
    char *path = checkpoint_of(e, done->step);
    struct buf text = {0};

    if (o->common.log_format == LOG_JSON)
        put_json(&text, path, o->predict, &done->done.epoch);
    else
        evaluate_put_text(&text, path, o->predict, &done->done.epoch);
    log_put(STDOUT_FILENO, (const char *)text.data, text.len);
    buf_fini(&text);
    free(path);
}
