/* deepspeed_file - reads texts as files of a folder of their own. */
#ifndef TESTS_JOB_DEEPSPEED_FILE_H
#define TESTS_JOB_DEEPSPEED_FILE_H

#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "job/job.h"

static char folder[] = "/tmp/dptrain-ds-XXXXXX";

static inline char *write_job(const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static inline int load(const char *name, const char *text, int n_ranks, struct job **job,
                       struct buf *notes, struct err *err)
{
    static const char *const sets[] = {"model.arch=mlp", "data.format=digits"};
    char *path = write_job(name, text);
    int rc = job_load_for(n_ranks, path, sets, ARRAY_LEN(sets), job, notes, err);

    free(path);
    return rc;
}

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}

#endif
