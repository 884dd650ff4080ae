/* How ranks take one rank's state: from card to card without passing through the host, through the
 * host where a card has no room, and not at all where it breaks off.
 *
 * A card is memory of this process that only its own backend's calls, and collectives that say so,
 * may be given; its copies are counted. */
#include "../test.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/util.h"
#include "coll/impl.h"
#include "coll/local.h"
#include "train/state.h"

enum { N_RANKS = 3, SOURCE = 1, MOST_PIECES = 16, N_SPACES = 3 };

static const struct layout layout = {
    .n_trained = 80, .n_total = 112, .n_state_total = 32, .has_scaler = 1, .copy_dtype = DTYPE_F32};

/* ---- a card ---- */

struct card {
    struct backend base;
    struct {
        char *at;
        size_t n_bytes;
    } piece[MOST_PIECES];
    int n_pieces, is_full, n_through_host, n_copies;
};

static struct card *card_of(struct backend *b) { return container_of(b, struct card, base); }

static int holds(const struct card *c, const void *p, size_t n_bytes)
{
    for (int i = 0; i < c->n_pieces; i++)
        if (c->piece[i].at <= (const char *)p &&
            (const char *)p + n_bytes <= c->piece[i].at + c->piece[i].n_bytes)
            return 1;
    return 0;
}

static int card_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                      struct err *err)
{
    struct card *c = card_of(b);

    if (c->is_full)
        return err_set(err, ERR_NOMEM, "no room for %s", what);
    ASSERT(c->n_pieces < MOST_PIECES);
    c->piece[c->n_pieces].at = *out = xcalloc(n_bytes, 1);
    c->piece[c->n_pieces++].n_bytes = n_bytes;
    return 0;
}

static void card_free(struct backend *b, void *p)
{
    struct card *c = card_of(b);
    int i = 0;

    while (c->piece[i].at != p)
        ASSERT(++i < c->n_pieces);
    c->piece[i] = c->piece[--c->n_pieces];
    free(p);
}

static int card_in(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    struct card *c = card_of(b);

    (void)err;
    ASSERT(holds(c, to, n_bytes) && !holds(c, from, 1));
    c->n_through_host++;
    memcpy(to, from, n_bytes);
    return 0;
}

static int card_out(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    struct card *c = card_of(b);

    (void)err;
    ASSERT(holds(c, from, n_bytes) && !holds(c, to, 1));
    c->n_through_host++;
    memcpy(to, from, n_bytes);
    return 0;
}

static int card_copy(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    struct card *c = card_of(b);

    (void)err;
    ASSERT(holds(c, to, n_bytes) && holds(c, from, n_bytes));
    c->n_copies++;
    memcpy(to, from, n_bytes);
    return 0;
}

static int card_sync(struct backend *b, struct err *err)
{
    (void)b, (void)err;
    return 0;
}

/* ---- collectives of cards' memory ---- */

struct card_coll {
    struct coll base;
    struct coll *inner;
    struct card *card;
    int n_of_cards; /* broadcasts */
};

static struct card_coll *coll_of(struct coll *c) { return (struct card_coll *)c; }

static int64_t queue(struct coll *c, const struct coll_job *j, struct err *err)
{
    struct card_coll *k = coll_of(c);

    if (j->what == COLL_ALLGATHER)
        return coll_allgather(k->inner, j->mine, j->n_bytes, j->x, err) < 0 ? err->code : 1;
    ASSERT(j->what == COLL_BROADCAST);
    ASSERT(holds(k->card, j->x, j->n_bytes) == holds(k->card, j->x, 1));
    k->n_of_cards += holds(k->card, j->x, 1);
    return coll_broadcast(k->inner, j->x, j->n_bytes, j->root, err) < 0 ? err->code : 1;
}

static int wait_nothing(struct coll *c, int64_t ticket, struct err *err)
{
    (void)c, (void)ticket, (void)err;
    return 0;
}

static void abort_inner(struct coll *c) { coll_abort(coll_of(c)->inner); }
static void free_inner(struct coll *c) { coll_free(coll_of(c)->inner); }
static void stats_of_inner(struct coll *c, struct coll_stats *out)
{
    coll_stats(coll_of(c)->inner, out);
}
static void head_of_inner(struct coll *c, struct coll_head *out)
{
    coll_head(coll_of(c)->inner, out);
}

/* ---- ranks ---- */

enum kind { ON_CPU, ON_CARDS, ON_CARDS_BY_HOST };

struct rank {
    int k;
    enum kind kind;
    struct coll_group *group;
    struct card card;
    struct card_coll coll;
    struct state *state;
    int is_stats, rc;
    struct err err;
};

static void make_card(struct card *c)
{
    /* Nothing else of it is called. */
    static const struct backend_device_ops device = {.copy = card_copy};
    static const struct backend_ops ops = {.name = "card",
                                           .alloc = card_alloc,
                                           .free = card_free,
                                           .copy_in = card_in,
                                           .copy_out = card_out,
                                           .sync = card_sync,
                                           .device = &device};

    c->base.ops = &ops;
}

static void make_coll(struct rank *r, struct coll *inner)
{
    static const struct coll_ops ops = {.queue = queue,
                                        .wait = wait_nothing,
                                        .abort = abort_inner,
                                        .free = free_inner,
                                        .stats = stats_of_inner,
                                        .head = head_of_inner};
    static const char stands_for_ops = 0;

    coll_init(&r->coll.base, &ops, "cards", r->k, N_RANKS);
    if (r->kind == ON_CARDS)
        r->coll.base.device = (const void *)&stands_for_ops; /* nobody looks behind it */
    r->coll.inner = inner;
    r->coll.card = &r->card;
}

static float value(int rank, int64_t i) { return (float)(1000 * rank + i); }

static void for_state(struct rank *r, void (*what)(const struct rank *r, float *x, int64_t i))
{
    const struct state *s = r->state;
    const struct {
        float *x;
        int64_t n;
    } space[N_SPACES] = {{s->param, layout.n_total},
                         {s->momentum, layout.n_trained},
                         {s->stats, layout.n_state_total + SEGMENT_ALIGN}};

    for (int i = 0; i < N_SPACES; i++)
        for (int64_t k = 0; k < space[i].n; k++)
            what(r, &space[i].x[k], k);
}

static void fill(const struct rank *r, float *x, int64_t i) { *x = value(r->k, i); }

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct coll *inner = NULL;
    struct backend *b = &r->card.base;

    if (r->kind == ON_CPU)
        ASSERT(backend_open_cpu(1, &b, &r->err) == 0);
    else
        make_card(&r->card);
    ASSERT(coll_new_local(r->group, r->k, &inner, &r->err) == 0);
    make_coll(r, inner);
    const int was_full = r->card.is_full;
    r->card.is_full = 0;
    ASSERT(state_new(b, &layout, 1, &r->state, &r->err) == 0);
    r->card.is_full = was_full;
    r->state->at.step = 100 + r->k;
    for_state(r, fill);
    if (r->is_stats)
        r->rc = state_share_stats(r->state, &r->coll.base, &r->err);
    else
        r->rc =
            state_broadcast(r->state, r->kind == ON_CPU ? inner : &r->coll.base, SOURCE, &r->err);
    coll_free(inner);
    return NULL;
}

static void run(struct rank *ranks, const struct rank *like, const struct coll_fault *fault)
{
    struct coll_group *g = coll_group_new(N_RANKS);
    pthread_t thread[N_RANKS];

    if (fault)
        coll_local_inject(g, SOURCE, *fault);
    for (int k = 0; k < N_RANKS; k++) {
        const int is_full = ranks[k].card.is_full;

        ranks[k] = *like;
        ranks[k].k = k;
        ranks[k].group = g;
        ranks[k].card.is_full = is_full;
        assert_int_equal(pthread_create(&thread[k], NULL, rank_main, &ranks[k]), 0);
    }
    for (int k = 0; k < N_RANKS; k++)
        pthread_join(thread[k], NULL);
    coll_group_free(g);
}

static void end(struct rank *ranks)
{
    for (int k = 0; k < N_RANKS; k++) {
        struct backend *b = ranks[k].state->backend;

        state_free(ranks[k].state);
        assert_int_equal(ranks[k].card.n_pieces, 0);
        if (ranks[k].kind == ON_CPU)
            backend_close(b);
    }
}

static void is_sources(const struct rank *r, float *x, int64_t i)
{
    (void)r;
    assert_true(*x == value(SOURCE, i));
}

static void is_own(const struct rank *r, float *x, int64_t i) { assert_true(*x == value(r->k, i)); }

static void assert_taken(struct rank *ranks)
{
    for (int k = 0; k < N_RANKS; k++) {
        if (ranks[k].rc < 0)
            fail_msg("rank %d: %s", k, ranks[k].err.msg);
        for_state(&ranks[k], is_sources);
        assert_int_equal(ranks[k].state->at.step, 100 + SOURCE);
    }
}

/* ---- the tests ---- */

static void from_card_to_card(void **state)
{
    struct rank ranks[N_RANKS] = {{.k = 0}};

    (void)state;
    run(ranks, &(struct rank){.kind = ON_CARDS}, NULL);
    assert_taken(ranks);
    for (int k = 0; k < N_RANKS; k++) {
        assert_int_equal(ranks[k].coll.n_of_cards, N_SPACES);
        assert_int_equal(ranks[k].card.n_through_host, 0);
        assert_int_equal(ranks[k].card.n_copies, k == SOURCE ? 0 : N_SPACES);
    }
    end(ranks);
}

/* The source needs no room; where another has none, nobody's goes from card to card. */
static void a_full_card(void **state)
{
    for (int full = 0; full < N_RANKS; full++) {
        struct rank ranks[N_RANKS] = {{.k = 0}};

        (void)state;
        ranks[full].card.is_full = 1;
        run(ranks, &(struct rank){.kind = ON_CARDS}, NULL);
        assert_taken(ranks);
        for (int k = 0; k < N_RANKS; k++) {
            assert_int_equal(ranks[k].coll.n_of_cards, full == SOURCE ? N_SPACES : 0);
            assert_int_equal(ranks[k].card.n_through_host, full == SOURCE ? 0 : N_SPACES);
        }
        end(ranks);
    }
}

static void on_other_memory(void **state)
{
    static const enum kind kinds[] = {ON_CPU, ON_CARDS_BY_HOST};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct rank ranks[N_RANKS] = {{.k = 0}};

        run(ranks, &(struct rank){.kind = kinds[i]}, NULL);
        assert_taken(ranks);
        end(ranks);
    }
}

/* The source goes at its n-th collective, n swept: the others hold what they held. */
static void one_that_breaks_off(void **state)
{
    static const enum kind kinds[] = {ON_CPU, ON_CARDS, ON_CARDS_BY_HOST};
    static const int n_collectives[] = {1 + N_SPACES, 2 + N_SPACES, 1 + N_SPACES};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        for (int n = 1; n <= n_collectives[i]; n++) {
            const struct coll_fault fault = {.at_ticket = n, .fail = ERR_IO};
            struct rank ranks[N_RANKS] = {{.k = 0}};

            run(ranks, &(struct rank){.kind = kinds[i]}, &fault);
            for (int k = 0; k < N_RANKS; k++) {
                assert_int_equal(ranks[k].rc, k == SOURCE ? ERR_IO : ERR_PEER);
                for_state(&ranks[k], is_own);
                assert_int_equal(ranks[k].state->at.step, 100 + k);
            }
            end(ranks);
        }
}

static void statistics_are_rank_0s(void **state)
{
    struct rank ranks[N_RANKS] = {{.k = 0}};

    (void)state;
    run(ranks, &(struct rank){.kind = ON_CARDS, .is_stats = 1}, NULL);
    for (int k = 0; k < N_RANKS; k++) {
        const struct state *s = ranks[k].state;

        assert_int_equal(ranks[k].rc, 0);
        assert_true(s->stats[7] == value(0, 7) && s->param[7] == value(k, 7));
        assert_true(s->scaler[0] == value(k, layout.n_state_total));
        assert_int_equal(s->at.step, 100 + k);
        assert_int_equal(ranks[k].card.n_through_host, 0);
    }
    end(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_card_to_card),      cmocka_unit_test(a_full_card),
        cmocka_unit_test(on_other_memory),        cmocka_unit_test(one_that_breaks_off),
        cmocka_unit_test(statistics_are_rank_0s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
