/* Checks of a job against the number of its ranks, their device, and what this build can join and
 * sum; check.c has those that need only the job. */
#include <string.h>

#include "base/util.h"
#include "job/job.h"
#include "strategy/allreduce.h"

static int check_ranks(const struct cluster_options *c, int64_t n_ranks, struct err *err)
{
    if (c->min_ranks > n_ranks)
        return err_set(err, ERR_CONFIG, "cluster.min_ranks is %lld, want at most --nranks, %lld",
                       (long long)c->min_ranks, (long long)n_ranks);
    if (c->max_ranks > 0 && c->max_ranks < n_ranks)
        return err_set(err, ERR_CONFIG, "cluster.max_ranks is %lld, want at least --nranks, %lld",
                       (long long)c->max_ranks, (long long)n_ranks);
    if (max_i64(n_ranks, c->max_ranks) + c->spares > CLUSTER_MAX_RANKS)
        return err_set(err, ERR_CONFIG,
                       "cluster.spares is %lld beside %lld ranks, want at most %d followers in all",
                       (long long)c->spares, (long long)max_i64(n_ranks, c->max_ranks),
                       CLUSTER_MAX_RANKS);
    return 0;
}

/* Refuse settings of the strategy that the backend cannot follow. */
static int check_strategy(const struct job *job, const char *backend, struct err *err)
{
    const int64_t *zero = job_field(job, "strategy.zero");
    const int *offload = job_field(job, "strategy.offload");

    if (!strcmp(backend, "cpu"))
        return 0;
    if (strategy_shares(&job->strategy).n > 0 && job->train.autotune)
        return err_set(err, ERR_CONFIG,
                       "strategy.shards is %d, but with train.autotune each GPU may choose other "
                       "algorithms, whose bits differ; want train.autotune: false",
                       strategy_shares(&job->strategy).n);
    if (zero && offload && *offload == OFFLOAD_ALL && *zero < 3)
        return err_set(
            err, ERR_UNSUPPORTED,
            "strategy.offload is all with strategy.zero %lld, but a GPU computes with whole "
            "parameters in its own memory; want strategy.zero 3, or strategy.offload optimizer",
            (long long)*zero);
    return 0;
}

static int check_enough_shares(const struct job *job, int64_t most, struct err *err)
{
    const int n = strategy_shares(&job->strategy).n;

    if (n == 0 || n >= most)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "strategy.shards is %d, want at least %lld, the number of ranks%s", n,
                   (long long)most, most == job->cluster.max_ranks ? " (cluster.max_ranks)" : "");
}

int job_check_supported(const struct job *job, int64_t n_ranks, const char *backend,
                        struct err *err)
{
    const int64_t most = max_i64(n_ranks, job->cluster.max_ranks);
    const int is_cpu = !strcmp(backend, "cpu");
    const int can = is_cpu ? JOB_MAX_CPU_RANKS : JOB_MAX_RANKS;
    int rc = check_ranks(&job->cluster, n_ranks, err);

    if (rc == 0)
        rc = check_strategy(job, backend, err);
    if (rc == 0)
        rc = check_enough_shares(job, most, err);
    if (rc < 0 || most <= can)
        return rc;
    return err_set(err, ERR_UNSUPPORTED, "%lld ranks%s%s: this build joins at most %d",
                   (long long)most, is_cpu ? " on CPUs" : "",
                   most > n_ranks ? " (cluster.max_ranks)" : "", can);
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
