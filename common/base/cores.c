/* The affinity mask, and the files of cgroups.
 *
 * /proc/self/cgroup has a line "NUMBER:CONTROLLERS:PATH" for each hierarchy, "0::PATH" for v2.  A
 * container may see a path of its host's, which it has no folders for; its own cgroup is then the
 * root of what it sees.  So the folders of the path are tried up to the root, and missing files are
 * no quota. */
#include "base/cores.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

/* Up to two numbers from a file: how many there were. */
static int cores_read_numbers(const char *folder, const char *name, double out[2])
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    int n = f ? fscanf(f, "%lf %lf", &out[0], &out[1]) : 0;

    if (f)
        fclose(f);
    free(path);
    return n > 0 ? n : 0;
}

/* "250000 100000", or "max 100000". */
static double quota_v2(const char *folder)
{
    double v[2];

    return cores_read_numbers(folder, "cpu.max", v) == 2 && v[0] > 0 && v[1] > 0 ? v[0] / v[1] : 0;
}

/* -1 is no quota. */
static double quota_v1(const char *folder)
{
    double quota[2], period[2];

    if (cores_read_numbers(folder, "cpu.cfs_quota_us", quota) < 1 ||
        cores_read_numbers(folder, "cpu.cfs_period_us", period) < 1)
        return 0;
    return quota[0] > 0 && period[0] > 0 ? quota[0] / period[0] : 0;
}

/* A place where the hierarchy with the CPU controller is mounted, and the file to name. */
static const struct hierarchy {
    const char *folder, *name;
    double (*quota)(const char *folder);
    int is_v2;
} hierarchies[] = {
    {"/sys/fs/cgroup", "cpu.max", quota_v2, 1},
    {"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota_v1, 0},
    {"/sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us", quota_v1, 0},
};

/* Take the least quota of the cgroup at `path` and of those above it.  `path` is cut on the way. */
static void take_least(struct cores *c, const char *root, const struct hierarchy *h, char *path)
{
    char *slash;

    do {
        char *folder = xasprintf("%s%s%s", root, h->folder, path);
        const double quota = h->quota(folder);

        if (quota > 0 && (c->quota <= 0 || quota < c->quota)) {
            c->quota = quota;
            snprintf(c->from, sizeof c->from, "%s/%s", folder + strlen(root), h->name);
        }
        free(folder);
        slash = strrchr(path, '/');
        if (slash)
            *slash = '\0';
    } while (slash);
}

/* 1: `names`, which is taken apart, is a list such as "cpu,cpuacct" with cpu in it. */
static int has_cpu(char *names)
{
    char *rest = names, *name;

    while ((name = strtok_r(rest, ",", &rest)))
        if (!strcmp(name, "cpu"))
            return 1;
    return 0;
}

static void take_line(struct cores *c, const char *root, char *line)
{
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    int is_v2;

    if (!path)
        return;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (!strcmp(path, "/"))
        *path = '\0';
    is_v2 = !*++names;
    if (!is_v2 && !has_cpu(names))
        return;
    for (size_t i = 0; i < ARRAY_LEN(hierarchies); i++)
        if (hierarchies[i].is_v2 == is_v2) {
            char *copy = xstrdup(path);

            take_least(c, root, &hierarchies[i], copy);
            free(copy);
        }
}

static int cores_n_allowed(void)
{
    cpu_set_t set;
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                         : sysconf(_SC_NPROCESSORS_ONLN);

    return n > 0 ? (int)n : 1;
}

void cores_read(const char *root, struct cores *out)
{
    char *path = xasprintf("%s/proc/self/cgroup", root), *line = NULL;
    FILE *f = fopen(path, "re");
    size_t size = 0;

    *out = (struct cores){.n = cores_n_allowed()};
    while (f && getline(&line, &size, f) > 0)
        take_line(out, root, line);
    if (f)
        fclose(f);
    free(line);
    free(path);
}

int cores_limit(const struct cores *c, int n_threads, int n_ranks)
{
    const double all = ceil(c->quota - 1e-9), part = floor(all / (n_ranks > 0 ? n_ranks : 1));

    if (c->quota <= 0 || part >= n_threads)
        return n_threads;
    return part >= 1 ? (int)part : 1;
}

void cores_describe(const struct cores *c, char out[CORES_TEXT])
{
    snprintf(out, CORES_TEXT, "the cgroup's quota is %.4g CPU%s (%s)", c->quota,
             c->quota == 1 ? "" : "s", c->from);
}
