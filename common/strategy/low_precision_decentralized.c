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
 *   c = the codes of d, one chunk for each bucket (op/codec.h), sent to both neighbours
 *   L += decoded c of the left neighbour;  R += decoded c of the right neighbour
 *   W += decoded c;  x = W
 *
 * A rank adds to W the same numbers that its neighbours add to their copies of W, so the copies
 * have the same bytes as W.  The ranks compare hashes of them whenever they meet (train/meet.h).
 * After a meeting W, L and R are set to the parameters, which are then equal on all ranks.
 *
 * With two ranks both neighbours are the same rank.  One rank alone has no neighbour and exchanges
 * nothing.
 *
 * The exchange follows the update, in the same step.  On a device it is queued behind it.  Steps
 * with and without an exchange are different variants (strategy_ops.variant).  The exchange changes
 * nothing if the step is void, or if its collectives were stopped; then the ranks meet when they
 * form again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"
#include "op/codec.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"
#include "strategy/low_precision_decentralized.h"
#include "strategy/solo.h"

#define AT(field) offsetof(struct low_precision_options, field)

static const struct option rows[] = {
    {"strategy.every", OPT_INT, AT(every), "1", 1, 1e9, .unit = "steps",
     .help = "The ranks exchange parameters after every so many steps."},
};

enum side { LEFT, RIGHT, SIDES };

struct low_precision {
    struct solo solo;                /* first; aside: d */
    float *known;                    /* W [n_trained] */
    float *copy[SIDES];              /* L, R [n_trained] */
    uint8_t *code, *got[SIDES];      /* [code_bytes] */
    float *three;                    /* [1]: the divisor of L and R */
    struct program **encode, **take; /* [n_buckets]; NULL: the bucket has no parameters */
    void *arena;
};

static struct low_precision *low_precision_of(const struct strategy *s)
{
    return (struct low_precision *)s;
}

float *low_precision_copy(struct strategy *s, int side) { return low_precision_of(s)->copy[side]; }

static int64_t chunk_bytes(const struct layout *l, int bucket)
{
    const int64_t n = cut_bucket(l, bucket);

    return n > 0 ? codec_bytes(CODEC_MINMAX_UINT8, n) : 0;
}

/* Bytes from the start of the codes to the chunk of `bucket`.  With bucket = n_buckets: the bytes
 * of all chunks. */
static size_t chunk_at(const struct layout *l, int bucket)
{
    int64_t at = 0;

    for (int b = 0; b < bucket; b++)
        at += chunk_bytes(l, b);
    return (size_t)at;
}

static size_t low_precision_n_bytes(const struct strategy *s)
{
    return sizeof(float) * (size_t)s->at.layout->n_trained;
}

/* ---- the programs of a bucket ---- */

static int low_precision_place(struct sketch *s, const struct strategy *o, float *flat, int bucket)
{
    const struct layout *l = o->at.layout;

    return sketch_place(s, DTYPE_F32, SHAPE(cut_bucket(l, bucket)), flat + l->bucket[bucket].offset,
                        "low_precision");
}

static int place_code(struct sketch *s, const struct strategy *o, uint8_t *codes, int bucket)
{
    const struct layout *l = o->at.layout;

    return sketch_place(s, DTYPE_U8, SHAPE(1, chunk_bytes(l, bucket)), codes + chunk_at(l, bucket),
                        "code");
}

/* Make the program that writes the code of d. */
static int low_precision_make_encode(struct strategy *o, int b, struct err *err)
{
    const union node_attr attr = {
        .number = {[ENCODE_ATTR_KIND] = CODEC_MINMAX_UINT8, [ENCODE_ATTR_CHUNKS] = 1}};
    struct low_precision *p = low_precision_of(o);
    struct sketch s = sketch_begin(err);
    const int three = sketch_place(&s, DTYPE_F32, SHAPE(1), p->three, "three");
    const int d = low_precision_place(&s, o, p->solo.aside, b);
    int from = low_precision_place(&s, o, o->at.param, b);

    for (int i = 0; i < SIDES; i++)
        from = sketch_elementwise(&s, EW_ADD, from,
                                  sketch_elementwise(&s, EW_DIV,
                                                     low_precision_place(&s, o, p->copy[i], b),
                                                     three, NODE_NEW_OUT),
                                  d);
    from = sketch_elementwise(&s, EW_SUB, from,
                              sketch_scale(&s, low_precision_place(&s, o, p->known, b),
                                           (double)(5.0f / 3.0f), NODE_NEW_OUT),
                              d);
    sketch_node(&s, OP_encode, &attr, &from, 1, (int[]){place_code(&s, o, p->code, b)}, "encode");
    return sketch_end(&s, o->at.backend, NULL, &p->encode[b]);
}

/* Append: kept = a + b.  Nothing is changed if the exchange is not valid. */
static void add_sum(struct sketch *s, const struct strategy *o, int bucket, int a, int b,
                    float *kept)
{
    const int64_t n = cut_bucket(o->at.layout, bucket);

    solo_add_keep(s, o, n, sketch_elementwise(s, EW_ADD, a, b, NODE_NEW_OUT),
                  kept + o->at.layout->bucket[bucket].offset);
}

/* Append: to += what the codes stand for; and x = to, if x is not NULL. */
static void add_codes(struct sketch *s, const struct strategy *o, int bucket, uint8_t *codes,
                      float *to, float *x)
{
    const int64_t n = cut_bucket(o->at.layout, bucket);
    const union node_attr attr = {
        .number = {[DECODE_ATTR_KIND] = CODEC_MINMAX_UINT8, [DECODE_ATTR_N] = (double)n}};
    const int code = place_code(s, o, codes, bucket), old = low_precision_place(s, o, to, bucket);
    int change[] = {NODE_NEW_OUT};

    sketch_node(s, OP_decode, &attr, &code, 1, change, "decode");
    if (x)
        add_sum(s, o, bucket, old, change[0], x);
    add_sum(s, o, bucket, old, change[0], to);
}

/* Make the program that adds the codes, this rank's own and the neighbours'. */
static int make_take(struct strategy *o, int b, struct err *err)
{
    struct low_precision *p = low_precision_of(o);
    struct sketch s = sketch_begin(err);

    for (int i = 0; i < SIDES; i++)
        add_codes(&s, o, b, p->got[i], p->copy[i], NULL);
    add_codes(&s, o, b, p->code, p->known, o->at.param);
    return sketch_end(&s, o->at.backend, NULL, &p->take[b]);
}

/* Run one program of each bucket. */
static int run_all(struct strategy *s, struct program *const *program, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = sketch_run(program[b], err);
    return rc;
}

/* ---- making and freeing ---- */

static void low_precision_free(struct strategy *s)
{
    struct low_precision *p = low_precision_of(s);
    struct backend *b = s->at.backend;

    for (int i = 0; p->encode && i < s->at.layout->n_buckets; i++) {
        program_free(p->encode[i]);
        program_free(p->take[i]);
    }
    free(p->encode);
    free(p->take);
    backend_free(b, p->arena);
    backend_free(b, p->three);
    backend_free(b, p->known);
    backend_free(b, p->code);
    for (int i = 0; i < SIDES; i++) {
        backend_free(b, p->copy[i]);
        backend_free(b, p->got[i]);
    }
    solo_free(s);
}

static int low_precision_make_memory(struct strategy *s, struct err *err)
{
    const size_t code_bytes = chunk_at(s->at.layout, s->at.layout->n_buckets);
    static const char what[] = "what neighbours know of each other";
    const float three = 3;
    struct backend *b = s->at.backend;
    int rc =
        backend_alloc(b, low_precision_n_bytes(s), what, (void **)&low_precision_of(s)->known, err);

    if (rc == 0)
        rc = backend_alloc(b, code_bytes, what, (void **)&low_precision_of(s)->code, err);
    for (int i = 0; i < SIDES && rc == 0; i++) {
        rc = backend_alloc(b, low_precision_n_bytes(s), what,
                           (void **)&low_precision_of(s)->copy[i], err);
        if (rc == 0)
            rc = backend_alloc(b, code_bytes, what, (void **)&low_precision_of(s)->got[i], err);
    }
    if (rc == 0)
        rc = backend_alloc(b, sizeof three, what, (void **)&low_precision_of(s)->three, err);
    return rc == 0 ? backend_copy_in(b, low_precision_of(s)->three, &three, sizeof three, err) : rc;
}

static int make_programs(struct strategy *s, struct err *err)
{
    const int n = s->at.layout->n_buckets;
    struct low_precision *p = low_precision_of(s);
    struct program **all = xcalloc(2 * (size_t)n, sizeof(struct program *));
    int rc = 0;

    p->encode = xcalloc((size_t)n, sizeof(struct program *));
    p->take = xcalloc((size_t)n, sizeof(struct program *));
    for (int b = 0; b < n && rc == 0; b++) {
        if (cut_bucket(s->at.layout, b) == 0) /* of the control vector alone */
            continue;
        rc = low_precision_make_encode(s, b, err);
        if (rc == 0)
            rc = make_take(s, b, err);
        all[2 * b] = p->encode[b];
        all[2 * b + 1] = p->take[b];
    }
    if (rc == 0)
        rc = sketch_bind(all, 2 * n, s->at.backend, &p->arena, err);
    free(all);
    return rc;
}

static int low_precision_new(const struct strategy_site *site, struct strategy **out,
                             struct err *err)
{
    struct solo *o;

    if (solo_new(site, sizeof(struct low_precision), NULL, &o, err) < 0)
        return err->code;
    if (low_precision_make_memory(&o->base, err) < 0 || make_programs(&o->base, err) < 0) {
        low_precision_free(&o->base);
        return err->code;
    }
    *out = &o->base;
    return 0;
}

static int low_precision_met(struct strategy *s, struct err *err)
{
    float *const all[] = {low_precision_of(s)->known, low_precision_of(s)->copy[LEFT],
                          low_precision_of(s)->copy[RIGHT]};
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(all) && rc == 0; i++)
        rc = backend_copy(s->at.backend, all[i], s->at.param, low_precision_n_bytes(s), err);
    return rc;
}

static int low_precision_neighbour(const struct strategy *s, enum side side)
{
    const struct coll *c = exchange_coll(s->at.exchange);
    const int n = coll_size(c);

    return (coll_rank(c) + (side == LEFT ? n - 1 : 1)) % n;
}

/* ---- an exchange ---- */

/* On CPUs: the header of a code says whether a number was not finite.  On a device such numbers
 * reach the parameters, and the loss of the next step is not finite. */
static int low_precision_check_codes(const struct strategy *s, struct err *err)
{
    const struct layout *l = s->at.layout;

    for (int b = 0; b < l->n_buckets && !backend_is_apart(s->at.backend); b++) {
        float first = 0;

        if (chunk_bytes(l, b) > 0)
            memcpy(&first, low_precision_of(s)->code + chunk_at(l, b), sizeof first);
        if (isnan(first))
            return err_set(err, ERR_NUMERIC,
                           "parameters that are to be sent to the neighbours are not finite");
    }
    return 0;
}

/* Start to send this rank's codes to the neighbour on side `to`, and to take those of the neighbour
 * on the other side. */
static int low_precision_shift(struct strategy *s, enum side to, struct err *err)
{
    const enum side from = to == LEFT ? RIGHT : LEFT;
    const struct layout *l = s->at.layout;
    int rc = 0;

    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        const size_t at = chunk_at(l, b);
        const int64_t n = chunk_bytes(l, b);
        const struct coll_message send = {low_precision_of(s)->code + at, n,
                                          low_precision_neighbour(s, to)};
        const struct coll_message take = {low_precision_of(s)->got[from] + at, n,
                                          low_precision_neighbour(s, from)};

        if (n > 0)
            rc = exchange_messages(s->at.exchange, b, send, take, n, DTYPE_U8, err);
    }
    return rc;
}

/* 1: codes are exchanged after this step. */
static int low_precision_is_due(const struct strategy *s)
{
    const struct low_precision_options *o = s->at.options;

    return (exchange_step(s->at.exchange) + 1) % o->every == 0 && solo_n_ranks(s) > 1;
}

/* Exchange codes, if that is due.  Returns 1 if parameters change. */
static int low_precision_after_update(struct strategy *s, struct err *err)
{
    if (!low_precision_is_due(s))
        return 0;
    if (run_all(s, low_precision_of(s)->encode, err) < 0 || low_precision_check_codes(s, err) < 0 ||
        low_precision_shift(s, LEFT, err) < 0 || low_precision_shift(s, RIGHT, err) < 0 ||
        exchange_wait_buckets(s->at.exchange, err) < 0 || solo_latch_standing(s, err) < 0)
        return err->code;
    return run_all(s, low_precision_of(s)->take, err) < 0 ? err->code : 1;
}

/* ---- the proof ---- */

struct proof {
    struct hash128 known, copy[SIDES];
};

/* The hash of x[n_trained], which is read a window at a time. */
static int low_precision_hash(const struct strategy *s, const float *x, struct hash128 *out,
                              struct err *err)
{
    enum { WINDOW = 1 << 20 }; /* elements */
    const int64_t n = s->at.layout->n_trained;
    struct hasher *h = hasher_new();
    float *window = xcalloc((size_t)min_i64(n, WINDOW), sizeof *window);
    int rc = 0;

    for (int64_t at = 0; at < n && rc == 0; at += WINDOW) {
        const size_t part = (size_t)min_i64(n - at, WINDOW) * sizeof *window;

        rc = backend_copy_out(s->at.backend, window, x + at, part, err);
        if (rc == 0)
            hasher_add(h, window, part);
    }
    *out = hasher_end(h);
    hasher_free(h);
    free(window);
    return rc;
}

/* Compare each rank's copies with the neighbours' W, by hashes.  Every rank makes all comparisons,
 * so all ranks succeed, or fail with the same error. */
static int low_precision_compare(const struct proof *all, int n, struct err *err)
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

static int low_precision_prove(struct strategy *s, struct err *err)
{
    const struct low_precision *p = low_precision_of(s);
    const int n = solo_n_ranks(s);
    struct proof mine, *all;
    int rc;

    if (n == 1)
        return 0;
    if (low_precision_hash(s, p->known, &mine.known, err) < 0 ||
        low_precision_hash(s, p->copy[LEFT], &mine.copy[LEFT], err) < 0 ||
        low_precision_hash(s, p->copy[RIGHT], &mine.copy[RIGHT], err) < 0)
        return err->code;
    all = xcalloc((size_t)n, sizeof *all);
    rc = coll_allgather(exchange_coll(s->at.exchange), &mine, sizeof mine, all, err);
    if (rc == 0)
        rc = low_precision_compare(all, n, err);
    free(all);
    return rc;
}

const struct strategy_ops strategy_low_precision_decentralized = {
    .group = {.name = "low_precision_decentralized",
              .help = "ranks in a ring send their neighbours one byte for each parameter: for "
                      "many ranks on slow links",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct low_precision_options)},
    .promises = SOLO_PROMISES,
    .new = low_precision_new,
    .variant = low_precision_is_due,
    .loss_factor = solo_loss_factor,
    .bucket_ready = solo_bucket_ready,
    .before_update = solo_before_update,
    .after_update = low_precision_after_update,
    .epoch_end = low_precision_prove,
    .met = low_precision_met,
    .free = low_precision_free,
};
