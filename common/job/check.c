/* Checks that no single row can make: options that must agree with each other.  supported.c has
 * those that depend on the number of ranks or on the device. */
#include "job/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/arch.h"
#include "job/adapters.h"
#include "model/losses.h"
#include "strategy/allreduce.h"
#include "strategy/tree.h"

/* The largest class weight may be so many times the smallest one that is not 0: sums of weights are
 * fixed point (WEIGHT_UNITS). */
#define WEIGHTS_RANGE 1e6

static int check_weights(const struct job *j, struct err *err)
{
    const struct option_numbers *w = &j->model.class_weights;
    double most = 0, least = HUGE_VAL;

    for (int i = 0; i < w->n; i++) {
        most = fmax(most, w->v[i]);
        if (w->v[i] > 0)
            least = fmin(least, w->v[i]);
    }
    if (w->n == 0)
        return 0;
    if (!loss_is_of_classes(j->model.loss) || loss_is_free(j->model.loss) ||
        j->model.loss == LOSS_DPO)
        return err_set(err, ERR_CONFIG, "train.class_weights needs model.loss cross_entropy");
    if ((float)most == 0) /* they are float32 in the network */
        return err_set(err, ERR_CONFIG, "train.class_weights are all 0, want one above 0");
    if (most > WEIGHTS_RANGE * least)
        return err_set(err, ERR_CONFIG,
                       "train.class_weights has %g and %g, want the largest at most %g times the "
                       "smallest above 0",
                       least, most, WEIGHTS_RANGE);
    return 0;
}

static int check_init(const struct job *j, struct err *err)
{
    if (adapters_check_keys(&j->model, err) < 0)
        return err->code;
    if (j->model.init.name != INIT_IMPORT || j->model.kind == &arch_import)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "model.init.name is import, but the job has no model.import; want pytorch, file "
                   "or another one of the words that --help-job lists");
}

static int job_check_train(const struct job *j, struct err *err)
{
    const struct job_train *t = &j->train;
    const int64_t *samples = job_field(j, "data.samples"); /* not all formats tell beforehand */

    if (t->accumulate > t->global_batch)
        return err_set(err, ERR_CONFIG,
                       "train.accumulate is %lld, want at most train.global_batch, %lld",
                       (long long)t->accumulate, (long long)t->global_batch);
    if (j->model.label_smoothing > 0 && j->model.loss != LOSS_CROSS_ENTROPY)
        return err_set(err, ERR_CONFIG, "train.label_smoothing needs model.loss cross_entropy");
    if (check_weights(j, err) < 0)
        return err->code;
    if (t->drop_last && samples && *samples < t->global_batch)
        return err_set(err, ERR_CONFIG,
                       "train.drop_last with data.samples %lld, less than one train.global_batch "
                       "of %lld, leaves nothing to train on",
                       (long long)*samples, (long long)t->global_batch);
    return 0;
}

static int is_power_of_two(double v)
{
    int exponent;

    return frexp(v, &exponent) == 0.5;
}

static int check_precision(const struct job *j, struct err *err)
{
    static const char *const scales[] = {"loss_scale.initial", "loss_scale.min"};

    if (j->train.grad_dtype == GRAD_BFLOAT16 && j->precision != PRECISION_BFLOAT16)
        return err_set(err, ERR_CONFIG, "train.grad_dtype bfloat16 needs precision bfloat16");
    if (j->precision != PRECISION_FLOAT16)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(scales); i++) {
        const double v = i == 0 ? j->loss_scale.initial : j->loss_scale.min;

        if (!is_power_of_two(v))
            return err_set(err, ERR_CONFIG, "%s is %g, want a power of two", scales[i], v);
    }
    if (j->loss_scale.min > j->loss_scale.initial)
        return err_set(err, ERR_CONFIG, "loss_scale.min is %g, want at most loss_scale.initial, %g",
                       j->loss_scale.min, j->loss_scale.initial);
    return 0;
}

static int job_check_warmup(const struct job *j, struct err *err)
{
    const struct schedule_options *s = &j->schedule;

    if (s->warmup_steps > 0 && s->warmup_epochs > 0)
        return err_set(
            err, ERR_CONFIG,
            "schedule.warmup_steps is %lld and schedule.warmup_epochs %lld, want one of them 0",
            (long long)s->warmup_steps, (long long)s->warmup_epochs);
    if (s->warmup_epochs >= j->train.epochs)
        return err_set(err, ERR_CONFIG,
                       "schedule.warmup_epochs is %lld, want less than train.epochs, %lld",
                       (long long)s->warmup_epochs, (long long)j->train.epochs);
    if (!s->warmup_from_one_rank)
        return 0;
    if (s->warmup_steps == 0 && s->warmup_epochs == 0)
        return err_set(err, ERR_CONFIG,
                       "schedule.warmup_from_one_rank without a warm-up has no effect; want "
                       "schedule.warmup_steps or schedule.warmup_epochs above 0");
    if (!j->optimizer.scale_lr_by_ranks)
        return err_set(err, ERR_CONFIG,
                       "schedule.warmup_from_one_rank needs optimizer.scale_lr_by_ranks true");
    if (s->warmup_start > 0)
        return err_set(err, ERR_CONFIG,
                       "schedule.warmup_start is %g with schedule.warmup_from_one_rank, which says "
                       "where warm-up starts; want 0",
                       s->warmup_start);
    return 0;
}

static int check_schedule(const struct job *j, struct err *err)
{
    const struct schedule_options *s = &j->schedule;
    const double *min_lr = job_field(j, "schedule.min_lr");

    if (job_check_warmup(j, err) < 0)
        return err->code;
    if (s->timing == SCHEDULE_TIMING_DEEPSPEED && s->kind->lead == SCHEDULE_NO_LEAD)
        return err_set(err, ERR_CONFIG,
                       "schedule.timing is deepspeed, but schedule.name %s is none of DeepSpeed's "
                       "schedulers; want constant, linear or cosine, or timing dptrain",
                       s->kind->group.name);
    if (s->total_steps > 0 && s->warmup_steps >= s->total_steps)
        return err_set(err, ERR_CONFIG,
                       "schedule.warmup_steps is %lld, want less than schedule.total_steps, %lld",
                       (long long)s->warmup_steps, (long long)s->total_steps);
    if (j->train.max_steps > 0 && s->warmup_steps >= j->train.max_steps)
        return err_set(err, ERR_CONFIG,
                       "schedule.warmup_steps is %lld, want less than train.max_steps, %lld",
                       (long long)s->warmup_steps, (long long)j->train.max_steps);
    if (min_lr && *min_lr > optimizer_lr(&j->optimizer))
        return err_set(err, ERR_CONFIG, "schedule.min_lr is %g, want at most optimizer.lr, %g",
                       *min_lr, optimizer_lr(&j->optimizer));
    return 0;
}

static int is_right_or_wrong(enum loss l)
{
    return l == LOSS_CROSS_ENTROPY || l == LOSS_FOCAL || l == LOSS_BCE || l == LOSS_DPO;
}

static const char *const goals[] = {GOAL_LIST(WORD_NAME) NULL};

/* A decision that the loop makes by the metric `goal`, which `key` names. */
static int check_decision(const struct job *j, const char *key, enum goal goal, struct err *err)
{
    if (goal != GOAL_NONE && j->train.validate_every == 0)
        return err_set(err, ERR_CONFIG, "train.validate_every is 0, but %s needs validations", key);
    if (goal_is_accuracy(goal) && !is_right_or_wrong(j->model.loss))
        return err_set(err, ERR_CONFIG,
                       "%s is %s, which needs model.loss cross_entropy or bce; want %s", key,
                       goals[goal], goals[goal_loss(goal)]);
    if (goal_is_top5(goal) && j->model.loss != LOSS_CROSS_ENTROPY && j->model.loss != LOSS_FOCAL)
        return err_set(err, ERR_CONFIG, "%s is %s, which needs model.loss cross_entropy; want %s",
                       key, goals[goal], goals[goal_loss(goal)]);
    return 0;
}

static int check_goal(const struct job *j, const char *key, enum goal goal, struct err *err)
{
    if (goal_is_of_average(goal) && j->train.average.name == AVERAGE_NONE)
        return err_set(err, ERR_CONFIG,
                       "%s is %s, but the job averages no weights (train.average.name)", key,
                       goals[goal]);
    return check_decision(j, key, goal, err);
}

static int check_decisions(const struct job *j, struct err *err)
{
    const enum goal *plateau = job_field(j, "schedule.metric");
    int rc = check_goal(j, "train.best.metric", j->train.best.goal, err);

    if (rc == 0 && j->train.early_stop.patience > 0)
        rc = check_goal(j, "train.early_stop.metric", j->train.early_stop.goal, err);
    if (rc == 0 && plateau)
        rc = check_goal(j, "schedule.metric", *plateau, err);
    return rc;
}

static int check_cluster(const struct cluster_options *c, struct err *err)
{
    if (c->max_ranks > 0 && c->min_ranks > c->max_ranks)
        return err_set(err, ERR_CONFIG,
                       "cluster.min_ranks is %lld, want at most cluster.max_ranks, %lld",
                       (long long)c->min_ranks, (long long)c->max_ranks);
    if (c->straggler_factor > 0 && c->straggler_factor <= 1)
        return err_set(err, ERR_CONFIG,
                       "cluster.straggler_factor is %g, want more than 1, or 0 for no such reports",
                       c->straggler_factor);
    return 0;
}

static int check_trace(const struct option_ints *trace, struct err *err)
{
    if (trace->n == 0)
        return 0;
    if (trace->n != 2)
        return err_set(err, ERR_CONFIG, "report.trace has %d numbers, want [FIRST, LAST]",
                       trace->n);
    if (trace->v[1] < trace->v[0] || trace->v[1] - trace->v[0] >= JOB_MOST_TRACED)
        return err_set(err, ERR_CONFIG,
                       "report.trace is [%lld, %lld], want FIRST, LAST of 1 to %d steps",
                       (long long)trace->v[0], (long long)trace->v[1], JOB_MOST_TRACED);
    return 0;
}

static int check_division(const struct job *j, struct err *err)
{
    const struct strategy_promises *p = &strategy_choose(&j->strategy)->promises;

    if (p->gradients_are_divided && j->train.accumulate > 1 && j->train.grad_dtype != GRAD_FLOAT32)
        return err_set(err, ERR_CONFIG,
                       "train.grad_dtype is bfloat16 with train.accumulate and strategy.zero 2, "
                       "which adds up the sums of micro-batches; want float32, or strategy.zero 1");
    if (p->n_holders == 0 || !j->optimizer.kind->whole_tensors)
        return 0;
    return err_set(
        err, ERR_CONFIG,
        "strategy.zero divides parameters among the ranks, but optimizer %s needs whole "
        "tensors; want strategy.zero 0, or an optimizer that treats each element by itself",
        j->optimizer.kind->group.name);
}

static int check_shares(const struct job *j, struct err *err)
{
    const int64_t n = strategy_shares(&j->strategy).n, each = j->train.accumulate;

    if (n > TREE_MOST_LEAVES / each)
        return err_set(err, ERR_CONFIG,
                       "strategy.shards is %lld with train.accumulate %lld, want at most %d "
                       "micro-batches in all",
                       (long long)n, (long long)each, TREE_MOST_LEAVES);
    if (n <= j->train.global_batch / each)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "strategy.shards is %lld with train.accumulate %lld, want at most "
                   "train.global_batch, %lld, micro-batches in all",
                   (long long)n, (long long)each, (long long)j->train.global_batch);
}

static int refuse_shares_of_speed(const struct job *j, struct err *err)
{
    static const char *const compressions[] = {COMPRESS_LIST(WORD_NAME)};
    const enum compress *c = job_field(j, "strategy.compress");

    return err_set(err, ERR_CONFIG,
                   "cluster.rebalance is true, but %s is %s, whose sum depends on which rank has "
                   "which samples; leave one of the two out",
                   c ? "strategy.compress" : "strategy.name",
                   c ? compressions[*c] : j->strategy.kind->group.name);
}

/* A rank's updates would be those of more or fewer samples than other ranks' are. */
static int check_rebalance(const struct job *j, struct err *err)
{
    if (!j->cluster.rebalance)
        return 0;
    if (strategy_shares(&j->strategy).n > 0)
        return err_set(
            err, ERR_CONFIG,
            "cluster.rebalance is true, but with strategy.shards shares are fixed; leave "
            "one of the two out");
    if (strategy_choose(&j->strategy)->promises.updates_are_own)
        return err_set(err, ERR_CONFIG,
                       "cluster.rebalance is true, but with strategy.name %s each rank updates by "
                       "its own gradients, from equal shares; leave one of the two out",
                       j->strategy.kind->group.name);
    if (!strategy_choose(&j->strategy)->promises.sum_is_linear)
        return refuse_shares_of_speed(j, err);
    return 0;
}

/* The key by which the job chose its way of adding up gradients. */
static const char *key_of_sums(const struct job *j)
{
    const int *compress = job_field(j, "strategy.compress");

    if (strategy_shares(&j->strategy).n > 0)
        return "strategy.shards";
    return compress && *compress != COMPRESS_NONE ? "strategy.compress" : "strategy.name";
}

static int check_rounding(const struct job *j, struct err *err)
{
    if (!strategy_choose(&j->strategy)->wants_float32 || j->train.grad_dtype == GRAD_FLOAT32)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "train.grad_dtype is bfloat16, but the job's %s takes gradients of float32; "
                   "want float32",
                   key_of_sums(j));
}

static int check_buckets(const struct job *j, struct err *err)
{
    const struct strategy_promises *p = &strategy_choose(&j->strategy)->promises;

    if (j->train.bucket_bytes != BUCKETS_AUTO || p->buckets_may_change)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "train.bucket_bytes is auto, but the job's %s works by buckets, which then may "
                   "not change in the run; want a number of bytes",
                   p->n_holders > 0 ? "strategy.zero" : key_of_sums(j));
}

static int check_means(const struct job *j, struct err *err)
{
    const struct strategy_ops *s = strategy_choose(&j->strategy);

    if (!s->means_from)
        return 0;
    if (j->optimizer.kind->op != OP_adamw || j->optimizer.kind->matrices)
        return err_set(err, ERR_CONFIG,
                       "strategy.name is %s, which sends Adam's means, but optimizer.name is %s; "
                       "want adam or adamw",
                       s->group.name, j->optimizer.kind->group.name);
    if (j->train.clip_norm > 0)
        return err_set(
            err, ERR_CONFIG,
            "train.clip_norm is %g, but strategy %s sends means of gradients, whose norm "
            "is another one; want 0",
            j->train.clip_norm, s->group.name);
    return 0;
}

/* With means of gradients Adam's second moment is not updated any more after the warm-up of w
 * updates.  It has then reached 1 - beta2^w of its final size.  The bias correction divides it by
 * 1 - beta2^t, which goes on to 1, so updates grow by 1 / sqrt(1 - beta2^w).  From 1 / (1 - beta2)
 * warm-up steps on that is at most 1.26. */
static char *doubt_means(const struct job *j, int64_t n_steps)
{
    const struct strategy_ops *s = strategy_choose(&j->strategy);
    double number[NODE_MAX_NUMBERS] = {0}, reached, wanted;
    int64_t warm;

    if (!s->means_from)
        return NULL;
    j->optimizer.kind->numbers(j->optimizer.options, number);
    warm = strategy_means_from(s, j->strategy.options);
    reached = 1 - pow(number[ADAMW_ATTR_BETA2], (double)warm);
    wanted = round(1 / (1 - number[ADAMW_ATTR_BETA2]));
    if (warm >= n_steps || (double)warm >= wanted)
        return NULL;
    return xasprintf(
        "strategy.warmup_steps is %lld, and the second of optimizer.betas is %g: exp_avg_sq stays "
        "at %.0f %% of the size that it would reach, and Adam's bias correction lets updates grow "
        "up to %.1f times after the warm-up; if the loss then rises, want strategy.warmup_steps of "
        "%.0f or more, or a smaller optimizer.lr",
        (long long)warm, number[ADAMW_ATTR_BETA2], 100 * reached, 1 / sqrt(reached), wanted);
}

const char *job_zero_eps(const struct job *j, const char **usual)
{
    const struct option_group *g = &j->optimizer.kind->group;

    for (int i = 0; i < g->n_options; i++) {
        const struct option *o = &g->option[i];
        const size_t n = strlen(o->key);

        if (o->type != OPT_REAL || n < 4 || strcmp(o->key + n - 4, ".eps") != 0 ||
            *(const double *)((const char *)j->optimizer.options + o->offset) != 0)
            continue;
        *usual = o->def;
        return o->key;
    }
    return NULL;
}

/* A weight whose gradient is 0 in each sample so far would get 0 / 0. */
static char *doubt_eps(const struct job *j)
{
    const char *usual, *key = job_zero_eps(j, &usual);

    return key ? xasprintf(
                     "%s is 0: the update of a weight whose gradient has always been 0, as "
                     "that of a pixel which is black in all samples, is 0 / 0, which is not a "
                     "number; want more than 0, such as %s",
                     key, usual)
               : NULL;
}

static char *doubt_schedule(const struct job *j, int64_t n_steps)
{
    if (j->schedule.warmup_steps < n_steps)
        return NULL;
    return xasprintf("schedule.warmup_steps is %lld, but the job has %lld steps: its learning rate "
                     "never reaches optimizer.lr",
                     (long long)j->schedule.warmup_steps, (long long)n_steps);
}

/* A job that goes on beyond its schedule, at whose end the rate is 0. */
static char *doubt_total(const struct job *j, int64_t n_steps)
{
    static const double state[SCHEDULE_STATE];
    const struct schedule_span span = {1, n_steps, 1, state};
    const int64_t total = j->schedule.total_steps;

    /* A step later than the end, because DeepSpeed's timing is one step later. */
    if (total == 0 || total >= n_steps ||
        schedule_rate(&j->schedule, &j->optimizer, &span, total + 1) > 0)
        return NULL;
    return xasprintf("schedule.total_steps is %lld, but the job has %lld steps: from step %lld on "
                     "the learning rate is 0, and nothing is trained; want a larger "
                     "schedule.total_steps, schedule.min_lr above 0, or fewer steps",
                     (long long)total, (long long)n_steps, (long long)(total + 1));
}

void job_doubt(const struct job *j, int64_t n_steps, void (*warn)(void *arg, const char *text),
               void *arg)
{
    char *const text[] = {doubt_means(j, n_steps), doubt_schedule(j, n_steps),
                          doubt_total(j, n_steps), doubt_eps(j), adapters_doubt(&j->model.lora)};

    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        if (text[i])
            warn(arg, text[i]);
        free(text[i]);
    }
}

static int check_preference(const struct job *j, struct err *err)
{
    if (j->model.loss != LOSS_DPO)
        return 0;
    if (j->model.kind != &arch_import)
        return err_set(err, ERR_CONFIG,
                       "model.loss dpo is for language models of a folder; want model.import: "
                       "FOLDER in place of model.arch");
    if (j->model.lora.rank == 0)
        return err_set(err, ERR_CONFIG,
                       "model.loss dpo compares the network with its frozen base, but there is no "
                       "model.lora; want model.lora: {rank: 8}");
    return 0;
}

/* A scale is searched for by gradients that overflow on all ranks alike. */
static int check_own(const struct job *j, struct err *err)
{
    if (j->precision != PRECISION_FLOAT16 ||
        !strategy_choose(&j->strategy)->promises.updates_are_own)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "precision is float16, but with strategy.name %s each rank updates by its own "
                   "gradients, and the ranks' loss scales would differ; want bfloat16 or float32",
                   j->strategy.kind->group.name);
}

static int check_gradients(const struct job *j, struct err *err)
{
    const struct strategy_ops *s = strategy_choose(&j->strategy);

    if (j->report.gradients == 0 || (!s->promises.updates_are_own && !s->means_from))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "report.gradients (--dump) is %lld, but with strategy.name %s the ranks do not "
                   "sum gradients in each step; want 0",
                   (long long)j->report.gradients, j->strategy.kind->group.name);
}

static int check_tensor(const struct job *j, struct err *err)
{
    if (j->report.tensor == 0 || j->report.operators > 0)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "report.tensor is %lld, but report.operators is 0, so no step has its tensors "
                   "listed; want the number of a step there",
                   (long long)j->report.tensor);
}

int job_check(const struct job *job, struct err *err)
{
    int rc = check_init(job, err);

    if (rc == 0)
        rc = job_check_train(job, err);
    if (rc == 0)
        rc = check_precision(job, err);
    if (rc == 0)
        rc = check_preference(job, err);
    if (rc == 0)
        rc = check_schedule(job, err);
    if (rc == 0)
        rc = check_decisions(job, err);
    if (rc == 0)
        rc = check_cluster(&job->cluster, err);
    if (rc == 0)
        rc = check_trace(&job->report.trace, err);
    if (rc == 0)
        rc = check_gradients(job, err);
    if (rc == 0)
        rc = check_tensor(job, err);
    if (rc == 0)
        rc = check_division(job, err);
    if (rc == 0)
        rc = check_rounding(job, err);
    if (rc == 0)
        rc = check_shares(job, err);
    if (rc == 0)
        rc = check_rebalance(job, err);
    if (rc == 0)
        rc = check_buckets(job, err);
    if (rc == 0)
        rc = check_means(job, err);
    if (rc == 0)
        rc = check_own(job, err);
    return rc;
}
