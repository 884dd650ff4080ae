/* loader: its thread waits for the data set, for room, or for work, while it is asked for a batch,
 * is started anew, or is freed. */
#include "../test.h"

#include <pthread.h>
#include <semaphore.h>

#include "data/loader.h"
#include "number_set.h"

/* A loader whose thread begins to read, and goes on when it is let go. */
struct held {
    sem_t started, go_on;
    struct fake fake;
    struct loader *l;
    pthread_t thread;
};

static void held_new(struct held *h)
{
    *h = (struct held){.fake = FAKE};
    sem_init(&h->started, 0, 0);
    sem_init(&h->go_on, 0, 0);
    h->fake.started = &h->started;
    h->fake.go_on = &h->go_on;
    h->l = new_loader(&h->fake, 8, 0);
}

static void *let_go_main(void *arg)
{
    struct held *h = arg;

    sem_wait(&h->started);
    for (int i = 0; i < 1000; i++)
        sem_post(&h->go_on);
    return NULL;
}

static void let_go(struct held *h) { pthread_create(&h->thread, NULL, let_go_main, h); }

static void held_free(struct held *h)
{
    loader_free(h->l);
    sem_destroy(&h->go_on);
    sem_destroy(&h->started);
}

/* The engine sleeps until the batch is there. */
static void next_waits_for_the_batch(void **state)
{
    const struct sampler s = {.n_samples = N, .global_batch = 8, .seed = SEED};
    struct held h;

    (void)state;
    held_new(&h);
    start_ok(h.l, &s, 1, 1, 0, 0, 1);
    let_go(&h);
    check_batch(next_ok(h.l), &s, 0, 1, 0, 1, 0);
    pthread_join(h.thread, NULL);
    held_free(&h);
}

/* A batch that is not filled within the limit is late; nothing is taken, and it comes later. */
static void a_batch_may_be_late(void **state)
{
    const struct sampler s = {.n_samples = N, .global_batch = 8, .seed = SEED};
    const struct batch *b;
    struct held h;
    struct err err;

    (void)state;
    held_new(&h);
    start_ok(h.l, &s, 1, 1, 0, 0, 1);
    assert_int_equal(loader_next_within(h.l, 0, &b, &err), LOADER_LATE);
    assert_int_equal(loader_next_within(h.l, 1000000, &b, &err), LOADER_LATE);
    let_go(&h);
    assert_int_equal(loader_next_within(h.l, INT64_C(3600) * 1000000000, &b, &err), 0);
    check_batch(b, &s, 0, 1, 0, 1, 0);
    assert_int_equal(loader_next_within(h.l, 0, &b, &err), LOADER_END);
    pthread_join(h.thread, NULL);
    held_free(&h);
}

/* A start while a batch is being filled waits for it, and none of the old work is seen. */
static void a_start_drops_the_batch_being_filled(void **state)
{
    const struct sampler s = {.n_samples = N, .global_batch = 8, .seed = SEED};
    struct held h;

    (void)state;
    held_new(&h);
    start_ok(h.l, &s, 1, 2, 0, 0, 50);
    let_go(&h);
    start_ok(h.l, &s, 1, 2, 1, 20, 22);
    pthread_join(h.thread, NULL);
    for (int64_t step = 20; step < 22; step++)
        check_batch(next_ok(h.l), &s, step, 2, 1, 1, 0);
    expect_end(h.l);
    held_free(&h);
}

/* Freed with the ring full and the thread asleep, with batches held, at once, and without work. */
static void free_returns_in_any_state(void **state)
{
    const struct sampler s = {.n_samples = N, .global_batch = 8, .seed = SEED};
    struct fake f = FAKE;

    (void)state;
    for (int i = 0; i < 200; i++) {
        struct loader *l = new_loader(&f, 8, 2 + i % 3);

        if (i % 4) {
            start_ok(l, &s, 1, 1, 0, 0, 1000000);
            for (int k = 1; k < i % 4; k++)
                next_ok(l);
        }
        loader_free(l);
    }
    loader_free(NULL);
}

static void restarts_race_with_filling(void **state)
{
    struct fake f = FAKE;
    struct loader *l = new_loader(&f, 0, 2);
    struct err err;

    (void)state;
    for (int i = 0; i < 500; i++) {
        const struct sampler s = {.n_samples = N, .global_batch = 1 + i % 50, .seed = SEED};

        start_ok(l, &s, 1, 3, i % 3, i, i + 40);
        for (int k = 0; k < i % 5; k++) {
            check_batch(next_ok(l), &s, i + k, 3, i % 3, 1, 0);
            if (k < i % 5 - 1)
                loader_release(l); /* the last one is still held at the next start */
        }
        if (i % 7 == 0)
            assert_int_equal(loader_start_pass(l, 16, 1, 2, 1, &err), 0);
    }
    loader_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_waits_for_the_batch),
        cmocka_unit_test(a_batch_may_be_late),
        cmocka_unit_test(a_start_drops_the_batch_being_filled),
        cmocka_unit_test(free_returns_in_any_state),
        cmocka_unit_test(restarts_race_with_filling),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
