/* A trial makes an engine, has it open the job, waits for the report, and frees the engine.
 *
 * A job that comes while another one is tried has to wait, and replaces one that waits already. */
#include "driver/trial.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "job/imported.h"

enum { END_MS = 5000, POLL_MS = 10 };

static void trial_free_report(struct mail *m) { report_free(container_of(m, struct report, mail)); }

static void trial_tell(struct trial *t, const struct err *why)
{
    if (!t->next && !t->is_closing)
        t->done(t->arg, why);
}

static void begin_next(struct trial *t)
{
    const struct engine_options eo = {.plugin = t->options->devices.plugin,
                                      .device = t->options->device,
                                      .n_threads = (int)t->options->common.n_threads};
    struct cmd *c = t->next;
    struct err err;

    if (!c || t->engine || t->is_closing)
        return;
    t->next = NULL;
    if (engine_new(&eo, &t->inbox.box, &t->engine, &err) == 0) {
        engine_post(t->engine, c);
        return;
    }
    t->engine = NULL;
    cmd_free(c);
    trial_tell(t, &err);
}

static void trial_on_report(void *arg, struct mail *m)
{
    struct trial *t = arg;
    struct report *r = container_of(m, struct report, mail);
    int is_fault = r->kind == REPORT_FAULT;

    if (r->kind == REPORT_WARNING)
        log_warn("%s", r->warning.text);
    if (is_fault || r->kind == REPORT_OPENED) {
        engine_free(t->engine);
        t->engine = NULL;
        trial_tell(t, is_fault ? &r->fault.err : NULL);
        begin_next(t);
    }
    report_free(r);
}

void trial_init(struct trial *t, uv_loop_t *loop, const struct options *o,
                void (*done)(void *arg, const struct err *why), void *arg)
{
    *t = (struct trial){.options = o, .done = done, .arg = arg};
    inbox_init(&t->inbox, loop, trial_on_report, trial_free_report, t);
}

struct cmd *trial_command(const struct options *o, const struct job *job, const char *resume)
{
    struct cmd *c = cmd_new(CMD_OPEN, 0);
    struct buf text = {0};

    job_pack(job, &text);
    c->open.n_ranks = (int)o->n_ranks;
    c->open.job = (struct blob){text.data, text.len};
    c->open.resume = resume ? xstrdup(resume) : NULL;
    return c;
}

void trial_begin(struct trial *t, const struct job *job)
{
    cmd_free(t->next);
    t->next = trial_command(t->options, job, NULL);
    begin_next(t);
}

struct engine *trial_close(struct trial *t)
{
    struct mail *m;

    t->is_closing = 1;
    for (int ms = 0; t->engine && ms < END_MS; ms += POLL_MS) {
        while ((m = mailbox_take(&t->inbox.box)))
            trial_on_report(t, m);
        if (t->engine)
            usleep(1000 * POLL_MS);
    }
    cmd_free(t->next);
    t->next = NULL;
    if (!t->engine)
        inbox_close(&t->inbox);
    return t->engine;
}
