/* cudnn - cuDNN's devices and descriptors, and running plans at given addresses.
 *
 * cudnn_plan.c finds the plans. */
#include "backend/cuda/cudnn_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

struct cudnn_pack {
    cudnnBackendDescriptor_t plan, raw;
};

int cudnn_refused(struct err *err, cudnnStatus_t st, const char *what, const char *doing)
{
    char text[300] = "";

    cudnnGetLastErrorString(text, sizeof text);
    return err_set(err, ERR_DEVICE, "%s: %s: cuDNN says %s%s%s", what, doing,
                   cudnnGetErrorString(st), text[0] ? ": " : "", text);
}

cudnnStatus_t cudnn_make(cudnnBackendDescriptorType_t type, const struct attr *a, int n,
                         cudnnBackendDescriptor_t *out)
{
    cudnnBackendDescriptor_t d = NULL;
    cudnnStatus_t st = cudnnBackendCreateDescriptor(type, &d);

    for (int i = 0; st == CUDNN_STATUS_SUCCESS && i < n; i++)
        st = cudnnBackendSetAttribute(d, a[i].name, a[i].type, a[i].n, a[i].value);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendFinalize(d);
    if (st == CUDNN_STATUS_SUCCESS)
        *out = d;
    else if (d)
        cudnnBackendDestroyDescriptor(d);
    return st;
}

void cudnn_destroy(cudnnBackendDescriptor_t d)
{
    if (d)
        cudnnBackendDestroyDescriptor(d);
}

/* ---- devices ---- */

static struct cudnn_device *device_new(const char *gpu)
{
    struct cudnn_device *d = xcalloc(1, sizeof *d);

    snprintf(d->gpu, sizeof d->gpu, "%s", gpu);
    return d;
}

int cudnn_device_live(cudnnHandle_t handle, const char *gpu, struct cudnn_device **out,
                      struct err *err)
{
    if (!handle)
        return err_set(err, ERR_ARG, "cuDNN: no handle for %s", gpu);
    *out = device_new(gpu);
    (*out)->handle = handle;
    return 0;
}

int cudnn_device_described(const char *properties, const char *gpu, struct cudnn_device **out,
                           struct err *err)
{
    struct cudnn_device *d = device_new(gpu);
    const struct attr a[] = {
        ATTR(DEVICEPROP_JSON_REPRESENTATION, CHAR, (int64_t)strlen(properties), properties)};
    cudnnStatus_t st = cudnn_make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, a, 1, &d->prop);

    if (st != CUDNN_STATUS_SUCCESS) {
        cudnn_device_free(d);
        return cudnn_refused(err, st, gpu, "device properties");
    }
    *out = d;
    return 0;
}

void cudnn_device_free(struct cudnn_device *d)
{
    if (!d)
        return;
    while (d->first) {
        struct entry *e = d->first;

        d->first = e->next;
        cudnn_destroy(e->plan.raw);
        free(e);
    }
    cudnn_destroy(d->prop);
    free(d);
}

void cudnn_device_use(struct cudnn_device *d, struct plan_cache *cache, cudnn_timer *timer,
                      void *arg)
{
    d->cache = cache;
    d->timer = timer;
    d->timer_arg = arg;
}

/* ---- running ---- */

int cudnn_pack_new(const struct cudnn_plan *p, void *const *ptr, void *workspace,
                   struct cudnn_pack **out, struct err *err)
{
    struct cudnn_pack *pack = xcalloc(1, sizeof *pack);
    int64_t uid[CUDNN_MAX_TENSORS], n = 0;
    void *real[CUDNN_MAX_TENSORS];
    cudnnStatus_t st;

    for (int i = 0; i < p->n_tensors; i++)
        if (p->uid[i] >= 0) {
            uid[n] = p->uid[i];
            real[n++] = p->number[i] ? p->number[i] : ptr[i];
        }
    const struct attr a[] = {ATTR(VARIANT_PACK_UNIQUE_IDS, INT64, n, uid),
                             ATTR(VARIANT_PACK_DATA_POINTERS, VOID_PTR, n, real),
                             ATTR(VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &workspace)};

    pack->plan = p->raw;
    st = cudnn_make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, a, ARRAY_LEN(a), &pack->raw);
    if (st != CUDNN_STATUS_SUCCESS) {
        free(pack);
        return cudnn_refused(err, st, "cuDNN plan", "binding addresses");
    }
    *out = pack;
    return 0;
}

int cudnn_pack_run(struct cudnn_device *d, const struct cudnn_pack *pack, struct err *err)
{
    cudnnStatus_t st;

    ASSERT(d->handle); /* a described device cannot run */
    st = cudnnBackendExecute(d->handle, pack->plan, pack->raw);
    return st == CUDNN_STATUS_SUCCESS ? 0 : cudnn_refused(err, st, "cuDNN plan", "executing");
}

void cudnn_pack_free(struct cudnn_pack *pack)
{
    if (!pack)
        return;
    cudnn_destroy(pack->raw);
    free(pack);
}
