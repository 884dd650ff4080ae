/* golden_gpu - the golden losses' backend is the GPU's. The program is
 * tests/golden/golden_rig.c's. */
#include "golden_backend.h"
#include "gpu.h"

int golden_backend_find(void) { return gpu_find(); }
int golden_backend_open(struct backend **out, struct err *err) { return gpu_open(out, err); }
