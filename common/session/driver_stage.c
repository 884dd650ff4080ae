/* The stages of a job: which may follow which, and the commands that begin them.
 *
 *   new -> gather -> prepare -> form -> train -> [validate] -> [checkpoint] -> train ... -> ending
 *                 |     ^                 |          |             |
 *                 +--> wait <-------------+----------+-------------+   a rank was lost, or leaves
 *
 * A stage of a formation sends one command to all engines, rank 0's included, and collects one
 * answer from each.  The last answer decides what comes next (done_prepare, done_form, ...). */
#include "session/driver_impl.h"

#include "base/util.h"

const char *stage_name(enum stage s)
{
    static const char *const names[STAGE_COUNT] = {
        [STAGE_NEW] = "new",
        [STAGE_GATHER] = "gather",
        [STAGE_WAIT] = "wait",
#define X(KIND, name, ANSWER, deadline) [STAGE_##KIND] = #name,
        STAGE_LIST(X)
#undef X
            [STAGE_ENDING] = "ending",
        [STAGE_OVER] = "over",
    };
    ASSERT((unsigned)s < STAGE_COUNT);
    return names[s];
}

/* ---- moves ---- */

#define TO(name) (1u << STAGE_##name)

/* The stages that follow FORM, in any order: which one depends on what a recovery resumes, and on
 * what the epoch's end asks for. */
#define TO_TRAINING (TO(ENDING) - TO(TRAIN))

static const unsigned moves[STAGE_COUNT] = {
    [STAGE_NEW] = TO(GATHER),
    [STAGE_GATHER] = TO(WAIT) | TO(PREPARE) | TO(ENDING),
    [STAGE_WAIT] = TO(WAIT) | TO(PREPARE) | TO(ENDING),
    [STAGE_PREPARE] = TO(FORM) | TO(WAIT) | TO(ENDING),
    [STAGE_FORM] = TO_TRAINING | TO(WAIT) | TO(ENDING),
    [STAGE_ENDING] = TO(OVER),
};

int stage_may_follow(enum stage from, enum stage to)
{
    unsigned next = moves[from];
    ASSERT((unsigned)from < STAGE_COUNT && (unsigned)to < STAGE_COUNT);
    if (from >= STAGE_TRAIN && from < STAGE_ENDING)
        next = TO_TRAINING | TO(WAIT) | TO(ENDING);
    return next >> to & 1;
}

void stage_enter(struct driver *d, enum stage stage)
{
    ASSERT(stage_may_follow(d->stage, stage));
    d->stage = stage;
    d->stage_ms = d->now_ms;
    ledger_turn(d);
}

/* ---- commands ---- */

static void note_unsent(const struct driver *d, const struct err *err)
{
    ASSERT(err->code < 0);
    if (d->unsent->code == 0)
        *d->unsent = *err;
}

void driver_send(const struct driver *d, const struct conn *c, const Wire__Control *m)
{
    struct err err;
    struct frame *f = msg_frame(m, &err);
    if (f)
        queue_send(d->out, c->id, f);
    else
        note_unsent(d, &err);
}

void stage_tell_rank(const struct driver *d, int rank, const struct cmd *c)
{
    struct err err;
    struct frame *f = convert_command(c, &err);
    ASSERT(rank > 0 && rank < d->membership.n_ranks);
    ASSERT(c->generation == d->formation.generation);
    ASSERT(d->seats[rank].conn->state == CONN_MEMBER && d->seats[rank].conn->rank == rank);
    if (f)
        queue_send(d->out, d->seats[rank].conn->id, f);
    else
        note_unsent(d, &err);
}

void stage_tell_all(const struct driver *d, struct cmd *c)
{
    struct err err;
    struct frame *f = convert_command(c, &err);
    ASSERT(c->generation == d->formation.generation);
    ASSERT((int)c->kind - CMD_PREPARE == (int)d->stage - STAGE_PREPARE);
    for (int k = 1; f && k < d->membership.n_ranks; k++)
        queue_send(d->out, d->seats[k].conn->id, frame_ref(f));
    queue_command(d->out, c);
    if (!f)
        note_unsent(d, &err);
    frame_unref(f);
}

/* ---- answers ---- */

enum report_kind stage_answer(enum stage s)
{
    static const enum report_kind answers[STAGE_COUNT] = {
#define X(KIND, name, ANSWER, deadline) [STAGE_##KIND] = REPORT_##ANSWER,
        STAGE_LIST(X)
#undef X
    };
    return answers[s];
}

void stage_done(struct driver *d)
{
    static void (*const done[STAGE_COUNT])(struct driver *) = {
#define X(KIND, name, ANSWER, deadline) [STAGE_##KIND] = done_##name,
        STAGE_LIST(X)
#undef X
    };
    ASSERT(done[d->stage]);
    ASSERT(d->formation.n_answers == d->membership.n_ranks);
    done[d->stage](d);
}
