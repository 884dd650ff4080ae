/* The rows of dpdriver's command line, the checks across them, and the commands that are made from
 * argv: to go on with a run, to train longer, to use own data. */
#include "driver/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "job/job.h"

#define AT(field) offsetof(struct options, field)

static const struct arg job_args[] = {
    {"nranks", "N", ARG_INT, AT(n_ranks), 1, CLUSTER_MAX_RANKS,
     .help = "processes that train together; this one, rank 0, counts (default: what a launcher "
             "says in WORLD_SIZE, OMPI_COMM_WORLD_SIZE or SLURM_NTASKS)"},
    {"job", "FILE", ARG_TEXT, AT(job),
     .help = "what to train (YAML; --help-job lists the keys); without it the built-in demo runs: "
             "LeNet on drawn digits"},
    {"set", "KEY=VALUE", ARG_LIST, AT(sets),
     .help = "override one key of the job file, such as train.epochs=1; may be repeated"},
    {"run-dir", "DIR", ARG_TEXT, AT(run_dir),
     .help = "where job.yaml, events.jsonl and checkpoints go (default runs/NAME of the job, or "
             "NAME-2 ... when that holds a run)"},
    {"resume", NULL, ARG_FLAG, AT(resume),
     .help = "go on with the run in the run directory, from the newest state among its followers "
             "and checkpoints"},
    {"local", NULL, ARG_FLAG, AT(local),
     .help = "start the other N-1 processes on this machine; they end with this one"},
    {"standby", NULL, ARG_FLAG, AT(standby),
     .help =
         "take no part in the job of the driver at --root, but lead it once that driver is lost; "
         "with the same --run-dir (shared, or on the same machine) in it, else in a new one"},
    {"check", NULL, ARG_FLAG, AT(check),
     .help = "validate job, data and device, print a summary, and exit: 0 or 2"},
    {"inject", "SPEC", ARG_LIST, AT(injects),
     .help = "for tests: faults on purpose, such as kill:rank1@step50 (listed below), several with "
             "commas between; may be repeated"},
    {"status", NULL, ARG_FLAG, AT(status),
     .help = "print the live table of ranks of the driver that runs on this machine in --run-dir "
             "(a folder, or the NAME of runs/NAME), and exit: 0, or 3 if none is running; as JSON "
             "with --log-format json"},
    {"drain", "WHO", ARG_TEXT, AT(drain),
     .help =
         "let a rank of the driver that runs on this machine in --run-dir leave for good: WHO is "
         "its number, spare1 for the first spare, or a host for all on it (host:NAME for one that "
         "is named like a rank or a spare; rank:2 and spare:1 are understood, too); it finishes "
         "the step, the others go on, and dpfollower ends with 4; prints who leaves when, as JSON "
         "with --log-format json, and exits: 0, or 3 if it cannot be, or no driver is running"},
    {"help-job", NULL, ARG_FLAG, AT(help_job), .help = "list the keys of a job file, and exit"},
};

static const struct arg network_args[] = {
    {"host", "ADDR", ARG_TEXT, AT(host),
     .help = "address to listen on (default 127.0.0.1: this machine only; with --secret-file all)"},
    {"port", "PORT", ARG_INT, AT(port), 0, 65535,
     .help = "port to listen on (default MASTER_PORT, or 7000; of a standby 7001; 0 takes a free "
             "one)"},
    {"port-file", "FILE", ARG_TEXT, AT(port_file),
     .help = "write the port there once the driver listens"},
    {"root", "HOST:PORT", ARG_TEXT, AT(root), .help = "with --standby: where the driver listens"},
    {"wait", "SECONDS", ARG_INT, AT(wait_s), 0, 1000000,
     .help = "with --standby: give up with 3 when there is no driver for so long at the start "
             "(default: wait for ever)"},
    {"make-secret", "F", ARG_TEXT, AT(make_secret),
     .help = "make a new file for --secret-file, and exit"},
};

enum { N_GROUPS = 3 };

static void groups_init(struct arg_group g[N_GROUPS], struct options *o)
{
    g[0] = (struct arg_group){"The job", job_args, ARRAY_LEN(job_args), o};
    g[1] = (struct arg_group){"Its address", network_args, ARRAY_LEN(network_args), o};
    g[2] = (struct arg_group){"This process", daemon_args, n_daemon_args, o ? &o->common : NULL};
}

/* Without a secret, anybody who reaches the port could join and read the job.  So the driver
 * listens beyond this machine only if the user says so. */
static int check_host(const struct options *o, struct err *err)
{
    struct sockaddr_storage sa = {0};
    int rc = addr_resolve(o->host, (int)o->port, &sa, err);

    if (rc < 0)
        return err_wrap(err, "--host");
    if (!addr_is_loopback((struct sockaddr *)&sa) && !o->common.insecure &&
        !o->common.secret_files.n)
        return err_set(err, ERR_ARG,
                       "--host %s: whoever reaches this address could join and read the job; give "
                       "--secret-file (\"dpdriver --make-secret F\" makes one), or on a private "
                       "network add --insecure, or leave --host out for this machine only",
                       o->host);
    return 0;
}

/* Options that were not given may stand in the environment (daemon/launch.h). */
static int ask_launcher(struct options *o, struct err *err)
{
    struct launch l;
    int64_t n_ranks = o->n_ranks, port = o->port;

    if (launch_read(getenv, &l, err) < 0)
        return n_ranks && port >= 0 ? 0 : ERR_ARG;
    if (l.rank_from && l.rank > 0)
        return err_set(
            err, ERR_ARG,
            "the environment's %s makes this rank %lld, but dpdriver is rank 0; start "
            "dpfollower for the others (deploy/slurm has a script for both), or unset %s",
            l.rank_from, (long long)l.rank, l.rank_from);
    o->n_ranks_from_environment = !n_ranks && l.n_ranks_from;
    if (o->n_ranks_from_environment)
        o->n_ranks = l.n_ranks;
    if (port < 0)
        o->port = l.port_from ? l.port : 7000;
    if (n_ranks)
        l.n_ranks_from = NULL;
    if (port >= 0)
        l.port_from = NULL;
    l.rank_from = l.host_from = NULL;
    launch_describe(&l, o->from_environment);
    return 0;
}

/* The job is the driver's. */
static int check_standby(struct options *o, struct err *err)
{
    const char *also = o->job         ? "--job"
                       : o->sets.n    ? "--set"
                       : o->n_ranks   ? "--nranks"
                       : o->local     ? "--local"
                       : o->resume    ? "--resume"
                       : o->check     ? "--check"
                       : o->injects.n ? "--inject"
                                      : NULL;

    if (!o->standby && (o->root || o->wait_s >= 0))
        return err_set(err, ERR_ARG, "--%s belongs to --standby", o->root ? "root" : "wait");
    if (!o->standby)
        return 0;
    if (also)
        return err_set(err, ERR_ARG,
                       "--standby and %s: a standby has its job from the driver at --root; leave "
                       "%s out",
                       also, also);
    if (!o->root)
        return err_set(
            err, ERR_ARG,
            "--standby needs --root: where the driver listens, such as --root node1:7000");
    if (addr_split(o->root, o->root_host, &o->root_port, err) < 0)
        return err_wrap(err, "--root");
    return 0;
}

static int check(struct options *o, struct err *err)
{
    enum { STANDBY_PORT = 7001 };
    int rc = check_standby(o, err);

    if (rc == 0 && !o->standby)
        rc = ask_launcher(o, err);
    if (o->standby && o->port < 0)
        o->port = STANDBY_PORT;
    if (rc < 0)
        return rc;
    if (!o->n_ranks && !o->check && !o->standby)
        return err_set(err, ERR_ARG,
                       "--nranks is missing: how many processes train together; \"dpdriver "
                       "--nranks 2 --local\" runs the demo on this machine");
    if (!o->host)
        o->host = o->common.secret_files.n ? addr_all() : "127.0.0.1";
    for (size_t i = 0; i < o->injects.n; i++)
        if (inject_parse(o->injects.item[i], &o->inject, err) < 0)
            return err_wrap(err, "--inject");
    rc = daemon_check_options(&o->common, o->advertise, err);
    return rc < 0 ? rc : check_host(o, err);
}

/* The word must fit into one line of the request; the driver itself checks whom it names. */
static int check_drain(const struct options *o, struct err *err)
{
    enum { LONGEST_HOST = 255, LONGEST = sizeof "host:" - 1 + LONGEST_HOST };
    size_t n = 0;

    while (isgraph((unsigned char)o->drain[n]))
        n++;
    if (o->drain[n] == '\0' && n <= LONGEST)
        return 0;
    return err_set(err, ERR_ARG,
                   "--drain %s: want the number of a rank, spare1, or the name of a host (or "
                   "rank:1, spare:1, host:NAME)",
                   o->drain);
}

int options_parse(int argc, char **argv, struct options *out, struct err *err)
{
    struct arg_group groups[N_GROUPS];
    int rc;

    *out = (struct options){.port = -1, .wait_s = -1, .common.device = "auto"};
    groups_init(groups, out);
    rc = args_parse(groups, N_GROUPS, argc, argv, err);
    if (rc == 0 && out->status && out->drain)
        return err_set(err, ERR_ARG, "--status and --drain: one question at a time");
    if (rc < 0 || out->common.help || out->common.version || out->help_job || out->make_secret ||
        out->status)
        return rc;
    if (out->drain)
        return check_drain(out, err);
    return check(out, err);
}

void options_help(FILE *f)
{
    struct arg_group groups[N_GROUPS];

    groups_init(groups, NULL);
    fprintf(f, "Usage: dpdriver --nranks N [--job FILE] [--local] [option]...\n"
               "\n"
               "Trains a neural network together with N-1 followers, and is their rank 0.\n"
               "\n"
               "  dpdriver --nranks 2 --local                   the demo, all on this machine\n"
               "  dpdriver --nranks 3 --job mnist.yaml          waits for two followers, each:\n"
               "  dpfollower --root 127.0.0.1:7000\n"
               "  dpdriver --standby --root 127.0.0.1:7000      leads if that driver is lost\n"
               "\n");
    args_help(groups, N_GROUPS, f);
    fprintf(f, "\n");
    inject_help(f);
    fprintf(
        f,
        "\nExit status: 0 finished; 1 failed; 2 usage, job file or data wrong; 3 --status, "
        "--drain\n"
        "or --standby found no driver, or it will not; 4 stopped by a signal (--resume goes on).\n"
        "SIGINT and SIGTERM stop after the step, with a checkpoint; a second one stops at once.\n"
        "SIGUSR1 logs the table of ranks.\n");
}

static void put_quoted(struct buf *b, const char *word)
{
    int is_plain = *word != '\0';

    for (const char *c = word; *c; c++)
        is_plain = is_plain && (isalnum((unsigned char)*c) || strchr("-_./=:,+@%", *c));
    buf_printf(b, "%s", b->len ? " " : "");
    if (is_plain) {
        buf_printf(b, "%s", word);
        return;
    }
    buf_printf(b, "'");
    for (const char *c = word; *c; c++)
        buf_printf(b, *c == '\'' ? "'\\''" : "%c", *c);
    buf_printf(b, "'");
}

/* Is argv's `word` --name, or a beginning of it, or that with "=..."? */
static int is_option(const char *word, const char *name)
{
    size_t n = strcspn(word, "=");

    return n > 2 && strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, n - 2) == 0;
}

/* Does this --set belong to one of the keys?  A key that ends in '.' stands for all keys that begin
 * with it. */
static int is_of_keys(const char *setting, const char *const *keys)
{
    for (; setting && *keys; keys++) {
        size_t n = strcspn(*keys, "=");

        if (strncmp(setting, *keys, n) == 0 && ((*keys)[n - 1] == '.' || setting[n] == '='))
            return 1;
    }
    return 0;
}

/* argv without --run-dir, --resume and --inject, and without the settings of `keys` (NULL at the
 * end). */
static void put_command(struct buf *b, int argc, char **argv, const char *const *keys)
{
    for (int i = 0; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        int is_set = i > 0 && is_option(argv[i], "set"), n = is_set && !equals ? 2 : 1;

        if (i > 0 && is_option(argv[i], "resume"))
            continue;
        if (i > 0 && (is_option(argv[i], "run-dir") || is_option(argv[i], "inject"))) {
            i += !equals;
            continue;
        }
        if (!is_set || !is_of_keys(equals ? equals + 1 : argv[i + 1], keys))
            for (int k = 0; k < n && i + k < argc; k++)
                put_quoted(b, argv[i + k]);
        i += n - 1;
    }
}

char **options_driver_argv(int argc, char **argv, int64_t n_ranks, int *out_argc)
{
    static const char *const own[] = {"standby", "root", "wait"};
    char **out = xcalloc((size_t)argc + 2, sizeof *out);
    int n = 0;

    for (int i = 0; i < argc; i++) {
        int is_own = -1;

        for (int k = 0; i > 0 && k < (int)ARRAY_LEN(own); k++)
            if (is_option(argv[i], own[k]))
                is_own = k;
        if (is_own < 0)
            out[n++] = argv[i];
        else if (is_own > 0 && !strchr(argv[i], '='))
            i++;
    }
    out[n++] = xasprintf("--nranks=%lld", (long long)n_ranks);
    *out_argc = n;
    return out;
}

static void put_sets(struct buf *b, const char *const *sets)
{
    for (; *sets; sets++) {
        put_quoted(b, "--set");
        put_quoted(b, *sets);
    }
}

static char *take_text(struct buf *b)
{
    char *text = xstrdup(buf_cstr(b));

    buf_fini(b);
    return text;
}

char *options_longer_command(int argc, char **argv, const char *run_dir, const char *const *sets)
{
    struct buf b = {0};

    put_command(&b, argc, argv, sets);
    put_quoted(&b, "--resume");
    put_quoted(&b, "--run-dir");
    put_quoted(&b, run_dir);
    put_sets(&b, sets);
    return take_text(&b);
}

char *options_resume_command(int argc, char **argv, const char *run_dir)
{
    static const char *const no_sets[] = {NULL};

    return options_longer_command(argc, argv, run_dir, no_sets);
}

char *options_new_command(int argc, char **argv, const char *run_dir, const char *const *sets)
{
    char *job = run_dir ? xasprintf("%s/job.yaml", run_dir) : NULL;
    struct buf b = {0};

    put_command(&b, argc, argv, sets);
    if (job) {
        put_quoted(&b, "--job");
        put_quoted(&b, job);
    }
    put_sets(&b, sets);
    free(job);
    return take_text(&b);
}

char *options_data_command(int argc, char **argv)
{
    static const char *const drawn[] = {"data.", NULL};
    static const char *const own[] = {"data.format=mnist", "data.path=FOLDER",
                                      "data.validation=t10k", NULL};
    struct buf b = {0};

    put_command(&b, argc, argv, drawn);
    put_sets(&b, own);
    return take_text(&b);
}
