/* Tests of a run's disk: while a write takes its time, the queue has room for an event of each
 * rank, as all ranks may join at once. */
#include "../test.h"

#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/util.h"
#include "daemon/disk.h"

enum { RANKS = 100000, EVENT_BYTES = 512 };

struct write_task {
    struct task task;
    int pipe; /* where it waits for a byte, or -1 */
};

static void write_slowly(struct task *t)
{
    struct write_task *w = container_of(t, struct write_task, task);
    char byte;

    if (w->pipe >= 0)
        assert_int_equal(read(w->pipe, &byte, 1), 1);
    free(w);
}

static int put_write(struct disk *d, int pipe)
{
    struct write_task *w = xmalloc(sizeof *w);
    int rc;

    *w = (struct write_task){.task = {.n_bytes = EVENT_BYTES, .run = write_slowly}, .pipe = pipe};
    rc = writer_put(d->writer, &w->task);
    if (rc != 0)
        free(w);
    return rc;
}

static void test_room_for_all(void **state)
{
    struct disk d = {0};
    struct err err;
    uv_loop_t loop;
    int ends[2], n_refused = 0;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(disk_open(&d, &loop, RANKS, &err), 0);
    assert_int_equal(put_write(&d, ends[0]), 0);
    for (int i = 0; i < RANKS; i++)
        n_refused += put_write(&d, -1) != 0;
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(disk_flush(&d), 0);
    assert_int_equal(n_refused, 0);
    disk_close(&d);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room_for_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
