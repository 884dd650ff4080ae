/* cudnn_impl - the structs and functions that cudnn.c (devices, packs), cudnn_graph.c (describing),
 * cudnn_plan.c (choosing) and cudnn_keep.c (the cache) share.
 *
 * Threads: one per device. */
#ifndef BACKEND_CUDA_CUDNN_IMPL_H
#define BACKEND_CUDA_CUDNN_IMPL_H

#include "backend/cuda/cudnn.h"

enum { MAX_OPS = 24, MAX_OBJECTS = 96, WHAT_LEN = 256 };

struct entry { /* a plan that the device keeps */
    struct cudnn_plan plan;
    struct cudnn_rules rules;
    int64_t uid[CUDNN_MAX_TENSORS];
    float value[CUDNN_MAX_TENSORS];   /* of the numbers among the tensors */
    float *number[CUDNN_MAX_TENSORS]; /* as in cudnn_plan */
    struct entry *next;
};

struct cudnn_device {
    cudnnHandle_t handle;          /* NULL: the device is a description */
    cudnnBackendDescriptor_t prop; /* NULL: the device is a live GPU */
    char gpu[128];
    struct plan_cache *cache; /* NULL: none */
    cudnn_timer *timer;       /* NULL: none */
    void *timer_arg;
    struct entry *first;
};

struct cudnn_graph {
    struct cudnn_device *device;
    char what[WHAT_LEN];
    struct hasher *hash;
    struct err err; /* the first failure; code 0: none so far */
    cudnnBackendDescriptor_t object[MAX_OBJECTS];
    int n_objects;
    struct cudnn_operand {
        int object; /* which of `object` it is */
        cudnnDataType_t type;
        int is_inner, is_number;
        size_t n_bytes;          /* 0: it needs no memory of the caller's */
        float value;             /* of a number */
    } tensor[CUDNN_MAX_TENSORS]; /* [n_tensors] */
    int n_tensors;
    int f32; /* a product multiplies float32, so the rule on TF32 matters */
    cudnnBackendDescriptor_t op[MAX_OPS];
    int n_ops;
};

struct attr { /* one attribute of a descriptor */
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *value;
};

#define ATTR(name_, type_, n_, value_)                         \
    {                                                          \
        CUDNN_ATTR_##name_, CUDNN_TYPE_##type_, (n_), (value_) \
    }

/* Create a descriptor, set all attributes, finalize.  *out is set only on success. */
cudnnStatus_t cudnn_make(cudnnBackendDescriptorType_t type, const struct attr *a, int n,
                         cudnnBackendDescriptor_t *out);
void cudnn_destroy(cudnnBackendDescriptor_t d); /* NULL is fine */

/* cudnn_plan.c: cudnn_engine_fits reads the engine and notes of a configuration into *p and returns
 * 1 if they keep the rules.  cudnn_plan_workspace reads the workspace of a finalized plan. */
int cudnn_engine_fits(cudnnBackendDescriptor_t config, int f32, const struct cudnn_rules *rules,
                      struct cudnn_plan *p);
cudnnStatus_t cudnn_plan_workspace(struct cudnn_plan *p);

/* cudnn_keep.c: cudnn_restore returns 1 if the device's cache has a plan for `key`, with raw,
 * engine, notes and workspace of *p, else 0.  cudnn_keep puts a plan into the cache. */
int cudnn_restore(const struct cudnn_graph *g, const struct cudnn_rules *rules, const char *key,
                  struct cudnn_plan *p);
void cudnn_keep(const struct cudnn_graph *g, const char *key, const struct cudnn_plan *p);

/* Returns ERR_DEVICE with cuDNN's text about the call that just failed. */
int cudnn_refused(struct err *err, cudnnStatus_t st, const char *what, const char *doing);

#endif
