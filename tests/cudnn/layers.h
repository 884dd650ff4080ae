/* layers - a convolution and a linear layer of backend/cuda over the fakes and the simulator. */
#ifndef TESTS_CUDNN_LAYERS_H
#define TESTS_CUDNN_LAYERS_H

#include "backend/cuda/cuda.h"

/* c: as the plugin's configure gets it; NULL: not called. */
struct backend *layers_open(const struct plugin_choices *c);
void layers_close(struct backend *b); /* and nothing is left open */

/* x [2,5,5,3] -> conv with bias and relu -> a product with bias, flatten fused: both kernels made,
 * bound and run once.  y: what came out, or NULL.  0, or the first failure's code. */
enum { LAYERS_Y = 2 * 6 };
int layers_use(struct backend *b, float y[LAYERS_Y], struct err *err);

#endif
