/* golden_gpu - makes the golden losses' test (tests/golden/test_golden.c) run on the GPU's
 * backend. */
#include "golden_backend.h"
#include "gpu.h"

int golden_backend_find(void) { return gpu_find(); }
int golden_backend_open(struct backend **out, struct err *err) { return gpu_open(out, err); }
