/* The meters of a run, and the differences that their tellers add.
 * A reader that is not the teller keeps the place from which it would go on. */
#include "session/energy.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

void energy_init(struct energy *e, const struct energy_sums *past, int most, int64_t patience_ns)
{
    ASSERT(most > 0);
    *e = (struct energy){.sums = *past, .most = most, .patience_ns = patience_ns};
    for (int i = 0; i < ENERGY_KINDS; i++)
        e->meter[i] = xcalloc((size_t)most, sizeof *e->meter[i]);
}

void energy_fini(struct energy *e)
{
    for (int i = 0; i < ENERGY_KINDS; i++)
        free(e->meter[i]);
    *e = (struct energy){.most = 0};
}

/* The place for a new meter: the next free one, or else that of the meter that was silent for the
 * longest time.  There are as many places as ranks, so nobody reads that one any more. */
static int meter_place(struct energy *e, enum energy_kind kind)
{
    const struct energy_meter *m = e->meter[kind];
    int oldest = 0;

    if (e->n_meters[kind] < e->most)
        return e->n_meters[kind]++;
    for (int i = 1; i < e->most; i++)
        if (m[i].at_ns < m[oldest].at_ns)
            oldest = i;
    return oldest;
}

static int meter_search(const struct energy *e, enum energy_kind kind, uint64_t key)
{
    for (int i = 0; i < e->n_meters[kind]; i++)
        if (e->meter[kind][i].key == key)
            return i;
    return -1;
}

int energy_has(const struct energy *e, enum energy_kind kind, uint64_t key)
{
    return meter_search(e, kind, key) >= 0;
}

/* The meter with this key; `last` is where the caller found it before. */
static int meter_find(struct energy *e, enum energy_kind kind, uint64_t key, int last)
{
    struct energy_meter *m = e->meter[kind];
    int i = last < e->n_meters[kind] && m[last].key == key ? last : meter_search(e, kind, key);

    if (i >= 0)
        return i;
    i = meter_place(e, kind);
    m[i] = (struct energy_meter){.key = key};
    return i;
}

/* A sum that a peer's numbers have made too large stays where it is, and fits into a message. */
static void energy_add(struct energy *e, struct energy_reader *r, enum energy_kind kind, int64_t mj)
{
    const int64_t most = INT64_MAX / 16;

    r->of[kind].told_mj = min_i64(most, r->of[kind].told_mj + min_i64(most, mj));
    e->sums.mj[kind] = min_i64(most, e->sums.mj[kind] + min_i64(most, mj));
}

void energy_heard(struct energy *e, struct energy_reader *r, enum energy_kind kind, uint64_t key,
                  int64_t mj, int64_t now_ns)
{
    struct energy_meter *m;

    if (!r->id)
        r->id = ++e->n_readers;
    if (mj <= 0)
        return;
    r->of[kind].meter = meter_find(e, kind, key, r->of[kind].meter);
    m = &e->meter[kind][r->of[kind].meter];
    if (!r->of[kind].is_known || mj < r->of[kind].from_mj)
        r->of[kind].from_mj = mj;
    r->of[kind].is_known = 1;
    if (m->teller == 0 || m->teller == r->id || now_ns - m->at_ns > e->patience_ns) {
        energy_add(e, r, kind, mj - r->of[kind].from_mj);
        *m = (struct energy_meter){.key = key, .teller = r->id, .at_ns = now_ns};
        r->of[kind].from_mj = mj;
    } else if (r->of[kind].seen_ns != m->at_ns) {
        r->of[kind].seen_ns = m->at_ns;
        r->of[kind].from_mj = mj;
    }
}

const char *energy_key(enum energy_kind kind)
{
    static const char *const keys[ENERGY_KINDS] = {
#define X(KIND, key) [ENERGY_##KIND] = #key,
        ENERGY_LIST(X)
#undef X
    };
    return keys[kind];
}

int energy_is_known(const struct energy_sums *s)
{
    for (int i = 0; i < ENERGY_KINDS; i++)
        if (s->mj[i] > 0)
            return 1;
    return 0;
}

double energy_joules(const struct energy_sums *s, enum energy_kind kind)
{
    return 1e-3 * (double)s->mj[kind];
}

struct energy_sums energy_since(const struct energy_sums *a, const struct energy_sums *b)
{
    struct energy_sums s;

    for (int i = 0; i < ENERGY_KINDS; i++)
        s.mj[i] = max_i64(0, a->mj[i] - b->mj[i]);
    return s;
}
