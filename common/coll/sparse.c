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

static int parent_of(const struct mesh *m) { return m->layout->order[m->layout->parent[m->place]]; }

static int n_below(const struct mesh *m, int place) { return m->layout->n_below[place]; }

int sparse_is_near(const struct layout *l, int a, int b)
{
    const int distance = a < b ? b - a : a - b;

    return distance != 0 && (distance == 1 || distance == l->size - 1 || layout_is_kin(l, a, b));
}

size_t sparse_land_bytes(const struct mesh *m)
{
    const size_t gathered = TREE_MAX / (size_t)m->size * (size_t)n_below(m, m->place);

    return gathered > 2 * m->piece ? gathered : 2 * m->piece;
}

int sparse_is_small(size_t n_bytes) { return n_bytes <= TREE_MAX; }

/* Rank 0's x goes to all.  Other hosts are served first, and then the child whose subtree has the
 * most ranks. */
int sparse_broadcast(struct mesh *m, struct coll_part x, struct err *err)
{
    int child[LAYOUT_CHILDREN], rc = 0;

    if (x.n_bytes == 0)
        return 0;
    if (m->place != 0)
        rc = m->recv(m, parent_of(m), x.x, x.n_bytes, err);
    for (int i = layout_children(m->layout, m->place, child) - 1; i >= 0 && rc == 0; i--)
        rc = m->send(m, m->layout->order[child[i]], x.x, x.n_bytes, err);
    return rc;
}

/* Collect the x of each rank of this one's subtree, of `each` bytes, in the landing space, in the
 * order of their places, and send all to the parent. */
static int gather_up(struct mesh *m, struct coll_part x, size_t each, struct err *err)
{
    int child[LAYOUT_CHILDREN], rc = 0;
    const int n = layout_children(m->layout, m->place, child);

    if (x.n_bytes)
        memcpy(m->land, x.x, x.n_bytes);
    memset(m->land + x.n_bytes, 0, each - x.n_bytes);
    for (int i = 0; i < n && rc == 0; i++)
        rc = m->recv(m, m->layout->order[child[i]], m->land + each * (size_t)(child[i] - m->place),
                     each * (size_t)n_below(m, child[i]), err);
    if (rc == 0 && m->place != 0)
        rc = m->send(m, parent_of(m), m->land, each * (size_t)n_below(m, m->place), err);
    return rc;
}

/* Where gather_up has put the x of rank r on rank 0. */
static const uint8_t *gathered_of(const struct mesh *m, int r, size_t each)
{
    return m->land + each * (size_t)m->layout->place[r];
}

/* ---- all-reduce ---- */

static int sum_by_tree(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const struct coll_part x = {job->x, job->n_bytes};
    int rc = gather_up(m, x, x.n_bytes, err);

    for (int r = 1; m->rank == 0 && r < m->size && rc == 0; r++)
        coll_sum(x.x, x.x, gathered_of(m, r, x.n_bytes), job->n, job->dtype);
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

static int gather_by_tree(struct mesh *m, const struct coll_job *job, size_t each, struct err *err)
{
    const struct coll_part whole = {job->x, (size_t)job->n * dtype_size(job->dtype)};
    int rc = gather_up(m, coll_part_of(job, m->size, m->rank), each, err);

    for (int r = 1; m->rank == 0 && r < m->size && rc == 0; r++) {
        const struct coll_part p = coll_part_of(job, m->size, r);

        if (p.n_bytes)
            memcpy(p.x, gathered_of(m, r, each), p.n_bytes);
    }
    return rc < 0 ? rc : sparse_broadcast(m, whole, err);
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
    const size_t each = coll_part_of(job, m->size, 0).n_bytes; /* the longest span */

    return each <= TREE_MAX / (size_t)m->size ? gather_by_tree(m, job, each, err)
                                              : gather_by_ring(m, job, err);
}
