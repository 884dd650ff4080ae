/* The keys of DeepSpeed's file.  A table says what each one is; the values of those that set
 * something are collected, because some depend on each other (batch sizes, optimizer, scheduler).
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "config/closest.h"
#include "deepspeed/impl.h"

/* ---- the keys ---- */

enum kind {
    SETS,     /* collected under `id` */
    SWITCHES, /* the same, and is true or false */
    NOTE,     /* no effect on numbers: `text` says why */
    REFUSED,  /* unless it is off: `text` says what to do */
    ONLY_1,   /* refused unless it is 1 or off */
    ONLY_ON,  /* refused unless it is true */
    ONLY_F32, /* refused unless it is fp32, another word for that, or null */
};

struct key {
    const char *path;
    enum kind kind;
    enum id id;
    const char *text;
    int is_optional; /* 1: null, DeepSpeed's default, is the same as leaving it out */
};

static const char overlaps[] = "dptrain always overlaps communication with backward";
static const char collectives[] = "the stage alone says which collectives are used";
static const char buckets[] =
    "parameters are gathered in the buckets of the gradients (reduce_bucket_size)";
static const char memory[] = "dptrain plans memory itself";
static const char shown[] = "dptrain reports in events.jsonl and metrics.csv in any case";
static const char at_save[] = "dptrain's checkpoints are whole, whatever the number of ranks";
static const char float32_state[] =
    "weights, gradients' sums and the optimizer's state are float32 here; leave it out";
static const char device_io[] = "nothing is kept on NVMe disks, and host memory needs no such word";

static const struct key keys[] = {
    {"train_batch_size", SETS, TRAIN_BATCH, NULL, 1},
    {"train_micro_batch_size_per_gpu", SETS, MICRO_BATCH, NULL, 1},
    {"gradient_accumulation_steps", SETS, ACCUMULATE, NULL, 1},
    {"gradient_clipping", SETS, CLIP, NULL},
    {"steps_per_print", SETS, PRINT_STEPS, NULL, 1},
    {"dataloader_drop_last", SWITCHES, DROP_LAST, NULL},
    {"communication_data_type", SETS, COMM_TYPE, NULL, 1},
    {"seed", SETS, SEED, NULL},
    {"prescale_gradients", NOTE, 0, "the sum is the same; it is divided by the global batch here"},
    {"gradient_predivide_factor", SETS, PREDIVIDE, NULL},
    {"gradient_allreduce_op", SETS, ALLREDUCE_OP, NULL},
    {"managed_gradient_accumulation", ONLY_ON, 0,
     "each update takes gradient_accumulation_steps micro-batches here; leave it out"},
    {"seq_parallel_communication_data_type", NOTE, 0, "ranks share the data, not sequences"},
    {"disable_python_gc", NOTE, 0, "there is no Python"},
    {"log_level", NOTE, 0, "--log-format and --quiet say what is logged"},
    {"vocabulary_size", NOTE, 0, "model.vocab is the network's"},
    {"compile", NOTE, 0, "layers are fused in any case"},
    {"datastates_ckpt", NOTE, 0, at_save},
    {"use_data_before_expert_parallelism", NOTE, 0, "there are no experts"},
    {"hybrid_engine", REFUSED, 0, "it is for generating while training; leave it out"},
    {"weight_quantization", REFUSED, 0, "weights are float32 here; leave it out"},
    {"expert_parallel", REFUSED, 0, "ranks share the data, not experts; leave it out"},
    {"torch_autocast.enabled", SWITCHES, AUTOCAST, NULL},
    {"torch_autocast.dtype", SETS, AUTOCAST_DTYPE, NULL},
    {"torch_autocast.lower_precision_safe_modules", NOTE, 0,
     "communication_data_type says how gradients travel"},
    {"sparse_gradients", NOTE, 0, "gradients travel whole; the sums are the same"},
    {"disable_allgather", NOTE, 0, overlaps},
    {"zero_allow_untested_optimizer", NOTE, 0,
     "optimizers that cannot be divided are refused by name"},
    {"zero_force_ds_cpu_optimizer", NOTE, 0, "there is one implementation of each optimizer"},
    {"wall_clock_breakdown", NOTE, 0, shown},
    {"memory_breakdown", NOTE, 0, shown},
    {"dump_state", NOTE, 0, "dpdriver --check prints the job"},
    {"flops_profiler", NOTE, 0, shown},
    {"tensorboard", NOTE, 0, shown},
    {"wandb", NOTE, 0, shown},
    {"comet", NOTE, 0, shown},
    {"csv_monitor", NOTE, 0, "metrics.csv is written in any case"},
    {"comms_logger", NOTE, 0, "every rank's collectives are recorded in any case"},
    {"activation_checkpointing", NOTE, 0,
     "activations are kept; train.recompute: selective or blocks computes them again"},
    {"aio", NOTE, 0, device_io},
    {"autotuning", NOTE, 0, "dptrain does not search for settings"},
    {"checkpoint", NOTE, 0, at_save},
    {"nebula", NOTE, 0, at_save},
    {"load_universal", NOTE, 0, at_save},
    {"timers", NOTE, 0, shown},
    {"graph_harvesting", NOTE, 0, "steps on GPUs are recorded in any case (train.record)"},
    {"amp", REFUSED, 0, "take bf16 or fp16 instead"},
    {"elasticity", REFUSED, 0,
     "it chooses the batch size by the number of GPUs; here train_batch_size stays, and "
     "cluster.min_ranks and max_ranks say how many ranks there may be"},
    {"sparse_attention", REFUSED, 0, "attention is dense here; leave it out"},
    {"compression_training", REFUSED, 0, "the model is trained as it is here; leave it out"},
    {"quantize_training", REFUSED, 0, "the model is trained as it is here; leave it out"},
    {"eigenvalue", REFUSED, 0, "leave it out"},
    {"progressive_layer_drop", REFUSED, 0, "all layers are trained here; leave it out"},
    {"curriculum_learning", REFUSED, 0, "samples come in a random order here; leave it out"},
    {"data_efficiency", REFUSED, 0, "samples come in a random order here; leave it out"},
    {"tensor_parallel", REFUSED, 0, "ranks share the data, not layers; leave it out"},
    {"pipeline", REFUSED, 0, "ranks share the data, not layers; leave it out"},
    {"sequence_parallel_size", ONLY_1, 0, "ranks share the data, not sequences; leave it out"},
    {"data_types.grad_accum_dtype", ONLY_F32, 0, "gradients are added up in float32; leave it out"},
    {"data_types.param_dtype", ONLY_F32, 0,
     "weights are float32 here; leave it out, and take bf16 or fp16"},
    {"data_types.buffer_dtype", ONLY_F32, 0, "running statistics are float32; leave it out"},
    {"data_types.keep_in_fp32_modules", NOTE, 0, "weights and running statistics are float32"},
    {"optimizer.type", SETS, OPT_TYPE, NULL, 1},
    {"optimizer.legacy_fusion", NOTE, 0, "there is one implementation of each optimizer"},
    {"optimizer.params.lr", SETS, OPT_LR, NULL},
    {"optimizer.params.muon_lr", SETS, OPT_MUON_LR, NULL},
    {"optimizer.params.adam_lr", SETS, OPT_ADAM_LR, NULL},
    {"optimizer.params.betas", SETS, OPT_BETAS, NULL},
    {"optimizer.params.eps", SETS, OPT_EPS, NULL},
    {"optimizer.params.weight_decay", SETS, OPT_DECAY, NULL},
    {"optimizer.params.momentum", SETS, OPT_MOMENTUM, NULL},
    {"optimizer.params.dampening", SETS, OPT_DAMPENING, NULL},
    {"optimizer.params.nesterov", SWITCHES, OPT_NESTEROV, NULL},
    {"optimizer.params.adam_w_mode", SWITCHES, OPT_ADAM_W, NULL},
    {"optimizer.params.torch_adam", SWITCHES, OPT_TORCH_ADAM, NULL},
    {"optimizer.params.foreach", NOTE, 0, "there is one implementation of each optimizer"},
    {"optimizer.params.fused", NOTE, 0, "there is one implementation of each optimizer"},
    {"optimizer.params.capturable", NOTE, 0, "there is one implementation of each optimizer"},
    {"optimizer.params.set_grad_none", NOTE, 0, memory},
    {"optimizer.params.ns_method", NOTE, 0, "both methods make the same matrices, to rounding"},
    {"optimizer.params.fp32_optimizer_states", NOTE, 0, "an optimizer's state is float32"},
    {"optimizer.params.bias_correction", SWITCHES, OPT_CORRECTION, NULL},
    {"optimizer.params.max_coeff", SETS, OPT_MAX_COEFF, NULL},
    {"optimizer.params.min_coeff", SETS, OPT_MIN_COEFF, NULL},
    {"optimizer.params.eps_inside_sqrt", REFUSED, 0, "leave it out"},
    {"optimizer.params.max_grad_norm", REFUSED, 0,
     "DeepSpeed refuses it, too; give gradient_clipping in its place"},
    {"optimizer.params.maximize", REFUSED, 0, "losses get smaller here; leave it out"},
    {"optimizer.params.differentiable", REFUSED, 0, "leave it out"},
    {"optimizer.params.amsgrad", REFUSED, 0, "leave it out"},
    {"optimizer.params.freeze_step", REFUSED, 0,
     "it belongs to 1-bit optimizers; take type Adam and leave it out"},
    {"scheduler.type", SETS, SCHED_TYPE, NULL, 1},
    {"scheduler.params.warmup_min_lr", SETS, SCHED_MIN_LR, NULL},
    {"scheduler.params.warmup_max_lr", SETS, SCHED_MAX_LR, NULL, 1},
    {"scheduler.params.warmup_num_steps", SETS, SCHED_WARMUP, NULL},
    {"scheduler.params.warmup_type", SETS, SCHED_WARMUP_TYPE, NULL},
    {"scheduler.params.total_num_steps", SETS, SCHED_TOTAL, NULL},
    {"scheduler.params.warmup_min_ratio", SETS, SCHED_MIN_RATIO, NULL},
    {"scheduler.params.cos_min_ratio", SETS, SCHED_COS_RATIO, NULL},
    {"scheduler.params.last_batch_iteration", NOTE, 0, "--resume goes on with the right step"},
    {"fp16.enabled", SWITCHES, FP16, NULL},
    {"fp16.loss_scale", SETS, FP16_SCALE, NULL},
    {"fp16.initial_scale_power", SETS, FP16_POWER, NULL},
    {"fp16.loss_scale_window", SETS, FP16_WINDOW, NULL},
    {"fp16.hysteresis", SETS, FP16_HYSTERESIS, NULL},
    {"fp16.min_loss_scale", SETS, FP16_MIN, NULL},
    {"fp16.consecutive_hysteresis", REFUSED, 0,
     "the count starts anew only when the scale has doubled; leave it out"},
    {"fp16.auto_cast", NOTE, 0, "inputs are always cast"},
    {"fp16.fp16_master_weights_and_grads", REFUSED, 0, "weights are float32 here; leave it out"},
    {"bf16.enabled", SWITCHES, BF16, NULL},
    {"bf16.immediate_grad_update", NOTE, 0, "gradients are added up in float32"},
    {"bf16.check_grad_overflow", NOTE, 0, "gradients are always checked (train.on_nonfinite)"},
    {"bf16.bf16_master_weights_and_grads", REFUSED, 0, float32_state},
    {"bf16.bf16_optimizer_states", REFUSED, 0, float32_state},
    {"bfloat16.enabled", SWITCHES, BF16, NULL},
    {"bfloat16.immediate_grad_update", NOTE, 0, "gradients are added up in float32"},
    {"bfloat16.check_grad_overflow", NOTE, 0, "gradients are always checked (train.on_nonfinite)"},
    {"bfloat16.bf16_master_weights_and_grads", REFUSED, 0, float32_state},
    {"bfloat16.bf16_optimizer_states", REFUSED, 0, float32_state},
    {"zero_optimization.stage", SETS, ZERO_STAGE, NULL},
    {"zero_optimization.offload_optimizer.device", SETS, OFFLOAD_OPTIMIZER, NULL},
    {"zero_optimization.offload_param.device", SETS, OFFLOAD_PARAM, NULL},
    {"zero_optimization.cpu_offload", SWITCHES, CPU_OFFLOAD, NULL, 1},
    {"zero_optimization.cpu_offload_param", SWITCHES, OFFLOAD_PARAM, NULL, 1},
    {"zero_optimization.allgather_partitions", NOTE, 0, collectives},
    {"zero_optimization.allgather_bucket_size", NOTE, 0, buckets},
    {"zero_optimization.reduce_bucket_size", SETS, REDUCE_BUCKET, NULL},
    {"zero_optimization.reduce_scatter", NOTE, 0, collectives},
    {"zero_optimization.overlap_comm", NOTE, 0, overlaps},
    {"zero_optimization.contiguous_gradients", NOTE, 0, "gradients always lie in one buffer"},
    {"zero_optimization.round_robin_gradients", NOTE, 0, collectives},
    {"zero_optimization.use_multi_rank_bucket_allreduce", NOTE, 0, collectives},
    {"zero_optimization.load_from_fp32_weights", NOTE, 0, at_save},
    {"zero_optimization.elastic_checkpoint", NOTE, 0, at_save},
    {"zero_optimization.pipeline_loading_checkpoint", NOTE, 0, at_save},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", NOTE, 0, at_save},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", NOTE, 0, at_save},
    {"zero_optimization.ignore_unused_parameters", NOTE, 0, "every parameter has a gradient here"},
    {"zero_optimization.legacy_stage1", NOTE, 0, "there is one implementation"},
    {"zero_optimization.sub_group_size", NOTE, 0, memory},
    {"zero_optimization.stage3_max_live_parameters", NOTE, 0, memory},
    {"zero_optimization.stage3_max_reuse_distance", NOTE, 0, memory},
    {"zero_optimization.stage3_prefetch_bucket_size", NOTE, 0, memory},
    {"zero_optimization.stage3_param_persistence_threshold", NOTE, 0, memory},
    {"zero_optimization.stage3_model_persistence_threshold", NOTE, 0, memory},
    {"zero_optimization.memory_efficient_linear", NOTE, 0, memory},
    {"zero_optimization.cpu_offload_use_pin_memory", NOTE, 0, device_io},
    {"zero_optimization.offload_optimizer.pin_memory", NOTE, 0, device_io},
    {"zero_optimization.offload_optimizer.nvme_path", NOTE, 0, device_io},
    {"zero_optimization.offload_optimizer.buffer_count", NOTE, 0, device_io},
    {"zero_optimization.offload_optimizer.pipeline_read", NOTE, 0, device_io},
    {"zero_optimization.offload_optimizer.pipeline_write", NOTE, 0, device_io},
    {"zero_optimization.offload_optimizer.fast_init", NOTE, 0, device_io},
    {"zero_optimization.offload_optimizer.ratio", NOTE, 0, "all of it is kept in one place"},
    {"zero_optimization.offload_param.pin_memory", NOTE, 0, device_io},
    {"zero_optimization.offload_param.nvme_path", NOTE, 0, device_io},
    {"zero_optimization.offload_param.buffer_count", NOTE, 0, device_io},
    {"zero_optimization.offload_param.buffer_size", NOTE, 0, device_io},
    {"zero_optimization.offload_param.max_in_cpu", NOTE, 0, device_io},
    {"zero_optimization.zero_hpz_partition_size", NOTE, 0, "there is no second partition"},
    {"zero_optimization.mics_shard_size", NOTE, 0, "there is no second partition"},
    {"zero_optimization.mics_hierarchical_params_gather", NOTE, 0, "there is no second partition"},
    {"zero_optimization.zenflow", REFUSED, 0,
     "updates would be made of older gradients; leave it out"},
    {"zero_optimization.compute_grad_norm", NOTE, 0, "the norm is always computed"},
    {"zero_optimization.stage3_module_granularity_threshold", NOTE, 0, memory},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", NOTE, 0, collectives},
    {"zero_optimization.stage3_allgather_sequential", NOTE, 0, collectives},
    {"zero_optimization.parameter_alignment", NOTE, 0, memory},
    {"zero_optimization.override_module_apply", NOTE, 0, memory},
    {"zero_optimization.log_trace_cache_warnings", NOTE, 0, shown},
    {"zero_optimization.enable_sanity_checks", NOTE, 0, shown},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", NOTE, 0, memory},
    {"zero_optimization.leaf_module", NOTE, 0, memory},
    {"zero_optimization.zero_quantized_weights", REFUSED, 0, "weights travel whole; leave it out"},
    {"zero_optimization.zero_quantized_gradients", REFUSED, 0,
     "leave it out; strategy.compress says how gradients travel"},
    {"zero_optimization.zero_quantized_nontrainable_weights", REFUSED, 0,
     "weights travel whole; leave it out"},
};

/* ---- the file ---- */

void ds_note(struct ds_file *f, const struct ds_value *at, const char *text)
{
    buf_printf(f->notes, "%s:%d:%d: %s\n", f->r->origin, at->line, at->column, text);
}

int ds_fail_at(const struct ds_file *f, const struct ds_value *at, struct err *err)
{
    return err_wrap(err, "%s:%d:%d", f->r->origin, at->line, at->column);
}

static struct ds_value keys_place_of(const yaml_node_t *n)
{
    return (struct ds_value){.line = (int)n->start_mark.line + 1,
                             .column = (int)n->start_mark.column + 1};
}

static const char *keys_scalar(const yaml_node_t *n)
{
    return n && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : "";
}

/* The value as messages show it. */
static const char *shown_as(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE     ? *keys_scalar(n) ? keys_scalar(n) : "empty"
           : n->type == YAML_SEQUENCE_NODE ? "a list"
                                           : "a mapping";
}

static const struct key *find_key(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (!strcmp(keys[i].path, path))
            return &keys[i];
    return NULL;
}

const char *ds_path(enum id id)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if ((keys[i].kind == SETS || keys[i].kind == SWITCHES) && keys[i].id == id)
            return keys[i].path;
    ASSERT(!"each value has a key");
    return NULL;
}

static int has_keys_below(const char *path)
{
    size_t n = strlen(path);

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (!strncmp(keys[i].path, path, n) && keys[i].path[n] == '.')
            return 1;
    return 0;
}

const yaml_node_t *ds_member(struct ds_file *f, const yaml_node_t *map, const char *name)
{
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start;
         map->type == YAML_MAPPING_NODE && p < map->data.mapping.pairs.top; p++)
        if (!strcmp(keys_scalar(yaml_document_get_node(&f->doc, p->key)), name))
            return yaml_document_get_node(&f->doc, p->value);
    return NULL;
}

/* The answer of a section to the question whether it is on.  DeepSpeed has sections that `enabled`
 * switches on, and others that are on because they are there. */
struct wish {
    int n_seen, has_switch, is_on, asks;
};

static int is_nothing(const yaml_node_t *n, int is_inside)
{
    static const char *const off[] = {"false", "0", "null", "none", "", "0.0"};

    for (size_t i = 0; n->type == YAML_SCALAR_NODE && i < ARRAY_LEN(off); i++)
        if (!strcmp(keys_scalar(n), off[i]))
            return 1;
    return is_inside && !strcmp(keys_scalar(n), "1"); /* one stage, or one rank for a layer */
}

static void note_wish(struct ds_file *f, const yaml_node_t *n, int depth, struct wish *w)
{
    /* Bounds, because an alias may stand for the tree that has it. */
    enum { DEEPEST = 6, MOST_VALUES = 1000 };
    const yaml_node_t *enabled = ds_member(f, n, "enabled");

    if (w->n_seen++ > MOST_VALUES || depth > DEEPEST || n->type != YAML_MAPPING_NODE) {
        w->asks |= n->type != YAML_SCALAR_NODE || !is_nothing(n, depth > 0);
        return;
    }
    if (enabled) {
        w->has_switch = 1;
        w->is_on |= strcmp(keys_scalar(enabled), "false") != 0;
        return;
    }
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
         p++)
        note_wish(f, yaml_document_get_node(&f->doc, p->value), depth + 1, w);
}

static int is_null(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE && n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           !strcmp(keys_scalar(n), "null");
}

/* Does this value ask for nothing? */
static int is_off(struct ds_file *f, const yaml_node_t *n)
{
    struct wish w = {0};

    note_wish(f, n, 0, &w);
    return w.has_switch ? !w.is_on : !w.asks;
}

/* Does the value ask for what dptrain does not have? */
static int is_beyond_us(struct ds_file *f, const struct key *k, const yaml_node_t *n)
{
    static const char *const float32[] = {"fp32", "float32", "float", "torch.float32"};

    if (k->kind == ONLY_ON)
        return strcasecmp(keys_scalar(n), "true") != 0;
    if (k->kind == ONLY_1 && !strcmp(keys_scalar(n), "1"))
        return 0;
    for (size_t i = 0; k->kind == ONLY_F32 && i < ARRAY_LEN(float32); i++)
        if (!strcmp(keys_scalar(n), float32[i]))
            return 0;
    return !is_off(f, n);
}

static int check_switch(struct ds_file *f, const struct key *k, const yaml_node_t *n,
                        struct err *err)
{
    const struct ds_value at = keys_place_of(n);

    if (n->type == YAML_SCALAR_NODE && n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
        (!strcasecmp(keys_scalar(n), "true") || !strcasecmp(keys_scalar(n), "false")))
        return 0;
    err_set(err, ERR_CONFIG, "%s is %.40s, want true or false", k->path, shown_as(n));
    return ds_fail_at(f, &at, err);
}

/* A value stands where a mapping belongs.  "zero_optimization": true is an old form of stage 1. */
static int take_short(struct ds_file *f, const char *path, const yaml_node_t *n, struct err *err)
{
    const struct ds_value at = keys_place_of(n);

    if (is_off(f, n))
        return 0;
    if (!strcmp(path, "zero_optimization") && !strcmp(keys_scalar(n), "true")) {
        f->value[ZERO_STAGE] = at;
        f->value[ZERO_STAGE].text = xstrdup("1");
        return 0;
    }
    err_set(err, ERR_CONFIG, "%s is %.40s, want a mapping in braces", path, shown_as(n));
    return ds_fail_at(f, &at, err);
}

static int keys_collect(struct ds_file *f, const struct key *k, const yaml_node_t *n,
                        struct err *err)
{
    struct ds_value *v = &f->value[k->id];
    struct buf text = {0};

    if (is_null(n) && k->is_optional && k->id != SCHED_MAX_LR) /* its default is another one */
        return 0;
    if (is_null(n) && !k->is_optional) {
        const struct ds_value at = keys_place_of(n);

        err_set(err, ERR_CONFIG, "%s is null, want a value, or leave it out", k->path);
        return ds_fail_at(f, &at, err);
    }

    free(v->text);
    *v = keys_place_of(n);
    if (n->type == YAML_MAPPING_NODE) {
        err_set(err, ERR_CONFIG, "%s is a mapping, want a value", k->path);
        return ds_fail_at(f, v, err);
    }
    if (n->type == YAML_SEQUENCE_NODE) {
        v->is_list = 1;
        for (yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
             i++)
            buf_printf(&text, "%s%s", text.len ? ", " : "",
                       keys_scalar(yaml_document_get_node(&f->doc, *i)));
    } else {
        v->is_quoted = n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        buf_printf(&text, "%s", keys_scalar(n));
    }
    v->text = xstrdup(buf_cstr(&text));
    buf_fini(&text);
    return 0;
}

static void note_unknown(struct ds_file *f, const struct ds_value *at, const char *path)
{
    const char *best = NULL;
    int best_distance = 0;
    char *text;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        int d = closest_distance(path, keys[i].path);

        if (!best || d < best_distance) {
            best = keys[i].path;
            best_distance = d;
        }
    }
    if (best_distance > (int)strlen(path) / 3)
        best = NULL;
    text = xasprintf("%s is not known here and has no effect%s%s", path,
                     best ? "; the closest known key is " : "", best ? best : "");
    ds_note(f, at, text);
    free(text);
}

static int keys_walk(struct ds_file *f, const yaml_node_t *map, const char *prefix, int depth,
                     struct err *err);

/* DeepSpeed gives such a key to the optimizer or the scheduler, which fails if it has none of that
 * name. */
static int is_param(const char *path)
{
    return !strncmp(path, "optimizer.params.", 17) || !strncmp(path, "scheduler.params.", 17);
}

static int take_pair(struct ds_file *f, const char *path, const yaml_node_t *n, int depth,
                     struct err *err)
{
    const struct key *k = find_key(path);
    struct ds_value at = keys_place_of(n);
    char *text = NULL;
    int rc = 0;

    if (n->type == YAML_SCALAR_NODE && !strcmp(keys_scalar(n), "auto")) {
        text = xasprintf("%s is \"auto\", which counts as left out", path);
        ds_note(f, &at, text);
    } else if (n->type == YAML_MAPPING_NODE && has_keys_below(path)) {
        rc = keys_walk(f, n, path, depth + 1, err);
    } else if (!k && has_keys_below(path)) {
        rc = take_short(f, path, n, err);
    } else if (!k && is_param(path)) {
        err_set(err, ERR_CONFIG, "%s is not known here, and could change the numbers; leave it out",
                path);
        rc = ds_fail_at(f, &at, err);
    } else if (!k) {
        note_unknown(f, &at, path);
    } else if (k->kind == SWITCHES && !is_null(n) && check_switch(f, k, n, err) < 0) {
        rc = err->code;
    } else if (k->kind == SETS || k->kind == SWITCHES) {
        rc = keys_collect(f, k, n, err);
    } else if (k->kind == NOTE) {
        text = xasprintf("%s has no effect: %s", path, k->text);
        ds_note(f, &at, text);
    } else if (is_beyond_us(f, k, n)) {
        err_set(err, ERR_CONFIG, "%s is not supported: %s", path, k->text);
        rc = ds_fail_at(f, &at, err);
    }
    free(text);
    return rc;
}

/* A key that stands twice is refused, as DeepSpeed refuses it. */
static int keys_check_twice(struct ds_file *f, const yaml_node_t *map, const yaml_node_pair_t *pair,
                            struct err *err)
{
    const yaml_node_t *key = yaml_document_get_node(&f->doc, pair->key);
    struct ds_value at = keys_place_of(key);

    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < pair; p++)
        if (!strcmp(keys_scalar(yaml_document_get_node(&f->doc, p->key)), keys_scalar(key))) {
            err_set(err, ERR_CONFIG, "%s is given twice", keys_scalar(key));
            return ds_fail_at(f, &at, err);
        }
    return 0;
}

static int keys_walk(struct ds_file *f, const yaml_node_t *map, const char *prefix, int depth,
                     struct err *err)
{
    enum { DEEPEST = 6, MOST_KEYS = 1000 };
    int rc = 0;

    if (depth > DEEPEST ||
        map->data.mapping.pairs.top - map->data.mapping.pairs.start > MOST_KEYS) {
        struct ds_value at = keys_place_of(map);

        err_set(err, ERR_CONFIG, "too many values");
        return ds_fail_at(f, &at, err);
    }
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start;
         rc == 0 && p < map->data.mapping.pairs.top; p++) {
        char *path = xasprintf("%s%s%.100s", prefix, *prefix ? "." : "",
                               keys_scalar(yaml_document_get_node(&f->doc, p->key)));

        rc = keys_check_twice(f, map, p, err);
        if (rc == 0)
            rc = take_pair(f, path, yaml_document_get_node(&f->doc, p->value), depth, err);
        free(path);
    }
    return rc;
}

int ds_collect(struct ds_file *f, struct err *err)
{
    return keys_walk(f, yaml_document_get_root_node(&f->doc), "", 0, err);
}
