/* relay - the rounds that relay.h explains.
 *
 * Slot i holds the part that has i ranks to go in all; before the first round that is the part for
 * the rank that is i further, after the last one the part from the rank that is i behind.
 *
 * Why no rank waits for ever: in each round all ranks send piece k + 1 and then receive piece k, in
 * the same order.  The rank that is furthest behind is not blocked in a send: its receiver has read
 * all pieces but the newest two.  It is not blocked in a receive: its sender has sent. */
#include "coll/relay.h"

#include <string.h>

#include "coll/mesh_parts.h"

int relay_is_small(int size, size_t most_bytes)
{
    return most_bytes <= RELAY_MAX / 2 / (size_t)size;
}

/* The landing space: the slots, and then what leaves and what arrives in a round, which is at most
 * half of the slots each. */
struct relay {
    struct mesh *m;
    size_t each; /* bytes of a slot */
    uint8_t *slots, *out, *in;
};

static struct relay relay_over(struct mesh *m, size_t each)
{
    const size_t n = (size_t)m->size;

    return (struct relay){m, each, m->land, m->land + n * each, m->land + (n + n / 2) * each};
}

/* The rank that is so much further in the ring. */
static int relay_to(const struct mesh *m, int distance)
{
    return m->layout->order[(m->place + distance) % m->size];
}

static int relay_from(const struct mesh *m, int distance)
{
    return relay_to(m, m->size - distance);
}

static void relay_load(const struct relay *y, const struct coll_job *job)
{
    for (int i = 0; i < y->m->size; i++) {
        const struct coll_part p = coll_part_to(job, relay_to(y->m, i));
        uint8_t *slot = y->slots + (size_t)i * y->each;

        if (p.n_bytes)
            memcpy(slot, p.x, p.n_bytes);
        memset(slot + p.n_bytes, 0, y->each - p.n_bytes);
    }
}

static void relay_unload(const struct relay *y, const struct coll_job *job)
{
    for (int i = 0; i < y->m->size; i++) {
        const struct coll_part p = coll_part_from(job, relay_from(y->m, i));

        if (p.n_bytes)
            memcpy(p.x, y->slots + (size_t)i * y->each, p.n_bytes);
    }
}

/* The slots that have the distance in their way, one after another; the bytes of all. */
static size_t relay_pack(const struct relay *y, int distance)
{
    size_t n = 0;

    for (int i = distance; i < y->m->size; i++)
        if (i & distance) {
            memcpy(y->out + n, y->slots + (size_t)i * y->each, y->each);
            n += y->each;
        }
    return n;
}

static void relay_unpack(const struct relay *y, int distance)
{
    size_t n = 0;

    for (int i = distance; i < y->m->size; i++)
        if (i & distance) {
            memcpy(y->slots + (size_t)i * y->each, y->in + n, y->each);
            n += y->each;
        }
}

static int relay_round(const struct relay *y, int distance, struct err *err)
{
    const struct coll_part out = {y->out, relay_pack(y, distance)}, in = {y->in, out.n_bytes};
    const int to = relay_to(y->m, distance), from = relay_from(y->m, distance);
    const int64_t count = mesh_n_pieces(y->m, out.n_bytes);
    int rc = mesh_send_piece(y->m, to, out, 0, err);

    for (int64_t k = 0; k < count && rc == 0; k++) {
        rc = mesh_send_piece(y->m, to, out, k + 1, err);
        if (rc == 0)
            rc = mesh_recv_piece(y->m, from, in, k, err);
    }
    relay_unpack(y, distance);
    return rc;
}

int relay_all_to_all(struct mesh *m, const struct coll_job *job, struct err *err)
{
    const struct relay y = relay_over(m, job->most_bytes);
    int rc = 0;

    for (int d = 1; d < m->size; d *= 2) {
        m->want(m, relay_to(m, d));
        m->want(m, relay_from(m, d));
    }
    relay_load(&y, job);
    for (int d = 1; d < m->size && rc == 0; d *= 2)
        rc = relay_round(&y, d, err);
    if (rc == 0)
        relay_unload(&y, job);
    return rc;
}
