/* trainer - opens a job, prepares and forms.
 *
 * Epochs are in epoch.c, a step is in step.c. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/device.h"
#include "optim/groups.h"
#include "optim/optimizer.h"
#include "program/program.h"
#include "train/flip.h"
#include "train/trainer_impl.h"

/* One bucket's size: large enough that small models reduce in one piece or two (a collective costs
 * some hundred microseconds on TCP), small enough that large ones overlap with backward. */
enum { BUCKET_BYTES = 4 << 20 };

enum { MOST_WORKERS = 16, THREADS_A_WORKER = 8 }; /* unless the job says (n_workers) */

struct trainer *trainer_new(const struct trainer_options *o, const struct trainer_hooks *hooks)
{
    struct trainer *t = xcalloc(1, sizeof *t);

    t->o = *o;
    t->o.run_dir = o->run_dir ? xstrdup(o->run_dir) : NULL;
    t->hooks = *hooks;
    t->ring = ring_new();
    t->warned_step = -1;
    if (t->o.run_dir)
        t->saver = saver_new(t->o.run_dir,
                             &(struct saver_hooks){hooks->arg, hooks->report, hooks->canceled});
    return t;
}

/* The order is that of coll/device.h. */
void trainer_leave(struct trainer *t)
{
    struct err err;

    if (t->coll && coll_is_device(t->coll))
        (void)coll_device_quiesce(t->coll, 0, &err);
    tapes_free(t->tapes);
    t->tapes = NULL;
    if (t->reducer)
        reducer_leave(t->reducer);
    coll_free(t->coll);
    t->coll = NULL;
    programs_free(t->programs);
    t->programs = NULL;
    t->n_flights = 0;
}

void trainer_close(struct trainer *t)
{
    trainer_leave(t);
    feed_free(t->train_feed);
    feed_free(t->valid_feed);
    t->train_feed = t->valid_feed = NULL;
    reducer_free(t->reducer);
    t->reducer = NULL;
    update_free(t->update);
    t->update = NULL;
    buffers_free(t->buffers);
    t->buffers = NULL;
    if (t->state)
        t->closed_at = t->state->at.step;
    state_free(t->state);
    t->state = NULL;
    backend_close(t->backend);
    t->backend = NULL;
}

void trainer_free(struct trainer *t)
{
    if (!t)
        return;
    saver_free(t->saver);
    trainer_close(t);
    layout_free(t->layout);
    dataset_close(t->train_set);
    dataset_close(t->valid_set);
    job_free(t->job);
    ring_free(t->ring);
    free((char *)t->o.run_dir);
    free(t);
}

struct backend *trainer_backend(const struct trainer *t) { return t->backend; }
const struct job *trainer_job(const struct trainer *t) { return t->job; }
const char *trainer_job_name(const struct trainer *t) { return t->job->name; }

struct ring *trainer_ring(struct trainer *t) { return t->ring; }

int64_t trainer_step(const struct trainer *t)
{
    return t->state ? t->state->at.step : t->closed_at;
}

/* ---- open ---- */

static int open_job(struct trainer *t, const struct cmd *c, struct err *err)
{
    int rc = job_parse((const char *)c->open.job.data, c->open.job.len, "the driver's job", NULL,
                       &t->job, err);

    if (rc == 0 && c->open.data_dir)
        rc = job_use_data(t->job, c->open.data_dir, err);
    return rc;
}

static int cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                       : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static int n_threads(const struct trainer *t, int n_local)
{
    int share = cores() / (n_local > 0 ? n_local : 1);

    return t->o.n_threads > 0 ? t->o.n_threads : share > 0 ? share : 1;
}

/* Threads that decode pictures.  On a CPU training itself takes far longer than they do, and wants
 * the cores. */
static int n_workers(const struct trainer *t)
{
    const int n = n_threads(t, 1);

    return (int)(t->o.plugin ? min_i64(n, MOST_WORKERS) : ceil_div_i64(n, THREADS_A_WORKER));
}

/* *out is NULL where the job names no data for validation. */
static int open_set(const struct trainer *t, enum dataset_purpose purpose, struct dataset **out,
                    struct err *err)
{
    const struct job *job = t->job;
    const int64_t *context = job_field(job, "model.context"),
                  *vocab = job_field(job, "model.vocab");
    const struct dataset_request request = {.purpose = purpose,
                                            .seed = (uint64_t)job->train.seed,
                                            .context = context ? *context : 0,
                                            .vocab = vocab ? *vocab : 0,
                                            .n_workers = n_workers(t)};

    if (dataset_open(out, &job->data, &request, err) < 0)
        return err_wrap(err, "%s data", purpose == DATASET_TRAIN ? "training" : "validation");
    return 0;
}

static int check_sets_agree(const struct trainer *t, struct err *err)
{
    struct buf train = {0}, valid = {0};

    if (!t->valid_set || sample_equal(&t->train_set->spec, &t->valid_set->spec))
        return 0;
    sample_print(&t->train_set->spec, &train);
    sample_print(&t->valid_set->spec, &valid);
    err_set(err, ERR_CONFIG,
            "validation samples are %s, training samples are %s: both must be alike",
            buf_cstr(&valid), buf_cstr(&train));
    buf_fini(&valid);
    buf_fini(&train);
    return err->code;
}

static int open_data(struct trainer *t, struct err *err)
{
    const struct job_train *train = &t->job->train;
    int rc = open_set(t, DATASET_TRAIN, &t->train_set, err);

    if (rc == 0)
        rc = open_set(t, DATASET_VALIDATION, &t->valid_set, err);
    if (rc == 0 && !t->valid_set && loop_is_wanted(t->job))
        rc = err_set(err, ERR_CONFIG,
                     "train.best, train.early_stop and schedule plateau decide by validation, and "
                     "the job names no data for it (data.validation)");
    if (rc == 0)
        rc = check_sets_agree(t, err);
    if (rc < 0)
        return rc;
    t->spec = &t->train_set->spec;
    t->sampler = (struct sampler){.n_samples = t->train_set->n_samples,
                                  .global_batch = train->global_batch,
                                  .seed = (uint64_t)train->seed,
                                  .drop_last = train->drop_last,
                                  .in_order = !t->job->data.shuffle};
    if (sampler_check(&t->sampler, err) < 0)
        return err->code;
    t->steps_per_epoch = sampler_steps_per_epoch(&t->sampler);
    t->total_steps = train->epochs * t->steps_per_epoch;
    if (train->max_steps > 0)
        t->total_steps = min_i64(t->total_steps, train->max_steps);
    return 0;
}

int trainer_is_regression(const struct trainer *t)
{
    const enum loss loss = t->job->model.loss;

    return (loss == LOSS_MSE || loss == LOSS_L1) &&
           t->spec->field[sample_target(t->spec)].role == SAMPLE_REAL;
}

/* The layout does not depend on the batch size, so a batch of 1 serves. */
static int make_layout(struct trainer *t, struct err *err)
{
    struct graph *g = NULL;
    int rc = model_build(&t->job->model, t->spec, 1, 1, 0, &g, err);

    if (rc == 0)
        rc = groups_freeze(&t->job->optimizer, g, err);
    if (rc == 0)
        rc = program_differentiate(g, err);
    if (rc == 0)
        rc = program_set_precision(g, programs_precision(t->job, 0), err);
    if (rc == 0)
        rc = layout_new(g, BUCKET_BYTES, &t->layout, err);
    graph_free(g);
    return rc;
}

/* The maker of the gradients' memory: the plugin's collectives if there will be other ranks, or
 * NULL for the backend. */
static const struct coll_device_ops *shared_memory(const struct trainer *t)
{
    const int64_t most = max_i64(t->n_ranks, t->job->cluster.max_ranks);

    return t->o.plugin && most > 1 ? t->o.plugin->coll : NULL;
}

static void warn(void *arg, const char *text)
{
    struct trainer *t = arg;
    struct report *r = report_new(REPORT_WARNING, 0);

    r->warning.text = xstrdup(text);
    t->hooks.report(t->hooks.arg, r);
}

static const struct strategy_ops *strategy_of(const struct trainer *t)
{
    return t->o.strategy ? t->o.strategy : t->job->strategy.kind;
}

/* state_new gives every rank the whole of each slot, and nothing divides one among the ranks yet.
 */
static int check_slots(const struct slot_def *const *slot, int n, struct err *err)
{
    for (int i = 0; i < n; i++)
        if (slot[i]->placement == SLOT_SHARDED)
            return err_set(err, ERR_UNSUPPORTED,
                           "the slot \"%s\" wants to be divided among the ranks (SLOT_SHARDED), "
                           "which the engine cannot do",
                           slot[i]->name);
    return 0;
}

/* The state's rows: of every job, the optimizer's, the strategy's, and the loop's. */
static int make_slots(struct trainer *t, struct err *err)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS + STRATEGY_MAX_SLOTS + 1];
    const struct strategy_ops *s = strategy_of(t);
    int n = optimizer_slots(&t->job->optimizer, slot);

    ASSERT(s->n_slots <= STRATEGY_MAX_SLOTS);
    for (int i = 0; i < s->n_slots; i++)
        slot[n++] = s->slot[i];
    if (loop_is_wanted(t->job))
        slot[n++] = &slot_loop;
    return check_slots(slot, n, err) < 0
               ? err->code
               : state_new(t->backend, t->layout, slot, n, &t->state, err);
}

static int make_memory(struct trainer *t, struct err *err)
{
    const struct job_train *train = &t->job->train;
    const struct plugin_choices choices = {.allow_tf32 = train->tf32,
                                           .max_workspace = (size_t)train->max_workspace << 20,
                                           .autotune = train->autotune,
                                           .keep_plans = train->plan_cache,
                                           .warn = warn,
                                           .warn_arg = t};
    int rc = t->o.plugin ? t->o.plugin->open(t->o.gpu, &t->backend, err)
                         : backend_open_cpu(n_threads(t, 1), &t->backend, err);

    if (rc == 0)
        rc = job_check_backend(t->job, t->backend->ops->name, err);
    if (rc == 0 && t->o.plugin && t->o.plugin->configure)
        t->o.plugin->configure(t->backend, &choices);
    if (rc == 0)
        rc = make_slots(t, err);
    if (rc == 0)
        rc = buffers_new(t->backend, shared_memory(t), t->state, t->job->train.accumulate > 1,
                         &t->buffers, err);
    if (rc == 0)
        rc = update_new(t->job, t->backend, t->state, t->buffers, &t->update, err);
    if (rc == 0 && t->saver)
        rc = saver_open(t->saver, t->state, (int)t->job->checkpoint.keep, err);
    return rc;
}

static int make_reducer(struct trainer *t, struct err *err)
{
    struct reducer_options o = {
        .strategy = strategy_of(t),
        .options = t->o.strategy ? NULL : t->job->strategy.options,
        .backend = t->backend,
        .layout = t->layout,
        .grad = t->buffers->grad,
        .param = state_data(t->state, &slot_parameters),
        .control = t->buffers->control,
        .waits = t->buffers->numbers->waits,
        .ring = t->ring,
        .hooks = {.exchange = {.arg = t, .at = step_at, .is_left_out = skip_if_due},
                  .spoil = flip_if_due}};

    for (int i = 0; i < o.strategy->n_slots; i++)
        o.slot[i] = state_data(t->state, o.strategy->slot[i]);
    return reducer_new(&o, &t->reducer, err);
}

static int make_feeds(struct trainer *t, struct err *err)
{
    int rc = feed_new(t->backend, t->train_set, 0, t->o.keep_bytes, &t->train_feed, err);

    if (rc == 0 && t->valid_set)
        rc = feed_new(t->backend, t->valid_set, FEED_MARKS, t->o.keep_bytes, &t->valid_feed, err);
    return rc;
}

/* Of both sets, into t->fingerprint. */
static int take_fingerprint(struct trainer *t, struct err *err)
{
    struct hash128 h[2] = {{0, 0}, {0, 0}};
    int rc = dataset_fingerprint(t->train_set, &h[0], err);

    if (rc == 0 && t->valid_set)
        rc = dataset_fingerprint(t->valid_set, &h[1], err);
    t->fingerprint = hash_of(h, sizeof h);
    return rc;
}

/* The folder of the data as the run's job.yaml has it, if the present job has another one; for
 * free().  NULL: it has not, or there is no such folder. */
static char *former_data_path(const struct trainer *t, const char *run_dir)
{
    char *path = xasprintf("%s/job.yaml", run_dir), *former = NULL;
    const char *const *now = job_field(t->job, "data.path"), *const * then;
    struct job *old = NULL;
    struct err ignored;

    if (job_load(path, NULL, 0, &old, &ignored) == 0) {
        then = job_field(old, "data.path");
        if (then && *then && !(now && *now && !strcmp(*then, *now)))
            former = xstrdup(*then);
    }
    job_free(old);
    free(path);
    return former;
}

/* The data may have moved, but they must be those that the run has been trained with. */
static int check_data(const struct trainer *t, const struct ckpt *c, const char *run_dir,
                      struct err *err)
{
    static const struct hash128 unknown = {0};
    char want[HASH_TEXT_LEN], seen[HASH_TEXT_LEN], *former;

    if (c->state.steps_per_epoch != t->steps_per_epoch)
        return err_set(
            err, ERR_CONFIG,
            "%s: was trained with %lld steps an epoch, these data give %lld; resume with "
            "the data and global_batch of the run",
            c->path, (long long)c->state.steps_per_epoch, (long long)t->steps_per_epoch);
    if (hash_equal(c->state.data, t->fingerprint) || hash_equal(c->state.data, unknown))
        return 0;
    hash_to_text(c->state.data, want);
    hash_to_text(t->fingerprint, seen);
    former = former_data_path(t, run_dir);
    err_set(err, ERR_CONFIG,
            "%s: was trained with other data: their fingerprint is %.8s, that of the data now is "
            "%.8s; resume with the run's data%s%s, or start a new run from its weights "
            "(model.init.name=file, model.init.path=%s/model.safetensors)",
            c->path, want, seen, former ? ", which were in " : "", former ? former : "", c->path);
    free(former);
    return err->code;
}

static int resume(struct trainer *t, const char *run_dir, struct err *err)
{
    struct ckpt *c = NULL;
    int rc = ckpt_load_latest(run_dir, warn, t, &c, err);

    if (rc == CKPT_NONE) {
        warn(t, "resume: the run has no checkpoint yet: starting from the beginning");
        return state_init(t->state, t->job, err);
    }
    if (rc == 0)
        rc = check_data(t, c, run_dir, err);
    if (rc == 0)
        rc = state_init_unsaved(t->state, t->job, err);
    if (rc == 0)
        rc = state_load(t->state, c, err);
    if (rc == 0)
        t->state->at.data = t->fingerprint; /* an old checkpoint has none */
    if (rc == 0)
        t->loaded_step = t->state->at.step;
    ckpt_close(c);
    return rc < 0 ? err_wrap(err, "resume") : 0;
}

/* Followers take what is broadcast from another rank. */
static int make_state(struct trainer *t, const struct cmd *c, struct err *err)
{
    t->state->at =
        (struct ckpt_state){.steps_per_epoch = t->steps_per_epoch, .data = t->fingerprint};
    t->state->warn = warn;
    t->state->warn_arg = t;
    if (c->open.rank != 0)
        return state_init_unsaved(t->state, t->job, err);
    return c->open.resume ? resume(t, c->open.resume, err) : state_init(t->state, t->job, err);
}

static void describe_layout(const struct layout *l, struct report *r)
{
    int n = l->n_params + l->n_states;

    r->opened.layout = l->hash;
    r->opened.n_tensors = n;
    r->opened.tensor = xcalloc((size_t)n, sizeof *r->opened.tensor);
    for (int i = 0; i < n; i++) {
        const struct segment *s = i < l->n_params ? &l->param[i] : &l->state[i - l->n_params];

        r->opened.tensor[i] = (struct tensor_hash){xstrdup(s->name), segment_hash(s)};
        if (i < l->n_params)
            r->opened.n_parameters += s->length;
    }
}

int trainer_open(struct trainer *t, const struct cmd *c, struct report *opened, struct err *err)
{
    int rc = open_job(t, c, err);

    t->rank = c->open.rank;
    t->n_ranks = c->open.n_ranks;
    if (rc == 0)
        rc = job_check_supported(t->job, t->n_ranks, t->o.plugin ? "cuda" : "cpu", err);
    if (rc == 0)
        rc = open_data(t, err);
    if (rc == 0)
        rc = make_layout(t, err);
    if (rc == 0)
        rc = flip_check(c->open.inject, t->layout, err);
    if (rc == 0)
        rc = make_memory(t, err);
    if (rc == 0)
        rc = make_reducer(t, err);
    if (rc == 0)
        rc = make_feeds(t, err);
    if (rc == 0)
        rc = take_fingerprint(t, err);
    if (rc == 0)
        rc = make_state(t, c, err);
    if (rc == 0)
        rc = loop_read(&t->loop, t->state, err);
    if (rc < 0)
        return rc;
    describe_layout(t->layout, opened);
    opened->opened.data = t->fingerprint;
    opened->opened.n_train = t->train_set->n_samples;
    opened->opened.n_validation = t->valid_set ? t->valid_set->n_samples : 0;
    opened->opened.step = t->state->at.step;
    opened->opened.steps_per_epoch = t->steps_per_epoch;
    opened->opened.is_regression = trainer_is_regression(t);
    opened->opened.stops_early = loop_stops(&t->loop, t->job);
    return 0;
}

/* ---- prepare, form ---- */

static int fit_feeds(struct trainer *t, struct err *err)
{
    int accumulate = (int)t->job->train.accumulate;
    int rc =
        feed_fit(t->train_feed, sampler_largest_micro(&t->sampler, t->n_ranks, accumulate), err);

    if (rc == 0 && t->valid_feed)
        rc = feed_fit(t->valid_feed, programs_validation_batch(t->programs), err);
    return rc;
}

int trainer_prepare(struct trainer *t, int rank, int n_ranks, int n_local, struct err *err)
{
    struct programs_options o = {.job = t->job,
                                 .spec = t->spec,
                                 .sampler = &t->sampler,
                                 .n_validation = t->valid_set ? t->valid_set->n_samples : 0,
                                 .rank = rank,
                                 .n_ranks = n_ranks};
    int rc;

    ASSERT(t->state);
    trainer_leave(t);
    t->rank = rank;
    t->n_ranks = n_ranks;
    t->has_stepped = 0;
    backend_set_threads(t->backend, n_threads(t, n_local));
    rc = programs_new(&o, t->backend, t->state, t->buffers, &t->programs, err);
    return rc == 0 ? fit_feeds(t, err) : rc;
}

void trainer_take_coll(struct trainer *t, struct coll *coll)
{
    ASSERT(!t->coll && coll_size(coll) == t->n_ranks);
    t->coll = coll;
    reducer_join(t->reducer, coll);
}

/* Faults happen between kernels, so no rank records where any rank has some.  Nor does any rank
 * record where the strategy's collectives may differ from rank to rank, because all ranks must
 * launch the same ones together. */
static int may_record(const struct trainer *t)
{
    return t->job->train.record && !faults_n(t->o.faults) &&
           (t->n_ranks == 1 || reducer_promises(t->reducer)->collectives_are_equal);
}

static int agree_to_record(struct trainer *t, int *records, struct err *err)
{
    const size_t size = (size_t)t->n_ranks;
    const uint8_t mine = (uint8_t)*records;
    uint8_t *all;
    int rc;

    if (!coll_is_device(t->coll))
        return 0;
    all = xcalloc(size, 1);
    rc = coll_allgather(t->coll, &mine, 1, all, err);
    *records = rc == 0 && !memchr(all, 0, size);
    free(all);
    return rc < 0 ? err_wrap(err, "agreeing on whether steps are recorded") : 0;
}

/* One rank's state is enough for all, or the strategy puts it together itself. */
static int take_source(struct trainer *t, int source, struct err *err)
{
    if (reducer_promises(t->reducer)->recovery == STRATEGY_NEEDS_ONE_RANK &&
        state_broadcast(t->state, t->coll, source, err) < 0)
        return err->code;
    return reducer_form(t->reducer, source, err);
}

/* These collectives tell the ring nothing, so all of them have one entry in it. */
static int take_state(struct trainer *t, int source, int *records, struct err *err)
{
    int64_t id = ring_hand(t->ring, t->state->at.step, RING_STATE, 0, PHASE_FORM);
    int rc;

    ring_run(t->ring, id, clock_mono_ns());
    rc = take_source(t, source, err);
    if (rc == 0)
        rc = agree_to_record(t, records, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    return rc;
}

static int register_reduced(struct trainer *t, struct err *err)
{
    return coll_device_register(t->coll, t->buffers->grad,
                                layout_grad_bytes(t->layout, t->layout->grad_dtype), err);
}

/* The scale of the first step; each step's result tells that of the next one. */
static int read_loss_scale(struct trainer *t, struct err *err)
{
    float scaler[SCALER_LEN] = {0};
    int rc = t->layout->has_scaler
                 ? backend_copy_out(t->backend, scaler, state_data(t->state, &slot_scaler),
                                    sizeof scaler, err)
                 : 0;

    t->loss_scale = (double)scaler[SCALER_SCALE];
    return rc;
}

int trainer_form(struct trainer *t, int source, struct err *err)
{
    int records = may_record(t);
    int rc;

    t->hooks.at(t->hooks.arg, PHASE_FORM, 0, t->state->at.step, -1);
    if (t->n_ranks > 1 && coll_is_device(t->coll) && register_reduced(t, err) < 0)
        return err->code;
    rc = t->n_ranks == 1 ? reducer_form(t->reducer, 0, err) : take_state(t, source, &records, err);
    if (rc < 0)
        return rc;
    t->tapes = tapes_new(t->backend, reducer_exchange(t->reducer), records);
    rc = read_loss_scale(t, err);
    if (rc == 0)
        rc = loop_read(&t->loop, t->state, err);
    return rc == 0 ? update_refresh(t->update, err) : rc;
}

/* ---- memory ---- */

double rss_mib(void)
{
    char line[256] = "";
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0, resident = 0;

    if (f && fgets(line, sizeof line, f) && sscanf(line, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1048576.0;
}

double peak_rss_mib(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024.0;
}
