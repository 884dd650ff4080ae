/* From DeepSpeed's values to our keys.  Each of ours gets the place of DeepSpeed's key, so a
 * message about optimizer.lr points into the file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "config/deepspeed_impl.h"

/* ---- giving values to the job ---- */

static int has(const struct ds_file *f, enum id id) { return f->value[id].text != NULL; }

static int is_word(const struct ds_file *f, enum id id, const char *word)
{
    return has(f, id) && strcasecmp(f->value[id].text, word) == 0;
}

/* Give our key this text, in the place of `at`. */
static int give(struct ds_file *f, const struct ds_value *at, const char *key, const char *text,
                struct err *err)
{
    const struct option_ref *ref = table_find(f->r->list, key);
    const struct given g = {.from = FROM_FILE,
                            .line = at->line,
                            .column = at->column,
                            .text = text,
                            .len = strlen(text),
                            .is_quoted = at->is_quoted && text == at->text,
                            .is_list = at->is_list};

    ASSERT(ref);
    return read_give(f->r, ref, &g, NULL, err) < 0 ? ds_fail_at(f, at, err) : 0;
}

static int give_value(struct ds_file *f, enum id id, const char *key, struct err *err)
{
    return has(f, id) ? give(f, &f->value[id], key, f->value[id].text, err) : 0;
}

static int give_number(struct ds_file *f, const struct ds_value *at, const char *key, double v,
                       struct err *err)
{
    char text[40];

    snprintf(text, sizeof text, "%.17g", v);
    return give(f, at, key, text, err);
}

/* A number that is not the reader's own, in the range; `missing` if it is not given. */
static int number(const struct ds_file *f, enum id id, const char *name, double min, double max,
                  double missing, double *out, struct err *err)
{
    const struct ds_value *v = &f->value[id];
    char *end;

    *out = missing;
    if (!v->text)
        return 0;
    *out = strtod(v->text, &end);
    if (*end || end == v->text || v->is_quoted || v->is_list || !(*out >= min && *out <= max)) {
        err_set(err, ERR_CONFIG,
                v->is_quoted ? "%s is \"%.40s\" in quotes, want a number from %g to %g"
                             : "%s is %.40s, want a number from %g to %g",
                name, v->text, min, max);
        return ds_fail_at(f, v, err);
    }
    return 0;
}

static int integer(const struct ds_file *f, enum id id, const char *name, double *out,
                   struct err *err)
{
    int rc = number(f, id, name, 1, 1e9, 0, out, err);

    if (rc == 0 && *out != floor(*out)) {
        err_set(err, ERR_CONFIG, "%s is %s, want an integer", name, f->value[id].text);
        rc = ds_fail_at(f, &f->value[id], err);
    }
    return rc;
}

static int is_true(const struct ds_file *f, enum id id) { return is_word(f, id, "true"); }

/* ---- batch sizes ---- */

/* train_batch_size = micro batch * accumulation * ranks: two of them give the third. */
static int give_batch(struct ds_file *f, struct err *err)
{
    const double n = (double)max_i64(f->n_ranks, 1);
    const struct ds_value *at = &f->value[has(f, TRAIN_BATCH) ? TRAIN_BATCH : MICRO_BATCH];
    double batch = 0, micro = 0, parts = 0;
    int rc = integer(f, TRAIN_BATCH, "train_batch_size", &batch, err);

    if (rc == 0)
        rc = integer(f, MICRO_BATCH, "train_micro_batch_size_per_gpu", &micro, err);
    if (rc == 0)
        rc = integer(f, ACCUMULATE, "gradient_accumulation_steps", &parts, err);
    if (rc < 0)
        return rc;
    if (!batch && !micro) {
        const struct ds_value none = {.line = 1, .column = 1};

        ds_note(
            f, &none,
            "neither train_batch_size nor train_micro_batch_size_per_gpu is given: the batch is "
            "train.global_batch, by --set or its default");
        return parts ? give_number(f, &f->value[ACCUMULATE], "train.accumulate", parts, err) : 0;
    }
    if (!parts)
        parts = batch && micro ? floor(batch / (micro * n)) : 1;
    if (!batch)
        batch = micro * parts * n;
    if ((micro && batch != micro * parts * n) || fmod(batch, parts * n) != 0) {
        if (micro)
            err_set(err, ERR_CONFIG,
                    "train_batch_size is %g, but micro batch %g * accumulation %g * %g ranks is "
                    "%g; change one of them, or --nranks",
                    batch, micro, parts, n, micro * parts * n);
        else
            err_set(
                err, ERR_CONFIG,
                "train_batch_size is %g, which accumulation %g * %g ranks do not divide; change "
                "one of them, or --nranks",
                batch, parts, n);
        return ds_fail_at(f, at, err);
    }
    rc = give_number(f, at, "train.global_batch", batch, err);
    return rc == 0 ? give_number(f, at, "train.accumulate", parts, err) : rc;
}

/* ---- optimizer ---- */

static const struct {
    const char *type, *ours; /* NULL: not here */
    const char *text;
} optimizer_types[] = {
    {"Adam", "adamw", NULL},
    {"AdamW", "adamw", NULL},
    {"FusedAdam", "adamw", NULL},
    {"SGD", "sgd", NULL},
    {"Lion", "lion", NULL},
    {"Lamb", "lamb", NULL},
    {"Muon", "muon", NULL},
    {"OneBitAdam", NULL, "take Adam; strategy.compress says how gradients travel"},
    {"ZeroOneAdam", NULL, "take Adam; strategy.compress says how gradients travel"},
    {"OneBitLamb", NULL, "take Lamb; strategy.compress says how gradients travel"},
    {"Adagrad", NULL, "take Adam or SGD"},
};

/* Refuse a parameter of another type of optimizer. */
static int refuse_param(struct ds_file *f, enum id id, const char *name, const char *type,
                        struct err *err)
{
    err_set(err, ERR_CONFIG, "optimizer.params.%s needs optimizer.type %s", name, type);
    return ds_fail_at(f, &f->value[id], err);
}

static int give_optimizer_name(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[OPT_TYPE];
    const char *ours = NULL, *text = "want Adam, AdamW, SGD, Lion, Lamb or Muon";

    for (size_t i = 0; i < ARRAY_LEN(optimizer_types); i++)
        if (is_word(f, OPT_TYPE, optimizer_types[i].type)) {
            ours = optimizer_types[i].ours;
            text = ours ? text : optimizer_types[i].text;
        }
    if (!ours) {
        err_set(err, ERR_CONFIG, "optimizer.type %.40s is not supported: %s", type->text, text);
        return ds_fail_at(f, type, err);
    }
    if (is_word(f, OPT_TYPE, "Adam") && !is_word(f, OPT_ADAM_W, "false"))
        ds_note(
            f, type,
            "optimizer.type Adam is AdamW there, and so here; with adam_w_mode: false it is Adam");
    if (has(f, OPT_ADAM_W) && strcmp(ours, "adamw") != 0)
        return refuse_param(f, OPT_ADAM_W, "adam_w_mode", "Adam", err);
    if (is_word(f, OPT_ADAM_W, "false") && is_word(f, OPT_TYPE, "AdamW"))
        ds_note(f, &f->value[OPT_ADAM_W],
                "optimizer.params.adam_w_mode has no effect with type AdamW; with Adam, false is "
                "Adam");
    else if (is_word(f, OPT_ADAM_W, "false"))
        ours = "adam";
    return give(f, type, "optimizer.name", ours, err);
}

static int is_muon(const struct ds_file *f) { return is_word(f, OPT_TYPE, "Muon"); }

/* optimizer.lr: Muon's own rate comes before the rate that all parameters have. */
static enum id rate_id(const struct ds_file *f)
{
    return is_muon(f) && has(f, OPT_MUON_LR) ? OPT_MUON_LR : OPT_LR;
}

static const char *default_rate(const struct ds_file *f) { return is_muon(f) ? "0.02" : "0.001"; }

/* AdamW updates what Muon does not take, with the same rate and weight decay unless adam_lr is
 * given.  Without any rate Muon's is 0.02, and AdamW's is ours. */
static int give_rest_of_muon(struct ds_file *f, struct err *err)
{
    const enum id id = has(f, OPT_ADAM_LR) ? OPT_ADAM_LR : OPT_LR;

    if (!is_muon(f) && has(f, OPT_MUON_LR))
        return refuse_param(f, OPT_MUON_LR, "muon_lr", "Muon", err);
    if (!is_muon(f) && has(f, OPT_ADAM_LR))
        return refuse_param(f, OPT_ADAM_LR, "adam_lr", "Muon", err);
    if (!is_muon(f))
        return 0;
    if (give_value(f, id, "optimizer.adamw.lr", err) < 0)
        return err->code;
    return give_value(f, OPT_DECAY, "optimizer.adamw.weight_decay", err);
}

/* Name the values from `first` to `last`, in the order of enum id, as read by nothing here:
 * DeepSpeed would refuse them, or ignore them, too. */
static void note_unread(struct ds_file *f, enum id first, enum id last, const char *where,
                        const char *word)
{
    for (int id = first; id <= (int)last; id++) {
        char *text;

        if (!has(f, id))
            continue;
        text = xasprintf("%s has no effect %s %s", ds_path(id), where, word);
        ds_note(f, &f->value[id], text);
        free(text);
    }
}

/* Defaults differ from PyTorch's: no weight decay, and a rate of 1e-3. */
static int give_optimizer(struct ds_file *f, struct err *err)
{
    static const struct {
        enum id id;
        const char *key, *of_muon;
    } params[] = {{OPT_BETAS, "optimizer.betas", "optimizer.adamw.betas"},
                  {OPT_EPS, "optimizer.eps", "optimizer.adamw.eps"},
                  {OPT_MOMENTUM, "optimizer.momentum", "optimizer.momentum"},
                  {OPT_DAMPENING, "optimizer.dampening", "optimizer.dampening"},
                  {OPT_NESTEROV, "optimizer.nesterov", "optimizer.nesterov"}};
    const struct ds_value *type = &f->value[OPT_TYPE];
    int rc;

    if (!type->text) {
        const struct ds_value none = {.line = 1, .column = 1};

        ds_note(f, &none, "there is no optimizer: it is optimizer.name, by --set or its default");
        note_unread(f, OPT_MUON_LR, OPT_ADAM_W, "without", "optimizer.type");
        return give_value(f, OPT_LR, "optimizer.lr", err);
    }
    rc = give_optimizer_name(f, err);
    if (rc == 0)
        rc = has(f, rate_id(f)) ? give_value(f, rate_id(f), "optimizer.lr", err)
                                : give(f, type, "optimizer.lr", default_rate(f), err);
    if (rc == 0)
        rc = has(f, OPT_DECAY) ? give_value(f, OPT_DECAY, "optimizer.weight_decay", err)
                               : give(f, type, "optimizer.weight_decay", "0", err);
    if (rc == 0)
        rc = give_rest_of_muon(f, err);
    for (size_t i = 0; i < ARRAY_LEN(params) && rc == 0; i++)
        rc = give_value(f, params[i].id, is_muon(f) ? params[i].of_muon : params[i].key, err);
    return rc;
}

/* ---- scheduler ---- */

static int refuse_scheduler(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE];

    if (is_word(f, SCHED_TYPE, "OneCycle"))
        err_set(err, ERR_CONFIG,
                "scheduler.type OneCycle is not supported: its cycle is given in steps; leave the "
                "scheduler out, and give --set schedule.name=onecycle (--help-job)");
    else
        err_set(err, ERR_CONFIG,
                "scheduler.type %.40s is not supported: want WarmupLR, WarmupDecayLR or "
                "WarmupCosineLR; leave the scheduler out, and give --set schedule.name=...",
                type->text);
    return ds_fail_at(f, type, err);
}

/* Where DeepSpeed counts to total_num_steps, dptrain counts to the job's end. */
static int give_total(struct ds_file *f, struct err *err)
{
    const struct ds_value *total = &f->value[SCHED_TOTAL];

    if (!total->text)
        return 0;
    ds_note(f, total,
            "total_num_steps is train.max_steps: the job ends there, or with train.epochs if that "
            "comes "
            "first, and the rate falls until the job's end");
    return give(f, total, "train.max_steps", total->text, err);
}

/* A warm-up from `low` to the peak; the peak is scheduler.params.warmup_max_lr, of all parameters.
 */
static int give_warmup_lr(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE];
    double low, high, lr;
    int rc = number(f, SCHED_MIN_LR, "warmup_min_lr", 0, 1e6, 0, &low, err);

    if (rc == 0)
        rc = number(f, rate_id(f), "lr", 0, 1e6, atof(default_rate(f)), &lr, err);
    if (rc == 0)
        rc = number(f, SCHED_MAX_LR, "warmup_max_lr", 1e-30, 1e6, lr, &high, err);
    if (rc == 0)
        rc = give_number(f, has(f, SCHED_MAX_LR) ? &f->value[SCHED_MAX_LR] : type, "optimizer.lr",
                         high, err);
    if (rc == 0 && is_muon(f) && has(f, SCHED_MAX_LR))
        rc = give_number(f, &f->value[SCHED_MAX_LR], "optimizer.adamw.lr", high, err);
    return rc == 0 ? give_number(f, type, "schedule.warmup_start", low / high, err) : rc;
}

static int give_cosine(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE];
    double lr, start, end;
    int rc = number(f, rate_id(f), "lr", 1e-30, 1e6, atof(default_rate(f)), &lr, err);

    if (rc == 0)
        rc = number(f, SCHED_MIN_RATIO, "warmup_min_ratio", 0, 1, 0, &start, err);
    if (rc == 0)
        rc = number(f, SCHED_COS_RATIO, "cos_min_ratio", 0, 1, 0.0001, &end, err);
    if (rc == 0)
        rc = give_number(f, type, "schedule.warmup_start", start, err);
    return rc == 0 ? give_number(f, type, "schedule.min_lr", end * lr, err) : rc;
}

static int give_scheduler(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE];
    const char *name = is_word(f, SCHED_TYPE, "WarmupLR")         ? "constant"
                       : is_word(f, SCHED_TYPE, "WarmupDecayLR")  ? "linear"
                       : is_word(f, SCHED_TYPE, "WarmupCosineLR") ? "cosine"
                                                                  : NULL;
    int rc;

    if (!type->text) {
        note_unread(f, SCHED_MIN_LR, SCHED_COS_RATIO, "without", "scheduler.type");
        return 0;
    }
    if (!name)
        return refuse_scheduler(f, err);
    if (is_word(f, SCHED_TYPE, "WarmupCosineLR"))
        note_unread(f, SCHED_MIN_LR, SCHED_MAX_LR, "with scheduler.type", type->text);
    else
        note_unread(f, is_word(f, SCHED_TYPE, "WarmupLR") ? SCHED_TOTAL : SCHED_MIN_RATIO,
                    SCHED_COS_RATIO, "with scheduler.type", type->text);
    if (!is_word(f, SCHED_WARMUP_TYPE, "linear"))
        ds_note(
            f, type,
            "the warm-up is linear here, where DeepSpeed's is logarithmic (warmup_type log, the "
            "default)");
    rc = give(f, type, "schedule.name", name, err);
    if (rc == 0)
        rc = has(f, SCHED_WARMUP) ? give_value(f, SCHED_WARMUP, "schedule.warmup_steps", err)
                                  : give(f, type, "schedule.warmup_steps", "1000", err);
    if (rc == 0)
        rc = strcmp(name, "cosine") == 0 ? give_cosine(f, err) : give_warmup_lr(f, err);
    return rc == 0 && strcmp(name, "constant") != 0 ? give_total(f, err) : rc;
}

/* ---- precision ---- */

static int give_scale(struct ds_file *f, struct err *err)
{
    double scale, power;
    int rc = number(f, FP16_SCALE, "fp16.loss_scale", 0, 1e30, 0, &scale, err);

    if (rc == 0 && scale != 0) {
        err_set(
            err, ERR_CONFIG,
            "fp16.loss_scale %g is not supported: the scale follows overflows here; give 0, and "
            "initial_scale_power",
            scale);
        return ds_fail_at(f, &f->value[FP16_SCALE], err);
    }
    if (rc == 0)
        rc = number(f, FP16_POWER, "fp16.initial_scale_power", 0, 24, 16, &power, err);
    if (rc == 0 && has(f, FP16_POWER))
        rc = give_number(f, &f->value[FP16_POWER], "loss_scale.initial", ldexp(1, (int)power), err);
    if (rc == 0)
        rc = give_value(f, FP16_WINDOW, "loss_scale.window", err);
    if (rc == 0)
        rc = give_value(f, FP16_HYSTERESIS, "loss_scale.hysteresis", err);
    return rc == 0 ? give_value(f, FP16_MIN, "loss_scale.min", err) : rc;
}

static int give_precision(struct ds_file *f, struct err *err)
{
    int rc;

    if (is_true(f, FP16) && is_true(f, BF16)) {
        err_set(err, ERR_CONFIG, "fp16 and bf16 are both enabled, want one of them");
        return ds_fail_at(f, &f->value[BF16], err);
    }
    if (is_true(f, BF16))
        return give(f, &f->value[BF16], "precision", "bfloat16", err);
    if (!is_true(f, FP16))
        return 0;
    rc = give(f, &f->value[FP16], "precision", "float16", err);
    return rc == 0 ? give_scale(f, err) : rc;
}

/* ---- how ranks share the work ---- */

static int give_travel(struct ds_file *f, struct err *err)
{
    const struct ds_value *v = &f->value[COMM_TYPE];
    const char *type = is_word(f, COMM_TYPE, "fp16")    ? "float16"
                       : is_word(f, COMM_TYPE, "bf16")  ? "bfloat16"
                       : is_word(f, COMM_TYPE, "bfp16") ? "bfloat16"
                                                        : NULL;

    if (!v->text || is_word(f, COMM_TYPE, "fp32"))
        return 0;
    if (type)
        return give(f, v, "strategy.compress", type, err);
    err_set(err, ERR_CONFIG, "communication_data_type is %.40s, want fp16, bfp16 or fp32", v->text);
    return ds_fail_at(f, v, err);
}

/* Host memory keeps everything with offload_param, else the optimizer's state. */
static int give_offload(struct ds_file *f, struct err *err)
{
    const enum id id = has(f, OFFLOAD_PARAM) && !is_word(f, OFFLOAD_PARAM, "none") ? OFFLOAD_PARAM
                       : has(f, OFFLOAD_OPTIMIZER) ? OFFLOAD_OPTIMIZER
                                                   : CPU_OFFLOAD;
    const struct ds_value *v = &f->value[id];

    if (!v->text || is_word(f, id, "none") || is_word(f, id, "false"))
        return 0;
    if (!is_word(f, id, "cpu") && !is_word(f, id, "true")) {
        err_set(err, ERR_CONFIG, "offloading to %.40s is not supported, want cpu or none", v->text);
        return ds_fail_at(f, v, err);
    }
    return give(f, v, "strategy.offload", id == OFFLOAD_PARAM ? "all" : "optimizer", err);
}

/* Theirs counts elements; in our buckets each has 4 bytes, a float32. */
static int give_buckets(struct ds_file *f, struct err *err)
{
    enum { LARGE = 64 << 20 }; /* bytes */
    const struct ds_value *v = &f->value[REDUCE_BUCKET];
    double n;

    if (!v->text)
        return 0;
    if (number(f, REDUCE_BUCKET, "zero_optimization.reduce_bucket_size", 1, 2.5e11, 0, &n, err) < 0)
        return err->code;
    if (4 * n >= LARGE)
        ds_note(f, v,
                "zero_optimization.reduce_bucket_size is train.bucket_bytes, 4 bytes an element; "
                "sums of so large buckets overlap with little of the backward pass: without it "
                "they have 4 MiB");
    return give_number(f, v, "train.bucket_bytes", 4 * floor(n), err);
}

int ds_give(struct ds_file *f, struct err *err)
{
    static int (*const parts[])(struct ds_file *, struct err *) = {
        give_batch,  give_optimizer, give_scheduler, give_precision,
        give_travel, give_offload,   give_buckets};
    static const struct {
        enum id id;
        const char *key;
    } same[] = {{CLIP, "train.clip_norm"},      {PRINT_STEPS, "report.every_steps"},
                {DROP_LAST, "train.drop_last"}, {SEED, "train.seed"},
                {ZERO_STAGE, "strategy.zero"},  {PREDIVIDE, "strategy.gradient_predivide_factor"}};
    const struct ds_value none = {.line = 1, .column = 1};
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(parts) && rc == 0; i++)
        rc = parts[i](f, err);
    for (size_t i = 0; i < ARRAY_LEN(same) && rc == 0; i++)
        rc = give_value(f, same[i].id, same[i].key, err);
    if (rc == 0 && !has(f, CLIP))
        ds_note(
            f, &none,
            "gradient_clipping is not given: nothing is clipped here; newer versions of DeepSpeed "
            "clip at 1.0 then");
    return rc;
}
