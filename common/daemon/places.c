/* Giving out GPUs and CPUs to the ranks of one machine.
 * cpus.h divides the CPUs; here stands which rank goes with which GPU, and what is refused. */
#include "daemon/places.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cores.h"
#include "base/log.h"
#include "daemon/cpus.h"

static const char system_folder[] = "/sys/devices/system";

int places_parse(const struct daemon_options *o, int *out, struct err *err)
{
    char *end;
    long n;

    *out = 0;
    if (!o->ranks)
        return 0;
    if (!strcmp(o->ranks, "gpus")) {
        *out = PLACES_GPUS;
        return 0;
    }
    n = strtol(o->ranks, &end, 10);
    if (*end || !isdigit((unsigned char)*o->ranks) || n < 1 || n > PLACES_MAX)
        return err_set(err, ERR_ARG, "--ranks is \"%s\", want a number from 1 to %d, or gpus",
                       o->ranks, PLACES_MAX);
    *out = (int)n;
    return 0;
}

/* ---- GPUs ---- */

/* The NUMA node of a PCI address; -1: unknown. */
static int node_of_bus(const char *bus)
{
    char path[96];
    int node = -1;
    FILE *f;

    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
    for (char *c = path; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    f = *bus ? fopen(path, "re") : NULL;
    if (f && fscanf(f, "%d", &node) != 1)
        node = -1;
    if (f)
        fclose(f);
    return node;
}

static int check_gpus(const struct daemon_options *o, int n, int n_gpus, struct err *err)
{
    if (o->test_shared_gpu || n == 1)
        return 0;
    if (device_index(o->device) >= 0)
        return err_set(err, ERR_ARG,
                       "--device %s is one GPU, and each of the %d processes of --ranks needs its "
                       "own; give --device cuda, or --ranks 1",
                       o->device, n);
    if (n > n_gpus)
        return err_set(err, ERR_ARG,
                       "--ranks %d: each of them needs a GPU of its own, and %d can be used here; "
                       "give --ranks gpus for all of those, or --device cpu",
                       n, n_gpus);
    return 0;
}

/* Give out the GPUs that can be used, in their order. */
static void give_gpus(const struct devices *d, struct places *p, int *node)
{
    int k = 0;

    for (int i = 0; i < d->probe.n_gpus && i < PLUGIN_MAX_GPUS && k < p->n; i++) {
        if (d->probe.gpu[i].trouble[0])
            continue;
        snprintf(p->place[k].device, DEVICE_TEXT, "cuda:%d", i);
        node[k++] = node_of_bus(d->probe.gpu[i].bus);
    }
}

/* ---- CPUs ---- */

/* Rank `i` gets one part of the CPUs of its node: number *part of *n. */
static void part_of_node(const int *node, int n_ranks, int i, int *part, int *n)
{
    *part = *n = 0;
    for (int k = 0; k < n_ranks; k++) {
        *part += k < i && node[k] == node[i];
        *n += node[k] == node[i];
    }
}

/* 1: each rank got CPUs of its GPU's node. */
static int bind_to_nodes(const struct cpus *c, const int *node, struct places *p)
{
    for (int i = 0; i < p->n; i++) {
        int part, n;

        part_of_node(node, p->n, i, &part, &n);
        if (node[i] < 0)
            return 0;
        p->place[i].n_cpus = cpus_part(c, node[i], n, part, &p->place[i].cpus);
        if (!p->place[i].n_cpus)
            return 0;
    }
    return 1;
}

static void give_cpus(const struct daemon_options *o, const int *node, struct places *p)
{
    cpu_set_t allowed;
    struct cpus c;

    if (o->bind == BIND_NONE)
        return;
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0) {
        log_warn("--bind auto: the CPUs of this process cannot be read: %s; ranks are not bound",
                 strerror(errno));
        return;
    }
    cpus_read(system_folder, &allowed, &c);
    if (c.n < p->n)
        log_info("%d ranks share %d CPUs and are not bound to any", p->n, c.n);
    if (!bind_to_nodes(&c, node, p))
        for (int i = 0; i < p->n; i++)
            p->place[i].n_cpus = cpus_part(&c, -1, p->n, i, &p->place[i].cpus);
    cpus_fini(&c);
}

/* A rank has a thread for each of its CPUs, as far as its part of the cgroup's quota allows. */
static void give_threads(const struct daemon_options *o, struct places *p)
{
    struct cores c;

    cores_read("", &c);
    for (int i = 0; i < p->n; i++) {
        struct place *at = &p->place[i];

        at->n_threads = o->n_threads ? (int)o->n_threads : cores_limit(&c, at->n_cpus, p->n);
        at->quota = !o->n_threads && at->n_threads < at->n_cpus ? c.quota : 0;
    }
}

/* ---- all ---- */

/* A long reason, not the remedy behind it, loses its end. */
static int refuse_gpus(const struct devices *d, struct err *err)
{
    enum { OTHERS = 100 }; /* the bytes of the message beside the reason */
    const int most = (int)sizeof err->msg - OTHERS, is_cut = strlen(d->trouble) > (size_t)most;

    return err_set(err, ERR_UNSUPPORTED,
                   "--ranks gpus: no GPU can be used here%s%.*s%s; --ranks N starts ranks on CPUs",
                   d->trouble[0] ? ": " : "", most, d->trouble, is_cut ? "..." : "");
}

int places_find(const struct daemon_options *o, const struct devices *d, struct places *out,
                struct err *err)
{
    const int n_gpus = devices_n_usable(d);
    int n, *node, rc = places_parse(o, &n, err);

    *out = (struct places){0};
    if (rc < 0 || n == 0)
        return rc;
    if (n == PLACES_GPUS && n_gpus == 0)
        return refuse_gpus(d, err);
    n = n == PLACES_GPUS ? n_gpus : n;
    if (n_gpus > 0 && check_gpus(o, n, n_gpus, err) < 0)
        return err->code;
    *out = (struct places){.place = xcalloc((size_t)n, sizeof *out->place), .n = n};
    node = xcalloc((size_t)n, sizeof *node);
    for (int i = 0; i < n; i++) {
        snprintf(out->place[i].device, DEVICE_TEXT, "%s", o->device);
        node[i] = -1;
    }
    if (n_gpus > 0 && !o->test_shared_gpu && device_index(o->device) < 0)
        give_gpus(d, out, node);
    give_cpus(o, node, out);
    give_threads(o, out);
    free(node);
    return 0;
}

void places_fini(struct places *p)
{
    free(p->place);
    *p = (struct places){0};
}

void place_log(const struct place *p, const char *name)
{
    char cpus[256], quota[64] = "";

    if (p->quota > 0)
        snprintf(quota, sizeof quota, " (the cgroup's quota is %.4g CPU%s)", p->quota,
                 p->quota > 1 ? "s" : "");
    if (!p->n_cpus) {
        log_info("%s: --device %s, bound to no CPUs", name, p->device);
        return;
    }
    cpus_text(&p->cpus, cpus, sizeof cpus);
    log_info("%s: --device %s, bound to CPU%s %s, %d thread%s%s", name, p->device,
             p->n_cpus == 1 ? "" : "s", cpus, p->n_threads, p->n_threads == 1 ? "" : "s", quota);
}

void place_bind_self(const struct place *p)
{
    if (p->n_cpus && sched_setaffinity(0, sizeof p->cpus, &p->cpus) < 0)
        log_warn("--bind auto: %s; this rank is not bound", strerror(errno));
}
