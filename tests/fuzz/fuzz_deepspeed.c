/* Fuzz target: the input is a byte for the number of ranks, and a file that is given as --job
 * F.json: a DeepSpeed configuration, or what is taken for one.  It is refused with a message; or
 * the job that comes out of it, written as a job file, reads back as the same job. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "deepspeed/deepspeed.h"
#include "round_trip.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sets[] = {"model.arch=lenet", "data.format=digits"};
    struct buf notes = {0};
    const char *path;
    struct job *job;
    struct err err;

    if (size == 0)
        return 0;
    path = scratch_own("ds.json", data + 1, size - 1); /* .json: a DeepSpeed file */
    if (deepspeed_load(1 + data[0] % 8, path, sets, ARRAY_LEN(sets), &job, &notes, &err) < 0) {
        ASSERT(err.msg[0]);
    } else {
        ASSERT(notes.len == 0 || notes.data[notes.len - 1] == '\n');
        check_round_trip(job);
        job_free(job);
    }
    buf_fini(&notes);
    return 0;
}
