/* Fuzz target: the input is a job file.  It is refused with a message, or the resolved job that is
 * written of it reads back as the same job.  Then it is checked for a number of ranks and a
 * backend, and refused with a message, or not. */
#include <stddef.h>
#include <stdint.h>

#include "round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void warn(void *arg, const char *text)
{
    (void)arg;
    ASSERT(text[0]);
}

static void check_for(const struct job *job, int64_t n_ranks, const char *backend)
{
    struct err err;

    err.msg[0] = '\0';
    if (job_check_supported(job, n_ranks, backend, &err) < 0)
        ASSERT(err.msg[0]);
    err.msg[0] = '\0';
    if (job_check_encrypt(job, backend, n_ranks > 1, &err) < 0)
        ASSERT(err.msg[0]);
    err.msg[0] = '\0';
    if (job_check_backend(job, backend, &err) < 0)
        ASSERT(err.msg[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job *job;
    struct err err;

    if (job_parse((const char *)data, size, "fuzz", "/", &job, &err) < 0) {
        ASSERT(err.msg[0]);
        return 0;
    }
    check_round_trip(job);
    check_for(job, 1, "cpu");
    check_for(job, 8, "cuda");
    job_doubt(job, 10, warn, NULL);
    job_free(job);
    return 0;
}
