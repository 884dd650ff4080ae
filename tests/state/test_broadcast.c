/* broadcast: how ranks take one rank's state.  It goes from card to card without passing through
 * the host, through the host if a card has no room, and is not taken at all if the broadcast breaks
 * off.
 */
#include "../test.h"

#include <pthread.h>

#include "../coll/local.h"
#include "base/util.h"
#include "card.h"
#include "coll/impl.h"
#include "state/state.h"

enum { N_RANKS = 3, SOURCE = 1, N_SPACES = 4 };

static const struct layout layout = {
    .n_trained = 80, .n_total = 112, .n_state_total = 32, .has_scaler = 1, .copy_dtype = DTYPE_F32};

static const struct slot_def moment = {
    .name = "moment", .scope = SLOT_PER_TRAINED, .dtype = DTYPE_F32, .is_broadcast = 1};

/* Rows that no rank takes from another. */
static const struct slot_def others[] = {
    {.name = "own",
     .scope = SLOT_PER_JOB,
     .length = 9,
     .dtype = DTYPE_F64,
     .placement = SLOT_OWN,
     .is_broadcast = 1},
    {.name = "shard",
     .scope = SLOT_PER_TRAINED,
     .dtype = DTYPE_F32,
     .placement = SLOT_SHARDED,
     .is_broadcast = 1},
    {.name = "private", .scope = SLOT_PER_PARAMETER, .dtype = DTYPE_BF16},
};

static const struct slot_def *const more[] = {&others[0], &moment, &others[1], &others[2]};

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
    ASSERT(card_holds(k->card, j->x, j->n_bytes) == card_holds(k->card, j->x, 1));
    k->n_of_cards += card_holds(k->card, j->x, 1);
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

static void make_coll(struct rank *r, struct coll *inner)
{
    static const struct coll_ops ops = {.queue = queue,
                                        .wait = wait_nothing,
                                        .abort = abort_inner,
                                        .free = free_inner,
                                        .stats = stats_of_inner};
    static const char stands_for_ops = 0;

    coll_init(&r->coll.base, &ops, "cards", r->k, N_RANKS);
    if (r->kind == ON_CARDS)
        r->coll.base.device = (const void *)&stands_for_ops; /* no code follows this pointer */
    r->coll.inner = inner;
    r->coll.card = &r->card;
}

static float value(int rank, int64_t i) { return (float)(1000 * rank + i); }

/* Call `what` for every number of the slots that are broadcast. */
static void for_state(struct rank *r, void (*what)(const struct rank *r, float *x, int64_t i))
{
    for (int k = 0; k < r->state->n_slots; k++) {
        const struct slot *slot = &r->state->slot[k];

        if (slot_is_broadcast(slot->def))
            for (int64_t i = 0; i < (int64_t)(slot->n_bytes / sizeof(float)); i++)
                what(r, (float *)slot->data + i, i);
    }
}

/* The bytes of the slots that are not broadcast tell the rank that they belong to. */
static void fill_others(const struct rank *r)
{
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        memset(state_data(r->state, &others[i]), 'a' + r->k, 9);
}

static void assert_others_own(const struct rank *r)
{
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        const char *x = state_data(r->state, &others[i]);

        for (int k = 0; k < 9; k++)
            assert_int_equal(x[k], 'a' + r->k);
    }
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
        card_open(&r->card);
    ASSERT(coll_new_local(r->group, r->k, &inner, &r->err) == 0);
    make_coll(r, inner);
    const int was_full = r->card.is_full;
    r->card.is_full = 0;
    ASSERT(state_new(b, &layout, more, ARRAY_LEN(more), &r->state, &r->err) == 0);
    r->card.is_full = was_full;
    r->state->at.step = 100 + r->k;
    for_state(r, fill);
    fill_others(r);
    if (r->is_stats)
        r->rc = state_broadcast_stats(r->state, &r->coll.base, &r->err);
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
        assert_others_own(&ranks[k]);
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

/* The source needs no room.  If another rank has none, no rank's copy goes from card to card. */
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

/* The source fails at its n-th collective, for each n: the others hold what they held. */
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
        const float *stats = state_data(s, &slot_statistics), *scaler = state_data(s, &slot_scaler);

        assert_int_equal(ranks[k].rc, 0);
        assert_true(stats[7] == value(0, 7) && scaler[3] == value(k, 3));
        assert_true(((float *)state_data(s, &slot_parameters))[7] == value(k, 7));
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
