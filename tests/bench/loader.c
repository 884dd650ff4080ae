/* loader - how many samples of a job's training set the loader makes in a second, without training.
 *
 * loader JOB SAMPLES [KEY=VALUE]...: reads at least SAMPLES samples in the job's batches, after
 * one batch that does not count, as the only rank.  Prints the samples, the seconds, and the CPU
 * seconds of all threads. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "data/loader.h"
#include "job/job.h"

static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Take batches until there are n samples; *got is how many there were. */
static int take(struct loader *l, int64_t n, int64_t *got, struct err *err)
{
    const struct batch *b;
    int rc = 0;

    for (*got = 0; rc == 0 && *got < n;) {
        rc = loader_next(l, &b, err);
        if (rc == 0) {
            *got += b->n;
            loader_release(l);
        }
    }
    return rc;
}

static int measure(struct loader *l, int64_t n_samples, struct err *err)
{
    int64_t got;
    int rc = take(l, 1, &got, err);
    const int64_t start = clock_mono_ns();
    const double cpu = cpu_s();

    if (rc == 0)
        rc = take(l, n_samples, &got, err);
    if (rc == 0)
        printf("%lld %.6f %.6f\n", (long long)got, clock_since_s(start), cpu_s() - cpu);
    return rc;
}

static int run(const struct job *job, const struct dataset *ds, int64_t n_samples, struct err *err)
{
    const struct sampler sampler = {.n_samples = ds->n_samples,
                                    .global_batch = job->train.global_batch,
                                    .seed = (uint64_t)job->train.seed,
                                    .drop_last = job->train.drop_last,
                                    .in_order = !job->data.shuffle};
    const struct loader_options o = {.dataset = ds, .max_batch = job->train.global_batch};
    struct loader *l = NULL;
    int rc = loader_new(&l, &o, err);

    if (rc == 0)
        rc = loader_start_train(l, &sampler, 1, 1, 0, 0, INT32_MAX, err);
    if (rc == 0)
        rc = measure(l, n_samples, err);
    loader_free(l);
    return rc;
}

int main(int argc, char **argv)
{
    struct dataset_request request = {.purpose = DATASET_TRAIN, .n_workers = 1};
    struct job *job = NULL;
    struct dataset *ds = NULL;
    const int64_t *context;
    struct err err;
    int rc;

    if (argc < 3 || atoll(argv[2]) < 1) {
        fprintf(stderr, "usage: loader JOB SAMPLES [KEY=VALUE]...\n");
        return 2;
    }
    rc = job_load(argv[1], (const char *const *)argv + 3, (size_t)argc - 3, &job, &err);
    if (rc == 0) {
        context = job_field(job, "model.context");
        request.context = context ? *context : 0;
        rc = dataset_open(&ds, &job->data, &request, &err);
    }
    if (rc == 0)
        rc = run(job, ds, atoll(argv[2]), &err);
    if (rc != 0)
        fprintf(stderr, "loader: %s\n", err.msg);
    dataset_close(ds);
    job_free(job);
    return rc != 0;
}
