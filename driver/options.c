/* dpdriver's table of options, how a command line is read, and its help, which the table makes.
 * options_check.c has the checks across several options. */
#include "driver/options_impl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "job/job.h"

#define AT(field) offsetof(struct options, field)

static const char *const weights[] = {"trained", "average", NULL};

static const struct arg job_args[] = {
    {{"nranks", OPT_INT, AT(n_ranks), NULL, 1, CLUSTER_MAX_RANKS,
      .help = "The number of processes that train together. This process counts; it is rank 0. The "
              "default is what a launcher says in WORLD_SIZE, TF_CONFIG, OMPI_COMM_WORLD_SIZE, "
              "PMI_SIZE, SLURM_NTASKS, JSM_NAMESPACE_SIZE or FLUX_JOB_SIZE, times --ranks, or else "
              "--ranks, or with "
              "--resume the number that the run was started with, or with --job alone one."},
     "N",
     .of = OF(REPLAY) | OF_JOBS | OF_MAIN,
     .remedy = "this process is one of them, so 1 trains alone, and a job can have no more"},
    {{"job", OPT_STRING, AT(job),
      .help = "The file that says what to train, in YAML; --help-job lists its keys. A DeepSpeed "
              "configuration whose name ends in .json is read, too, with model and data given by "
              "--set. "
              "Without --job the built-in demo runs: LeNet on drawn digits."},
     "FILE",
     .of = OF(VERIFY) | OF_JOBS | OF(EXPORT) | OF(MERGE) | OF(SAMPLE) | OF_MAIN},
    {{"set", OPT_STRING, AT(sets), .flags = OPT_MANY,
      .help = "Override one key of the job: train.epochs=1. The option may be repeated."},
     "KEY=VALUE",
     .of = OF_AGAIN | OF(COMPARE) | OF_JOBS | OF(EXPORT) | OF(MERGE) | OF(SAMPLE) | OF_MAIN},
    {{"run-dir", OPT_STRING, AT(run_dir),
      .help = "The run: the directory for job.yaml, events.jsonl and checkpoints. The default is "
              "runs/NAME, with "
              "the job's name, or NAME-2 and so on if that holds a run."},
     "DIR",
     .of = OF_AGAIN | OF_JOBS | OF(EXPORT) | OF(MERGE) | OF(SAMPLE) | OF(STATUS) | OF(DRAIN) |
           OF(TRACE) | OF(STANDBY) | OF_LIVE | OF_MAIN},
    {{"resume", OPT_BOOL, AT(resume),
      .help =
          "Go on with the run in the run directory, from the newest state among its followers and "
          "checkpoints."},
     NULL,
     .of = OF(TRAIN) | OF_MAIN},
    {{"local", OPT_BOOL, AT(local),
      .help = "Start the other N-1 processes on this machine. They end with this one."},
     NULL,
     .of = OF(REPLAY) | OF_JOBS | OF_MAIN},
    {{"hosts", OPT_STRING, AT(hosts_file),
      .help =
          "Start the followers of other machines by ssh, and end them with the job. FILE has a "
          "line "
          "\"HOST slots=N\" for each machine, which gets N ranks. This needs --secret-file, which "
          "reaches them through ssh, or --insecure."},
     "FILE",
     .of = OF(REPLAY) | OF_JOBS,
     .is_rare = 1},
    {{"standby", OPT_BOOL, AT(standby),
      .help =
          "Take no part in the job of the driver at --root, but lead it once that driver is lost. "
          "With the same --run-dir, shared or on the same machine, the job goes on in it, else in "
          "a "
          "new one."},
     NULL,
     .of = OF(STANDBY),
     .is_rare = 1},
    {{"check", OPT_BOOL, AT(check),
      .help = "Validate job, data and device, print a summary, and exit with 0 or 2."},
     NULL,
     .of = OF(TRAIN) | OF_MAIN},
    {{"find-lr", OPT_BOOL, AT(find_lr),
      .help =
          "Find a learning rate: train 200 steps while the rate grows from 1e-6 to 10, print the "
          "loss by the rate and the rate at which it falls most, write both to find_lr.csv and "
          "find_lr.svg in the run directory, by default runs/NAME-find-lr, and exit. Nothing is "
          "saved. --set schedule.first_lr, schedule.last_lr and train.max_steps change the test."},
     NULL,
     .of = OF(FIND_LR),
     .is_rare = 1},
    {{"evaluate", OPT_BOOL, AT(evaluate),
      .help =
          "Validate the weights of --checkpoint on the whole validation set, over all ranks, print "
          "the measures, precision and recall by class, and the confusion matrix (or R2 and mean "
          "absolute error; JSON in one line with --log-format json), and exit. Nothing is trained, "
          "and no file is "
          "written. The job is that of the checkpoint's run unless --job names one, and --set may "
          "name other data. --nranks is 1 by default."},
     NULL,
     .of = OF(EVALUATE) | OF(PREDICT),
     .is_rare = 1},
    {{"predict", OPT_STRING, AT(predict),
      .help =
          "Do as --evaluate does, and write the logits of every sample of the validation set, in "
          "its order, as one float32 array. Logits are the network's outputs before softmax or "
          "sigmoid. OUT.csv beside it names file, class and probability of each sample, or its "
          "numbers. The samples need no labels: data.validation may also be a folder of pictures, "
          "one picture, or x.npy alone."},
     "OUT.npy",
     .of = OF(PREDICT),
     .is_rare = 1},
    {{"export", OPT_STRING, AT(export),
      .help =
          "Write the network of --checkpoint to FILE.onnx, for programs that serve it, and exit. "
          "It "
          "takes any number of samples, after data.normalize, whose numbers the file has as "
          "metadata. FILE.safetensors is the state dict alone. The job is that of the checkpoint's "
          "run unless --job names one. A file that exists is not replaced."},
     "FILE",
     .of = OF(EXPORT),
     .is_rare = 1},
    {{"merge", OPT_STRING, AT(merge),
      .help = "Write the weights of --checkpoint to FILE.safetensors, with the adapters of "
              "model.lora added to the weights of their layers, and exit: the state dict of the "
              "network without adapters. A file that exists is not replaced."},
     "FILE",
     .of = OF(MERGE),
     .is_rare = 1},
    {{"sample", OPT_STRING, AT(sample),
      .help = "Go on with TEXT by the language model of --checkpoint, and exit: the text and what "
              "follows are written to standard output as they come, and how fast to standard "
              "error. It ends after --tokens, at the token that ends a document, or where the "
              "network's context is full."},
     "TEXT",
     .of = OF(SAMPLE),
     .is_rare = 1},
    {{"tokens", OPT_INT, AT(n_tokens), NULL, 1, 1 << 24,
      .help = "The most tokens that --sample adds to the text. The default is 200."},
     "N",
     .of = OF(SAMPLE)},
    {{"temperature", OPT_REAL, AT(temperature), NULL, 0, 1000,
      .help = "Divides the logits before --sample draws a token: below 1 likely tokens become more "
              "likely. 0 takes the most likely one. The default is 1."},
     "T",
     .of = OF(SAMPLE)},
    {{"top-k", OPT_INT, AT(top_k), NULL, 0, 1 << 24,
      .help = "Let --sample draw from the K most likely tokens alone. The default, 0, is all."},
     "K",
     .of = OF(SAMPLE)},
    {{"top-p", OPT_REAL, AT(top_p), NULL, 0, 1, .flags = OPT_ABOVE,
      .help = "Let --sample draw from the fewest tokens whose probabilities add up to P. The "
              "default, 1, is all."},
     "P",
     .of = OF(SAMPLE)},
    {{"seed", OPT_INT, AT(sample_seed), NULL, 0, 9007199254740992, /* 2^53: a double has it */
      .help = "Of what --sample draws: the same seed gives the same text. The default is 1. With "
              "--verify RUN: of the steps that are drawn, by default another one each time."},
     "S",
     .of = OF(SAMPLE) | OF(VERIFY)},
    {{"tokenizer", OPT_STRING, AT(tokenizer),
      .help = "The tokenizer for --sample: a tokenizer.json, or the folder of one, or bytes. The "
              "default is the job's data.tokenizer, or the file beside the checkpoint."},
     "FILE",
     .of = OF(SAMPLE)},
    {{"checkpoint", OPT_STRING, AT(checkpoint),
      .help =
          "The checkpoint for --evaluate, --predict, --export, --merge or --sample: latest (the "
          "default) or "
          "best of "
          "the run in "
          "--run-dir, or a folder. It may be the folder of a checkpoint, or of a run, whose newest "
          "one is taken."},
     "WHICH",
     .of = OF_WEIGHTS},
    {{"weights", OPT_CHOICE, AT(averaged), .choices = weights,
      .help = "The weights for --evaluate, --predict, --export, --merge or --sample: trained (the "
              "default), or "
              "average, which are "
              "those of train.average."},
     "WHICH",
     .of = OF_WEIGHTS},
    {{"inject", OPT_STRING, AT(injects), .flags = OPT_MANY,
      .help =
          "For tests: disturb the job by faults on purpose, such as kill:rank1@step50. The list of "
          "faults is below. Commas separate several of them, and the option may be repeated."},
     "SPEC",
     .of = OF_JOBS | OF(VERIFY),
     .is_rare = 1},
    {{"status", OPT_BOOL, AT(status),
      .help =
          "Print the live table of ranks of the driver that runs on this machine in --run-dir, "
          "which is a folder, or the NAME of runs/NAME. With --log-format json the table is JSON. "
          "Exit with 0, or with 3 if no driver is running."},
     NULL,
     .of = OF(STATUS),
     .is_rare = 1},
    {{"watch", OPT_BOOL, AT(watch),
      .help =
          "Show the status anew each second, until the run ends. On a terminal it stays in its "
          "place; elsewhere one follows the other, with --log-format json a line each. Exit with 0 "
          "once the run is done, 1 if it failed, 4 if it was stopped, or 3 if no driver is "
          "running."},
     NULL,
     .of = OF(STATUS)},
    {{"drain", OPT_STRING, AT(drain),
      .help =
          "Let a rank of the driver that runs on this machine in --run-dir leave for good. WHO is "
          "its number, spare1 for the first spare, or a host for all ranks on it; host:NAME is for "
          "a host that is named like a rank or a spare. The rank finishes the step, the others go "
          "on, and its dpfollower ends with 4. Print who leaves and when, as JSON with "
          "--log-format "
          "json, and exit with 0, or with 3 if that cannot be done or no driver is running."},
     "WHO",
     .of = OF(DRAIN),
     .is_rare = 1},
    {{"trace", OPT_REAL, AT(trace_s), NULL, 0, 60, .unit = "seconds", .flags = OPT_ABOVE,
      .help =
          "Have all ranks of the driver that runs on this machine in --run-dir record a timeline "
          "for so many seconds, up to 60. Then RUN/trace.json is there, or trace-2.json and so "
          "on, for Perfetto and Chrome. Exit with 0, or with 3 if nothing is trained now or no "
          "driver is running."},
     "SECONDS",
     .of = OF(TRACE),
     .is_rare = 1},
    {{"checkpoint-now", OPT_BOOL, AT(checkpoint_now),
      .help = "Have the driver that runs on this machine in --run-dir write a checkpoint after the "
              "step under way. Training goes on meanwhile. Exit with 0, or with 3 if no step is "
              "trained now or no driver is running."},
     NULL,
     .of = OF(CHECKPOINT_NOW),
     .is_rare = 1},
    {{"pause", OPT_BOOL, AT(pause),
      .help = "Have all ranks of the driver that runs on this machine in --run-dir wait after the "
              "step under way, until --go. They keep their state and their memory. Exit with 0, or "
              "with 3 if nothing is trained or no driver is running."},
     NULL,
     .of = OF(PAUSE),
     .is_rare = 1},
    {{"go", OPT_BOOL, AT(go),
      .help =
          "Have the job go on that --pause holds. Exit with 0, or with 3 if it is not paused or "
          "no driver is running."},
     NULL,
     .of = OF(GO),
     .is_rare = 1},
    {{"set-live", OPT_STRING, AT(set_live),
      .help = "Change a key of the job of the driver that runs on this machine in --run-dir, from "
              "the next step on: optimizer.lr alone so far, by which the schedule's rates are "
              "multiplied. A resumed run keeps it. Exit with 0, or with 3 if that cannot be done "
              "or no driver is running."},
     "KEY=VALUE",
     .of = OF(SET_LIVE),
     .is_rare = 1},
    {{"report", OPT_STRING, AT(reports), .flags = OPT_MANY,
      .help =
          "Write the run as one HTML file that needs nothing but itself: curves, numbers, events, "
          "job. RUN is a run directory, or the NAME of runs/NAME; it may train meanwhile. The file "
          "is RUN/report.html unless --out names another; a file that exists is replaced. Several "
          "runs, up to 8, are compared, in report.html of the present folder. Print the file's "
          "path."},
     "RUN",
     .of = OF(REPORT),
     .is_rare = 1},
    {{"compare", OPT_STRING, AT(compared), .flags = OPT_MANY,
      .help =
          "Tell the first step at which two runs part, by the hashes of states and samples and by "
          "the losses that both have in hashes.csv and metrics.csv. Then compute these steps of "
          "both again, as --replay does, and tell the first operator whose output differs, with "
          "the largest difference. Exit with 0 if the runs are the same as far as both go, or with "
          "1 if they part."},
     "RUN1 RUN2",
     .of = OF(COMPARE),
     .is_rare = 1},
    {{"replay", OPT_STRING, AT(replay),
      .help =
          "Compute step --step of a run again, from its newest checkpoint before that step, on "
          "this "
          "machine or with followers as usual; with as many ranks as the run was started with "
          "unless --nranks says otherwise. Tell whether hash and loss are those of the run, up to "
          "the next row of its hashes.csv, and list the samples of the step; as JSON with "
          "--log-format json. Nothing is written to the run; --run-dir keeps what is computed. "
          "Exit with 0 if it is the same, 1 if it differs, or 2 if it cannot be computed."},
     "RUN",
     .of = OF(REPLAY),
     .is_rare = 1},
    {{"verify", OPT_STRING, AT(verify),
      .help =
          "Train the first --step steps (10) of the job on each of these numbers of ranks on this "
          "machine, and compare losses and hashes. Where they part, tell the first operator whose "
          "output differs, or the first parameter whose summed gradient does. Exit with 0 if they "
          "are the same, at least to rounding, or with 1 if they differ. With a run in the place "
          "of numbers: check the files of the run against its record.json, and compute --step of "
          "its steps (3), drawn at random, again. Exit with 0 if all is as recorded, or with 1 if "
          "not."},
     "1,2,4|RUN",
     .of = OF(VERIFY),
     .is_rare = 1},
    {{"step", OPT_INT, AT(step), NULL, 1, 1e12,
      .help = "With --replay: the step that is computed again; the first one of a run is 1. With "
              "--verify: how many steps are trained, or are drawn from a run."},
     "N",
     .of = OF_AGAIN},
    {{"dump", OPT_STRING, AT(dump),
      .help = "Write the summed gradients of the step that --replay computes again to this new "
              "file, by parameter, as float32."},
     "GRADIENTS.safetensors",
     .of = OF(REPLAY),
     .is_rare = 1},
    {{"key", OPT_STRING, AT(key),
      .help = "The public key (Ed25519, PEM) that must have signed the record.json of the run that "
              "--verify checks."},
     "FILE",
     .of = OF(VERIFY)},
    {{"sign", OPT_STRING, AT(sign),
      .help =
          "When the run ends, sign its record.json by the private key in FILE (Ed25519, PEM, "
          "without a passphrase): record.sig is the signature, which --verify RUN --key checks."},
     "FILE",
     .of = OF(TRAIN) | OF(STANDBY),
     .is_rare = 1},
    {{"init", OPT_STRING, AT(inits), .flags = OPT_MANY,
      .help = "Write a job file for the data in FOLDER, or in this file, and exit. The format is "
              "recognised by the files, and each key has a comment. One of several folders may be "
              "a network of Hugging Face. On a terminal up to five questions are asked if the data "
              "are not recognised. The file is job.yaml unless --out names another; one that "
              "exists is not replaced."},
     "FOLDER",
     .of = OF(INIT),
     .is_rare = 1},
    {{"out", OPT_STRING, AT(out),
      .help = "The file that the report, or the job of --init, is written to."},
     "FILE",
     .of = OF(REPORT) | OF(INIT)},
    {{"help-job", OPT_BOOL, AT(help_job), .help = "List the keys of a job file, and exit."},
     NULL,
     .of = OF(KEYS),
     .is_rare = 1},
    {{"like", OPT_STRING, AT(like),
      .help = "With --help-job: only the keys that have WORD in their name, help or values. Upper "
              "and lower case are alike."},
     "WORD",
     .of = OF(KEYS),
     .is_rare = 1},
};

static const struct arg network_args[] = {
    {{"host", OPT_STRING, AT(host),
      .help = "The address to listen on. The default is 127.0.0.1, which only this machine "
              "reaches, and "
              "all addresses with --secret-file, or with --insecure if a launcher's ranks are on "
              "several "
              "machines."},
     "ADDR",
     .of = OF(REPLAY) | OF_JOBS | OF(STANDBY),
     .is_rare = 1},
    {{"port", OPT_INT, AT(port), NULL, 0, 65535,
      .help =
          "The port to listen on. The default is MASTER_PORT, TF_CONFIG's, or 7000, and 7001 for a "
          "standby; 0 takes a free port. Under torchrun, whose agent has MASTER_PORT itself, the "
          "default is the first free one of the 16 ports from MASTER_PORT + 1 on."},
     "PORT",
     .of = OF(REPLAY) | OF_JOBS | OF(STANDBY)},
    {{"relays", OPT_INT, AT(n_relays), NULL, 1, CLUSTER_MAX_RANKS,
      .help = "The followers of other machines come by at most N connections of relays "
              "(dpfollower --ranks M --relay has one for up to 1,024 ranks), so that this process "
              "needs an open file for each of them and not for each follower. --hosts starts them "
              "so."},
     "N",
     .of = OF(REPLAY) | OF_JOBS | OF(STANDBY),
     .is_rare = 1},
    {{"port-file", OPT_STRING, AT(port_file),
      .help = "Write the port to this file once the driver listens."},
     "FILE",
     .of = OF(REPLAY) | OF_JOBS | OF(STANDBY),
     .is_rare = 1},
    {{
         "http",
         OPT_STRING,
         AT(http),
         .help =
             "Show the run to browsers, Prometheus and scripts at http://ADDR:PORT/: /metrics, "
             "/health, /api/status, /api/job and /api/events. ADDR is 127.0.0.1 by default; with "
             "another one the link that is printed has a token made of --secret-file. Port 0 "
             "takes a free one.",
     },
     "[ADDR:]PORT",
     .of = OF(TRAIN) | OF(STANDBY),
     .is_rare = 1},
    {{"root", OPT_STRING, AT(root),
      .help = "The address at which the driver listens, for --standby."},
     "HOST:PORT",
     .of = OF(STANDBY)},
    {{"wait", OPT_INT, AT(wait_s), NULL, 0, 1000000,
      .help =
          "With --standby: exit with 3 if there is no driver within so many seconds at the start. "
          "By default the standby waits for ever."},
     "SECONDS",
     .of = OF(STANDBY)},
    {{"make-secret", OPT_STRING, AT(make_secret),
      .help = "Make a new file for --secret-file, and exit."},
     "FILE",
     .of = OF(SECRET),
     .is_rare = 1},
};

static void options_fill_groups(struct arg_group g[OPTIONS_GROUPS], struct options *o)
{
    g[0] = (struct arg_group){"The job", job_args, ARRAY_LEN(job_args), o};
    g[1] = (struct arg_group){"Its address", network_args, ARRAY_LEN(network_args), o};
    g[2] = (struct arg_group){"This process", daemon_args, n_daemon_args, o ? &o->common : NULL};
}

void options_groups(struct arg_group g[OPTIONS_GROUPS]) { options_fill_groups(g, NULL); }

void options_tell(struct options *o, const char *format, ...)
{
    va_list args;

    ASSERT(o->n_told < OPTIONS_TOLD);
    va_start(args, format);
    vsnprintf(o->told[o->n_told++], OPTIONS_TOLD_TEXT, format, args);
    va_end(args);
}

void options_fini(struct options *o)
{
    args_fini(&o->args);
    free(o->hosts.line);
    places_fini(&o->places);
}

int options_settle(struct options *o, struct err *err)
{
    int n, rc = places_find(&o->common, &o->devices, &o->places, err);

    o->n_threads_asked = o->common.n_threads;
    if (rc < 0)
        return rc;
    n = o->places.n ? o->places.n : 1;
    if (!o->n_ranks && o->hosts.n)
        o->n_ranks = n + hosts_n_ranks(&o->hosts);
    if (o->hosts.n && o->n_ranks < n + hosts_n_ranks(&o->hosts))
        return err_set(err, ERR_ARG,
                       "--nranks is %lld, but %s has %d ranks, and this machine %d; leave --nranks "
                       "out, or give %d",
                       (long long)o->n_ranks, o->hosts_file, hosts_n_ranks(&o->hosts), n,
                       n + hosts_n_ranks(&o->hosts));
    if (o->places.n == 0)
        return 0;
    if (!o->n_ranks)
        o->n_ranks = (int64_t)n * (o->n_tasks ? o->n_tasks : 1);
    if (o->n_ranks > CLUSTER_MAX_RANKS)
        return err_set(err, ERR_ARG, "%d tasks of %d ranks: more than %d ranks", o->n_tasks, n,
                       CLUSTER_MAX_RANKS);
    if (n > o->n_ranks)
        return err_set(err, ERR_ARG,
                       "--ranks %d on this machine, but --nranks %lld in all: give at least "
                       "--nranks %d, or fewer --ranks",
                       n, (long long)o->n_ranks, n);
    if (!strncmp(o->places.place[0].device, "cuda:", 5))
        snprintf(o->device, sizeof o->device, "%s", o->places.place[0].device);
    o->common.n_threads = o->places.place[0].n_threads;
    return 0;
}

/* Set what the verb's own option would set. */
static void follow_verb(struct options *o)
{
    const enum verb v = o->wish.verb;

    o->find_lr |= v == VERB_FIND_LR;
    o->evaluate |= v == VERB_EVALUATE;
    o->status |= v == VERB_STATUS;
    o->checkpoint_now |= v == VERB_CHECKPOINT_NOW;
    o->pause |= v == VERB_PAUSE;
    o->go |= v == VERB_GO;
    o->standby |= v == VERB_STANDBY;
    o->help_job |= v == VERB_KEYS;
}

/* The command line could not be read.  If a verb stands behind options, that is why. */
static int verb_comes_first(const struct options *o, int argc, char **argv, struct err *err)
{
    char said[sizeof err->msg];

    for (int i = 1; i < argc && !o->wish.is_word; i++) {
        snprintf(said, sizeof said, "\"%s\" is no option", argv[i]);
        if (verb_is(argv[i]) && !strncmp(err->msg, said, strlen(said)))
            return err_set(err, ERR_ARG, "\"%s\" must be the first word: dpdriver %s, then options",
                           argv[i], argv[i]);
    }
    return err->code;
}

static int options_has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], word))
            return 1;
    return 0;
}

int options_parse(int argc, char **argv, struct options *out, struct err *err)
{
    struct arg_group groups[OPTIONS_GROUPS];
    int rc;

    *out = (struct options){.port = -1,
                            .wait_s = -1,
                            .n_tokens = 200,
                            .temperature = 1,
                            .top_p = 1,
                            .sample_seed = 1,
                            .common.local_rank = -1,
                            .program = argv[0]};
    options_fill_groups(groups, out);
    rc = verb_find(&argc, &argv, &out->wish, err);
    if (rc < 0)
        return rc;
    if (out->wish.is_word)
        out->args.operands = verb_operands(out->wish.verb);
    else if (options_has_word(argc, argv, "--compare")) /* its second run stands alone */
        out->args.operands = verb_operands(VERB_COMPARE);
    rc = args_parse(groups, OPTIONS_GROUPS, argc, argv, &out->args, err);
    if (rc < 0)
        return verb_comes_first(out, argc, argv, err);
    rc = options_check_questions(out, err);
    if (rc < 0)
        return rc;
    verb_of_options(&out->args, &out->wish);
    if (out->common.help || out->common.version)
        return 0;
    rc = verb_check(&out->wish, &out->args, err);
    follow_verb(out);
    if (rc < 0 || out->wish.verb == VERB_HELP || out->help_job || out->make_secret ||
        out->reports.n || out->inits.n || out->compared.n || out->verify)
        return rc;
    if (options_ask(out) || out->replay)
        return options_check_ask(out, err);
    return options_check(out, err);
}

void options_give_ranks(struct options *o, int64_t n_ranks)
{
    static const char *const own[] = {"standby", "root", "wait", "nranks"};
    struct args *a = &o->args;
    int n = 0;

    for (int i = 0; i < a->n_given; i++) {
        int is_own = 0;

        for (size_t k = 0; k < ARRAY_LEN(own); k++)
            is_own |= !strcmp(a->given[i].arg->row.key, own[k]);
        if (!is_own)
            a->given[n++] = a->given[i];
    }
    snprintf(o->n_ranks_text, sizeof o->n_ranks_text, "%lld", (long long)n_ranks);
    ASSERT(!strcmp(job_args[0].row.key, own[3]));
    a->given[n++] = (struct arg_given){&job_args[0], o->n_ranks_text};
    a->n_given = n;
}

void options_help(const struct options *o, FILE *f)
{
    struct arg_group groups[OPTIONS_GROUPS];
    const struct wish *w = &o->wish;

    options_groups(groups);
    if (w->verb == VERB_HELP && w->subject != VERB_HELP)
        verb_help(w->subject, groups, OPTIONS_GROUPS, f);
    else if (w->verb == VERB_HELP)
        verbs_summary(groups, OPTIONS_GROUPS, f);
    else if (w->verb == VERB_TRAIN && !w->is_word)
        verbs_help(groups, OPTIONS_GROUPS, f);
    else
        verb_summary(w->verb, groups, OPTIONS_GROUPS, f);
}
