/* dpfollower's table of options, and the values that a launcher's environment gives.
 * The command line takes precedence. */
#include "follower/options.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "wire/msg.h"

#define AT(field) offsetof(struct options, field)

static const struct arg job_args[] = {
    {{"root", OPT_STRING, AT(root),
      .help =
          "The address at which the driver listens. The default is MASTER_ADDR and MASTER_PORT, "
          "TF_CONFIG's first address, or the first host of a Slurm step or of MPI's Slurm job; the "
          "default port is 7000. Under torchrun the driver is looked for at the 16 ports from "
          "MASTER_PORT + 1 on."},
     "HOST:PORT"},
    {{"rank", OPT_STRING, AT(rank_text),
      .help = "The rank to be, from 1. The default is RANK, TF_CONFIG, OMPI_COMM_WORLD_RANK, "
              "PALS_RANKID, "
              "JSM_NAMESPACE_RANK, FLUX_TASK_RANK, PMI_RANK, SLURM_PROCID or PMIX_RANK, or any, "
              "with which the driver chooses. With --ranks N it is the rank "
              "of "
              "the first process, and the others are K+1 to K+N-1; the default is then N times the "
              "launcher's task."},
     "K|any"},
    {{"data", OPT_STRING, AT(data),
      .help = "The folder of the data on this host. The default is the job's data.path."},
     "DIR"},
    {{"once", OPT_BOOL, AT(once),
      .help =
          "End after one job. Without it the follower waits for the next driver, except after a "
          "failure of its GPU: then it ends with 1, so that a new process can use the GPU again."},
     NULL},
    {{"wait", OPT_INT, AT(wait_s), NULL, 0, 1000000000,
      .help = "With --once: how many seconds to wait for the driver. The default is 600."},
     "SECONDS"},
    {{"relay", OPT_BOOL, AT(relay),
      .help = "With --ranks: all ranks of this command share one connection with the driver, which "
              "needs one open file for them in place of one for each. This is for jobs with more "
              "ranks than the driver may have open files, and for very large ones. With "
              "--secret-file that connection is encrypted, and this command proves for its ranks "
              "that it knows the secret."},
     NULL},
};

enum { WAIT_S = 600 };

static void follower_options_fill(struct arg_group g[FOLLOWER_GROUPS], struct options *o)
{
    g[0] = (struct arg_group){"The job", job_args, ARRAY_LEN(job_args), o};
    g[1] = (struct arg_group){"This process", daemon_args, n_daemon_args, o ? &o->common : NULL};
}

static int options_parse_rank(struct options *o, struct err *err)
{
    char *end;
    long v;

    o->rank = -1;
    if (!o->rank_text || !strcmp(o->rank_text, "any"))
        return 0;
    v = strtol(o->rank_text, &end, 10);
    if (*end || end == o->rank_text || v < 0 || v >= MSG_MAX_RANKS)
        return err_set(err, ERR_ARG, "--rank is \"%s\", want any, or a number from 1 to %d",
                       o->rank_text, MSG_MAX_RANKS - 1);
    if (v == 0)
        return err_set(err, ERR_ARG, "--rank is 0, which is the driver's; want any, or 1 and up");
    o->rank = (int)v;
    return 0;
}

static int options_check_data(const struct options *o, struct err *err)
{
    struct stat st;

    if (o->data && (stat(o->data, &st) < 0 || !S_ISDIR(st.st_mode)))
        return err_set(err, ERR_ARG, "--data %s is not a folder on this host", o->data);
    return 0;
}

static int options_check_relay(const struct options *o, struct err *err)
{
    if (o->relay && !o->common.ranks)
        return err_set(err, ERR_ARG,
                       "--relay belongs to --ranks, whose processes share a connection; give both, "
                       "or leave --relay out");
    return 0;
}

int options_check_peer(const struct options *o, const char *number, struct err *err)
{
    if (addr_check_link(number, err) < 0)
        return err_wrap(err, "the driver at %s", o->root_text);
    if (o->common.insecure || o->common.secret_files.n || addr_number_is_loopback(number))
        return 0;
    return err_set(err, ERR_ARG,
                   "the driver at %s is not on this machine, and nothing would prove that it is "
                   "yours; give --secret-file with a copy of the driver's, or on a private network "
                   "add --insecure",
                   o->root_text);
}

static int parse_root(struct options *o, struct err *err)
{
    if (o->root && addr_split(o->root, o->host, &o->port, err) < 0)
        return err_wrap(err, "--root");
    if (!o->host[0] && o->root_hidden_by)
        return err_set(err, ERR_ARG,
                       "--root is missing: SLURM_STEP_NODELIST is sorted, and with %s it does not "
                       "say on which host task 0, the driver, is; give --root HOST:PORT, set "
                       "MASTER_ADDR, or start the step by dptrain-rank.sh",
                       o->root_hidden_by);
    if (!o->host[0])
        return err_set(err, ERR_ARG,
                       "--root is missing: where the driver listens, such as --root "
                       "127.0.0.1:7000; MASTER_ADDR in the environment would do, too");
    snprintf(o->root_text, sizeof o->root_text, strchr(o->host, ':') ? "[%s]:%d" : "%s:%d", o->host,
             o->port);
    return 0;
}

/* Values that were not given may stand in the environment (daemon/launch.h).  Task 0 of a launcher
 * that starts only followers is no driver: it takes any rank. */
static int follower_options_ask_launcher(struct options *o, struct err *err)
{
    struct launch l;

    if (launch_read(getenv, &l, err) < 0)
        return o->root && o->rank_text ? 0 : ERR_ARG;
    l.n_ranks_from = NULL;
    if (o->rank_text || l.rank == 0)
        l.rank_from = NULL;
    if (l.rank_from)
        o->rank = (int)l.rank;
    l.is_task = o->rank_is_task = l.rank_from && o->common.ranks;
    o->root_hidden_by = l.hidden_by;
    if (o->root)
        l.host_from = NULL;
    if (!l.host_from)
        l.port_from = NULL;
    if (l.host_from) {
        strcpy(o->host, l.host);
        o->port = l.port_from ? (int)l.port : 7000;
        o->n_ports = l.n_ports;
        strcpy(o->launch, l.job);
    }
    if (o->common.ranks)
        l.local_rank_from = NULL;
    if (l.local_rank_from)
        o->common.local_rank = l.local_rank;
    launch_describe(&l, o->from_environment);
    return 0;
}

static int follower_options_check(struct options *o, struct err *err)
{
    int rc = options_parse_rank(o, err);

    if (rc == 0)
        rc = follower_options_ask_launcher(o, err);
    if (rc == 0)
        rc = parse_root(o, err);
    if (rc == 0)
        rc = options_check_data(o, err);
    if (rc == 0)
        rc = options_check_relay(o, err);
    if (rc == 0)
        rc = daemon_check_options(&o->common, o->advertise, err);
    if (rc == 0 && addr_is_number(o->host))
        rc = options_check_peer(o, o->host, err);
    if (o->once && o->wait_s < 0)
        o->wait_s = WAIT_S;
    return rc;
}

int follower_options_parse(int argc, char **argv, struct options *out, struct err *err)
{
    struct arg_group groups[FOLLOWER_GROUPS];
    int rc;

    *out = (struct options){.wait_s = -1, .common.local_rank = -1};
    follower_options_fill(groups, out);
    rc = args_parse(groups, FOLLOWER_GROUPS, argc, argv, NULL, err);
    if (rc < 0 || out->common.help || out->common.version)
        return rc;
    return follower_options_check(out, err);
}

void follower_options_groups(struct arg_group g[FOLLOWER_GROUPS])
{
    follower_options_fill(g, NULL);
}

const char follower_options_text[] =
    "Trains as one rank of a job: connects to a dpdriver, and takes everything but the\n"
    "data from it. Waits for a driver that is not there yet.\n"
    "\n"
    "  dpfollower --root 127.0.0.1:7000\n"
    "  dpfollower --root node1:7000 --rank 3 --secret-file secret\n"
    "  dpfollower --root node1:7000 --ranks gpus --secret-file secret\n"
    "\n";

const char follower_options_statuses[] =
    "\nExit status:\n"
    "  0  The job has finished.\n"
    "  1  The job has failed.\n"
    "  2  The command line, the job or the data are wrong.\n"
    "  3  The driver refused this follower, or there was no driver within --wait.\n"
    "  4  A signal stopped the follower or the driver, or an operator drained it.\n"
    "With --ranks it is the status of the first process that ended with 1, 2 or 3; else 4\n"
    "if one was stopped; else 0.\n\n"
    "With --ranks a process that was killed or failed is started again after 1 s to 60 s,\n"
    "except with --once. SIGINT and SIGTERM are passed on; a second signal kills.\n"
    "SIGUSR1 logs the state.\n";

void follower_options_help(FILE *f)
{
    struct arg_group groups[FOLLOWER_GROUPS];

    follower_options_groups(groups);
    fprintf(f, "Usage: dpfollower --root HOST:PORT [option]...\n\n%s", follower_options_text);
    args_help(groups, FOLLOWER_GROUPS, 0, f);
    fprintf(f, "%s", follower_options_statuses);
}
