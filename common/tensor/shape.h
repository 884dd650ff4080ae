/* shape - the extents of a dense tensor, outermost first, packed row-major.
 *
 * Images are [N,H,W,C] everywhere in dptrain.  Convolution weights are [K,C,R,S] and linear weights
 * [out,in], as PyTorch stores them.
 *
 * Threads: pure. */
#ifndef TENSOR_SHAPE_H
#define TENSOR_SHAPE_H

#include <stddef.h>
#include <stdint.h>

enum { SHAPE_MAX_DIMS = 8, SHAPE_TEXT_LEN = 192 };

struct shape {
    int n;                       /* number of dimensions, 0 for a scalar */
    int64_t dim[SHAPE_MAX_DIMS]; /* each >= 0 */
};

#define SHAPE(...) \
    ((struct shape){.n = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = {__VA_ARGS__}})

int64_t shape_elements(const struct shape *s); /* product of the extents, 1 for a scalar */
int shape_equal(const struct shape *a, const struct shape *b);

/* Write the shape as text, "[256,28,28,1]"; returns out. */
const char *shape_text(const struct shape *s, char out[SHAPE_TEXT_LEN]);

#endif
