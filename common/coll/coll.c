/* coll - the functions of coll.h.  They check their arguments, once for all kinds of coll, and pass
 * a struct coll_job to the kind's functions (coll/impl.h). */
#include "coll/coll.h"

#include "base/util.h"
#include "coll/impl.h"

void coll_init(struct coll *c, const struct coll_ops *ops, const char *kind, int rank, int size)
{
    ASSERT(ops->queue && ops->wait && ops->abort && ops->free && ops->stats);
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

/* ---- parts ---- */

struct coll_span coll_span(int64_t n, int count, int i)
{
    const int64_t each = n / count, more = n % count;

    return (struct coll_span){i * each + min_i64(i, more), each + (i < more)};
}

static struct coll_part coll_rank_part(const void *x, struct coll_span s, enum dtype dtype)
{
    const size_t elem = dtype_size(dtype);

    if (s.n == 0)
        return (struct coll_part){NULL, 0};
    return (struct coll_part){(uint8_t *)x + (size_t)s.at * elem, (size_t)s.n * elem};
}

struct coll_part coll_part_of(const struct coll_job *job, int size, int r)
{
    return coll_rank_part(job->x, coll_span(job->n, size, r), job->dtype);
}

struct coll_part coll_part_to(const struct coll_job *job, int r)
{
    if (job->what == COLL_ALL_TO_ALL)
        return coll_rank_part(job->mine, job->give[r], job->dtype);
    return coll_rank_part(job->mine, (struct coll_span){0, r == job->to ? job->n_mine : 0},
                          job->dtype);
}

struct coll_part coll_part_from(const struct coll_job *job, int r)
{
    if (job->what == COLL_ALL_TO_ALL)
        return coll_rank_part(job->x, job->take[r], job->dtype);
    return coll_rank_part(job->x, (struct coll_span){0, r == job->from ? job->n : 0}, job->dtype);
}

/* ---- checks ---- */

static int check_channel(enum coll_channel ch, struct err *err)
{
    if ((int)ch < 0 || ch >= COLL_CHANNELS)
        return err_set(err, ERR_ARG, "channel %d, want COLL_BULK or COLL_URGENT", (int)ch);
    return 0;
}

static int check_elements(const char *what, const void *x, int64_t n, enum dtype dtype,
                          struct err *err)
{
    if ((int)dtype < 0 || dtype >= DTYPE_COUNT)
        return err_set(err, ERR_ARG, "%s of element type %d: there is none", what, (int)dtype);
    if (n < 0 || (n > 0 && !x) || n > INT64_MAX / 8)
        return err_set(err, ERR_ARG, "%s of %lld elements at %p", what, (long long)n, x);
    return 0;
}

static int coll_check_root(const struct coll *c, int root, struct err *err)
{
    if (root < 0 || root >= c->size)
        return err_set(err, ERR_ARG, "broadcast from rank %d: there are %d ranks", root, c->size);
    return 0;
}

static int coll_check_message(const struct coll *c, const char *what, const struct coll_message *m,
                              enum dtype dtype, struct err *err)
{
    if (m->rank < 0 || m->rank >= c->size || m->rank == c->rank)
        return err_set(err, ERR_ARG, "rank %d of %d %s rank %d", c->rank, c->size, what, m->rank);
    return check_elements(what, m->x, m->n, dtype, err);
}

/* Check the parts, and add their bytes to *n_bytes. */
static int check_parts(const struct coll *c, const struct coll_parts *p, enum dtype dtype,
                       size_t *n_bytes, struct err *err)
{
    if (p->most < 0)
        return err_set(err, ERR_ARG, "all-to-all: the longest part has %lld elements",
                       (long long)p->most);
    for (int r = 0; r < c->size; r++) {
        if (p->most > 0 && p->part[r].n > p->most)
            return err_set(err, ERR_ARG,
                           "all-to-all: rank %d's part has %lld elements, want %lld "
                           "at most",
                           r, (long long)p->part[r].n, (long long)p->most);
        if (p->part[r].at < 0)
            return err_set(err, ERR_ARG, "all-to-all: rank %d's part begins at %lld", r,
                           (long long)p->part[r].at);
        if (check_elements("all-to-all", p->x, p->part[r].n, dtype, err) < 0)
            return err->code;
        *n_bytes += (size_t)p->part[r].n * dtype_size(dtype);
    }
    return 0;
}

/* ---- collectives that are queued ---- */

/* Queue a collective of n elements. */
static int64_t coll_queue(struct coll *c, const char *what, struct coll_job job, struct err *err)
{
    if (check_channel(job.channel, err) < 0 ||
        check_elements(what, job.x, job.n, job.dtype, err) < 0)
        return err->code;
    job.n_bytes = (size_t)job.n * dtype_size(job.dtype);
    return c->ops->queue(c, &job, err);
}

/* Queue a collective that sums its n elements. */
static int64_t queue_sum(struct coll *c, const char *what, struct coll_job job, struct err *err)
{
    if (!(c->dtypes & 1u << job.dtype))
        return err_set(err, ERR_ARG, "%s of %s: %s cannot sum that", what, dtype_name(job.dtype),
                       c->kind);
    return coll_queue(c, what, job, err);
}

int64_t coll_allreduce(struct coll *c, enum coll_channel ch, void *x, int64_t n, enum dtype dtype,
                       int64_t tag, struct err *err)
{
    return queue_sum(
        c, "all-reduce",
        (struct coll_job){
            .what = COLL_ALLREDUCE, .channel = ch, .x = x, .n = n, .dtype = dtype, .tag = tag},
        err);
}

int64_t coll_reduce_scatter(struct coll *c, enum coll_channel ch, void *x, int64_t n,
                            enum dtype dtype, int64_t tag, struct err *err)
{
    return queue_sum(
        c, "reduce-scatter",
        (struct coll_job){
            .what = COLL_REDUCE_SCATTER, .channel = ch, .x = x, .n = n, .dtype = dtype, .tag = tag},
        err);
}

int64_t coll_allgather_spans(struct coll *c, enum coll_channel ch, void *x, int64_t n,
                             enum dtype dtype, int64_t tag, struct err *err)
{
    return coll_queue(c, "all-gather",
                      (struct coll_job){.what = COLL_ALLGATHER_SPANS,
                                        .channel = ch,
                                        .x = x,
                                        .n = n,
                                        .dtype = dtype,
                                        .tag = tag},
                      err);
}

int64_t coll_broadcast_async(struct coll *c, enum coll_channel ch, void *x, int64_t n,
                             enum dtype dtype, int root, int64_t tag, struct err *err)
{
    const struct coll_job job = {.what = COLL_BROADCAST,
                                 .channel = ch,
                                 .root = root,
                                 .x = x,
                                 .n = n,
                                 .dtype = dtype,
                                 .tag = tag};

    return coll_check_root(c, root, err) < 0 ? err->code : coll_queue(c, "broadcast", job, err);
}

int64_t coll_all_to_all(struct coll *c, enum coll_channel ch, struct coll_parts from,
                        struct coll_parts to, enum dtype dtype, int64_t tag, struct err *err)
{
    struct coll_job job = {.what = COLL_ALL_TO_ALL,
                           .channel = ch,
                           .mine = from.x,
                           .give = from.part,
                           .x = to.x,
                           .take = to.part,
                           .most_bytes = (size_t)from.most * dtype_size(dtype),
                           .dtype = dtype,
                           .tag = tag};

    if (check_channel(ch, err) < 0 || check_parts(c, &from, dtype, &job.n_bytes, err) < 0 ||
        check_parts(c, &to, dtype, &job.n_bytes, err) < 0)
        return err->code;
    if (from.most != to.most)
        return err_set(err, ERR_ARG,
                       "all-to-all: the longest part given has %lld elements, the "
                       "longest taken %lld",
                       (long long)from.most, (long long)to.most);
    if (from.part[c->rank].n != to.part[c->rank].n)
        return err_set(err, ERR_ARG,
                       "all-to-all: rank %d gives itself %lld elements and takes %lld", c->rank,
                       (long long)from.part[c->rank].n, (long long)to.part[c->rank].n);
    return c->ops->queue(c, &job, err);
}

/* `out` or `in` may be NULL, but not both. */
static int64_t queue_messages(struct coll *c, enum coll_channel ch, const struct coll_message *out,
                              const struct coll_message *in, enum dtype dtype, int64_t tag,
                              struct err *err)
{
    struct coll_job job = {
        .what = COLL_EXCHANGE, .channel = ch, .to = -1, .from = -1, .dtype = dtype, .tag = tag};

    if (check_channel(ch, err) < 0 ||
        (out && coll_check_message(c, "sends to", out, dtype, err) < 0) ||
        (in && coll_check_message(c, "receives from", in, dtype, err) < 0))
        return err->code;
    if (out) {
        job.to = out->rank;
        job.mine = out->x;
        job.n_mine = out->n;
    }
    if (in) {
        job.from = in->rank;
        job.x = in->x;
        job.n = in->n;
    }
    job.n_bytes = (size_t)(job.n + job.n_mine) * dtype_size(dtype);
    return c->ops->queue(c, &job, err);
}

int64_t coll_send(struct coll *c, enum coll_channel ch, struct coll_message m, enum dtype dtype,
                  int64_t tag, struct err *err)
{
    return queue_messages(c, ch, &m, NULL, dtype, tag, err);
}

int64_t coll_recv(struct coll *c, enum coll_channel ch, struct coll_message m, enum dtype dtype,
                  int64_t tag, struct err *err)
{
    return queue_messages(c, ch, NULL, &m, dtype, tag, err);
}

int64_t coll_exchange(struct coll *c, enum coll_channel ch, struct coll_message send,
                      struct coll_message recv, enum dtype dtype, int64_t tag, struct err *err)
{
    return queue_messages(c, ch, &send, &recv, dtype, tag, err);
}

/* ---- waiting, and the blocking collectives ---- */

int coll_wait(struct coll *c, int64_t ticket, struct err *err)
{
    if (coll_number_of(ticket) < 1)
        return err_set(err, ERR_ARG, "waiting for ticket %lld", (long long)ticket);
    return c->ops->wait(c, ticket, err);
}

static int queue_and_wait(struct coll *c, const struct coll_job *job, struct err *err)
{
    int64_t ticket = c->ops->queue(c, job, err);
    return ticket < 0 ? (int)ticket : c->ops->wait(c, ticket, err);
}

int coll_broadcast(struct coll *c, void *x, size_t n_bytes, int root, struct err *err)
{
    if (coll_check_root(c, root, err) < 0)
        return err->code;
    struct coll_job job = {.what = COLL_BROADCAST,
                           .blocks = 1,
                           .root = root,
                           .x = x,
                           .n = (int64_t)n_bytes,
                           .n_bytes = n_bytes,
                           .dtype = DTYPE_U8,
                           .tag = COLL_TAG_NONE};
    return queue_and_wait(c, &job, err);
}

int coll_allgather(struct coll *c, const void *mine, size_t n_bytes, void *all, struct err *err)
{
    struct coll_job job = {.what = COLL_ALLGATHER,
                           .blocks = 1,
                           .mine = mine,
                           .x = all,
                           .n_bytes = n_bytes,
                           .tag = COLL_TAG_NONE};
    return queue_and_wait(c, &job, err);
}

void coll_abort(struct coll *c) { c->ops->abort(c); }

void coll_free(struct coll *c)
{
    if (c)
        c->ops->free(c);
}

void coll_stats(struct coll *c, struct coll_stats *out) { c->ops->stats(c, out); }
