/* shake - a library that is preloaded into a test and its processes, and slows some threads down.
 *
 * The author of a test has seen its threads and processes take turns in a few ways.  A test that
 * passes only in these fails some day on another machine.  So each thread is, by chance, never,
 * seldom or often held up where another may come first: when it begins, at locks, reads, writes
 * and waits, and when it reads the clock.  A thread loses no more than BUDGET_US in all, so
 * deadlines of many seconds hold.
 *
 * A failure is shown again by repetition (tests/run.sh shake), not by a seed: the same sleeps would
 * meet another order. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST_US = 20000, VERY_LONG_US = 5 * LONGEST_US, BUDGET_US = 1500000 };

struct fate {
    uint64_t state; /* the state of the random numbers; 0: not seeded yet */
    double chance;  /* the chance of being held up at each call */
    long left_us;
};

/* Other libraries call these functions before a thread can ask the loader for memory. */
static _Thread_local struct fate fate __attribute__((tls_model("initial-exec")));

/* xorshift64 (Marsaglia, 2003), [0, 1) */
static double draw(struct fate *f)
{
    f->state ^= f->state << 13;
    f->state ^= f->state >> 7;
    f->state ^= f->state << 17;
    return (double)(f->state >> 11) * 0x1p-53;
}

static void begin(struct fate *f)
{
    static const double chances[] = {0, 0, 0.002, 0.02, 0.15};
    static atomic_uint_fast64_t n_threads;
    struct timespec now;

    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    f->state = (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32 ^
               (atomic_fetch_add(&n_threads, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15);
    f->state += f->state == 0;
    for (int i = 0; i < 8; i++)
        (void)draw(f);
    f->chance = chances[(int)(draw(f) * 5)];
    f->left_us = BUDGET_US;
}

static void hold_up(void)
{
    struct fate *f = &fate;
    const int e = errno;

    if (!f->state)
        begin(f);
    if (f->left_us > 0 && draw(f) < f->chance) {
        const double x = draw(f); /* cubed below, so that most delays are short */
        const long us = draw(f) < 0.02 ? VERY_LONG_US : (long)(LONGEST_US * x * x * x);

        syscall(SYS_nanosleep, &(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
        f->left_us -= us;
    }
    errno = e;
}

static void *real(_Atomic(void *) *known, const char *name)
{
    void *fn = atomic_load(known);

    if (!fn)
        atomic_store(known, fn = dlsym(RTLD_NEXT, name));
    if (!fn)
        abort();
    return fn;
}

/* The calls that are held up before they are made: result, name, parameters, and arguments. */
#define CALLS(X)                                                                           \
    X(int, pthread_mutex_lock, (pthread_mutex_t * m), (m))                                 \
    X(int, sched_yield, (void), ())                                                        \
    X(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))                              \
    X(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))                       \
    X(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))      \
    X(ssize_t, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))            \
    X(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))       \
    X(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))             \
    X(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms))     \
    X(int, epoll_pwait, (int fd, struct epoll_event *e, int n, int ms, const sigset_t *s), \
      (fd, e, n, ms, s))                                                                   \
    X(int, fsync, (int fd), (fd))                                                          \
    X(int, rename, (const char *from, const char *to), (from, to))

#define EXPORTED __attribute__((visibility("default")))

#define X(type, name, parameters, arguments)                               \
    EXPORTED type name parameters                                          \
    {                                                                      \
        static _Atomic(void *) known;                                      \
                                                                           \
        hold_up();                                                         \
        return ((type(*) parameters)(size_t)real(&known, #name))arguments; \
    }
CALLS(X)
#undef X

/* ---- calls after which a thread is held up ---- */

EXPORTED int pthread_mutex_unlock(pthread_mutex_t *m)
{
    static _Atomic(void *) known;
    const int rc = ((int (*)(pthread_mutex_t *))(size_t)real(&known, "pthread_mutex_unlock"))(m);

    hold_up();
    return rc;
}

EXPORTED int clock_gettime(clockid_t clock, struct timespec *out)
{
    const int rc = (int)syscall(SYS_clock_gettime, clock, out);

    hold_up();
    return rc;
}

/* ---- threads ---- */

struct start {
    void *(*fn)(void *arg);
    void *arg;
};

static void *begin_late(void *arg)
{
    const struct start s = *(struct start *)arg;

    free(arg);
    for (int i = 0; i < 10; i++)
        hold_up();
    return s.fn(s.arg);
}

EXPORTED int pthread_create(pthread_t *out, const pthread_attr_t *how, void *(*fn)(void *),
                            void *arg)
{
    static _Atomic(void *) known;
    struct start *s = malloc(sizeof *s);
    int rc;

    if (!s)
        return EAGAIN;
    *s = (struct start){fn, arg};
    rc = ((int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))(size_t)real(
        &known, "pthread_create"))(out, how, begin_late, s);
    if (rc != 0)
        free(s);
    hold_up();
    return rc;
}
