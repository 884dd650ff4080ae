/* pretend - makes the reports of an engine that opened a small data set, holds LeNet's tensors and
 * trains: each is what the control plane expects, and nothing is computed. */
#include "pretend.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "wire/msg.h"

/* The names of LeNet's tensors. */
static const char *const tensors[] = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                      "fc1.weight",   "fc1.bias",   "fc2.weight",   "fc2.bias",
                                      "fc3.weight",   "fc3.bias"};

enum {
    STEPS_PER_EPOCH = 1 << 30, /* so that no epoch ever ends */
    COLLECTIVE_MS = 100,
    N_BUCKETS = 4,
};

static void open_all(struct report *r)
{
    int n = ARRAY_LEN(tensors);

    r->opened.tensor = xcalloc((size_t)n, sizeof(*r->opened.tensor));
    r->opened.n_tensors = n;
    for (int i = 0; i < n; i++)
        r->opened.tensor[i] =
            (struct tensor_hash){xstrdup(tensors[i]), hash_of(tensors[i], strlen(tensors[i]))};
    r->opened.layout = hash_of("layout", 6);
    r->opened.data = hash_of("data", 4);
    r->opened.n_train = r->opened.n_validation = 60000;
    r->opened.n_parameters = 61706;
    r->opened.steps_per_epoch = STEPS_PER_EPOCH;
}

/* ---- ids ---- */

static uint8_t id_byte(size_t i) { return (uint8_t)(i / MSG_ID + i % MSG_ID); }

static struct blob make_ids(int n_ranks)
{
    size_t n = (size_t)msg_n_ids(n_ranks) * MSG_ID;
    struct blob ids = {xmalloc(n), n};

    for (size_t i = 0; i < n; i++)
        ids.data[i] = id_byte(i);
    return ids;
}

static int check_ids(const struct blob *ids, struct err *err)
{
    for (size_t i = 0; i < ids->len; i++)
        if (ids->data[i] != id_byte(i))
            return err_set(err, ERR_PROTO, "byte %zu of Form's ids is not rank 0's", i);
    return ids->len ? 0 : err_set(err, ERR_PROTO, "Form has no ids");
}

/* ---- answers ---- */

static struct report *formed(const struct cmd *c)
{
    struct report *r;
    struct err err;

    if (check_ids(&c->form.ids, &err) == 0)
        return report_new(REPORT_FORMED, c->generation);
    r = report_new(REPORT_FAULT, c->generation);
    r->fault.err = err;
    r->fault.phase = PHASE_FORM;
    return r;
}

struct report *pretend_answer(const struct cmd *c)
{
    struct report *r = NULL;

    switch (c->kind) {
    case CMD_OPEN:
        r = report_new(REPORT_OPENED, c->generation);
        open_all(r);
        break;
    case CMD_PREPARE:
        r = report_new(REPORT_PREPARED, c->generation);
        r->prepared.library = xstrdup("pretended");
        if (c->prepare.rank == 0)
            r->prepared.ids = make_ids(c->prepare.n_ranks);
        break;
    case CMD_FORM:
        r = formed(c);
        break;
    case CMD_STOP:
        r = report_new(REPORT_STOPPED, c->generation);
        break;
    case CMD_TRAIN:
        break;
    case CMD_VALIDATE:
    case CMD_CHECKPOINT:
        ASSERT(!"no epoch ends here");
    }
    return r;
}

struct report *pretend_first_step(const struct cmd *train)
{
    struct report *r = report_new(REPORT_STEP, train->generation);

    r->step.epoch = train->train.epoch;
    r->step.step = 1;
    r->step.loss = 2.3;
    r->step.samples_per_second = 1000;
    r->step.first = 1;
    r->step.rss_mib = 100;
    return r;
}

struct report *pretend_aborted(int64_t generation)
{
    struct report *r = report_new(REPORT_FAULT, generation);

    err_set(&r->fault.err, ERR_CANCELED, "collectives were canceled");
    r->fault.phase = PHASE_REDUCE;
    r->fault.is_consequence = 1;
    return r;
}

void pretend_progress(int64_t generation, int64_t since_ns, int64_t now_ns, struct progress *out)
{
    int64_t n = 1 + (now_ns - since_ns) / (COLLECTIVE_MS * INT64_C(1000000));

    *out = (struct progress){
        .generation = generation,
        .epoch = 1,
        .step = 0, /* as in the state, which no abort changes */
        .phase = PHASE_BACKWARD,
        .bucket = n % N_BUCKETS,
        .since_ns = since_ns,
        .head = {.generation = generation, .n_handed = n, .n_ended = n - 1},
        .n_steps = 1,
        .wall_ns = COLLECTIVE_MS * INT64_C(1000000),
        .busy_ns = COLLECTIVE_MS * INT64_C(1000000),
    };
    out->head.at = (struct collective){.generation = generation,
                                       .number = n,
                                       .bucket = n % N_BUCKETS,
                                       .n_bytes = 1 << 20,
                                       .phase = PHASE_BACKWARD,
                                       .handed_ns = now_ns,
                                       .began_ns = now_ns};
}
