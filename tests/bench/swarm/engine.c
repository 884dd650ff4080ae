/* engine - implements train/engine.h for dpdriver-swarm: rank 0 answers every command at once, as
 * an engine that had done it (pretend.h), and does not train. */
#include "train/engine.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "pretend.h"

struct engine {
    struct mailbox *reports;
    int64_t generation;
    int64_t since_ns; /* when training began; 0: it does not train */
};

int engine_new(const struct engine_options *o, struct mailbox *reports, struct engine **out,
               struct err *err)
{
    struct engine *e = xcalloc(1, sizeof *e);

    (void)o;
    (void)err;
    e->reports = reports;
    *out = e;
    return 0;
}

void engine_post(struct engine *e, struct cmd *c)
{
    struct report *r = c->kind == CMD_TRAIN ? pretend_first_step(c) : pretend_answer(c);

    e->generation = c->generation;
    e->since_ns = c->kind == CMD_TRAIN ? clock_mono_ns() : 0;
    mailbox_put(e->reports, &r->mail);
    cmd_free(c);
}

void engine_trace(struct engine *e, int64_t number, int64_t duration_ns)
{
    (void)e;
    (void)number;
    (void)duration_ns;
}

void engine_request(struct engine *e, enum engine_request r)
{
    (void)e;
    (void)r; /* ranks agree on a request at a step's end, and no step ends here */
}

void engine_injected(struct engine *e) { (void)e; }

void engine_abort(struct engine *e)
{
    if (e->since_ns)
        mailbox_put(e->reports, &pretend_aborted(e->generation)->mail);
    e->since_ns = 0;
}

void engine_progress(struct engine *e, struct progress *out)
{
    if (e->since_ns)
        pretend_progress(e->generation, e->since_ns, clock_mono_ns(), out);
    else
        *out = (struct progress){.generation = e->generation, .phase = PHASE_IDLE, .bucket = -1};
}

int engine_ring(const struct engine *e, struct collective out[RING_LEN])
{
    (void)e;
    (void)out;
    return 0;
}

void engine_free(struct engine *e) { free(e); }
