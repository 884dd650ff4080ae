/* Reading the CPUs' topology from the system's files, and dividing the CPUs among ranks.
 * The files hold lists such as "0-3,8-11"; a number outside a cpu_set_t ends the reading of one. */
#include "daemon/cpus.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

/* ---- lists of numbers ---- */

static void parse_list(const char *text, cpu_set_t *out)
{
    CPU_ZERO(out);
    while (*text >= '0' && *text <= '9') {
        char *end;
        long first = strtol(text, &end, 10), last = first;

        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long i = first; i <= last && i < CPU_SETSIZE; i++)
            CPU_SET((size_t)i, out);
        text = *end == ',' ? end + 1 : end;
    }
}

/* 0: the file is not there; then *out is empty. */
static int cpus_read_list(const char *path, cpu_set_t *out)
{
    FILE *f = fopen(path, "re");
    char text[4096];
    size_t n;

    CPU_ZERO(out);
    if (!f)
        return 0;
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    parse_list(text, out);
    return 1;
}

static int cpus_first_of(const cpu_set_t *set)
{
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, set))
            return i;
    return -1;
}

void cpus_text(const cpu_set_t *set, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; i < CPU_SETSIZE; i++) {
        char range[32];
        int last = i;

        if (!CPU_ISSET((size_t)i, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET((size_t)last + 1, set))
            last++;
        snprintf(range, sizeof range, last > i ? "%s%d-%d" : "%s%d", n ? "," : "", i, last);
        if (n + strlen(range) + sizeof "..." > size) {
            snprintf(out + n, size - n, "...");
            return;
        }
        n += (size_t)snprintf(out + n, size - n, "%s", range);
        i = last;
    }
}

/* ---- the machine ---- */

static int core_of(const char *folder, int cpu)
{
    char *path = xasprintf("%s/cpu/cpu%d/topology/thread_siblings_list", folder, cpu);
    cpu_set_t siblings;
    int first;

    cpus_read_list(path, &siblings);
    first = cpus_first_of(&siblings);
    free(path);
    return first < 0 ? cpu : first;
}

static void read_nodes(const char *folder, struct cpus *c)
{
    char *nodes = xasprintf("%s/node", folder);
    DIR *d = opendir(nodes);
    struct dirent *e;
    int node, end;

    while (d && (e = readdir(d))) {
        char *path;
        cpu_set_t set;

        if (sscanf(e->d_name, "node%d%n", &node, &end) != 1 || e->d_name[end] || node < 0)
            continue;
        path = xasprintf("%s/%s/cpulist", nodes, e->d_name);
        cpus_read_list(path, &set);
        free(path);
        for (int i = 0; i < c->n; i++)
            if (CPU_ISSET((size_t)c->cpu[i].cpu, &set))
                c->cpu[i].node = node;
    }
    if (d)
        closedir(d);
    free(nodes);
}

static int by_place(const void *left, const void *right)
{
    const struct cpu *a = left, *b = right;

    if (a->node != b->node)
        return a->node - b->node;
    return a->core != b->core ? a->core - b->core : a->cpu - b->cpu;
}

void cpus_read(const char *folder, const cpu_set_t *allowed, struct cpus *out)
{
    *out = (struct cpus){.cpu = xcalloc((size_t)CPU_COUNT(allowed) + 1, sizeof *out->cpu)};
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, allowed))
            out->cpu[out->n++] = (struct cpu){.cpu = i, .core = core_of(folder, i)};
    read_nodes(folder, out);
    qsort(out->cpu, (size_t)out->n, sizeof *out->cpu, by_place);
}

void cpus_fini(struct cpus *c)
{
    free(c->cpu);
    *c = (struct cpus){0};
}

/* ---- parts ---- */

/* Does CPU `i` of the order belong to another core than the one before it? */
static int begins_core(const struct cpu *cpu, int i)
{
    return i == 0 || cpu[i].core != cpu[i - 1].core || cpu[i].node != cpu[i - 1].node;
}

/* The CPUs of one node stand together: the first of them, and their number. */
static const struct cpu *of_node(const struct cpus *c, int node, int *n)
{
    int first = 0, last;

    while (first < c->n && c->cpu[first].node != node)
        first++;
    for (last = first; last < c->n && c->cpu[last].node == node; last++)
        ;
    *n = last - first;
    return c->cpu + first;
}

int cpus_part(const struct cpus *c, int node, int n, int i, cpu_set_t *out)
{
    const struct cpu *cpu = c->cpu;
    int n_cpus = c->n, n_cores = 0, n_units, unit = -1;

    ASSERT(n > 0 && i >= 0 && i < n);
    CPU_ZERO(out);
    if (node >= 0)
        cpu = of_node(c, node, &n_cpus);
    if (n_cpus < n)
        return 0;
    for (int k = 0; k < n_cpus; k++)
        n_cores += begins_core(cpu, k);
    n_units = n_cores >= n ? n_cores : n_cpus;
    for (int k = 0; k < n_cpus; k++) {
        unit += n_units == n_cpus || begins_core(cpu, k);
        if (unit >= (int)((long)n_units * i / n) && unit < (int)((long)n_units * (i + 1) / n))
            CPU_SET((size_t)cpu[k].cpu, out);
    }
    return CPU_COUNT(out);
}
