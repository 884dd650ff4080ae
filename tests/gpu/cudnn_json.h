/* cudnn_json - cuDNN's description of a GPU, as text from which plans can be built on another
 * machine (tests/cudnn/plans.h has such a text). */
#ifndef TESTS_GPU_CUDNN_JSON_H
#define TESTS_GPU_CUDNN_JSON_H

#include "base/err.h"

/* Describe GPU 0, or, if `properties` is not NULL, the GPU that this text describes: then no GPU is
 * needed.  cudnn: the handle of libcudnn.so.9.  The caller frees *out. */
int cudnn_json(void *cudnn, const char *properties, char **out, struct err *err);

#endif
