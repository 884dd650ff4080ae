/* Devices: which one a follower is told to use, and the reason if there is none for it.  All ranks
 * use the same kind, and each GPU has one rank. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "session/driver_impl.h"

static int has_backend(const Wire__Hello *h, const char *name)
{
    for (size_t i = 0; i < h->n_backends; i++)
        if (!strcmp(h->backends[i], name))
            return 1;
    return 0;
}

static char *device_mix(const struct driver *d, const char *wanted)
{
    return xasprintf("this job runs on %s, as its driver does, and not on %s; all ranks must use "
                     "the same kind of device",
                     d->o.device, wanted);
}

/* The rank that uses a GPU of this follower, or -1. */
static int user_of(const struct driver *d, const Wire__Hello *h, const Wire__Gpu *g)
{
    return seats_rank_of_gpu(d, &(struct gpu_ref){g->uuid, g->bus, h->host, h->host_id});
}

/* List "cuda:1 (NVIDIA H200, GPU-5f...)" for each GPU that no rank uses, or say that there is
 * none. */
static void list_free(const struct driver *d, const Wire__Hello *h, struct buf *out)
{
    int n = 0;
    for (size_t i = 0; i < h->n_gpus; i++)
        if (user_of(d, h, h->gpus[i]) < 0)
            buf_printf(out, "%scuda:%d (%s, %s)",
                       n++ ? ", " : "; free there: ", (int)h->gpus[i]->index, h->gpus[i]->name,
                       h->gpus[i]->uuid);
    if (!n && h->n_gpus == 1)
        buf_printf(out, "; there is no other");
    else if (!n)
        buf_printf(out, "; none of its %zu is free", h->n_gpus);
}

static char *with_free(const struct driver *d, const Wire__Hello *h, char *text)
{
    struct buf b = {0};
    char *whole;
    buf_printf(&b, "%s", text);
    list_free(d, h, &b);
    whole = xstrdup(buf_cstr(&b));
    buf_fini(&b);
    free(text);
    return whole;
}

/* 1: `rank` uses another slice of this GPU (MIG). */
static int is_slice(const struct driver *d, int rank, const Wire__Gpu *g)
{
    return rank >= 0 && strcmp(d->seats[rank].gpu, g->uuid) != 0;
}

static char *why_taken(const struct driver *d, const Wire__Hello *h, const Wire__Gpu *g)
{
    int rank = user_of(d, h, g);
    char *what =
        is_slice(d, rank, g)
            ? xasprintf("is a slice of the GPU (PCI %s) of which rank %d uses %s, and NCCL "
                        "takes one rank a GPU",
                        g->bus, rank, d->seats[rank].gpu)
            : xasprintf("is used by rank %d already", rank);
    char *text =
        xasprintf("cuda:%d of %s (%s, %s) %s", (int)g->index, h->host, g->name, g->uuid, what);
    free(what);
    return with_free(d, h, text);
}

/* The GPU that the follower names; or NULL, and the reason why it cannot be used. */
static const Wire__Gpu *named_gpu(const struct driver *d, const Wire__Hello *h, long index,
                                  char **why)
{
    for (size_t i = 0; i < h->n_gpus; i++) {
        const Wire__Gpu *g = h->gpus[i];
        if (g->index != index)
            continue;
        if (user_of(d, h, g) < 0 || d->o.shares_gpus)
            return g;
        *why = why_taken(d, h, g);
        return NULL;
    }
    *why =
        with_free(d, h, xasprintf("there is no %s that could be used on %s", h->device, h->host));
    return NULL;
}

/* The reason why no GPU can be used: a slice of the first one is in use, or other ranks use all. */
static char *why_none(const struct driver *d, const Wire__Hello *h)
{
    for (size_t i = 0; i < h->n_gpus; i++)
        if (is_slice(d, user_of(d, h, h->gpus[i]), h->gpus[i]))
            return why_taken(d, h, h->gpus[i]);
    return xasprintf("%s has %zu GPU%s, and other ranks use all of them", h->host, h->n_gpus,
                     h->n_gpus == 1 ? "" : "s");
}

/* The follower's GPU: the one it names, or the first that no rank uses. */
static const Wire__Gpu *choose_gpu(const struct driver *d, const Wire__Hello *h, char **why)
{
    const char *colon = strchr(h->device, ':');
    if (colon)
        return named_gpu(d, h, strtol(colon + 1, NULL, 10), why);
    for (size_t i = 0; i < h->n_gpus; i++)
        if (user_of(d, h, h->gpus[i]) < 0)
            return h->gpus[i];
    if (d->o.shares_gpus && h->n_gpus > 0)
        return h->gpus[0];
    *why = why_none(d, h);
    return NULL;
}

static char *why_no_backend(const struct driver *d, const Wire__Hello *h, int is_cuda)
{
    if (!is_cuda)
        return xasprintf("this job runs on %s, and the follower on %s has no cpu", d->o.device,
                         h->host);
    return xasprintf("this job runs on %s, and the follower on %s has no GPU that it can use%s%s; "
                     "mend that there, or start dpdriver with --device cpu, for all to use none",
                     d->o.device, h->host, *h->no_gpu ? ": " : "", h->no_gpu);
}

char *choose_device(const struct driver *d, const Wire__Hello *h, const Wire__Gpu **gpu, char **why)
{
    int is_cuda = !strncmp(d->o.device, "cuda", 4);
    const char *kind = is_cuda ? "cuda" : "cpu";

    *gpu = NULL;
    if (strcmp(h->device, "auto") != 0 && strncmp(h->device, kind, strlen(kind)) != 0) {
        *why = device_mix(d, h->device);
        return NULL;
    }
    if (!has_backend(h, kind)) {
        *why = why_no_backend(d, h, is_cuda);
        return NULL;
    }
    if (!is_cuda)
        return xstrdup("cpu");
    *gpu = choose_gpu(d, h, why);
    return *gpu ? xasprintf("cuda:%d", (int)(*gpu)->index) : NULL;
}
