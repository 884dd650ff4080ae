/* The table of verbs, from which the choice of a verb, its checks and its help follow.
 *
 * The options that mean a verb are older than the words.  With them, verbs that only ask a driver
 * ignore options of no use to them; with the words they refuse them. */
#include "driver/verbs.h"

#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "daemon/daemon.h"
#include "inject/inject.h"

enum { MOST_OPERANDS = 2 };

struct verb_row {
    const char *name, *option;               /* option: NULL: none means the verb */
    const char *operands[MOST_OPERANDS + 1]; /* see verb_operands */
    const char *usage;                       /* of the operands */
    const char *needs;                       /* the operand that must be given, or NULL */
    const char *line;                        /* what it does, for the list of verbs */
    const char *text;                        /* more of it, with examples */
    const char *why;                         /* the remedy, for an option that it does not take */
    unsigned daemon;                         /* the uses of daemon/daemon.h that it has */
};

static const struct verb_row verbs[] = {
    [VERB_TRAIN] =
        {.name = "train",
         .operands = {"job"},
         .usage = "[FILE]",
         .line = "train a network; the word may be left out",
         .text = "Trains a neural network together with N-1 followers, and is their rank 0.  FILE\n"
                 "is the job.\n"
                 "\n"
                 "  dpdriver --nranks 2 --local              the demo, on this machine\n"
                 "  dpdriver train mnist.yaml --ranks gpus   all GPUs of this machine\n"
                 "  dpdriver train mnist.yaml --nranks 3     waits for two followers, each:\n"
                 "  dpfollower --root 127.0.0.1:7000\n",
         .daemon = DAEMON_AS_RANK | DAEMON_AS_RANKS},
    [VERB_FIND_LR] =
        {.name = "find-lr",
         .option = "find-lr",
         .operands = {"job"},
         .usage = "[FILE]",
         .line = "find a learning rate by a short test",
         .text =
             "Trains the job for some hundred steps while the learning rate grows, and suggests\n"
             "the rate at which the loss falls most.  FILE is the job.  Nothing is saved but\n"
             "find_lr.csv, find_lr.svg and the record of the test, in runs/NAME-find-lr.\n"
             "\n"
             "  dpdriver find-lr mnist.yaml --nranks 4 --local\n"
             "  dpdriver find-lr mnist.yaml --set schedule.last_lr=1 --set train.max_steps=400\n",
         .why = "leave one of them out",
         .daemon = DAEMON_AS_RANK | DAEMON_AS_RANKS},
    [VERB_EVALUATE] =
        {.name = "evaluate",
         .option = "evaluate",
         .operands = {"checkpoint"},
         .usage = "[CHECKPOINT]",
         .line = "measure a checkpoint: loss, accuracy ...",
         .text = "Validates the weights of a checkpoint on the whole validation set.  CHECKPOINT\n"
                 "is the folder of a run or of a checkpoint.  Nothing is trained, and no file is\n"
                 "written.\n"
                 "\n"
                 "  dpdriver evaluate runs/demo                 its newest checkpoint\n"
                 "  dpdriver evaluate best --run-dir runs/demo  its best one\n",
         .why = "leave one of them out",
         .daemon = DAEMON_AS_RANK | DAEMON_AS_RANKS},
    [VERB_PREDICT] =
        {.name = "predict",
         .option = "predict",
         .operands = {"predict", "checkpoint"},
         .usage = "OUT.npy [CHECKPOINT]",
         .needs = "predict",
         .line = "write what it makes of each sample",
         .text = "Does as evaluate does, and writes the logits of every sample to OUT.npy, and a\n"
                 "table beside it.  The samples need no labels.\n"
                 "\n"
                 "  dpdriver predict out.npy runs/demo --set data.validation=pictures\n",
         .why = "leave one of them out",
         .daemon = DAEMON_AS_RANK | DAEMON_AS_RANKS},
    [VERB_EXPORT] =
        {.name = "export",
         .option = "export",
         .operands = {"export", "checkpoint"},
         .usage = "FILE.onnx [CHECKPOINT]",
         .needs = "export",
         .line = "write the trained network for serving",
         .text = "Writes the network with the weights of a checkpoint as ONNX, which onnxruntime\n"
                 "and others run.  FILE.safetensors is the state dict alone.  Nothing is trained.\n"
                 "\n"
                 "  dpdriver export net.onnx runs/demo            its newest checkpoint\n"
                 "  dpdriver export net.onnx best --run-dir runs/demo\n",
         .why = "leave one of them out"},
    [VERB_MERGE] =
        {.name = "merge",
         .option = "merge",
         .operands = {"merge", "checkpoint"},
         .usage = "FILE [CHECKPOINT]",
         .needs = "merge",
         .line = "add adapters (LoRA) to the weights",
         .text = "Writes the state dict of a network that was trained with model.lora, with the\n"
                 "adapters added to the weights of their layers.  Nothing is trained.\n"
                 "\n"
                 "  dpdriver merge model.safetensors runs/demo\n",
         .why = "leave one of them out"},
    [VERB_SAMPLE] =
        {.name = "sample",
         .option = "sample",
         .operands = {"checkpoint", "sample"},
         .usage = "CHECKPOINT TEXT",
         .needs = "sample",
         .line = "go on with a text, token by token",
         .text =
             "Writes TEXT, and what the language model of a checkpoint makes of it, to standard\n"
             "output as it comes.  CHECKPOINT is the folder of a run or of a checkpoint.\n"
             "\n"
             "  dpdriver sample runs/poet \"To be\" --tokens 200\n",
         .why = "leave one of them out",
         .daemon = DAEMON_AS_RANK},
    [VERB_STATUS] =
        {.name = "status",
         .option = "status",
         .operands = {"run-dir"},
         .usage = "[RUN]",
         .line = "show the ranks of a running driver",
         .text = "Prints the table of ranks of the driver that runs on this machine.  RUN is its\n"
                 "run directory, or the NAME of runs/NAME; without it, the one driver here is\n"
                 "meant.\n"
                 "\n"
                 "  dpdriver status demo\n"
                 "  dpdriver status demo --watch   each second anew, until the run ends\n"},
    [VERB_TRACE] =
        {.name = "trace",
         .option = "trace",
         .operands = {"trace", "run-dir"},
         .usage = "SECONDS [RUN]",
         .needs = "trace",
         .line = "record a timeline of a running job",
         .text = "Has all ranks of the driver that runs on this machine record what they do, and\n"
                 "writes trace.json to the run directory.  Perfetto and Chrome show it.\n"
                 "\n"
                 "  dpdriver trace 1 demo\n"},
    [VERB_SET_LIVE] =
        {.name = "set-live",
         .option = "set-live",
         .operands = {"set-live", "run-dir"},
         .usage = "KEY=VALUE [RUN]",
         .needs = "set-live",
         .line = "change the rate of a running job",
         .text = "Changes a key of the job that the driver on this machine trains, on all ranks\n"
                 "from the same step on.  KEY is optimizer.lr so far.  A resumed run keeps it.\n"
                 "\n"
                 "  dpdriver set-live optimizer.lr=0.01 demo\n"},
    [VERB_CHECKPOINT_NOW] =
        {.name = "checkpoint-now",
         .option = "checkpoint-now",
         .operands = {"run-dir"},
         .usage = "[RUN]",
         .line = "have a running job write a checkpoint",
         .text =
             "Has the driver that runs on this machine write a checkpoint after the step under\n"
             "way.  Training goes on.\n"
             "\n"
             "  dpdriver checkpoint-now demo\n"},
    [VERB_PAUSE] =
        {.name = "pause",
         .option = "pause",
         .operands = {"run-dir"},
         .usage = "[RUN]",
         .line = "have a running job wait until go",
         .text = "Has all ranks of the driver that runs on this machine wait after the step under\n"
                 "way.  They keep their state in memory.\n"
                 "\n"
                 "  dpdriver pause demo\n"},
    [VERB_GO] = {.name = "go",
                 .option = "go",
                 .operands = {"run-dir"},
                 .usage = "[RUN]",
                 .line = "have a paused job go on",
                 .text = "Has the job go on that \"dpdriver pause\" holds.\n"
                         "\n"
                         "  dpdriver go demo\n"},
    [VERB_REPORT] =
        {.name = "report",
         .option = "report",
         .operands = {"report"},
         .usage = "RUN...",
         .needs = "report",
         .line = "write runs as one HTML file",
         .text =
             "Writes RUN/report.html: the page of --http, with curves, numbers, events and "
             "job\n"
             "of the run inside, for a mail or a lab book.  RUN is a run directory, or the NAME\n"
             "of runs/NAME.  The run may train meanwhile.\n"
             "\n"
             "  dpdriver report demo\n"
             "  dpdriver report runs/demo --out demo.html\n"
             "  dpdriver report demo demo-2             compares runs, in report.html here\n",
         .why = "leave one of them out"},
    [VERB_COMPARE] =
        {.name = "compare",
         .option = "compare",
         .operands = {"compare"},
         .usage = "RUN1 RUN2",
         .needs = "compare",
         .line = "find the first step where runs part",
         .text = "Compares two runs by their hashes.csv and the losses of their metrics.csv, and\n"
                 "tells the first step at which they are not the same.  Then it computes these\n"
                 "steps of both again, here, and tells the first operator whose output differs.\n"
                 "RUN1 and RUN2 are run directories, or NAMEs of runs/NAME.\n"
                 "\n"
                 "  dpdriver compare demo demo-2\n",
         .why = "leave one of them out",
         .daemon = DAEMON_AS_RANK},
    [VERB_REPLAY] =
        {.name = "replay",
         .option = "replay",
         .operands = {"replay"},
         .usage = "RUN --step N",
         .needs = "replay",
         .line = "compute a step of a run again",
         .text =
             "Computes step N of a run again, from the checkpoint before it, tells whether its\n"
             "hash and loss are those of the run, and lists the samples of the step.  RUN is a\n"
             "run directory, or the NAME of runs/NAME.  Nothing is written to it.\n"
             "\n"
             "  dpdriver replay demo --step 137               on as many ranks as the run, here\n"
             "  dpdriver replay demo --step 137 --nranks 1    on one\n"
             "  dpdriver replay demo --step 137 --dump gradients.safetensors\n",
         .why = "leave one of them out",
         .daemon = DAEMON_AS_RANK | DAEMON_AS_RANKS},
    [VERB_VERIFY] =
        {.name = "verify",
         .option = "verify",
         .operands = {"verify", "job"},
         .usage = "1,2,4|RUN [FILE]",
         .needs = "verify",
         .line = "compare numbers of ranks, or check a run",
         .text =
             "Trains the first steps of a job on each of these numbers of ranks, on this\n"
             "machine, and compares losses and hashes.  FILE is the job.  Or checks a run that\n"
             "has ended: its files and its signature by record.json, and some steps, drawn at\n"
             "random, by computing them again.\n"
             "\n"
             "  dpdriver verify 1,2,4 mnist.yaml --step 20\n"
             "  dpdriver verify runs/demo --step 5 --key PUBLIC.pem\n",
         .why = "leave one of them out",
         .daemon = DAEMON_AS_RANK},
    [VERB_DRAIN] =
        {.name = "drain",
         .option = "drain",
         .operands = {"drain", "run-dir"},
         .usage = "WHO [RUN]",
         .needs = "drain",
         .line = "let a rank or host leave a running job",
         .text = "Lets a rank, a spare or all ranks of a host leave the job of the driver that\n"
                 "runs on this machine.  The others go on.\n"
                 "\n"
                 "  dpdriver drain 2 demo       rank 2\n"
                 "  dpdriver drain node7 demo   all ranks of node7\n"},
    [VERB_STANDBY] =
        {.name = "standby",
         .option = "standby",
         .operands = {"root"},
         .usage = "HOST:PORT",
         .needs = "root",
         .line = "lead once another driver is lost",
         .text = "Takes no part in the job of the driver at HOST:PORT, but leads it once that\n"
                 "driver is lost.\n"
                 "\n"
                 "  dpdriver standby node1:7000 --run-dir runs/mine\n",
         .why = "a standby is one process, and has its job from the driver at --root; leave %s out",
         .daemon = DAEMON_AS_RANK},
    [VERB_SECRET] =
        {.name = "secret",
         .option = "make-secret",
         .operands = {"make-secret"},
         .usage = "FILE",
         .needs = "make-secret",
         .line = "make a file for --secret-file",
         .text = "Makes a new secret, which all processes of a job share by --secret-file.\n"},
    [VERB_INIT] =
        {.name = "init",
         .option = "init",
         .operands = {"init"},
         .usage = "FOLDER...",
         .needs = "init",
         .line = "write a job file for the data in a folder",
         .text =
             "Recognises the data in FOLDER, which may be one file, and writes job.yaml with a\n"
             "comment for each key.  One of several folders may be a network of Hugging Face,\n"
             "which the job then trains.  A file that exists is not replaced.\n"
             "\n"
             "  dpdriver init pictures\n"
             "  dpdriver init Llama-3.2-1B texts --out tune.yaml\n",
         .why = "leave one of them out"},
    [VERB_KEYS] =
        {.name = "keys",
         .option = "help-job",
         .operands = {"like"},
         .usage = "[WORD]",
         .line = "list the keys of a job file",
         .text = "Lists the keys of a job file: defaults, ranges, meanings.  With WORD it lists\n"
                 "those that have WORD in their name, help or values.\n"
                 "\n"
                 "  dpdriver keys optimizer\n"
                 "  dpdriver keys \"batch norm\"\n"},
    [VERB_HELP] = {.name = "help",
                   .usage = "[VERB]",
                   .line = "tell all about a verb and its options",
                   .text =
                       "Tells all about a verb, as \"dpdriver VERB help\" does; \"dpdriver VERB "
                       "--help\"\nis a summary.\n"},
};

_Static_assert(ARRAY_LEN(verbs) == VERB_COUNT, "a row for each verb");
_Static_assert(OF_MAIN < (unsigned)DAEMON_AS_RANK, "bits of their own");

/* Help and refusals both ask args_take about these bits. */
static unsigned verb_uses(enum verb v) { return 1u << v | verbs[v].daemon; }

/* ---- choosing ---- */

/* VERB_COUNT: there is no verb of this name. */
static enum verb verb_named(const char *word)
{
    enum verb v = 0;

    while (v < VERB_COUNT && strcmp(verbs[v].name, word) != 0)
        v++;
    return v;
}

static int no_verb(const char *word, struct err *err)
{
    const char *names[VERB_COUNT + 1] = {NULL}, *near;

    for (enum verb v = 0; v < VERB_COUNT; v++)
        names[v] = verbs[v].name;
    near = args_closest(names, word);
    return err_set(
        err, ERR_ARG,
        "\"%s\" is nothing that dpdriver does%s%s%s \"dpdriver --help\" lists what it does; "
        "a job file stands behind \"train\" or --job",
        word, near ? "; did you mean " : ".", near ? near : "", near ? "?" : "");
}

int verb_is(const char *word) { return verb_named(word) < VERB_COUNT; }

int verb_find(int *argc, char ***argv, struct wish *out, struct err *err)
{
    *out = (struct wish){VERB_TRAIN, 0, VERB_HELP};
    if (*argc < 2 || (*argv)[1][0] == '-')
        return 0;
    out->verb = verb_named((*argv)[1]);
    out->is_word = 1;
    if (out->verb == VERB_COUNT)
        return no_verb((*argv)[1], err);
    ++*argv;
    --*argc;
    if (*argc == 2 && !strcmp((*argv)[1], verbs[VERB_HELP].name)) {
        out->subject = out->verb;
        out->verb = VERB_HELP;
        *argc = 1;
        return 0;
    }
    if (out->verb != VERB_HELP || *argc < 2 || (*argv)[1][0] == '-')
        return 0;
    out->subject = verb_named((*argv)[1]);
    if (out->subject == VERB_COUNT)
        return no_verb((*argv)[1], err);
    ++*argv;
    --*argc;
    return 0;
}

const char *const *verb_operands(enum verb v) { return verbs[v].operands; }

void verb_of_options(const struct args *given, struct wish *w)
{
    for (enum verb v = VERB_COUNT; v-- > 0 && !w->is_word;)
        if (verbs[v].option && args_has(given, verbs[v].option)) {
            w->verb = v;
            return;
        }
}

/* ---- checking ---- */

/* The verbs that take the option: "train, evaluate and predict", or as options. */
static void put_takers(struct buf *b, const struct arg *a, int are_options)
{
    enum verb taker[VERB_COUNT];
    int n = 0;

    for (enum verb v = 0; v < VERB_COUNT; v++)
        if (args_take(a, verb_uses(v)) && (!are_options || verbs[v].option))
            taker[n++] = v;
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%s%s",
                   i == 0       ? ""
                   : i == n - 1 ? " and "
                                : ", ",
                   are_options ? "--" : "",
                   are_options ? verbs[taker[i]].option : verbs[taker[i]].name);
}

static int not_taken(const struct wish *w, const struct arg *a, struct err *err)
{
    const struct verb_row *v = &verbs[w->verb];
    struct buf takers = {0}, why = {0};
    int rc;

    put_takers(&takers, a, !w->is_word);
    if (w->is_word) {
        rc = err_set(err, ERR_ARG,
                     "\"dpdriver %s\" takes no --%s, which belongs to %s; \"dpdriver %s --help\" "
                     "lists its options",
                     v->name, a->row.key, buf_cstr(&takers), v->name);
    } else if (!v->option) {
        rc = err_set(err, ERR_ARG, "--%s belongs to %s", a->row.key, buf_cstr(&takers));
    } else {
        const char *gap = strstr(v->why, "%s");

        if (gap)
            buf_printf(&why, "%.*s--%s%s", (int)(gap - v->why), v->why, a->row.key, gap + 2);
        else
            buf_printf(&why, "%s", v->why);
        rc = err_set(err, ERR_ARG, "--%s and --%s: %s", v->option, a->row.key, buf_cstr(&why));
    }
    buf_fini(&takers);
    buf_fini(&why);
    return rc;
}

int verb_check(const struct wish *w, const struct args *given, struct err *err)
{
    const struct verb_row *v = &verbs[w->verb];

    for (int i = 0; i < given->n_given; i++) {
        const struct arg *a = given->given[i].arg;

        if (!args_take(a, verb_uses(w->verb)) && (w->is_word || !v->option || v->why))
            return not_taken(w, a, err);
    }
    if (w->is_word && v->needs && !args_has(given, v->needs))
        return err_set(err, ERR_ARG,
                       "\"dpdriver %s\" needs a word: dpdriver %s %s; \"dpdriver %s --help\" says "
                       "more",
                       v->name, v->name, v->usage, v->name);
    return 0;
}

/* ---- help ---- */

static void put_verbs(FILE *f)
{
    fprintf(f, "Usage: dpdriver [VERB] [option]...\n"
               "\n"
               "Trains neural networks data-parallel, as rank 0; each dpfollower is one more.\n"
               "\n");
    for (enum verb v = 0; v < VERB_COUNT; v++)
        fprintf(f, "  %-14s %-21s %s\n", verbs[v].name, verbs[v].usage, verbs[v].line);
    fprintf(f, "\n"
               "  dpdriver --nranks 2 --local              the demo, on this machine\n"
               "  dpdriver train mnist.yaml --ranks gpus   all GPUs of this machine\n"
               "  dpdriver train mnist.yaml --nranks 3     waits for two followers, each:\n"
               "  dpfollower --root 127.0.0.1:7000\n"
               "\n");
}

void verbs_summary(const struct arg_group *groups, size_t n_groups, FILE *f)
{
    put_verbs(f);
    args_summary(groups, n_groups, OF_MAIN, f);
    fprintf(f,
            "\n"
            "\"dpdriver VERB --help\" lists the daily options of a verb, \"dpdriver help VERB\"\n"
            "tells all about all of them, and \"dpdriver --help\" all about all verbs.\n");
}

/* The word of the usage that stands for the operand `needs`. */
static const char *needed_word(const struct verb_row *r)
{
    const char *word = r->usage;

    for (int i = 0; r->needs && strcmp(r->operands[i], r->needs) != 0; i++)
        word += strcspn(word, " ") + 1;
    return word;
}

static void verbs_put_head(enum verb v, FILE *f)
{
    const struct verb_row *r = &verbs[v];
    const int is_apart = r->needs && strcmp(r->needs, r->option) != 0;
    const char *word = needed_word(r);

    fprintf(f, "Usage: dpdriver %s%s%s [option]...\n", r->name, *r->usage ? " " : "", r->usage);
    if (r->option)
        fprintf(f, "   or: dpdriver --%s%s%s%s%.*s [option]...\n", r->option, is_apart ? " --" : "",
                is_apart ? r->needs : "", r->needs ? " " : "",
                r->needs ? (int)strcspn(word, " ") : 0, word);
    fprintf(f, "\n%s\n", r->text);
}

void verb_summary(enum verb v, const struct arg_group *groups, size_t n_groups, FILE *f)
{
    int n_rare;

    verbs_put_head(v, f);
    n_rare = args_summary(groups, n_groups, verb_uses(v), f);
    fprintf(f, "\n\"dpdriver help %s\" has %d more option%s, and tells all about each.\n",
            verbs[v].name, n_rare, n_rare == 1 ? "" : "s");
}

/* uses: of some verbs, or 0 for all. */
static int verbs_have(unsigned uses, unsigned of) { return !uses || (uses & of); }

/* The exit statuses that these verbs can have. */
static void put_statuses(unsigned uses, FILE *f)
{
    const int is_job = verbs_have(uses, OF_JOBS | OF(STANDBY));

    fprintf(f, "\nExit status:\n%s",
            is_job ? "  0  All is done: a job has finished.\n"
                     "  1  The job has failed, or the output cannot be written.\n"
                   : "  0  All is done.\n"
                     "  1  The output cannot be written.\n");
    fprintf(f, "  2  The command line, the job file or the data are wrong.\n");
    if (verbs_have(uses, OF(STATUS) | OF(DRAIN) | OF(TRACE) | OF_LIVE | OF(STANDBY)))
        fprintf(f, "  3  A standby, or a request such as status, found no driver, or the driver\n"
                   "     refused.\n");
    if (verbs_have(uses, OF(TRAIN) | OF(STANDBY)))
        fprintf(f, "  4  A signal stopped the job. --resume goes on with it.\n"
                   "\n"
                   "SIGINT and SIGTERM stop the job after the step, with a checkpoint. A second\n"
                   "signal stops it at once. SIGUSR1 logs the table of ranks.\n");
    else if (is_job)
        fprintf(f, "  4  A signal stopped it.\n"
                   "\n"
                   "SIGINT and SIGTERM stop it at once. SIGUSR1 logs the table of ranks.\n");
}

static void put_all(unsigned uses, const struct arg_group *groups, size_t n_groups, FILE *f)
{
    args_help(groups, n_groups, uses, f);
    if (verbs_have(uses, OF_JOBS)) {
        fprintf(f, "\n");
        inject_help(f);
    }
    put_statuses(uses, f);
}

struct verb_page verb_page(enum verb v)
{
    const struct verb_row *r = &verbs[v];

    return (struct verb_page){r->name, r->usage, r->line, r->text, verb_uses(v)};
}

void verbs_statuses(FILE *f) { put_statuses(0, f); }

void verb_help(enum verb v, const struct arg_group *groups, size_t n_groups, FILE *f)
{
    verbs_put_head(v, f);
    put_all(verb_uses(v), groups, n_groups, f);
}

void verbs_help(const struct arg_group *groups, size_t n_groups, FILE *f)
{
    put_verbs(f);
    put_all(0, groups, n_groups, f);
}
