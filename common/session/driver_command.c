/* Commands out: the beginning of each stage, after which every engine owes one answer. */
#include "session/driver_impl.h"

void command_stage(struct driver *d, enum stage stage, enum phase phase)
{
    d->stage = stage;
    d->stage_ms = d->now_ms;
    d->n_answers = 0;
    d->is_engine_busy = 1;
    for (int k = 0; k < d->n_ranks; k++) {
        struct seat *s = &d->seats[k];
        report_free(s->answer);
        s->answer = NULL;
        s->moved_ms = s->since_ms = d->now_ms;
        s->at.phase = phase; /* until it says something newer */
    }
}

void command_rank(struct driver *d, int rank, const struct cmd *c)
{
    struct err err;
    struct frame *f = convert_command(c, &err);
    if (f)
        queue_send(&d->out, d->seats[rank].conn->id, f);
    else
        end_accuse(d, (struct cause){.rank = 0, .code = err.code, .phase = PHASE_COUNT, .step = -1},
                   0, "%s", err.msg);
}

void command_all(struct driver *d, struct cmd *c)
{
    struct err err;
    struct frame *f = convert_command(c, &err);
    for (int k = 1; f && k < d->n_ranks; k++)
        queue_send(&d->out, d->seats[k].conn->id, frame_ref(f));
    queue_command(&d->out, c);
    if (!f)
        end_accuse(d, (struct cause){.rank = 0, .code = err.code, .phase = PHASE_COUNT, .step = -1},
                   0, "%s", err.msg);
    frame_unref(f);
}
