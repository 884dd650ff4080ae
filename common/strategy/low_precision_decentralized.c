/* low_precision_decentralized - each rank trains by itself, and moves towards its two neighbours in
 * a ring after every `every` steps.  It sends them one byte for each parameter.
 *
 * This is Bagua's algorithm of this name (Tang and others 2018, "Communication Compression for
 * Decentralized Training").
 *
 * A rank keeps three copies: W, its own parameters as its neighbours know them, and L and R, the
 * parameters of its left and right neighbour.  All three are equal at first.  After a step the
 * ranks exchange if the number of steps is a multiple of `every`.  With x the trained parameters
 * after the step:
 *
 *   d = x + L/3 + R/3 - (5/3) W    [ = (x - W) + ((L + R + W)/3 - W) ]
 *   c = the codes of d, one chunk for each bucket (strategy/minmax.h), sent to both neighbours
 *   L += decoded c of the left neighbour;  R += decoded c of the right neighbour
 *   W += decoded c;  x = W
 *
 * A rank adds to W the same numbers that its neighbours add to their copies of W, so the copies
 * have the same bytes as W.  The ranks compare hashes of them whenever they meet (train/meet.h).
 * After a meeting W, L and R are set to the parameters, which are then equal on all ranks.
 *
 * With two ranks both neighbours are the same rank.  One rank alone has no neighbour and exchanges
 * nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"
#include "strategy/low_precision_decentralized.h"
#include "strategy/minmax.h"
#include "strategy/solo.h"

#define AT(field) offsetof(struct low_precision_options, field)

static const struct option rows[] = {
    {"strategy.every", OPT_INT, AT(every), "1", 1, 1e9, .unit = "steps",
     .help = "The ranks exchange parameters after every so many steps."},
};

enum side { LEFT, RIGHT, SIDES };

struct low_precision {
    struct solo solo;           /* first; aside: d */
    float *known;               /* W [n_trained] */
    float *copy[SIDES];         /* L, R [n_trained] */
    uint8_t *code, *got[SIDES]; /* [code_bytes] */
};

static struct low_precision *of(struct strategy *s) { return (struct low_precision *)s; }

float *low_precision_copy(struct strategy *s, int side) { return of(s)->copy[side]; }

/* Bytes from the start of the codes to the chunk of `bucket`.  With bucket = n_buckets: the bytes
 * of all chunks. */
static size_t chunk_at(const struct layout *l, int bucket)
{
    int64_t at = 0;

    for (int b = 0; b < bucket; b++)
        at += minmax_bytes(cut_bucket(l, b));
    return (size_t)at;
}

static void free_it(struct strategy *s)
{
    struct backend *b = s->at.backend;

    backend_free(b, of(s)->known);
    backend_free(b, of(s)->code);
    for (int i = 0; i < SIDES; i++) {
        backend_free(b, of(s)->copy[i]);
        backend_free(b, of(s)->got[i]);
    }
    solo_free(s);
}

static size_t n_bytes(const struct strategy *s)
{
    return sizeof(float) * (size_t)s->at.layout->n_trained;
}

static int make_memory(struct strategy *s, struct err *err)
{
    const size_t code_bytes = chunk_at(s->at.layout, s->at.layout->n_buckets);
    static const char what[] = "what neighbours know of each other";
    struct backend *b = s->at.backend;
    int rc = backend_alloc(b, n_bytes(s), what, (void **)&of(s)->known, err);

    if (rc == 0)
        rc = backend_alloc(b, code_bytes, what, (void **)&of(s)->code, err);
    for (int i = 0; i < SIDES && rc == 0; i++) {
        rc = backend_alloc(b, n_bytes(s), what, (void **)&of(s)->copy[i], err);
        if (rc == 0)
            rc = backend_alloc(b, code_bytes, what, (void **)&of(s)->got[i], err);
    }
    return rc;
}

static int new (const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct solo *o;

    if (solo_new(site, sizeof(struct low_precision), NULL, &o, err) < 0)
        return err->code;
    if (make_memory(&o->base, err) < 0) {
        free_it(&o->base);
        return err->code;
    }
    *out = &o->base;
    return 0;
}

static int met(struct strategy *s, struct err *err)
{
    (void)err;
    memcpy(of(s)->known, s->at.param, n_bytes(s));
    for (int i = 0; i < SIDES; i++)
        memcpy(of(s)->copy[i], s->at.param, n_bytes(s));
    return 0;
}

static int neighbour(const struct strategy *s, enum side side)
{
    const struct coll *c = exchange_coll(s->at.exchange);
    const int n = coll_size(c);

    return (coll_rank(c) + (side == LEFT ? n - 1 : 1)) % n;
}

/* ---- an exchange ---- */

static int encode(struct strategy *s, struct err *err)
{
    const struct low_precision *p = of(s);
    const struct layout *l = s->at.layout;
    float *d = p->solo.aside;

    for (int64_t i = 0; i < l->n_trained; i++)
        d[i] = s->at.param[i] + p->copy[LEFT][i] / 3 + p->copy[RIGHT][i] / 3 -
               p->known[i] * (5.0f / 3.0f);
    for (int b = 0; b < l->n_buckets; b++)
        if (minmax_encode(d + l->bucket[b].offset, cut_bucket(l, b), p->code + chunk_at(l, b)))
            return err_set(err, ERR_NUMERIC,
                           "parameters that are to be sent to the neighbours are not finite");
    return 0;
}

/* Start to send this rank's codes to the neighbour on side `to`, and to take those of the neighbour
 * on the other side. */
static int shift(struct strategy *s, enum side to, struct err *err)
{
    const enum side from = to == LEFT ? RIGHT : LEFT;
    const struct layout *l = s->at.layout;
    int rc = 0;

    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        const size_t at = chunk_at(l, b);
        const int64_t n = minmax_bytes(cut_bucket(l, b));
        const struct coll_message send = {of(s)->code + at, n, neighbour(s, to)};
        const struct coll_message take = {of(s)->got[from] + at, n, neighbour(s, from)};

        rc = exchange_messages(s->at.exchange, b, send, take, n, DTYPE_U8, err);
    }
    return rc;
}

static void add(const struct strategy *s, const uint8_t *code, float *to)
{
    const struct layout *l = s->at.layout;

    for (int b = 0; b < l->n_buckets; b++)
        minmax_add(code + chunk_at(l, b), cut_bucket(l, b), to + l->bucket[b].offset);
}

static int step_end(struct strategy *s, struct err *err)
{
    const struct low_precision_options *o = s->at.options;
    struct low_precision *p = of(s);

    if ((exchange_step(s->at.exchange) + 1) % o->every != 0 || solo_n_ranks(s) == 1)
        return 0;
    if (encode(s, err) < 0 || shift(s, LEFT, err) < 0 || shift(s, RIGHT, err) < 0 ||
        solo_wait_buckets(s, err) < 0)
        return err->code;
    for (int i = 0; i < SIDES; i++)
        add(s, p->got[i], p->copy[i]);
    add(s, p->code, p->known);
    memcpy(s->at.param, p->known, n_bytes(s));
    return 1;
}

/* ---- the proof ---- */

struct proof {
    struct hash128 known, copy[SIDES];
};

/* Compare each rank's copies with the neighbours' W, by hashes.  Every rank makes all comparisons,
 * so all ranks succeed, or fail with the same error. */
static int compare(const struct proof *all, int n, struct err *err)
{
    for (int r = 0; r < n; r++)
        for (int i = 0; i < SIDES; i++) {
            const int other = (r + (i == LEFT ? n - 1 : 1)) % n;

            if (!hash_equal(all[r].copy[i], all[other].known))
                return err_set(err, ERR_NUMERIC,
                               "the parameters that rank %d knows of rank %d are not what rank %d "
                               "sent",
                               r, other, other);
        }
    return 0;
}

static int prove(struct strategy *s, struct err *err)
{
    const struct low_precision *p = of(s);
    const int n = solo_n_ranks(s);
    const struct proof mine = {
        hash_of(p->known, n_bytes(s)),
        {hash_of(p->copy[LEFT], n_bytes(s)), hash_of(p->copy[RIGHT], n_bytes(s))}};
    struct proof *all;
    int rc;

    if (n == 1)
        return 0;
    all = xcalloc((size_t)n, sizeof *all);
    rc = coll_allgather(exchange_coll(s->at.exchange), &mine, sizeof mine, all, err);
    if (rc == 0)
        rc = compare(all, n, err);
    free(all);
    return rc;
}

const struct strategy_ops strategy_low_precision_decentralized = {
    .group = {.name = "low_precision_decentralized",
              .help = "ranks in a ring send their neighbours one byte for each parameter: for "
                      "many ranks on slow links (CPUs)",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct low_precision_options)},
    .is_for_cpus = 1,
    .promises = {.replicas_are_equal = 1,
                 .collectives_are_equal = 1,
                 .updates_are_own = 1,
                 .recovery = STRATEGY_NEEDS_ONE_RANK},
    .new = new,
    .loss_factor = solo_loss_factor,
    .bucket_ready = solo_bucket_ready,
    .before_update = solo_before_update,
    .step_end = step_end,
    .epoch_end = prove,
    .met = met,
    .free = free_it,
};
