/* replay - a shadow of the run (driver/shadow.h) is trained up to the first row of hashes.csv from
 * the step on, with a row for each step, and then the rows are compared.
 *
 * Failure modes: there is no such run or step; the checkpoint is damaged, or the data are other
 * ones now, which the other process says; a signal stops it. */
#include "driver/replay.h"

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
#include "data/sampler.h"
#include "driver/again.h"
#include "driver/ask.h"
#include "driver/parting.h"
#include "driver/shadow.h"
#include "export/export.h"
#include "export/new_file.h"
#include "job/imported.h"
#include "job/job.h"
#include "report/began.h"
#include "report/hashes.h"
#include "report/metrics.h"

enum {
    MOST_RANKS = 64, /* that are started on this machine without being asked for */
    MOST_SETS = 4
};

struct replay {
    const struct options *options;
    const char *run;         /* the folder of the run */
    const char *name;        /* of what is computed, in the folder of again.h */
    const char *const *sets; /* settings of what is computed, NULL at the end; NULL: none */
    struct job *job;
    struct series_table hashes, metrics; /* of the run */
    int64_t step, from, to;              /* `from` is a checkpoint's, or 0 */
    int64_t n_ranks;                     /* 0: --ranks says it */
    int is_local;
    struct series_table hashes_now, metrics_now; /* of what was computed */
    int64_t row;                                 /* of the step, in hashes_now */
};

/* ---- before ---- */

static int64_t last_row_step(const struct series_table *t)
{
    return t->n_rows > 0 ? series_step(t, t->n_rows - 1) : 0;
}

static int replay_load(struct replay *r, struct err *err)
{
    const struct options *o = r->options;
    char *path = xasprintf("%s/job.yaml", r->run), *doubt = NULL;
    int rc = job_load(path, o->sets.item, o->sets.n, &r->job, err);

    if (rc == 0)
        rc = imported_read(r->job, r->run, &doubt, err);
    if (rc == 0)
        rc = series_read(r->run, &hashes_series, &r->hashes, err);
    if (rc >= 0)
        rc = series_read(r->run, &metrics_series, &r->metrics, err);
    free(doubt);
    free(path);
    return rc < 0 ? rc : 0;
}

static int replay_goes_back(const struct replay *r)
{
    return r->job->train.on_spike == SPIKE_REWIND;
}

/* The step of the checkpoint from which `step` is computed; 0: there is none. */
static int64_t replay_find_from(const struct replay *r, int64_t step)
{
    const struct ckpt_plan plan = {.every_steps = r->job->checkpoint.every_steps,
                                   .every_epochs = r->job->checkpoint.every_epochs,
                                   .steps_per_epoch = ckpt_steps_per_epoch(r->run)};

    return shadow_checkpoint(r->run, step, replay_goes_back(r) ? &plan : NULL);
}

/* Find the steps that are to be computed. */
static int replay_plan(struct replay *r, struct err *err)
{
    const int64_t at = series_find(&r->hashes, r->step);
    const int64_t last = max_i64(max_i64(last_row_step(&r->hashes), last_row_step(&r->metrics)),
                                 shadow_last_step(r->run));

    if (r->step > last + (r->options->dump != NULL)) /* the next one may have ended the run */
        return err_set(err, ERR_CONFIG,
                       "--step %lld: the run in %s has done %lld steps, as far as its files tell",
                       (long long)r->step, r->run, (long long)last);
    r->from = replay_find_from(r, r->step);
    r->to = at < r->hashes.n_rows ? series_step(&r->hashes, at) : r->step;
    if (r->from == 0 && r->step > 1)
        log_warn("no checkpoint%s of a step before %lld is left in %s (checkpoint.keep): the steps "
                 "from the first one on are computed",
                 replay_goes_back(r) ? " by checkpoint.every_steps or every_epochs" : "",
                 (long long)r->step, r->run);
    if (r->from > 0 && shadow_check(r->run, r->from, err) < 0)
        return err_wrap(err, "the checkpoint before step %lld", (long long)r->step);
    log_info("computing steps %lld to %lld of %s", (long long)r->from + 1, (long long)r->to,
             r->run);
    return 0;
}

/* By default as many ranks as the run was started with, here, unless those are many: the file that
 * says so may be a stranger's. */
static int replay_choose_ranks(struct replay *r, struct err *err)
{
    const struct options *o = r->options;

    r->n_ranks = o->n_ranks;
    r->is_local = o->local;
    if (o->n_ranks || o->common.ranks || o->hosts_file)
        return 0;
    r->n_ranks = max_i64(1, began_n_ranks(r->run));
    r->is_local = r->n_ranks > 1;
    if (r->n_ranks <= MOST_RANKS)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "the run in %s began with %lld ranks; give --nranks N and --local, or --hosts",
                   r->run, (long long)r->n_ranks);
}

/* ---- computing ---- */

static int replay_compute(struct replay *r, int64_t to, struct again *a, struct err *err)
{
    char *ranks = xasprintf("%lld", (long long)r->n_ranks);
    char *end = xasprintf("train.stop_after=%lld", (long long)to);
    const char *more[9 + 2 * MOST_SETS] = {"--resume", "--set", end};
    int n = 3, status = STATUS_OK, rc;
    const int is_here = r->is_local || r->n_ranks == 1;

    if (r->n_ranks) {
        more[n++] = "--nranks";
        more[n++] = ranks;
    }
    if (r->is_local)
        more[n++] = "--local";
    for (int i = 0; r->sets && r->sets[i]; i++) {
        ASSERT(i < MOST_SETS);
        more[n++] = "--set";
        more[n++] = r->sets[i];
    }
    if (is_here) {
        more[n++] = "--port";
        more[n++] = "0";
    }
    more[n] = NULL;
    rc = again_run(a, r->name, more, !is_here, &status, err);
    free(ranks);
    free(end);
    if (rc < 0 || status == STATUS_OK || status == STATUS_STOPPED)
        return rc;
    if (!is_here)
        return err_set(err, ERR_CONFIG, "the steps could not be computed: exit status %d", status);
    ranks = again_why(a, r->name);
    rc = err_set(err, ERR_CONFIG, "the steps could not be computed: %s", ranks);
    free(ranks);
    return rc;
}

/* A driver takes one rate for steps that it has not done yet.  So it computes up to the rate after
 * that, and another one goes on. */
static int replay_compute_all(struct replay *r, const char *path, struct again *a, struct err *err)
{
    const int is_here = r->is_local || r->n_ranks == 1;
    struct shadow_rate *rate = NULL;
    int64_t at = r->from, to;
    int n, i = 0, rc = shadow_rates(r->run, r->from, r->to, &rate, &n, err);

    if (rc == 0 && n > 1 && !is_here)
        rc = err_set(err, ERR_UNSUPPORTED,
                     "--set-live changed the rate %d times in these steps; ranks on other machines "
                     "cannot repeat that: give --nranks and --local",
                     n);
    for (; rc == 0 && at < r->to; at = to, i++) {
        to = i + 1 < n ? rate[i + 1].step : r->to;
        if (i < n)
            rc = shadow_give_rate(path, at, &rate[i], err);
        if (rc == 0)
            rc = replay_compute(r, to, a, err);
    }
    free(rate);
    return rc;
}

static int replay_take(struct replay *r, const struct again *a, struct err *err)
{
    char *folder = xasprintf("%s/%s", a->folder, r->name);
    int rc = series_read(folder, &hashes_series, &r->hashes_now, err);

    if (rc >= 0)
        rc = series_read(folder, &metrics_series, &r->metrics_now, err);
    free(folder);
    if (rc < 0)
        return rc;
    r->row = series_find(&r->hashes_now, r->step);
    if (last_row_step(&r->hashes_now) >= r->to && series_step(&r->hashes_now, r->row) == r->step)
        return 0;
    return err_set(err, ERR_CONFIG, "stopped after step %lld of %lld",
                   (long long)last_row_step(&r->hashes_now), (long long)r->to);
}

/* ---- the gradients ---- */

/* The driver of the shadow has written them there. */
static int replay_dump(const struct replay *r, const struct again *a, struct err *err)
{
    char *path =
        xasprintf("%s/%s/gradients-%08lld.safetensors", a->folder, r->name, (long long)r->step);
    char *why = NULL;
    int rc = 0;

    if (access(path, F_OK) == 0)
        rc = export_state_dict(path, r->options->dump, err);
    else {
        why = again_warned(a, r->name, "could not be written: ");
        rc = err_set(err, ERR_IO, "the gradients of step %lld could not be written: %s",
                     (long long)r->step, why);
    }
    free(why);
    free(path);
    return rc < 0 ? err_wrap(err, "--dump %s", r->options->dump) : 0;
}

/* ---- the samples ---- */

static json_t *replay_sample(const struct dataset *ds, int64_t i)
{
    char *name = ds->ops->sample_name ? ds->ops->sample_name(ds, i)
                 : ds->ops->place     ? ds->ops->place(ds, i, 0)
                                      : NULL;
    json_t *o = json_object();

    json_object_set_new(o, "index", json_integer(ds->ops->number ? ds->ops->number(ds, i) : i));
    if (name && json_object_set_new(o, "name", json_string(name)) < 0)
        json_object_set_new(o, "name", json_null()); /* no UTF-8 */
    free(name);
    return o;
}

/* *out: a list of the step's samples, in the order of the global batch. */
static int replay_samples(const struct replay *r, json_t **out, struct err *err)
{
    struct dataset_request request = job_request(r->job, DATASET_TRAIN);
    const struct job_train *train = &r->job->train;
    struct sampler sampler = {.global_batch = train->global_batch,
                              .seed = (uint64_t)train->seed,
                              .drop_last = train->drop_last,
                              .in_order = !r->job->data.shuffle || train->overfit > 0};
    struct sampler_step at;
    struct dataset *ds;
    int64_t *index;
    int rc;

    request.keeps_nothing = 1; /* the names alone are wanted */
    rc = dataset_open(&ds, &r->job->data, &request, err);
    if (rc < 0)
        return err_wrap(err, "training data");
    sampler.n_samples = train->overfit > 0 ? min_i64(train->overfit, ds->n_samples) : ds->n_samples;
    rc = sampler_check(&sampler, err);
    if (rc == 0) {
        at = sampler_at(&sampler, r->step - 1);
        index = xcalloc((size_t)at.n + 1, sizeof *index);
        sampler_list(&sampler, &at, (struct span){0, at.n}, index);
        *out = json_array();
        for (int64_t i = 0; i < at.n; i++)
            json_array_append_new(*out, replay_sample(ds, index[i]));
        free(index);
    }
    dataset_close(ds);
    return rc;
}

/* ---- telling ---- */

struct verdict {
    struct parting hashes, losses;
    int is_same, differs; /* neither: nothing could be compared */
};

static struct verdict replay_judge(const struct replay *r)
{
    struct verdict v = {.hashes = parting_of_hashes(&r->hashes, &r->hashes_now, r->from - 1, r->to),
                        .losses = parting_of_losses(&r->metrics, &r->metrics_now, r->from, r->to)};

    v.differs = v.hashes.step > 0 || v.losses.step > 0;
    v.is_same = !v.differs && (v.hashes.n_same > 0 || v.losses.n_same > 0);
    return v;
}

/* 1: the losses at the row that differs are as near as rounding may leave them. */
static int replay_is_rounding(const struct replay *r, const struct parting *p)
{
    const double was = strtod(series_field(&r->hashes, p->row[0], HASHES_LOSS), NULL);
    const double is = strtod(series_field(&r->hashes_now, p->row[1], HASHES_LOSS), NULL);

    return fabs(was - is) <= 1e-3 * fabs(was);
}

static void replay_put_difference(const struct replay *r, const struct verdict *v)
{
    struct buf text = {0};

    if (v->hashes.step > 0) {
        parting_put(&text, &v->hashes, &r->hashes, &r->hashes_now);
        printf("differs    at step %lld, in the run and now: %s\n", (long long)v->hashes.step,
               buf_cstr(&text));
        if (v->hashes.step == r->from)
            printf("           this is the state that the checkpoint holds\n");
        else if (strategy_shares(&r->job->strategy).n == 0 && replay_is_rounding(r, &v->hashes))
            printf("           the losses agree to rounding, which another number of ranks or "
                   "threads, or another\n"
                   "           processor, changes; not so with strategy.shards\n");
    } else {
        printf("differs    in the row of metrics.csv of step %lld\n", (long long)v->losses.step);
    }
    buf_fini(&text);
}

static void replay_put_text(const struct replay *r, const struct verdict *v, json_t *samples)
{
    json_t *sample;
    size_t i;

    printf("step       %lld of %s, computed from %s %lld on, up to %lld\n", (long long)r->step,
           r->run, r->from > 0 ? "the checkpoint of step" : "step", (long long)r->from,
           (long long)r->to);
    printf("loss       %s\n", series_field(&r->hashes_now, r->row, HASHES_LOSS));
    printf("state      %s\n", series_field(&r->hashes_now, r->row, HASHES_STATE));
    if (v->differs)
        replay_put_difference(r, v);
    if (v->hashes.n_same + v->losses.n_same > 0)
        printf("the same   %lld row%s of hashes.csv, %lld row%s of metrics.csv, up to step %lld\n",
               (long long)v->hashes.n_same, v->hashes.n_same == 1 ? "" : "s",
               (long long)v->losses.n_same, v->losses.n_same == 1 ? "" : "s",
               (long long)max_i64(v->hashes.last_same, v->losses.last_same));
    else if (!v->differs)
        printf("unknown    the run has no row of these steps to compare with\n");
    if (r->options->dump)
        printf("gradients  %s\n", r->options->dump);
    printf("samples    %zu\n", json_array_size(samples));
    json_array_foreach(samples, i, sample)
    {
        const char *name = json_string_value(json_object_get(sample, "name"));

        printf("  %10lld%s%s\n", (long long)json_integer_value(json_object_get(sample, "index")),
               name ? "  " : "", name ? name : "");
    }
}

static void replay_put_json(const struct replay *r, const struct verdict *v, json_t *samples)
{
    json_t *o = json_object();
    const double loss = strtod(series_field(&r->hashes_now, r->row, HASHES_LOSS), NULL);

    json_object_set_new(o, "step", json_integer(r->step));
    json_object_set_new(o, "from", json_integer(r->from));
    json_object_set_new(o, "to", json_integer(r->to));
    json_object_set_new(o, "same",
                        v->is_same   ? json_true()
                        : v->differs ? json_false()
                                     : json_null());
    json_object_set_new(o, "differs_at",
                        v->differs
                            ? json_integer(v->hashes.step > 0 ? v->hashes.step : v->losses.step)
                            : json_null());
    json_object_set_new(o, "loss", isfinite(loss) ? json_real(loss) : json_null());
    json_object_set_new(o, "state",
                        json_string(series_field(&r->hashes_now, r->row, HASHES_STATE)));
    if (r->options->dump)
        json_object_set_new(o, "gradients", json_string(r->options->dump));
    json_object_set(o, "samples", samples);
    json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(o);
}

static int replay_tell(const struct replay *r, struct err *err)
{
    const struct verdict v = replay_judge(r);
    json_t *samples = NULL;

    if (replay_samples(r, &samples, err) < 0)
        return err->code;
    if (r->options->common.log_format == LOG_JSON)
        replay_put_json(r, &v, samples);
    else
        replay_put_text(r, &v, samples);
    json_decref(samples);
    return v.is_same ? STATUS_OK : STATUS_FAILED;
}

/* ---- all of it ---- */

static int replay_begin(struct replay *r, struct err *err)
{
    int rc = replay_load(r, err);

    if (rc == 0)
        rc = replay_choose_ranks(r, err);
    if (rc == 0 && r->options->dump && new_file_check(r->options->dump, err) < 0)
        rc = err_wrap(err, "--dump");
    return rc == 0 ? replay_plan(r, err) : rc;
}

static int replay_do(struct replay *r, struct again *a, struct err *err)
{
    char *path = xasprintf("%s/%s", a->folder, r->name);
    int rc = shadow_make(r->run, r->from, path, err);

    if (rc == 0)
        rc = replay_compute_all(r, path, a, err);
    if (rc == 0)
        rc = shadow_check_backs(r->run, path, err);
    free(path);
    return rc == 0 ? replay_take(r, a, err) : rc;
}

static void replay_fini(struct replay *r)
{
    series_table_fini(&r->hashes);
    series_table_fini(&r->metrics);
    series_table_fini(&r->hashes_now);
    series_table_fini(&r->metrics_now);
    job_free(r->job);
}

int replay_step(const struct options *o, const char *run, int64_t step, struct again *a,
                const char *name, struct replayed *out, struct err *err)
{
    struct replay r = {.options = o, .run = run, .name = name, .step = step};
    int rc = replay_begin(&r, err);

    if (rc == 0)
        rc = replay_do(&r, a, err);
    *out = (struct replayed){.from = r.from, .to = r.to};
    if (rc == 0) {
        const struct verdict v = replay_judge(&r);
        char *folder = xasprintf("%s/%s", a->folder, name);
        struct buf how = {0};

        out->n_same = v.hashes.n_same;
        out->differs_at = v.hashes.step > 0 ? v.hashes.step : v.losses.step;
        if (v.hashes.step > 0)
            parting_put(&how, &v.hashes, &r.hashes, &r.hashes_now);
        else if (v.differs)
            buf_printf(&how, "another loss in metrics.csv");
        out->how = v.differs ? xstrdup(buf_cstr(&how)) : NULL;
        buf_fini(&how);
        began_data(folder, out->data);
        free(folder);
    }
    replay_fini(&r);
    return rc;
}

int replay_steps(const struct options *o, const char *run, struct span_of_steps steps,
                 const char *const *sets, struct again *a, const char *name, struct err *err)
{
    struct replay r = {
        .options = o, .run = run, .name = name, .sets = sets, .step = steps.to, .to = steps.to};
    int rc = replay_load(&r, err);

    if (rc == 0)
        rc = replay_choose_ranks(&r, err);
    if (rc == 0)
        r.from = replay_find_from(&r, steps.past + 1);
    if (rc == 0 && r.from > 0 && shadow_check(run, r.from, err) < 0)
        rc = err_wrap(err, "the checkpoint of step %lld", (long long)r.from);
    if (rc == 0) {
        log_info("computing steps %lld to %lld of %s", (long long)r.from + 1, (long long)r.to, run);
        rc = replay_do(&r, a, err);
    }
    replay_fini(&r);
    return rc;
}

int replay_run(const struct options *o)
{
    char *run = ask_find_run("--replay", o->replay);
    char *gradients = xasprintf("report.gradients=%lld", (long long)o->step);
    /* The step may be the one that ended the run. */
    const char *const sets[] = {gradients, "train.on_nonfinite=skip", NULL};
    struct replay r = {
        .options = o, .run = run, .name = "run", .step = o->step, .sets = o->dump ? sets : NULL};
    struct again a = {.folder = NULL};
    struct err err;
    int status = STATUS_USAGE;

    if (run)
        status = replay_begin(&r, &err);
    if (status == 0)
        status = again_init(&a, o, o->run_dir, run, &err);
    if (status == 0)
        status = replay_do(&r, &a, &err);
    if (status == 0 && o->dump)
        status = replay_dump(&r, &a, &err);
    if (status == 0)
        status = replay_tell(&r, &err);
    if (status < 0) {
        log_error("--replay: %s", err.msg);
        status = err.code == ERR_CANCELED ? STATUS_STOPPED : STATUS_USAGE;
    }
    again_fini(&a);
    replay_fini(&r);
    free(gradients);
    free(run);
    return status;
}
