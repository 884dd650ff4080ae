/* Fuzz target: the input is a job file.  It is refused with a message, or the resolved job that is
 * written of it reads back as the same job. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct job *job)
{
    struct buf once = {0}, twice = {0};
    struct job *again;
    struct err err;

    job_write(job, &once);
    ASSERT(job_parse((const char *)once.data, once.len, "job.yaml", "/", &again, &err) == 0);
    job_write(again, &twice);
    ASSERT(once.len == twice.len && !memcmp(once.data, twice.data, once.len));
    job_free(again);
    buf_fini(&once);
    buf_fini(&twice);
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
    job_free(job);
    return 0;
}
