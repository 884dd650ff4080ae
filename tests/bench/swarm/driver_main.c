/* dpdriver-swarm - dpdriver's server, session, TLS and record around an engine that only pretends
 * to train.  It measures the control plane with more ranks than one machine can train, on a machine
 * without GPUs.
 *
 * All but this file and engine.c are dpdriver's own objects. */

#include "base/log.h"
#include "driver/check.h"
#include "driver/options.h"
#include "driver/server.h"

/* Its engine pretends to have data. */
int check_resume(const struct options *o, const struct job *job, const char *dir, struct err *err)
{
    (void)o;
    (void)job;
    (void)dir;
    (void)err;
    return 0;
}

int main(int argc, char **argv)
{
    struct options o;
    struct job *job;
    struct err err;
    int64_t start_ns;
    int status;

    daemon_open_standard();
    log_init("dpdriver-swarm", LOG_TEXT, LOG_INFO);
    if (options_parse(argc, argv, &o, &err) < 0 ||
        job_load(o.job, o.sets.item, o.sets.n, &job, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_USAGE;
    }
    devices_pick(&o.devices, "cpu", o.device);
    start_ns = daemon_process_setup(argv);
    log_warn("this program does not train: it shows what the control plane costs");
    status = server_run(&o, job, NULL, start_ns);
    job_free(job);
    options_fini(&o);
    return status;
}
