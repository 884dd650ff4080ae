/* small - the beginning of a job's text, and the job of a text. */
#ifndef TESTS_JOB_SMALL_H
#define TESTS_JOB_SMALL_H

#include <string.h>

#include "../test.h"

#include "job/job.h"

#define SMALL "model: {arch: lenet}\ndata: {format: mnist, path: /d}\n"

/* Fails the test if the job is refused.  The caller frees the job. */
static inline struct job *parse(const char *text)
{
    struct job *job = NULL;
    struct err err;

    if (job_parse(text, strlen(text), "f", "/base", &job, &err) < 0)
        fail_msg("%s", err.msg);
    return job;
}

#endif
