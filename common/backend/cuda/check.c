/* check - turns an error code of the CUDA runtime into a struct err.
 *
 * The backend and coll/nccl use it. */
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda.h"

int cuda_check(int status, const char *what, struct err *err)
{
    if (status == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* reported here, so the check of a later launch must not see it */
    return err_set(err, ERR_DEVICE, "cannot %s: %s (%s)", what,
                   cudaGetErrorString((cudaError_t)status), cudaGetErrorName((cudaError_t)status));
}

int cuda_no_memory(size_t n_bytes, const char *what, struct err *err)
{
    size_t left = 0, total = 0;

    (void)cudaMemGetInfo(&left, &total);
    (void)cudaGetLastError(); /* reported here, so the check of a later launch must not see it */
    return err_set(
        err, ERR_NOMEM,
        "%s needs %.1f MiB of GPU memory, %.1f of %.1f MiB are free: a smaller batch, or "
        "train.accumulate, needs less",
        what, (double)n_bytes / 0x1p20, (double)left / 0x1p20, (double)total / 0x1p20);
}
