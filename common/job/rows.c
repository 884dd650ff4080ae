/* The table of options: the rows of the fixed sections, and where the rows of registered entries
 * and of `cluster` stand among them.  --help-job and job.yaml keep this order. */
#include "config/names.h"
#include "job/table.h"

#include "base/util.h"
#include "import/arch.h"
#include "model/losses.h"

static const char *const inits[] = {INIT_LIST(WORD_NAME) NULL};
static const char *const missings[] = {MISSING_LIST(WORD_NAME) NULL};
static const char *const bases[] = {BASE_LIST(WORD_NAME) NULL};
static const char *const nonfinites[] = {NONFINITE_LIST(WORD_NAME) NULL};
static const char *const spikes[] = {SPIKE_LIST(WORD_NAME) NULL};
static const char *const recomputes[] = {RECOMPUTE_LIST(WORD_NAME) NULL};
static const char *const precisions[] = {PRECISION_LIST(WORD_NAME) NULL};
static const char *const goals[] = {GOAL_LIST(WORD_NAME) NULL};
static const char *const averages[] = {AVERAGE_LIST(WORD_NAME) NULL};
static const char *const automatic[] = {"auto", NULL}; /* BUCKETS_AUTO */
static const char *const warmup_shapes[] = {
    [SCHEDULE_WARMUP_LINEAR] = "linear", [SCHEDULE_WARMUP_LOG] = "log", NULL};
static const char *const timings[] = {
    [SCHEDULE_TIMING_DPTRAIN] = "dptrain", [SCHEDULE_TIMING_DEEPSPEED] = "deepspeed", NULL};
static const char *const grad_dtypes[] = {GRAD_DTYPE_LIST(WORD_NAME) NULL};

#define AT(field) offsetof(struct job, field)
#define BIT(n)    (1u << (n))

const struct option_group *const job_archs[] = {
#define X(name) &arch_##name.group,
    ARCH_LIST(X)
#undef X
        & arch_import.group,
    NULL};

static const struct option_registry arch_entries = {job_archs, AT(model.options)};
static const struct option_registry format_entries = {data_formats, AT(data.options)};
static const struct option_registry optimizer_entries = {optimizers, AT(optimizer.options)};
static const struct option_registry schedule_entries = {schedules, AT(schedule.options)};
static const struct option_registry strategy_entries = {strategies, AT(strategy.options)};

/* clang-format off: one row, one option */
static const struct option name_rows[] = {
    {"name", OPT_NAME, AT(name), "job", .help = "The job's name; the run directory is runs/NAME."},
};

static const struct option arch_row = {"model.arch",
                                       OPT_ENTRY,
                                       AT(model.kind),
                                       NULL,
                                       .registry = &arch_entries,
                                       .flags = OPT_REQUIRED,
                                       .also = "architecture",
                                       .help = "The network; model.import names another one."};

static const struct option init_rows[] = {
    {"model.init.name", OPT_CHOICE, AT(model.init.name), "pytorch", .choices = inits,
     .flags = OPT_SHORT,
     .help =
         "Initial weights: pytorch gives each layer what it has there (torchvision's networks "
         "theirs); the others but file and import draw weights and set biases to 0: normal from "
         "N(0, std^2), "
         "trunc_normal the same cut off at 2 * std, kaiming_normal from N(0, 2/fan_in), "
         "xavier_normal from N(0, 2/(fan_in + fan_out)), the two with _uniform uniformly with the "
         "same variance. kaiming is kaiming_normal, xavier is xavier_uniform. With model.import "
         "the default is import, the weights of that file; random is pytorch."},
    {"model.init.std", OPT_REAL, AT(model.init.std), "0.01", 0, 100, .flags = OPT_ABOVE,
     .only = "model.init.name", .only_values = BIT(INIT_NORMAL) | BIT(INIT_TRUNC_NORMAL),
     .help = "Standard deviation of the initial weights."},
    {"model.init.path", OPT_PATH, AT(model.init.path), NULL, .flags = OPT_REQUIRED,
     .only = "model.init.name", .only_values = BIT(INIT_FILE),
     .help =
         "A safetensors file, such as a checkpoint's model.safetensors; or an index of several, "
         "model.safetensors.index.json; or the folder of either. The driver reads it, and "
         "with GPT-2's networks transformers' config.json beside it."},
    {"model.init.missing", OPT_CHOICE, AT(model.init.missing), "error", .choices = missings,
     .only = "model.init.name", .only_values = BIT(INIT_FILE),
     .help = "Where the file and this network differ, in names or shapes: an error that lists the "
             "differences, or draw: what the file lacks begins as with init pytorch, such as a "
             "head for other classes, and the log names it."},
};

static const struct option model_rows[] = {
    {"model.lora.rank", OPT_INT, AT(model.lora.rank), "0", 0, 65536,
     .help = "Low-rank adapters (LoRA) of this rank beside layers; all other parameters are "
             "frozen. With 0 there are none."},
    {"model.lora.alpha", OPT_REAL, AT(model.lora.alpha), "8", 0, 1e6, .flags = OPT_ABOVE,
     .help = "The adapters' output is multiplied by alpha / rank, as with PEFT's lora_alpha."},
    {"model.lora.match", OPT_STRING, AT(model.lora.match), NULL, .flags = OPT_MANY,
     .help =
         "Patterns of the names of linear layers, convolutions and embeddings that get adapters, "
         "\"*.q_proj\"; * stands for any characters. Without it all linear layers do but the one "
         "that makes the logits."},
    {"model.lora.dropout", OPT_REAL, AT(model.lora.dropout), "0", 0, 1, .flags = OPT_BELOW,
     .help = "The probability of dropping an input of the adapters in training."},
    {"model.lora.path", OPT_PATH, AT(model.lora.path), NULL,
     .help = "Adapters to begin from: a folder with PEFT's adapter_model.safetensors and "
             "adapter_config.json, or the first of these. Without it they begin anew."},
    {"model.lora.rslora", OPT_BOOL, AT(model.lora.rslora), "false",
     .help = "With true, the factor is alpha / sqrt(rank)."},
    {"model.base", OPT_CHOICE, AT(model.base), "float32", .choices = bases,
     .help =
         "With model.lora: the form in which frozen weights and embeddings are kept in memory. "
         "int8 has a scale for each 64 numbers. They are taken from the file of model.init, and "
         "checkpoints do not have them."},
    {"model.sync_batch_norm", OPT_BOOL, AT(model.sync_batch_norm), "true", .flags = OPT_RESUME,
     .help = "Batch norm's statistics are those of all ranks together, so that training does not "
             "depend on their number."},
    {"model.loss", OPT_TREE, AT(model.losses), "cross_entropy", .unit = "losses", .flags = OPT_MAP,
     .tree = losses_check,
     .help =
         "The loss that is minimized: cross_entropy, focal, mse, l1, huber, bce or kl. mse, l1, "
         "huber and bce compare each output with its target, which is a real number, or 1 for "
         "the label and 0 for others; bce takes the outputs as logits, and targets from 0 to "
         "1. kl is the divergence of the outputs' softmax from targets that are probabilities. "
         "With model.import also {OUTPUT: LOSS, OUTPUT: {name: LOSS, weight: 0.4}}, the sum "
         "with weights, where huber takes delta, focal gamma, and bce positive, the weight of "
         "targets of 1, or a list with one for each output; {OUTPUT: {name: contrastive, with: "
         "OUTPUT}}, which compares two outputs of all samples of a global batch; `output "
         "NAME`, a loss that the network computes itself; and {name: dpo, beta: 0.1}, which "
         "prefers one of two answers to a prompt, with the base of model.lora as the reference. "
         "Validations take the first one alone."},
};

static const struct option format_row = {"data.format",
                                         OPT_ENTRY,
                                         AT(data.kind),
                                         NULL,
                                         .registry = &format_entries,
                                         .flags = OPT_REQUIRED,
                                         .help = "The form of the data."};

static const struct option every_format_rows[] = {
    {"data.class_names", OPT_TREE, AT(data.class_names), "[]", .unit = "names", .flags = OPT_RESUME,
     .tree = names_check,
     .help = "The names of the classes, the first one that of class 0; of labels or values (bce, "
             "mse, l1) the names of the outputs. The driver notes those of class folders here, and "
             "a later start with other folders is refused. Predictions, evaluations and "
             "checkpoints tell them."},
    {"data.shuffle", OPT_BOOL, AT(data.shuffle), "true",
     .help = "With true, each epoch takes the training samples in a new random order; with false, "
             "in the order of the files."},
    {"data.reconstruct", OPT_BOOL, AT(data.reconstruct), "false",
     .help = "With true, the target is the input itself, as the network reads it, cut, flipped and "
             "normalised: an autoencoder. The data's labels have no effect."},
    {"data.workers", OPT_INT, AT(data.workers), "0", 0, 256, .unit = "threads", .flags = OPT_RESUME,
     .help = "The number of threads of a rank that read each batch. With 0 it is one; for format "
             "images it is all threads of a rank with a GPU, at most 16, and one for each 8 "
             "threads of other ranks. It has no effect on what is read."},
};

static const struct option train_rows[] = {
    {"train.global_batch", OPT_INT, AT(train.global_batch), "256", 1, 1e9, .unit = "samples",
     .also = "batch_size",
     .help = "The number of samples of a step, over all ranks. The ranks' shares differ by at most "
             "one."},
    {"train.epochs", OPT_INT, AT(train.epochs), "10", 1, 1e6, .unit = "epochs", .flags = OPT_RESUME,
     .help = "The number of times that all samples are seen."},
    {"train.seed", OPT_INT, AT(train.seed), "1", 0, 9007199254740991,
     .help =
         "All random numbers follow from this one: initial weights, order of samples, dropout."},
    {"train.accumulate", OPT_INT, AT(train.accumulate), "1", 1, 1e6, .unit = "micro-batches",
     .help = "A rank computes its share of a step in this many parts, one after another, which "
             "needs less memory. A rank with fewer samples computes as many parts as it has "
             "samples."},
    {"train.recompute", OPT_CHOICE, AT(train.recompute), "none", .choices = recomputes,
     .help = "With selective, the results of activation functions, norms and the like are dropped "
             "and computed again for the gradients; with blocks, all that a block of the network "
             "computes. That needs less memory and more time, and gives the same numbers. Blocks "
             "are those of resnets, vits and gpts, and the residuals of model.layers."},
    {"train.max_steps", OPT_INT, AT(train.max_steps), "0", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "Training stops after this many steps; with 0, when the epochs are done."},
    {"train.stop_after", OPT_INT, AT(train.stop_after), "0", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "The job stops once so many steps are done, as it does by a signal: the schedule is "
             "that of the whole job, and --resume goes on. 0 is no such limit."},
    {"train.validate_every", OPT_INT, AT(train.validate_every), "1", 0, 1e6, .unit = "epochs",
     .flags = OPT_RESUME,
     .help = "Validation comes after every so many epochs; with 0 it never comes."},
    {"train.best.metric", OPT_CHOICE, AT(train.best.goal), "none", .choices = goals,
     .help = "checkpoints/best is a link to the checkpoint that is the best by this metric. With "
             "none there is no such link."},
    {"train.best.keep", OPT_INT, AT(train.best.keep), "1", 1, 16, .unit = "checkpoints",
     .only = "train.best.metric", .only_values = ~BIT(GOAL_NONE),
     .help = "The number of best checkpoints that are kept, beside the newest ones."},
    {"train.early_stop.patience", OPT_INT, AT(train.early_stop.patience), "0", 0, 1e6,
     .unit = "validations",
     .help = "The job ends once this many validations in a row were no better; with 0 it goes on."},
    {"train.early_stop.min_delta", OPT_REAL, AT(train.early_stop.min_delta), "0", 0, 1e9,
     .help = "A validation counts as better if it differs from the best by more than this."},
    {"train.early_stop.metric", OPT_CHOICE, AT(train.early_stop.goal), "validation_loss",
     .choices = goals, .first = GOAL_LOSS, .help = "The metric that is to get better."},
    {"train.average.name", OPT_CHOICE, AT(train.average.name), "none", .choices = averages,
     .help =
         "Averaged weights, which are validated and saved (model_average.safetensors) beside the "
         "trained ones: ema is their moving average, swa their mean from train.average.start "
         "on."},
    {"train.average.decay", OPT_REAL, AT(train.average.decay), "0.999", 0, 1, .flags = OPT_BELOW,
     .only = "train.average.name", .only_values = BIT(AVERAGE_EMA),
     .help = "The part of the average that stays at each update."},
    {"train.average.every", OPT_INT, AT(train.average.every), "0", 0, 1e9, .unit = "steps",
     .only = "train.average.name", .only_values = BIT(AVERAGE_EMA) | BIT(AVERAGE_SWA),
     .help = "The weights after every so many steps enter the average. With 0 it is every step for "
             "ema, and the end of each epoch for swa."},
    {"train.average.start", OPT_REAL, AT(train.average.start), "0.75", 0, 1e6,
     .only = "train.average.name", .only_values = BIT(AVERAGE_SWA),
     .help = "The mean begins after this many epochs; a number below 1 is a part of all steps. "
             "Until then the averaged weights are the trained ones."},
    {"train.average.statistics_samples", OPT_INT, AT(train.average.statistics_samples), "0", 0,
     1e12, .unit = "samples", .only = "train.average.name", .only_values = BIT(AVERAGE_SWA),
     .help = "With batch norm, each epoch of the mean ends with a pass of this many training "
             "samples, rounded up to whole batches, which gives the averaged weights their "
             "statistics. 0 stands for all samples."},
    {"train.clip_norm", OPT_REAL, AT(train.clip_norm), "0", 0, 1e9, .also = "gradient_clip",
     .help = "A gradient with a larger norm, taken over all parameters, is scaled down to this "
             "norm; with 0 it stays as it is."},
    {"train.label_smoothing", OPT_REAL, AT(model.label_smoothing), "0", 0, 1, .flags = OPT_BELOW,
     .help = "In training, this part of each label is spread evenly over all classes."},
    {"train.class_weights", OPT_NUMBERS, AT(model.class_weights), "[]", 0, 1e9,
     .help = "One number for each class: the loss of a target counts this many times, and the mean "
             "is divided by the sum of the targets' weights, in validation, too. With [] all count "
             "alike."},
    {"train.ignore_index", OPT_INT, AT(data.ignore_index), "-100", -2147483648.0, 2147483647,
     .help = "Labels, or target tokens, with this number count in no loss, gradient or accuracy."},
    {"train.overfit", OPT_INT, AT(train.overfit), "0", 0, 1e12, .unit = "samples",
     .also = "overfit_batches",
     .help =
         "To find bugs: train only the first so many training samples, in the order of the "
         "files, and validate with the same ones. A network that can learn comes to a loss near "
         "0. With 0 all samples are trained."},
    {"train.drop_last", OPT_BOOL, AT(train.drop_last), "false",
     .help = "Leave out an epoch's last batch if it is not full."},
    {"train.on_nonfinite", OPT_CHOICE, AT(train.on_nonfinite), "stop", .choices = nonfinites,
     .flags = OPT_RESUME,
     .help = "With stop, a loss or gradient that is infinite or undefined ends the job. With "
             "skip, that step is left out. A parameter whose update is infinite or undefined keeps "
             "its value in either case; with stop the job then ends. With precision float16 a "
             "gradient that loss scaling made infinite is not meant: such a step is always "
             "skipped."},
    {"train.on_spike", OPT_CHOICE, AT(train.on_spike), "none", .choices = spikes,
     .flags = OPT_RESUME,
     .help =
         "A step's loss is a spike if it lies train.spike_deviations above the mean of the last "
         "128 steps. With warn, an event tells of it. With skip, that step's update is left out "
         "(on CPUs alone). With rewind, all ranks go back to the weights of the newest "
         "checkpoint, and the samples since then are left out."},
    {"train.spike_deviations", OPT_REAL, AT(train.spike_deviations), "6", 0, 1e6,
     .flags = OPT_ABOVE | OPT_RESUME, .unit = "standard deviations",
     .help = "The distance of a spike from the mean. A deviation counts as at least 0.01 of the "
             "mean."},
    {"train.audit", OPT_REAL, AT(train.audit), "0", 0, 1, .flags = OPT_RESUME,
     .help = "In this part of the steps, drawn by seed and step, each rank also computes another "
             "rank's share, and the hashes of samples and gradients are compared before the "
             "update. Such a step takes twice as long. Wrong bits are computed again, and the rank "
             "at fault leaves. On CPUs; not where ranks differ between two meetings."},
    {"train.replica_check", OPT_REAL, AT(train.replica_check), "0.02", 0, 1, .flags = OPT_RESUME,
     .help = "After this part of the steps, drawn by seed and step, the ranks compare hashes of a "
             "part of their state, 4 MiB drawn like that: parameters, the optimizer's numbers, "
             "running statistics. cluster.on_divergence decides what a difference leads to. 0: "
             "only each epoch's end compares. With strategy.zero each rank's part is compared "
             "with its buddy's copy, too, in one bucket. No effect where ranks differ between two "
             "meetings."},
    {"train.grad_dtype", OPT_CHOICE, AT(train.grad_dtype), "float32", .choices = grad_dtypes,
     .flags = OPT_RESUME,
     .help = "The type in which gradients travel between ranks. bfloat16, with precision bfloat16 "
             "alone, halves what travels; it rounds each gradient, and each sum."},
    {"train.bucket_bytes", OPT_INT, AT(train.bucket_bytes), "4194304", 1, 1e12, .unit = "bytes",
     .choices = automatic, .flags = OPT_RESUME, .also = "DDP's bucket_cap_mb",
     .help = "Gradients are summed over the ranks in buckets of so many bytes, while backward goes "
             "on. The first bucket has 1 MiB, if that is less. A bucket consists of whole "
             "parameters, so it may be larger. Larger ones take fewer messages, smaller ones can "
             "be sent earlier. auto, with a plain all-reduce or compress float16 or bfloat16: 4 "
             "MiB at first; after 8 steps the size that is best by the time of backward and of the "
             "sums, from 1 to 25 MiB."},
    {"train.tf32", OPT_BOOL, AT(train.tf32), "false",
     .help = "GPUs may round the factors of float32 products and convolutions to TF32 (10 bits "
             "after the point), which is much faster; no effect on CPUs."},
    {"train.record", OPT_BOOL, AT(train.record), "true",
     .help = "Record a GPU's step, and launch all of it at once. false: hand over one kernel after "
             "another, for the same numbers, slowly; to find out which one fails. No effect on "
             "CPUs."},
    {"train.autotune", OPT_BOOL, AT(train.autotune), "false",
     .help = "GPUs time the libraries' best algorithms for each layer at the start and take the "
             "fastest, each rank for itself. Which one wins may vary, and with it the last bits of "
             "the numbers, so a resumed job repeats itself bit for bit only where train.plan_cache "
             "still has the choice. Without this the choice follows from GPU, library and shapes."},
    {"train.max_workspace", OPT_INT, AT(train.max_workspace), "256", 0, 65536, .unit = "MiB",
     .help = "The GPU memory that one call of cuDNN or cuBLASLt may work in. Algorithms that need "
             "more are not used."},
    {"train.plan_cache", OPT_BOOL, AT(train.plan_cache), "true",
     .help =
         "Each GPU host keeps the chosen algorithms and compiled kernels for the next start, in "
         "$XDG_CACHE_HOME/dptrain (~/.cache/dptrain; as a service, its CACHE_DIRECTORY)."},
};

static const struct option optimizer_row = {"optimizer.name",
                                            OPT_ENTRY,
                                            AT(optimizer.kind),
                                            "sgd",
                                            .registry = &optimizer_entries,
                                            .help = "The rule by which gradients change the "
                                                    "parameters."};

static const struct option every_optimizer_rows[] = {
    {"optimizer.no_decay", OPT_SET, AT(optimizer.no_decay), "[]", .choices = optimizer_kinds,
     .help = "Kinds of parameters that weight decay leaves alone."},
    {"optimizer.groups", OPT_ITEMS, AT(optimizer.groups), "[]", .item = &optimizer_group_item,
     .help =
         "Settings of parameters by name, such as [{match: \"fc*\", lr_scale: 10}]; * stands for "
         "any characters. Where several groups match a parameter, the last one that gives a key "
         "has it; one that says frozen is enough."},
    {"optimizer.scale_lr_by_ranks", OPT_BOOL, AT(optimizer.scale_lr_by_ranks), "false",
     .help = "Multiply the rate by the number of ranks that train the step (Horovod's rule), also "
             "after some were lost, have joined, or a run was resumed with another number. Then "
             "training depends on it."},
};

static const struct option schedule_row = {"schedule.name",
                                           OPT_ENTRY,
                                           AT(schedule.kind),
                                           "constant",
                                           .registry = &schedule_entries,
                                           .help = "The course of the learning rate."};

static const struct option warmup_rows[] = {
    {"schedule.total_steps", OPT_INT, AT(schedule.total_steps), "0", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "The steps over which a schedule that goes to the job's end is laid out, and those of "
             "which train.average.start is a part; beyond them the rate stays at the schedule's "
             "end. With 0 they are those of the job, so a resumed run with other limits gets "
             "another course, and is warned of it; the former number keeps the former course."},
    {"schedule.warmup_steps", OPT_INT, AT(schedule.warmup_steps), "0", 0, 1e12, .unit = "steps",
     .help = "The rate first rises over so many steps."},
    {"schedule.warmup_epochs", OPT_INT, AT(schedule.warmup_epochs), "0", 0, 1e6, .unit = "epochs",
     .help = "The rate first rises over so many epochs; in place of "
             "schedule.warmup_steps."},
    {"schedule.warmup_shape", OPT_CHOICE, AT(schedule.warmup_shape), "linear",
     .choices = warmup_shapes,
     .help = "The curve of the warm-up: linear, or log, which rises fast at first."},
    {"schedule.warmup_start", OPT_REAL, AT(schedule.warmup_start), "0", 0, 1,
     .help = "The part of the rate that warm-up starts from."},
    {"schedule.warmup_from_one_rank", OPT_BOOL, AT(schedule.warmup_from_one_rank), "false",
     .help = "With optimizer.scale_lr_by_ranks: warm-up starts from optimizer.lr, the rate of one "
             "rank (Horovod's gradual warm-up)."},
    {"schedule.timing", OPT_CHOICE, AT(schedule.timing), "dptrain", .choices = timings,
     .help = "The step that has a rate: with dptrain the first step has the first rate above "
             "warmup_start. With deepspeed, for schedules constant, linear and cosine, each step "
             "has the rate that DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR give it, "
             "whose warm-up is two steps later."},
};

static const struct option strategy_row = {"strategy.name",
                                           OPT_ENTRY,
                                           AT(strategy.kind),
                                           "allreduce",
                                           .registry = &strategy_entries,
                                           .flags = OPT_RESUME,
                                           .help = "The way in which the ranks share the work."};

static const struct option last_rows[] = {
    {"precision", OPT_CHOICE, AT(precision), "float32", .choices = precisions,
     .help = "The type that layers compute in; float16 is for GPUs alone. Weights, statistics, "
             "losses, optimizer and checkpoints are float32 in any case."},
    {"loss_scale.initial", OPT_REAL, AT(loss_scale.initial), "65536", 0, 16777216,
     .flags = OPT_ABOVE, .only = "precision", .only_values = BIT(PRECISION_FLOAT16),
     .help = "The number by which the loss is multiplied at first, so that small gradients do "
             "not vanish in float16: a power of two. It is halved when a gradient overflows."},
    {"loss_scale.min", OPT_REAL, AT(loss_scale.min), "1", 0, 16777216, .flags = OPT_ABOVE,
     .only = "precision", .only_values = BIT(PRECISION_FLOAT16),
     .help = "The least scale, a power of two. An overflow at this scale has another cause, so "
             "train.on_nonfinite decides."},
    {"loss_scale.window", OPT_INT, AT(loss_scale.window), "1000", 1, 1e6, .unit = "steps",
     .only = "precision", .only_values = BIT(PRECISION_FLOAT16),
     .help = "The scale doubles after this many steps without overflow."},
    {"loss_scale.hysteresis", OPT_INT, AT(loss_scale.hysteresis), "2", 1, 1000, .unit = "overflows",
     .only = "precision", .only_values = BIT(PRECISION_FLOAT16),
     .help = "Of so many overflows the last one halves the scale, and so does every one after it, "
             "until the scale has doubled again; the others only skip their step."},

    {"checkpoint.every_epochs", OPT_INT, AT(checkpoint.every_epochs), "1", 0, 1e6, .unit = "epochs",
     .flags = OPT_RESUME,
     .help = "A checkpoint is written after every so many epochs; with 0, none is written by "
             "epochs."},
    {"checkpoint.every_steps", OPT_INT, AT(checkpoint.every_steps), "0", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "A checkpoint is written after every so many steps; with 0, none is written by steps. "
             "It is written beside training, and one that is due meanwhile follows it."},
    {"checkpoint.keep", OPT_INT, AT(checkpoint.keep), "3", 1, 1e6, .unit = "checkpoints",
     .flags = OPT_RESUME, .help = "The number of newest checkpoints that are kept."},
    {"checkpoint.hashes", OPT_INT, AT(checkpoint.hashes), "100", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "hashes.csv gets a row for every so many steps: hashes of state and samples, and the "
             "loss, by which --replay and --compare tell whether a step is the same; with 0 there "
             "is no such file."},

    {"report.every_steps", OPT_INT, AT(report.every_steps), "10", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "metrics.csv gets a row for every so many steps; with 0 there is no such file."},
    {"report.price_per_rank_hour", OPT_REAL, AT(report.price_per_rank_hour), "0", 0, 1e9,
     .flags = OPT_RESUME,
     .help = "The price of an hour of one rank, in any currency. With it the events, the status "
             "and the closing table tell what the run has cost, and the status what it will cost."},
    {"report.trace", OPT_INTS, AT(report.trace), "[]", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "[FIRST, LAST]: a timeline of these steps of all ranks is written to trace.json, for "
             "Perfetto and Chrome. The first step of a run is 0."},
    {"report.gradients", OPT_INT, AT(report.gradients), "0", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "The summed gradients of this step are written to gradients-N.safetensors, by "
             "parameter; the first step of a run is 1. With 0 none are."},
    {"report.operators", OPT_INT, AT(report.operators), "0", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help =
         "The tensors that each operator reads and writes in this step are listed in "
         "operators-N.jsonl, with their hashes; the first step of a run is 1. With 0 none are."},
    {"report.tensor", OPT_INT, AT(report.tensor), "0", 0, 1e9, .flags = OPT_RESUME,
     .help = "The tensor with this number in the list of report.operators has its numbers written "
             "to tensor-N.safetensors; the list begins with 1. With 0 none has."},
    {"report.tensorboard", OPT_BOOL, AT(report.tensorboard), "false", .flags = OPT_RESUME,
     .help = "With true, the run directory has a folder tensorboard with the run's numbers, for "
             "`tensorboard --logdir`. With up to 100 classes it has each validation's confusion "
             "matrix, too."},
    {"report.exec", OPT_STRING, AT(report.exec), NULL, .flags = OPT_RESUME,
     .help = "The driver starts this command by sh and writes to its standard input each event and "
             "each row of metrics.csv, as a line of JSON. It is started again when it ends, and "
             "never waited for."},
};
/* clang-format on */

#define ROW(option)           \
    {                         \
        &(option), 1, 0, NULL \
    }
#define ROWS(options)                        \
    {                                        \
        options, ARRAY_LEN(options), 0, NULL \
    }
#define ENTRIES(selector)       \
    {                           \
        NULL, 0, 0, &(selector) \
    }

static const struct option_part parts[] = {
    ROWS(name_rows),
    ROW(arch_row),
    ROWS(init_rows),
    ENTRIES(arch_row),
    ROWS(model_rows),
    ROW(format_row),
    ENTRIES(format_row),
    ROWS(every_format_rows),
    ROWS(train_rows),
    ROW(optimizer_row),
    ENTRIES(optimizer_row),
    ROWS(every_optimizer_rows),
    ROW(schedule_row),
    ROWS(warmup_rows),
    ENTRIES(schedule_row),
    ROW(strategy_row),
    ENTRIES(strategy_row),
    ROWS(last_rows),
    {cluster_rows, CLUSTER_N_ROWS, AT(cluster), NULL},
};

const struct option_table job_table = {parts, ARRAY_LEN(parts)};
