/* What fake_cudnn.c (descriptors) and fake_execution.c (computing what they describe) share. */
#ifndef TESTS_CUDNN_FAKE_CUDNN_H
#define TESTS_CUDNN_FAKE_CUDNN_H

#include <cudnn.h>

#include "fake_state.h"

enum { MAX_ATTRS = 16, FAKE_WORKSPACE = 1000 };

struct attr {
    int name;
    int64_t n;
    size_t size; /* of one element */
    void *value;
};

struct desc {
    int type, n_refs, finalized;
    int number;          /* engine and engine configuration */
    struct desc *source; /* a configuration's heuristics */
    struct attr attr[MAX_ATTRS];
    int n_attrs;
};

struct cudnnContext {
    cudaStream_t stream;
};

int fake_note_of(int engine); /* -1: none */

/* Attribute `name`, which must be there with n elements (-1: any number). */
const void *fake_get(const struct desc *d, int name, int64_t n);
struct desc *fake_get_desc(const struct desc *d, int name);

void fake_release(struct desc *d); /* one reference less; NULL is fine */

#endif
