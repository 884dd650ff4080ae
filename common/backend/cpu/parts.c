/* parts - a thin layer over GCC's OpenMP runtime, with the calls that the compiler makes of
 * `omp parallel`. */
#include "backend/cpu/parts.h"

#include "base/util.h"

/* From the OpenMP runtime that oneDNN was linked with; `#pragma omp` would need the compiler's. */
void GOMP_parallel(void (*fn)(void *data), void *data, unsigned n_threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_get_max_threads(void);

/* ThreadSanitizer does not see how the OpenMP runtime's threads wait for each other.  `hand_over`
 * and `take_over` tell it: all that came before the one happened before what follows the other. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if __has_feature(thread_sanitizer)
void __tsan_release(void *at);
void __tsan_acquire(void *at);
static void cpu_parts_hand_over(const void *at) { __tsan_release((void *)at); }
static void cpu_parts_take_over(const void *at) { __tsan_acquire((void *)at); }
#else
static void cpu_parts_hand_over(const void *at) { (void)at; }
static void cpu_parts_take_over(const void *at) { (void)at; }
#endif

struct tasks {
    int n_parts;
    void (*part)(const void *task, int i);
    const void *task;
};

/* The OpenMP runtime may start fewer threads than there are parts, so a thread may run several. */
static void run_parts(void *data)
{
    const struct tasks *t = data;

    cpu_parts_take_over(t);
    for (int i = omp_get_thread_num(); i < t->n_parts; i += omp_get_num_threads())
        t->part(t->task, i);
    cpu_parts_hand_over(t);
}

int parts_of(int n_threads, int64_t least_work, int64_t n, int64_t work)
{
    return (int)max_i64(1, min_i64(n_threads, min_i64(n, work / least_work)));
}

void parts_run(int n_parts, void (*part)(const void *task, int i), const void *task)
{
    struct tasks t = {n_parts, part, task};

    if (n_parts == 1) {
        part(task, 0);
        return;
    }
    cpu_parts_hand_over(&t);
    GOMP_parallel(run_parts, &t, (unsigned)min_i64(n_parts, omp_get_max_threads()), 0);
    cpu_parts_take_over(&t);
}
