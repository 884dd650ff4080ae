/* trainer - opens a job, prepares for a formation, and forms.
 *
 * The order of calls is in trainer.h.  Epochs, validation and checkpoints are in epoch.c, and a
 * step is in step.c. */
#include <inttypes.h>
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
#include "train/meet.h"
#include "train/predict.h"
#include "train/shards.h"
#include "train/trainer_impl.h"

enum { MOST_WORKERS = 16, THREADS_A_WORKER = 8 }; /* for n_workers */

struct trainer *trainer_new(const struct trainer_options *o, const struct trainer_hooks *hooks)
{
    struct trainer *t = xcalloc(1, sizeof *t);

    t->o = *o;
    t->o.run_dir = o->run_dir ? xstrdup(o->run_dir) : NULL;
    t->hooks = *hooks;
    t->ring = ring_new();
    t->warned_step = t->met_step = -1;
    if (t->o.run_dir)
        t->saver = saver_new(t->o.run_dir,
                             &(struct saver_hooks){hooks->arg, hooks->report, hooks->canceled});
    return t;
}

/* The order of the calls matters on a device: coll/device.h prescribes it. */
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
    npy_file_free(t->predictions);
    t->predictions = NULL;
    feed_free(t->train_feed);
    feed_free(t->valid_feed);
    t->train_feed = t->valid_feed = NULL;
    reducer_free(t->reducer);
    t->reducer = NULL;
    update_free(t->update);
    t->update = NULL;
    average_free(t->average);
    t->average = NULL;
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
    balance_reset(t);
    buckets_reset(&t->buckets);
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

    if (t->shares.n > 0)
        return t->shares.n_threads;
    return t->o.n_threads > 0 ? t->o.n_threads : share > 0 ? share : 1;
}

/* The number of threads that decode pictures.  On a CPU, computing takes far longer than decoding
 * and needs the cores, so there are few of them. */
static int n_workers(const struct trainer *t)
{
    const int n = n_threads(t, 1);

    return (int)(t->o.plugin ? min_i64(n, MOST_WORKERS) : ceil_div_i64(n, THREADS_A_WORKER));
}

/* Open the data set for `purpose`.  *out is NULL if the job names no data for validation. */
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
                                            .n_workers = n_workers(t),
                                            .ignored = &job->data.ignore_index};

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

/* Check the length of the warm-up.  The number of steps in an epoch is known only now, when the
 * data are open. */
static int check_warmup(const struct trainer *t, struct err *err)
{
    const int64_t n = t->job->schedule.warmup_epochs, most = t->job->train.max_steps;

    if (most == 0 || n < ceil_div_i64(most, t->steps_per_epoch))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "schedule.warmup_epochs is %" PRId64 ", of %" PRId64
                   " steps each, want fewer steps in all than train.max_steps, %" PRId64,
                   n, t->steps_per_epoch, most);
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
                                  .in_order = !t->job->data.shuffle,
                                  .n_shares = t->shares.n};
    if (sampler_check(&t->sampler, err) < 0)
        return err->code;
    t->steps_per_epoch = sampler_steps_per_epoch(&t->sampler);
    t->total_steps = train->epochs * t->steps_per_epoch;
    if (train->max_steps > 0)
        t->total_steps = min_i64(t->total_steps, train->max_steps);
    return check_warmup(t, err);
}

int trainer_is_regression(const struct trainer *t)
{
    const enum loss loss = t->job->model.loss;

    return (loss == LOSS_MSE || loss == LOSS_L1) &&
           t->spec->field[sample_target(t->spec)].role == SAMPLE_REAL;
}

static const struct strategy_ops *strategy_of(const struct trainer *t)
{
    return t->o.strategy ? t->o.strategy : strategy_choose(&t->job->strategy);
}

/* Prepare the layout for divided parameters.  Frozen parameters are refused: they belong to no
 * bucket, so no collective would gather them. */
static int divide_layout(struct trainer *t, struct err *err)
{
    t->layout->gathers = strategy_of(t)->promises.params_are_divided;
    if (!t->layout->gathers || t->layout->n_total == t->layout->n_trained)
        return 0;
    return err_set(
        err, ERR_CONFIG,
        "strategy.zero 3 divides all parameters, but optimizer.groups freezes some; want "
        "strategy.zero 2");
}

static int check_top5(const char *key, enum goal goal, struct err *err)
{
    static const char *const goals[] = {GOAL_LIST(WORD_NAME) NULL};

    if (!goal_is_top5(goal))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "%s is %s, but the network has at most 5 classes, all among the five likeliest; "
                   "want %s",
                   key, goals[goal], goals[goal_loss(goal)]);
}

/* Whether the top-5 accuracy is counted depends on the classes, which may come from the data. */
static int find_top5(struct trainer *t, const struct graph *g, struct err *err)
{
    const struct job *job = t->job;
    const enum goal *plateau = job_field(job, "schedule.metric");
    int rc = 0;

    t->counts_top5 = model_counts_top5(&job->model, g);
    if (t->counts_top5)
        return 0;
    rc = check_top5("train.best.metric", job->train.best.goal, err);
    if (rc == 0 && job->train.early_stop.patience > 0)
        rc = check_top5("train.early_stop.metric", job->train.early_stop.goal, err);
    return rc == 0 && plateau ? check_top5("schedule.metric", *plateau, err) : rc;
}

/* The layout does not depend on the batch size, so a batch of 1 serves. */
static int make_layout(struct trainer *t, struct err *err)
{
    struct graph *g = NULL;
    int rc = model_build(&t->job->model, t->spec, 1, 1, 0, &g, err);

    if (rc == 0)
        rc = find_top5(t, g, err);
    if (rc == 0)
        rc = groups_freeze(&t->job->optimizer, g, err);
    if (rc == 0)
        rc = program_differentiate(g, err);
    if (rc == 0)
        rc = program_set_precision(g, programs_precision(t->job, 0), err);
    if (rc == 0)
        rc = layout_new(g, buckets_at_first(t), &t->layout, err);
    graph_free(g);
    return rc == 0 ? divide_layout(t, err) : rc;
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

/* Refuse slots that ask to be divided among the ranks, because nothing divides a slot by its
 * declaration yet: state_new gives every rank the whole of each slot. */
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

/* Refuse train.average with a strategy that does not leave all ranks the same whole weights after
 * each step, because each rank averages for itself. */
static int check_average(const struct job *job, const struct strategy_ops *s, struct err *err)
{
    const int64_t *zero = job_field(job, "strategy.zero");

    if (s->promises.replicas_are_equal && s->promises.n_holders == 0 &&
        !s->promises.updates_are_own)
        return 0;
    if (zero && *zero > 0)
        return err_set(err, ERR_CONFIG,
                       "train.average keeps averages of whole weights on every rank, but "
                       "strategy.zero is %d, which divides the state among them; leave "
                       "train.average out, or take strategy.zero 0",
                       (int)*zero);
    return err_set(err, ERR_CONFIG,
                   "train.average needs equal weights on all ranks, but with strategy.name %s they "
                   "differ; leave train.average out, or take another strategy",
                   s->group.name);
}

/* The state's rows: of every job, the optimizer's, the strategy's, and the loop's. */
static int make_slots(struct trainer *t, struct err *err)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS + STRATEGY_MAX_SLOTS + 1 + AVERAGE_MOST_SLOTS];
    const struct strategy_ops *s = strategy_of(t);
    int n = optimizer_slots(&t->job->optimizer, slot);
    const struct state_division division = {.n_divided = n,
                                            .n_holders = s->promises.n_holders,
                                            .gradients = s->promises.gradients_are_divided,
                                            .params = s->promises.params_are_divided,
                                            .whole = t->rank == 0};

    ASSERT(s->n_slots <= STRATEGY_MAX_SLOTS);
    for (int i = 0; i < s->n_slots; i++)
        slot[n++] = s->slot[i];
    if (loop_is_wanted(t->job))
        slot[n++] = &slot_loop;
    n += average_list_slots(t->job, t->layout, slot + n);
    if (average_is_wanted(t->job) && check_average(t->job, s, err) < 0)
        return err->code;
    if (check_slots(slot, n, err) < 0)
        return err->code;
    return state_new_divided(t->backend, t->layout, slot, n, &division, &t->state, err);
}

/* For state->shards: make the update that this rank did not make when the other ranks did. */
static int roll(void *arg, const double *check, struct err *err)
{
    struct trainer *t = arg;

    memcpy(t->buffers->numbers->check, check, sizeof t->buffers->numbers->check);
    memcpy(t->state->shards->check, check, sizeof t->state->shards->check);
    return update_apply(t->update, err);
}

/* Make the update anew, because each formation has other shards. */
static int remake_update(struct trainer *t, struct err *err)
{
    update_free(t->update);
    t->update = NULL;
    if (shards_make_sums(t->state, err) < 0)
        return err->code;
    return update_new(t->job, t->backend, t->state, t->buffers, &t->update, err);
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
        rc = buffers_new(t->backend, shared_memory(t), t->state,
                         t->job->train.accumulate > 1 && t->shares.n == 0, &t->buffers, err);
    if (rc == 0 && t->state->shards) {
        t->state->shards->roll = roll;
        t->state->shards->roll_arg = t;
    } else if (rc == 0) {
        rc = update_new(t->job, t->backend, t->state, t->buffers, &t->update, err);
    }
    if (rc == 0 && average_is_wanted(t->job))
        rc = average_new(t->job, t->state, t->buffers, t->steps_per_epoch, t->total_steps,
                         &t->average, err);
    if (rc == 0 && t->saver)
        rc = saver_open(t->saver, t->state, (int)t->job->checkpoint.keep, err);
    return rc;
}

/* Refuse cluster.rebalance where batch statistics would follow the ranks' speed.  Shares change as
 * the job runs, and with them the samples whose statistics are taken together: those of one rank,
 * or of the m-th micro-batch of all ranks. */
static int check_moving_statistics(const struct job *j, struct err *err)
{
    if (!j->cluster.rebalance)
        return 0;
    if (!j->model.sync_batch_norm)
        return err_set(err, ERR_CONFIG,
                       "cluster.rebalance is true, but with model.sync_batch_norm: false each rank "
                       "has the batch statistics of its own samples, whose number would follow its "
                       "speed; want model.sync_batch_norm: true");
    if (j->train.accumulate == 1)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "cluster.rebalance is true, but with train.accumulate %" PRId64
                   " each micro-batch has batch statistics of its own, and its samples would "
                   "follow the ranks' speed; want train.accumulate 1",
                   j->train.accumulate);
}

/* Refuse synchronised batch norm with own updates and with fixed shares.  With own updates the
 * ranks' parameters differ, so statistics over all ranks would belong to no model.  Statistics over
 * all fixed shares would need the activations of every share at the same time. */
static int check_statistics(const struct trainer *t, struct err *err)
{
    if (t->layout->n_state_total == 0)
        return 0;
    if (check_moving_statistics(t->job, err) < 0)
        return err->code;
    if (!t->job->model.sync_batch_norm)
        return 0;
    if (t->shares.n > 0)
        return err_set(err, ERR_CONFIG,
                       "model.sync_batch_norm is true, but with strategy.shards each share has its "
                       "own batch statistics; want model.sync_batch_norm: false");
    if (!strategy_of(t)->promises.updates_are_own)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "model.sync_batch_norm is true, but with strategy %s the ranks' parameters "
                   "differ, so they have no batch statistics in common; want "
                   "model.sync_batch_norm: false",
                   strategy_of(t)->group.name);
}

static int make_reducer(struct trainer *t, struct err *err)
{
    struct reducer_options o = {
        .strategy = strategy_of(t),
        .options = t->o.strategy ? NULL : t->job->strategy.options,
        .backend = t->backend,
        .layout = t->layout,
        .grad = t->buffers->grad,
        .bucket = t->buffers->bucket,
        .sums = t->state->shards ? t->state->shards->now.sums : NULL,
        .param = state_data(t->state, &slot_parameters),
        .param_bucket = t->buffers->param_bucket,
        .own_params = t->state->shards ? t->state->shards->now.data[0] : NULL,
        .check = t->buffers->numbers->check,
        .scalars = &t->buffers->numbers->scalars,
        .optimizer = &t->job->optimizer,
        .control = t->buffers->control,
        .shadow = t->buffers->shadow,
        .n_shares = t->shares.n,
        .accumulate = (int)t->job->train.accumulate,
        .waits = t->buffers->numbers->waits,
        .ring = t->ring,
        .hooks = {.exchange = {.arg = t, .at = step_at, .is_left_out = skip_if_due},
                  .spoil = flip_if_due}};

    const struct slot_def *moment[OPTIMIZER_MAX_SLOTS];
    const int n_moments = optimizer_slots(&t->job->optimizer, moment);

    for (int i = 0; i < o.strategy->n_slots; i++)
        o.slot[i] = state_data(t->state, o.strategy->slot[i]);
    for (int i = 0; i < n_moments; i++)
        o.moment[i] = state_data(t->state, moment[i]);
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

/* The data folder that the job.yaml of the run names, if the present job names another one; for
 * free().  NULL: the two are the same, or that file names none or cannot be read. */
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

/* The data may lie in another folder now, but they must be those with which the run was trained. */
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

/* For an evaluation: load only the weights.  Other slots and the position in the data are of no use
 * to it, and its data may be others. */
static int load_weights(struct trainer *t, const char *folder, int averaged, struct err *err)
{
    struct ckpt *c = NULL;
    int rc = ckpt_is_folder(folder) ? ckpt_load_folder(folder, &c, err)
                                    : ckpt_load_latest(folder, warn, t, &c, err);

    if (rc == CKPT_NONE)
        rc = err_set(err, ERR_CONFIG, "the run in %s has no checkpoint yet", folder);
    if (rc == 0)
        rc = state_init_drawn(t->state, t->job, err);
    if (rc == 0)
        rc = state_load_weights(t->state, c, averaged, err);
    if (rc == 0)
        t->state->at.step = c->state.step;
    ckpt_close(c);
    return rc < 0 ? err_wrap(err, "--checkpoint") : 0;
}

/* On rank 0, make or load the state.  Followers take theirs from another rank when ranks form. */
static int make_state(struct trainer *t, const struct cmd *c, struct err *err)
{
    t->state->at =
        (struct ckpt_state){.steps_per_epoch = t->steps_per_epoch, .data = t->fingerprint};
    t->state->warn = warn;
    t->state->warn_arg = t;
    if (c->open.rank != 0)
        return state_init_unsaved(t->state, t->job, err);
    if (c->open.evaluate)
        return load_weights(t, c->open.evaluate, c->open.averaged, err);
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
    if (rc == 0 && !t->o.strategy)
        t->shares = strategy_shares(&t->job->strategy);
    if (rc == 0)
        rc = job_check_supported(t->job, t->n_ranks, t->o.plugin ? "cuda" : "cpu", err);
    if (rc == 0)
        rc = open_data(t, err);
    if (rc == 0)
        rc = make_layout(t, err);
    if (rc == 0 && c->open.predict && t->valid_set)
        rc = predict_open(t, c->open.predict, err);
    if (rc == 0)
        rc = check_statistics(t, err);
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
    const int64_t largest = max_i64(sampler_largest_micro(&t->sampler, t->n_ranks, accumulate),
                                    programs_statistics_batch(t->programs));
    int rc = feed_fit(t->train_feed, largest, err);

    if (rc == 0 && t->valid_feed)
        rc = feed_fit(t->valid_feed, programs_validation_batch(t->programs), err);
    return rc;
}

int trainer_make_programs(struct trainer *t, struct err *err)
{
    struct programs_options o = {.job = t->job,
                                 .spec = t->spec,
                                 .sampler = &t->sampler,
                                 .n_validation = t->valid_set ? t->valid_set->n_samples : 0,
                                 .rank = t->rank,
                                 .n_ranks = t->n_ranks,
                                 .gathers = t->layout->gathers,
                                 .statistics = average_has_statistics(t->job, t->layout)};
    int rc;

    programs_free(t->programs);
    t->programs = NULL;
    rc = programs_new(&o, t->backend, t->state, t->buffers, &t->programs, err);
    return rc == 0 ? fit_feeds(t, err) : rc;
}

int trainer_prepare(struct trainer *t, int rank, int n_ranks, int n_local, struct err *err)
{
    ASSERT(t->state);
    trainer_leave(t);
    balance_reset(t);
    t->rank = rank;
    t->n_ranks = n_ranks;
    t->has_stepped = 0;
    backend_set_threads(t->backend, n_threads(t, n_local));
    return trainer_make_programs(t, err);
}

void trainer_take_coll(struct trainer *t, struct coll *coll)
{
    ASSERT(!t->coll && coll_size(coll) == t->n_ranks);
    t->coll = coll;
    reducer_join(t->reducer, coll);
}

/* 1: this rank may record its steps.  It may not if it has faults on purpose, because these happen
 * between kernels; agree_to_record then keeps all ranks from recording.  Nor may it if the
 * strategy's collectives may differ from rank to rank, because all ranks must launch the same ones
 * together. */
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

/* The ranks that are left do not hold the whole state of any step.  So rank 0 loads the newest
 * checkpoint, and all ranks go on from there. */
static int go_back(struct trainer *t, int source, struct err *err)
{
    const struct err lost = *err;
    struct ckpt *c = NULL;
    int rc = 0;

    if (t->saver)
        saver_finish(t->saver);
    if (t->rank == 0 && t->o.run_dir)
        rc = ckpt_load_latest(t->o.run_dir, warn, t, &c, err);
    if (rc == 0 && c)
        rc = shards_hold_all(t->state, err);
    if (rc == 0 && c)
        rc = state_load(t->state, c, err);
    if (rc == 0 && c) {
        char *text = xasprintf("%s: training goes back to the checkpoint of step %lld", lost.msg,
                               (long long)t->state->at.step);

        warn(t, text);
        free(text);
    }
    ckpt_close(c);
    if (rc >= 0)
        rc = state_broadcast(t->state, t->coll, source, err);
    if (rc == SHARDS_LOST && t->rank == 0) /* the cause; the other ranks' failures follow from it */
        return err_set(err, ERR_CORRUPT, "%s; and there is no checkpoint to go back to", lost.msg);
    return rc == SHARDS_LOST ? err->code : rc;
}

/* All ranks gather a divided state together, so all must know whether a checkpoint is due: rank 0
 * tells them. */
static int agree_on_checkpoint(struct trainer *t, struct err *err)
{
    uint8_t due = (uint8_t)t->is_checkpoint_due;
    const int rc = coll_broadcast(t->coll, &due, sizeof due, 0, err);

    t->is_checkpoint_due = due;
    return rc;
}

/* Bring all ranks to one state.  Either one rank's state is enough and is broadcast, or the holders
 * of shards send them, or the strategy does it in its function `form`. */
static int take_source(struct trainer *t, int source, struct err *err)
{
    int rc = meet_again(t, source, err);

    if (rc == 0 &&
        (t->state->shards || reducer_promises(t->reducer)->recovery == STRATEGY_NEEDS_ONE_RANK))
        rc = state_broadcast(t->state, t->coll, source, err);
    if (rc == SHARDS_LOST)
        rc = go_back(t, source, err);
    if (rc == 0 && t->state->shards)
        rc = agree_on_checkpoint(t, err);
    return rc == 0 ? reducer_form(t->reducer, source, err) : rc;
}

/* These collectives make no entries in the record, so all of them together get one. */
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

/* Read the loss scale for the first step.  Later scales come with each step's result. */
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
    rc = t->n_ranks == 1 && !t->state->shards ? reducer_form(t->reducer, 0, err)
                                              : take_state(t, source, &records, err);
    if (rc == 0 && t->state->shards)
        rc = remake_update(t, err);
    if (rc == 0)
        rc = buckets_form(t, err);
    if (rc < 0)
        return rc;
    balance_begin(t);
    t->tapes = tapes_new(t->backend, reducer_exchange(t->reducer), records);
    rc = read_loss_scale(t, err);
    if (rc == 0)
        rc = loop_read(&t->loop, t->state, err);
    if (rc == 0)
        rc = update_refresh(t->update, err);
    return rc == 0 ? meet_is_over(t, err) : rc;
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
