/* Fuzz target: the input is a byte for the number of ranks, and a file that is given as --job
 * F.json: a DeepSpeed configuration, or what is taken for one.  It is refused with a message; or
 * the job that comes out of it, written as a job file, reads back as the same job. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "round_trip.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *folder, *path;

static void clean_up(void)
{
    unlink(path);
    rmdir(folder);
    free(path);
    free(folder);
}

/* A job is read from a file whose name ends in .json. */
static void write_file(const uint8_t *text, size_t len)
{
    if (!path) {
        folder = scratch_folder();
        path = xasprintf("%s/ds.json", folder);
        atexit(clean_up);
    }
    scratch_write(path, text, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sets[] = {"model.arch=lenet", "data.format=digits"};
    struct buf notes = {0};
    struct job *job;
    struct err err;

    if (size == 0)
        return 0;
    write_file(data + 1, size - 1);
    if (job_load_for(1 + data[0] % 8, path, sets, ARRAY_LEN(sets), &job, &notes, &err) < 0) {
        ASSERT(err.msg[0]);
    } else {
        ASSERT(notes.len == 0 || notes.data[notes.len - 1] == '\n');
        check_round_trip(job);
        job_free(job);
    }
    buf_fini(&notes);
    return 0;
}
