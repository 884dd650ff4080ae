/* cudnn_json - a GPU as cuDNN describes it, in the text from which plans can be built elsewhere
 * (tests/cudnn/plans.h has one). */
#ifndef TESTS_GPU_CUDNN_JSON_H
#define TESTS_GPU_CUDNN_JSON_H

#include "base/err.h"

/* Of GPU 0; or, with `properties`, of the GPU that this text describes: then none is needed.
 * cudnn: libcudnn.so.9, loaded.  *out is to be freed. */
int cudnn_json(void *cudnn, const char *properties, char **out, struct err *err);

#endif
