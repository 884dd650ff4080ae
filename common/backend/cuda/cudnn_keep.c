/* cudnn_keep - keeps plans in the cache, and restores them.
 *
 * A plan is kept as the text that cuDNN makes of it: engine, knobs and, if kernels were compiled at
 * run time, their code.  cuDNN 9.19 restores every engine of our plans from this text, on a
 * described device too, and names the engine of a restored plan.  So the rules are checked again
 * here, as for a new plan. */
#include <stdlib.h>

#include "backend/cuda/cudnn_impl.h"
#include "base/util.h"

static cudnnStatus_t from_text(const struct cudnn_device *d, const struct buf *text,
                               cudnnBackendDescriptor_t *out)
{
    const struct attr a[] = {
        d->handle ? (struct attr)ATTR(EXECUTION_PLAN_HANDLE, HANDLE, 1, &d->handle)
                  : (struct attr)ATTR(EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, 1, &d->prop),
        ATTR(EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, (int64_t)text->len, text->data)};

    return cudnn_make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, a, ARRAY_LEN(a), out);
}

static int is_usable(const struct cudnn_graph *g, const struct cudnn_rules *rules,
                     struct cudnn_plan *p)
{
    cudnnBackendDescriptor_t config = NULL;
    int64_t n = 0;
    int ok = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config) ==
                 CUDNN_STATUS_SUCCESS &&
             cudnnBackendGetAttribute(p->raw, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                      &config) == CUDNN_STATUS_SUCCESS &&
             cudnn_engine_fits(config, g->f32, rules, p) &&
             cudnn_plan_workspace(p) == CUDNN_STATUS_SUCCESS &&
             p->workspace <= rules->max_workspace;

    cudnn_destroy(config);
    return ok;
}

int cudnn_restore(const struct cudnn_graph *g, const struct cudnn_rules *rules, const char *key,
                  struct cudnn_plan *p)
{
    struct buf text = {0};
    int ok = plan_cache_get(g->device->cache, key, &text) &&
             from_text(g->device, &text, &p->raw) == CUDNN_STATUS_SUCCESS;

    if (ok && !is_usable(g, rules, p)) {
        cudnn_destroy(p->raw);
        ok = 0;
    }
    if (!ok)
        *p = (struct cudnn_plan){0};
    p->is_restored = ok;
    buf_fini(&text);
    return ok;
}

void cudnn_keep(const struct cudnn_graph *g, const char *key, const struct cudnn_plan *p)
{
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    struct buf text = {0};
    int64_t n = 0;

    if (g->device->cache &&
        cudnnBackendGetAttribute(p->raw, name, CUDNN_TYPE_CHAR, 0, &n, NULL) ==
            CUDNN_STATUS_SUCCESS &&
        n > 0 &&
        cudnnBackendGetAttribute(p->raw, name, CUDNN_TYPE_CHAR, n, &n,
                                 buf_reserve(&text, (size_t)n)) == CUDNN_STATUS_SUCCESS)
        plan_cache_put(g->device->cache, key, text.data, (size_t)n);
    buf_fini(&text);
}
