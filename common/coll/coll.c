#include "coll/coll.h"

#include "base/util.h"
#include "coll/impl.h"

void coll_init(struct coll *c, const struct coll_ops *ops, const char *kind, int rank, int size)
{
    ASSERT(ops->queue && ops->wait && ops->abort && ops->free && ops->stats && ops->head);
    ASSERT(0 <= rank && rank < size);
    *c = (struct coll){.ops = ops,
                       .kind = kind,
                       .rank = rank,
                       .size = size,
                       .dtypes = 1u << DTYPE_F32 | 1u << DTYPE_F64};
}

void coll_watch(struct coll *c,
                void (*watch)(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns),
                void *arg)
{
    c->watch = watch;
    c->watch_arg = arg;
}

void coll_tell(const struct coll *c, int64_t tag, enum coll_moment moment, int64_t now_ns)
{
    if (c->watch && tag >= 0)
        c->watch(c->watch_arg, tag, moment, now_ns);
}

int coll_rank(const struct coll *c) { return c->rank; }
int coll_size(const struct coll *c) { return c->size; }
int coll_is_device(const struct coll *c) { return c->device != NULL; }
int coll_poll(struct coll *c, struct err *err) { return c->ops->poll ? c->ops->poll(c, err) : 0; }

int64_t coll_allreduce(struct coll *c, void *x, int64_t n, enum dtype dtype, enum coll_red red,
                       int64_t tag, struct err *err)
{
    if (dtype < 0 || dtype >= DTYPE_COUNT || !(c->dtypes & 1u << dtype))
        return err_set(err, ERR_ARG, "all-reduce of element type %d: %s has none", (int)dtype,
                       c->kind);
    if (red != COLL_SUM && red != COLL_MAX)
        return err_set(err, ERR_ARG, "all-reduce: reduction %d: want COLL_SUM or COLL_MAX",
                       (int)red);
    if (n < 0 || (n > 0 && !x) || n > INT64_MAX / 8)
        return err_set(err, ERR_ARG, "all-reduce of %lld elements at %p", (long long)n, x);
    struct coll_job job = {.what = COLL_ALLREDUCE,
                           .dtype = dtype,
                           .red = red,
                           .n = n,
                           .n_bytes = (size_t)n * dtype_size(dtype),
                           .x = x,
                           .tag = tag};
    return c->ops->queue(c, &job, err);
}

int coll_wait(struct coll *c, int64_t ticket, struct err *err)
{
    return c->ops->wait(c, ticket, err);
}

static int queue_and_wait(struct coll *c, const struct coll_job *job, struct err *err)
{
    int64_t ticket = c->ops->queue(c, job, err);
    return ticket < 0 ? (int)ticket : c->ops->wait(c, ticket, err);
}

int coll_broadcast(struct coll *c, void *x, size_t n_bytes, int root, struct err *err)
{
    if (root < 0 || root >= c->size)
        return err_set(err, ERR_ARG, "broadcast from rank %d: there are %d ranks", root, c->size);
    struct coll_job job = {.what = COLL_BROADCAST,
                           .root = root,
                           .x = x,
                           .n_bytes = n_bytes,
                           .tag = COLL_TAG_BROADCAST};
    return queue_and_wait(c, &job, err);
}

int coll_allgather(struct coll *c, const void *mine, size_t n_bytes, void *all, struct err *err)
{
    struct coll_job job = {.what = COLL_ALLGATHER,
                           .mine = mine,
                           .x = all,
                           .n_bytes = n_bytes,
                           .tag = COLL_TAG_ALLGATHER};
    return queue_and_wait(c, &job, err);
}

int coll_barrier(struct coll *c, struct err *err)
{
    struct coll_job job = {.what = COLL_BARRIER, .tag = COLL_TAG_BARRIER};
    return queue_and_wait(c, &job, err);
}

void coll_abort(struct coll *c) { c->ops->abort(c); }

void coll_free(struct coll *c)
{
    if (c)
        c->ops->free(c);
}

void coll_stats(struct coll *c, struct coll_stats *out) { c->ops->stats(c, out); }
void coll_head(struct coll *c, struct coll_head *out) { c->ops->head(c, out); }
