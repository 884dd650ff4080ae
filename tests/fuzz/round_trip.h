/* round_trip - a job that was accepted, written as a resolved job file, reads back as the same job.
 */
#ifndef TESTS_FUZZ_ROUND_TRIP_H
#define TESTS_FUZZ_ROUND_TRIP_H

#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "job/job.h"

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

#endif
