/* The samples: a maker for each message, with every field set.
 * Fuzz seeds are made from them (make_seeds.c). */
#include "samples.h"

#include <string.h>

#include "base/util.h"

#define NEW(type, CASE, member)                   \
    Wire__##type *x = arena_alloc(a, sizeof(*x)); \
    *x = (Wire__##type)WIRE__##CASE##__INIT;      \
    m->body_case = WIRE__CONTROL__BODY_##CASE;    \
    m->member = x

static ProtobufCBinaryData bytes(struct arena *a, const char *text)
{
    return (ProtobufCBinaryData){strlen(text), arena_copy(a, text, strlen(text))};
}

static ProtobufCBinaryData hash(struct arena *a, const char *text)
{
    ProtobufCBinaryData b = {MSG_HASH, arena_alloc(a, MSG_HASH)};
    msg_hash_put(hash_of(text, strlen(text)), b.data);
    return b;
}

static Wire__TensorHash **tensors(struct arena *a, size_t *n)
{
    static const char *const names[] = {"conv1.weight", "conv1.bias", "fc.weight"};
    Wire__TensorHash **list = arena_alloc(a, sizeof(*list) * ARRAY_LEN(names));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        list[i] = arena_alloc(a, sizeof(**list));
        wire__tensor_hash__init(list[i]);
        list[i]->name = arena_strdup(a, names[i]);
        list[i]->hash = hash(a, names[i]);
    }
    *n = ARRAY_LEN(names);
    return list;
}

static void hello(struct arena *a, Wire__Control *m)
{
    NEW(Hello, HELLO, hello);
    x->protocol = MSG_PROTOCOL;
    x->version = arena_strdup(a, DPTRAIN_VERSION);
    x->rank = -1;
    x->launch = arena_strdup(a, "none:29500");
    x->host = arena_strdup(a, "knoten-\xc3\xa4");
    x->host_id = arena_strdup(a, "6f9c");
    x->pid = 4711;
    x->pid_space = 4026531836;
    x->device = arena_strdup(a, "auto");
    x->n_gpus = 1;
    x->gpus = arena_alloc(a, sizeof(*x->gpus));
    x->gpus[0] = arena_alloc(a, sizeof(**x->gpus));
    wire__gpu__init(x->gpus[0]);
    x->gpus[0]->uuid = arena_strdup(a, "GPU-1");
    x->gpus[0]->name = arena_strdup(a, "H100");
    x->gpus[0]->index = 3;
    x->gpus[0]->bus = arena_strdup(a, "0000:65:00.0");
    x->n_backends = 1;
    x->backends = arena_alloc(a, sizeof(*x->backends));
    x->backends[0] = arena_strdup(a, "cpu");
    x->advertise = arena_strdup(a, "10.0.0.7");
    x->no_gpu = arena_strdup(a, "there is no NVIDIA driver (libcuda.so.1)");
    x->run = arena_strdup(a, "5f2c9a0b77e14d38");
    x->run_job = arena_alloc(a, HASH_TEXT_LEN);
    hash_to_text(hash_of("name: x", 7), x->run_job);
    x->term = 3;
    x->leader = arena_strdup(a, "10.0.0.1:7000");
    x->formed = 7;
    x->step = 700;
    x->in_step = 1;
    x->form_term = 3;
    x->form_generation = 7;
    x->form_ranks = 4;
    x->form_rank = 2;
    x->form_standby = arena_strdup(a, "77aa");
    x->entered = 7;
    x->wrong = 1;
    m->generation = 0;
}

static void welcome(struct arena *a, Wire__Control *m)
{
    NEW(Welcome, WELCOME, welcome);
    x->job = bytes(a, "name: x\nmodel: {arch: lenet}\n");
    x->rank = 1;
    x->n_ranks = 2;
    x->device = arena_strdup(a, "cpu");
    x->host = arena_strdup(a, "driver");
    x->heartbeat_ms = 1000;
    x->heartbeat_timeout_ms = 5000;
    x->spare = 1;
    x->inject = arena_strdup(a, "stop:rank1@ready");
    x->run = arena_strdup(a, "5f2c9a0b77e14d38");
    x->term = 4;
    x->driver_timeout_ms = 60000;
    x->standby = arena_strdup(a, "10.0.0.9:7001");
    x->predicts = 1;
    x->notice = bytes(a, "test ! -e /run/leaves");
    m->generation = 0;
}

static void refused(struct arena *a, Wire__Control *m)
{
    NEW(Refused, REFUSED, refused);
    x->reason = WIRE__REASON__REASON_RANK_TAKEN;
    x->text = arena_strdup(a, "rank 1 is taken by hostB (pid 17)");
    x->run = arena_strdup(a, "5f2c9a0b77e14d38");
}

static void ready(struct arena *a, Wire__Control *m)
{
    NEW(Ready, READY, ready);
    x->layout = hash(a, "layout");
    x->tensors = tensors(a, &x->n_tensors);
    x->n_train = 100;
    x->n_validation = 10;
    x->data = hash(a, "data");
    x->n_parameters = 1000;
    x->steps_per_epoch = 4;
    m->generation = 0;
}

static void prepare(struct arena *a, Wire__Control *m)
{
    NEW(Prepare, PREPARE, prepare);
    x->rank = 1;
    x->n_ranks = 2;
    x->local = 1;
    x->n_local = 2;
    x->n_container = 1;
    x->address = arena_strdup(a, "10.0.0.7");
    x->inject = arena_strdup(a, "kill:rank1@step50,delay:rank1@form2:3s");
    x->standby = arena_strdup(a, "77aa");
}

static void endpoints(struct arena *a, Wire__Control *m)
{
    NEW(Endpoints, ENDPOINTS, endpoints);
    x->endpoint = bytes(a, "10.0.0.7:40001");
    x->step = 7;
    x->library = arena_strdup(a, "tcp");
}

static void form(struct arena *a, Wire__Control *m)
{
    NEW(Form, FORM, form);
    x->n_endpoints = 2;
    x->endpoints = arena_alloc(a, 2 * sizeof(*x->endpoints));
    x->endpoints[0] = bytes(a, "10.0.0.1:40000");
    x->endpoints[1] = bytes(a, "10.0.0.7:40001");
    x->source = 1;
}

static void form_by_ids(struct arena *a, Wire__Control *m)
{
    char id[MSG_ID + 1];
    NEW(Form, FORM, form);
    memset(id, 'i', MSG_ID);
    id[MSG_ID] = 0;
    x->ids = bytes(a, id);
    x->source = 1;
}

static void formed(struct arena *a, Wire__Control *m)
{
    NEW(Formed, FORMED, formed);
    x->step = 7;
}

static void train(struct arena *a, Wire__Control *m)
{
    NEW(Train, TRAIN, train);
    x->epoch = 2;
    x->live_lr = 0.25;
    x->live_step = 6;
}

static void epoch_done(struct arena *a, Wire__Control *m)
{
    NEW(EpochDone, EPOCH_DONE, epoch_done);
    x->epoch = 2;
    x->step = 8;
    x->end = WIRE__EPOCH_END__EPOCH_WHOLE;
    x->replica = hash(a, "replica");
    x->tensors = tensors(a, &x->n_tensors);
    x->rss_mib = 120;
    x->data_wait_cause = 2;
    x->peak_rss_mib = 130;
    x->note = arena_strdup(a, "a note");
}

static void validate(struct arena *a, Wire__Control *m)
{
    NEW(Validate, VALIDATE, validate);
    x->epoch = 2;
    x->predicts = 1;
    x->judges = 1;
}

static void validate_done(struct arena *a, Wire__Control *m)
{
    NEW(ValidateDone, VALIDATE_DONE, validate_done);
    x->epoch = 2;
    x->loss_sum = 2.5;
    x->n_correct = 4;
    x->n_samples = 5;
    x->n_nonfinite = 1;
    x->n_targets = 7;
    x->average_loss_sum = 1.5;
    x->average_n_correct = 3;
    x->average_n_nonfinite = 2;
    x->weight = 6.5;
    x->n_top5 = 6;
    x->average_n_top5 = 5;
    x->note = arena_strdup(a, "x.npy, row 3: nan");
}

static void checkpoint(struct arena *a, Wire__Control *m)
{
    NEW(Checkpoint, CHECKPOINT, checkpoint);
    x->step = 8;
}

static void checkpoint_done(struct arena *a, Wire__Control *m)
{
    NEW(CheckpointDone, CHECKPOINT_DONE, checkpoint_done);
    x->step = 8;
}

static void heartbeat(struct arena *a, Wire__Control *m)
{
    NEW(Heartbeat, HEARTBEAT, heartbeat);
    x->epoch = 2;
    x->step = 5;
    x->phase = WIRE__PHASE__PHASE_REDUCE;
    x->bucket = -1;
    x->phase_ms = 3;
    x->first_step = 1;
    x->rss_mib = 99.5;
    x->n_handed = 120;
    x->n_ended = 118;
    x->at_step = 5;
    x->at_bucket = 3;
    x->at_bytes = 1 << 20;
    x->n_steps = 6;
    x->wall_ns = 61000000;
    x->clock_ns = 7000000001;
    x->echo_ns = 5000000007;
    x->held_ns = 400000;
    x->busy_ns = 44000000;
    x->unlinked = 3;
    x->n_strangers = 7;
    x->package_mj = 812345;
    x->gpu_mj = 5000000001;
    x->resident_kib = 204800;
    x->cpu_permille = 1870;
    x->gpu_permille = 930;
    x->gpu_memory_kib = 40000000;
    x->gpu_celsius = 61;
    x->gpu_mw = 512345;
    x->gpu_clock_mhz = 1980;
    x->n_account = 10;
    x->account = arena_alloc(a, x->n_account * sizeof *x->account);
    for (size_t i = 0; i < x->n_account; i++)
        x->account[i] = (int64_t)i * 1000000007;
}

static void fault(struct arena *a, Wire__Control *m)
{
    NEW(Fault, FAULT, fault);
    x->code = ERR_PEER;
    x->phase = WIRE__PHASE__PHASE_REDUCE;
    x->step = 5;
    x->text = arena_strdup(a, "all-reduce: a peer left");
    x->is_consequence = 1;
}

static void abort_(struct arena *a, Wire__Control *m)
{
    NEW(Abort, ABORT, abort);
    x->text = arena_strdup(a, "rank 1 (hostB) was lost");
}

static void stop(struct arena *a, Wire__Control *m)
{
    NEW(Stop, STOP, stop);
    x->outcome = WIRE__OUTCOME__OUTCOME_STOPPED;
    x->text = arena_strdup(a, "stopped by SIGTERM");
}

static void drain(struct arena *a, Wire__Control *m)
{
    NEW(Drain, DRAIN, drain);
    x->taken_back = 1;
    x->wrong = 1;
}

static void standby(struct arena *a, Wire__Control *m)
{
    NEW(Standby, STANDBY, standby);
    x->address = arena_strdup(a, "10.0.0.9:7001");
}

static void voters(struct arena *a, Wire__Control *m)
{
    NEW(Voters, VOTERS, voters);
    x->term = 3;
    x->generation = 7;
    x->n_ranks = 4;
    x->formed = 6;
    x->standby = arena_strdup(a, "77aa");
}

static void standby_hello(struct arena *a, Wire__Control *m)
{
    hello(a, m);
    m->hello->standby = arena_strdup(a, "77aa");
    m->hello->port = 7001;
}

static void injected(struct arena *a, Wire__Control *m)
{
    NEW(Injected, INJECTED, injected);
    x->spec = arena_strdup(a, "kill:rank1@step50");
    x->text = arena_strdup(a, "SIGKILL to itself when the step begins (step 50)");
    x->phase = WIRE__PHASE__PHASE_LOAD;
    x->step = 50;
}

static void goodbye(struct arena *a, Wire__Control *m)
{
    NEW(Goodbye, GOODBYE, goodbye);
    x->text = arena_strdup(a, "stopped by SIGTERM");
    x->polite = 1;
    x->source = arena_strdup(a, "aws");
    x->seconds = 120;
}

static void inspect(struct arena *a, Wire__Control *m)
{
    NEW(Inspect, INSPECT, inspect);
    x->incident = 2;
}

static void ring(struct arena *a, Wire__Control *m)
{
    NEW(Ring, RING, ring);
    x->incident = 2;
    x->n_collectives = 2;
    x->collectives = arena_alloc(a, 2 * sizeof(*x->collectives));
    for (int i = 0; i < 2; i++) {
        Wire__Collective *c = x->collectives[i] = arena_alloc(a, sizeof(*c));
        wire__collective__init(c);
        c->generation = 1;
        c->number = 117 + i;
        c->step = 118;
        c->bucket = i ? 3 : -1;
        c->n_bytes = 4096;
        c->phase = WIRE__PHASE__PHASE_BACKWARD;
        c->handed_ns = i - 2500000;
        c->began_ns = -2400000;
        c->ended_ns = i ? 0 : -2300000;
        c->is_failed = !i;
    }
}

static void trace(struct arena *a, Wire__Control *m)
{
    NEW(Trace, TRACE, trace);
    x->number = 2;
    x->duration_ns = 1000000000;
}

static void spans(struct arena *a, Wire__Control *m)
{
    static const char *const names[] = {"conv1", "conv2d", "all-reduce"};

    NEW(Spans, SPANS, spans);
    x->number = 2;
    x->first = 5;
    x->last = 9;
    x->is_last = x->is_cut = x->is_launched = 1;
    x->n_names = ARRAY_LEN(names);
    x->names = arena_alloc(a, ARRAY_LEN(names) * sizeof(*x->names));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        x->names[i] = arena_alloc(a, sizeof(**x->names));
        wire__span_name__init(x->names[i]);
        x->names[i]->text = arena_strdup(a, names[i]);
    }
    x->n_spans = 2;
    x->spans = arena_alloc(a, 2 * sizeof(*x->spans));
    for (int i = 0; i < 2; i++) {
        Wire__Span *s = x->spans[i] = arena_alloc(a, sizeof(*s));
        wire__span__init(s);
        s->begin_ns = 7000000000 + i;
        s->took_ns = 1500000;
        s->step = 5 + i;
        s->n_bytes = 4096;
        s->collective = i ? (INT64_C(1) << 32) + 117 : 0;
        s->track = i;
        s->name = 2 * i;
        s->kind = 1;
        s->bucket = i - 1;
    }
}

static void (*const makers[])(struct arena *, Wire__Control *) = {
    hello,           ready,    endpoints,  formed,  heartbeat, epoch_done,    validate_done,
    checkpoint_done, fault,    goodbye,    welcome, refused,   prepare,       form,
    train,           validate, checkpoint, abort_,  stop,      form_by_ids,   injected,
    inspect,         ring,     drain,      standby, voters,    standby_hello, trace,
    spans,
};

int sample_count(void) { return (int)ARRAY_LEN(makers); }

int sample_make(struct arena *a, int i, Wire__Control *m)
{
    if (i < 0 || i >= (int)ARRAY_LEN(makers))
        return 0;
    *m = (Wire__Control)WIRE__CONTROL__INIT;
    m->generation = 1;
    makers[i](a, m);
    return 1;
}
