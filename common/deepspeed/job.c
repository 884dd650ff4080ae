/* DeepSpeed's other settings as our keys: batch sizes, precision, and how ranks share the work.
 * deepspeed/optimizer.c has the optimizer and the scheduler. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "deepspeed/impl.h"

/* ---- batch sizes ---- */

/* train_batch_size = micro batch * accumulation * ranks: two of them give the third. */
static int give_batch(struct ds_file *f, struct err *err)
{
    const double n = (double)max_i64(f->n_ranks, 1);
    const struct ds_value *at = &f->value[ds_has(f, TRAIN_BATCH) ? TRAIN_BATCH : MICRO_BATCH];
    double batch = 0, micro = 0, parts = 0;
    int rc = ds_integer(f, TRAIN_BATCH, "train_batch_size", &batch, err);

    if (rc == 0)
        rc = ds_integer(f, MICRO_BATCH, "train_micro_batch_size_per_gpu", &micro, err);
    if (rc == 0)
        rc = ds_integer(f, ACCUMULATE, "gradient_accumulation_steps", &parts, err);
    if (rc < 0)
        return rc;
    if (!batch && !micro) {
        const struct ds_value none = {.line = 1, .column = 1};

        ds_note(
            f, &none,
            "neither train_batch_size nor train_micro_batch_size_per_gpu is given: the batch is "
            "train.global_batch, by --set or its default");
        return parts ? ds_put_number(f, &f->value[ACCUMULATE], "train.accumulate", parts, err) : 0;
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
    rc = ds_put_number(f, at, "train.global_batch", batch, err);
    return rc == 0 ? ds_put_number(f, at, "train.accumulate", parts, err) : rc;
}

/* ---- precision ---- */

static int give_scale(struct ds_file *f, struct err *err)
{
    double scale, power;
    int rc = ds_number(f, FP16_SCALE, "fp16.loss_scale", 0, 1e30, 0, &scale, err);

    if (rc == 0 && scale != 0) {
        err_set(
            err, ERR_CONFIG,
            "fp16.loss_scale %g is not supported: the scale follows overflows here; give 0, and "
            "initial_scale_power",
            scale);
        return ds_fail_at(f, &f->value[FP16_SCALE], err);
    }
    if (rc == 0)
        rc = ds_number(f, FP16_POWER, "fp16.initial_scale_power", 0, 24, 16, &power, err);
    if (rc == 0 && ds_has(f, FP16_POWER))
        rc = ds_put_number(f, &f->value[FP16_POWER], "loss_scale.initial", ldexp(1, (int)power),
                           err);
    if (rc == 0)
        rc = ds_put_integer(f, FP16_WINDOW, "fp16.loss_scale_window", "loss_scale.window", err);
    if (rc == 0)
        rc = ds_put_integer(f, FP16_HYSTERESIS, "fp16.hysteresis", "loss_scale.hysteresis", err);
    return rc == 0 ? ds_put_value(f, FP16_MIN, "loss_scale.min", err) : rc;
}

/* 1: the value is one of the words [n]. */
static int is_one_of(const struct ds_file *f, enum id id, const char *const *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ds_is_word(f, id, word[i]))
            return 1;
    return 0;
}

static int give_autocast(struct ds_file *f, struct err *err)
{
    static const char *const wide[] = {"fp32", "float32", "float", "torch.float32"};
    static const char *const half[] = {"bf16", "bfloat16", "torch.bfloat16"};
    const struct ds_value *on = &f->value[AUTOCAST], *type = &f->value[AUTOCAST_DTYPE];

    if (ds_is_true(f, FP16) || ds_is_true(f, BF16)) {
        err_set(err, ERR_CONFIG, "torch_autocast is enabled beside fp16 or bf16, want one of them");
        return ds_fail_at(f, on, err);
    }
    if (is_one_of(f, AUTOCAST_DTYPE, wide, ARRAY_LEN(wide)))
        return 0;
    if (!is_one_of(f, AUTOCAST_DTYPE, half, ARRAY_LEN(half))) {
        err_set(err, ERR_CONFIG,
                "torch_autocast.dtype is %.40s, which is not supported: want bfloat16, or fp16 "
                "enabled in its place",
                type->text ? type->text : "missing");
        return ds_fail_at(f, type->text ? type : on, err);
    }
    ds_note(f, on,
            "torch_autocast is precision bfloat16; gradients travel as communication_data_type "
            "says, in float32 without it");
    return ds_put(f, type, "precision", "bfloat16", err);
}

static int give_precision(struct ds_file *f, struct err *err)
{
    int rc;

    if (ds_is_true(f, AUTOCAST))
        return give_autocast(f, err);

    if (ds_is_true(f, FP16) && ds_is_true(f, BF16)) {
        err_set(err, ERR_CONFIG, "fp16 and bf16 are both enabled, want one of them");
        return ds_fail_at(f, &f->value[BF16], err);
    }
    if (ds_is_true(f, BF16))
        return ds_put(f, &f->value[BF16], "precision", "bfloat16", err);
    if (!ds_is_true(f, FP16))
        return 0;
    rc = ds_put(f, &f->value[FP16], "precision", "float16", err);
    return rc == 0 ? give_scale(f, err) : rc;
}

/* ---- how ranks share the work ---- */

static int give_travel(struct ds_file *f, struct err *err)
{
    const struct ds_value *v = &f->value[COMM_TYPE];
    const char *type = ds_is_word(f, COMM_TYPE, "fp16")    ? "float16"
                       : ds_is_word(f, COMM_TYPE, "bf16")  ? "bfloat16"
                       : ds_is_word(f, COMM_TYPE, "bfp16") ? "bfloat16"
                                                           : NULL;

    if (!v->text || ds_is_word(f, COMM_TYPE, "fp32"))
        return 0;
    if (type)
        return ds_put(f, v, "strategy.compress", type, err);
    err_set(err, ERR_CONFIG, "communication_data_type is %.40s, want fp16, bfp16 or fp32", v->text);
    return ds_fail_at(f, v, err);
}

/* The sum is divided by the global batch in any case, so the factor matters only where gradients
 * are rounded on their way. */
static int give_predivide(struct ds_file *f, struct err *err)
{
    const struct ds_value *v = &f->value[PREDIVIDE];
    const int is_rounded = ds_has(f, COMM_TYPE) && !ds_is_word(f, COMM_TYPE, "fp32");
    double factor;

    if (ds_number(f, PREDIVIDE, "gradient_predivide_factor", 1e-30, 1e30, 1, &factor, err) < 0)
        return err->code;
    if (factor == 1)
        return 0;
    if (is_rounded)
        return ds_put_value(f, PREDIVIDE, "strategy.gradient_predivide_factor", err);
    ds_note(f, v,
            "gradient_predivide_factor has no effect: gradients travel in float32; it counts with "
            "communication_data_type fp16 or bf16");
    return 0;
}

static int check_allreduce_op(struct ds_file *f, struct err *err)
{
    const struct ds_value *v = &f->value[ALLREDUCE_OP];

    if (!v->text || ds_is_word(f, ALLREDUCE_OP, "mean"))
        return 0;
    err_set(
        err, ERR_CONFIG,
        ds_is_word(f, ALLREDUCE_OP, "sum")
            ? "gradient_allreduce_op %.40s is not supported: gradients are means over the global "
              "batch; want mean (with SGD a rate times the number of ranks is the same)"
            : "gradient_allreduce_op is %.40s, want mean",
        v->text);
    return ds_fail_at(f, v, err);
}

/* Rows of metrics.csv take the place of what DeepSpeed prints; Accelerate writes Infinity for
 * never. */
static int give_printing(struct ds_file *f, struct err *err)
{
    const struct ds_value *v = &f->value[PRINT_STEPS];

    if (v->text && (ds_is_word(f, PRINT_STEPS, "Infinity") || ds_is_word(f, PRINT_STEPS, "inf"))) {
        ds_note(f, v,
                "steps_per_print is infinite: metrics.csv has rows as report.every_steps says");
        return 0;
    }
    return ds_put_integer(f, PRINT_STEPS, "steps_per_print", "report.every_steps", err);
}

static int give_clipping(struct ds_file *f, struct err *err)
{
    const struct ds_value none = {.line = 1, .column = 1};

    if (ds_has(f, CLIP))
        return ds_put_value(f, CLIP, "train.clip_norm", err);
    ds_note(
        f, &none,
        "gradient_clipping is not given: gradients are clipped at 1.0, the default of DeepSpeed "
        "0.19.8; older versions clipped nothing, which is gradient_clipping 0");
    return ds_put_number(f, &none, "train.clip_norm", 1, err);
}

/* Host memory keeps everything with offload_param, else the optimizer's state. */
static int give_offload(struct ds_file *f, struct err *err)
{
    const enum id id = ds_has(f, OFFLOAD_PARAM) && !ds_is_word(f, OFFLOAD_PARAM, "none") &&
                               !ds_is_word(f, OFFLOAD_PARAM, "false")
                           ? OFFLOAD_PARAM
                       : ds_has(f, OFFLOAD_OPTIMIZER) ? OFFLOAD_OPTIMIZER
                                                      : CPU_OFFLOAD;
    const struct ds_value *v = &f->value[id];

    if (!v->text || ds_is_word(f, id, "none") || ds_is_word(f, id, "false"))
        return 0;
    if (!ds_is_word(f, id, "cpu") && !ds_is_word(f, id, "true")) {
        err_set(err, ERR_CONFIG, "offloading to %.40s is not supported, want cpu or none", v->text);
        return ds_fail_at(f, v, err);
    }
    return ds_put(f, v, "strategy.offload", id == OFFLOAD_PARAM ? "all" : "optimizer", err);
}

/* Theirs counts elements; in our buckets each has 4 bytes, a float32. */
static int give_buckets(struct ds_file *f, struct err *err)
{
    enum { LARGE = 64 << 20 }; /* bytes */
    const struct ds_value *v = &f->value[REDUCE_BUCKET];
    double n;

    if (!v->text)
        return 0;
    if (ds_number(f, REDUCE_BUCKET, "zero_optimization.reduce_bucket_size", 1, 2.5e11, 0, &n, err) <
        0)
        return err->code;
    if (4 * n >= LARGE)
        ds_note(f, v,
                "zero_optimization.reduce_bucket_size is train.bucket_bytes, 4 bytes an element; "
                "sums of so large buckets overlap with little of the backward pass: without it "
                "they have 4 MiB");
    return ds_put_number(f, v, "train.bucket_bytes", 4 * floor(n), err);
}

int ds_give(struct ds_file *f, struct err *err)
{
    static int (*const parts[])(struct ds_file *, struct err *) = {
        give_batch,         ds_give_optimizer, ds_give_scheduler, give_precision,
        give_travel,        give_offload,      give_buckets,      give_predivide,
        check_allreduce_op, give_printing,     give_clipping};
    static const struct {
        enum id id;
        const char *key;
    } same[] = {
        {DROP_LAST, "train.drop_last"}, {SEED, "train.seed"}, {ZERO_STAGE, "strategy.zero"}};
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(parts) && rc == 0; i++)
        rc = parts[i](f, err);
    for (size_t i = 0; i < ARRAY_LEN(same) && rc == 0; i++)
        rc = ds_put_value(f, same[i].id, same[i].key, err);
    return rc;
}
