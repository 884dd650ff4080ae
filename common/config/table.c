/* The table of options: one row makes parsing, defaults, checks, --help-job, job.yaml and docs. */
#include "config/option.h"

#include "base/util.h"

static const char *const archs[] = {
    [MODEL_MLP] = "mlp", [MODEL_LENET] = "lenet", [MODEL_LENET5] = "lenet5", NULL};
static const char *const inits[] = {
    [INIT_PYTORCH] = "pytorch", [INIT_NORMAL] = "normal", [INIT_FILE] = "file", NULL};
static const char *const activations[] = {
    [ACTIVATION_RELU] = "relu",           [ACTIVATION_TANH] = "tanh",
    [ACTIVATION_SIGMOID] = "sigmoid",     [ACTIVATION_GELU] = "gelu",
    [ACTIVATION_GELU_TANH] = "gelu_tanh", NULL};
static const char *const losses[] = {
    [LOSS_CROSS_ENTROPY] = "cross_entropy", [LOSS_MSE] = "mse", NULL};
static const char *const formats[] = {[DATA_MNIST] = "mnist", [DATA_DIGITS] = "digits", NULL};
static const char *const nonfinites[] = {
    [NONFINITE_STOP] = "stop", [NONFINITE_SKIP] = "skip", NULL};
static const char *const optimizers[] = {[OPTIMIZER_SGD] = "sgd", NULL};
static const char *const schedules[] = {[SCHEDULE_CONSTANT] = "constant",
                                        [SCHEDULE_STEP] = "step",
                                        [SCHEDULE_COSINE] = "cosine",
                                        [SCHEDULE_LINEAR] = "linear",
                                        NULL};
static const char *const precisions[] = {[PRECISION_FLOAT32] = "float32",
                                         [PRECISION_BFLOAT16] = "bfloat16",
                                         [PRECISION_FLOAT16] = "float16",
                                         NULL};
static const char *const grad_dtypes[] = {
    [GRAD_FLOAT32] = "float32", [GRAD_BFLOAT16] = "bfloat16", NULL};

#define AT(field) offsetof(struct job, field)
#define BIT(n)    (1u << (n))

/* clang-format off: one row, one option */
const struct option config_options[] = {
    {"name", OPT_NAME, AT(name), "job", .help = "The job's name; the run directory is runs/NAME."},

    {"model.arch", OPT_CHOICE, AT(model.arch), NULL, .choices = archs, .flags = OPT_REQUIRED,
     .also = "architecture",
     .help = "The network. lenet: the d2l book's variant, with average pooling; lenet5: LeCun's of "
             "1998."},
    {"model.init.name", OPT_CHOICE, AT(model.init.name), "pytorch", .choices = inits,
     .help =
         "Initial weights: PyTorch's defaults for each layer, normal with biases 0, or a file."},
    {"model.init.std", OPT_REAL, AT(model.init.std), "0.01", 0, 100, .flags = OPT_ABOVE,
     .only = "model.init.name", .only_values = BIT(INIT_NORMAL),
     .help = "Standard deviation of the initial weights."},
    {"model.init.path", OPT_PATH, AT(model.init.path), NULL, .flags = OPT_REQUIRED,
     .only = "model.init.name", .only_values = BIT(INIT_FILE),
     .help = "A safetensors file, such as a checkpoint's model.safetensors; the driver reads it."},
    {"model.hidden", OPT_INTS, AT(model.n_hidden), "[128]", 1, 65536, .unit = "units",
     .only = "model.arch", .only_values = BIT(MODEL_MLP), .also = "hidden_sizes",
     .help = "Sizes of the hidden layers, up to 16 of them; [] for none."},
    {"model.activation", OPT_CHOICE, AT(model.activation), "relu", .choices = activations,
     .only = "model.arch", .only_values = BIT(MODEL_MLP),
     .help = "What follows each hidden layer; lenet has relu, lenet5 tanh. gelu_tanh approximates "
             "gelu, "
             "as GPT-2 has it, and is the one that GPUs compute within the matrix product."},
    {"model.dropout", OPT_REAL, AT(model.dropout), "0", 0, 1, .flags = OPT_BELOW,
     .only = "model.arch", .only_values = BIT(MODEL_MLP),
     .help = "Probability that an activation of a hidden layer is dropped in training."},
    {"model.batch_norm", OPT_BOOL, AT(model.batch_norm), "false", .only = "model.arch",
     .only_values = BIT(MODEL_MLP), .help = "Normalize over the batch after each hidden layer."},
    {"model.sync_batch_norm", OPT_BOOL, AT(model.sync_batch_norm), "true",
     .help = "Batch norm's statistics are those of all ranks together, so that training does not "
             "depend on their number."},
    {"model.loss", OPT_CHOICE, AT(model.loss), "cross_entropy", .choices = losses,
     .help = "What is minimized; mse compares with one-hot labels."},

    {"data.format", OPT_CHOICE, AT(data.format), NULL, .choices = formats, .flags = OPT_REQUIRED,
     .help = "mnist: four IDX files, .gz or not; digits: drawn ones, no files needed."},
    {"data.path", OPT_PATH, AT(data.path), NULL, .flags = OPT_REQUIRED, .only = "data.format",
     .only_values = BIT(DATA_MNIST),
     .help = "The folder of the data on every rank; a follower's --data overrides it there."},
    {"data.train", OPT_STRING, AT(data.train), "train", .only = "data.format",
     .only_values = BIT(DATA_MNIST),
     .help = "Prefix of the training files: PREFIX-images-idx3-ubyte, PREFIX-labels-idx1-ubyte."},
    {"data.validation", OPT_STRING, AT(data.validation), NULL, .only = "data.format",
     .only_values = BIT(DATA_MNIST),
     .help = "Prefix of the validation files, usually t10k; without it, nothing is validated."},
    {"data.samples", OPT_INT, AT(data.samples), "20000", 1, 4e6, .unit = "samples",
     .only = "data.format", .only_values = BIT(DATA_DIGITS), .help = "Training digits drawn."},
    {"data.validation_samples", OPT_INT, AT(data.validation_samples), "4000", 0, 4e6,
     .unit = "samples", .only = "data.format", .only_values = BIT(DATA_DIGITS),
     .help = "Validation digits drawn; 0: nothing is validated."},

    {"train.global_batch", OPT_INT, AT(train.global_batch), "256", 1, 1e9, .unit = "samples",
     .also = "batch_size",
     .help = "Samples per step, over all ranks; the ranks' shares differ by at most one."},
    {"train.epochs", OPT_INT, AT(train.epochs), "10", 1, 1e6, .unit = "epochs", .flags = OPT_RESUME,
     .help = "How often all samples are seen."},
    {"train.seed", OPT_INT, AT(train.seed), "1", 0, 9007199254740991,
     .help = "All random numbers follow from it: initial weights, order of samples, dropout."},
    {"train.accumulate", OPT_INT, AT(train.accumulate), "1", 1, 1e6, .unit = "micro-batches",
     .help = "A rank computes its share of a step in so many parts, which needs less memory."},
    {"train.max_steps", OPT_INT, AT(train.max_steps), "0", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME, .help = "Stop after so many steps; 0: when the epochs are done."},
    {"train.validate_every", OPT_INT, AT(train.validate_every), "1", 0, 1e6, .unit = "epochs",
     .flags = OPT_RESUME, .help = "Validate after every so many epochs; 0: never."},
    {"train.clip_norm", OPT_REAL, AT(train.clip_norm), "0", 0, 1e9, .also = "gradient_clip",
     .help = "Scale the gradient down to this norm, taken over all parameters; 0: off."},
    {"train.label_smoothing", OPT_REAL, AT(train.label_smoothing), "0", 0, 1, .flags = OPT_BELOW,
     .help = "This part of each label is spread evenly over all classes."},
    {"train.drop_last", OPT_BOOL, AT(train.drop_last), "false",
     .help = "Leave out an epoch's last batch if it is not full."},
    {"train.on_nonfinite", OPT_CHOICE, AT(train.on_nonfinite), "stop", .choices = nonfinites,
     .help = "On an infinite or undefined loss or gradient: stop the job, or skip that step. With "
             "precision float16, a gradient that loss scaling made infinite is not meant: such a "
             "step is always skipped."},
    {"train.grad_dtype", OPT_CHOICE, AT(train.grad_dtype), "float32", .choices = grad_dtypes,
     .help = "The type in which gradients travel between ranks. bfloat16, with precision bfloat16 "
             "alone, halves what travels; it rounds each gradient, and each sum."},
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
     .help = "GPU memory that one call of cuDNN or cuBLASLt may work in; algorithms that want more "
             "are left out."},
    {"train.plan_cache", OPT_BOOL, AT(train.plan_cache), "true",
     .help =
         "Each GPU host keeps the chosen algorithms and compiled kernels for the next start, in "
         "$XDG_CACHE_HOME/dptrain (~/.cache/dptrain; as a service, its CACHE_DIRECTORY)."},

    {"optimizer.name", OPT_CHOICE, AT(optimizer.name), "sgd", .choices = optimizers,
     .help = "Stochastic gradient descent."},
    {"optimizer.lr", OPT_REAL, AT(optimizer.lr), "0.1", 0, 1e6, .flags = OPT_ABOVE,
     .also = "learning_rate", .help = "Learning rate, before the schedule."},
    {"optimizer.momentum", OPT_REAL, AT(optimizer.momentum), "0", 0, 1, .flags = OPT_BELOW,
     .help = "Part of the last update that goes on."},
    {"optimizer.dampening", OPT_REAL, AT(optimizer.dampening), "0", 0, 1,
     .help = "The gradient enters the momentum times 1 minus this."},
    {"optimizer.weight_decay", OPT_REAL, AT(optimizer.weight_decay), "0", 0, 1e3,
     .help = "This times the weight is added to its gradient."},
    {"optimizer.nesterov", OPT_BOOL, AT(optimizer.nesterov), "false",
     .help = "Nesterov's momentum: look ahead by one update."},
    {"optimizer.scale_lr_by_ranks", OPT_BOOL, AT(optimizer.scale_lr_by_ranks), "false",
     .help = "Multiply the rate by the number of ranks that train the step (Horovod's rule), also "
             "after some were lost, have joined, or a run was resumed with another number. Then "
             "training depends on it."},

    {"schedule.name", OPT_CHOICE, AT(schedule.name), "constant", .choices = schedules,
     .help = "How the learning rate goes: constant, times gamma now and then, or down along a "
             "cosine or a line until the job's end."},
    {"schedule.warmup_steps", OPT_INT, AT(schedule.warmup_steps), "0", 0, 1e12, .unit = "steps",
     .help = "The rate first rises linearly over so many steps."},
    {"schedule.warmup_start", OPT_REAL, AT(schedule.warmup_start), "0", 0, 1,
     .help = "The part of the rate that warm-up starts from."},
    {"schedule.every_steps", OPT_INT, AT(schedule.every_steps), "0", 0, 1e12, .unit = "steps",
     .only = "schedule.name", .only_values = BIT(SCHEDULE_STEP),
     .help = "Multiply by gamma after every so many steps; 0: by epochs."},
    {"schedule.every_epochs", OPT_INT, AT(schedule.every_epochs), "0", 0, 1e6, .unit = "epochs",
     .only = "schedule.name", .only_values = BIT(SCHEDULE_STEP),
     .help = "Multiply by gamma after every so many epochs; 0: by steps."},
    {"schedule.gamma", OPT_REAL, AT(schedule.gamma), "0.1", 0, 1, .flags = OPT_ABOVE,
     .only = "schedule.name", .only_values = BIT(SCHEDULE_STEP),
     .help = "What the rate is multiplied by."},
    {"schedule.min_lr", OPT_REAL, AT(schedule.min_lr), "0", 0, 1e6, .only = "schedule.name",
     .only_values = BIT(SCHEDULE_COSINE) | BIT(SCHEDULE_LINEAR),
     .help = "The rate at the job's end."},

    {"precision", OPT_CHOICE, AT(precision), "float32", .choices = precisions,
     .help = "The type that layers compute in, on GPUs; CPUs compute in float32 alone. Weights, "
             "statistics, losses, optimizer and checkpoints are float32 in any case."},
    {"loss_scale.initial", OPT_REAL, AT(loss_scale.initial), "65536", 0, 16777216,
     .flags = OPT_ABOVE, .only = "precision", .only_values = BIT(PRECISION_FLOAT16),
     .help = "What the loss is multiplied by at first, so that small gradients do not vanish in "
             "float16; a power of two. Halved when a gradient overflows."},
    {"loss_scale.min", OPT_REAL, AT(loss_scale.min), "1", 0, 16777216, .flags = OPT_ABOVE,
     .only = "precision", .only_values = BIT(PRECISION_FLOAT16),
     .help = "An overflow at this scale is not its fault: train.on_nonfinite decides. A power of "
             "two."},
    {"loss_scale.window", OPT_INT, AT(loss_scale.window), "1000", 1, 1e6, .unit = "steps",
     .only = "precision", .only_values = BIT(PRECISION_FLOAT16),
     .help = "The scale doubles after so many steps without overflow."},
    {"loss_scale.hysteresis", OPT_INT, AT(loss_scale.hysteresis), "2", 1, 1000, .unit = "overflows",
     .only = "precision", .only_values = BIT(PRECISION_FLOAT16),
     .help = "Of so many overflows the last one halves the scale, and so does every one after it, "
             "until the scale has doubled again; the others only skip their step."},

    {"checkpoint.every_epochs", OPT_INT, AT(checkpoint.every_epochs), "1", 0, 1e6, .unit = "epochs",
     .flags = OPT_RESUME,
     .help = "Write a checkpoint after every so many epochs; 0: not by epochs."},
    {"checkpoint.every_steps", OPT_INT, AT(checkpoint.every_steps), "0", 0, 1e12, .unit = "steps",
     .flags = OPT_RESUME,
     .help = "Write a checkpoint after every so many steps; 0: not by steps.  It is written beside "
             "training; one that falls due meanwhile follows it."},
    {"checkpoint.keep", OPT_INT, AT(checkpoint.keep), "3", 1, 1e6, .unit = "checkpoints",
     .flags = OPT_RESUME, .help = "So many of the newest are kept."},

    {"cluster.min_ranks", OPT_INT, AT(cluster.min_ranks), "0", 0, JOB_MAX_RANKS, .unit = "ranks",
     .flags = OPT_RESUME,
     .help = "Go on with as few as these when lost ranks are not replaced in time; 0: --nranks."},
    {"cluster.max_ranks", OPT_INT, AT(cluster.max_ranks), "0", 0, JOB_MAX_RANKS, .unit = "ranks",
     .flags = OPT_RESUME,
     .help = "Followers that come while the job runs join it, up to so many ranks; 0: --nranks."},
    {"cluster.spares", OPT_INT, AT(cluster.spares), "0", 0, JOB_MAX_RANKS, .unit = "ranks",
     .flags = OPT_RESUME,
     .help = "So many followers more than --nranks are let in: they wait, ready to replace a lost "
             "one at once, and are kept before any joins beyond --nranks."},
    {"cluster.replace_timeout", OPT_SECONDS, AT(cluster.replace_timeout_ms), "60", 0, 86400,
     .unit = "seconds", .flags = OPT_RESUME,
     .help = "How long to wait for a follower that takes a lost rank's place; 0: the job ends at "
             "once, unless a spare is ready or cluster.min_ranks lets it go on."},
    {"cluster.join_interval", OPT_SECONDS, AT(cluster.join_interval_ms), "60", 0, 86400,
     .unit = "seconds", .flags = OPT_RESUME,
     .help = "Followers that come while the job runs are taken in at most this often: each time "
             "costs all ranks a formation."},
    {"cluster.heartbeat_timeout", OPT_SECONDS, AT(cluster.heartbeat_timeout_ms), "5", 2, 3600,
     .unit = "seconds", .flags = OPT_RESUME,
     .help =
         "A rank is lost after this much silence. Heartbeats come every second, or four times in "
         "this time; beyond 1,000 ranks every so many seconds as there are thousands of ranks, "
         "and the silence is at least three of them."},
    {"cluster.straggler_factor", OPT_REAL, AT(cluster.straggler_factor), "1.5", 0, 1000,
     .flags = OPT_RESUME,
     .help = "Report a rank that is busy for so many times the median of the ranks, waiting for "
             "others left out; 0: do not."},
    {"cluster.straggler_window", OPT_SECONDS, AT(cluster.straggler_window_ms), "30", 1, 86400,
     .unit = "seconds", .flags = OPT_RESUME, .help = "How long ranks are compared for that."},
#define DEADLINE(name, def, what)                                                                 \
    {                                                                                             \
        "cluster.deadlines." #name, OPT_SECONDS, AT(cluster.deadlines.name##_ms), def, 0.1, 1e6,  \
            .unit = "seconds", .flags = OPT_RESUME, .help = "The longest that " what " may take." \
    }
    DEADLINE(gather, "600", "waiting for all ranks to connect"),
    DEADLINE(ready, "120", "opening the data and building the graph"),
    DEADLINE(prepare, "300", "preparing programs and communication"),
    DEADLINE(form, "60", "forming the communicator and sharing the state"),
    DEADLINE(step, "60", "one training step"),
    DEADLINE(validate, "600", "one validation"),
    DEADLINE(checkpoint, "120", "writing a checkpoint"),
#undef DEADLINE
};
/* clang-format on */

const size_t n_config_options = ARRAY_LEN(config_options);
