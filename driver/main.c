/* dpdriver - rank 0 of a job.
 *
 * Reads the command line and the job, then calls server_run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "coll/fabric/load.h"
#include "daemon/network.h"
#include "daemon/places.h"
#include "deepspeed/deepspeed.h"
#include "driver/ask.h"
#include "driver/check.h"
#include "driver/evaluate.h"
#include "driver/export.h"
#include "driver/find_lr.h"
#include "driver/init.h"
#include "driver/options.h"
#include "driver/parting.h"
#include "driver/record.h"
#include "driver/replay.h"
#include "driver/reports.h"
#include "driver/sample.h"
#include "driver/server.h"
#include "driver/standby.h"
#include "driver/verify.h"
#include "import/arch.h"
#include "job/imported.h"
#include "net/secret.h"
#include "report/began.h"

/* *out: the path of the run directory's job.yaml, which is the job with --resume and no --job. */
static int run_job_path(const struct options *o, char **out, struct err *err)
{
    char *folder = evaluate_run(o), *path = xasprintf("%s/job.yaml", folder);
    int rc = 0;

    if (access(path, F_OK) == 0)
        *out = path;
    else
        rc =
            err_set(err, ERR_CONFIG,
                    "--resume: there is no run in %s (no job.yaml); give the --run-dir of the run, "
                    "or its --job to start it",
                    folder);
    if (rc < 0)
        free(path);
    free(folder);
    return rc;
}

static int most_ranks(const struct options *o, const struct job *job)
{
    return (int)max_i64(o->n_ranks, job->cluster.max_ranks);
}

static const char *backend_name(const struct options *o)
{
    return device_is_cuda(o->device) ? "cuda" : "cpu";
}

static void warn_idle(const struct job *job, int64_t n_ranks)
{
    int64_t n = n_ranks - job->train.global_batch;

    if (n > 0)
        log_warn("train.global_batch is %lld, fewer than the %lld ranks: %lld rank%s will have no "
                 "samples and compute nothing",
                 (long long)job->train.global_batch, (long long)n_ranks, (long long)n,
                 n == 1 ? "" : "s");
}

static void warn_threads(const struct job *job, int64_t n_asked)
{
    const struct strategy_shares s = strategy_shares(&job->strategy);

    if (s.n > 0 && n_asked > 0 && n_asked != s.n_threads)
        log_warn("--threads %lld has no effect: with strategy.shards every rank computes with "
                 "strategy.share_threads, %d",
                 (long long)n_asked, s.n_threads);
}

/* Set the keys that an evaluation does not have.  No rank can join once it has begun, and there is
 * no minimum of ranks. */
static void set_for_evaluation(struct job *job)
{
    job->cluster.min_ranks = job->cluster.max_ranks = job->cluster.spares = 0;
    job->cluster.driver_timeout_ms = 0; /* followers have no state to keep for another driver */
}

/* Log the keys of a DeepSpeed configuration that have no effect here. */
static void log_notes(struct buf *notes)
{
    char *rest, *line;

    buf_cstr(notes);
    for (rest = (char *)notes->data; (line = strtok_r(rest, "\n", &rest));)
        log_warn("%s", line);
}

static int measure_anew(const struct options *o, struct job *job, struct err *err)
{
    const int rc = job_measure(job, o->predict || o->export, err);

    return rc == 0 ? job_note_names(job, err) : rc;
}

/* A run that goes on keeps the numbers that it began with, and measures nothing.  A job.yaml that
 * cannot be read is told later. */
static int main_measure(const struct options *o, struct job *job, struct err *err)
{
    char *folder, *path;
    struct job *run = NULL;
    struct err ignored;
    int rc = 0;

    if (!o->resume)
        return measure_anew(o, job, err);
    folder = record_run(o, job);
    path = xasprintf("%s/job.yaml", folder);
    if (job_load(path, NULL, 0, &run, &ignored) == 0)
        rc = job_take_measured(job, run, err);
    job_free(run);
    free(path);
    free(folder);
    return rc == 0 ? measure_anew(o, job, err) : rc;
}

/* With --resume and no other word on the number of ranks: that with which the run was started. */
static int take_ranks_of_run(struct options *o, struct err *err)
{
    char *folder;
    int rc = 0;

    if (!o->resume || o->n_ranks)
        return 0;
    folder = evaluate_run(o);
    o->n_ranks = began_n_ranks(folder);
    if (o->n_ranks > 1)
        log_info("the run in %s was started with %lld ranks, and so is this one (--nranks gives "
                 "another number%s)",
                 folder, (long long)o->n_ranks,
                 o->local ? "" : ", --local starts the others on this machine");
    if (o->n_ranks == 0 && o->local)
        rc = err_set(err, ERR_CONFIG,
                     "--nranks is missing: no run in %s tells how many processes --local starts",
                     folder);
    free(folder);
    return rc;
}

/* Without a job file the keys of --set change the demo job, whatever the user had in mind. */
static int tell_demo(int rc, struct err *err)
{
    static const char text[] = "without --job, --set changes the demo job (model.arch lenet, "
                               "data.format digits)";

    if (rc < 0)
        return err_wrap(err, "%s", text);
    log_info("%s", text);
    return 0;
}

/* The folder of the run whose network the job goes on with, for free(); NULL: there is none. */
static char *main_run_of(const struct options *o, const struct evaluation *e, const struct job *job)
{
    if (o->evaluate)
        return e->is_latest ? xstrdup(e->from) : xasprintf("%s/../..", e->from);
    return o->resume ? record_run(o, job) : NULL;
}

/* Log a warning, which becomes an event as well; NULL: there is none. */
static void main_tell(struct options *o, const char *text)
{
    if (!text)
        return;
    log_warn("%s", text);
    options_tell(o, "%s", text);
}

/* Read the network of model.import. */
static int main_import(struct options *o, const struct evaluation *e, struct job *job,
                       struct err *err)
{
    char *run = main_run_of(o, e, job), *doubt;
    int rc = imported_read(job, run, &doubt, err);

    main_tell(o, doubt);
    free(doubt);
    if (rc == 0 && o->resume && run && import_options_of(&job->model))
        log_info(
            "model.import: the network is the run's own, and the weights are its checkpoint's, "
            "not those of %s",
            import_options_of(&job->model)->path);
    doubt = rc == 0 ? imported_mode(job) : NULL;
    main_tell(o, doubt);
    free(doubt);
    free(run);
    return rc;
}

/* This build, these ranks and this device can do the job.  An export computes nothing. */
static int check_possible(const struct options *o, const struct job *job, struct err *err)
{
    int rc = job_check_supported(job, o->n_ranks, backend_name(o), err);

    if (rc == 0)
        rc = job_check_backend(job, backend_name(o), err);
    return rc == 0 ? job_check_encrypt(job, backend_name(o), !o->common.insecure, err) : rc;
}

/* The settings of the job: those of --set, and of a range test its own before them. */
static size_t main_sets(const struct options *o, const char **set)
{
    if (o->find_lr)
        return find_lr_sets(o, set);
    for (size_t i = 0; i < o->sets.n; i++)
        set[i] = o->sets.item[i];
    return o->sets.n;
}

static int load_job(struct options *o, const struct evaluation *e, struct job **out,
                    struct err *err)
{
    struct buf notes = {0};
    const int is_told = o->n_ranks > 0;
    const char *given = e->job ? e->job : o->job;
    const char *sets[FIND_LR_MOST_SETS];
    const size_t n_sets = main_sets(o, sets);
    char *path = given ? xstrdup(given) : NULL;
    int rc = o->resume && !o->job ? run_job_path(o, &path, err) : 0;

    if (rc == 0)
        rc = take_ranks_of_run(o, err);
    if (rc == 0)
        rc = deepspeed_load(o->n_ranks, path, sets, n_sets, out, &notes, err);
    if (!path && !o->resume && o->sets.n > 0)
        rc = tell_demo(rc, err);
    log_notes(&notes);
    buf_fini(&notes);
    free(path);
    if (rc < 0)
        return rc;
    if (o->evaluate)
        set_for_evaluation(*out);
    if (!is_told)
        o->n_ranks = max_i64(max_i64(1, o->n_ranks), (*out)->cluster.min_ranks);
    rc = main_import(o, e, *out, err);
    if (rc == 0 && !o->export && !o->sample)
        rc = check_possible(o, *out, err);
    if (rc == 0 && !o->sample)
        rc = main_measure(o, *out, err);
    if (rc == 0 && !o->evaluate)
        warn_idle(*out, o->n_ranks);
    if (rc == 0)
        warn_threads(*out, o->n_threads_asked);
    if (rc == 0 && inject_check_ranks(&o->inject, most_ranks(o, *out), err) < 0)
        rc = err_wrap(err, "--inject");
    if (rc < 0)
        job_free(*out);
    return rc;
}

static int find_device(struct options *o, struct err *err)
{
    char wanted[DEVICE_TEXT];
    struct buf text = {0};

    if (o->check && device_is_cuda(o->common.device)) {
        devices_print(o->common.device, &text);
        printf("%s\n", buf_cstr(&text));
        fflush(stdout);
        buf_fini(&text);
    }
    if (devices_find(o->common.device, &o->devices, err) < 0)
        return err->code;
    devices_of_local_rank(&o->devices, o->common.device, o->common.local_rank, wanted);
    devices_pick(&o->devices, wanted, o->device);
    if (device_is_cuda(o->device)) {
        daemon_check_nccl(&o->common);
        daemon_check_shared_memory("/dev/shm");
    }
    return 0;
}

/* A machine without a driver is not meant to have GPUs. */
static void warn_no_gpu(const struct options *o)
{
    if (o->devices.has_driver && o->devices.trouble[0])
        log_warn("--device auto: no GPU can be used: %s; computing on the CPU", o->devices.trouble);
}

/* With --ranks: log the places of this machine's ranks, and bind this process to the first one. */
static void main_take_place(const struct options *o)
{
    if (o->places.n == 0 || o->check)
        return;
    for (int i = 0; i < o->places.n; i++) {
        char name[32];

        snprintf(name, sizeof name, "rank %d", i);
        place_log(&o->places.place[i], name);
    }
    place_bind_self(&o->places.place[0]);
}

static int run_job(struct options *o, const struct evaluation *e, int64_t start_ns)
{
    struct job *job;
    struct err err;
    int status;

    if (load_job(o, e, &job, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_USAGE;
    }
    main_take_place(o);
    status = o->export   ? daemon_end_output(export_run(o, e, job))
             : o->sample ? daemon_end_output(sample_run(o, e, job))
             : o->check  ? daemon_end_output(check_run(o, job))
                         : server_run(o, job, o->evaluate ? e : NULL, start_ns);
    job_free(job);
    return status;
}

static int main_run(struct options *o, int64_t start_ns)
{
    struct evaluation e = {.from = NULL};
    struct err err;
    int status = STATUS_USAGE;

    if (o->evaluate && evaluate_find(o, &e, &err) < 0)
        log_error("%s", err.msg);
    else if (options_export_weights(o))
        status = daemon_end_output(export_run(o, &e, NULL));
    else
        status = o->standby ? standby_run(o, start_ns) : run_job(o, &e, start_ns);
    evaluate_fini(&e);
    return status;
}

static int make_secret(const char *path)
{
    struct err err;

    if (secret_make(path, &err) < 0) {
        log_error("--make-secret: %s", err.msg);
        return daemon_status_of(&err);
    }
    log_info("%s holds a new secret: copy it to every machine of the job, mode 0600, over a safe "
             "way such as scp, and give --secret-file to dpdriver and dpfollower",
             path);
    return STATUS_OK;
}

/* Find the devices, then run.  The commands that are shown to go on have --nranks, also if only the
 * environment said how many ranks there are. */
static int run_in_environment(struct options *o, int64_t start_ns)
{
    struct err err;

    if (find_device(o, &err) < 0 || options_settle(o, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_USAGE;
    }
    warn_no_gpu(o);
    if (o->n_ranks_from_environment)
        options_give_ranks(o, o->n_ranks);
    return main_run(o, start_ns);
}

static int main_start(struct options *o, char **argv)
{
    const int64_t start_ns = daemon_process_setup(argv);

    daemon_set_nccl(&o->common, o->advertise);
    fabric_set_limit("");
    if (o->from_environment[0])
        log_info("by the environment: %s", o->from_environment);
    for (int i = 0; i < o->n_told; i++)
        log_warn("%s", o->told[i]);
    daemon_tell_ignored("the job");
    return run_in_environment(o, start_ns);
}

static int main_list_keys(const char *word)
{
    struct err err;

    if (job_help(word, stdout, &err) == 0)
        return daemon_end_output(STATUS_OK);
    log_error("%s", err.msg);
    return daemon_status_of(&err);
}

static int do_as_asked(struct options *o, char **argv)
{
    if (o->common.help || o->wish.verb == VERB_HELP)
        options_help(o, stdout);
    else if (o->help_job)
        return main_list_keys(o->like);
    else if (o->common.version)
        printf("dpdriver %s\n", DPTRAIN_VERSION);
    else if (o->make_secret)
        return make_secret(o->make_secret);
    else if (options_ask(o))
        return ask_run(o);
    else if (o->inits.n)
        return daemon_end_output(init_run(o));
    else if (o->reports.n)
        return daemon_end_output(reports_run(o));
    else if (o->compared.n)
        return daemon_end_output(parting_run(o));
    else if (o->replay)
        return daemon_end_output(replay_run(o));
    else if (o->verify)
        return daemon_end_output(verify_run(o));
    else
        return main_start(o, argv);
    return daemon_end_output(STATUS_OK);
}

int main(int argc, char **argv)
{
    struct options o;
    struct err err;
    int status = STATUS_USAGE;

    daemon_open_standard();
    log_init("dpdriver", LOG_TEXT, LOG_INFO);
    if (options_parse(argc, argv, &o, &err) < 0) {
        log_error("%s", err.msg);
    } else {
        log_init("dpdriver", (enum log_format)o.common.log_format, LOG_INFO);
        status = do_as_asked(&o, argv);
    }
    options_fini(&o);
    return status;
}
