/* Tests of the simulator: it must find a fault in each broken kernel of mutants.cc and none in the
 * right ones.  Host code that follows a device pointer must crash. */
#include "../test.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "base/rng.h"
#include "mutants.h"
#include "sim.h"

#include <cuda_runtime_api.h>

enum { GUARD = 4096, SEEDS = 8, SUM = 256 };

static const float pattern = 0x1.234568p-30f;

/* [guard][MUTANT_N][guard] floats; an element that the task does not write stays NaN. */
struct place {
    float all[GUARD + MUTANT_N + GUARD];
};

static int out_len(enum task t) { return t == TASK_SUMS ? (MUTANT_N + SUM - 1) / SUM : MUTANT_N; }

static double wanted(enum task t, const float *x, int i)
{
    double sum = 0;

    if (t == TASK_DOUBLE)
        return 2 * (double)x[i];
    if (t == TASK_TRANSPOSE)
        return (double)x[i % MUTANT_ROWS * MUTANT_COLS + i / MUTANT_ROWS];
    for (int k = SUM * i; k < SUM * (i + 1) && k < MUTANT_N; k++)
        sum += (double)x[k];
    return sum;
}

static unsigned look(enum task t, const float *x, const struct place *seen)
{
    unsigned caught = 0;

    for (int i = 0; i < GUARD; i++)
        if (seen->all[i] != pattern || seen->all[GUARD + MUTANT_N + i] != pattern)
            caught |= CAUGHT_GUARD;
    for (int i = 0; i < out_len(t); i++)
        if (!(fabs((double)seen->all[GUARD + i] - wanted(t, x, i)) < 1e-4))
            caught |= CAUGHT_RESULT;
    return caught;
}

/* One run in the order that the seed picks. */
static unsigned run_once(const struct mutant *m, struct backend *b, const float *x, float *dx,
                         struct place *dy, uint64_t seed, struct place *seen)
{
    struct cuda *cuda = container_of(b, struct cuda, base);
    int launched, ended;
    struct err err;

    for (int i = 0; i < GUARD + MUTANT_N + GUARD; i++)
        seen->all[i] = i >= GUARD && i < GUARD + MUTANT_N ? (float)NAN : pattern;
    assert_int_equal(backend_copy_in(b, dx, x, MUTANT_N * sizeof *x, &err), 0);
    assert_int_equal(backend_copy_in(b, dy, seen, sizeof *seen, &err), 0);
    sim_set_seed(seed);
    m->launch(cuda->stream, dx, &dy->all[GUARD], MUTANT_N);
    launched = cudaGetLastError() == cudaSuccess;
    ended = backend_sync(b, &err) == 0;
    (void)cudaGetLastError();
    if (!launched || !ended)
        return CAUGHT_LAUNCH;
    assert_int_equal(backend_copy_out(b, seen, dy, sizeof *seen, &err), 0);
    return look(m->task, x, seen);
}

static unsigned run_mutant(const struct mutant *m, struct backend *b)
{
    static struct place first, seen;
    float x[MUTANT_N];
    struct rng_stream s;
    unsigned caught = 0;
    struct err err;
    void *dx, *dy;

    rng_stream_init(&s, 7, RNG_TEST, 0);
    for (int i = 0; i < MUTANT_N; i++)
        x[i] = (float)rng_next_normal(&s);
    assert_int_equal(backend_alloc(b, sizeof x, "x", &dx, &err), 0);
    assert_int_equal(backend_alloc(b, sizeof seen, "y", &dy, &err), 0);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        caught |= run_once(m, b, x, dx, dy, seed, &seen);
        if (seed == 0)
            first = seen;
        if (memcmp(&first, &seen, sizeof seen))
            caught |= CAUGHT_BYTES;
    }
    backend_free(b, dx);
    backend_free(b, dy);
    return caught;
}

static void test_mutants(void **state)
{
    struct backend *b;
    struct err err;
    int wrong = 0;

    (void)state;
    assert_int_equal(cuda_open(0, &b, &err), 0);
    for (int i = 0; i < n_mutants; i++) {
        const unsigned caught = run_mutant(&mutants[i], b);

        if (mutants[i].caught ? !(caught & mutants[i].caught) : caught != 0) {
            print_error("%s: caught 0x%x, want 0x%x\n", mutants[i].name, caught, mutants[i].caught);
            wrong++;
        }
    }
    backend_close(b);
    assert_int_equal(wrong, 0);
}

/* The message says what diverged, where, and that the other threads have ended. */
static void test_messages(void **state)
{
    struct backend *b;
    struct err err;

    (void)state;
    assert_int_equal(cuda_open(0, &b, &err), 0);
    for (int i = 0; i < n_mutants; i++) {
        if (strcmp(mutants[i].name, "a return before a barrier"))
            continue;
        run_mutant(&mutants[i], b);
        assert_non_null(strstr(sim_failure(), "barrier divergence"));
        assert_non_null(strstr(sim_failure(), "mutants.cc:"));
        assert_non_null(strstr(sim_failure(), "have ended"));
    }
    backend_close(b);
}

/* A child process does it, and must die by a signal. */
static void test_host_follows_device_pointer(void **state)
{
    struct backend *b;
    struct err err;
    int status;
    void *p;
    pid_t child;

    (void)state;
    assert_int_equal(cuda_open(0, &b, &err), 0);
    assert_int_equal(backend_alloc(b, 64, "x", &p, &err), 0);
    child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)p == 0 ? 0 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    backend_free(b, p);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutants),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_host_follows_device_pointer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
