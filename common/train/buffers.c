/* buffers - takes the memory of a step that is not state, and shares it between gradients, sums
 * of micro-batches and running statistics where no more is needed. */
#include "train/buffers.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

static int alloc_grad(struct buffers *m, size_t n_bytes, struct err *err)
{
    static const char what[] = "gradients";

    return m->shared ? coll_device_alloc(m->shared, m->backend, n_bytes, what, &m->grad, err)
                     : backend_alloc(m->backend, n_bytes, what, &m->grad, err);
}

int buffers_new(struct backend *b, const struct coll_device_ops *shared, const struct state *s,
                int accumulates, struct buffers **out, struct err *err)
{
    struct buffers *m = xcalloc(1, sizeof *m);
    const struct layout *l = s->layout;
    size_t grad = layout_grad_bytes(l, l->grad_dtype), wide = layout_grad_bytes(l, DTYPE_F32);
    size_t stats = sizeof(float) * (size_t)s->layout->n_state_total;
    const struct {
        void **at;
        size_t n_bytes;
        const char *what;
    } want[] = {
        {(void **)&m->sum, accumulates && l->grad_dtype != DTYPE_F32 ? wide : 0,
         "sums of gradients"},
        {(void **)&m->micro, accumulates ? wide : 0, "gradients of a micro-batch"},
        {(void **)&m->work, accumulates ? stats : 0, "running statistics of a micro-batch"},
        {(void **)&m->shadow, stats, "next running statistics"},
        {&m->copy, l->copy_dtype == DTYPE_F32 ? 0 : dtype_size(l->copy_dtype) * (size_t)l->n_total,
         "working copies of the parameters"},
        {(void **)&m->numbers, sizeof *m->numbers, "a step's numbers"},
    };

    m->backend = b;
    m->shared = shared;
    m->accumulates = accumulates;
    if (alloc_grad(m, grad, err) < 0) {
        buffers_free(m);
        return err->code;
    }
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        if (want[i].n_bytes &&
            backend_alloc(b, want[i].n_bytes, want[i].what, want[i].at, err) < 0) {
            buffers_free(m);
            return err->code;
        }
    if (backend_host_alloc(b, BUFFERS_SENT * sizeof *m->sent, "a step's numbers", (void **)&m->sent,
                           err) < 0 ||
        backend_host_alloc(b, SEALED_SLOTS * SEALED_LEN * sizeof *m->results, "a step's results",
                           (void **)&m->results, err) < 0) {
        buffers_free(m);
        return err->code;
    }
    m->control = (float *)((char *)m->grad + layout_control_at(l, l->grad_dtype));
    if (accumulates && !m->sum)
        m->sum = m->grad;
    *out = m;
    return 0;
}

void buffers_free(struct buffers *m)
{
    if (!m)
        return;
    if (m->sum != m->grad)
        backend_free(m->backend, m->sum);
    if (m->shared)
        coll_device_free(m->shared, m->backend, m->grad);
    else
        backend_free(m->backend, m->grad);
    backend_free(m->backend, m->micro);
    backend_free(m->backend, m->work);
    backend_free(m->backend, m->shadow);
    backend_free(m->backend, m->copy);
    backend_free(m->backend, m->numbers);
    backend_free(m->backend, m->arena);
    backend_host_free(m->backend, m->sent);
    backend_host_free(m->backend, m->results);
    free(m);
}

int buffers_fit(struct buffers *m, size_t n_bytes, struct err *err)
{
    if (n_bytes <= m->arena_bytes)
        return 0;
    backend_free(m->backend, m->arena);
    m->arena = NULL;
    m->arena_bytes = 0;
    if (backend_alloc(m->backend, n_bytes, "activations", &m->arena, err) < 0)
        return err_wrap(err, "a smaller train.global_batch, or train.accumulate, needs less");
    m->arena_bytes = n_bytes;
    return 0;
}

struct program_spaces buffers_spaces(const struct buffers *m, const struct state *s)
{
    return (struct program_spaces){
        .param = state_data(s, &slot_parameters),
        .copy = m->copy,
        .scaler = state_data(s, &slot_scaler),
        .grad = m->accumulates ? m->micro : m->grad,
        .state = m->accumulates ? (void *)m->work : state_data(s, &slot_statistics),
        .shadow = m->shadow,
        .metrics = m->numbers->metrics,
        .scalars = &m->numbers->scalars,
    };
}
