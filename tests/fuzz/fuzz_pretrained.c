/* Fuzz target: the input is a config.json from a stranger, beside weights.  It is refused, or the
 * job that it completes is sound, agrees with it, and is written as a config.json that says the
 * same.
 *
 * The input begins with a byte of flags: how much the job leaves to the file. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "job/job.h"
#include "job/pretrained.h"
#include "scratch.h"

enum { HAS_ARCH = 1, HAS_SIZES = 2, DRAWS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char name[] = "config.json";

static int parse(unsigned flags, struct job **out, struct err *err)
{
    char *text = xasprintf("model: {%s%sinit: {name: file, path: %s, missing: %s}}\n"
                           "data: {format: tokens, path: /x}\n",
                           flags & HAS_ARCH ? "arch: gpt, " : "",
                           flags & HAS_SIZES ? "layers: 2, heads: 4, width: 8, dropout: 0, " : "",
                           scratch_own_folder, flags & DRAWS ? "draw" : "error");
    const int rc = job_parse(text, strlen(text), "fuzz", NULL, out, err);

    free(text);
    return rc;
}

static void ignore(void *arg, const char *text) { ASSERT(!arg && text[0]); }

/* The file that the job writes makes the same job of one that leaves out all. */
static void check_written(const struct job *job)
{
    struct buf config = {0}, one = {0}, two = {0};
    struct job *again = NULL;
    struct err err;

    pretrained_write(job, 61, &config);
    scratch_own(name, config.data, config.len);
    ASSERT(parse(0, &again, &err) == 0 && pretrained_check(job, NULL, NULL, &err) == 0);
    job_write_section(job, "model", &one);
    job_write_section(again, "model", &two);
    if (strstr(buf_cstr(&one), "vocab: ") && !strstr(buf_cstr(&one), "missing: draw"))
        ASSERT(!strcmp(buf_cstr(&one), buf_cstr(&two))); /* without vocab: that of the data */
    job_free(again);
    buf_fini(&config);
    buf_fini(&one);
    buf_fini(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job *job = NULL;
    struct err err = {0};

    if (size < 1)
        return 0;
    scratch_own(name, data + 1, size - 1);
    if (parse(data[0], &job, &err) < 0) {
        ASSERT(err.msg[0]);
        return 0;
    }
    if (pretrained_check(job, ignore, NULL, &err) == 0 && job->model.kind == &arch_gpt)
        check_written(job);
    job_free(job);
    return 0;
}
