/* decentralized - each rank trains by itself, and in every `every`-th step it takes the mean of its
 * own parameters and those of other ranks.  The parameters travel while the rank computes.
 *
 * This is Bagua's algorithm of this name (Lian and others 2017, "Can Decentralized Algorithms
 * Outperform Centralized Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient
 * Descent").
 *
 * When step t begins and t is a multiple of `every`, with x_r the trained parameters of rank r:
 *
 *   peers all        y_r = mean of all ranks' x
 *   peers shift_one  y_r = (x_r + x_p) / 2, where p is the rank's peer in round c = t / every
 *
 * The parameters travel during the forward and the backward pass, which use x_r.  Before the
 * update, y_r replaces x_r.  The optimizer then applies to y_r the gradient that was computed at
 * x_r.
 *
 * The peers of round c, with an even number m of ranks: rank r of the lower half meets rank
 * m/2 + (c + r) mod m/2.  So each rank of one half meets each rank of the other half within m/2
 * rounds.  Bagua refuses an odd number of ranks.  Here an odd number is rounded up: the rank whose
 * peer would be the missing one rests in that round and keeps its parameters.
 *
 * All ranks make the same entries in the record of collectives, a resting rank included, although
 * they exchange with different ranks.
 *
 * On a device each shift of shift_one has a recording of its own (strategy_ops.variant), because a
 * recording holds the peer's number. */
#include "strategy/decentralized.h"

#include "base/util.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"
#include "strategy/solo.h"

#define AT(field) offsetof(struct decentralized_options, field)

static const char *const peers[] = {[PEERS_ALL] = "all", [PEERS_SHIFT_ONE] = "shift_one", NULL};

static const struct option rows[] = {
    {"strategy.every", OPT_INT, AT(every), "1", 1, 1e9, .unit = "steps",
     .help = "The ranks exchange parameters in every so many steps."},
    {"strategy.peers", OPT_CHOICE, AT(peers), "all", .choices = peers,
     .help = "all: a rank exchanges with all ranks. shift_one: with one other rank each time, so "
             "that less is sent and the replicas draw near each other more slowly."},
};

struct decentralized {
    struct solo solo; /* first */
    int is_under_way; /* 1: parameters travel in this step */
    int peer;         /* with shift_one, in this step; DECENTRALIZED_RESTS: none */
};

static struct decentralized *decentralized_of(struct strategy *s)
{
    return (struct decentralized *)s;
}

static const struct decentralized_options *decentralized_rows(const struct strategy *s)
{
    return s->at.options;
}

int decentralized_peer(int n_ranks, int rank, int64_t round)
{
    const int half = (n_ranks + 1) / 2;
    const int64_t shift = round % half;
    const int64_t peer =
        rank < half ? half + (shift + rank) % half : (rank - half - shift + half) % half;

    return peer < n_ranks ? (int)peer : DECENTRALIZED_RESTS;
}

/* Append the nodes that replace x_r by y_r, in n elements from `at` on. */
static void decentralized_add_take(struct sketch *s, const struct strategy *o, int64_t at,
                                   int64_t n)
{
    float *param = o->at.param + at;
    int y;

    if (decentralized_rows(o)->peers == PEERS_ALL) {
        solo_add_take_mean(s, o, at, n);
        return;
    }
    y = sketch_elementwise(s, EW_ADD, solo_place_aside(s, o, at, n),
                           sketch_place(s, DTYPE_F32, SHAPE(n), param, "x"), NODE_NEW_OUT);
    y = sketch_scale(s, y, 0.5, NODE_NEW_OUT);
    solo_add_keep(s, o, n, y, param);
}

static int decentralized_new(const struct strategy_site *site, struct strategy **out,
                             struct err *err)
{
    struct solo *o;
    int rc = solo_new(site, sizeof(struct decentralized), decentralized_add_take, &o, err);

    if (rc == 0)
        *out = &o->base;
    return rc;
}

/* ---- a step ---- */

static int64_t round_of(const struct strategy *s)
{
    return exchange_step(s->at.exchange) / decentralized_rows(s)->every;
}

/* Start to exchange parameters with this step's peer.  The rank's own parameters are sent without a
 * copy, because nothing changes them before the update. */
static int meet_peer(struct strategy *s, struct err *err)
{
    const struct layout *l = s->at.layout;
    const int peer = decentralized_of(s)->peer;
    struct coll *c = exchange_coll(s->at.exchange);
    int rc = 0;

    ASSERT(peer == DECENTRALIZED_RESTS ||
           decentralized_peer(coll_size(c), peer, round_of(s)) == coll_rank(c));
    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        const int64_t at = l->bucket[b].offset, n = cut_bucket(l, b);
        const struct coll_message send = {s->at.param + at, n, peer};
        const struct coll_message take = {decentralized_of(s)->solo.aside + at, n, peer};

        if (peer == DECENTRALIZED_RESTS)
            exchange_rest(s->at.exchange, b, n, DTYPE_F32);
        else
            rc = exchange_messages(s->at.exchange, b, send, take, n, DTYPE_F32, err);
    }
    return rc;
}

/* The variant of this step (strategy_ops.variant): 0 if parameters do not travel in it; else above
 * 0, and with shift_one a number for each shift. */
static int decentralized_variant(const struct strategy *s)
{
    const int n = solo_n_ranks(s), n_shifts = (n + 1) / 2;

    if (exchange_step(s->at.exchange) % decentralized_rows(s)->every != 0 || n == 1)
        return 0;
    return decentralized_rows(s)->peers == PEERS_ALL ? 1 : 1 + (int)(round_of(s) % n_shifts);
}

/* Start the exchange, if one is due. */
static int decentralized_begin(struct strategy *s, struct err *err)
{
    struct coll *c = exchange_coll(s->at.exchange);

    decentralized_of(s)->is_under_way = decentralized_variant(s) > 0;
    if (!decentralized_of(s)->is_under_way)
        return 0;
    if (decentralized_rows(s)->peers == PEERS_SHIFT_ONE) {
        decentralized_of(s)->peer = decentralized_peer(coll_size(c), coll_rank(c), round_of(s));
        ASSERT(decentralized_of(s)->peer != coll_rank(c));
        return meet_peer(s, err);
    }
    return solo_sum_aside(s, err);
}

/* 1: the exchange changes this rank's parameters. */
static int has_mean(const struct strategy *s)
{
    const struct decentralized *d = (const struct decentralized *)s;

    return d->is_under_way &&
           (decentralized_rows(s)->peers == PEERS_ALL || d->peer != DECENTRALIZED_RESTS);
}

static int decentralized_before_update(struct strategy *s, struct err *err)
{
    const int rc =
        decentralized_of(s)->is_under_way ? exchange_wait_buckets(s->at.exchange, err) : 0;

    return rc == 0 ? solo_before_update(s, err) : rc;
}

/* All waits are over.  So if a rank is lost, no parameter has changed on this rank. */
static int decentralized_settled(struct strategy *s, struct err *err)
{
    if (!has_mean(s))
        return 0;
    return solo_note_standing(s, err) < 0 ? err->code : solo_take(s, err);
}

/* Returns 1 if parameters changed, so that the working copies are made anew: the update made them
 * already, but not if the step was not applied. */
static int decentralized_after_update(struct strategy *s, struct err *err)
{
    (void)err;
    return has_mean(s);
}

const struct strategy_ops strategy_decentralized = {
    .group = {.name = "decentralized",
              .help = "ranks average parameters with all others or one other while they compute: "
                      "for ranks whose links are slow in turns",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct decentralized_options)},
    .promises = SOLO_PROMISES,
    .new = decentralized_new,
    .form = solo_form,
    .variant = decentralized_variant,
    .overlap = decentralized_begin,
    .settled = decentralized_settled,
    .loss_factor = solo_loss_factor,
    .bucket_ready = solo_bucket_ready,
    .before_update = decentralized_before_update,
    .after_update = decentralized_after_update,
    .free = solo_free,
};
