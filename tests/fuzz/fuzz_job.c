/* Fuzz target: the input is a job file.  It is refused with a message, or the resolved job that is
 * written of it reads back as the same job. */
#include <stddef.h>
#include <stdint.h>

#include "round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
