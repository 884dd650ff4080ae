#include "session/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/util.h"

#define SET_BODY(m, CASE, member, value)             \
    do {                                             \
        (m)->body_case = WIRE__CONTROL__BODY_##CASE; \
        (m)->member = (value);                       \
    } while (0)

/* ---- commands ---- */

static ProtobufCBinaryData bytes_of(const struct blob *b)
{
    return (ProtobufCBinaryData){b->len, b->data};
}

static struct frame *form_frame(const struct cmd *c, Wire__Control *m, struct err *err)
{
    Wire__Form form = WIRE__FORM__INIT;
    size_t n = (size_t)c->form.n_endpoints, n_ids = c->form.ids.len / MSG_ID;
    ProtobufCBinaryData *endpoints = xcalloc(n + n_ids + 1, sizeof(*endpoints));
    for (size_t i = 0; i < n; i++)
        endpoints[i] = bytes_of(&c->form.endpoint[i]);
    for (size_t i = 0; i < n_ids; i++)
        endpoints[n + i] = (ProtobufCBinaryData){MSG_ID, c->form.ids.data + i * MSG_ID};
    form.n_endpoints = n;
    form.endpoints = endpoints;
    form.n_ids = n_ids;
    form.ids = endpoints + n;
    form.source = c->form.source;
    SET_BODY(m, FORM, form, &form);
    struct frame *f = msg_frame(m, err);
    free(endpoints);
    return f;
}

struct frame *convert_command(const struct cmd *c, struct err *err)
{
    static char no_text[] = "";
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Prepare prepare = WIRE__PREPARE__INIT;
    Wire__Train train = WIRE__TRAIN__INIT;
    Wire__Validate validate = WIRE__VALIDATE__INIT;
    Wire__Checkpoint checkpoint = WIRE__CHECKPOINT__INIT;

    m.generation = c->generation;
    switch (c->kind) {
    case CMD_PREPARE:
        prepare.rank = c->prepare.rank;
        prepare.n_ranks = c->prepare.n_ranks;
        prepare.local = c->prepare.local;
        prepare.n_local = c->prepare.n_local;
        prepare.address = c->prepare.address;
        prepare.inject = c->prepare.inject ? c->prepare.inject : no_text;
        SET_BODY(&m, PREPARE, prepare, &prepare);
        break;
    case CMD_FORM:
        return form_frame(c, &m, err);
    case CMD_TRAIN:
        train.epoch = c->train.epoch;
        SET_BODY(&m, TRAIN, train, &train);
        break;
    case CMD_VALIDATE:
        validate.epoch = c->validate.epoch;
        SET_BODY(&m, VALIDATE, validate, &validate);
        break;
    case CMD_CHECKPOINT:
        checkpoint.step = c->checkpoint.step;
        SET_BODY(&m, CHECKPOINT, checkpoint, &checkpoint);
        break;
    case CMD_OPEN:
    case CMD_STOP:
        ASSERT(!"a command that is no message");
    }
    return msg_frame(&m, err);
}

static char *text_or_null(const char *s) { return *s ? xstrdup(s) : NULL; }

static struct cmd *to_prepare(const Wire__Prepare *p, int64_t generation)
{
    struct cmd *c = cmd_new(CMD_PREPARE, generation);
    c->prepare.rank = p->rank;
    c->prepare.n_ranks = p->n_ranks;
    c->prepare.local = p->local;
    c->prepare.n_local = p->n_local;
    c->prepare.address = xstrdup(p->address);
    c->prepare.inject = text_or_null(p->inject);
    return c;
}

static struct cmd *to_form(const Wire__Form *f, int64_t generation)
{
    struct cmd *c = cmd_new(CMD_FORM, generation);
    c->form.n_endpoints = (int)f->n_endpoints;
    c->form.source = f->source;
    c->form.endpoint = xcalloc(f->n_endpoints + 1, sizeof(struct blob));
    for (size_t i = 0; i < f->n_endpoints; i++)
        c->form.endpoint[i] = blob_of(f->endpoints[i].data, f->endpoints[i].len);
    c->form.ids.len = f->n_ids * MSG_ID;
    c->form.ids.data = xcalloc(f->n_ids + 1, MSG_ID);
    for (size_t i = 0; i < f->n_ids; i++) /* each of MSG_ID bytes: wire/rules.c */
        memcpy(c->form.ids.data + i * MSG_ID, f->ids[i].data, MSG_ID);
    return c;
}

struct cmd *convert_to_command(const Wire__Control *m)
{
    struct cmd *c = NULL;
    switch (m->body_case) {
    case WIRE__CONTROL__BODY_PREPARE:
        return to_prepare(m->prepare, m->generation);
    case WIRE__CONTROL__BODY_FORM:
        return to_form(m->form, m->generation);
    case WIRE__CONTROL__BODY_TRAIN:
        c = cmd_new(CMD_TRAIN, m->generation);
        c->train.epoch = m->train->epoch;
        return c;
    case WIRE__CONTROL__BODY_VALIDATE:
        c = cmd_new(CMD_VALIDATE, m->generation);
        c->validate.epoch = m->validate->epoch;
        return c;
    case WIRE__CONTROL__BODY_CHECKPOINT:
        c = cmd_new(CMD_CHECKPOINT, m->generation);
        c->checkpoint.step = m->checkpoint->step;
        return c;
    default:
        return NULL;
    }
}

/* ---- reports ---- */

static double amount(double x) { return isfinite(x) && x > 0 ? x : 0; }

static ProtobufCBinaryData hash_in(struct arena *a, struct hash128 h)
{
    uint8_t *p = arena_alloc(a, MSG_HASH);
    msg_hash_put(h, p);
    return (ProtobufCBinaryData){MSG_HASH, p};
}

static Wire__TensorHash **tensors_in(struct arena *a, const struct tensor_hash *t, int n)
{
    Wire__TensorHash **list = arena_alloc(a, ((size_t)n + 1) * sizeof(*list));
    Wire__TensorHash *each = arena_alloc(a, ((size_t)n + 1) * sizeof(*each));
    for (int i = 0; i < n; i++) {
        wire__tensor_hash__init(&each[i]);
        each[i].name = msg_text(a, t[i].name && *t[i].name ? t[i].name : "?", MSG_MAX_NAME);
        each[i].hash = hash_in(a, t[i].hash);
        list[i] = &each[i];
    }
    return list;
}

static void opened_in(struct arena *a, const struct report *r, Wire__Control *m)
{
    Wire__Ready *y = arena_alloc(a, sizeof(*y));
    wire__ready__init(y);
    y->layout = hash_in(a, r->opened.layout);
    y->n_tensors = (size_t)r->opened.n_tensors;
    y->tensors = tensors_in(a, r->opened.tensor, r->opened.n_tensors);
    y->n_train = r->opened.n_train;
    y->n_validation = r->opened.n_validation;
    y->data = hash_in(a, r->opened.data);
    y->step = r->opened.step;
    y->n_parameters = r->opened.n_parameters;
    y->steps_per_epoch = r->opened.steps_per_epoch;
    SET_BODY(m, READY, ready, y);
}

static void prepared_in(struct arena *a, const struct report *r, Wire__Control *m)
{
    Wire__Endpoints *e = arena_alloc(a, sizeof(*e));
    wire__endpoints__init(e);
    e->endpoint = bytes_of(&r->prepared.endpoint);
    e->step = r->prepared.step;
    e->library = msg_text(a, r->prepared.library, 64);
    SET_BODY(m, ENDPOINTS, endpoints, e);
}

static void formed_in(struct arena *a, const struct report *r, Wire__Control *m)
{
    Wire__Formed *f = arena_alloc(a, sizeof(*f));
    wire__formed__init(f);
    f->step = r->formed.step;
    SET_BODY(m, FORMED, formed, f);
}

static void epoch_in(struct arena *a, const struct report *r, Wire__Control *m)
{
    Wire__EpochDone *e = arena_alloc(a, sizeof(*e));
    wire__epoch_done__init(e);
    e->epoch = r->epoch.epoch;
    e->step = r->epoch.step;
    e->end = (Wire__EpochEnd)r->epoch.end;
    e->train_loss = r->epoch.train_loss;
    e->train_accuracy = r->epoch.train_accuracy;
    e->n_samples = r->epoch.n_samples;
    e->train_seconds = amount(r->epoch.train_seconds);
    e->samples_per_second = amount(r->epoch.samples_per_second);
    e->step_ms_median = amount(r->epoch.step_ms_median);
    e->comm_exposed_ms_median = amount(r->epoch.comm_exposed_ms_median);
    e->replica = hash_in(a, r->epoch.replica);
    e->n_tensors = (size_t)r->epoch.n_tensors;
    e->tensors = tensors_in(a, r->epoch.tensor, r->epoch.n_tensors);
    e->rss_mib = amount(r->epoch.rss_mib);
    e->peak_rss_mib = amount(r->epoch.peak_rss_mib);
    e->n_skipped = r->epoch.n_skipped;
    e->note = msg_text(a, r->epoch.note, MSG_MAX_TEXT);
    SET_BODY(m, EPOCH_DONE, epoch_done, e);
}

static void validated_in(struct arena *a, const struct report *r, Wire__Control *m)
{
    Wire__ValidateDone *v = arena_alloc(a, sizeof(*v));
    wire__validate_done__init(v);
    v->epoch = r->validated.epoch;
    v->loss_sum = r->validated.loss_sum;
    v->n_correct = r->validated.n_correct;
    v->n_samples = r->validated.n_samples;
    v->n_nonfinite = r->validated.n_nonfinite;
    SET_BODY(m, VALIDATE_DONE, validate_done, v);
}

static void checkpoint_in(struct arena *a, const struct report *r, Wire__Control *m)
{
    Wire__CheckpointDone *c = arena_alloc(a, sizeof(*c));
    wire__checkpoint_done__init(c);
    c->step = r->checkpoint.step;
    c->seconds = amount(r->checkpoint.seconds);
    c->path = msg_text(a, r->checkpoint.path, MSG_MAX_TEXT);
    c->error = msg_text(a, r->checkpoint.error, MSG_MAX_TEXT);
    SET_BODY(m, CHECKPOINT_DONE, checkpoint_done, c);
}

static void fault_in(struct arena *a, const struct report *r, Wire__Control *m)
{
    Wire__Fault *f = arena_alloc(a, sizeof(*f));
    wire__fault__init(f);
    f->code = r->fault.err.code < 0 ? r->fault.err.code : ERR_DEVICE;
    f->phase = (Wire__Phase)r->fault.phase;
    f->step = max_i64(r->fault.step, 0);
    f->text = msg_text(a, *r->fault.err.msg ? r->fault.err.msg : "no reason given", MSG_MAX_TEXT);
    f->is_consequence = r->fault.is_consequence != 0;
    SET_BODY(m, FAULT, fault, f);
}

static void inject_in(struct arena *a, const struct report *r, Wire__Control *m)
{
    Wire__Injected *i = arena_alloc(a, sizeof(*i));
    wire__injected__init(i);
    i->spec = msg_text(a, r->inject.fault.text, INJECTION_TEXT - 1);
    i->text = msg_text(a, r->inject.text, MSG_MAX_TEXT);
    i->phase = (Wire__Phase)r->inject.phase;
    i->step = max_i64(r->inject.step, 0);
    SET_BODY(m, INJECTED, injected, i);
}

struct frame *convert_report(const struct report *r, struct err *err)
{
    static void (*const make[])(struct arena *, const struct report *, Wire__Control *) = {
        [REPORT_OPENED] = opened_in,       [REPORT_PREPARED] = prepared_in,
        [REPORT_FORMED] = formed_in,       [REPORT_EPOCH] = epoch_in,
        [REPORT_VALIDATED] = validated_in, [REPORT_CHECKPOINT] = checkpoint_in,
        [REPORT_FAULT] = fault_in,         [REPORT_INJECT] = inject_in,
    };
    Wire__Control m = WIRE__CONTROL__INIT;
    struct arena a;

    ASSERT((size_t)r->kind < ARRAY_LEN(make) && make[r->kind]);
    arena_init(&a);
    m.generation = r->generation;
    make[r->kind](&a, r, &m);
    struct frame *f = msg_frame(&m, err);
    arena_fini(&a);
    return f;
}

static struct tensor_hash *to_tensors(Wire__TensorHash *const *list, size_t n)
{
    struct tensor_hash *t = xcalloc(n + 1, sizeof(*t));
    for (size_t i = 0; i < n; i++) {
        t[i].name = xstrdup(list[i]->name);
        t[i].hash = msg_hash_get(list[i]->hash);
    }
    return t;
}

static struct report *to_opened(const Wire__Ready *y, int64_t generation)
{
    struct report *r = report_new(REPORT_OPENED, generation);
    r->opened.layout = msg_hash_get(y->layout);
    r->opened.tensor = to_tensors(y->tensors, y->n_tensors);
    r->opened.n_tensors = (int)y->n_tensors;
    r->opened.n_train = y->n_train;
    r->opened.n_validation = y->n_validation;
    r->opened.data = msg_hash_get(y->data);
    r->opened.step = y->step;
    r->opened.n_parameters = y->n_parameters;
    r->opened.steps_per_epoch = y->steps_per_epoch;
    return r;
}

static struct report *to_epoch(const Wire__EpochDone *e, int64_t generation)
{
    struct report *r = report_new(REPORT_EPOCH, generation);
    r->epoch.epoch = e->epoch;
    r->epoch.step = e->step;
    r->epoch.end = (enum epoch_end)e->end;
    r->epoch.train_loss = e->train_loss;
    r->epoch.train_accuracy = e->train_accuracy;
    r->epoch.n_samples = e->n_samples;
    r->epoch.train_seconds = e->train_seconds;
    r->epoch.samples_per_second = e->samples_per_second;
    r->epoch.step_ms_median = e->step_ms_median;
    r->epoch.comm_exposed_ms_median = e->comm_exposed_ms_median;
    r->epoch.replica = msg_hash_get(e->replica);
    r->epoch.tensor = to_tensors(e->tensors, e->n_tensors);
    r->epoch.n_tensors = (int)e->n_tensors;
    r->epoch.rss_mib = e->rss_mib;
    r->epoch.peak_rss_mib = e->peak_rss_mib;
    r->epoch.n_skipped = e->n_skipped;
    r->epoch.note = text_or_null(e->note);
    return r;
}

static struct report *to_validated(const Wire__ValidateDone *v, int64_t generation)
{
    struct report *r = report_new(REPORT_VALIDATED, generation);
    r->validated.epoch = v->epoch;
    r->validated.loss_sum = v->loss_sum;
    r->validated.n_correct = v->n_correct;
    r->validated.n_samples = v->n_samples;
    r->validated.n_nonfinite = v->n_nonfinite;
    return r;
}

static struct report *to_checkpoint(const Wire__CheckpointDone *c, int64_t generation)
{
    struct report *r = report_new(REPORT_CHECKPOINT, generation);
    r->checkpoint.step = c->step;
    r->checkpoint.seconds = c->seconds;
    r->checkpoint.path = text_or_null(c->path);
    r->checkpoint.error = text_or_null(c->error);
    return r;
}

static struct report *to_fault(const Wire__Fault *f, int64_t generation)
{
    struct report *r = report_new(REPORT_FAULT, generation);
    r->fault.err.code = f->code;
    snprintf(r->fault.err.msg, sizeof(r->fault.err.msg), "%s", f->text);
    r->fault.phase = (enum phase)f->phase;
    r->fault.step = f->step;
    r->fault.is_consequence = f->is_consequence;
    return r;
}

static struct report *to_inject(const Wire__Injected *i, int64_t generation)
{
    struct report *r = report_new(REPORT_INJECT, generation);
    struct injection_list l = {.n = 0};
    struct err err;
    int rc = inject_parse(i->spec, &l, &err);
    ASSERT(rc == 0 && l.n > 0); /* it was checked */
    r->inject.fault = l.item[0];
    r->inject.text = xstrdup(i->text);
    r->inject.phase = (enum phase)i->phase;
    r->inject.step = i->step;
    return r;
}

struct report *convert_to_report(const Wire__Control *m)
{
    struct report *r = NULL;
    switch (m->body_case) {
    case WIRE__CONTROL__BODY_READY:
        return to_opened(m->ready, m->generation);
    case WIRE__CONTROL__BODY_ENDPOINTS:
        r = report_new(REPORT_PREPARED, m->generation);
        r->prepared.endpoint = blob_of(m->endpoints->endpoint.data, m->endpoints->endpoint.len);
        r->prepared.step = m->endpoints->step;
        r->prepared.library = text_or_null(m->endpoints->library);
        return r;
    case WIRE__CONTROL__BODY_FORMED:
        r = report_new(REPORT_FORMED, m->generation);
        r->formed.step = m->formed->step;
        return r;
    case WIRE__CONTROL__BODY_EPOCH_DONE:
        return to_epoch(m->epoch_done, m->generation);
    case WIRE__CONTROL__BODY_VALIDATE_DONE:
        return to_validated(m->validate_done, m->generation);
    case WIRE__CONTROL__BODY_CHECKPOINT_DONE:
        return to_checkpoint(m->checkpoint_done, m->generation);
    case WIRE__CONTROL__BODY_FAULT:
        return to_fault(m->fault, m->generation);
    case WIRE__CONTROL__BODY_INJECTED:
        return to_inject(m->injected, m->generation);
    default:
        return NULL;
    }
}

/* ---- heartbeats ---- */

void convert_pace(const struct progress *p, int64_t generation, Wire__Heartbeat *h)
{
    const struct ring_head *head = &p->head;
    h->n_steps = p->n_steps;
    h->wall_us = p->wall_ns / 1000;
    h->busy_us = p->busy_ns / 1000;
    if (head->generation != generation)
        return;
    h->n_handed = head->n_handed;
    h->n_ended = head->n_ended;
    if (head->at.number == 0)
        return;
    h->at_step = head->at.step;
    h->at_bucket = head->at.bucket;
    h->at_bytes = head->at.n_bytes;
}

void convert_from_pace(const Wire__Heartbeat *h, int64_t generation, struct progress *p)
{
    p->n_steps = h->n_steps;
    p->wall_ns = 1000 * h->wall_us;
    p->busy_ns = 1000 * h->busy_us;
    p->head = (struct ring_head){
        .generation = generation, .n_handed = h->n_handed, .n_ended = h->n_ended};
    if (h->n_handed > h->n_ended)
        p->head.at = (struct collective){.generation = generation,
                                         .number = h->n_ended + 1,
                                         .step = h->at_step,
                                         .bucket = h->at_bucket,
                                         .n_bytes = h->at_bytes};
}

/* ---- rings ---- */

_Static_assert((int)RING_LEN <= (int)MSG_MAX_COLLECTIVES, "a whole ring fits in a message");

/* Rounded up, so that what has happened is not 0. */
static int64_t us_ago(int64_t ns) { return ceil_div_i64(-ns, 1000); }

struct frame *convert_ring(const struct collective *c, int n, int64_t incident, int64_t generation,
                           struct err *err)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Ring r = WIRE__RING__INIT;
    Wire__Collective *each = xcalloc((size_t)n + 1, sizeof(*each));
    Wire__Collective **list = xcalloc((size_t)n + 1, sizeof(*list));
    for (int i = 0; i < n; i++) {
        wire__collective__init(&each[i]);
        each[i].generation = c[i].generation;
        each[i].number = c[i].number;
        each[i].step = c[i].step;
        each[i].bucket = c[i].bucket;
        each[i].n_bytes = c[i].n_bytes;
        each[i].phase = (Wire__Phase)c[i].phase;
        each[i].handed_us = us_ago(c[i].handed_ns);
        each[i].began_us = us_ago(c[i].began_ns);
        each[i].ended_us = us_ago(c[i].ended_ns);
        each[i].is_failed = c[i].is_failed != 0;
        list[i] = &each[i];
    }
    r.incident = incident;
    r.n_collectives = (size_t)n;
    r.collectives = list;
    m.generation = generation;
    SET_BODY(&m, RING, ring, &r);
    struct frame *f = msg_frame(&m, err);
    free(list);
    free(each);
    return f;
}

int convert_to_ring(const Wire__Ring *m, struct collective **out)
{
    struct collective *c = xcalloc(m->n_collectives + 1, sizeof(*c));
    for (size_t i = 0; i < m->n_collectives; i++) {
        const Wire__Collective *w = m->collectives[i];
        c[i] = (struct collective){.generation = w->generation,
                                   .number = w->number,
                                   .step = w->step,
                                   .bucket = w->bucket,
                                   .n_bytes = w->n_bytes,
                                   .phase = w->phase,
                                   .handed_ns = -1000 * w->handed_us,
                                   .began_ns = -1000 * w->began_us,
                                   .ended_ns = -1000 * w->ended_us,
                                   .is_failed = w->is_failed};
    }
    *out = c;
    return (int)m->n_collectives;
}
