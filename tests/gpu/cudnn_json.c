/* cudnn_json - asks cuDNN for the description of a GPU through dlopen, so that the program
 * starts where cuDNN is missing. */
#include "cudnn_json.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

/* The few calls of cuDNN that are needed, found by name: no library of NVIDIA's is linked. */
struct calls {
    cudnnStatus_t (*create)(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                         cudnnBackendAttributeType_t, int64_t, const void *);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                         cudnnBackendAttributeType_t, int64_t, int64_t *, void *);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*destroy)(cudnnBackendDescriptor_t);
    const char *(*text)(cudnnStatus_t);
};

static int find(void *cudnn, struct calls *c, struct err *err)
{
    const struct {
        void *at;
        const char *name;
    } rows[] = {
        {&c->create, "cudnnBackendCreateDescriptor"},   {&c->set, "cudnnBackendSetAttribute"},
        {&c->get, "cudnnBackendGetAttribute"},          {&c->finalize, "cudnnBackendFinalize"},
        {&c->destroy, "cudnnBackendDestroyDescriptor"}, {&c->text, "cudnnGetErrorString"}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        void *fn = cudnn ? dlsym(cudnn, rows[i].name) : NULL;

        if (!fn)
            return err_set(err, ERR_UNSUPPORTED, "cuDNN has no %s", rows[i].name);
        memcpy(rows[i].at, &fn, sizeof fn);
    }
    return 0;
}

static cudnnStatus_t describe(const struct calls *c, cudnnBackendDescriptor_t d,
                              const char *properties)
{
    const int32_t device = 0;
    const cudnnStatus_t st =
        properties ? c->set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                            (int64_t)strlen(properties), properties)
                   : c->set(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &device);

    return st == CUDNN_STATUS_SUCCESS ? c->finalize(d) : st;
}

static cudnnStatus_t read(const struct calls *c, cudnnBackendDescriptor_t d, char **out)
{
    int64_t n = 0;
    cudnnStatus_t st =
        c->get(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &n, NULL);

    if (st != CUDNN_STATUS_SUCCESS)
        return st;
    *out = xcalloc((size_t)n + 1, 1);
    return c->get(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n, &n, *out);
}

int cudnn_json(void *cudnn, const char *properties, char **out, struct err *err)
{
    cudnnBackendDescriptor_t d = NULL;
    struct calls c;
    char *text = NULL;
    cudnnStatus_t st;

    if (find(cudnn, &c, err) < 0)
        return err->code;
    st = c.create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);
    if (st == CUDNN_STATUS_SUCCESS)
        st = describe(&c, d, properties);
    if (st == CUDNN_STATUS_SUCCESS)
        st = read(&c, d, &text);
    if (d)
        (void)c.destroy(d);
    if (st != CUDNN_STATUS_SUCCESS) {
        free(text);
        return err_set(err, ERR_DEVICE, "cuDNN does not describe the GPU: %s", c.text(st));
    }
    *out = text;
    return 0;
}
