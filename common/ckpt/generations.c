/* generations - the generations in a run's folder of checkpoints, by name, and the links to them.
 */
#include "ckpt/generations.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/file.h"
#include "ckpt/owner.h"

char *generations_folder(const char *run_dir) { return xasprintf("%s/checkpoints", run_dir); }

void generation_name(int64_t step, char name[GENERATION_NAME])
{
    snprintf(name, GENERATION_NAME, "step-%08" PRId64, step);
}

/* 1 and the step if `name` is step- and at least 8 digits. */
static int generation_step(const char *name, int64_t *step)
{
    size_t digits = 0;

    if (strncmp(name, "step-", 5) != 0)
        return 0;
    while (isdigit((unsigned char)name[5 + digits]))
        digits++;
    if (digits < 8 || digits > 18 || name[5 + digits])
        return 0;
    *step = strtoll(name + 5, NULL, 10);
    return 1;
}

static int newest_first(const void *a, const void *b)
{
    const struct generation *x = a, *y = b;

    return (x->step < y->step) - (x->step > y->step);
}

int generations_list(const char *folder, struct generation **out, int *n, struct err *err)
{
    DIR *d = opendir(folder);
    struct generation *g = NULL;
    struct dirent *entry;

    *n = 0;
    *out = NULL;
    if (!d && errno == ENOENT)
        return 0;
    if (!d)
        return err_sys(err, errno, "%s", folder);
    while ((entry = readdir(d))) {
        int64_t step;

        if (!generation_step(entry->d_name, &step))
            continue;
        g = xrealloc(g, sizeof *g * (size_t)(*n + 1));
        g[*n].step = step;
        snprintf(g[(*n)++].name, sizeof g->name, "%.31s", entry->d_name);
    }
    closedir(d);
    if (*n)
        qsort(g, (size_t)*n, sizeof *g, newest_first);
    *out = g;
    return 0;
}

int generations_point(const char *which, const char *run_dir, const char *folder, const char *name,
                      struct err *err)
{
    char *link = xasprintf("%s/%s", folder, which);
    char *aside = xasprintf("%s/%s.%s.tmp", folder, which, owner_own_id());
    int rc = owner_check(run_dir, err);

    if (rc < 0)
        goto out;
    unlink(aside);
    if (symlink(name, aside) < 0 || rename(aside, link) < 0)
        rc = err_sys(err, errno, "%s: cannot point it to %s", link, name);
    if (rc == 0)
        rc = file_sync_folder(folder, err);
out:
    free(link);
    free(aside);
    return rc;
}

void generations_unpoint_best(const char *folder, const char *name)
{
    char *link = xasprintf("%s/best", folder), to[GENERATION_NAME] = "";

    if (readlink(link, to, sizeof to - 1) > 0 && !strcmp(to, name))
        (void)unlink(link);
    free(link);
}
