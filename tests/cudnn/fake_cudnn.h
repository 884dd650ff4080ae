/* fake_cudnn - the descriptors of the stand-in for cuDNN: fake_cudnn.c keeps them, and
 * fake_execution.c computes what they describe. */
#ifndef TESTS_CUDNN_FAKE_CUDNN_H
#define TESTS_CUDNN_FAKE_CUDNN_H

#include <cudnn.h>

#include "fake_state.h"

enum { MAX_ATTRS = 16, FAKE_WORKSPACE = 1000 };

struct attr {
    int name;
    int64_t n;
    size_t size; /* of one element; 0: the elements are descriptors */
    void *value;
};

struct desc {
    int type, n_refs, finalized;
    int number;          /* the engine's, in an engine or an engine configuration */
    struct desc *source; /* the heuristics that gave a configuration */
    struct attr attr[MAX_ATTRS];
    int n_attrs;
};

struct cudnnContext {
    cudaStream_t stream;
};

int fake_note_of(int engine); /* its numerical note; -1: none */

/* Attribute `name`, which must have n elements; -1: any number, and NULL if it is not set. */
const void *fake_get(const struct desc *d, int name, int64_t n);
struct desc *fake_get_desc(const struct desc *d, int name);

/* A plan's workspace in bytes.  That of attention's gradient grows with the samples. */
int64_t fake_workspace(const struct desc *plan);

void fake_release(struct desc *d); /* drops one reference; d may be NULL */

#endif
