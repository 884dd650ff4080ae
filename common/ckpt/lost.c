/* lost - tells of a run whose folder of checkpoints, or the run directory itself, is gone.
 *
 * As a rule a disk is not mounted, or somebody moved or removed the folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/ckpt.h"
#include "ckpt/generations.h"
#include "ckpt/links.h"

/* A text that says what stands in the place of the folder; for free(). */
static char *lost_describe(const char *folder)
{
    struct stat st;
    char to[1024];
    ssize_t n;

    if (lstat(folder, &st) < 0)
        return xasprintf("%s is missing", folder);
    if (!S_ISLNK(st.st_mode))
        return xasprintf("%s holds none", folder);
    n = readlink(folder, to, sizeof to - 1);
    to[n < 0 ? 0 : n] = '\0';
    return xasprintf("%s is a link to %s, which %s", folder, to,
                     stat(folder, &st) < 0 ? "is missing" : "holds none");
}

int ckpt_check_lost(const char *run_dir, int64_t step, struct err *err)
{
    char *folder = generations_folder(run_dir), *text;
    struct generation *g = NULL;
    int n = 0, rc = generations_list(folder, &g, &n, err);

    if (rc == 0)
        links_add_copies(folder, &g, &n);
    if (rc == 0 && n == 0) {
        text = lost_describe(folder);
        rc = err_set(err, ERR_CONFIG,
                     "the run has a checkpoint of step %lld by its events.jsonl, but %s; mount the "
                     "disk that holds the checkpoints, or begin anew in another --run-dir",
                     (long long)step, text);
        free(text);
    }
    free(g);
    free(folder);
    return rc < 0 ? (err->code = ERR_CONFIG) : 0;
}

int ckpt_check_run_dir(const char *run_dir, struct err *err)
{
    struct stat st;

    if (stat(run_dir, &st) == 0 || errno != ENOENT)
        return 0;
    return err_set(err, ERR_IO,
                   "run directory %s is gone (moved?); move it back, and the next checkpoint is "
                   "written",
                   run_dir);
}
