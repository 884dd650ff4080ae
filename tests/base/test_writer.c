/* Tests of writer: tasks run in order, in another thread; the queue is bounded; a task that hangs
 * holds up no caller. */
#include "../test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/writer.h"

enum { SHORT_MS = 20, LONG_MS = 60000 };

/* A task that waits for a byte in a pipe, or just notes its number. */
struct job {
    struct task task;
    int number, pipe;
};

static int ran[4096];
static atomic_int n_ran;
static pthread_t ran_in;

static void run(struct task *t)
{
    struct job *j = container_of(t, struct job, task);
    char byte;

    if (j->pipe >= 0)
        assert_int_equal(read(j->pipe, &byte, 1), 1);
    ran_in = pthread_self();
    ran[n_ran] = j->number;
    n_ran++;
    free(j);
}

static struct job *new_job(int number, size_t n_bytes, int pipe)
{
    struct job *j = xmalloc(sizeof *j);

    *j = (struct job){.task = {.n_bytes = n_bytes, .run = run}, .number = number, .pipe = pipe};
    return j;
}

static int put(struct writer *w, int number, size_t n_bytes, int pipe)
{
    struct job *j = new_job(number, n_bytes, pipe);
    int rc = writer_put(w, &j->task);

    if (rc != 0)
        free(j);
    return rc;
}

static struct writer *new_writer(size_t most_bytes)
{
    struct writer *w;
    struct err err;

    n_ran = 0;
    assert_int_equal(writer_new(most_bytes, &w, &err), 0);
    return w;
}

static void in_order_and_elsewhere(void **state)
{
    struct writer *w = new_writer(1 << 20);

    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(put(w, i, 1, -1), 0);
    assert_int_equal(writer_flush(w, LONG_MS), 0);
    assert_int_equal(n_ran, 1000);
    assert_false(pthread_equal(ran_in, pthread_self()));
    assert_false(writer_is_behind(w));
    assert_true(writer_busy_s(w) == 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(ran[i], i);
    for (int i = 0; i < 10; i++)
        assert_int_equal(put(w, i, 1, -1), 0);
    assert_int_equal(writer_free(w, LONG_MS), 0); /* does what is queued */
    assert_int_equal(n_ran, 1010);
}

static void wait_busy(struct writer *w)
{
    while (writer_busy_s(w) == 0)
        sched_yield();
}

/* While the first task hangs, the bound counts, and no caller waits longer than its own deadline.
 */
static void bounded_while_it_hangs(void **state)
{
    struct writer *w = new_writer(10000);
    int pipes[2], n = 0;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(put(w, -1, 20000, pipes[0]), 0); /* too large, but it is the only one */
    wait_busy(w);
    assert_int_equal(put(w, 0, 1, -1), WRITER_FULL);
    assert_int_equal(writer_flush(w, SHORT_MS), WRITER_LATE);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(writer_flush(w, LONG_MS), 0);
    assert_int_equal(put(w, -1, 1, pipes[0]), 0);
    wait_busy(w);
    while (put(w, n, 1000, -1) == 0)
        n++;
    assert_in_range(n, 5, 9); /* of 1000 bytes and their own cost, in 10000 */
    assert_true(writer_is_behind(w));
    assert_int_equal(writer_flush(w, SHORT_MS), WRITER_LATE);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(writer_flush(w, LONG_MS), 0);
    assert_int_equal(put(w, n, 1000, -1), 0); /* there is room again */
    assert_int_equal(writer_free(w, LONG_MS), 0);
    for (int i = 0; i <= n; i++)
        assert_int_equal(ran[2 + i], i);
    close(pipes[0]);
    close(pipes[1]);
}

/* A flush waits for what was put before it, and not for what comes later. */
static void flush_of_what_was_before(void **state)
{
    struct writer *w = new_writer(1 << 20);
    int pipes[2];

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(put(w, i, 1, -1), 0);
    assert_int_equal(writer_flush(w, LONG_MS), 0);
    assert_int_equal(n_ran, 100);
    assert_int_equal(put(w, 100, 1, pipes[0]), 0);
    assert_int_equal(writer_flush(w, SHORT_MS), WRITER_LATE);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(writer_free(w, LONG_MS), 0);
    close(pipes[0]);
    close(pipes[1]);
}

/* A writer whose thread hangs is left behind, and can still be freed when it goes on. */
static void left_behind(void **state)
{
    struct writer *w = new_writer(1 << 20);
    int64_t start_ns = clock_mono_ns();
    int pipes[2];

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(put(w, 0, 1, pipes[0]), 0);
    assert_int_equal(writer_flush(w, SHORT_MS), WRITER_LATE);
    assert_true(clock_since_s(start_ns) >= 1e-3 * SHORT_MS);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(writer_free(w, LONG_MS), 0);
    assert_int_equal(n_ran, 1);
    close(pipes[0]);
    close(pipes[1]);
}

static void without_a_writer(void **state)
{
    (void)state;
    n_ran = 0;
    assert_int_equal(put(NULL, 7, 1, -1), 0);
    assert_int_equal(n_ran, 1);
    assert_true(pthread_equal(ran_in, pthread_self()));
    assert_int_equal(writer_flush(NULL, LONG_MS), 0);
    assert_int_equal(writer_free(NULL, LONG_MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_and_elsewhere),   cmocka_unit_test(bounded_while_it_hangs),
        cmocka_unit_test(flush_of_what_was_before), cmocka_unit_test(left_behind),
        cmocka_unit_test(without_a_writer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
