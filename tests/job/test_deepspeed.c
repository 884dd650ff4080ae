/* Tests of deepspeed: configurations as DeepSpeed's users write them, the job that each becomes,
 * and the notes about keys that have no effect or are not supported.
 *
 * Each accepted file names the section of DeepSpeed's documentation that describes its keys:
 *   config-json  www.deepspeed.ai/docs/config-json
 *   tutorials    www.deepspeed.ai/tutorials
 *   schedulers   deepspeed.readthedocs.io/en/latest/schedulers.html
 * The values, and the combinations of sections, are ours. */
#include "deepspeed_file.h"

enum { MOST = 12 };

struct good {
    const char *follows; /* the section, or "ours": the reason why no page has it */
    const char *text;
    int n_ranks;
    const char *job[MOST];   /* parts of the job as it is written */
    const char *notes[MOST]; /* lines, or parts of them; all other lines are about clipping */
};

static const struct good good[] = {
    /* Neither a batch nor an optimizer, and a comma before a bracket. */
    {"ours, after the file in LUMI's guide",
     "{\n  \"zero_optimization\": {\n    \"stage\": 0\n  },\n  \"fp16\": {\n"
     "    \"enabled\": false,\n  }\n}\n",
     4,
     {"precision: float32", "global_batch: 256"},
     {"ds.json:1:1: neither train_batch_size nor", "ds.json:1:1: there is no optimizer"}},
    /* Adam, and a warm-up that stays at its end. */
    {"config-json: Optimizer, Scheduler, Logging",
     "{\"train_batch_size\": 64, \"steps_per_print\": 200, \"gradient_clipping\": 1.0,\n"
     " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.001, \"betas\": [0.8, 0.95],\n"
     "   \"eps\": 1e-8, \"weight_decay\": 3e-7}},\n"
     " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0.0001,\n"
     "   \"warmup_max_lr\": 0.002, \"warmup_num_steps\": 100}},\n"
     " \"wall_clock_breakdown\": false}",
     2,
     {"name: adamw", "lr: 0.002", "betas: [0.8, 0.95]", "weight_decay: 3.0e-07",
      "warmup_steps: 100", "warmup_start: 0.05", "every_steps: 200", "clip_norm: 1",
      "warmup_shape: log", "timing: deepspeed"},
     {"ds.json:2:24: optimizer.type Adam is AdamW there",
      "ds.json:6:26: wall_clock_breakdown has no effect: "}},
    /* Micro-batches: 4 samples, 8 parts, 2 ranks. */
    {"config-json: Batch Size Related Parameters",
     "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 8,\n"
     " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-5}}, \"gradient_clipping\": "
     "0.5}",
     2,
     {"global_batch: 64", "accumulate: 8", "name: adamw", "lr: 3.0e-05", "weight_decay: 0\n",
      "clip_norm: 0.5"},
     {NULL}},
    /* The third of the three sizes follows from the other two. */
    {"config-json: Batch Size Related Parameters",
     "{\"train_batch_size\": 96, \"train_micro_batch_size_per_gpu\": 8, \"gradient_clipping\": 0,\n"
     " \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9,\n"
     "  \"nesterov\": true}}, \"dataloader_drop_last\": true}",
     3,
     {"global_batch: 96", "accumulate: 4", "name: sgd", "momentum: 0.9", "nesterov: true",
      "drop_last: true"},
     {NULL}},
    /* Comments, brain floating point, and Adam in its own sense. */
    {"config-json: BFLOAT16; the comments are ours",
     "// ours\n{ # the batch\n \"train_batch_size\": 32, /* of\n all */ \"bf16\": {\"enabled\": "
     "true},\n"
     " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false, \"lr\": 1e-4}},\n"
     " \"gradient_clipping\": 1, \"tensorboard\": {\"enabled\": true, \"output_path\": \"//a#b\"}}",
     1,
     {"global_batch: 32", "precision: bfloat16", "name: adam\n", "lr: 0.0001"},
     {"ds.json:6:41: tensorboard has no effect"}},
    /* As in DeepSpeed's engine, the name AdamW counts more than adam_w_mode. */
    {"config-json: Optimizer",
     "{\"train_batch_size\": 16, \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"AdamW\",\n"
     " \"params\": {\"adam_w_mode\": false}}}",
     1,
     {"name: adamw\n"},
     {"ds.json:2:28: optimizer.params.adam_w_mode has no effect with type AdamW"}},
    /* Dynamic loss scaling. */
    {"config-json: FP16",
     "{\"train_batch_size\": 16, \"gradient_clipping\": 1, \"fp16\": {\"enabled\": true,\n"
     "  \"loss_scale\": 0, \"initial_scale_power\": 12, \"loss_scale_window\": 500,\n"
     "  \"hysteresis\": 3, \"min_loss_scale\": 1, \"auto_cast\": false},\n"
     " \"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 1e-4, \"betas\": [0.9, 0.98]}}}",
     1,
     {"precision: float16", "initial: 4096", "window: 500", "hysteresis: 3", "name: lion",
      "betas: [0.9, 0.98]"},
     {"fp16.auto_cast has no effect: inputs are always cast"}},
    {"config-json: Optimizer, Muon",
     "{\"train_batch_size\": 16, \"gradient_clipping\": 1,\n"
     " \"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.02, \"momentum\": 0.9,\n"
     "  \"betas\": [0.8, 0.98], \"weight_decay\": 0.01}}}",
     1,
     {"name: muon\n  lr: 0.02\n", "momentum: 0.9", "  weight_decay: 0.01\n", "betas: [0.8, 0.98]",
      "    lr: 0.02\n", "    weight_decay: 0.01\n"},
     {NULL}},
    {"config-json: Optimizer, Muon; schedulers: WarmupCosineLR",
     "{\"train_batch_size\": 16, \"gradient_clipping\": 1,\n"
     " \"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.5, \"muon_lr\": 0.03,\n"
     "  \"adam_lr\": 0.002}}, \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\n"
     "  \"cos_min_ratio\": 0.1, \"warmup_num_steps\": 10, \"total_num_steps\": 90}}}",
     1,
     {"name: muon\n  lr: 0.03\n", "  weight_decay: 0\n", "    lr: 0.002\n", "    weight_decay: 0\n",
      "min_lr: 0.003\n"},
     {"total_num_steps is schedule.total_steps"}},
    /* Without rates; and the scheduler's peak is that of all parameters. */
    {"ours: the defaults of Muon",
     "{\"train_batch_size\": 16, \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"Muon\"}}",
     1,
     {"name: muon\n  lr: 0.02\n", "    lr: 0.0003\n"},
     {NULL}},
    {"config-json: Optimizer, Muon; schedulers: WarmupLR",
     "{\"train_batch_size\": 16, \"gradient_clipping\": 1,\n"
     " \"optimizer\": {\"type\": \"Muon\", \"params\": {\"muon_lr\": 0.03, \"adam_lr\": 0.002}},\n"
     " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.004,\n"
     "  \"warmup_min_lr\": 0.001, \"warmup_type\": \"linear\"}}}",
     1,
     {"name: muon\n  lr: 0.004\n", "    lr: 0.004\n", "warmup_start: 0.25\n"},
     {NULL}},
    /* Decay to the job's end. */
    {"schedulers: WarmupDecayLR",
     "{\"train_batch_size\": 16, \"gradient_clipping\": 1,\n"
     " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}},\n"
     " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 5000,\n"
     "  \"warmup_max_lr\": 0.01, \"warmup_num_steps\": 50, \"warmup_type\": \"linear\"}}}",
     1,
     {"max_steps: 5000", "total_steps: 5000", "name: linear", "warmup_steps: 50",
      "warmup_start: 0\n", "min_lr: 0\n", "warmup_shape: linear"},
     {"ds.json:3:71: total_num_steps is schedule.total_steps, at which the rate ends, and "
      "train.max_steps"}},
    {"schedulers: WarmupCosineLR",
     "{\"train_batch_size\": 16, \"gradient_clipping\": 1,\n"
     " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}},\n"
     " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 900,\n"
     "  \"warmup_min_ratio\": 0.1, \"cos_min_ratio\": 0.01, \"warmup_num_steps\": 10}}}",
     1,
     {"max_steps: 900", "name: cosine", "warmup_steps: 10", "warmup_start: 0.1", "min_lr: 0.0001"},
     {"total_num_steps is schedule.total_steps"}},
    /* Other tools fill in what is "auto"; one key is misspelt. */
    {"ours: \"auto\" is of Hugging Face's Trainer",
     "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
     " \"gradient_clipping\": \"auto\", \"gradient_acumulation_steps\": 4,\n"
     " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\"}}}",
     2,
     {"name: adamw", "lr: 0.001", "accumulate: 1\n"},
     {"ds.json:1:22: train_batch_size is \"auto\", which counts as left out",
      "gradient_acumulation_steps is not known here and has no effect; the closest known key is "
      "gradient_accumulation_steps",
      "optimizer.params.lr is \"auto\"", "train_micro_batch_size_per_gpu is \"auto\"",
      "gradient_clipping is \"auto\"", "neither train_batch_size"}},
    /* Settings of speed alone; sections that are switched off ask for nothing. */
    {"config-json: ZeRO Optimizations",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 1, \"seed\": 7,\n"
     " \"zero_optimization\": {\"stage\": 0, \"overlap_comm\": true, \"reduce_bucket_size\": 5e8,\n"
     "  \"allgather_bucket_size\": 5e8,\n"
     "  \"offload_optimizer\": {\"device\": \"none\", \"pin_memory\": true}},\n"
     " \"elasticity\": {\"enabled\": false}, \"amp\": {\"enabled\": false, \"opt_level\": "
     "\"O1\"},\n"
     " \"tensor_parallel\": {\"autotp_size\": 0, \"tp\": {\"tp_size\": 1}}, \"pipeline\": {},\n"
     " \"data_efficiency\": {\"enabled\": false, \"data_sampling\": {\"enabled\": true}},\n"
     " \"compression_training\": {\"layer_reduction\": {\"enabled\": false, \"keep\": 5}},\n"
     " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}",
     1,
     {"seed: 7", "global_batch: 8", "bucket_bytes: 2000000000"},
     {"zero_optimization.overlap_comm has no effect: dptrain always overlaps",
      "zero_optimization.reduce_bucket_size is train.bucket_bytes, 4 bytes an element",
      "zero_optimization.allgather_bucket_size has no effect: ",
      "zero_optimization.offload_optimizer.pin_memory has no effect: nothing is kept on NVMe"}},
    /* Parameters of no type, and of another one. */
    {"no type",
     "{\"train_batch_size\": 8, \"optimizer\": {\"params\": {\"lr\": 0.5, \"weight_decay\": 0.1,\n"
     "  \"betas\": [0.8, 0.9]}}, \"scheduler\": {\"params\": {\"warmup_num_steps\": 4}}}",
     1,
     {"lr: 0.5", "warmup_steps: 0"},
     {"there is no optimizer",
      "ds.json:2:12: optimizer.params.betas has no effect without optimizer.type",
      "ds.json:1:77: optimizer.params.weight_decay has no effect without optimizer.type",
      "scheduler.params.warmup_num_steps has no effect without scheduler.type"}},
    {"parameters of another scheduler",
     "{\"train_batch_size\": 8, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\n"
     " \"warmup_num_steps\": 4, \"warmup_type\": \"linear\", \"total_num_steps\": 50}}}",
     1,
     {"warmup_steps: 4", "max_steps: 0"},
     {"there is no optimizer",
      "scheduler.params.total_num_steps has no effect with scheduler.type WarmupLR"}},
    {"parameters of another scheduler",
     "{\"train_batch_size\": 8, \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\n"
     " \"warmup_num_steps\": 4, \"warmup_max_lr\": 0.3, \"total_num_steps\": 50}}}",
     1,
     {"name: cosine", "max_steps: 50"},
     {"there is no optimizer", "total_num_steps is schedule.total_steps",
      "scheduler.params.warmup_max_lr has no effect with scheduler.type WarmupCosineLR"}},
    /* Everything divided, and all of it in the hosts' memory. */
    {"tutorials/zero: ZeRO-Infinity",
     "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3,\n"
     "  \"offload_optimizer\": {\"device\": \"cpu\"},\n"
     "  \"offload_param\": {\"device\": \"cpu\", \"buffer_count\": 5},\n"
     "  \"reduce_scatter\": true, \"stage3_prefetch_bucket_size\": 5e7}}",
     2,
     {"zero: 3", "offload: all"},
     {"zero_optimization.offload_param.buffer_count has no effect: nothing is kept on NVMe",
      "zero_optimization.reduce_scatter has no effect: the stage alone says",
      "zero_optimization.stage3_prefetch_bucket_size has no effect", "there is no optimizer"}},
    /* DeepSpeed's defaults where ours are other ones: FusedLion, FusedLamb, torch.optim.AdamW. */
    {"ours: the defaults of Lion",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0,\n"
     " \"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 0.0001}}}",
     1,
     {"name: lion\n", "betas: [0.9, 0.999]\n", "weight_decay: 0\n", "clip_norm: 0\n"},
     {NULL}},
    {"ours: the defaults of Lamb",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0,\n"
     " \"optimizer\": {\"type\": \"Lamb\", \"params\": {\"lr\": 0.01}}}",
     1,
     {"name: lamb\n", "eps: 1.0e-08\n", "min_trust: 0.01\n", "max_trust: 10\n",
      "bias_correction: rate\n", "weight_decay: 0\n", "betas: [0.9, 0.999]\n"},
     {NULL}},
    {"ours: Lamb's own parameters",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"Lamb\",\n"
     " \"params\": {\"max_coeff\": 0.5, \"min_coeff\": 0.05, \"bias_correction\": false,\n"
     "  \"eps\": 1e-5, \"max_grad_norm\": 0.0, \"eps_inside_sqrt\": false}}}",
     1,
     {"eps: 1.0e-05\n", "min_trust: 0.05\n", "max_trust: 0.5\n", "bias_correction: none\n"},
     {NULL}},
    {"ours: torch_adam",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"Adam\",\n"
     " \"params\": {\"torch_adam\": true, \"bias_correction\": true}}}",
     1,
     {"name: adamw\n", "weight_decay: 0.01\n"},
     {"optimizer.type Adam is AdamW there"}},
    {"ours: torch_adam, and Adam in its own sense",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"Adam\",\n"
     " \"params\": {\"torch_adam\": true, \"adam_w_mode\": false, \"foreach\": null}}}",
     1,
     {"name: adam\n", "weight_decay: 0\n"},
     {"optimizer.params.foreach has no effect"}},
    {"ours: Muon's flags",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"Muon\",\n"
     " \"params\": {\"torch_adam\": true, \"adam_w_mode\": true, \"ns_method\": \"gram\"}}}",
     1,
     {"name: muon\n", "  weight_decay: 0\n"},
     {"optimizer.params.ns_method has no effect"}},
    /* null where it is DeepSpeed's default, and integers with an exponent. */
    {"ours: null",
     "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": null,\n"
     " \"gradient_accumulation_steps\": null, \"gradient_clipping\": 0,\n"
     " \"communication_data_type\": null, \"steps_per_print\": null, \"bf16\": null,\n"
     " \"zero_optimization\": {\"stage\": 0, \"cpu_offload\": null, \"offload_param\": null,\n"
     "  \"zenflow\": null}, \"data_types\": {\"grad_accum_dtype\": null},\n"
     " \"scheduler\": {\"type\": null}, \"optimizer\": {\"type\": null}}",
     1,
     {"global_batch: 8", "accumulate: 1", "report:\n  every_steps: 10\n", "compress: none",
      "offload: none", "schedule:\n  name: constant"},
     {"there is no optimizer"}},
    {"ours: integers as 1e5",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0, \"steps_per_print\": 1e5,\n"
     " \"optimizer\": {\"type\": \"SGD\"}, \"fp16\": {\"enabled\": true, \"loss_scale_window\": "
     "1e2},\n"
     " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 2e4,\n"
     "  \"warmup_max_lr\": null, \"warmup_num_steps\": 1}}}",
     1,
     {"every_steps: 100000\n", "window: 100\n", "total_steps: 20000\n", "warmup_steps: 2\n",
      "name: sgd\n  lr: 0.001\n"},
     {"total_num_steps is schedule.total_steps"}},
    {"ours: Accelerate's Infinity",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0, \"steps_per_print\": Infinity,\n"
     " \"optimizer\": {\"type\": \"SGD\"}}",
     1,
     {"every_steps: 10\n"},
     {"steps_per_print is infinite"}},
    /* Factors and operations that are the defaults, and what counts only on the way. */
    {"config-json: Communication options",
     "{\"train_batch_size\": 8, \"gradient_predivide_factor\": 1.0, \"prescale_gradients\": "
     "false,\n"
     " \"gradient_allreduce_op\": \"Mean\", \"managed_gradient_accumulation\": true,\n"
     " \"sequence_parallel_size\": 1, \"optimizer\": {\"type\": \"SGD\"}}",
     1,
     {"clip_norm: 1\n", "name: sgd\n  lr: 0.001\n"},
     {"prescale_gradients has no effect"}},
    {"config-json: Communication options",
     "{\"train_batch_size\": 8, \"gradient_predivide_factor\": 4.0, \"gradient_clipping\": 0,\n"
     " \"optimizer\": {\"type\": \"SGD\"}}",
     1,
     {"compress: none\n"},
     {"gradient_predivide_factor has no effect: gradients travel in float32"}},
    {"config-json: torch_autocast",
     "{\"train_batch_size\": 8, \"gradient_clipping\": 0,\n"
     " \"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\"},\n"
     " \"bf16\": {\"enabled\": false, \"bf16_master_weights_and_grads\": false},\n"
     " \"data_types\": {\"grad_accum_dtype\": \"fp32\"},\n"
     " \"optimizer\": {\"type\": \"AdamW\"}}",
     1,
     {"precision: bfloat16\n"},
     {"ds.json:2:32: torch_autocast is precision bfloat16"}},
};

static void assert_part(const char *text, const char *part, size_t i)
{
    if (!strstr(text, part))
        fail_msg("case %zu: \"%s\" is not in\n%s", i, part, text);
}

static int count_lines(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct buf notes = {0}, text = {0};
        int n = 0, is_clipped = strstr(good[i].text, "gradient_clipping\": \"auto") == NULL &&
                                strstr(good[i].text, "gradient_clipping") != NULL;
        struct job *job;
        struct err err;

        if (load("ds.json", good[i].text, good[i].n_ranks, &job, &notes, &err) < 0)
            fail_msg("case %zu (%s): %s", i, good[i].follows, err.msg);
        job_write(job, &text);
        for (size_t k = 0; k < MOST && good[i].job[k]; k++)
            assert_part(buf_cstr(&text), good[i].job[k], i);
        for (; n < MOST && good[i].notes[n]; n++)
            assert_part(buf_cstr(&notes), good[i].notes[n], i);
        if (count_lines(buf_cstr(&notes)) != n + !is_clipped)
            fail_msg("case %zu: %d notes wanted:\n%s", i, n + !is_clipped, buf_cstr(&notes));
        job_free(job);
        buf_fini(&text);
        buf_fini(&notes);
    }
}

/* Each is refused, with its place in front. */
static const struct {
    const char *text, *wants;
} bad[] = {
    {"{\"train_batch_size\": 64,\n \"train_micro_batch_size_per_gpu\": 5}",
     "ds.json:1:22: train_batch_size is 64, but micro batch 5 * accumulation 4 * 3 ranks is "
     "60"},
    {"{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 2}",
     "ds.json:1:22: train_batch_size is 64, which accumulation 2 * 3 ranks do not divide"},
    {"{\"train_batch_size\": 3,\n\"optimizer\": {\"type\": \"\\ud83d\\ude00\"}}",
     "ds.json:2:24: \\ud83d\\ude00 is JSON's pair of escapes for one character, and YAML has no "
     "such pairs; write the character itself: \U0001F600"},
    {"{\"train_batch_size\": 6.5}", "train_batch_size is 6.5, want an integer"},
    {"{\"train_batch_size\": \"6\"}", "train_batch_size is \"6\" in quotes, want a number"},
    {"{\"train_batch_size\": 3,\n\"optimizer\": {\"type\": \"OneBitAdam\"}}",
     "ds.json:2:23: optimizer.type OneBitAdam is not supported: take Adam"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"Adam\", \"params\":\n"
     "{\"adam_lr\": 1}}}",
     "ds.json:2:13: optimizer.params.adam_lr needs optimizer.type Muon"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"SGD\", \"params\":\n"
     "{\"muon_lr\": 1}}}",
     "ds.json:2:13: optimizer.params.muon_lr needs optimizer.type Muon"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"SGD\", \"params\":\n"
     "{\"adam_w_mode\": false}}}",
     "ds.json:2:17: optimizer.params.adam_w_mode needs optimizer.type Adam"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"Lamb\", \"params\":\n"
     "{\"adam_w_mode\": true}}}",
     "ds.json:2:17: optimizer.params.adam_w_mode needs optimizer.type Adam"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"Foo\"}}",
     "optimizer.type Foo is not supported: want Adam, "},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"SGD\", \"params\":\n{\"lr\": -1}}}",
     "ds.json:2:8: optimizer.lr is -1, want a number above 0"},
    {"{\"train_batch_size\": 3, \"scheduler\": {\"type\": \"OneCycle\"}}",
     "--set schedule.name=onecycle"},
    {"{\"train_batch_size\": 3, \"scheduler\": {\"type\": \"LRRangeTest\"}}",
     "scheduler.type LRRangeTest is not supported"},
    {"{\"train_batch_size\": 3, \"fp16\": {\"enabled\": true, \"loss_scale\": 128}}",
     "fp16.loss_scale 128 is not supported"},
    {"{\"train_batch_size\": 3, \"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}",
     "fp16 and bf16 are both enabled"},
    {"{\"train_batch_size\": 3, \"amp\": {\"enabled\": true}}",
     "amp is not supported: take bf16 or fp16 instead"},
    {"{\"train_batch_size\": 3, \"tensor_parallel\":\n {\"tp_size\": 2}}",
     "ds.json:2:2: tensor_parallel is not supported: ranks share the data, not layers"},
    {"{\"train_batch_size\": 3, \"pipeline\": {\"stages\": 4}}", "pipeline is not supported"},
    {"{\"train_batch_size\": 3, \"sparse_attention\": {\"mode\": \"fixed\"}}",
     "sparse_attention is not supported: attention is dense here"},
    {"{\"train_batch_size\": 3, \"compression_training\": {\"weight_quantization\": "
     "{\"shared_parameters\": {\"enabled\": true}}}}",
     "compression_training is not supported"},
    {"{\"train_batch_size\": 3, \"pipeline\": {\"a\": &x {\"b\": *x}}}",
     "pipeline is not supported"},
    {"{\"train_batch_size\": 3, \"zero_optimization\": {\"offload_optimizer\": {\"device\": "
     "\"nvme\"}}}",
     "offloading to nvme is not supported, want cpu or none"},
    {"{\"train_batch_size\": 3, \"zero_optimization\": {\"reduce_bucket_size\": 0.5}}",
     "ds.json:1:69: zero_optimization.reduce_bucket_size is 0.5, want a number from 1 to "
     "2.5e+11"},
    {"{\"train_batch_size\": 3,\n \"train_batch_size\": 4}",
     "ds.json:2:2: train_batch_size is given twice"},
    {"{\"train_batch_size\": {}}", "train_batch_size is a mapping, want a value"},
    {"{\"train_batch_size\": 3, \"bf16\": {\"enabled\": \"yes\"}}",
     "ds.json:1:45: bf16.enabled is yes, want true or false"},
    {"{\"train_batch_size\": 3, \"fp16\": {\"enabled\": []}}",
     "fp16.enabled is a list, want true or false"},
    {"{\"train_batch_size\": 3, \"fp16\": true}", "fp16 is true, want a mapping in braces"},
    {"{\"train_batch_size\": 3, \"optimizer\": \"Adam\"}",
     "optimizer is Adam, want a mapping in braces"},
    {"{\"train_batch_size\": 3, \"zero_optimization\": {\"offload_optimizer\": \"cpu\"}}",
     "zero_optimization.offload_optimizer is cpu, want a mapping in braces"},
    {"{\"train_batch_size\": 3, \"gradient_allreduce_op\": \"sum\"}",
     "ds.json:1:50: gradient_allreduce_op sum is not supported: gradients are means"},
    {"{\"train_batch_size\": 3, \"gradient_allreduce_op\": \"max\"}",
     "gradient_allreduce_op is max, want mean"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"AdamW\", \"params\":\n"
     "{\"bias_correction\": false}}}",
     "ds.json:2:21: optimizer.params.bias_correction false is not supported with type AdamW"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"SGD\", \"params\":\n"
     "{\"bias_correction\": true}}}",
     "optimizer.params.bias_correction needs optimizer.type Adam, AdamW or Lamb"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"Adam\", \"params\":\n"
     "{\"max_grad_norm\": 0.5}}}",
     "ds.json:2:19: optimizer.params.max_grad_norm is not supported: DeepSpeed refuses it, too"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"Lion\", \"params\":\n"
     "{\"max_coeff\": 0.5}}}",
     "optimizer.params.max_coeff needs optimizer.type Lamb"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"Lion\", \"params\":\n"
     "{\"torch_adam\": true}}}",
     "optimizer.params.torch_adam needs optimizer.type Adam or AdamW"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"Muon\", \"params\":\n"
     "{\"adam_w_mode\": false}}}",
     "optimizer.params.adam_w_mode needs optimizer.type Adam"},
    {"{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"SGD\", \"params\":\n"
     "{\"maximise\": true}}}",
     "ds.json:2:14: optimizer.params.maximise is not known here, and could change the numbers"},
    {"{\"train_batch_size\": 3, \"torch_autocast\": {\"enabled\": true, \"dtype\": \"float16\"}}",
     "torch_autocast.dtype is float16, which is not supported: want bfloat16, or fp16"},
    {"{\"train_batch_size\": 3, \"torch_autocast\": {\"enabled\": true}}",
     "torch_autocast.dtype is missing"},
    {"{\"train_batch_size\": 3, \"bf16\": {\"enabled\": true}, \"torch_autocast\":\n"
     " {\"enabled\": true, \"dtype\": \"bf16\"}}",
     "torch_autocast is enabled beside fp16 or bf16"},
    {"{\"train_batch_size\": 3, \"bf16\": {\"bf16_master_weights_and_grads\": true}}",
     "bf16.bf16_master_weights_and_grads is not supported: weights, gradients' sums"},
    {"{\"train_batch_size\": 3, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}}",
     "data_types.grad_accum_dtype is not supported: gradients are added up in float32"},
    {"{\"train_batch_size\": 3, \"managed_gradient_accumulation\": false}",
     "managed_gradient_accumulation is not supported: each update takes"},
    {"{\"train_batch_size\": 3, \"sequence_parallel_size\": 2}",
     "sequence_parallel_size is not supported: ranks share the data, not sequences"},
    {"{\"train_batch_size\": 3, \"gradient_clipping\": null}",
     "ds.json:1:46: gradient_clipping is null, want a value, or leave it out"},
    {"{\"train_batch_size\": 3, \"zero_optimization\": {\"zenflow\": {\"topk_ratio\": 0.1}}}",
     "zero_optimization.zenflow is not supported"},
    {"{\"train_batch_size\": 3, \"scheduler\": {\"type\": \"WarmupLR\", \"params\":\n"
     "{\"warmup_num_steps\": 0}}}",
     "warmup_num_steps is 0, want a number from 1"},
    {"{\"train_batch_size\": 3, \"scheduler\": {\"type\": \"WarmupLR\", \"params\":\n"
     "{\"warmup_min_lr\": 0.1}}}",
     "warmup_min_lr is 0.1, want at most the peak of the warm-up, 0.001"},
    {"{\"train_batch_size\": 3, \"communication_data_type\": \"int8\"}",
     "communication_data_type is int8, want fp16, bfp16 or fp32"},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct buf notes = {0};
        struct job *job;
        struct err err;

        assert_int_equal(load("ds.json", bad[i].text, 3, &job, &notes, &err), ERR_CONFIG);
        assert_part(err.msg, bad[i].wants, i);
        buf_fini(&notes);
    }
}

/* Without these keys, or under another name, the file is a job file. */
static void test_not_deepspeed(void **state)
{
    struct buf notes = {0};
    struct job *job;
    struct err err;

    (void)state;
    assert_int_equal(load("job.json", "{\"train\": {\"global_batch\": 5}}", 1, &job, &notes, &err),
                     0);
    assert_int_equal(job->train.global_batch, 5);
    job_free(job);
    assert_int_equal(load("ds.yaml", "{\"train_batch_size\": 5}", 1, &job, &notes, &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "unknown key"));
    assert_int_equal(load("ds.json", "{\"train_batch_size\": 5", 1, &job, &notes, &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "ds.json:"));
    assert_int_equal(notes.len, 0);
    buf_fini(&notes);
}

static void assert_written(const struct job *job, const char *line)
{
    struct buf text = {0};

    job_write(job, &text);
    assert_part(buf_cstr(&text), line, 0);
    buf_fini(&text);
}

/* LUMI's guide has this file, with the comma before the bracket. */
static void test_zero(void **state)
{
    static const char lumi[] = "{\n  \"zero_optimization\": {\n    \"stage\": 1\n  },\n"
                               "  \"fp16\": {\n    \"enabled\": false,\n  }\n}\n";
    struct buf notes = {0};
    struct job *job;
    struct err err;

    (void)state;
    assert_int_equal(load("ds_config.json", lumi, 8, &job, &notes, &err), 0);
    buf_cstr(&notes);
    assert_int_equal(job->precision, PRECISION_FLOAT32);
    assert_written(job, "zero: 1\n");
    job_free(job);
    buf_fini(&notes);

    /* The old form of the same. */
    assert_int_equal(load("ds_config.json", "{\"zero_optimization\": true}", 8, &job, &notes, &err),
                     0);
    assert_written(job, "zero: 1\n");
    job_free(job);
    buf_fini(&notes);
}

/* The keys for the type of gradients on the way between ranks. */
static void test_travel(void **state)
{
    static const char text[] = "{\"train_batch_size\": 8, \"gradient_clipping\": 1,\n"
                               " \"communication_data_type\": \"fp16\",\n"
                               " \"gradient_predivide_factor\": 4.0,\n"
                               " \"zero_optimization\": {\"offload_optimizer\": {\"device\": "
                               "\"none\"}}}";
    struct buf notes = {0};
    struct job *job;
    struct err err;

    (void)state;
    if (load("ds.json", text, 2, &job, &notes, &err) < 0)
        fail_msg("%s", err.msg);
    buf_cstr(&notes);
    assert_written(job, "compress: float16\n");
    assert_written(job, "gradient_predivide_factor: 4\n");
    job_free(job);
    buf_fini(&notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),          cmocka_unit_test(test_bad),
        cmocka_unit_test(test_zero),          cmocka_unit_test(test_travel),
        cmocka_unit_test(test_not_deepspeed),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
