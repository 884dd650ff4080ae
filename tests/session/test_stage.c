/* driver_stage: the table of legal moves, compared with a list of them; and jobs that make each
 * move. */
#include "rig.h"

#include "session/driver_impl.h"

static const struct {
    enum stage from, to;
} legal[] = {
    {STAGE_NEW, STAGE_GATHER},
    {STAGE_GATHER, STAGE_WAIT},
    {STAGE_GATHER, STAGE_PREPARE},
    {STAGE_GATHER, STAGE_ENDING},
    {STAGE_WAIT, STAGE_WAIT}, /* another rank was lost */
    {STAGE_WAIT, STAGE_PREPARE},
    {STAGE_WAIT, STAGE_ENDING},
    {STAGE_PREPARE, STAGE_FORM},
    {STAGE_PREPARE, STAGE_WAIT},
    {STAGE_PREPARE, STAGE_ENDING},
    {STAGE_FORM, STAGE_TRAIN},
    {STAGE_FORM, STAGE_VALIDATE}, /* these two resume what a loss broke off */
    {STAGE_FORM, STAGE_CHECKPOINT},
    {STAGE_FORM, STAGE_WAIT},
    {STAGE_FORM, STAGE_ENDING},
    {STAGE_TRAIN, STAGE_TRAIN},
    {STAGE_TRAIN, STAGE_VALIDATE},
    {STAGE_TRAIN, STAGE_CHECKPOINT},
    {STAGE_TRAIN, STAGE_WAIT},
    {STAGE_TRAIN, STAGE_ENDING},
    {STAGE_VALIDATE, STAGE_TRAIN},
    {STAGE_VALIDATE, STAGE_VALIDATE}, /* never made */
    {STAGE_VALIDATE, STAGE_CHECKPOINT},
    {STAGE_VALIDATE, STAGE_WAIT},
    {STAGE_VALIDATE, STAGE_ENDING},
    {STAGE_CHECKPOINT, STAGE_TRAIN},
    {STAGE_CHECKPOINT, STAGE_VALIDATE}, /* never made */
    {STAGE_CHECKPOINT, STAGE_CHECKPOINT},
    {STAGE_CHECKPOINT, STAGE_WAIT},
    {STAGE_CHECKPOINT, STAGE_ENDING},
    {STAGE_ENDING, STAGE_OVER},
};

static void no_other_move_is_legal(void **state)
{
    unsigned want[STAGE_COUNT] = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(legal); i++)
        want[legal[i].from] |= 1u << legal[i].to;
    for (int from = 0; from < STAGE_COUNT; from++)
        for (int to = 0; to < STAGE_COUNT; to++)
            if (stage_may_follow((enum stage)from, (enum stage)to) != (int)(want[from] >> to & 1))
                fail_msg("from %s to %s", stage_name((enum stage)from), stage_name((enum stage)to));
}

/* ---- jobs that make the moves ---- */

static unsigned seen[STAGE_COUNT]; /* by stage: the stages that followed */

struct walk {
    struct rig r;
    enum stage last;
};

static void look(struct walk *w)
{
    const struct driver *d = w->r.d;
    seen[w->last] |= w->last != d->stage ? 1u << d->stage : 0;
    w->last = d->stage;
}

/* Go on up to the command `kind` of `epoch`, one answer after another. */
static void walk_to(struct walk *w, const struct driver_options *o, enum cmd_kind kind, int epoch)
{
    rig_driver(&w->r, o);
    w->last = STAGE_NEW;
    look(w);
    for (int k = 1; k < o->n_ranks; k++)
        rig_come(&w->r, k, -1);
    while (w->r.command->kind != kind || w->r.d->run.epoch < epoch) {
        if (w->r.command->kind == CMD_OPEN)
            rig_report(&w->r, 0, rig_opened());
        else
            rig_answer_all(&w->r, o->n_ranks);
        look(w);
    }
}

static void lose(struct walk *w, int conn)
{
    rig_close(&w->r, conn);
    look(w);
}

static void end(struct walk *w)
{
    for (int i = 0; i < 2; i++) {
        driver_stop(w->r.d, w->r.now, "SIGTERM");
        rig_drain(&w->r);
        look(w);
    }
    rig_wait(&w->r, 10000);
    look(w);
    rig_free(&w->r);
}

/* A loss in each stage ends in WAIT, from which a new follower leads back to that stage. */
static void lose_and_go_on(enum cmd_kind at)
{
    struct driver_options o = rig_elastic(3);
    struct walk w;
    o.validate_every = o.checkpoint_every_epochs = 1;
    walk_to(&w, &o, at, 0);
    lose(&w, 1);
    lose(&w, 2);
    rig_come(&w.r, 5, -1);
    look(&w);
    rig_come(&w.r, 6, -1);
    look(&w);
    RIG_ALL(&w.r, CMD_PREPARE, 4, 0, 5, 6);
    look(&w);
    RIG_ALL(&w.r, CMD_FORM, 4, 0, 5, 6);
    look(&w);
    end(&w);
}

static void stop_in(enum cmd_kind at)
{
    struct driver_options o = rig_elastic(2);
    struct walk w;
    o.validate_every = o.checkpoint_every_epochs = 1;
    walk_to(&w, &o, at, 0);
    end(&w);
}

/* A standby leads, and one of its three followers has not come. */
static void lead_without_one(void)
{
    struct driver_options o = rig_elastic(4);
    struct voters v = voters_of(1, 1, 4, "s1");
    struct walk w;
    char job[HASH_TEXT_LEN];
    o.run = "run-1";
    o.term = 1001;
    o.standby_id = "s1";
    o.led_by = o.leads_at = "h:1";
    o.led = (struct led){.generation = 1, .voters = v};
    o.cluster.driver_timeout_ms = 60000;
    rig_driver(&w.r, &o);
    w.last = STAGE_NEW;
    look(&w);
    rig_report(&w.r, 0, rig_opened());
    hash_to_text(hash_of("name: x", 7), job);
    for (int k = 1; k < 3; k++) {
        rig_connect(&w.r, k, "10.0.0.4");
        rig_say_hello(&w.r, k,
                      &(struct rig_caller){.rank = k,
                                           .run = o.run,
                                           .run_job = job,
                                           .term = 1,
                                           .formed = 1,
                                           .form = v,
                                           .form_rank = k});
        rig_report(&w.r, k, rig_opened());
    }
    rig_wait(&w.r, 5000);
    look(&w);
    end(&w);
}

/* Whole jobs with and without validations and checkpoints. */
static void train(int validate_every, int checkpoint_every)
{
    struct driver_options o = rig_elastic(2);
    struct walk w;
    o.validate_every = validate_every;
    o.checkpoint_every_epochs = checkpoint_every;
    walk_to(&w, &o, CMD_TRAIN, 2);
    end(&w);
}

static void jobs_make_the_moves(void **state)
{
    (void)state;
    lead_without_one();
    for (int kind = CMD_PREPARE; kind <= CMD_CHECKPOINT; kind++) {
        lose_and_go_on((enum cmd_kind)kind);
        stop_in((enum cmd_kind)kind);
    }
    stop_in(CMD_OPEN);
    struct driver_options o = rig_elastic(2);
    struct walk w;
    walk_to(&w, &o, CMD_TRAIN, 1);
    lose(&w, 1);
    for (int i = 0; i < 310; i++) { /* no follower comes */
        rig_wait(&w.r, 100);
        look(&w);
    }
    end(&w);
    train(1, 1);
    train(0, 1);
    train(1, 0);
    for (size_t i = 0; i < ARRAY_LEN(legal); i++) {
        enum stage from = legal[i].from, to = legal[i].to;
        int is_never = from == STAGE_CHECKPOINT && to == STAGE_VALIDATE;
        if (from != to && !is_never && !(seen[from] >> to & 1))
            fail_msg("no job here went from %s to %s", stage_name(from), stage_name(to));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_other_move_is_legal),
        cmocka_unit_test(jobs_make_the_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
