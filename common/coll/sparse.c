/* sparse - the algorithms that sparse.h names.
 *
 * Why no rank waits for ever:
 *
 * In the tree a rank first receives from its children, which wait for nothing of it, and then from
 * its parent.
 *
 * In the chain, rank r handles piece k forward and piece k - (n-1-r) backward in its k-th turn.  So
 * in turn k rank r waits for a sum that rank r+1 sends in turn k-1, and rank r has already sent all
 * that this sum needs.  Backward, at most two pieces are unread on a link, so a backward send never
 * blocks.  A forward send may block until the next rank reads.  That rank waits only for ranks
 * further on, and the last rank waits only for the one before it.
 *
 * In the ring all ranks send and then receive piece k of span s, in the same order.  The rank that
 * is furthest behind is not blocked: its receiver has read all earlier pieces, and its sender has
 * sent. */
#include "coll/sparse.h"

#include <string.h>

#include "coll/mesh_parts.h"
#include "coll/reduce.h"

enum { TREE_MAX = 1 << 20 }; /* bytes that rank 0 may gather */

/* ---- the tree ---- */

static int parent_of(int r) { return r & (r - 1); }

/* The number of ranks in r's subtree, r included: r, r + 1 ... */
static int n_below(int size, int r)
{
    const int most = r == 0 ? size : r & -r;

    return most < size - r ? most : size - r;
}

/* 1: this rank has the child rank + step.  The steps to children are 1, 2, 4 ... */
static int has_child(const struct mesh *m, int step)
{
    return !(m->rank & step) && m->rank + step < m->size;
}

int sparse_is_near(int size, int a, int b)
{
    const int low = a < b ? a : b, high = a < b ? b : a;

    return low != high &&
           (high == low + 1 || (low == 0 && high == size - 1) || parent_of(high) == low);
}

size_t sparse_land_bytes(const struct mesh *m)
{
    const size_t gathered = TREE_MAX / (size_t)m->size * (size_t)n_below(m->size, m->rank);

    return gathered > 2 * m->piece ? gathered : 2 * m->piece;
}

int sparse_is_small(size_t n_bytes) { return n_bytes <= TREE_MAX; }

/* Rank 0's x goes to all.  The child whose subtree has the most ranks is served first. */
int sparse_broadcast(struct mesh *m, struct coll_part x, struct err *err)
{
    int rc = 0, step = 1;

    if (x.n_bytes == 0)
        return 0;
    if (m->rank != 0)
        rc = m->recv(m, parent_of(m->rank), x.x, x.n_bytes, err);
    while (has_child(m, step))
        step *= 2;
    for (step /= 2; step > 0 && rc == 0; step /= 2)
        rc = m->send(m, m->rank + step, x.x, x.n_bytes, err);
    return rc;
}

/* ---- all-reduce ---- */

/* Collect each x of this rank's subtree in the landing space, in rank order, and send all to the
 * parent. */
static int gather_up(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const size_t each = job->n_bytes;
    int rc = 0;

    memcpy(m->land, job->x, each);
    for (int step = 1; has_child(m, step) && rc == 0; step *= 2)
        rc = m->recv(m, m->rank + step, m->land + each * (size_t)step,
                     each * (size_t)n_below(m->size, m->rank + step), err);
    if (rc == 0 && m->rank != 0)
        rc = m->send(m, parent_of(m->rank), m->land, each * (size_t)n_below(m->size, m->rank), err);
    return rc;
}

static int sum_by_tree(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const struct coll_part x = {job->x, job->n_bytes};
    int rc = gather_up(m, job, err);

    for (int r = 1; m->rank == 0 && r < m->size && rc == 0; r++)
        coll_sum(x.x, x.x, m->land + x.n_bytes * (size_t)r, job->n, job->dtype);
    return rc < 0 ? rc : sparse_broadcast(m, x, err);
}

/* Add this rank's summands of the piece to the sums of the ranks before it, and pass the sums on.
 * The last rank then has the sums over all ranks, and starts their way back. */
static int sparse_forward(struct mesh *m, const struct coll_job *job, struct coll_part p,
                          struct err *err)
{
    const int64_t n = (int64_t)(p.n_bytes / dtype_size(job->dtype));
    const int is_last = m->rank == m->size - 1;
    uint8_t *sum = m->rank == 0 || is_last ? p.x : m->land;
    int rc = m->rank == 0 ? 0 : m->recv(m, m->rank - 1, m->land, p.n_bytes, err);

    if (rc < 0)
        return rc;
    if (m->rank != 0)
        coll_sum(sum, m->land, p.x, n, job->dtype);
    return m->send(m, is_last ? m->rank - 1 : m->rank + 1, sum, p.n_bytes, err);
}

static int sparse_backward(struct mesh *m, struct coll_part p, struct err *err)
{
    int rc = m->rank == m->size - 1 ? 0 : m->recv(m, m->rank + 1, p.x, p.n_bytes, err);

    if (rc == 0 && m->rank > 0 && m->rank < m->size - 1)
        rc = m->send(m, m->rank - 1, p.x, p.n_bytes, err);
    return rc;
}

int sparse_chain(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const int64_t count = mesh_n_pieces(m, job->n_bytes), behind = m->size - 1 - m->rank;
    int rc = 0;

    for (int64_t k = 0; k < count + behind && rc == 0; k++) {
        if (k < count)
            rc = sparse_forward(m, job, mesh_cut(job, k, count), err);
        if (rc == 0 && k >= behind)
            rc = sparse_backward(m, mesh_cut(job, k - behind, count), err);
    }
    return rc;
}

int sparse_allreduce(struct mesh *m, const struct coll_job *job, struct err *err)
{
    if (job->n == 0)
        return 0;
    return job->n_bytes <= TREE_MAX / (size_t)m->size ? sum_by_tree(m, job, err)
                                                      : sparse_chain(m, job, err);
}

/* ---- all-gather ---- */

/* The part of x that the spans of `count` ranks from `first` on make. */
static struct coll_part run_of(const struct mesh *m, const struct coll_job *job, int first,
                               int count)
{
    const struct coll_span a = coll_span(job->n, m->size, first),
                           z = coll_span(job->n, m->size, first + count - 1);
    const size_t elem = dtype_size(job->dtype);

    return (struct coll_part){(uint8_t *)job->x + (size_t)a.at * elem,
                              (size_t)(z.at + z.n - a.at) * elem};
}

static int gather_by_tree(struct mesh *m, const struct coll_job *job, struct err *err)
{
    struct coll_part p;
    int rc = 0;

    for (int step = 1; has_child(m, step) && rc == 0; step *= 2) {
        p = run_of(m, job, m->rank + step, n_below(m->size, m->rank + step));
        rc = p.n_bytes ? m->recv(m, m->rank + step, p.x, p.n_bytes, err) : 0;
    }
    p = run_of(m, job, m->rank, n_below(m->size, m->rank));
    if (rc == 0 && m->rank != 0 && p.n_bytes)
        rc = m->send(m, parent_of(m->rank), p.x, p.n_bytes, err);
    return rc < 0 ? rc : sparse_broadcast(m, run_of(m, job, 0, m->size), err);
}

static int gather_by_ring(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const int next = (m->rank + 1) % m->size, prev = (m->rank + m->size - 1) % m->size;
    const int64_t count = mesh_n_pieces(m, coll_part_of(job, m->size, 0).n_bytes);
    int rc = 0;

    for (int s = 0; s < m->size - 1; s++) {
        const int out = (m->rank + m->size - s) % m->size, in = (prev + m->size - s) % m->size;

        for (int64_t k = 0; k < count && rc == 0; k++) {
            rc = mesh_send_piece(m, next, coll_part_of(job, m->size, out), k, err);
            if (rc == 0)
                rc = mesh_recv_piece(m, prev, coll_part_of(job, m->size, in), k, err);
        }
    }
    return rc;
}

int sparse_allgather_spans(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const size_t n_bytes = (size_t)job->n * dtype_size(job->dtype);

    return n_bytes <= TREE_MAX ? gather_by_tree(m, job, err) : gather_by_ring(m, job, err);
}
