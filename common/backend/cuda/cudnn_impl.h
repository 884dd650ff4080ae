/* cudnn_impl - what cudnn.c (devices, packs), cudnn_graph.c (describing) and cudnn_plan.c
 * (choosing) know of each other. */
#ifndef BACKEND_CUDA_CUDNN_IMPL_H
#define BACKEND_CUDA_CUDNN_IMPL_H

#include "backend/cuda/cudnn.h"

enum { MAX_TENSORS = 16, MAX_OPS = 8, MAX_OBJECTS = 48, WHAT_LEN = 256 };

struct entry { /* a plan that the device keeps */
    struct cudnn_plan plan;
    struct cudnn_rules rules;
    int64_t uid[MAX_TENSORS];
    struct entry *next;
};

struct cudnn_device {
    cudnnHandle_t handle;          /* NULL: described only */
    cudnnBackendDescriptor_t prop; /* NULL: live */
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
    struct err err; /* code 0: none so far */
    cudnnBackendDescriptor_t object[MAX_OBJECTS];
    int n_objects;
    int tensor[MAX_TENSORS]; /* the object that is tensor i */
    int virtual_tensor[MAX_TENSORS];
    size_t n_bytes[MAX_TENSORS]; /* 0: virtual */
    int f32;                     /* whether a real tensor is float32: TF32 is a question */
    int n_tensors;
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

/* Create, set all, finalize; *out only on success. */
cudnnStatus_t cudnn_make(cudnnBackendDescriptorType_t type, const struct attr *a, int n,
                         cudnnBackendDescriptor_t *out);
void cudnn_destroy(cudnnBackendDescriptor_t d); /* NULL is fine */

/* cudnn_plan.c: engine and notes of a plan's configuration, and whether they keep the rules; and
 * the workspace of a plan that is finalized. */
int cudnn_engine_fits(cudnnBackendDescriptor_t config, int f32, const struct cudnn_rules *rules,
                      struct cudnn_plan *p);
cudnnStatus_t cudnn_plan_workspace(struct cudnn_plan *p);

/* From and to the device's cache.  restore: 1, with raw, engine, notes and workspace of *p; 0. */
int cudnn_restore(const struct cudnn_graph *g, const struct cudnn_rules *rules, const char *key,
                  struct cudnn_plan *p);
void cudnn_keep(const struct cudnn_graph *g, const char *key, const struct cudnn_plan *p);

/* ERR_DEVICE with cuDNN's words for what just failed. */
int cudnn_refused(struct err *err, cudnnStatus_t st, const char *what, const char *doing);

#endif
