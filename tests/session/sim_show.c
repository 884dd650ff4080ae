/* A schedule as one line an event, and what the lines mean.
 * Times are simulated, so the lines of a seed are the same on every machine. */
#include "sim_show.h"

#include <stdio.h>

const char *sim_mode_name(enum sim_mode mode)
{
    static const char *const names[] = {[SIM_PLAIN] = "plain",
                                        [SIM_ELASTIC] = "elastic",
                                        [SIM_LEADERS] = "leaders",
                                        [SIM_STANDBY] = "standby",
                                        [SIM_AUDIT] = "audit"};
    return names[mode];
}

void show_legend(uint64_t seed, enum sim_mode mode)
{
    printf("seed %llu of --%s.  Each line has the simulated time in seconds, who, and what:\n"
           "  driver    its log, and what it tells the run directory\n"
           "  node 3    a follower's process; its rank may be another number, and may change\n",
           (unsigned long long)seed, sim_mode_name(mode));
    if (mode == SIM_STANDBY)
        printf("  standby   leads once the driver is lost\n");
    printf("  FAULT     the world strikes a process or the network; no process is told\n\n");
}

void show_line(int64_t since_start_ns, int who, const char *fmt, va_list ap)
{
    char node[16];
    snprintf(node, sizeof(node), "node %d", who);
    printf("%8.3f  %-8s  ", 1e-9 * (double)since_start_ns,
           who == SHOW_FAULT     ? "FAULT"
           : who == SHOW_DRIVER  ? "driver"
           : who == SHOW_STANDBY ? "standby"
                                 : node);
    vprintf(fmt, ap);
    printf("\n");
}

int show_event(const struct session_event *e, char *to, int len)
{
    switch ((int)e->kind) {
    case EVENT_FORM:
        return snprintf(to, (size_t)len, "generation %lld is formed: %d rank%s, from step %lld",
                        (long long)e->form.generation, e->form.n_ranks,
                        e->form.n_ranks == 1 ? "" : "s", (long long)e->step);
    case EVENT_FIRST_STEP:
        return snprintf(to, (size_t)len, "the first step is done");
    case EVENT_EPOCH:
        return snprintf(to, (size_t)len, "epoch %lld is done, at step %lld",
                        (long long)e->epoch.epoch, (long long)e->epoch.step);
    case EVENT_CHECKPOINT:
        return snprintf(to, (size_t)len, "the checkpoint of step %lld is on disk",
                        (long long)e->step);
    default:
        return 0;
    }
}
