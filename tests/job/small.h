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

/* The same of SMALL and these lines. */
static inline struct job *__attribute__((format(printf, 1, 2))) small_job(const char *more, ...)
{
    char text[512];
    int n = snprintf(text, sizeof text, SMALL);
    va_list args;

    va_start(args, more);
    n += vsnprintf(text + n, sizeof text - (size_t)n, more, args);
    va_end(args);
    assert_in_range(n, 0, sizeof text - 1);
    return parse(text);
}

#endif
