/* effort - the thread's clock of processor time, and Linux's count of the time in which it was
 * ready to run and did not (schedstat).
 *
 * Where the kernel keeps no such count, `queued_ns` is 0. */
#include "data/effort.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* The second number of the file. */
static int64_t queued_ns(void)
{
    const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    char text[96], *rest;
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    rest = strchr(text, ' ');
    return rest ? strtoll(rest, NULL, 10) : 0;
}

static int64_t cpu_ns(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* The wall's clock is read first here and last at the end, so that it counts no less than the
 * rest. */
struct effort effort_begin(void)
{
    struct effort e = {.wall_ns = clock_mono_ns()};

    e.cpu_ns = cpu_ns();
    e.queued_ns = queued_ns();
    return e;
}

void effort_end(struct effort_sums *s, const struct effort *since)
{
    const int64_t cpu = cpu_ns(), queued = queued_ns(), wall = clock_mono_ns();

    atomic_fetch_add(&s->wall_ns, wall - since->wall_ns);
    atomic_fetch_add(&s->cpu_ns, cpu - since->cpu_ns);
    atomic_fetch_add(&s->queued_ns, queued - since->queued_ns);
}

struct effort effort_read(const struct effort_sums *s)
{
    return (struct effort){atomic_load(&s->wall_ns), atomic_load(&s->cpu_ns),
                           atomic_load(&s->queued_ns)};
}
