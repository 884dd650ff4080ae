/* Checks that no single row can make: options that must agree with each other, with the number of
 * ranks, or with the device. */
#include "job/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

static int check_train(const struct job *j, struct err *err)
{
    const struct job_train *t = &j->train;
    const int64_t *samples = job_field(j, "data.samples"); /* not all formats tell beforehand */

    if (t->accumulate > t->global_batch)
        return err_set(err, ERR_CONFIG,
                       "train.accumulate is %" PRId64 ", want at most train.global_batch, %" PRId64,
                       t->accumulate, t->global_batch);
    if (j->model.label_smoothing > 0 && j->model.loss != LOSS_CROSS_ENTROPY)
        return err_set(err, ERR_CONFIG, "train.label_smoothing needs model.loss cross_entropy");
    if (t->drop_last && samples && *samples < t->global_batch)
        return err_set(err, ERR_CONFIG,
                       "train.drop_last with data.samples %" PRId64
                       ", less than one train.global_batch of %" PRId64
                       ", leaves nothing to train on",
                       *samples, t->global_batch);
    return 0;
}

static int is_power_of_two(double v)
{
    int exponent;

    return frexp(v, &exponent) == 0.5;
}

static int check_precision(const struct job *j, struct err *err)
{
    static const char *const scales[] = {"loss_scale.initial", "loss_scale.min"};

    if (j->train.grad_dtype == GRAD_BFLOAT16 && j->precision != PRECISION_BFLOAT16)
        return err_set(err, ERR_CONFIG, "train.grad_dtype bfloat16 needs precision bfloat16");
    if (j->precision != PRECISION_FLOAT16)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(scales); i++) {
        const double v = i == 0 ? j->loss_scale.initial : j->loss_scale.min;

        if (!is_power_of_two(v))
            return err_set(err, ERR_CONFIG, "%s is %g, want a power of two", scales[i], v);
    }
    if (j->loss_scale.min > j->loss_scale.initial)
        return err_set(err, ERR_CONFIG, "loss_scale.min is %g, want at most loss_scale.initial, %g",
                       j->loss_scale.min, j->loss_scale.initial);
    return 0;
}

static int check_schedule(const struct job *j, struct err *err)
{
    const struct schedule_options *s = &j->schedule;
    const double *min_lr = job_field(j, "schedule.min_lr");

    if (j->train.max_steps > 0 && s->warmup_steps >= j->train.max_steps)
        return err_set(err, ERR_CONFIG,
                       "schedule.warmup_steps is %" PRId64
                       ", want less than train.max_steps, %" PRId64,
                       s->warmup_steps, j->train.max_steps);
    if (min_lr && *min_lr > j->optimizer.lr)
        return err_set(err, ERR_CONFIG, "schedule.min_lr is %g, want at most optimizer.lr, %g",
                       *min_lr, j->optimizer.lr);
    return 0;
}

static int is_right_or_wrong(enum loss l) { return l == LOSS_CROSS_ENTROPY || l == LOSS_BCE; }

/* A decision that the loop makes by the metric `goal`, which `key` names. */
static int check_decision(const struct job *j, const char *key, enum goal goal, struct err *err)
{
    if (goal != GOAL_NONE && j->train.validate_every == 0)
        return err_set(err, ERR_CONFIG, "train.validate_every is 0, but %s needs validations", key);
    if (goal == GOAL_ACCURACY && !is_right_or_wrong(j->model.loss))
        return err_set(err, ERR_CONFIG,
                       "%s is validation_accuracy, which needs model.loss cross_entropy or bce; "
                       "want validation_loss",
                       key);
    return 0;
}

static int check_decisions(const struct job *j, struct err *err)
{
    const enum goal *plateau = job_field(j, "schedule.metric");
    int rc = check_decision(j, "train.best.metric", j->train.best.goal, err);

    if (rc == 0 && j->train.early_stop.patience > 0)
        rc = check_decision(j, "train.early_stop.metric", j->train.early_stop.goal, err);
    if (rc == 0 && plateau)
        rc = check_decision(j, "schedule.metric", *plateau, err);
    return rc;
}

static int check_cluster(const struct cluster_options *c, struct err *err)
{
    if (c->max_ranks > 0 && c->min_ranks > c->max_ranks)
        return err_set(err, ERR_CONFIG,
                       "cluster.min_ranks is %" PRId64 ", want at most cluster.max_ranks, %" PRId64,
                       c->min_ranks, c->max_ranks);
    if (c->straggler_factor > 0 && c->straggler_factor <= 1)
        return err_set(err, ERR_CONFIG,
                       "cluster.straggler_factor is %g, want more than 1, or 0 for no such reports",
                       c->straggler_factor);
    return 0;
}

int job_check(const struct job *job, struct err *err)
{
    int rc = check_train(job, err);

    if (rc == 0)
        rc = check_precision(job, err);
    if (rc == 0)
        rc = check_schedule(job, err);
    if (rc == 0)
        rc = check_decisions(job, err);
    if (rc == 0)
        rc = check_cluster(&job->cluster, err);
    return rc;
}

static int check_ranks(const struct cluster_options *c, int64_t n_ranks, struct err *err)
{
    if (c->min_ranks > n_ranks)
        return err_set(err, ERR_CONFIG,
                       "cluster.min_ranks is %" PRId64 ", want at most --nranks, %" PRId64,
                       c->min_ranks, n_ranks);
    if (c->max_ranks > 0 && c->max_ranks < n_ranks)
        return err_set(err, ERR_CONFIG,
                       "cluster.max_ranks is %" PRId64 ", want at least --nranks, %" PRId64,
                       c->max_ranks, n_ranks);
    if (max_i64(n_ranks, c->max_ranks) + c->spares > CLUSTER_MAX_RANKS)
        return err_set(err, ERR_CONFIG,
                       "cluster.spares is %" PRId64 " beside %" PRId64 " ranks, want at most %d "
                       "followers in all",
                       c->spares, max_i64(n_ranks, c->max_ranks), CLUSTER_MAX_RANKS);
    return 0;
}

int job_check_supported(const struct job *job, int64_t n_ranks, const char *backend,
                        struct err *err)
{
    int64_t most = max_i64(n_ranks, job->cluster.max_ranks);
    int rc = check_ranks(&job->cluster, n_ranks, err);

    if (rc < 0 || most <= JOB_MAX_CPU_RANKS || strcmp(backend, "cpu") != 0)
        return rc;
    return err_set(err, ERR_UNSUPPORTED, "%" PRId64 " ranks on CPUs%s: this build joins at most %d",
                   most, most > n_ranks ? " (cluster.max_ranks)" : "", JOB_MAX_CPU_RANKS);
}

int job_check_encrypt(const struct job *job, const char *backend, int has_secret, struct err *err)
{
    if (job->cluster.encrypt != CLUSTER_ENCRYPT_ON)
        return 0;
    if (strcmp(backend, "cpu") != 0)
        return err_set(err, ERR_CONFIG,
                       "cluster.encrypt is on, but nothing can encrypt NCCL's connections between "
                       "GPUs: want auto or off, and a private network or a tunnel (WireGuard, "
                       "IPsec)");
    if (!has_secret)
        return err_set(err, ERR_CONFIG,
                       "cluster.encrypt is on, which needs a secret: give --secret-file "
                       "(\"dpdriver --make-secret F\" makes one) on all sides");
    return 0;
}

int job_check_backend(const struct job *job, const char *backend, struct err *err)
{
    if (job->precision != PRECISION_FLOAT16 || strcmp(backend, "cpu") != 0)
        return 0;
    return err_set(
        err, ERR_UNSUPPORTED,
        "precision float16: CPUs compute in float32 or bfloat16; want one of these, or a "
        "GPU (--device cuda)");
}
