/* dpfollower - one more rank of a job, or with --ranks several.
 *
 * Reads the command line, then calls client_run or agent_run. */
#include <stdio.h>

#include "base/log.h"
#include "coll/fabric/load.h"
#include "daemon/minder.h"
#include "follower/agent.h"
#include "follower/client.h"
#include "follower/options.h"

int main(int argc, char **argv)
{
    struct options o;
    struct err err;

    daemon_open_standard();
    log_init("dpfollower", LOG_TEXT, LOG_INFO);
    if (follower_options_parse(argc, argv, &o, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_USAGE;
    }
    log_init("dpfollower", (enum log_format)o.common.log_format, LOG_INFO);
    if (o.common.help)
        follower_options_help(stdout);
    else if (o.common.version)
        printf("dpfollower %s\n", DPTRAIN_VERSION);
    else {
        const enum minder_kind kind = minder_role().kind;

        daemon_process_setup(argv);
        o.lane = minder_take_lane();
        daemon_set_nccl(&o.common, o.advertise);
        fabric_set_limit("");
        if (o.wait_s >= 0 && !o.once)
            log_warn("--wait has no effect without --once: this follower waits for ever");
        if (o.from_environment[0])
            log_info("by the environment: %s", o.from_environment);
        if (kind == MINDER_NONE ||
            kind == MINDER_SSH) /* else the process that started it has told */
            daemon_tell_ignored("this follower");
        return o.common.ranks ? agent_run(&o) : client_run(&o);
    }
    return daemon_end_output(STATUS_OK);
}
