/* Tests of a live history: what is heard while the disk's thread reads the past follows it, and a
 * disk that hangs costs the past alone. */
#include "../test.h"

#include <semaphore.h>

#include "base/alloc.h"
#include "folder.h"
#include "see/live.h"

#define HEADER "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n"

/* A disk whose thread waits in a task until it may go on. */
struct disk {
    struct writer *writer;
    sem_t may_go_on;
};

struct hang {
    struct task task;
    struct disk *disk;
};

static void hang_run(struct task *t)
{
    struct disk *d = ((struct hang *)t)->disk;

    while (sem_wait(&d->may_go_on) < 0)
        ;
    free(t);
}

static void disk_begin(struct disk *d)
{
    struct hang *h = xcalloc(1, sizeof *h);
    struct err err;

    *h = (struct hang){.task = {.n_bytes = sizeof *h, .run = hang_run}, .disk = d};
    assert_int_equal(sem_init(&d->may_go_on, 0, 0), 0);
    assert_int_equal(writer_new(1 << 20, &d->writer, &err), 0);
    assert_int_equal(writer_put(d->writer, &h->task), 0);
}

static void disk_end(struct disk *d)
{
    assert_int_equal(writer_free(d->writer, 60000), 0);
    sem_destroy(&d->may_go_on);
}

static void hear(struct live *l, const char *line) { live_hear(l, line, strlen(line)); }

static void hear_row(struct live *l, int step)
{
    char line[128];

    snprintf(line, sizeof line, "{\"event\":\"row\",\"step\":%d,\"loss\":%d}", step, step);
    hear(l, line);
}

static void assert_losses(struct live *l, int n, const int64_t *step)
{
    const struct history_line *line;
    struct history h;

    assert_true(live_now(l, &h));
    line = &h.line[HISTORY_TRAIN_LOSS];
    assert_int_equal(line->n, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(line->point[i].step, step[i]);
}

static void test_past_comes_first(void **state)
{
    struct history h;
    struct live *l;
    struct disk d;

    (void)state;
    write_text("metrics.csv", HEADER "10,1,10,1,1,1\n20,1,20,1,1,1\n30,1,30,1,1,1\n");
    write_text("events.jsonl", "{\"event\":\"form\",\"step\":0}\n");
    disk_begin(&d);
    l = live_new(".", d.writer);
    assert_false(live_now(l, &h));
    hear(l, "{\"event\":\"lost\",\"rank\":1}");
    hear(l, "{\"event\":\"form\",\"step\":15}"); /* the rows beyond it are gone */
    hear_row(l, 25);
    assert_false(live_now(l, &h));
    sem_post(&d.may_go_on);
    assert_int_equal(writer_flush(d.writer, 60000), 0);
    assert_losses(l, 2, (int64_t[]){10, 25});
    hear_row(l, 35);
    assert_losses(l, 3, (int64_t[]){10, 25, 35});
    assert_true(live_now(l, &h));
    assert_int_equal(h.n_marks, 1);
    assert_int_equal(history_mark_step(&h, &h.mark[0]), 15);
    live_free(l);
    disk_end(&d);
}

/* A question does not change the history: a mark whose step is not known yet gets it later. */
static void test_asking_changes_nothing(void **state)
{
    struct history h;
    struct live *l = live_new(".", NULL); /* at once */

    (void)state;
    hear_row(l, 20);
    hear(l, "{\"event\":\"lost\",\"rank\":1}");
    assert_true(live_now(l, &h));
    assert_int_equal(history_mark_step(&h, &h.mark[0]), 20);
    hear(l, "{\"event\":\"form\",\"step\":17}");
    assert_true(live_now(l, &h));
    assert_int_equal(history_mark_step(&h, &h.mark[0]), 17);
    live_free(l);
}

/* It is freed while the disk hangs, and before its past is looked at. */
static void test_ends_early(void **state)
{
    struct live *l, *other;
    struct disk d;

    (void)state;
    write_text("metrics.csv", HEADER "10,1,10,1,1,1\n");
    disk_begin(&d);
    l = live_new(".", d.writer);
    other = live_new(".", d.writer);
    hear_row(l, 5);
    live_free(l);
    sem_post(&d.may_go_on);
    assert_int_equal(writer_flush(d.writer, 60000), 0);
    live_free(other);
    live_free(NULL);
    disk_end(&d);
}

static void test_disk_hangs(void **state)
{
    struct history h;
    struct live *l;
    struct disk d;
    int n = 0;

    (void)state;
    write_text("metrics.csv", HEADER "10,1,10,1,1,1\n");
    disk_begin(&d);
    l = live_new(".", d.writer);
    while (!live_now(l, &h)) {
        hear_row(l, 100 + n++);
        assert_true(n < LIVE_HELD);
    }
    assert_true(n > 10000);
    assert_int_equal(h.last_step, 100 + n - 1);
    assert_int_equal(h.line[HISTORY_TRAIN_LOSS].point[0].least, 100); /* and not 10 */
    sem_post(&d.may_go_on);
    live_free(l);
    disk_end(&d);
}

static void test_unreadable(void **state)
{
    struct live *l;

    (void)state;
    write_text("folder", "");
    l = live_new("folder", NULL); /* ENOTDIR */
    hear_row(l, 7);
    assert_losses(l, 1, (int64_t[]){7});
    live_free(l);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_past_comes_first), TEST(test_asking_changes_nothing),
        TEST(test_ends_early),       TEST(test_disk_hangs),
        TEST(test_unreadable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
