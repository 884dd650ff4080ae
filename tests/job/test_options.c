/* Every row of the table can be set, is written, read back, explained and compared; and every entry
 * of a registry is complete. */
#include "../test.h"

#include "job/table.h"

static struct option_list list; /* all rows, made once */

/* For each key a value that is neither the default nor the demo job's, and the settings that it
 * needs before it applies or agrees with others. */
static const struct row {
    const char *key, *value, *before[3];
    const char *written; /* in job.yaml, where not as given */
} rows[] = {
    {"name", "a-b_c.9", .written = "\"a-b_c.9\""},
    {"model.arch", "lenet5"},
    {"model.init.name", "normal"},
    {"model.init.std", "0.02", {"model.init.name=normal"}},
    {"model.init.path", "/a/b.safetensors", {"model.init.name=file"}, "\"/a/b.safetensors\""},
    {"model.init.missing", "draw", {"model.init.name=file", "model.init.path=/a"}},
    {"model.hidden", "64,32", {"model.arch=mlp"}, "[64, 32]"},
    {"model.activation", "gelu_tanh", {"model.arch=mlp"}},
    {"model.dropout", "0.25", {"model.arch=mlp"}},
    {"model.batch_norm", "true", {"model.arch=mlp"}},
    {"model.layers",
     "[flatten, {linear: {units: 10}}]",
     {"model.arch=layers", "model.layers=[relu]"}},
    {"model.context", "256", {"model.arch=gpt2"}},
    {"model.heads", "8", {"model.arch=gpt"}},
    {"model.width", "256", {"model.arch=gpt"}},
    {"model.vocab", "1000", {"model.arch=gpt2_medium"}},
    {"model.tied", "false", {"model.arch=gpt2_xl"}},
    {"model.image", "32", {"model.arch=vit_tiny"}},
    {"model.patch", "8", {"model.arch=vit_small"}},
    {"model.depth", "2", {"model.arch=vit"}},
    {"model.mlp", "100", {"model.arch=vit_base"}},
    {"model.drop_path", "0.2", {"model.arch=vit_base"}},
    {"model.classes", "100", {"model.arch=resnet50"}},
    {"model.stem", "cifar", {"model.arch=resnet18"}},
    {"model.import", "/a/net.pt2", {"model.import=/b.pt2"}, "\"/a/net.pt2\""},
    {"model.inputs", "{x: image}", {"model.import=/a/net.pt2"}},
    {"model.lora.rank", "8"},
    {"model.lora.alpha", "16"},
    {"model.lora.match", "[\"*.q_proj\", 'head']", {NULL}, "\"*.q_proj, head\""},
    {"model.lora.dropout", "0.1"},
    {"model.lora.path",
     "/a/adapter",
     {"model.lora.rank=4", "model.init.name=file", "model.init.path=/w"},
     "\"/a/adapter\""},
    {"model.lora.rslora", "true"},
    {"model.base", "int8", {"model.lora.rank=4", "model.init.name=file", "model.init.path=/w"}},
    {"model.sync_batch_norm", "false"},
    {"model.loss", "{logits: cross_entropy, aux: {name: huber, weight: 0.4, delta: 2}}"},
    {"data.format", "mnist", {"data.path=/x"}},
    {"data.path", "/a \"b\"\\c/\xc3\xa4", {"data.format=mnist"}, "\"/a \\\"b\\\"\\\\c/\xc3\xa4\""},
    {"data.train",
     "{ids: 'a, b.npy', labels: y}",
     {"data.format=npy", "data.path=/x"},
     "\"{ids: 'a, b.npy', labels: y}\""},
    {"data.validation", "t10k", {"data.format=mnist", "data.path=/x"}, "\"t10k\""},
    {"data.split", "letters", {"data.format=mnist", "data.path=/x"}},
    {"data.classes", "27", {"data.format=mnist", "data.path=/x"}},
    {"data.normalize.source", "auto", {"data.format=mnist", "data.path=/x"}},
    {"data.normalize.mean",
     "0.1,0.2,0.3",
     {"data.format=cifar10", "data.path=/x"},
     .written = "[0.1, 0.2, 0.3]"},
    {"data.normalize.std",
     "0.1,0.2,0.3",
     {"data.format=cifar10", "data.path=/x"},
     .written = "[0.1, 0.2, 0.3]"},
    {"data.samples", "4000000"},
    {"data.validation_samples", "0"},
    {"data.augment.crop", "4", {"data.format=cifar10", "data.path=/x"}},
    {"data.augment.flip", "true", {"data.format=cifar100", "data.path=/x"}},
    {"data.dtype", "uint32", {"data.format=tokens", "data.path=/x"}},
    {"data.pack", "true", {"data.format=tokens", "data.path=/x", "data.end_token=7"}},
    {"data.end_token",
     "</s>",
     {"data.format=text", "data.path=/x", "data.tokenizer=/t"},
     "\"</s>\""},
    {"data.tokenizer", "bytes", {"data.format=text", "data.path=/x"}},
    {"data.template", "gemma", {"data.format=text", "data.path=/x", "data.tokenizer=/t"}},
    {"data.too_long", "refuse", {"data.format=text", "data.path=/x", "data.tokenizer=/t"}},
    {"data.cache", "/c", {"data.format=text", "data.path=/x", "data.tokenizer=/t"}, "\"/c\""},
    {"data.layout", "nchw", {"data.format=npy", "data.path=/x"}},
    {"data.targets.normalize", "auto", {"data.format=csv", "data.path=/x"}},
    {"data.targets.mean", "0.5,2", {"data.format=csv", "data.path=/x"}, .written = "[0.5, 2]"},
    {"data.targets.std", "0.5", {"data.format=npy", "data.path=/x"}, .written = "[0.5]"},
    {"data.target", "price, year", {"data.format=csv", "data.path=/x"}, "\"price, year\""},
    {"data.drop", "id", {"data.format=csv", "data.path=/x"}, "\"id\""},
    {"data.categories", "zip", {"data.format=csv", "data.path=/x"}, "\"zip\""},
    {"data.delimiter", "tab", {"data.format=csv", "data.path=/x"}},
    {"data.header", "false", {"data.format=csv", "data.path=/x"}},
    {"data.missing", "mean", {"data.format=csv", "data.path=/x"}},
    {"data.missing_values", "empty", {"data.format=csv", "data.path=/x"}, "\"empty\""},
    {"data.unknown", "none", {"data.format=csv", "data.path=/x"}},
    {"data.scheme", "0123abcd", {"data.format=csv", "data.path=/x"}, "\"0123abcd\""},
    {"data.size", "160", {"data.format=images", "data.path=/x"}},
    {"data.resize", "256", {"data.format=images", "data.path=/x"}},
    {"data.on_corrupt", "skip", {"data.format=images", "data.path=/x"}},
    {"data.jpeg_scale", "whole", {"data.format=images", "data.path=/x"}},
    {"data.cache_size", "300", {"data.format=images", "data.path=/x", "data.cache=/c"}},
    {"data.augment.random_resized_crop", "true", {"data.format=images", "data.path=/x"}},
    {"data.class_names", "[cat, \"a: b, c\"]"},
    {"data.shuffle", "false"},
    {"data.reconstruct", "true"},
    {"data.workers", "3"},
    {"train.global_batch", "96"},
    {"train.epochs", "7"},
    {"train.seed", "9007199254740991"},
    {"train.accumulate", "2"},
    {"train.recompute", "blocks"},
    {"train.max_steps", "1000000000000"},
    {"train.stop_after", "50"},
    {"train.validate_every", "0"},
    {"train.best.metric", "validation_loss"},
    {"train.best.keep", "3", {"train.best.metric=validation_accuracy"}},
    {"train.early_stop.patience", "5"},
    {"train.early_stop.min_delta", "0.25"},
    {"train.early_stop.metric", "validation_accuracy"},
    {"train.average.name", "ema"},
    {"train.average.decay", "0.9", {"train.average.name=ema"}},
    {"train.average.every", "5", {"train.average.name=swa"}},
    {"train.average.start", "3", {"train.average.name=swa"}},
    {"train.average.statistics_samples", "5000", {"train.average.name=swa"}},
    {"train.clip_norm", "1.5"},
    {"train.label_smoothing", "0.1"},
    {"train.class_weights", "1.5, 0,.25", .written = "[1.5, 0, 0.25]"},
    {"train.ignore_index", "255"},
    {"train.overfit", "32"},
    {"train.drop_last", "true"},
    {"train.on_nonfinite", "skip"},
    {"train.on_spike", "rewind"},
    {"train.spike_deviations", "4.5"},
    {"train.audit", "0.25"},
    {"train.replica_check", "0.5"},
    {"train.grad_dtype", "bfloat16", {"precision=bfloat16"}},
    {"train.bucket_bytes", "auto"},
    {"train.tf32", "true"},
    {"train.record", "false"},
    {"train.autotune", "true"},
    {"train.max_workspace", "64"},
    {"train.plan_cache", "false"},
    {"optimizer.name", "sgd"},
    {"optimizer.lr", "1e-7", .written = "1.0e-07"},
    {"optimizer.momentum", ".9", .written = "0.9"},
    {"optimizer.dampening", "1.", .written = "1"},
    {"optimizer.weight_decay", "5E-4", .written = "0.0005"},
    {"optimizer.nesterov", "true", {"optimizer.momentum=0.3333333333333333"}},
    {"optimizer.betas", "0.8,0.99", {"optimizer.name=adamw"}, .written = "[0.8, 0.99]"},
    {"optimizer.eps", "1e-6", {"optimizer.name=adamw"}, .written = "1.0e-06"},
    {"optimizer.min_trust", "0.01", {"optimizer.name=lamb"}},
    {"optimizer.max_trust", "10", {"optimizer.name=lamb"}},
    {"optimizer.bias_correction", "rate", {"optimizer.name=lamb"}},
    {"optimizer.adjust_lr", "match_rms_adamw", {"optimizer.name=muon"}},
    {"optimizer.ns_steps", "6", {"optimizer.name=muon"}},
    {"optimizer.ns_coefficients", "2,-1.5,0.5", {"optimizer.name=muon"}, "[2, -1.5, 0.5]"},
    {"optimizer.adamw.match",
     "[\"fc.*\", '*.out', head]",
     {"optimizer.name=muon"},
     .written = "\"fc.*, *.out, head\""},
    {"optimizer.adamw.lr", "0.001", {"optimizer.name=muon"}},
    {"optimizer.adamw.betas", "0.8,0.99", {"optimizer.name=muon"}, "[0.8, 0.99]"},
    {"optimizer.adamw.eps", "1e-6", {"optimizer.name=muon"}, .written = "1.0e-06"},
    {"optimizer.adamw.weight_decay", "0.1", {"optimizer.name=muon"}},
    {"optimizer.no_decay", "bias,norm", .written = "[bias, norm]"},
    {"optimizer.groups", "[{match: \"fc.*\", lr_scale: 10}]",
     .written = "[{match: \"fc.*\", lr_scale: 10, frozen: false}]"},
    {"optimizer.scale_lr_by_ranks", "true"},
    {"schedule.name", "linear"},
    {"schedule.total_steps", "900"},
    {"schedule.warmup_steps", "100"},
    {"schedule.warmup_epochs", "2"},
    {"schedule.warmup_shape", "log"},
    {"schedule.warmup_start", "0.1"},
    {"schedule.warmup_from_one_rank",
     "true",
     {"optimizer.scale_lr_by_ranks=true", "schedule.warmup_steps=9"}},
    {"schedule.timing", "deepspeed"},
    {"schedule.every_steps", "9", {"schedule.name=step"}},
    {"schedule.every_epochs", "9", {"schedule.name=step"}},
    {"schedule.gamma", "0.5", {"schedule.name=step", "schedule.every_steps=1"}},
    {"schedule.milestone_epochs", "30,60", {"schedule.name=multistep"}, "[30, 60]"},
    {"schedule.milestone_steps", "30,60", {"schedule.name=multistep"}, "[30, 60]"},
    {"schedule.min_lr", "0.001", {"schedule.name=cosine"}},
    {"schedule.rise", "0.25", {"schedule.name=onecycle"}},
    {"schedule.div", "10", {"schedule.name=onecycle"}},
    {"schedule.final_div", "100", {"schedule.name=onecycle"}},
    {"schedule.shape", "linear", {"schedule.name=onecycle"}},
    {"schedule.three_phases", "true", {"schedule.name=onecycle"}},
    {"schedule.decay", "0.5", {"schedule.name=wsd"}},
    {"schedule.metric", "validation_accuracy", {"schedule.name=plateau"}},
    {"schedule.factor", "0.5", {"schedule.name=plateau"}},
    {"schedule.patience", "3", {"schedule.name=plateau"}},
    {"schedule.threshold", "0.01", {"schedule.name=plateau"}},
    {"schedule.cooldown", "2", {"schedule.name=plateau"}},
    {"schedule.first_lr", "0.001", {"schedule.name=range"}},
    {"schedule.last_lr", "2", {"schedule.name=range"}},
    {"strategy.name", "bytegrad"},
    {"strategy.compress", "uint8"},
    {"strategy.rank", "4", {"strategy.compress=powersgd"}},
    {"strategy.gradient_predivide_factor", "0.125", {"strategy.compress=float16"}},
    {"strategy.zero", "1"},
    {"strategy.offload", "optimizer"},
    {"strategy.buddy", "false"},
    {"strategy.shards", "8"},
    {"strategy.share_threads", "4", {"strategy.shards=8"}},
    {"strategy.every", "4", {"strategy.name=local_sgd"}},
    {"strategy.start", "100", {"strategy.name=local_sgd"}},
    {"strategy.outer", "nesterov", {"strategy.name=local_sgd"}},
    {"strategy.outer_lr", "0.5", {"strategy.name=local_sgd", "strategy.outer=nesterov"}},
    {"strategy.outer_momentum", "0.5", {"strategy.name=local_sgd", "strategy.outer=nesterov"}},
    {"strategy.peers", "shift_one", {"strategy.name=decentralized"}},
    {"strategy.warmup_steps", "50", {"strategy.name=qadam", "optimizer.name=adam"}},
    {"strategy.interval", "1.5", {"strategy.name=async"}},
    {"precision", "bfloat16"},
    {"loss_scale.initial", "4096", {"precision=float16"}},
    {"loss_scale.min", "0.5", {"precision=float16"}},
    {"loss_scale.window", "500", {"precision=float16"}},
    {"loss_scale.hysteresis", "1", {"precision=float16"}},
    {"checkpoint.every_epochs", "0"},
    {"checkpoint.every_steps", "50"},
    {"checkpoint.keep", "1"},
    {"checkpoint.hashes", "50"},
    {"report.every_steps", "50"},
    {"report.price_per_rank_hour", "2.5"},
    {"report.trace", "[3, 7]"},
    {"report.tensorboard", "true"},
    {"report.exec", "cat > /dev/null", .written = "\"cat > /dev/null\""},
    {"cluster.min_ranks", "2"},
    {"cluster.max_ranks", "65536"},
    {"cluster.spares", "1"},
    {"cluster.replace_timeout", "0.001"},
    {"cluster.join_interval", "1.2340", .written = "1.234"},
    {"cluster.heartbeat_timeout", "2"},
    {"cluster.driver_timeout", "7.5"},
    {"cluster.straggler_factor", "2.25"},
    {"cluster.straggler_window", "4.5"},
    {"cluster.rebalance", "true"},
    {"cluster.on_divergence", "heal"},
    {"cluster.encrypt", "on"},
    {"cluster.shared_memory", "off"},
    {"cluster.notice", "test -e /run/leaves", .written = "\"test -e /run/leaves\""},
    {"cluster.deadlines.gather", "1"},
    {"cluster.deadlines.ready", "2"},
    {"cluster.deadlines.prepare", "3"},
    {"cluster.deadlines.form", "4"},
    {"cluster.deadlines.step", "5.5"},
    {"cluster.deadlines.validate", "6"},
    {"cluster.deadlines.checkpoint", "1000000"},
};

static struct job *load(const struct row *row, int with_value)
{
    const char *sets[5] = {row->before[0], row->before[1], row->before[2]};
    char value[128];
    size_t n = 0;
    struct job *job = NULL;
    struct err err;

    while (n < ARRAY_LEN(row->before) && row->before[n])
        n++;
    snprintf(value, sizeof value, "%s=%s", row->key, row->value);
    sets[n] = value;
    if (job_load(NULL, sets, n + (with_value ? 1 : 0), &job, &err) < 0)
        fail_msg("%s: %s", value, err.msg);
    return job;
}

/* "model:\n  init:\n    std: 0.02\n" holds model.init.std: 0.02 */
static int holds(const char *yaml, const char *key, const char *value)
{
    char line[256];
    size_t depth = 0, at = 0;

    for (const char *dot; (dot = strchr(key + at, '.')); depth++) {
        snprintf(line, sizeof line, "%*s%.*s:\n", (int)(2 * depth), "", (int)(dot - key - (long)at),
                 key + at);
        yaml = strstr(yaml, line);
        if (!yaml)
            return 0;
        at = (size_t)(dot - key) + 1;
    }
    snprintf(line, sizeof line, "%*s%s: %s\n", (int)(2 * depth), "", key + at, value);
    return strstr(yaml, line) != NULL;
}

static void test_rows_cover_the_table(void **state)
{
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < list.n; i++)
        if (list.ref[i].first == i) {
            const char *key = list.ref[i].o->key, *row = n < ARRAY_LEN(rows) ? rows[n].key : "";

            if (strcmp(row, key) != 0)
                fail_msg("the rows of this file have \"%s\" where the job's keys have \"%s\": add "
                         "a row for the key, or take the row out",
                         row, key);
            n++;
        }
    if (n < ARRAY_LEN(rows))
        fail_msg("the rows of this file have \"%s\", and the job's keys end before it",
                 rows[n].key);
}

static void test_set_and_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *row = &rows[i];
        struct job *job = load(row, 1), *again = NULL;
        struct buf one = {0}, two = {0};
        struct err err;

        job_write(job, &one);
        if (!holds(buf_cstr(&one), row->key, row->written ? row->written : row->value))
            fail_msg("%s: %s is not in\n%s", row->key, row->value, buf_cstr(&one));
        assert_int_equal(job_parse((const char *)one.data, one.len, "job.yaml", NULL, &again, &err),
                         0);
        job_write(again, &two);
        assert_string_equal(buf_cstr(&one), buf_cstr(&two));
        assert_int_equal(job_compare_for_resume(job, again, &err), 0);
        job_free(again);
        job_free(job);
        buf_fini(&one);
        buf_fini(&two);
    }
}

/* Options that have only one value, or without which there is no job, cannot differ alone. */
static int cannot_differ(const char *key)
{
    return strcmp(key, "optimizer.name") == 0 || strcmp(key, "data.path") == 0 ||
           strcmp(key, "data.format") == 0 || strcmp(key, "model.init.path") == 0 ||
           strncmp(key, "schedule.every_", 15) == 0 || strncmp(key, "schedule.milestone_", 19) == 0;
}

static void test_what_may_change_on_resume(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct job *a, *b;
        struct err err = {0};
        int rc;

        if (cannot_differ(rows[i].key))
            continue;
        a = load(&rows[i], 0);
        b = load(&rows[i], 1);
        rc = job_compare_for_resume(a, b, &err);
        if (rc != (table_may_change(table_find(&list, rows[i].key)) ? 0 : ERR_REFUSED))
            fail_msg("%s: on resume another value gives %d", rows[i].key, rc);
        if (rc < 0)
            assert_memory_equal(err.msg, rows[i].key, strlen(rows[i].key));
        job_free(a);
        job_free(b);
    }
}

static char *help_text(const char *word, int want, struct err *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    assert_non_null(f);
    assert_int_equal(job_help(word, f, err), want);
    fclose(f);
    return text;
}

static void test_help_has_every_key(void **state)
{
    struct err err;
    char *help = help_text(NULL, 0, &err);

    (void)state;
    for (size_t i = 0; i < list.n; i++) {
        const struct option *o = list.ref[i].o;
        char line[128];

        snprintf(line, sizeof line, "\n%s: %s\n", o->key,
                 o->def                    ? o->def
                 : o->flags & OPT_REQUIRED ? "(must be given)"
                                           : "(none)");
        assert_non_null(strstr(help, line));
    }
    for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n"))
        assert_in_range(strlen(line), 1, 90);
    free(help);
}

static void check_row(const struct option_ref *ref)
{
    const struct option *o = ref->o;
    const struct option_ref *selector = o->only ? table_find(&list, o->only) : NULL;
    int number =
        o->type == OPT_INT || o->type == OPT_REAL || o->type == OPT_SECONDS || o->type == OPT_INTS;

    assert_ptr_equal(table_find(&list, o->key), &list.ref[ref->first]);
    assert_true(strlen(o->key) < 48 && strlen(o->help) > 10);
    assert_int_equal(o->help[strlen(o->help) - 1], '.');
    assert_true(!number || o->min < o->max);
    assert_true(o->type != OPT_INT || !o->choices || o->min >= 0);
    assert_int_equal(o->type == OPT_CHOICE || o->type == OPT_SET,
                     o->choices != NULL && o->type != OPT_INT && o->type != OPT_PATH);
    assert_int_equal(o->type == OPT_ENTRY, o->registry != NULL);
    assert_true(!o->only || (selector && selector < ref && selector->o->type == OPT_CHOICE));
    assert_true(!o->only == !o->only_values);
}

static void test_rows_are_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < list.n; i++)
        check_row(&list.ref[i]);
}

/* The default of a key as a job file has it; every field of an entry's options lies within. */
static void check_entry_row(const struct option_group *g, const struct option *o, const char *help)
{
    char line[128];

    snprintf(line, sizeof line, "\n%s: %s\n", o->key,
             o->def                    ? o->def
             : o->flags & OPT_REQUIRED ? "(must be given)"
                                       : "(none)");
    if (!strstr(help, line))
        fail_msg("--help-job does not tell %s of %s", o->key, g->name);
    if (o->offset >= g->size)
        fail_msg("%s: offset %zu is outside of the options of %s", o->key, o->offset, g->name);
}

static void check_entry(const char *key, const struct option_group *g, const char *word,
                        const char *help)
{
    char line[128];

    if (strcmp(g->name, word) != 0)
        fail_msg("%s: the entry %s calls itself \"%s\"", key, word, g->name);
    if (!g->help || !*g->help || g->help[strlen(g->help) - 1] == '.')
        fail_msg("%s %s: its help is \"%s\", want a phrase without a full stop", key, word,
                 g->help ? g->help : "");
    if ((g->n_options > 0) != (g->size > 0) || (g->n_options > 0) != (g->option != NULL))
        fail_msg("%s %s: keys without an options struct, or a struct without keys", key, word);
    snprintf(line, sizeof line, "\n      %s ", word);
    if (!strstr(help, line))
        fail_msg("--help-job does not tell %s %s", key, word);
    for (int i = 0; i < g->n_options; i++)
        check_entry_row(g, &g->option[i], help);
}

/* Of an entry the build sees only that it exists.  Here its name must be its word, and its help
 * must say what it is. */
static void test_entries_are_whole(void **state)
{
    struct err err;
    char *help = help_text(NULL, 0, &err);

    (void)state;
#define X(word) check_entry("model.arch", &arch_##word.group, #word, help);
    ARCH_LIST(X)
#undef X
#define X(word) check_entry("data.format", &format_##word.group, #word, help);
    FORMAT_LIST(X)
#undef X
#define X(word) check_entry("optimizer.name", &optimizer_##word.group, #word, help);
    OPTIMIZER_LIST(X)
#undef X
#define X(word) check_entry("schedule.name", &schedule_##word.group, #word, help);
    SCHEDULE_LIST(X)
#undef X
#define X(word) check_entry("strategy.name", &strategy_##word.group, #word, help);
    STRATEGY_LIST(X)
#undef X
    free(help);
}

/* A word shows the keys that have it in their name, help, words, or other names. */
static void test_help_about_a_word(void **state)
{
    static const struct {
        const char *word, *has, *has_not; /* keys; NULL: none is shown, and */
        const char *error;                /* this is said */
    } cases[] = {
        {"train.epochs", "train.epochs", "train.seed", NULL},
        {"EPOCHS", "train.epochs", "train.seed", NULL},
        {"random numbers follow", "train.seed", "train.epochs", NULL},
        {"architecture", "model.arch", "train.seed", NULL},
        {"batch_size", "train.global_batch", "train.seed", NULL},
        {"kaiming_uniform", "model.init.name", "train.seed", NULL},
        {"lion", "optimizer.name", "train.seed", NULL},
        {"resnet50", "model.arch", "data.path", NULL},
        {"train.epcohs", NULL, NULL, "has \"train.epcohs\" in its name"},
        {"train.epcohs", NULL, NULL, "; the closest is train.epochs; \"dpdriver keys\" lists all"},
        {"optimiser", NULL, NULL, "the closest is optimizer;"},
        {"zzyzzyzzy", NULL, NULL, "its values; \"dpdriver keys\""},
        {"a\nb", NULL, NULL, "no key of a job file has \"a?b\""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        char *help = help_text(cases[i].word, cases[i].error ? ERR_ARG : 0, &err), line[64];

        if (cases[i].error) {
            assert_string_equal(help, "");
            if (!strstr(err.msg, cases[i].error))
                fail_msg("%s: %s", cases[i].word, err.msg);
        } else {
            assert_int_not_equal(help[0], '\n');
            snprintf(line, sizeof line, "%s: ", cases[i].has);
            if (strncmp(help, line, strlen(line)) != 0) {
                snprintf(line, sizeof line, "\n%s: ", cases[i].has);
                if (!strstr(help, line))
                    fail_msg("%s: %s is not in: %s", cases[i].word, cases[i].has, help);
            }
            snprintf(line, sizeof line, "%s: ", cases[i].has_not);
            assert_null(strstr(help, line));
        }
        free(help);
    }
    for (size_t i = 0; i < list.n; i++)
        free(help_text(list.ref[i].o->key, 0, &(struct err){0}));
}

/* The settings by which data that are drawn give way to the user's own make a job, also in place of
 * the demo's. */
static void test_own_data_are_a_job(void **state)
{
    int n_own = 0;

    (void)state;
    for (int i = 0; data_formats[i]; i++) {
        const struct data_format *format = (const struct data_format *)data_formats[i];
        const char *sets[8];
        struct job *job = NULL;
        struct err err;
        size_t n = 0;
        int has_folder = 0;

        for (; format->own && format->own[n]; n++) {
            sets[n] = format->own[n];
            has_folder |= strstr(sets[n], "=FOLDER") != NULL;
        }
        if (n == 0)
            continue;
        n_own++;
        assert_true(has_folder && format->own_folder && *format->own_folder);
        if (job_load(NULL, sets, n, &job, &err) < 0)
            fail_msg("%s: %s", format->group.name, err.msg);
        assert_ptr_not_equal(job->data.kind, format);
        job_free(job);
    }
    assert_true(n_own > 0);
}

static void test_numbers_keep_every_bit(void **state)
{
    static const char *const numbers[] = {"0.1",    "0.30000000000000004", "1e-300",
                                          "4e-320", "123456.789e-3",       "999999.9999999999"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct row row = {"optimizer.lr", numbers[i], {NULL}, NULL};
        struct job *job = load(&row, 1), *again;
        struct buf yaml = {0};
        struct err err;

        assert_true(optimizer_lr(&job->optimizer) == strtod(numbers[i], NULL));
        job_write(job, &yaml);
        assert_int_equal(job_parse((const char *)yaml.data, yaml.len, "f", NULL, &again, &err), 0);
        assert_true(optimizer_lr(&again->optimizer) == optimizer_lr(&job->optimizer));
        job_free(again);
        job_free(job);
        buf_fini(&yaml);
    }
}

static int make_list(void **state)
{
    (void)state;
    table_init(&list, &job_table);
    return 0;
}

static int free_list(void **state)
{
    (void)state;
    table_fini(&list);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_cover_the_table),      cmocka_unit_test(test_rows_are_sound),
        cmocka_unit_test(test_entries_are_whole),         cmocka_unit_test(test_set_and_written),
        cmocka_unit_test(test_numbers_keep_every_bit),    cmocka_unit_test(test_help_has_every_key),
        cmocka_unit_test(test_what_may_change_on_resume), cmocka_unit_test(test_help_about_a_word),
        cmocka_unit_test(test_own_data_are_a_job),
    };

    return cmocka_run_group_tests(tests, make_list, free_list);
}
