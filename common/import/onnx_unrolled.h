/* onnx_unrolled - recurrent layers of ONNX that no layer of PyTorch is, made step by step.
 *
 * Threads: as the reader of ONNX.
 * Errors:  o->rc, as all functions that make nodes. */
#ifndef IMPORT_ONNX_UNROLLED_H
#define IMPORT_ONNX_UNROLLED_H

#include "import/onnx_impl.h"

/* The node, whose inputs 1, 2, 3 and 7 are weights, those of the state, biases and peepholes. */
struct onnx_cells {
    int gates; /* 3: GRU, 4: LSTM */
    int n_dirs, is_back;
    int n_states; /* 1: h, 2: h and c */
    int64_t H;
    int x;        /* [T,N,I] */
    int first[2]; /* [directions,N,H] */
};

/* out[]: the states of all steps, [T,N,directions H], and the last ones, [directions,N,H]. */
void onnx_unroll(struct onnx *o, const struct onnx_cells *c, int *out);

#endif
