/* The sender's name is read from /proc.  A sender outside this process's namespace has no number
 * here: in a container of a Slurm job that is slurmstepd, too. */
#include "daemon/notice_signal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

static int is_step_daemon(uint32_t pid)
{
    char path[64], name[32] = "";
    FILE *f;

    if (pid == 0)
        return 1;
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    f = fopen(path, "re");
    if (f && !fgets(name, sizeof name, f))
        name[0] = '\0';
    if (f)
        fclose(f);
    name[strcspn(name, "\n")] = '\0';
    return !strcmp(name, "slurmstepd");
}

/* Newer versions of Slurm say when the job ends. */
static int64_t seconds_left(void)
{
    const char *end = getenv("SLURM_JOB_END_TIME");
    const long long at = end ? atoll(end) : 0;

    return at > 0 ? max_i64(0, at - (int64_t)time(NULL)) : -1;
}

int notice_signal_read(const struct signalfd_siginfo *info, struct notice *out)
{
    const int is_passed_on = info->ssi_code == SI_QUEUE && info->ssi_pid == (uint32_t)getppid() &&
                             info->ssi_int == NOTICE_SIGNAL_VALUE;

    if (!getenv("SLURM_JOB_ID") || (!is_passed_on && !is_step_daemon(info->ssi_pid)))
        return 0;
    *out = (struct notice){.source = "slurm", .seconds = seconds_left()};
    return 1;
}
