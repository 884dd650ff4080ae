/* engine - the engine's thread: takes commands one by one, hands them to the trainer, and reports.
 *
 * Abort.  The loop calls engine_abort while this thread may be anywhere: inside a collective (then
 * coll_abort frees the thread), connecting, computing (the trainer asks engine_canceled() at each
 * step), or idle.  engine_abort notes the generation of the newest command posted so far.  Commands
 * of that generation or of older ones are not begun any more, except CMD_STOP.  The command under
 * way ends in a REPORT_FAULT that is marked as a consequence.  A CMD_PREPARE of a later generation,
 * posted after the abort, is obeyed, however the two threads interleave.  A coll that is made after
 * the abort need not be aborted, because only commands of its own generation use it. */
#include "train/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "coll/device.h"
#include "coll/fabric/port.h"
#include "coll/tcp.h"
#include "op/control.h"
#include "step/faults.h"
#include "train/trainer.h"
#include "wire/msg.h"

struct engine {
    struct mailbox inbox;    /* struct cmd */
    struct mailbox *reports; /* struct report; the loop's */
    pthread_t thread;
    struct trainer *trainer;
    const struct plugin *plugin; /* NULL: the CPU computes */
    struct faults *faults;       /* faults on purpose */
    int has_secret;
    int told_strangers;       /* 1: a warning about strangers was sent in the present formation */
    char fabric[FABRIC_NAME]; /* over which the links go, as last reported; "": by TCP */
    const char *protection; /* how links are protected, as last reported; NULL: not reported yet */

    /* Guards the pointer `coll`: the loop may abort the coll while this thread makes, uses or frees
     * it. */
    pthread_mutex_t coll_lock;
    struct coll *coll; /* of the generation under way; the trainer owns it */

    /* Several threads read and write the following; the order among them does not matter. */
    atomic_int_fast64_t posted_generation;  /* newest posted */
    atomic_int_fast64_t aborted_generation; /* this one and older ones are canceled; -1: none */
    atomic_int_fast64_t running_generation;
    atomic_uint requests;
    atomic_int_fast64_t epoch, step, bucket, since_ns;
    atomic_int_fast64_t n_steps, wall_ns, busy_ns;
    atomic_int phase;
};

/* ---- hooks ---- */

static void engine_send(void *arg, struct report *r)
{
    struct engine *e = arg;

    if (!r->generation) /* not of a formation before */
        r->generation = atomic_load(&e->running_generation);
    if (r->kind == REPORT_ROW || r->kind == REPORT_HASHES) /* the loop would take a processor */
        mailbox_leave(e->reports, &r->mail);
    else
        mailbox_put(e->reports, &r->mail);
}

static unsigned engine_requests(void *arg)
{
    return atomic_load(&((struct engine *)arg)->requests);
}

static void engine_saved(void *arg)
{
    atomic_fetch_and(&((struct engine *)arg)->requests, ~(unsigned)ENGINE_REQUEST_CHECKPOINT);
}

static int engine_canceled(void *arg)
{
    struct engine *e = arg;

    return atomic_load(&e->running_generation) <= atomic_load(&e->aborted_generation);
}

static void engine_at(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket)
{
    struct engine *e = arg;

    atomic_store_explicit(&e->epoch, epoch, memory_order_relaxed);
    atomic_store_explicit(&e->step, step, memory_order_relaxed);
    atomic_store_explicit(&e->bucket, bucket, memory_order_relaxed);
    if (atomic_exchange_explicit(&e->phase, phase, memory_order_relaxed) != (int)phase)
        atomic_store_explicit(&e->since_ns, clock_mono_ns(), memory_order_relaxed);
}

static void engine_add(atomic_int_fast64_t *sum, int64_t more)
{
    atomic_fetch_add_explicit(sum, more, memory_order_relaxed);
}

static void engine_stepped(void *arg, int64_t wall_ns, int64_t busy_ns)
{
    struct engine *e = arg;

    engine_add(&e->n_steps, 1);
    engine_add(&e->wall_ns, wall_ns);
    engine_add(&e->busy_ns, busy_ns);
}

static void engine_announce(void *arg, struct report *r)
{
    struct engine *e = arg;

    r->inject.phase = (enum phase)atomic_load(&e->phase);
    r->inject.step = trainer_step(e->trainer);
    engine_send(e, r);
}

/* ---- commands ---- */

static void set_coll(struct engine *e, struct coll *c)
{
    pthread_mutex_lock(&e->coll_lock);
    e->coll = c;
    pthread_mutex_unlock(&e->coll_lock);
}

static enum coll_encrypt engine_encryption(const struct engine *e)
{
    switch (trainer_job(e->trainer)->cluster.encrypt) {
    case CLUSTER_ENCRYPT_ON:
        return COLL_ENCRYPT_ON;
    case CLUSTER_ENCRYPT_AUTO:
        return e->has_secret ? COLL_ENCRYPT_REMOTE : COLL_ENCRYPT_OFF;
    case CLUSTER_ENCRYPT_OFF:
        break;
    }
    return COLL_ENCRYPT_OFF;
}

/* Make the collectives of CPU ranks, and those of a single rank, even if it is on a device. */
static int make_tcp(const struct engine *e, const struct cmd *c, struct coll **out,
                    struct report *r, struct err *err)
{
    const struct cluster_options *cluster = &trainer_job(e->trainer)->cluster;
    struct buf endpoint = {0};
    const struct coll_tcp_options o = {.rank = c->prepare.rank,
                                       .size = c->prepare.n_ranks,
                                       .bind = c->prepare.address,
                                       .encrypt = engine_encryption(e),
                                       .share_memory =
                                           cluster->shared_memory == CLUSTER_SHARED_MEMORY_AUTO,
                                       .fabric = cluster->fabric};
    int rc = coll_tcp_prepare(&o, out, err);

    if (rc < 0)
        return rc;
    coll_tcp_endpoint(*out, &endpoint);
    r->prepared.endpoint = (struct blob){endpoint.data, endpoint.len};
    return 0;
}

/* End the process, because what NCCL holds can be neither freed nor used again. */
static void engine_give_up(void *arg, const char *text)
{
    (void)arg;
    log_error("%s; this process ends, start it again", text);
    _exit(1);
}

static int make_ids(const struct coll_device_ops *ops, int n_ranks, struct report *r,
                    struct err *err)
{
    const size_t n_bytes = (size_t)coll_device_n_ids(n_ranks) * COLL_ID_BYTES;

    r->prepared.ids = (struct blob){xcalloc(1, n_bytes), n_bytes};
    return coll_device_make_ids(ops, n_ranks, r->prepared.ids.data, err);
}

/* Make the collectives of devices, by the plugin.  Rank 0's ids travel with its report. */
static int make_device_coll(struct engine *e, const struct cmd *c, struct coll **out,
                            struct report *r, struct err *err)
{
    /* The process is given up after this time.  The time may pass twice in a row: once until the
     * running work has returned, and once until the communicator has ended, after the recordings
     * were freed. */
    enum { STOP_MS = 10000 };
    struct coll_device_options o = {.rank = c->prepare.rank,
                                    .size = c->prepare.n_ranks,
                                    .stop_ms = STOP_MS,
                                    .stuck = engine_give_up};
    const struct coll_device_ops *ops;
    int version, rc = coll_device_of(e->plugin, &ops, err);

    snprintf(o.name, sizeof o.name, "%.40s/%lld", trainer_job_name(e->trainer),
             (long long)c->generation);
    if (rc == 0)
        rc = ops->library(&version, err);
    if (rc < 0)
        return rc;
    r->prepared.library =
        xasprintf("%s %d.%d.%d", ops->name, version / 10000, version / 100 % 100, version % 100);
    if (o.rank == 0)
        rc = make_ids(ops, o.size, r, err);
    return rc == 0 ? coll_device_new(ops, trainer_backend(e->trainer), &o, out, err) : rc;
}

static int engine_prepare(struct engine *e, const struct cmd *c, struct report *r, struct err *err)
{
    struct coll *coll = NULL;
    int rc;

    faults_take(e->faults, c->prepare.inject, c->prepare.rank);
    faults_reach(e->faults, INJECTION_AT_PREPARE, c->generation);
    set_coll(e, NULL);
    e->told_strangers = 0;
    atomic_fetch_and(&e->requests, ~(unsigned)ENGINE_REQUEST_REGROUP);
    rc = trainer_prepare(e->trainer, c->prepare.rank, c->prepare.n_ranks, c->prepare.n_local,
                         c->prepare.n_container ? c->prepare.n_container : c->prepare.n_local, err);
    ring_begin(trainer_ring(e->trainer), c->generation);
    if (rc == 0)
        rc = e->plugin && c->prepare.n_ranks > 1 ? make_device_coll(e, c, &coll, r, err)
                                                 : make_tcp(e, c, &coll, r, err);
    if (rc < 0)
        return rc;
    trainer_take_coll(e->trainer, coll);
    set_coll(e, coll);
    r->prepared.step = trainer_step(e->trainer);
    return 0;
}

static int engine_open_all(struct engine *e, const struct cmd *c, struct report *r, struct err *err)
{
    int rc;

    faults_take(e->faults, c->open.inject, c->open.rank);
    faults_reach(e->faults, INJECTION_AT_GATHER, 0);
    rc = trainer_open(e->trainer, c, r, err);
    if (rc == 0)
        faults_reach(e->faults, INJECTION_AT_READY, 0);
    return rc;
}

/* Report how the links are protected, whenever that changes. */
static void tell_protection(struct engine *e)
{
    const char *now = coll_tcp_protection(e->coll);

    if (e->protection != now && coll_tcp_is_encrypted(e->coll))
        log_info("the links between ranks are encrypted%s: %s",
                 coll_tcp_n_shared(e->coll) ? ", but for those within a machine" : "", now);
    e->protection = now;
}

/* Report what the links' bytes go over, whenever that changes. */
static void tell_fabric(struct engine *e)
{
    const char *now = coll_tcp_fabric(e->coll) ? coll_tcp_fabric(e->coll) : "";

    if (strcmp(e->fabric, now) != 0)
        log_info("the links between ranks go over %s%s", *now ? now : "TCP",
                 coll_tcp_n_shared(e->coll) ? ", but for those within a machine" : "");
    snprintf(e->fabric, sizeof e->fabric, "%s", now);
}

static int connect_tcp(struct engine *e, const struct cmd *c, int64_t deadline_ms, struct err *err)
{
    int n = c->form.n_endpoints;
    const void **blob = xcalloc((size_t)n, sizeof *blob);
    size_t *len = xcalloc((size_t)n, sizeof *len);
    int rc;

    for (int i = 0; i < n; i++) {
        blob[i] = c->form.endpoint[i].data;
        len[i] = c->form.endpoint[i].len;
    }
    rc = coll_tcp_connect(e->coll, blob, len, deadline_ms, err);
    free(blob);
    free(len);
    if (rc == 0 && n > 1) {
        tell_protection(e);
        tell_fabric(e);
    }
    return rc;
}

static int engine_form(struct engine *e, const struct cmd *c, int64_t deadline_ms, struct err *err)
{
    int rc = coll_is_device(e->coll)
                 ? coll_device_connect(e->coll, c->form.ids.data, c->form.ids.len, deadline_ms, err)
                 : connect_tcp(e, c, deadline_ms, err);

    return rc == 0 ? trainer_form(e->trainer, c->form.source, err) : rc;
}

/* The driver's own deadline ends a connect that takes too long; this one is only a backstop. */
_Static_assert((int)JOB_MAX_CPU_RANKS == (int)COLL_TCP_MAX_RANKS,
               "what a job may ask for is what connects");
_Static_assert((int)JOB_MAX_RANKS == (int)CONTROL_MAX_RANKS, "and what sums exactly");
_Static_assert((int)MSG_ID == (int)COLL_ID_BYTES && (int)MSG_MAX_IDS == (int)COLL_MAX_IDS &&
                   (int)MSG_RANKS_PER_ID == (int)COLL_RANKS_PER_ID,
               "what the wire carries is what connects");

enum { CONNECT_MS = 24 * 3600 * 1000 };

static int engine_obey(struct engine *e, const struct cmd *c, struct report *r, struct err *err)
{
    int rc = 0;

    switch (c->kind) {
    case CMD_OPEN:
        engine_at(e, PHASE_OPEN, 0, 0, -1);
        return engine_open_all(e, c, r, err);
    case CMD_PREPARE:
        engine_at(e, PHASE_PREPARE, 0, trainer_step(e->trainer), -1);
        return engine_prepare(e, c, r, err);
    case CMD_FORM:
        engine_at(e, PHASE_FORM, 0, trainer_step(e->trainer), -1);
        faults_reach(e->faults, INJECTION_AT_FORM, c->generation);
        rc = engine_form(e, c, CONNECT_MS, err);
        r->formed.step = trainer_step(e->trainer);
        r->formed.from_checkpoint = trainer_took_checkpoint(e->trainer);
        return rc;
    case CMD_TRAIN:
        trainer_set_rate(e->trainer, c->train.live_lr, c->train.live_step);
        return trainer_train(e->trainer, c->train.epoch, r, err);
    case CMD_VALIDATE:
        if (c->validate.predicts)
            return trainer_predict(e->trainer, c->validate.epoch, r, err);
        return c->validate.judges ? trainer_judge(e->trainer, c->validate.epoch, r, err)
                                  : trainer_validate(e->trainer, c->validate.epoch, r, err);
    case CMD_CHECKPOINT:
        return trainer_checkpoint(e->trainer, c->checkpoint.is_last, r, err);
    case CMD_STOP:
        faults_reach(e->faults, INJECTION_AT_STOP, 0);
        set_coll(e, NULL); /* it may be freed now */
        trainer_finish(e->trainer, c->stop.saves);
        return 0;
    }
    return err_set(err, ERR_ARG, "command %d is unknown", (int)c->kind);
}

/* 1: the process cannot use its GPU any more: after one of CUDA's sticky errors every call fails. A
 * collective or a library may fail without such an error. */
static int is_gpu_lost(const struct engine *e)
{
    struct backend *b = trainer_backend(e->trainer);
    struct err err;

    return b && backend_poll(b, &err) < 0;
}

static struct report *fault_of(struct engine *e, const struct cmd *c, const struct err *err)
{
    struct report *r = report_new(REPORT_FAULT, c->generation);

    r->fault.err = *err;
    r->fault.phase = (enum phase)atomic_load(&e->phase);
    r->fault.step = trainer_step(e->trainer);
    r->fault.is_consequence = err->code == ERR_CANCELED || err->code == ERR_PEER;
    r->fault.is_gpu_lost = is_gpu_lost(e);
    return r;
}

/* Warn of connections by strangers, once in each formation. */
static void tell_strangers(struct engine *e)
{
    struct coll_stats s = {0};
    struct report *r;

    if (e->coll)
        coll_stats(e->coll, &s);
    if (e->told_strangers || s.n_strangers == 0)
        return;
    e->told_strangers = 1;
    r = report_new(REPORT_WARNING, 0);
    r->warning.step = trainer_step(e->trainer);
    r->warning.text = xasprintf("%lld connections to this rank's data port were closed, because "
                                "they did not prove to be of a rank of this job",
                                (long long)s.n_strangers);
    engine_send(e, r);
}

/* The kind of the span of a command, but for CMD_TRAIN, whose steps have spans. */
static const char *engine_kind_of(enum cmd_kind kind)
{
    return kind == CMD_PREPARE || kind == CMD_FORM ? "recovery" : cmd_name(kind);
}

static void run_command(struct engine *e, const struct cmd *c)
{
    struct report *r = report_new(cmd_answer(c->kind), c->generation);
    const int64_t traced_ns = c->kind != CMD_TRAIN ? spans_begin() : 0;
    struct err err;
    int rc;

    atomic_store(&e->running_generation, c->generation);
    if (c->kind != CMD_STOP && engine_canceled(e))
        rc = err_set(&err, ERR_CANCELED, "canceled before it began");
    else
        rc = engine_obey(e, c, r, &err);
    spans_end(traced_ns, cmd_name(c->kind), engine_kind_of(c->kind));
    if (rc < 0) {
        report_free(r);
        r = fault_of(e, c, &err);
    }
    tell_strangers(e);
    engine_at(e, PHASE_IDLE, atomic_load(&e->epoch), trainer_step(e->trainer), -1);
    engine_send(e, r);
}

static void *main_of_engine(void *arg)
{
    struct engine *e = arg;
    int running = 1;

    spans_use(trainer_track(e->trainer));
    while (running) {
        struct mail *m = mailbox_wait(&e->inbox);
        struct cmd *c = container_of(m, struct cmd, mail);

        running = c->kind != CMD_STOP;
        run_command(e, c);
        cmd_free(c);
    }
    set_coll(e, NULL);
    trainer_close(e->trainer);
    return NULL;
}

/* ---- from other threads ---- */

int engine_new(const struct engine_options *o, struct mailbox *reports, struct engine **out,
               struct err *err)
{
    struct trainer_options to = {.n_threads = o->n_threads, .run_dir = o->run_dir};
    struct trainer_hooks hooks = {.report = engine_send,
                                  .requests = engine_requests,
                                  .saved = engine_saved,
                                  .canceled = engine_canceled,
                                  .at = engine_at,
                                  .stepped = engine_stepped};
    struct engine *e;
    int rc;

    if (device_is_cuda(o->device)) {
        ASSERT(o->plugin && device_index(o->device) >= 0);
        to.plugin = o->plugin;
        to.gpu = device_index(o->device);
        to.keep_bytes = -1;
    }
    e = xcalloc(1, sizeof *e);
    e->plugin = to.plugin;
    e->has_secret = o->has_secret;
    hooks.arg = e;
    e->reports = reports;
    e->faults = to.faults = faults_new(engine_announce, e);
    e->trainer = trainer_new(&to, &hooks);
    atomic_init(&e->aborted_generation, -1);
    atomic_init(&e->bucket, -1);
    atomic_init(&e->since_ns, clock_mono_ns());
    pthread_mutex_init(&e->coll_lock, NULL);
    mailbox_init(&e->inbox, NULL, NULL);
    rc = pthread_create(&e->thread, NULL, main_of_engine, e);
    if (rc != 0) {
        e->thread = 0;
        err_sys(err, rc, "starting the engine's thread");
        engine_free(e);
        return err->code;
    }
    *out = e;
    return 0;
}

void engine_post(struct engine *e, struct cmd *c)
{
    if (c->generation > atomic_load(&e->posted_generation))
        atomic_store(&e->posted_generation, c->generation);
    mailbox_put(&e->inbox, &c->mail);
}

void engine_request(struct engine *e, enum engine_request r) { atomic_fetch_or(&e->requests, r); }

void engine_abort(struct engine *e)
{
    atomic_store(&e->aborted_generation, atomic_load(&e->posted_generation));
    pthread_mutex_lock(&e->coll_lock);
    if (e->coll)
        coll_abort(e->coll);
    pthread_mutex_unlock(&e->coll_lock);
    trainer_interrupt(e->trainer);
    faults_announced(e->faults); /* the loop may not answer any more */
}

void engine_trace(struct engine *e, int64_t number, int64_t duration_ns)
{
    trainer_trace(e->trainer, number, duration_ns);
}

void engine_injected(struct engine *e) { faults_announced(e->faults); }

/* Take the missing link and the number of strangers from the coll.  The lock is needed, because the
 * engine may be making or freeing the coll. */
static void note_links(struct engine *e, struct progress *out)
{
    struct coll_stats s = {0};

    pthread_mutex_lock(&e->coll_lock);
    if (e->coll && !coll_is_device(e->coll)) {
        coll_stats(e->coll, &s);
        out->unlinked = 1 + coll_tcp_unlinked(e->coll);
    }
    pthread_mutex_unlock(&e->coll_lock);
    out->n_strangers = s.n_strangers;
}

void engine_progress(struct engine *e, struct progress *out)
{
    *out = (struct progress){
        .generation = atomic_load(&e->running_generation),
        .epoch = atomic_load_explicit(&e->epoch, memory_order_relaxed),
        .step = atomic_load_explicit(&e->step, memory_order_relaxed),
        .phase = (enum phase)atomic_load_explicit(&e->phase, memory_order_relaxed),
        .bucket = atomic_load_explicit(&e->bucket, memory_order_relaxed),
        .since_ns = atomic_load_explicit(&e->since_ns, memory_order_relaxed),
        .n_steps = atomic_load_explicit(&e->n_steps, memory_order_relaxed),
        .wall_ns = atomic_load_explicit(&e->wall_ns, memory_order_relaxed),
        .busy_ns = atomic_load_explicit(&e->busy_ns, memory_order_relaxed),
    };
    ring_head(trainer_ring(e->trainer), &out->head);
    if (out->head.generation != out->generation) /* not formed yet */
        out->head = (struct ring_head){.generation = out->generation};
    note_links(e, out);
}

int engine_ring(const struct engine *e, struct collective out[RING_LEN])
{
    return ring_read(trainer_ring(e->trainer), out);
}

static void free_cmd(struct mail *m) { cmd_free(container_of(m, struct cmd, mail)); }

void engine_free(struct engine *e)
{
    if (!e)
        return;
    if (e->thread) {
        engine_abort(e);
        engine_post(e, cmd_new(CMD_STOP, 0));
        pthread_join(e->thread, NULL);
    }
    trainer_free(e->trainer);
    faults_free(e->faults);
    mailbox_fini(&e->inbox, free_cmd);
    pthread_mutex_destroy(&e->coll_lock);
    free(e);
}
