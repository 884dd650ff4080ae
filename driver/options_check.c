/* options_check - the checks across several of dpdriver's options, and what the environment of a
 * launcher says in place of options that were not given. */
#include "driver/options_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "driver/web_address.h"

/* /etc/hosts of many systems gives a machine's own name the address 127.0.1.1. */
static void tell_loopback(struct options *o, const struct sockaddr *sa)
{
    char number[ADDR_TEXT];

    addr_number(sa, number);
    if (!addr_is_loopback(sa) || !strcmp(o->host, "localhost") || addr_is_number(o->host))
        return;
    options_tell(
        o,
        "--host %s is %s on this machine (\"getent hosts %s\"), where no other machine reaches "
        "this driver; give the number of an address that they reach (\"ip address\" lists them), "
        "or leave --host out, and with --secret-file the driver listens on all",
        o->host, number, o->host);
}

/* Check --host.  Without a secret, anybody who reaches the port could join and read the job.  So
 * without one the driver listens beyond this machine only with --insecure. */
static int check_host(struct options *o, struct err *err)
{
    struct sockaddr_storage sa = {0};
    char number[ADDR_TEXT];
    int rc = addr_resolve(o->host, (int)o->port, &sa, err);

    if (rc < 0)
        return err_wrap(err, "--host");
    if (addr_is_link_local((struct sockaddr *)&sa)) {
        addr_number((struct sockaddr *)&sa, number);
        rc = addr_check_link(number, err);
        return err_wrap(err, "--host%s%s", addr_is_number(o->host) ? "" : " ",
                        addr_is_number(o->host) ? "" : o->host);
    }
    tell_loopback(o, (struct sockaddr *)&sa);
    if (!addr_is_loopback((struct sockaddr *)&sa) && !o->common.insecure &&
        !o->common.secret_files.n)
        return err_set(err, ERR_ARG,
                       "--host %s: whoever reaches this address could join and read the job; give "
                       "--secret-file (\"dpdriver --make-secret F\" makes one), or on a private "
                       "network add --insecure, or leave --host out for this machine only",
                       o->host);
    return 0;
}

/* The port if --port is not given.  An evaluation on this machine alone takes any free port, so
 * that it does not collide with a driver that trains here. */
static int default_port(const struct options *o)
{
    return o->evaluate && (o->local || o->n_ranks <= 1) ? 0 : 7000;
}

/* Options that were not given may stand in the environment (daemon/launch.h). */
static int options_ask_launcher(struct options *o, struct err *err)
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
    if (l.host_from && !o->host && addr_check_link(l.host, err) < 0)
        return err_wrap(err, "the environment's %s, where the followers look for dpdriver",
                        l.host_from);
    o->n_ranks_from_environment = !n_ranks && l.n_ranks_from;
    l.is_task = o->common.ranks != NULL;
    if (o->n_ranks_from_environment && l.is_task)
        o->n_tasks = (int)l.n_ranks;
    else if (o->n_ranks_from_environment)
        o->n_ranks = l.n_ranks;
    if (port < 0)
        o->port = l.port_from ? l.port : default_port(o);
    o->spans_hosts = o->n_ranks_from_environment && !o->local ? l.spans_hosts : NULL;
    if (o->n_ranks_from_environment && l.lacks_srun)
        options_tell(
            o,
            "the environment's SLURM_NTASKS makes this a job of %lld tasks, but srun has not "
            "started this process (SLURM_PROCID is not set), so that nothing starts the others; "
            "start all by \"srun dptrain-rank.sh\" (deploy/slurm), or give --nranks",
            (long long)l.n_ranks);
    o->n_ports = port < 0 ? l.n_ports : 1;
    snprintf(o->launch, sizeof o->launch, "%s", l.job);
    if (n_ranks)
        l.n_ranks_from = NULL;
    if (port >= 0)
        l.port_from = NULL;
    l.rank_from = l.host_from = NULL;
    if (o->common.ranks)
        l.local_rank_from = NULL;
    if (l.local_rank_from)
        o->common.local_rank = l.local_rank;
    launch_describe(&l, o->from_environment);
    return 0;
}

/* Check the options of --standby.  The standby gets the job from the driver, so it takes no option
 * about a job. */
static int check_standby(struct options *o, struct err *err)
{
    if (!o->standby)
        return 0;
    if (!o->root)
        return err_set(
            err, ERR_ARG,
            "--standby needs --root: where the driver listens, such as --root node1:7000");
    if (addr_split(o->root, o->root_host, &o->root_port, err) < 0 ||
        addr_check_link(o->root_host, err) < 0)
        return err_wrap(err, "--root");
    return 0;
}

int options_ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);

    return n > m && !strcmp(text + n - m, end);
}

int options_export_weights(const struct options *o)
{
    return o->export && !o->merge && options_ends_in(o->export, ".safetensors");
}

/* An export is the work of this process alone, and takes a checkpoint as an evaluation does. */
static int check_export(struct options *o, struct err *err)
{
    if (o->merge)
        o->export = o->merge;
    if (!o->export)
        return 0;
    o->evaluate = 1;
    o->n_ranks = 1;
    o->common.device = "cpu";
    if (o->merge && !options_ends_in(o->merge, ".safetensors"))
        return err_set(err, ERR_ARG, "--merge %s: want FILE.safetensors", o->merge);
    if (o->merge || options_ends_in(o->export, ".onnx") || options_export_weights(o))
        return 0;
    return err_set(err, ERR_ARG,
                   "--export %s: want FILE.onnx for the network, or FILE.safetensors for its state "
                   "dict",
                   o->export);
}

/* A text is the work of this process alone, too. */
static int check_sample(struct options *o, struct err *err)
{
    if (!o->sample)
        return 0;
    if (device_is_cuda(o->common.device))
        return err_set(err, ERR_ARG,
                       "--device %s: --sample computes on the CPU alone; leave it out",
                       o->common.device);
    o->evaluate = 1;
    o->n_ranks = 1;
    o->common.device = "cpu";
    if (*o->sample)
        return 0;
    return err_set(err, ERR_ARG,
                   "--sample: the text is empty, want at least one character to go on with");
}

int options_check(struct options *o, struct err *err)
{
    enum { STANDBY_PORT = 7001 };
    int rc;

    o->evaluate |= o->predict != NULL;
    rc = check_standby(o, err);
    if (rc == 0)
        rc = check_export(o, err);
    if (rc == 0)
        rc = check_sample(o, err);
    if (rc == 0 && !o->standby)
        rc = options_ask_launcher(o, err);
    if (o->standby && o->port < 0)
        o->port = STANDBY_PORT;
    if (rc < 0)
        return rc;
    if (o->local && o->common.ranks)
        return err_set(err, ERR_ARG,
                       "--local and --ranks: --local starts all other ranks here, --ranks so many "
                       "that there are N on this machine; give one of them");
    if (o->local && o->hosts_file)
        return err_set(err, ERR_ARG,
                       "--local and --hosts: --local starts all other ranks here, and leaves none "
                       "to the machines of --hosts; give --ranks N for those of this machine");
    if (o->hosts_file && !o->common.secret_files.n && !o->common.insecure)
        return err_set(err, ERR_ARG,
                       "--hosts needs --secret-file, so that nobody else can join (\"dpdriver "
                       "--make-secret F\" makes one), or on a private network --insecure");
    if (o->hosts_file && hosts_read(o->hosts_file, &o->hosts, err) < 0)
        return err->code;
    if (!o->n_ranks && !o->common.ranks && !o->hosts_file && !o->check && !o->standby &&
        !o->evaluate && !o->resume && (!o->job || o->local))
        return err_set(err, ERR_ARG,
                       "--nranks is missing: how many processes train together; \"dpdriver "
                       "--nranks 2 --local\" runs the demo on this machine");
    if (!o->host && o->spans_hosts && !o->common.secret_files.n && !o->common.insecure)
        return err_set(err, ERR_ARG,
                       "the environment's %s says that the ranks are on several machines, and "
                       "nothing would prove to those that they belong to one job; give all of them "
                       "--secret-file with copies of one file (\"dpdriver --make-secret F\" makes "
                       "it), or on a private network --insecure",
                       o->spans_hosts);
    if (!o->host) {
        o->is_closed = !o->common.secret_files.n && !o->hosts_file && !o->spans_hosts;
        o->host = o->is_closed ? "127.0.0.1" : addr_all();
    }
    for (size_t i = 0; i < o->injects.n; i++)
        if (inject_parse(o->injects.item[i], &o->inject, err) < 0)
            return err_wrap(err, "--inject");
    rc = daemon_check_options(&o->common, o->advertise, err);
    if (rc == 0 && o->http)
        rc = web_check(o, err);
    return rc < 0 ? rc : check_host(o, err);
}
