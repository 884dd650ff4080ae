/* async - each rank trains by itself, and the ranks' parameters are averaged in parallel with the
 * steps, which do not wait for it (Bagua's asynchronous model average).
 *
 * A round, with n ranks:
 *   1. Each rank copies its trained parameters.
 *   2. The copies are summed while the ranks go on training.
 *   3. When a rank has the sum, it adds (sum / n - its copy) to its parameters of that moment.
 * So every rank moves to the mean of the copies, and keeps what it learned during the round.
 *
 * Rounds need no signal to stop.  In the control vector of each step every rank says whether it is
 * ready for a round, which means that it has no round under way and that `interval` has passed.  A
 * step in which all ranks were ready agrees on a round, and all ranks begin it between the same two
 * steps.  Before the ranks meet (train/meet.h) each waits for the round under way, and forgets one
 * that was agreed on and has not begun.  Training ends with a meeting, so no round is left then.
 *
 * The round begins ahead of the step after the one that agreed on it, or on a device ahead of the
 * second one (strategy/reducer.c).  The sum and the control vector use different channels
 * (exchange.h).  The copies, the sum and the change of parameters belong to no step, and are not
 * recorded.  Whenever a step is about to be queued, the rank asks whether the sum has ended.
 *
 * A sum that broke off leaves garbage in `aside` alone.  Parameters change only once the sum is
 * known to be whole (coll/device.h), so a lost rank leaves nothing to undo: the round is forgotten,
 * and the next formation begins without one.
 *
 * The step after which a rank gets the sum depends on time, so two runs give different numbers. */
#include "strategy/async.h"

#include "base/clock.h"
#include "base/util.h"
#include "strategy/exchange.h"
#include "strategy/solo.h"

#define AT(field) offsetof(struct async_options, field)

static const struct option rows[] = {
    {"strategy.interval", OPT_SECONDS, AT(interval_ms), "0.5", 0, 1e6,
     .help = "At least so much time passes from the start of a round to that of the next one, and "
             "before the first."},
};

struct async {
    struct solo solo;      /* first; solo.aside takes the sum */
    float *copy;           /* [n_trained]: of the round under way */
    float *n_ranks;        /* [1]: of the formation; copy and n_ranks are the backend's memory */
    struct program *apply; /* changes the parameters when the sum is there */
    void *arena;           /* of apply */
    int is_under_way;
    int64_t begun_ns;
};

static struct async *async_of(const struct strategy *s) { return (struct async *)s; }

static size_t async_n_bytes(const struct strategy *s)
{
    return sizeof(float) * (size_t)s->at.layout->n_trained;
}

/* ---- making and freeing ---- */

static void free_async(struct strategy *s)
{
    program_free(async_of(s)->apply);
    backend_free(s->at.backend, async_of(s)->arena);
    backend_free(s->at.backend, async_of(s)->n_ranks);
    backend_free(s->at.backend, async_of(s)->copy);
    solo_free(s);
}

static int async_make_memory(struct strategy *s, struct err *err)
{
    static const char what[] = "parameters that are averaged";
    struct backend *b = s->at.backend;

    return backend_alloc(b, async_n_bytes(s), what, (void **)&async_of(s)->copy, err) < 0
               ? err->code
               : backend_alloc(b, sizeof(float), what, (void **)&async_of(s)->n_ranks, err);
}

static int async_place(struct sketch *s, float *x, int64_t n, const char *name)
{
    return sketch_place(s, DTYPE_F32, SHAPE(n), x, name);
}

/* Make the program: param += aside / n_ranks - copy.  It overwrites aside. */
static int async_make_apply(struct strategy *o, struct err *err)
{
    const int64_t n = o->at.layout->n_trained;
    struct sketch s = sketch_begin(err);
    const int x = async_place(&s, async_of(o)->solo.aside, n, "aside");
    const int param = async_place(&s, o->at.param, n, "param");

    (void)sketch_elementwise(&s, EW_DIV, x, async_place(&s, async_of(o)->n_ranks, 1, "n_ranks"), x);
    (void)sketch_elementwise(&s, EW_SUB, x, async_place(&s, async_of(o)->copy, n, "copy"), x);
    (void)sketch_elementwise(&s, EW_ADD, param, x, param);
    return sketch_end(&s, o->at.backend, NULL, &async_of(o)->apply) < 0
               ? err->code
               : sketch_bind(&async_of(o)->apply, 1, o->at.backend, &async_of(o)->arena, err);
}

static int async_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct solo *o;

    if (solo_new(site, sizeof(struct async), NULL, &o, err) < 0)
        return err->code;
    if (async_make_memory(&o->base, err) < 0 || async_make_apply(&o->base, err) < 0) {
        free_async(&o->base);
        return err->code;
    }
    *out = &o->base;
    return 0;
}

/* A round that broke off in the formation before is forgotten. */
static int async_form(struct strategy *s, int source, struct err *err)
{
    const float n = (float)solo_n_ranks(s);

    async_of(s)->is_under_way = 0;
    async_of(s)->begun_ns = clock_mono_ns();
    if (solo_form(s, source, err) < 0)
        return err->code;
    return backend_copy_in(s->at.backend, async_of(s)->n_ranks, &n, sizeof n, err);
}

/* ---- rounds ---- */

static int begin_round(struct strategy *s, struct err *err)
{
    ASSERT(!async_of(s)->is_under_way && solo_n_ranks(s) > 1);
    async_of(s)->is_under_way = 1;
    async_of(s)->begun_ns = clock_mono_ns();
    if (backend_copy(s->at.backend, async_of(s)->copy, s->at.param, async_n_bytes(s), err) < 0 ||
        backend_copy(s->at.backend, async_of(s)->solo.aside, s->at.param, async_n_bytes(s), err) <
            0)
        return err->code;
    return exchange_sum_beside(s->at.exchange, async_of(s)->solo.aside, s->at.layout->n_trained,
                               err);
}

/* Wait for the sum of the round, and move this rank's parameters to the mean of the copies. */
static int end_round(struct strategy *s, struct err *err)
{
    ASSERT(async_of(s)->is_under_way);
    ASSERT(solo_n_ranks(s) > 1);
    async_of(s)->is_under_way = 0;
    if (exchange_wait_beside(s->at.exchange, err) < 0)
        return err->code;
    return sketch_run(async_of(s)->apply, err);
}

/* End the round under way if its sum is there.  Returns 1 if that changes parameters. */
static int end_if_there(struct strategy *s, struct err *err)
{
    const int rc = async_of(s)->is_under_way ? exchange_beside_has_ended(s->at.exchange, err) : 0;

    if (rc <= 0)
        return rc;
    return end_round(s, err) < 0 ? err->code : 1;
}

static int is_ready(const struct strategy *s)
{
    const struct async_options *o = s->at.options;

    return solo_n_ranks(s) > 1 && !async_of(s)->is_under_way &&
           clock_mono_ns() - async_of(s)->begun_ns >= o->interval_ms * (int64_t)1000000;
}

static int async_between(struct strategy *s, struct err *err)
{
    const int rc = s->begins_round ? begin_round(s, err) : end_if_there(s, err);

    ASSERT(rc < 0 || !s->begins_round || async_of(s)->is_under_way);
    s->is_ready = is_ready(s);
    return rc;
}

static int epoch_end(struct strategy *s, struct err *err)
{
    return async_of(s)->is_under_way ? end_round(s, err) : 0;
}

const struct strategy_ops strategy_async = {
    .group = {.name = "async",
              .help = "ranks train by themselves and average parameters beside it, never waiting "
                      "for a slow link: where runs need not repeat exactly",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct async_options)},
    .promises = SOLO_PROMISES,
    .new = async_new,
    .form = async_form,
    .between = async_between,
    .loss_factor = solo_loss_factor,
    .bucket_ready = solo_bucket_ready,
    .before_update = solo_before_update,
    .epoch_end = epoch_end,
    .free = free_async,
};
