/* dnn - cuDNN as the backend's kernels use it.
 *
 * Life:    the first kernel that needs cuDNN opens it; cuda_close closes it.
 * Threads: the backend's.
 * Errors:  ERR_DEVICE, with cuDNN's text. */
#ifndef BACKEND_CUDA_DNN_H
#define BACKEND_CUDA_DNN_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn.h"

struct dnn {
    cudnnHandle_t handle;
    struct cudnn_device *device;
};

/* The backend's cuDNN, which the first call opens. */
int dnn_of(struct cuda *b, struct dnn **out, struct err *err);

/* The rules that the job's choices make. */
struct cudnn_rules dnn_rules(const struct cuda *b);

/* The room that n_bytes take in a kernel's scratch, where each piece is aligned to 256 bytes. */
static inline size_t dnn_piece(size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

#endif
