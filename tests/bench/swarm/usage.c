/* usage - reads a process's CPU time from its clock, its resident memory from /proc/PID/statm, and
 * counts the files in /proc/PID/fd. */
#include "usage.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double cpu_s(int pid)
{
    struct timespec t;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double rss_mib(int pid)
{
    char path[64];
    long all = 0, resident = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    f = fopen(path, "r");
    if (!f)
        return 0;
    if (fscanf(f, "%ld %ld", &all, &resident) != 2)
        resident = 0;
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static int n_files(int pid)
{
    char path[64];
    int n = 0;
    DIR *d;

    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

void usage_of(int pid, struct swarm_usage *out)
{
    int who = pid ? pid : (int)getpid();

    *out =
        (struct swarm_usage){.cpu_s = cpu_s(who), .rss_mib = rss_mib(who), .n_files = n_files(who)};
}
