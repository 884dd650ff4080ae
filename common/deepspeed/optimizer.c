/* DeepSpeed's optimizers and schedulers as our keys, with the defaults that DeepSpeed 0.19.8 has
 * (runtime/engine.py, ops/, runtime/lr_schedules.py). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "deepspeed/impl.h"
#include "optim/optimizer.h"

/* ---- optimizer ---- */

/* DeepSpeed's optimizers that dptrain does not have. */
static const struct {
    const char *type, *text;
} optimizers_elsewhere[] = {
    {"OneBitAdam", "take Adam; strategy.compress says how gradients travel"},
    {"ZeroOneAdam", "take Adam; strategy.compress says how gradients travel"},
    {"OneBitLamb", "take Lamb; strategy.compress says how gradients travel"},
    {"Adagrad", "take Adam or SGD"},
};

/* Parameters of DeepSpeed's optimizers, as our keys. */
static const struct {
    enum id id;
    const char *key, *of_muon;
} params[] = {{OPT_BETAS, "optimizer.betas", "optimizer.adamw.betas"},
              {OPT_EPS, "optimizer.eps", "optimizer.adamw.eps"},
              {OPT_MOMENTUM, "optimizer.momentum", "optimizer.momentum"},
              {OPT_DAMPENING, "optimizer.dampening", "optimizer.dampening"},
              {OPT_NESTEROV, "optimizer.nesterov", "optimizer.nesterov"},
              {OPT_MAX_COEFF, "optimizer.max_trust", NULL},
              {OPT_MIN_COEFF, "optimizer.min_trust", NULL}};

static const struct optimizer *optimizer_at(int i)
{
    return container_of(optimizers[i], struct optimizer, group);
}

/* The optimizer that optimizer.type asks for; NULL if it is none of ours. */
static const struct optimizer *find_optimizer(const struct ds_file *f)
{
    for (int i = 0; optimizers[i]; i++)
        for (const char *const *type = optimizer_at(i)->deepspeed; *type; type++)
            if (ds_is_word(f, OPT_TYPE, *type))
                return optimizer_at(i);
    return NULL;
}

/* "want A, B or C": the values of optimizer.type that are ours. */
static void list_types(struct buf *out)
{
    const char *last = NULL;

    for (int i = 0; optimizers[i]; i++)
        for (const char *const *type = optimizer_at(i)->deepspeed; *type; last = *type++)
            if (last)
                buf_printf(out, "%s%s", out->len ? ", " : "want ", last);
    buf_printf(out, " or %s", last);
}

static int refuse_optimizer(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[OPT_TYPE];
    struct buf text = {0};

    for (size_t i = 0; i < ARRAY_LEN(optimizers_elsewhere); i++)
        if (ds_is_word(f, OPT_TYPE, optimizers_elsewhere[i].type))
            buf_printf(&text, "%s", optimizers_elsewhere[i].text);
    if (text.len == 0)
        list_types(&text);
    err_set(err, ERR_CONFIG, "optimizer.type %.40s is not supported: %s", type->text,
            buf_cstr(&text));
    buf_fini(&text);
    return ds_fail_at(f, type, err);
}

static int is_muon(const struct ds_file *f) { return ds_is_word(f, OPT_TYPE, "Muon"); }

/* Refuse a parameter of another type of optimizer. */
static int refuse_param(struct ds_file *f, enum id id, const char *name, const char *type,
                        struct err *err)
{
    err_set(err, ERR_CONFIG, "optimizer.params.%s needs optimizer.type %s", name, type);
    return ds_fail_at(f, &f->value[id], err);
}

/* Refuse parameters that DeepSpeed's optimizer of this type does not have, and what ours do not. */
static int check_params(struct ds_file *f, const struct optimizer *ours, struct err *err)
{
    const int is_adam = ours == &optimizer_adamw, is_lamb = ours == &optimizer_lamb;
    const struct ds_value *correction = &f->value[OPT_CORRECTION];

    if (ds_has(f, OPT_ADAM_W) && !is_adam && !(is_muon(f) && ds_is_true(f, OPT_ADAM_W)))
        return refuse_param(f, OPT_ADAM_W, "adam_w_mode", "Adam", err);
    if (ds_has(f, OPT_TORCH_ADAM) && !is_adam && !is_muon(f))
        return refuse_param(f, OPT_TORCH_ADAM, "torch_adam", "Adam or AdamW", err);
    if (correction->text && !is_adam && !is_lamb)
        return refuse_param(f, OPT_CORRECTION, "bias_correction", "Adam, AdamW or Lamb", err);
    if (ds_has(f, OPT_MAX_COEFF) && !is_lamb)
        return refuse_param(f, OPT_MAX_COEFF, "max_coeff", "Lamb", err);
    if (ds_has(f, OPT_MIN_COEFF) && !is_lamb)
        return refuse_param(f, OPT_MIN_COEFF, "min_coeff", "Lamb", err);
    if (!is_adam || !ds_is_word(f, OPT_CORRECTION, "false"))
        return 0;
    err_set(err, ERR_CONFIG,
            "optimizer.params.bias_correction false is not supported with type %.40s: Adam's means "
            "are corrected here; leave it out",
            f->value[OPT_TYPE].text);
    return ds_fail_at(f, correction, err);
}

static int give_optimizer_name(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[OPT_TYPE];
    const struct optimizer *ours = find_optimizer(f);

    if (!ours)
        return refuse_optimizer(f, err);
    if (ds_is_word(f, OPT_TYPE, "Adam") && !ds_is_word(f, OPT_ADAM_W, "false"))
        ds_note(
            f, type,
            "optimizer.type Adam is AdamW there, and so here; with adam_w_mode: false it is Adam");
    if (check_params(f, ours, err) < 0)
        return err->code;
    if (ds_is_word(f, OPT_ADAM_W, "false") && ds_is_word(f, OPT_TYPE, "AdamW"))
        ds_note(f, &f->value[OPT_ADAM_W],
                "optimizer.params.adam_w_mode has no effect with type AdamW; with Adam, false is "
                "Adam");
    else if (ds_is_word(f, OPT_ADAM_W, "false"))
        ours = &optimizer_adam;
    return ds_put(f, type, "optimizer.name", ours->group.name, err);
}

/* optimizer.lr: Muon's own rate comes before the rate that all parameters have. */
static enum id rate_id(const struct ds_file *f)
{
    return is_muon(f) && ds_has(f, OPT_MUON_LR) ? OPT_MUON_LR : OPT_LR;
}

static const char *default_rate(const struct ds_file *f) { return is_muon(f) ? "0.02" : "0.001"; }

/* AdamW updates what Muon does not take, with the same rate and weight decay unless adam_lr is
 * given.  Without any rate Muon's is 0.02, and AdamW's is ours. */
static int give_rest_of_muon(struct ds_file *f, struct err *err)
{
    const enum id id = ds_has(f, OPT_ADAM_LR) ? OPT_ADAM_LR : OPT_LR;

    if (!is_muon(f) && ds_has(f, OPT_MUON_LR))
        return refuse_param(f, OPT_MUON_LR, "muon_lr", "Muon", err);
    if (!is_muon(f) && ds_has(f, OPT_ADAM_LR))
        return refuse_param(f, OPT_ADAM_LR, "adam_lr", "Muon", err);
    if (!is_muon(f))
        return 0;
    if (ds_put_value(f, id, "optimizer.adamw.lr", err) < 0)
        return err->code;
    return ds_put_value(f, OPT_DECAY, "optimizer.adamw.weight_decay", err);
}

/* Name the values from `first` to `last`, in the order of enum id, as read by nothing here:
 * DeepSpeed would refuse them, or ignore them, too. */
static void note_unread(struct ds_file *f, enum id first, enum id last, const char *where,
                        const char *word)
{
    for (int id = first; id <= (int)last; id++) {
        char *text;

        if (!ds_has(f, id))
            continue;
        text = xasprintf("%s has no effect %s %s", ds_path(id), where, word);
        ds_note(f, &f->value[id], text);
        free(text);
    }
}

/* Without weight_decay there is none, but torch_adam makes torch.optim.AdamW, unless Adam is asked
 * for by adam_w_mode. */
static const char *default_decay(const struct ds_file *f)
{
    const int is_adam = ds_is_word(f, OPT_TYPE, "Adam") && ds_is_word(f, OPT_ADAM_W, "false");

    return ds_is_true(f, OPT_TORCH_ADAM) && !is_adam && !is_muon(f) ? "0.01" : "0";
}

/* 1: the file gives one of our keys, by the parameter that is the key there. */
static int optimizer_gives(const struct ds_file *f, const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(params); i++)
        if (!strcmp(params[i].key, key))
            return ds_has(f, params[i].id);
    return 0;
}

/* DeepSpeed's Lion and Lamb (FusedLion, FusedLamb) have other defaults than the papers, which ours
 * follow.  The bias correction of Lamb is a factor on the rate there, so it does not cancel in the
 * ratio. */
static int give_own_defaults(struct ds_file *f, struct err *err)
{
    struct ds_value at = f->value[OPT_TYPE];
    int rc = 0;

    for (const struct optimizer_default *d = find_optimizer(f)->deepspeed_default; d->key; d++) {
        at.is_list = d->is_list;
        if (rc == 0 && !optimizer_gives(f, d->key))
            rc = ds_put(f, &at, d->key, d->text, err);
    }
    if (rc < 0 || !ds_is_word(f, OPT_TYPE, "Lamb"))
        return rc;
    at.is_list = 0;
    return ds_put(f, &at, "optimizer.bias_correction",
                  ds_is_word(f, OPT_CORRECTION, "false") ? "none" : "rate", err);
}

/* Defaults differ from PyTorch's: no weight decay, and a rate of 1e-3. */
int ds_give_optimizer(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[OPT_TYPE];
    int rc;

    if (!type->text) {
        const struct ds_value none = {.line = 1, .column = 1};

        ds_note(f, &none, "there is no optimizer: it is optimizer.name, by --set or its default");
        note_unread(f, OPT_MUON_LR, OPT_MIN_COEFF, "without", "optimizer.type");
        return ds_put_value(f, OPT_LR, "optimizer.lr", err);
    }
    rc = give_optimizer_name(f, err);
    if (rc == 0)
        rc = ds_has(f, rate_id(f)) ? ds_put_value(f, rate_id(f), "optimizer.lr", err)
                                   : ds_put(f, type, "optimizer.lr", default_rate(f), err);
    if (rc == 0)
        rc = ds_has(f, OPT_DECAY)
                 ? ds_put_value(f, OPT_DECAY, "optimizer.weight_decay", err)
                 : ds_put(f, type, "optimizer.weight_decay", default_decay(f), err);
    if (rc == 0)
        rc = give_rest_of_muon(f, err);
    if (rc == 0)
        rc = give_own_defaults(f, err);
    for (size_t i = 0; i < ARRAY_LEN(params) && rc == 0; i++)
        rc = ds_put_value(f, params[i].id, is_muon(f) ? params[i].of_muon : params[i].key, err);
    return rc;
}

/* ---- scheduler ---- */

static int refuse_scheduler(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE];

    if (ds_is_word(f, SCHED_TYPE, "OneCycle"))
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

/* The length of the schedule is total_num_steps, whatever ends the job. */
static int give_total(struct ds_file *f, struct err *err)
{
    const struct ds_value *total = &f->value[SCHED_TOTAL];
    double n;

    if (!total->text)
        return 0;
    if (ds_integer(f, SCHED_TOTAL, "total_num_steps", &n, err) < 0)
        return err->code;
    ds_note(f, total,
            "total_num_steps is schedule.total_steps, at which the rate ends, and train.max_steps: "
            "the job ends there, or with train.epochs if that comes first");
    if (ds_put_number(f, total, "schedule.total_steps", n, err) < 0)
        return err->code;
    return ds_put_number(f, total, "train.max_steps", n, err);
}

/* The warm-up has 2 steps or more there. */
static int give_warmup(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE], *steps = &f->value[SCHED_WARMUP];
    const int is_linear = ds_is_word(f, SCHED_WARMUP_TYPE, "linear");
    double n = 1000;

    if (ds_has(f, SCHED_WARMUP) && ds_integer(f, SCHED_WARMUP, "warmup_num_steps", &n, err) < 0)
        return err->code;
    if (ds_has(f, SCHED_WARMUP_TYPE) && !is_linear && !ds_is_word(f, SCHED_WARMUP_TYPE, "log"))
        ds_note(f, &f->value[SCHED_WARMUP_TYPE],
                "warmup_type is neither log nor linear: it is log, as there");
    if (ds_put_number(f, steps->text ? steps : type, "schedule.warmup_steps", fmax(n, 2), err) <
            0 ||
        ds_put(f, type, "schedule.warmup_shape", is_linear ? "linear" : "log", err) < 0)
        return err->code;
    return ds_put(f, type, "schedule.timing", "deepspeed", err);
}

/* The peak without warmup_max_lr: WarmupLR takes the optimizer's rate, WarmupDecayLR 0.001.  With
 * null both take the optimizer's. */
static int read_peak(struct ds_file *f, double lr, double *peak, struct err *err)
{
    const int is_null = ds_is_word(f, SCHED_MAX_LR, "null");
    const int is_fixed = ds_is_word(f, SCHED_TYPE, "WarmupDecayLR") && !ds_has(f, SCHED_MAX_LR);

    if (is_fixed && lr != 0.001)
        ds_note(
            f, &f->value[SCHED_TYPE],
            "warmup_max_lr is not given: the peak of WarmupDecayLR is then 0.001, as there, not "
            "the optimizer's rate");
    *peak = is_fixed ? 0.001 : lr;
    if (is_null || is_fixed)
        return 0;
    return ds_number(f, SCHED_MAX_LR, "warmup_max_lr", 1e-30, 1e6, lr, peak, err);
}

/* A warm-up from `low` to the peak; the peak is scheduler.params.warmup_max_lr, of all parameters.
 */
static int give_warmup_lr(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE];
    double low, high = 0, lr;
    int rc = ds_number(f, SCHED_MIN_LR, "warmup_min_lr", 0, 1e6, 0, &low, err);

    if (rc == 0)
        rc = ds_number(f, rate_id(f), "lr", 0, 1e6, atof(default_rate(f)), &lr, err);
    if (rc == 0)
        rc = read_peak(f, lr, &high, err);
    if (rc < 0)
        return rc;
    if (low > high) {
        err_set(err, ERR_CONFIG, "warmup_min_lr is %g, want at most the peak of the warm-up, %g",
                low, high);
        return ds_fail_at(f, &f->value[SCHED_MIN_LR], err);
    }
    rc = ds_put_number(f, ds_has(f, SCHED_MAX_LR) ? &f->value[SCHED_MAX_LR] : type, "optimizer.lr",
                       high, err);
    if (rc == 0 && is_muon(f) && high != lr)
        rc = ds_put_number(f, type, "optimizer.adamw.lr", high, err);
    return rc == 0 ? ds_put_number(f, type, "schedule.warmup_start", low / high, err) : rc;
}

static int give_cosine(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE];
    double lr, start, end;
    int rc = ds_number(f, rate_id(f), "lr", 1e-30, 1e6, atof(default_rate(f)), &lr, err);

    if (rc == 0)
        rc = ds_number(f, SCHED_MIN_RATIO, "warmup_min_ratio", 0, 1, 0, &start, err);
    if (rc == 0)
        rc = ds_number(f, SCHED_COS_RATIO, "cos_min_ratio", 0, 1, 0.0001, &end, err);
    if (rc == 0)
        rc = ds_put_number(f, type, "schedule.warmup_start", start, err);
    return rc == 0 ? ds_put_number(f, type, "schedule.min_lr", end * lr, err) : rc;
}

int ds_give_scheduler(struct ds_file *f, struct err *err)
{
    const struct ds_value *type = &f->value[SCHED_TYPE];
    const char *name = ds_is_word(f, SCHED_TYPE, "WarmupLR")         ? "constant"
                       : ds_is_word(f, SCHED_TYPE, "WarmupDecayLR")  ? "linear"
                       : ds_is_word(f, SCHED_TYPE, "WarmupCosineLR") ? "cosine"
                                                                     : NULL;
    int rc;

    if (!type->text) {
        note_unread(f, SCHED_MIN_LR, SCHED_COS_RATIO, "without", "scheduler.type");
        return 0;
    }
    if (!name)
        return refuse_scheduler(f, err);
    if (ds_is_word(f, SCHED_TYPE, "WarmupCosineLR"))
        note_unread(f, SCHED_MIN_LR, SCHED_MAX_LR, "with scheduler.type", type->text);
    else
        note_unread(f, ds_is_word(f, SCHED_TYPE, "WarmupLR") ? SCHED_TOTAL : SCHED_MIN_RATIO,
                    SCHED_COS_RATIO, "with scheduler.type", type->text);
    rc = ds_put(f, type, "schedule.name", name, err);
    if (rc == 0)
        rc = give_warmup(f, err);
    if (rc == 0)
        rc = !strcmp(name, "cosine") ? give_cosine(f, err) : give_warmup_lr(f, err);
    return rc == 0 && strcmp(name, "constant") != 0 ? give_total(f, err) : rc;
}
