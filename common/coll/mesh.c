/* mesh - the algorithms that mesh.h names.
 *
 * Why no rank waits for ever: a rank goes through rounds 0, 1, 2 ...  In round k it sends piece k+1
 * of everything that it has to send, then receives piece k of everything that it has to receive.
 * Take a rank in the lowest round.  It is not blocked in a send: the receiver is in the same round
 * or a higher one, so only a few pieces are unread, and the window holds them.  It is not blocked
 * in a receive: the sender is in the same round or a higher one, so it has sent that piece.
 * Broadcasts go down a chain, whose first rank waits for nobody. */
#include "coll/mesh.h"

#include <string.h>

#include "base/util.h"
#include "coll/mesh_parts.h"
#include "coll/reduce.h"
#include "coll/relay.h"
#include "coll/sparse.h"

/* With more than two ranks, x is sent to all (one round) if no rank then sends more than these
 * bytes; otherwise it is scattered and gathered (two rounds). */
enum { EXCHANGE_MAX = 64 << 10 };

/* So many bytes are summed faster than another thread is woken. */
enum { BEGIN_MAX = 16 << 10 };

/* Sums are made in the first half of the landing space; each summand arrives in the second. */
static uint8_t *mesh_summand(const struct mesh *m) { return m->land + m->piece; }

static int send_all(struct mesh *m, const void *data, size_t n_bytes, struct err *err)
{
    int rc = 0;
    for (int i = 1; i < m->size && rc == 0; i++)
        rc = m->send(m, (m->rank + i) % m->size, data, n_bytes, err);
    return rc;
}

/* Receive every rank's version of p and sum them in rank order, with ours from p, into p. */
static int mesh_fold(struct mesh *m, const struct coll_job *job, struct coll_part p,
                     struct err *err)
{
    int64_t n = (int64_t)(p.n_bytes / dtype_size(job->dtype));
    uint8_t *sum = m->rank == 0 ? p.x : m->land;
    for (int r = 0; r < m->size; r++) {
        if (r != m->rank) {
            int rc = m->recv(m, r, r == 0 ? sum : mesh_summand(m), p.n_bytes, err);
            if (rc < 0)
                return rc;
        }
        if (r == 0)
            continue; /* rank 0's piece is where the sum begins */
        const uint8_t *from = r == m->rank ? p.x : mesh_summand(m);
        uint8_t *to = r == m->size - 1 ? p.x : sum;
        coll_sum(to, sum, from, n, job->dtype);
    }
    return 0;
}

/* One rank's sends, or receives, of round k. */
typedef int round_fn(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err);

/* Round k+1 is sent before round k is awaited, so the links never idle. */
static int mesh_run_rounds(struct mesh *m, const struct coll_job *job, int64_t count,
                           round_fn *send, round_fn *recv, struct err *err)
{
    int rc = count > 0 ? send(m, job, 0, err) : 0;

    for (int64_t k = 0; k < count && rc == 0; k++) {
        if (k + 1 < count)
            rc = send(m, job, k + 1, err);
        if (rc == 0)
            rc = recv(m, job, k, err);
    }
    return rc;
}

/* ---- all-reduce ---- */

static int send_to_all(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err)
{
    const struct coll_part p = mesh_cut(job, k, mesh_n_pieces(m, job->n_bytes));

    return send_all(m, p.x, p.n_bytes, err);
}

static int fold_here(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err)
{
    return mesh_fold(m, job, mesh_cut(job, k, mesh_n_pieces(m, job->n_bytes)), err);
}

/* The part of rank r in slice k, of `count` slices of x. */
static struct coll_part mesh_cut2(struct mesh *m, const struct coll_job *job, int64_t k, int r,
                                  int64_t count)
{
    return mesh_cut(job, k * m->size + r, count * m->size);
}

static int mesh_give(struct mesh *m, const struct coll_job *job, int64_t k, int64_t count,
                     struct err *err)
{
    int rc = 0;
    for (int i = 1; i < m->size && rc == 0; i++) {
        int to = (m->rank + i) % m->size;
        struct coll_part p = mesh_cut2(m, job, k, to, count);
        rc = m->send(m, to, p.x, p.n_bytes, err);
    }
    return rc;
}

static int mesh_collect(struct mesh *m, const struct coll_job *job, int64_t k, int64_t count,
                        struct err *err)
{
    for (int i = 1; i < m->size; i++) {
        int from = (m->rank + i) % m->size;
        struct coll_part p = mesh_cut2(m, job, k, from, count);
        int rc = m->recv(m, from, p.x, p.n_bytes, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The all-reduce in two rounds for each slice: give out summands, then send sums.
 *
 * Slice k+1 is given out before slice k is awaited, and the sums of slice k-1 are collected after
 * those of slice k are sent.  So both sides of a link see: give 0, give 1, sums 0, give 2, sums 1,
 * ...  When this rank gives out slice k+1, it has the peer's sums of slice k-2.  So the peer has
 * read this rank's sums of slice k-4, and at most six messages are unread. */
static int mesh_scatter(struct mesh *m, const struct coll_job *job, struct err *err)
{
    int64_t count = ceil_div_i64((int64_t)job->n_bytes, (int64_t)m->piece * m->size);
    int rc = mesh_give(m, job, 0, count, err);
    for (int64_t k = 0; k < count && rc == 0; k++) {
        struct coll_part mine = mesh_cut2(m, job, k, m->rank, count);
        if (k + 1 < count)
            rc = mesh_give(m, job, k + 1, count, err);
        if (rc == 0)
            rc = mesh_fold(m, job, mine, err);
        if (rc == 0)
            rc = send_all(m, mine.x, mine.n_bytes, err);
        if (rc == 0 && k > 0)
            rc = mesh_collect(m, job, k - 1, count, err);
    }
    return rc < 0 ? rc : mesh_collect(m, job, count - 1, count, err);
}

int mesh_can_begin(const struct mesh *m, const struct coll_job *job)
{
    return job->what == COLL_ALLREDUCE && m->size <= MESH_ALL_PAIRS && job->n > 0 &&
           job->n_bytes <= BEGIN_MAX && job->n_bytes <= m->piece &&
           job->n_bytes <= EXCHANGE_MAX / ((size_t)m->size - 1);
}

int mesh_begin(struct mesh *m, const struct coll_job *job, struct err *err)
{
    return send_all(m, job->x, job->n_bytes, err);
}

static int mesh_allreduce(struct mesh *m, const struct coll_job *job, struct err *err)
{
    if (job->n == 0)
        return 0;
    if (job->has_begun)
        return mesh_fold(m, job, (struct coll_part){job->x, job->n_bytes}, err);
    if (m->size > MESH_ALL_PAIRS)
        return sparse_allreduce(m, job, err);
    size_t peers = (size_t)m->size - 1;
    if (m->size == 2 || job->n_bytes <= EXCHANGE_MAX / peers)
        return mesh_run_rounds(m, job, mesh_n_pieces(m, job->n_bytes), send_to_all, fold_here, err);
    if (m->is_chained)
        return sparse_chain(m, job, err);
    return mesh_scatter(m, job, err);
}

/* ---- reduce-scatter, all-gather ---- */

/* The number of pieces of the longest span, which is rank 0's. */
static int64_t span_pieces(const struct mesh *m, const struct coll_job *job)
{
    return mesh_n_pieces(m, coll_part_of(job, m->size, 0).n_bytes);
}

static int send_spans(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err)
{
    int rc = 0;

    for (int i = 1; i < m->size && rc == 0; i++) {
        const int to = (m->rank + i) % m->size;

        rc = mesh_send_piece(m, to, coll_part_of(job, m->size, to), k, err);
    }
    return rc;
}

static int fold_own_span(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err)
{
    const struct coll_part mine = mesh_piece_of(m, coll_part_of(job, m->size, m->rank), k);

    return mine.n_bytes ? mesh_fold(m, job, mine, err) : 0;
}

static int send_own_span(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err)
{
    const struct coll_part mine = mesh_piece_of(m, coll_part_of(job, m->size, m->rank), k);

    return mine.n_bytes ? send_all(m, mine.x, mine.n_bytes, err) : 0;
}

static int recv_spans(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err)
{
    int rc = 0;

    for (int i = 1; i < m->size && rc == 0; i++) {
        const int from = (m->rank + i) % m->size;

        rc = mesh_recv_piece(m, from, coll_part_of(job, m->size, from), k, err);
    }
    return rc;
}

static int mesh_allgather_spans(struct mesh *m, const struct coll_job *job, struct err *err)
{
    if (m->size > MESH_ALL_PAIRS)
        return sparse_allgather_spans(m, job, err);
    return mesh_run_rounds(m, job, span_pieces(m, job), send_own_span, recv_spans, err);
}

/* With more ranks than MESH_ALL_PAIRS, every rank gets all sums, because to send each rank only the
 * summands of its own span would need links between all pairs. */
static int mesh_reduce_scatter(struct mesh *m, const struct coll_job *job, struct err *err)
{
    if (m->size > MESH_ALL_PAIRS)
        return sparse_allreduce(m, job, err);
    return mesh_run_rounds(m, job, span_pieces(m, job), send_spans, fold_own_span, err);
}

/* Gather n_bytes of every rank into x, where they are that rank's span of the whole. */
static int mesh_allgather(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const struct coll_job whole = {
        .x = job->x, .n = (int64_t)job->n_bytes * m->size, .dtype = DTYPE_U8};

    if (job->n_bytes)
        memcpy(coll_part_of(&whole, m->size, m->rank).x, job->mine, job->n_bytes);
    return mesh_allgather_spans(m, &whole, err);
}

/* ---- broadcast ---- */

static int mesh_broadcast(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const struct coll_part x = {job->x, job->n_bytes};
    const int prev = (m->rank + m->size - 1) % m->size, next = (m->rank + 1) % m->size;
    const int64_t count = mesh_n_pieces(m, job->n_bytes);
    int rc = 0;

    if (m->size > MESH_ALL_PAIRS && job->root == 0 && sparse_is_small(x.n_bytes))
        return sparse_broadcast(m, x, err);
    for (int64_t k = 0; k < count && rc == 0; k++) {
        if (m->rank != job->root)
            rc = mesh_recv_piece(m, prev, x, k, err);
        if (rc == 0 && next != job->root)
            rc = mesh_send_piece(m, next, x, k, err);
    }
    return rc;
}

/* ---- all-to-all, exchange ---- */

/* The number of pieces of the longest part that this rank gives or takes. */
static int64_t n_rounds(const struct mesh *m, const struct coll_job *job)
{
    int64_t most = 0;

    for (int r = 0; r < m->size; r++) {
        const int64_t out = mesh_n_pieces(m, coll_part_to(job, r).n_bytes);
        const int64_t in = mesh_n_pieces(m, coll_part_from(job, r).n_bytes);

        if (r != m->rank)
            most = max_i64(most, max_i64(out, in));
    }
    return most;
}

static int mesh_send_parts(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err)
{
    int rc = 0;

    for (int i = 1; i < m->size && rc == 0; i++) {
        const int to = (m->rank + i) % m->size;

        rc = mesh_send_piece(m, to, coll_part_to(job, to), k, err);
    }
    return rc;
}

static int recv_parts(struct mesh *m, const struct coll_job *job, int64_t k, struct err *err)
{
    int rc = 0;

    for (int i = 1; i < m->size && rc == 0; i++) {
        const int from = (m->rank + i) % m->size;

        rc = mesh_recv_piece(m, from, coll_part_from(job, from), k, err);
    }
    return rc;
}

static int all_to_all(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const struct coll_part own = coll_part_to(job, m->rank);

    if (job->most_bytes && m->size > MESH_ALL_PAIRS && relay_is_small(m->size, job->most_bytes))
        return relay_all_to_all(m, job, err);
    if (own.n_bytes)
        memcpy(coll_part_from(job, m->rank).x, own.x, own.n_bytes);
    for (int r = 0; r < m->size; r++)
        if (r != m->rank && (coll_part_to(job, r).n_bytes || coll_part_from(job, r).n_bytes))
            m->want(m, r);
    return mesh_run_rounds(m, job, n_rounds(m, job), mesh_send_parts, recv_parts, err);
}

int mesh_is_near(const struct layout *l, int a, int b)
{
    return l->size <= MESH_ALL_PAIRS ? a != b : sparse_is_near(l, a, b);
}

size_t mesh_land_bytes(const struct mesh *m)
{
    size_t n = 2 * m->piece;

    if (m->size <= MESH_ALL_PAIRS)
        return n;
    n = sparse_land_bytes(m) > n ? sparse_land_bytes(m) : n;
    return n > RELAY_MAX ? n : RELAY_MAX;
}

int mesh_run(struct mesh *m, const struct coll_job *job, struct err *err)
{
    switch (job->what) {
    case COLL_ALLREDUCE:
        return mesh_allreduce(m, job, err);
    case COLL_REDUCE_SCATTER:
        return mesh_reduce_scatter(m, job, err);
    case COLL_ALLGATHER_SPANS:
        return mesh_allgather_spans(m, job, err);
    case COLL_BROADCAST:
        return mesh_broadcast(m, job, err);
    case COLL_ALLGATHER:
        return mesh_allgather(m, job, err);
    case COLL_ALL_TO_ALL:
    case COLL_EXCHANGE:
        return all_to_all(m, job, err);
    }
    ASSERT(!"a collective without its line here");
}
