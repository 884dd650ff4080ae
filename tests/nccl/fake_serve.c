/* fake_serve - moves the bytes of the stand-in for NCCL: sums over the ranks of a clique, and
 * messages between them. */
#include "fake_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/half.h"

/* ---- collectives ---- */

size_t fake_size_of(ncclDataType_t t)
{
    switch (t) {
    case ncclFloat64:
        return 8;
    case ncclFloat32:
        return 4;
    case ncclBfloat16:
    case ncclFloat16:
        return 2;
    default:
        ASSERT(t == ncclInt8);
        return 1;
    }
}

static enum dtype real_type(ncclDataType_t t)
{
    ASSERT(t != ncclInt8);
    return t == ncclFloat32 ? DTYPE_F32 : t == ncclBfloat16 ? DTYPE_BF16 : DTYPE_F16;
}

static double number(ncclDataType_t t, const void *from, size_t i)
{
    if (t == ncclFloat64)
        return ((const double *)from)[i];
    return (double)real_get(from, real_type(t), (int64_t)i);
}

static void store(ncclDataType_t t, void *to, size_t i, double v)
{
    if (t == ncclFloat64)
        ((double *)to)[i] = v;
    else
        real_put(to, real_type(t), (int64_t)i, (float)v);
}

/* Element i of the sum over all ranks of their calls `at`.  As a ring of GPUs does, it rounds after
 * each rank that is added. */
static double sum_element(const struct clique *q, int at, size_t i)
{
    const ncclDataType_t t = q->of[0].posted.call[at].type;
    double sum = number(t, q->of[0].posted.call[at].send, i), rounded;

    for (int r = 1; r < q->size; r++) {
        store(t, &rounded, 0, sum + number(t, q->of[r].posted.call[at].send, i));
        sum = number(t, &rounded, 0);
    }
    return sum;
}

/* Sum elements [from, from + n) of all ranks' i-th calls, and store the sums at rank `to`, or at
 * all ranks (-1). */
static void sum(struct clique *q, int i, size_t from, size_t n, int to)
{
    double *sums = xcalloc(n + 1, sizeof *sums);

    for (size_t e = 0; e < n; e++)
        sums[e] = sum_element(q, i, from + e);
    for (int r = 0; r < q->size; r++)
        for (size_t e = 0; e < n && (to < 0 || r == to); e++)
            store(q->of[r].posted.call[i].type, q->of[r].posted.call[i].recv, e, sums[e]);
    free(sums);
}

static void check_alike(const struct clique *q, int i)
{
    const struct call *first = &q->of[0].posted.call[i];

    for (int r = 1; r < q->size; r++) {
        const struct call *k = &q->of[r].posted.call[i];

        ASSERT(q->of[r].posted.n_calls == q->of[0].posted.n_calls);
        ASSERT(k->kind == first->kind && k->n_bytes == first->n_bytes && k->type == first->type &&
               k->root == first->root);
    }
}

static void serve(struct clique *q, int i)
{
    const struct call first = q->of[0].posted.call[i];
    const size_t n = first.n_bytes / fake_size_of(first.type);

    check_alike(q, i);
    if (first.kind == FAKE_ALLREDUCE)
        sum(q, i, 0, n, -1);
    else if (first.kind == FAKE_REDUCE)
        sum(q, i, 0, n, first.root);
    /* In place, a rank's sums overwrite elements that go into no other rank's sums. */
    for (int r = 0; first.kind == FAKE_REDUCE_SCATTER && r < q->size; r++)
        sum(q, i, (size_t)r * n, n, r);
    for (int r = 0; first.kind == FAKE_BROADCAST && r < q->size; r++)
        memmove(q->of[r].posted.call[i].recv, q->of[first.root].posted.call[i].send, first.n_bytes);
    for (int r = 0; first.kind == FAKE_ALLGATHER && r < q->size; r++)
        for (int k = 0; k < q->size; k++)
            memmove((char *)q->of[r].posted.call[i].recv + (size_t)k * first.n_bytes,
                    q->of[k].posted.call[i].send, first.n_bytes);
}

/* ---- messages ---- */

int fake_is_message(const struct call *k) { return k->kind == FAKE_SEND || k->kind == FAKE_RECV; }

static int has_messages(const struct clique *q, int r)
{
    return q->of[r].is_posted && fake_is_message(&q->of[r].posted.call[0]);
}

/* The first message of that kind in m to or from `peer` that is not done, or NULL. */
static struct call *find(struct meeting *m, enum coll_kind kind, int peer)
{
    for (int i = 0; i < m->n_calls; i++)
        if (!m->call[i].is_done && m->call[i].kind == kind && m->call[i].root == peer)
            return &m->call[i];
    return NULL;
}

static void deliver(struct clique *q, int from, int to)
{
    struct call *s, *r;

    while ((s = find(&q->of[from].posted, FAKE_SEND, to)) &&
           (r = find(&q->of[to].posted, FAKE_RECV, from))) {
        ASSERT(s->n_bytes == r->n_bytes);
        memcpy(r->recv, s->send, s->n_bytes);
        s->is_done = r->is_done = 1;
    }
}

/* Deliver what rank `a` has posted, and what the others have posted for it. */
static void serve_messages(struct clique *q, int a)
{
    for (int b = 0; b < q->size; b++)
        if (has_messages(q, a) && has_messages(q, b)) {
            deliver(q, a, b);
            deliver(q, b, a);
        }
    for (int r = 0; r < q->size; r++) {
        int n_left = 0;

        for (int i = 0; i < q->of[r].posted.n_calls; i++)
            n_left += !q->of[r].posted.call[i].is_done;
        if (!has_messages(q, r) || n_left)
            continue;
        q->of[r].is_posted = 0;
        q->of[r].is_served = 1;
    }
}

/* Serve the collectives that all ranks have posted. */
static void serve_all(struct clique *q)
{
    for (int r = 0; r < q->size; r++)
        if (!q->of[r].is_posted || has_messages(q, r))
            return;
    for (int i = 0; i < q->of[0].posted.n_calls; i++)
        serve(q, i);
    for (int r = 0; r < q->size; r++) {
        q->of[r].is_posted = 0;
        q->of[r].is_served = 1;
    }
}

void fake_serve(struct clique *q, int r)
{
    serve_messages(q, r);
    serve_all(q);
}
