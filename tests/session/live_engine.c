/* live_engine - the queue of commands, and the answer to each kind of command.  An abort breaks off
 * the commands of its generation and of older ones. */
#include "live_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

enum { EPOCH_STEPS = 4 };

static struct tensor_hash *one_tensor(const char *name)
{
    struct tensor_hash *t = xcalloc(1, sizeof(*t));

    *t = (struct tensor_hash){xstrdup(name), hash_of(name, strlen(name))};
    return t;
}

/* An endpoint tells the step that its rank holds, so that all ranks can take the source's step. */
static int64_t step_of(const struct cmd *c)
{
    char text[24] = "";
    const struct blob *b;

    if (c->form.source < 0 || c->form.source >= c->form.n_endpoints)
        return 0;
    b = &c->form.endpoint[c->form.source];
    memcpy(text, b->data, b->len < sizeof(text) ? b->len : sizeof(text) - 1);
    return max_i64(0, strtoll(text, NULL, 10) % (1 << 20));
}

static struct report *answer_open(const struct cmd *c, const struct live_engine *e)
{
    struct report *r = report_new(REPORT_OPENED, c->generation);

    r->opened.layout = hash_of("layout", 6);
    r->opened.data = hash_of("data", 4);
    r->opened.tensor = one_tensor("w");
    r->opened.n_tensors = 1;
    r->opened.n_train = 40;
    r->opened.n_validation = 10;
    r->opened.n_parameters = 100;
    r->opened.steps_per_epoch = EPOCH_STEPS;
    r->opened.step = e->step;
    return r;
}

static struct report *answer_epoch(const struct cmd *c, struct live_engine *e)
{
    struct report *r = report_new(REPORT_EPOCH, c->generation);

    e->step = EPOCH_STEPS * c->train.epoch;
    r->epoch.epoch = c->train.epoch;
    r->epoch.step = e->step;
    r->epoch.end = EPOCH_WHOLE;
    r->epoch.train_loss = 0.5;
    r->epoch.replica = hash_of(&e->step, sizeof(e->step));
    r->epoch.tensor = one_tensor("w");
    r->epoch.n_tensors = 1;
    return r;
}

static struct report *answer(const struct cmd *c, struct live_engine *e)
{
    struct report *r;
    char text[24];

    switch (c->kind) {
    case CMD_OPEN:
        return answer_open(c, e);
    case CMD_PREPARE:
        r = report_new(REPORT_PREPARED, c->generation);
        snprintf(text, sizeof(text), "%lld", (long long)e->step);
        r->prepared.endpoint = blob_of(text, strlen(text));
        r->prepared.library = xstrdup("tcp");
        r->prepared.step = e->step;
        return r;
    case CMD_FORM:
        r = report_new(REPORT_FORMED, c->generation);
        r->formed.step = e->step = step_of(c);
        return r;
    case CMD_TRAIN:
        return answer_epoch(c, e);
    case CMD_VALIDATE:
        r = report_new(REPORT_VALIDATED, c->generation);
        r->validated.epoch = c->validate.epoch;
        r->validated.n_samples = e->is_driver ? 10 : 0;
        r->validated.n_targets = r->validated.n_samples;
        r->validated.weight = (double)r->validated.n_targets;
        r->validated.loss_sum = 1;
        return r;
    case CMD_CHECKPOINT:
        r = report_new(REPORT_CHECKPOINT, c->generation);
        r->checkpoint.step = c->checkpoint.step;
        r->checkpoint.path =
            e->is_driver && c->checkpoint.is_last ? xstrdup("checkpoints/step") : NULL;
        return r;
    case CMD_STOP:
        e->is_stopped = 1;
        return report_new(REPORT_STOPPED, c->generation);
    }
    ASSERT(!"a command that is none");
}

void live_engine_post(struct live_engine *e, struct cmd *c)
{
    ASSERT(e->n < (int)ARRAY_LEN(e->next) && !e->is_stopped);
    e->next[e->n++] = c;
    e->posted = max_i64(e->posted, c->generation);
}

static struct report *fault(const struct cmd *c, unsigned how)
{
    struct report *r = report_new(REPORT_FAULT, c->generation);

    err_set(&r->fault.err, how & 1 ? ERR_PEER : ERR_DEVICE, "led astray");
    r->fault.is_consequence = how & 1;
    r->fault.phase = (enum phase)(how / 2 % PHASE_COUNT);
    return r;
}

struct report *live_engine_answer(struct live_engine *e, int is_bad, unsigned how)
{
    struct cmd *c = e->next[0];
    struct report *r;

    memmove(e->next, e->next + 1, sizeof(*e->next) * (size_t)--e->n);
    if (c->kind != CMD_STOP && (is_bad || c->generation <= e->canceled))
        r = fault(c, is_bad ? how : 1);
    else
        r = answer(c, e);
    cmd_free(c);
    return r;
}

void live_engine_clear(struct live_engine *e)
{
    while (e->n > 0)
        cmd_free(e->next[--e->n]);
}
