/* coll/mesh_parts - how the algorithms of mesh.c and sparse.c cut memory into the pieces that
 * travel.  Both ends of a link cut in the same way, so an empty piece is empty for both, and is
 * neither sent nor received.
 *
 * Threads: as coll/mesh.h. */
#ifndef COLL_MESH_PARTS_H
#define COLL_MESH_PARTS_H

#include "base/util.h"
#include "coll/mesh.h"

static inline int64_t mesh_n_pieces(const struct mesh *m, size_t n_bytes)
{
    return ceil_div_i64((int64_t)n_bytes, (int64_t)m->piece);
}

/* Piece k of a part.  A piece beyond the part's end is empty. */
static inline struct coll_part mesh_piece_of(const struct mesh *m, struct coll_part p, int64_t k)
{
    const size_t at = (size_t)k * m->piece;

    if (at >= p.n_bytes)
        return (struct coll_part){NULL, 0};
    return (struct coll_part){p.x + at, p.n_bytes - at < m->piece ? p.n_bytes - at : m->piece};
}

/* Part i of x cut into `count` parts of whole elements, as equal as can be. */
static inline struct coll_part mesh_cut(const struct coll_job *job, int64_t i, int64_t count)
{
    const struct coll_span s = coll_span(job->n, (int)count, (int)i);
    const size_t elem = dtype_size(job->dtype);

    return (struct coll_part){(uint8_t *)job->x + (size_t)s.at * elem, (size_t)s.n * elem};
}

static inline int mesh_send_piece(struct mesh *m, int to, struct coll_part p, int64_t k,
                                  struct err *err)
{
    const struct coll_part piece = mesh_piece_of(m, p, k);

    return piece.n_bytes ? m->send(m, to, piece.x, piece.n_bytes, err) : 0;
}

static inline int mesh_recv_piece(struct mesh *m, int from, struct coll_part p, int64_t k,
                                  struct err *err)
{
    const struct coll_part piece = mesh_piece_of(m, p, k);

    return piece.n_bytes ? m->recv(m, from, piece.x, piece.n_bytes, err) : 0;
}

#endif
