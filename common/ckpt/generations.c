/* generations - the generations in a run's folder of checkpoints.
 *
 * Any other entry, such as one that is being written, does not count. */
#include "ckpt/generations.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

char *generations_folder(const char *run_dir) { return xasprintf("%s/checkpoints", run_dir); }

void generation_name(int64_t step, char name[GENERATION_NAME])
{
    snprintf(name, GENERATION_NAME, "step-%08lld", (long long)step);
}

int generation_step(const char *name, int64_t *step)
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

int generations_set_aside(const char *folder, const char *from, const char *as, const char *name,
                          struct err *err)
{
    enum { MOST = 1000 };

    for (int i = 1; i <= MOST; i++) {
        char *to = i == 1 ? xasprintf("%s/%s-%s", folder, as, name)
                          : xasprintf("%s/%s-%s-%d", folder, as, name, i);
        const int rc = rename(from, to) == 0 ? 0 : errno;

        if (rc != 0)
            err_sys(err, rc, "%s: cannot rename to %s", from, to);
        free(to);
        if (rc == 0)
            return 0;
        if (rc != EEXIST && rc != ENOTEMPTY && rc != ENOTDIR) /* the name is free */
            break;
    }
    return err->code;
}
