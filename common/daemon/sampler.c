/* The thread, and the measurements of the process: energy of the packages, memory, processor.
 * A reader gets a copy of the newest ones. */
#include "daemon/sampler.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/rapl.h"
#include "base/util.h"
#include "daemon/nvml.h"

enum { SAMPLER_EACH_MS = 1000, SAMPLER_END_MS = 1000 };

struct sampler_gpu {
    char bus[32], uuid[48];
    int is_new; /* 1: the thread has not opened it yet */
};

struct sampler {
    struct rapl rapl;      /* the thread's, once it runs */
    int64_t at_ns, cpu_ns; /* of the measurement before: when, and the process's time on CPUs */
    int64_t each_ns;
    struct nvml *nvml; /* the thread's; NULL: no GPU is watched */
    const char *library;
    pthread_t thread;

    /* Guards what follows. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct usage usage;
    struct sampler_gpu gpu;
    int is_ending, has_ended;
};

static int64_t sampler_resident_kib(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long long pages = 0;

    if (!f)
        return 0;
    if (fscanf(f, "%*d %lld", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int64_t sampler_cpu_ns(void)
{
    struct rusage r;

    if (getrusage(RUSAGE_SELF, &r) < 0)
        return 0;
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * INT64_C(1000000000) +
           (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * INT64_C(1000);
}

/* Of one CPU, since the measurement before; 0 for the first one. */
static int64_t cpu_permille(struct sampler *s)
{
    const int64_t now = clock_mono_ns(), cpu = sampler_cpu_ns();
    const int64_t took = now - s->at_ns, used = cpu - s->cpu_ns;
    const int is_first = s->at_ns == 0;

    s->at_ns = now;
    s->cpu_ns = cpu;
    return is_first || took <= 0 ? 0 : max_i64(1, 1000 * used / took);
}

static void sampler_measure(struct sampler *s, struct usage *out)
{
    *out = (struct usage){.mj = {[ENERGY_PACKAGE] = rapl_read_mj(&s->rapl)},
                          .resident_kib = sampler_resident_kib(),
                          .cpu_permille = cpu_permille(s)};
    if (s->nvml)
        nvml_read(s->nvml, out);
}

static void sampler_open_gpu(struct sampler *s, const struct sampler_gpu *gpu)
{
    struct err err;

    nvml_close(s->nvml);
    s->nvml = NULL;
    if (nvml_open(s->library, gpu->bus, gpu->uuid, &s->nvml, &err) < 0)
        log_info("energy, memory and use of the GPU are not known: %s", err.msg);
}

/* Sleep until it is time, or a GPU is to be opened.  0: the end has come. */
static int sampler_wait(struct sampler *s, int64_t until_ns)
{
    while (!s->is_ending && !s->gpu.is_new && !cond_wait_until(&s->changed, &s->lock, until_ns))
        ;
    return !s->is_ending;
}

static void *main_of_sampler(void *arg)
{
    struct sampler *s = arg;
    struct sampler_gpu gpu;
    struct usage u;

    pthread_mutex_lock(&s->lock);
    while (sampler_wait(s, clock_mono_ns() + s->each_ns)) {
        gpu = s->gpu;
        s->gpu.is_new = 0;
        pthread_mutex_unlock(&s->lock);
        if (gpu.is_new)
            sampler_open_gpu(s, &gpu);
        sampler_measure(s, &u);
        pthread_mutex_lock(&s->lock);
        s->usage = u;
    }
    pthread_mutex_unlock(&s->lock);
    nvml_close(s->nvml);
    pthread_mutex_lock(&s->lock);
    s->has_ended = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void sampler_drop(struct sampler *s)
{
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int sampler_new(const struct sampler_options *o, struct sampler **out, struct err *err)
{
    const char *root = o->powercap ? o->powercap : getenv(SAMPLER_VARIABLE);
    struct sampler *s = xcalloc(1, sizeof *s);
    int rc;

    s->library = o->nvml ? o->nvml : NVML_LIBRARY;
    s->each_ns = (o->each_ms ? o->each_ms : SAMPLER_EACH_MS) * INT64_C(1000000);
    rapl_open(&s->rapl, root && *root ? root : RAPL_ROOT);
    sampler_measure(s, &s->usage);
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->changed);
    rc = pthread_create(&s->thread, NULL, main_of_sampler, s);
    if (rc != 0) {
        sampler_drop(s);
        return err_sys(err, rc, "the thread that measures memory and energy");
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    const int64_t until = clock_mono_ns() + SAMPLER_END_MS * INT64_C(1000000);
    int has_ended;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_ending = 1;
    pthread_cond_broadcast(&s->changed);
    while (!s->has_ended && !cond_wait_until(&s->changed, &s->lock, until))
        ;
    has_ended = s->has_ended;
    pthread_mutex_unlock(&s->lock);
    if (!has_ended) { /* it will end by itself, or with the process */
        pthread_detach(s->thread);
        return;
    }
    pthread_join(s->thread, NULL);
    sampler_drop(s);
}

void sampler_read(struct sampler *s, struct usage *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->usage;
    pthread_mutex_unlock(&s->lock);
}

void sampler_watch_gpu(struct sampler *s, const char *bus, const char *uuid)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->gpu.bus, sizeof s->gpu.bus, "%s", bus);
    snprintf(s->gpu.uuid, sizeof s->gpu.uuid, "%s", uuid);
    s->gpu.is_new = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

const char *sampler_no_energy(const struct sampler *s)
{
    return s->rapl.why[0] ? s->rapl.why : NULL;
}
