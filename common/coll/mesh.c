#include "coll/mesh.h"

#include <string.h>

#include "base/util.h"
#include "coll/reduce.h"

/* An all-reduce of more than two ranks is exchanged, not scattered, if no rank sends more than
 * this. */
enum { EXCHANGE_MAX = 64 << 10 };

/* A run of bytes in x. */
struct part {
    uint8_t *x;
    size_t n_bytes;
};

static uint8_t *landing(struct mesh *m, int from) { return from == 0 ? m->land0 : m->land; }

static int send_all(struct mesh *m, const void *data, size_t n_bytes, struct err *err)
{
    int rc = 0;
    for (int i = 1; i < m->size && rc == 0; i++)
        rc = m->send(m, (m->rank + i) % m->size, data, n_bytes, err);
    return rc;
}

/* Receive every rank's version of p and reduce them in rank order, with ours from p, into p. */
static int fold(struct mesh *m, const struct coll_job *job, struct part p, struct err *err)
{
    int64_t n = (int64_t)(p.n_bytes / dtype_size(job->dtype));
    uint8_t *sum = m->rank == 0 ? p.x : m->land0;
    for (int r = 0; r < m->size; r++) {
        if (r != m->rank) {
            int rc = m->recv(m, r, err);
            if (rc < 0)
                return rc;
        }
        if (r == 0)
            continue; /* it is where the sum begins */
        const uint8_t *from = r == m->rank ? p.x : m->land;
        uint8_t *to = r == m->size - 1 ? p.x : sum;
        coll_reduce(to, sum, from, n, job->dtype, job->red);
    }
    return 0;
}

/* Part i of x cut into `count` parts of whole elements, as equal as can be. */
static struct part cut(const struct coll_job *job, int64_t i, int64_t count)
{
    size_t elem = dtype_size(job->dtype);
    int64_t each = job->n / count, more = job->n % count; /* the first `more` get one more */
    int64_t start = i * each + min_i64(i, more);
    return (struct part){(uint8_t *)job->x + (size_t)start * elem,
                         (size_t)(each + (i < more)) * elem};
}

/* Piece k+1 is sent before piece k is awaited, so the link never idles. */
static int exchange(struct mesh *m, const struct coll_job *job, struct err *err)
{
    int64_t count = ceil_div_i64((int64_t)job->n_bytes, (int64_t)m->piece);
    struct part next = cut(job, 0, count);
    int rc = send_all(m, next.x, next.n_bytes, err);
    for (int64_t k = 0; k < count && rc == 0; k++) {
        struct part now = next;
        if (k + 1 < count) {
            next = cut(job, k + 1, count);
            rc = send_all(m, next.x, next.n_bytes, err);
        }
        if (rc == 0)
            rc = fold(m, job, now, err);
    }
    return rc;
}

/* Slice k of `count` slices of x, in it the part of rank r. */
static struct part cut2(struct mesh *m, const struct coll_job *job, int64_t k, int r, int64_t count)
{
    return cut(job, k * m->size + r, count * m->size);
}

static int give(struct mesh *m, const struct coll_job *job, int64_t k, int64_t count,
                struct err *err)
{
    int rc = 0;
    for (int i = 1; i < m->size && rc == 0; i++) {
        int to = (m->rank + i) % m->size;
        struct part p = cut2(m, job, k, to, count);
        rc = m->send(m, to, p.x, p.n_bytes, err);
    }
    return rc;
}

static int collect(struct mesh *m, const struct coll_job *job, int64_t k, int64_t count,
                   struct err *err)
{
    for (int i = 1; i < m->size; i++) {
        int from = (m->rank + i) % m->size;
        int rc = m->recv(m, from, err);
        if (rc < 0)
            return rc;
        struct part p = cut2(m, job, k, from, count);
        memcpy(p.x, landing(m, from), p.n_bytes);
    }
    return 0;
}

/* Slice k+1 is given out before slice k is awaited, and the sums of slice k-1 are collected after
 * those of slice k are sent.  Both sides of a link so see: give 0, give 1, sums 0, give 2, sums 1,
 * ...  When we give slice k+1 we have the peer's sums of k-2, so it has read ours of k-4, and at
 * most six of our messages are unread. */
static int scatter(struct mesh *m, const struct coll_job *job, struct err *err)
{
    int64_t count = ceil_div_i64((int64_t)job->n_bytes, (int64_t)m->piece * m->size);
    int rc = give(m, job, 0, count, err);
    for (int64_t k = 0; k < count && rc == 0; k++) {
        struct part mine = cut2(m, job, k, m->rank, count);
        if (k + 1 < count)
            rc = give(m, job, k + 1, count, err);
        if (rc == 0)
            rc = fold(m, job, mine, err);
        if (rc == 0)
            rc = send_all(m, mine.x, mine.n_bytes, err);
        if (rc == 0 && k > 0)
            rc = collect(m, job, k - 1, count, err);
    }
    return rc < 0 ? rc : collect(m, job, count - 1, count, err);
}

static int allreduce(struct mesh *m, const struct coll_job *job, struct err *err)
{
    if (job->n == 0)
        return 0;
    size_t peers = (size_t)m->size - 1;
    if (m->size == 2 || job->n_bytes <= EXCHANGE_MAX / peers)
        return exchange(m, job, err);
    return scatter(m, job, err);
}

static int broadcast(struct mesh *m, const struct coll_job *job, struct err *err)
{
    int prev = (m->rank + m->size - 1) % m->size, next = (m->rank + 1) % m->size;
    for (size_t at = 0; at < job->n_bytes; at += m->piece) {
        size_t n = job->n_bytes - at < m->piece ? job->n_bytes - at : m->piece;
        uint8_t *x = (uint8_t *)job->x + at;
        int rc = 0;
        if (m->rank != job->root) {
            rc = m->recv(m, prev, err);
            if (rc == 0)
                memcpy(x, landing(m, prev), n);
        }
        if (rc == 0 && next != job->root)
            rc = m->send(m, next, x, n, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* One piece of everyone's to everyone; n may be 0. */
static int gather_piece(struct mesh *m, const struct coll_job *job, size_t at, size_t n,
                        struct err *err)
{
    const uint8_t *mine = n ? (const uint8_t *)job->mine + at : NULL;
    int rc = send_all(m, mine, n, err);
    for (int r = 0; r < m->size && rc == 0; r++) {
        if (r != m->rank)
            rc = m->recv(m, r, err);
        if (rc == 0 && n)
            memcpy((uint8_t *)job->x + (size_t)r * job->n_bytes + at,
                   r == m->rank ? mine : landing(m, r), n);
    }
    return rc;
}

static int allgather(struct mesh *m, const struct coll_job *job, struct err *err)
{
    for (size_t at = 0; at < job->n_bytes; at += m->piece) {
        size_t n = job->n_bytes - at < m->piece ? job->n_bytes - at : m->piece;
        int rc = gather_piece(m, job, at, n, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mesh_run(struct mesh *m, const struct coll_job *job, struct err *err)
{
    switch (job->what) {
    case COLL_ALLREDUCE:
        return allreduce(m, job, err);
    case COLL_BROADCAST:
        return broadcast(m, job, err);
    case COLL_ALLGATHER:
        return allgather(m, job, err);
    case COLL_BARRIER:
        return gather_piece(m, job, 0, 0, err);
    }
    return err_set(err, ERR_ARG, "no such collective: %d", (int)job->what);
}
