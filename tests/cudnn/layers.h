/* layers - a convolution and a linear layer of backend/cuda, over the fakes (fakes.h) and the
 * simulator (cudasim/sim.h). */
#ifndef TESTS_CUDNN_LAYERS_H
#define TESTS_CUDNN_LAYERS_H

#include "backend/cuda/cuda.h"

/* c: what the plugin's configure gets; NULL: configure is not called. */
struct backend *layers_open(const struct plugin_choices *c);
void layers_close(struct backend *b); /* asserts that nothing is left open */

/* Make, bind and run once the kernels of x [2,5,5,3] -> conv with bias and relu -> a product with
 * bias, into which flatten is fused.  y: where the output goes, or NULL.  Returns 0, or the code of
 * the first failure. */
enum { LAYERS_Y = 2 * 6 };
int layers_use(struct backend *b, float y[LAYERS_Y], struct err *err);

#endif
