/* open - trainer_open: from the driver's job to data, layout, memory, reducer and state.
 *
 * The checks that refuse a job which this backend, these data or this strategy cannot do are here,
 * too. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "coll/device.h"
#include "import/arch.h"
#include "import/inputs.h"
#include "job/imported.h"
#include "judge/predict.h"
#include "model/layers.h"
#include "model/losses.h"
#include "optim/groups.h"
#include "optim/optimizer.h"
#include "program/program.h"
#include "state/shards.h"
#include "step/flip.h"
#include "strategy/allreduce.h"
#include "train/trainer_impl.h"

static int train_open_job(struct trainer *t, const struct cmd *c, struct err *err)
{
    int rc = job_unpack(c->open.job.data, c->open.job.len, "the driver's job", &t->job, err);

    if (rc == 0 && c->open.data_dir)
        rc = job_use_data(t->job, c->open.data_dir, err);
    return rc;
}

/* Open the data set for `purpose`.  *out is NULL if the job names no data for validation. */
static int open_set(struct trainer *t, enum dataset_purpose purpose, struct dataset **out,
                    struct err *err)
{
    struct dataset_request request = job_request(t->job, purpose);

    request.n_workers = trainer_n_workers(t);
    request.may_lack_labels = purpose == DATASET_VALIDATION && t->may_lack_labels;
    request.keeps_nothing = t->may_lack_labels;
    if (t->rank == 0) {
        request.warn = trainer_warn;
        request.warn_arg = t;
    }
    if (dataset_open(out, &t->job->data, &request, err) < 0)
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
static int open_check_warmup(const struct trainer *t, struct err *err)
{
    const int64_t n = t->job->schedule.warmup_epochs;
    const struct {
        const char *key;
        int64_t most;
    } row[] = {{"train.max_steps", t->job->train.max_steps},
               {"schedule.total_steps", t->job->schedule.total_steps}};

    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (row[i].most > 0 && n >= ceil_div_i64(row[i].most, t->steps_per_epoch))
            return err_set(err, ERR_CONFIG,
                           "schedule.warmup_epochs is %lld, of %lld steps each, want fewer steps "
                           "in all than %s, %lld",
                           (long long)n, (long long)t->steps_per_epoch, row[i].key,
                           (long long)row[i].most);
    return 0;
}

/* Refuse micro-batches that are empty in every step.  With fixed shares they are computed, too. */
static int check_micro_batches(const struct trainer *t, struct err *err)
{
    const int64_t n = t->job->train.accumulate,
                  most = sampler_largest_micro(&t->sampler, t->n_ranks, 1);

    if (t->sampler.n_shares == 0 || n <= most)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "train.accumulate is %lld with strategy.shards %d, but of the %lld training "
                   "samples a share has at most %lld, want at most %lld",
                   (long long)n, t->sampler.n_shares, (long long)t->sampler.n_samples,
                   (long long)most, (long long)most);
}

/* Refuse decisions by validation without data for it. */
static int check_decided(const struct trainer *t, struct err *err)
{
    const char *const *validation = job_field(t->job, "data.validation");
    const char *by = loop_wanted_by(t->job);

    if (t->valid_set || !by)
        return 0;
    if (validation && *validation)
        return err_set(err, ERR_CONFIG,
                       "%s decides by validation, but data.validation is %s; leave %s out, or name "
                       "data that validate",
                       by, *validation, by);
    return err_set(err, ERR_CONFIG,
                   "%s decides by validation, but the job has no data for it; leave it out, or set "
                   "%s",
                   by, validation ? "data.validation" : "data.validation_samples");
}

static int open_data(struct trainer *t, int is_evaluation, struct err *err)
{
    const struct job_train *train = &t->job->train;
    int rc = open_set(t, DATASET_TRAIN, &t->train_set, err);

    if (rc == 0)
        rc = trainer_check_classes(t, err);
    if (rc == 0)
        rc = open_set(t, DATASET_VALIDATION, &t->valid_set, err);
    if (rc == 0 && train->overfit > 0 && !is_evaluation)
        rc = trainer_overfit(t, err);
    if (rc == 0)
        rc = check_decided(t, err);
    if (rc == 0)
        rc = check_sets_agree(t, err);
    if (rc < 0)
        return rc;
    t->spec = &t->train_set->spec;
    trainer_open_outputs(t);
    t->sampler = (struct sampler){.n_samples = t->train_set->n_samples,
                                  .global_batch = train->global_batch,
                                  .seed = (uint64_t)train->seed,
                                  .drop_last = train->drop_last,
                                  .in_order = !t->job->data.shuffle || train->overfit > 0,
                                  .n_shares = t->shares.n};
    if (sampler_check(&t->sampler, err) < 0 || check_micro_batches(t, err) < 0)
        return err->code;
    t->steps_per_epoch = sampler_steps_per_epoch(&t->sampler);
    t->total_steps = job_steps(t->job, t->steps_per_epoch);
    return open_check_warmup(t, err);
}

int trainer_has_accuracy(const struct trainer *t)
{
    return !outputs_are_numbers(&t->outputs) && !loss_is_free(t->job->model.loss);
}

const struct strategy_ops *trainer_strategy(const struct trainer *t)
{
    return t->o.strategy ? t->o.strategy : strategy_choose(&t->job->strategy);
}

/* Note in the layout how parameters come to this rank. */
static void divide_layout(struct trainer *t)
{
    const struct strategy_promises *p = &trainer_strategy(t)->promises;

    t->layout->gathers = p->params_are_divided;
    t->layout->awaits_params = p->n_holders > 0 && !p->params_are_divided && !t->o.plugin;
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

/* The top-5 accuracy is counted or not by the number of classes, which may come from the data. */
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
    int rc = import_check_batch(&t->job->model, t->spec, err);

    if (rc == 0)
        rc = model_build(&t->job->model, t->spec, 1, 1, 0, &g, err);
    if (rc == 0) {
        trainer_note_outputs(t, g);
        rc = find_top5(t, g, err);
    }
    if (rc == 0)
        rc = groups_freeze(&t->job->optimizer, g, err);
    if (rc == 0)
        rc = program_differentiate(g, err);
    if (rc == 0)
        rc = programs_set_types(g, t->job, 0, err);
    if (rc == 0)
        rc = layout_new(g, buckets_at_first(t), &t->layout, err);
    graph_free(g);
    if (rc == 0)
        divide_layout(t);
    return rc;
}

/* The maker of the gradients' memory: the plugin's collectives if there will be other ranks, or
 * NULL for the backend. */
static const struct coll_device_ops *shared_memory(const struct trainer *t)
{
    const int64_t most = max_i64(t->n_ranks, t->job->cluster.max_ranks);

    return t->o.plugin && most > 1 ? t->o.plugin->coll : NULL;
}

void trainer_warn_at(struct trainer *t, int64_t step, const char *text)
{
    struct report *r = report_new(REPORT_WARNING, 0);

    r->warning.step = step;
    r->warning.text = xstrdup(text);
    t->hooks.report(t->hooks.arg, r);
}

void trainer_warn(void *arg, const char *text) { trainer_warn_at(arg, 0, text); }

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

/* Refuse train.average with a strategy that leaves ranks with different weights after a step,
 * because each rank averages for itself; and a pass for statistics, in which ranks have different
 * numbers of batches, where they would have to gather parameters equally often. */
static int check_average(const struct trainer *t, const struct strategy_ops *s, struct err *err)
{
    if (s->promises.params_are_divided && average_has_statistics(t->job, t->layout))
        return err_set(
            err, ERR_CONFIG,
            "train.average.name is swa, and the network has batch norm, whose statistics "
            "a rank cannot compute anew with strategy.zero 3; want strategy.zero 2, or "
            "train.average.name ema");
    if (s->promises.replicas_are_equal && !s->promises.updates_are_own)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "train.average needs equal weights on all ranks, but with strategy.name %s they "
                   "differ; leave train.average out, or take another strategy",
                   s->group.name);
}

static enum offload offload_of(const struct trainer *t)
{
    const int *offload = job_field(t->job, "strategy.offload");

    return offload ? (enum offload) * offload : OFFLOAD_NONE;
}

/* The state's rows: of every job, the optimizer's, the strategy's, and the loop's. */
static int make_slots(struct trainer *t, struct err *err)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS + STRATEGY_MAX_SLOTS + 1 + AVERAGE_MOST_SLOTS];
    const struct strategy_ops *s = trainer_strategy(t);
    const enum offload offload = offload_of(t);
    int n = optimizer_slots(&t->job->optimizer, slot);
    const struct state_division division = {
        .n_divided = n + average_is_wanted(t->job),
        .n_holders = s->promises.n_holders,
        .gradients = s->promises.gradients_are_divided,
        .params = s->promises.params_are_divided,
        .whole = t->rank == 0,
        .n_offloaded = offload != OFFLOAD_NONE ? n + average_is_wanted(t->job) : 0,
        .offloads_params = offload == OFFLOAD_ALL && s->promises.params_are_divided};

    ASSERT(s->n_slots <= STRATEGY_MAX_SLOTS);
    n += average_list_slots(t->job, t->layout, slot + n); /* the divided one is the first of them */
    for (int i = 0; i < s->n_slots; i++)
        slot[n++] = s->slot[i];
    if (loop_is_wanted(t->job))
        slot[n++] = &slot_loop;
    if (average_is_wanted(t->job) && check_average(t, s, err) < 0)
        return err->code;
    if (check_slots(slot, n, err) < 0)
        return err->code;
    return state_new_divided(t->backend, t->layout, slot, n, &division, &t->state, err);
}

/* For state->shards: make the update that this rank did not make when the other ranks did.  A
 * device has marked the step as void, because its sum of checks was stopped. */
static int open_roll(void *arg, const double *check, struct err *err)
{
    struct trainer *t = arg;
    float *is_void = t->step.buffers->control + CONTROL_VOID;
    double *here = t->step.buffers->numbers->check;
    int rc = backend_copy_in(t->backend, here, check, sizeof t->step.buffers->numbers->check, err);

    memcpy(t->state->shards->check, check, sizeof t->state->shards->check);
    if (rc == 0)
        rc = backend_zero(t->backend, is_void, sizeof *is_void, err);
    return rc == 0 ? step_update(&t->step, err) : rc;
}

static int open_make_memory(struct trainer *t, struct err *err)
{
    const struct job_train *train = &t->job->train;
    const struct plugin_choices choices = {.allow_tf32 = train->tf32,
                                           .max_workspace = (size_t)train->max_workspace << 20,
                                           .autotune = train->autotune,
                                           .keep_plans = train->plan_cache,
                                           .warn = trainer_warn,
                                           .warn_arg = t};
    int rc = t->o.plugin ? t->o.plugin->open(t->o.gpu, &t->backend, err)
                         : backend_open_cpu(trainer_n_threads(t, 1, 1), &t->backend, err);

    if (rc == 0)
        rc = job_check_backend(t->job, t->backend->ops->name, err);
    if (rc == 0 && t->o.plugin && t->o.plugin->configure)
        t->o.plugin->configure(t->backend, &choices);
    if (rc == 0)
        rc = make_slots(t, err);
    if (rc == 0) {
        trainer_open_step(t);
        rc = buffers_new(t->backend, shared_memory(t), t->state,
                         t->job->train.accumulate > 1 && t->shares.n == 0, &t->step.buffers, err);
    }
    if (rc == 0 && t->state->shards) {
        t->state->shards->roll = open_roll;
        t->state->shards->roll_arg = t;
    } else if (rc == 0) {
        rc = trainer_make_update(t, err);
    }
    if (rc == 0 && average_is_wanted(t->job) && !t->state->shards)
        rc = trainer_make_average(t, err);
    if (rc == 0)
        trainer_describe(t);
    return rc == 0 ? trainer_open_savers(t, err) : rc;
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
                   "cluster.rebalance is true, but with train.accumulate %lld each micro-batch has "
                   "batch statistics of its own, and its samples would follow the ranks' speed; "
                   "want train.accumulate 1",
                   (long long)j->train.accumulate);
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
    if (!trainer_strategy(t)->promises.updates_are_own)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "model.sync_batch_norm is true, but with strategy %s the ranks' parameters "
                   "differ, so they have no batch statistics in common; want "
                   "model.sync_batch_norm: false",
                   trainer_strategy(t)->group.name);
}

/* Refuse a contrastive loss where a step does not see its whole global batch at once, or where the
 * ranks' parameters differ. */
static int check_contrasts(const struct trainer *t, struct err *err)
{
    const char *reason = t->shares.n > 0 ? "with strategy.shards each share is computed by itself"
                         : trainer_strategy(t)->promises.updates_are_own
                             ? "with this strategy the ranks' parameters differ"
                             : NULL;

    if (!t->job->model.contrasts)
        return 0;
    if (t->job->train.accumulate > 1)
        return err_set(err, ERR_CONFIG,
                       "model.loss contrastive compares all samples of a global batch, and "
                       "train.accumulate %lld would compare those of a micro-batch; want "
                       "train.accumulate 1 (train.recompute: blocks needs less memory, too)",
                       (long long)t->job->train.accumulate);
    return reason
               ? err_set(err, ERR_CONFIG,
                         "model.loss contrastive compares all samples of a global batch, but %s; "
                         "want strategy allreduce%s",
                         reason, t->shares.n > 0 ? " without shards" : "")
               : 0;
}

static int make_reducer(struct trainer *t, struct err *err)
{
    return step_make_reducer(&t->step, trainer_strategy(t),
                             t->o.strategy ? NULL : t->job->strategy.options, err);
}

static int make_feeds(struct trainer *t, struct err *err)
{
    int rc = feed_new(t->backend, t->train_set, 0, t->o.keep_bytes, &t->step.feed, err);

    if (rc == 0)
        feed_record(t->step.feed, spans_track(t->tracing.spans, SPANS_LOADER));
    if (rc == 0 && t->valid_set)
        rc = feed_new(t->backend, t->valid_set, FEED_MARKS, t->o.keep_bytes, &t->valid_feed, err);
    return rc;
}

/* Set t->fingerprint to that of the training and the validation set together. */
static int take_fingerprint(struct trainer *t, struct err *err)
{
    struct hash128 h[2] = {{0, 0}, {0, 0}};
    int rc = dataset_fingerprint(t->train_set, &h[0], err);

    if (rc == 0 && t->valid_set)
        rc = dataset_fingerprint(t->valid_set, &h[1], err);
    t->fingerprint = hash_of(h, sizeof h);
    return rc;
}

/* For an evaluation: load only the weights.  Other slots and the position in the data are of no use
 * to it, and its data may be others. */
static int load_weights(struct trainer *t, const char *folder, int averaged, struct err *err)
{
    struct ckpt *c = NULL;
    int rc = ckpt_is_folder(folder) ? ckpt_load_folder(folder, &c, err)
                                    : ckpt_load_latest(folder, trainer_warn, t, &c, err);

    if (rc == CKPT_NONE)
        rc = err_set(err, ERR_CONFIG, "the run in %s has no checkpoint yet", folder);
    if (rc == 0)
        rc = state_init_beside_model(t->state, t->job, err);
    if (rc == 0)
        rc = state_load_weights(t->state, c, averaged, err);
    if (rc == 0)
        rc = state_take_base(t->state, t->job, c->state.base, err);
    if (rc == 0)
        t->state->at.step = c->state.step;
    ckpt_close(c);
    return rc < 0 ? err_wrap(err, "--checkpoint") : 0;
}

struct ckpt_state trainer_beginning(const struct trainer *t)
{
    return (struct ckpt_state){.steps_per_epoch = t->steps_per_epoch, .data = t->fingerprint};
}

/* On rank 0, make or load the state.  Followers take theirs from another rank when ranks form. */
static int make_state(struct trainer *t, const struct cmd *c, struct err *err)
{
    t->state->at = trainer_beginning(t);
    t->state->warn = trainer_warn;
    t->state->warn_arg = t;
    t->state->n_threads = trainer_n_threads(t, 1, 1);
    if (c->open.rank != 0)
        return state_init_unsaved(t->state, t->job, err);
    if (c->open.evaluate)
        return load_weights(t, c->open.evaluate, c->open.averaged, err);
    return trainer_begin(t, c->open.resume, err);
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

static void describe_fields(const struct trainer *t, struct report *r)
{
    const struct import_options *o = import_options_of(&t->job->model);
    struct buf text = {0};

    if (t->rank != 0)
        return;
    if (o)
        import_inputs_print(o, t->spec, &text);
    else
        layers_print(&t->job->model, t->spec, &text);
    r->opened.fields = xstrdup(buf_cstr(&text));
    buf_fini(&text);
}

int trainer_open(struct trainer *t, const struct cmd *c, struct report *opened, struct err *err)
{
    int rc = train_open_job(t, c, err);

    t->may_lack_labels = c->open.predicts;
    t->rank = c->open.rank;
    t->n_ranks = c->open.n_ranks;
    if (rc == 0 && !t->o.strategy)
        t->shares = strategy_shares(&t->job->strategy);
    if (rc == 0)
        rc = job_check_supported(t->job, t->n_ranks, t->o.plugin ? "cuda" : "cpu", err);
    if (rc == 0)
        rc = open_data(t, c->open.evaluate != NULL, err);
    if (rc == 0)
        rc = make_layout(t, err);
    if (rc == 0 && !c->open.evaluate)
        rc = programs_check_norms(
            &(struct programs_options){
                .job = t->job, .spec = t->spec, .sampler = &t->sampler, .n_ranks = t->n_ranks},
            err);
    if (rc == 0 && c->open.predict && t->valid_set)
        rc = predict_open(&t->outputs, c->open.predict, &t->predictions, err);
    if (rc == 0)
        rc = check_statistics(t, err);
    if (rc == 0)
        rc = check_contrasts(t, err);
    if (rc == 0 && !c->open.evaluate)
        rc = spike_check(t, err);
    if (rc == 0)
        rc = flip_check(c->open.inject, t->layout, err);
    if (rc == 0)
        rc = open_make_memory(t, err);
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
    if (t->rank == 0 && !c->open.evaluate)
        explain_doubts(t);
    describe_layout(t->layout, opened);
    describe_fields(t, opened);
    opened->opened.data = t->fingerprint;
    opened->opened.n_train = t->train_set->n_samples;
    opened->opened.n_validation = t->valid_set ? t->valid_set->n_samples : 0;
    opened->opened.step = t->state->at.step;
    opened->opened.steps_per_epoch = t->steps_per_epoch;
    opened->opened.is_regression = !trainer_has_accuracy(t);
    opened->opened.stops_early = loop_stops(&t->loop, t->job);
    return 0;
}
