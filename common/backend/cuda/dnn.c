/* dnn - the backend's handle of cuDNN, and the timer of its plans: a plan is run on tensors of its
 * real sizes, whose memory is given back at once. */
#include "backend/cuda/dnn.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>

#include "backend/cuda/tune.h"
#include "base/alloc.h"
#include "base/util.h"

static void cuda_dnn_close(void *p)
{
    struct dnn *d = p;

    cudnn_device_free(d->device);
    if (d->handle)
        cudnnDestroy(d->handle);
    free(d);
}

static int cuda_dnn_failed(cudnnStatus_t st, const char *doing, struct err *err)
{
    if (st == CUDNN_STATUS_SUCCESS)
        return 0;
    return err_set(err, ERR_DEVICE, "cuDNN %zu: %s: %s", cudnnGetVersion(), doing,
                   cudnnGetErrorString(st));
}

struct timed {
    struct cudnn_device *device;
    struct cudnn_pack *pack;
};

static int cuda_dnn_run_timed(void *arg, struct err *err)
{
    const struct timed *t = arg;

    return cudnn_pack_run(t->device, t->pack, err);
}

/* A cudnn_timer, whose arg is a struct cuda. */
static int time_plan(void *arg, struct cudnn_device *d, const struct cudnn_plan *p,
                     const size_t *n_bytes, double *us, struct err *err)
{
    struct cuda *b = arg;
    struct timed t = {d, NULL};
    size_t size[CUDNN_MAX_TENSORS + 1] = {p->workspace};
    void *at[CUDNN_MAX_TENSORS + 1], *base = NULL;
    int rc;

    ASSERT(p->n_tensors <= CUDNN_MAX_TENSORS);
    for (int i = 0; i < p->n_tensors; i++)
        size[1 + i] = n_bytes[i];
    rc = tune_alloc(b, size, 1 + p->n_tensors, at, &base, err);
    if (rc < 0)
        return rc;
    rc = cudnn_pack_new(p, at + 1, at[0], &t.pack, err);
    if (rc == 0)
        rc = tune_time(b, cuda_dnn_run_timed, &t, us, err);
    cudnn_pack_free(t.pack);
    backend_free(&b->base, base);
    return rc;
}

static int cuda_dnn_open(struct dnn *d, struct cuda *b, struct err *err)
{
    char gpu[TUNE_GPU_LEN];
    int rc = cuda_dnn_failed(cudnnCreate(&d->handle), "open", err);

    if (rc == 0)
        rc = cuda_dnn_failed(cudnnSetStream(d->handle, b->stream), "set the stream", err);
    if (rc == 0)
        rc = tune_describe_gpu(b, gpu, err);
    if (rc == 0)
        rc = cudnn_device_live(d->handle, gpu, &d->device, err);
    if (rc == 0)
        cudnn_device_use(d->device, b->plans, time_plan, b);
    return rc;
}

int dnn_of(struct cuda *b, struct dnn **out, struct err *err)
{
    if (!b->dnn.handle) {
        struct dnn *d = xcalloc(1, sizeof *d);
        int rc = cuda_dnn_open(d, b, err);

        if (rc < 0) {
            cuda_dnn_close(d);
            return rc;
        }
        b->dnn.handle = d;
        b->dnn.close = cuda_dnn_close;
    }
    *out = b->dnn.handle;
    return 0;
}

struct cudnn_rules dnn_rules(const struct cuda *b)
{
    const struct plugin_choices *job = &b->choices;

    return (struct cudnn_rules){job->max_workspace, job->allow_tf32, job->autotune};
}
