/* buffers - takes the memory of a step that is not state.
 *
 * One buffer serves several purposes where that is possible (grad and sum, for example).  If
 * gradients are divided, this file plans the pool in which their buckets lie. */
#include "step/buffers.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "state/shards.h"
#include "strategy/cut.h"

enum { POOL_ALIGN = 64 };

static int alloc_grad(struct buffers *m, size_t n_bytes, struct err *err)
{
    static const char what[] = "gradients";

    return m->shared ? coll_device_alloc(m->shared, m->backend, n_bytes, what, &m->grad, err)
                     : backend_alloc(m->backend, n_bytes, what, &m->grad, err);
}

void buffers_cut(struct buffers *m, const struct layout *l)
{
    ASSERT(m->grad);
    m->control = (float *)((char *)m->grad + layout_control_at(l, l->grad_dtype));
    for (int i = 0; i < l->n_buckets; i++)
        m->bucket[i] = (char *)m->grad + l->bucket[i].at;
}

int buffers_new(struct backend *b, const struct coll_device_ops *shared, const struct state *s,
                int accumulates, struct buffers **out, struct err *err)
{
    struct buffers *m = xcalloc(1, sizeof *m);
    const struct layout *l = s->layout;
    const int is_divided = s->shards && s->shards->divides_gradients;
    const int adds_up = accumulates && !is_divided;
    const int gathers = s->shards && s->shards->divides_params;
    const int has_copies = l->copy_dtype != DTYPE_F32;
    size_t grad = layout_grad_bytes(l, l->grad_dtype), wide = layout_grad_bytes(l, DTYPE_F32);
    size_t stats = sizeof(float) * (size_t)s->layout->n_state_total;
    const struct {
        void **at;
        size_t n_bytes;
        const char *what;
    } want[] = {
        {(void **)&m->control, is_divided ? CONTROL_LEN * sizeof(float) : 0, "control vector"},
        {(void **)&m->sum, adds_up && l->grad_dtype != DTYPE_F32 ? wide : 0, "sums of gradients"},
        {(void **)&m->work, accumulates ? stats : 0, "running statistics of a micro-batch"},
        {(void **)&m->shadow, stats, "next running statistics"},
        {&m->copy, has_copies && !gathers ? dtype_size(l->copy_dtype) * (size_t)l->n_total : 0,
         "working copies of the parameters"},
        {(void **)&m->numbers, sizeof *m->numbers, "a step's numbers"},
    };

    m->backend = b;
    m->shared = shared;
    m->accumulates = accumulates;
    m->bucket = xcalloc((size_t)layout_most_buckets(l), sizeof *m->bucket);
    if (gathers)
        m->param_bucket = xcalloc((size_t)l->n_param_buckets, sizeof *m->param_bucket);
    if (gathers && has_copies)
        m->copy_bucket = xcalloc((size_t)l->n_param_buckets, sizeof *m->copy_bucket);
    if (!is_divided && alloc_grad(m, grad, err) < 0) {
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
    if (m->grad)
        buffers_cut(m, l);
    if (adds_up && !m->sum)
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
    if (!m->grad)
        backend_free(m->backend, m->control);
    if (m->shared)
        coll_device_free(m->shared, m->backend, m->grad);
    else
        backend_free(m->backend, m->grad);
    backend_free(m->backend, m->pool.at);
    backend_free(m->backend, m->params.at);
    backend_free(m->backend, m->copies.at);
    free(m->bucket);
    free(m->param_bucket);
    free(m->copy_bucket);
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

/* ---- the pools of buckets ---- */

static size_t buffers_bucket_bytes(const struct layout *l, int bucket)
{
    return dtype_size(l->bucket[bucket].dtype) * (size_t)cut_bucket(l, bucket);
}

/* The places of n buckets in a pool. */
struct pool_plan {
    int n;
    size_t *bytes, *at; /* [n]; at: SIZE_MAX: no place yet */
    const char *apart;  /* [n][n]: 1: both are in memory at the same time */
};

/* The lowest place for bucket `b` that overlaps with no bucket which is in memory at the same time.
 */
static size_t lowest_place(const struct pool_plan *p, int b)
{
    size_t place = 0;
    int is_free = 0;

    while (!is_free) {
        is_free = 1;
        for (int i = 0; i < p->n; i++)
            if (p->apart[b * p->n + i] && p->at[i] != SIZE_MAX && p->at[i] < place + p->bytes[b] &&
                place < p->at[i] + p->bytes[i]) {
                place = (p->at[i] + p->bytes[i] + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
                is_free = 0;
            }
    }
    return place;
}

/* The largest bucket that has no place yet; -1: all have one. */
static int largest_left(const struct pool_plan *p)
{
    int best = -1;

    for (int b = 0; b < p->n; b++)
        if (p->at[b] == SIZE_MAX && (best < 0 || p->bytes[b] > p->bytes[best]))
            best = b;
    return best;
}

/* Give every bucket its place in the pool; returns how large that is. */
static size_t plan_pool(struct pool_plan *p)
{
    size_t n_bytes = POOL_ALIGN; /* never 0 */

    for (int b; (b = largest_left(p)) >= 0;) {
        p->at[b] = lowest_place(p, b);
        n_bytes = p->at[b] + p->bytes[b] > n_bytes ? p->at[b] + p->bytes[b] : n_bytes;
    }
    return n_bytes;
}

static int fit_pool(struct buffers *m, struct pool *pool, size_t n_bytes, const char *what,
                    struct err *err)
{
    if (n_bytes <= pool->n_bytes)
        return 0;
    backend_free(m->backend, pool->at);
    *pool = (struct pool){0};
    if (backend_alloc(m->backend, n_bytes, what, &pool->at, err) < 0)
        return err->code;
    pool->n_bytes = n_bytes;
    return 0;
}

/* Plan a pool for buckets of these sizes, and write their addresses to `address`.  Frees bytes. */
static int buffers_make_pool(struct buffers *m, struct pool *pool, int n, size_t *bytes,
                             const char *apart, const char *what, void **address, struct err *err)
{
    struct pool_plan p = {.n = n, .bytes = bytes, .apart = apart};
    int rc;

    p.at = xcalloc((size_t)n, sizeof *p.at);
    memset(p.at, 0xff, (size_t)n * sizeof *p.at);
    rc = fit_pool(m, pool, plan_pool(&p), what, err);
    for (int b = 0; b < n && rc == 0; b++)
        address[b] = (char *)pool->at + p.at[b];
    free(p.at);
    free(bytes);
    return rc;
}

int buffers_fit_buckets(struct buffers *m, const struct layout *l, int most_open, struct err *err)
{
    const int n = l->n_buckets;
    size_t *bytes;
    char *apart;
    int rc;

    if (m->grad)
        return 0;
    bytes = xcalloc((size_t)n, sizeof *bytes);
    apart = xcalloc((size_t)n * (size_t)n, 1);
    for (int a = 0; a < n; a++) {
        bytes[a] = buffers_bucket_bytes(l, a);
        for (int b = 0; b < n; b++)
            apart[a * n + b] = a - b <= most_open && b - a <= most_open;
    }
    rc = buffers_make_pool(m, &m->pool, n, bytes, apart, "buckets of gradients", m->bucket, err);
    free(apart);
    return rc;
}

/* Plan a pool for the parameters of each bucket, or for their working copies. */
static int buffers_fit_arena(struct buffers *m, const struct layout *l, struct pool *pool,
                             enum dtype dtype, const char *apart, const char *what, void **address,
                             struct err *err)
{
    const int n = l->n_param_buckets;
    size_t *bytes = xcalloc((size_t)n, sizeof *bytes);

    for (int b = 0; b < n; b++)
        bytes[b] = dtype_size(dtype) * (size_t)cut_bucket(l, b);
    return buffers_make_pool(m, pool, n, bytes, apart, what, address, err);
}

int buffers_fit_params(struct buffers *m, const struct layout *l, const char *apart,
                       struct err *err)
{
    int rc = buffers_fit_arena(m, l, &m->params, DTYPE_F32, apart, "buckets of parameters",
                               m->param_bucket, err);

    if (rc == 0 && m->copy_bucket)
        rc = buffers_fit_arena(m, l, &m->copies, l->copy_dtype, apart, "buckets of working copies",
                               m->copy_bucket, err);
    return rc;
}

int buffers_overlap(const struct buffers *m, const struct layout *l, int a, int b)
{
    const char *x = m->bucket[a], *y = m->bucket[b];

    return x < y + buffers_bucket_bytes(l, b) && y < x + buffers_bucket_bytes(l, a);
}

int buffers_clear(struct buffers *m, const struct layout *l, struct err *err)
{
    return m->grad
               ? backend_zero_start(m->backend, m->grad, layout_grad_bytes(l, l->grad_dtype), err)
               : 0;
}

int buffers_clear_padding(struct buffers *m, const struct layout *l, int bucket, struct err *err)
{
    const struct bucket *b = &l->bucket[bucket];
    const size_t size = dtype_size(b->dtype);
    int rc = 0;

    for (int i = b->last_segment; i >= 0 && l->param[i].offset >= b->offset && rc == 0; i--) {
        const int64_t from = l->param[i].offset + l->param[i].length - b->offset;
        const int64_t to = round_up_i64(from, SEGMENT_ALIGN);

        if (to > from)
            rc = backend_zero(m->backend, (char *)m->bucket[bucket] + size * (size_t)from,
                              size * (size_t)(to - from), err);
    }
    return rc;
}

struct program_spaces buffers_spaces(const struct buffers *m, const struct state *s)
{
    return (struct program_spaces){
        .param = state_data(s, &slot_parameters),
        .base = state_data(s, &slot_base),
        .copy = m->copy,
        .scaler = state_data(s, &slot_scaler),
        .grad = m->sum ? (void *)m->sum : m->grad,
        .bucket = m->grad ? NULL : m->bucket,
        .param_bucket = m->param_bucket,
        .copy_bucket = m->copy_bucket,
        .state = m->accumulates ? (void *)m->work : state_data(s, &slot_statistics),
        .shadow = m->shadow,
        .metrics = m->numbers->metrics,
        .scalars = &m->numbers->scalars,
    };
}
