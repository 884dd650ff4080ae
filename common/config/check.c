/* What no single row of the table can say: which options go together. */
#include "config/read.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

static int at_key(const struct reader *r, const char *key, struct err *err)
{
    const struct option *o = option_find(key);

    ASSERT(o);
    return read_locate(r, o, err);
}

static const struct source *source_of(const struct reader *r, const char *key)
{
    return &r->from[option_find(key) - config_options];
}

static void reset(struct reader *r, const struct option *o)
{
    struct err err;

    r->from[o - config_options].kind = FROM_DEFAULT;
    if (o->def)
        ASSERT(option_parse(o, r->job, o->def, strlen(o->def), 0, &err) == 0);
    else
        *(const char **)option_field(o, r->job) = NULL;
}

/* The values of its selector with which `o` exists, and the one that it has. */
static int fail_unused(const struct reader *r, const struct option *o, struct err *err)
{
    const struct option *selector = option_find(o->only);
    struct buf text = {0};

    buf_printf(&text, "%s applies only if %s is ", o->key, o->only);
    option_when(o, &text);
    buf_printf(&text, "; it is ");
    option_format(selector, r->job, &text);
    err_set(err, ERR_CONFIG, "%s", buf_cstr(&text));
    buf_fini(&text);
    return read_locate(r, o, err);
}

static int fail_missing(const struct reader *r, const struct option *o, struct err *err)
{
    struct buf want = {0};
    int rc;

    option_want(o, &want);
    rc = err_set(err, ERR_CONFIG, "%s: %s is missing, want %s", r->origin, o->key, buf_cstr(&want));
    buf_fini(&want);
    return rc;
}

static int check_presence(struct reader *r, struct err *err)
{
    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];
        int given = r->from[i].kind;

        if (option_applies(o, r->job)) {
            if (o->flags & OPT_REQUIRED && given == FROM_DEFAULT)
                return fail_missing(r, o, err);
        } else if (given == FROM_FILE && source_of(r, o->only)->kind == FROM_SET) {
            reset(r, o);
        } else if (given != FROM_DEFAULT) {
            return fail_unused(r, o, err);
        }
    }
    return 0;
}

static int check_train(const struct reader *r, struct err *err)
{
    const struct job *j = r->job;
    const struct job_train *t = &j->train;

    if (t->accumulate > t->global_batch) {
        err_set(err, ERR_CONFIG,
                "train.accumulate is %" PRId64 ", want at most train.global_batch, %" PRId64,
                t->accumulate, t->global_batch);
        return at_key(r, "train.accumulate", err);
    }
    if (t->label_smoothing > 0 && j->model.loss != LOSS_CROSS_ENTROPY) {
        err_set(err, ERR_CONFIG, "train.label_smoothing needs model.loss cross_entropy");
        return at_key(r, "train.label_smoothing", err);
    }
    if (t->drop_last && j->data.format == DATA_DIGITS && j->data.samples < t->global_batch) {
        err_set(err, ERR_CONFIG,
                "train.drop_last with data.samples %" PRId64
                ", less than one train.global_batch of %" PRId64 ", leaves nothing to train on",
                j->data.samples, t->global_batch);
        return at_key(r, "train.drop_last", err);
    }
    return 0;
}

static int is_power_of_two(double v)
{
    int exponent;

    return frexp(v, &exponent) == 0.5;
}

static int check_precision(const struct reader *r, struct err *err)
{
    static const char *const scales[] = {"loss_scale.initial", "loss_scale.min"};
    const struct job *j = r->job;

    if (j->train.grad_dtype == GRAD_BFLOAT16 && j->precision != PRECISION_BFLOAT16) {
        err_set(err, ERR_CONFIG, "train.grad_dtype bfloat16 needs precision bfloat16");
        return at_key(r, "train.grad_dtype", err);
    }
    if (j->precision != PRECISION_FLOAT16)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(scales); i++) {
        const double v = i == 0 ? j->loss_scale.initial : j->loss_scale.min;

        if (is_power_of_two(v))
            continue;
        err_set(err, ERR_CONFIG, "%s is %g, want a power of two", scales[i], v);
        return at_key(r, scales[i], err);
    }
    if (j->loss_scale.min > j->loss_scale.initial) {
        err_set(err, ERR_CONFIG, "loss_scale.min is %g, want at most loss_scale.initial, %g",
                j->loss_scale.min, j->loss_scale.initial);
        return at_key(r, "loss_scale.min", err);
    }
    return 0;
}

static int check_optimizer(const struct reader *r, struct err *err)
{
    const struct job_optimizer *o = &r->job->optimizer;

    if (o->nesterov && (o->momentum <= 0 || o->dampening > 0)) {
        err_set(err, ERR_CONFIG,
                "optimizer.nesterov needs optimizer.momentum above 0 and optimizer.dampening 0; "
                "they are %g and %g",
                o->momentum, o->dampening);
        return at_key(r, "optimizer.nesterov", err);
    }
    return 0;
}

static int check_schedule(const struct reader *r, struct err *err)
{
    const struct job_schedule *s = &r->job->schedule;

    if (r->job->train.max_steps > 0 && s->warmup_steps >= r->job->train.max_steps) {
        err_set(err, ERR_CONFIG,
                "schedule.warmup_steps is %" PRId64 ", want less than train.max_steps, %" PRId64,
                s->warmup_steps, r->job->train.max_steps);
        return at_key(r, "schedule.warmup_steps", err);
    }
    if (s->name == SCHEDULE_STEP && (s->every_steps > 0) == (s->every_epochs > 0)) {
        err_set(err, ERR_CONFIG,
                "schedule.name step needs one of schedule.every_steps and schedule.every_epochs "
                "above 0; they are %" PRId64 " and %" PRId64,
                s->every_steps, s->every_epochs);
        return at_key(r, "schedule.name", err);
    }
    if (s->min_lr > r->job->optimizer.lr) {
        err_set(err, ERR_CONFIG, "schedule.min_lr is %g, want at most optimizer.lr, %g", s->min_lr,
                r->job->optimizer.lr);
        return at_key(r, "schedule.min_lr", err);
    }
    return 0;
}

static int check_cluster(const struct reader *r, struct err *err)
{
    const struct job_cluster *c = &r->job->cluster;

    if (c->max_ranks > 0 && c->min_ranks > c->max_ranks) {
        err_set(err, ERR_CONFIG,
                "cluster.min_ranks is %" PRId64 ", want at most cluster.max_ranks, %" PRId64,
                c->min_ranks, c->max_ranks);
        return at_key(r, "cluster.min_ranks", err);
    }
    if (c->straggler_factor > 0 && c->straggler_factor <= 1) {
        err_set(err, ERR_CONFIG,
                "cluster.straggler_factor is %g, want more than 1, or 0 for no such reports",
                c->straggler_factor);
        return at_key(r, "cluster.straggler_factor", err);
    }
    return 0;
}

int read_check(struct reader *r, struct err *err)
{
    int rc = check_presence(r, err);

    if (rc == 0)
        rc = check_train(r, err);
    if (rc == 0)
        rc = check_precision(r, err);
    if (rc == 0)
        rc = check_optimizer(r, err);
    if (rc == 0)
        rc = check_schedule(r, err);
    if (rc == 0)
        rc = check_cluster(r, err);
    return rc;
}

static int check_ranks(const struct job_cluster *c, int64_t n_ranks, struct err *err)
{
    if (c->min_ranks > n_ranks)
        return err_set(err, ERR_CONFIG,
                       "cluster.min_ranks is %" PRId64 ", want at most --nranks, %" PRId64,
                       c->min_ranks, n_ranks);
    if (c->max_ranks > 0 && c->max_ranks < n_ranks)
        return err_set(err, ERR_CONFIG,
                       "cluster.max_ranks is %" PRId64 ", want at least --nranks, %" PRId64,
                       c->max_ranks, n_ranks);
    if (max_i64(n_ranks, c->max_ranks) + c->spares > JOB_MAX_RANKS)
        return err_set(err, ERR_CONFIG,
                       "cluster.spares is %" PRId64 " beside %" PRId64 " ranks, want at most %d "
                       "followers in all",
                       c->spares, max_i64(n_ranks, c->max_ranks), JOB_MAX_RANKS);
    return 0;
}

int job_check_supported(const struct job *job, int64_t n_ranks, struct err *err)
{
    int64_t most = max_i64(n_ranks, job->cluster.max_ranks);
    int rc = check_ranks(&job->cluster, n_ranks, err);

    if (rc < 0 || most <= JOB_MAX_CPU_RANKS)
        return rc;
    return err_set(err, ERR_UNSUPPORTED,
                   "%" PRId64 " ranks on CPUs%s: Gloo connects every pair of them, so this build "
                   "takes at most %d",
                   most, most > n_ranks ? " (cluster.max_ranks)" : "", JOB_MAX_CPU_RANKS);
}

int job_check_backend(const struct job *job, const char *backend, struct err *err)
{
    static const char *const name[] = {"float32", "bfloat16", "float16"};

    if (job->precision == PRECISION_FLOAT32 || strcmp(backend, "cpu") != 0)
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "precision %s: CPUs compute in float32 alone; want precision float32, or a GPU "
                   "(--device cuda)",
                   name[job->precision]);
}
