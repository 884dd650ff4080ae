/* Tests of mailbox: no mail is lost or read twice, each writer's order is kept, and a sleeping
 * reader wakes. */
#include "../test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/mailbox.h"

struct note {
    struct mail mail;
    int writer, number;
};

static struct mail *note_new(int writer, int number)
{
    struct note *n = xmalloc(sizeof *n);

    n->writer = writer;
    n->number = number;
    return &n->mail;
}

static int n_freed;

static void note_free(struct mail *m)
{
    n_freed++;
    free(container_of(m, struct note, mail));
}

static void first_in_first_out(void **state)
{
    struct mailbox m;

    (void)state;
    mailbox_init(&m, NULL, NULL);
    assert_null(mailbox_take(&m));
    for (int round = 0; round < 3; round++) { /* each round empties the queue: the tail follows */
        for (int i = 0; i < 5; i++)
            mailbox_put(&m, note_new(0, i));
        for (int i = 0; i < 5; i++) {
            struct mail *got = i % 2 ? mailbox_take(&m) : mailbox_wait(&m);

            assert_int_equal(container_of(got, struct note, mail)->number, i);
            note_free(got);
        }
        assert_null(mailbox_take(&m));
    }
    mailbox_fini(&m, note_free);
}

static void fini_frees_what_is_left(void **state)
{
    struct mailbox m;

    (void)state;
    mailbox_init(&m, NULL, NULL);
    for (int i = 0; i < 7; i++)
        mailbox_put(&m, note_new(0, i));
    note_free(mailbox_take(&m));
    n_freed = 0;
    mailbox_fini(&m, note_free);
    assert_int_equal(n_freed, 6);
}

enum { WRITERS = 4, EACH = 5000 };

struct writer {
    struct mailbox *box;
    int number;
};

static void *write_notes(void *arg)
{
    struct writer *w = arg;

    for (int i = 0; i < EACH; i++)
        mailbox_put(w->box, note_new(w->number, i));
    return NULL;
}

static void start_writers(pthread_t thread[WRITERS], struct writer w[WRITERS], struct mailbox *box)
{
    for (int i = 0; i < WRITERS; i++) {
        w[i] = (struct writer){box, i};
        assert_int_equal(pthread_create(&thread[i], NULL, write_notes, &w[i]), 0);
    }
}

/* Check one note: each writer's notes arrive in their order. */
static void check_note(struct mail *got, int next[WRITERS])
{
    struct note *n = container_of(got, struct note, mail);

    assert_int_equal(n->number, next[n->writer]);
    next[n->writer]++;
    note_free(got);
}

static void a_waiting_reader_gets_all_in_order(void **state)
{
    struct mailbox m;
    pthread_t thread[WRITERS];
    struct writer w[WRITERS];
    int next[WRITERS] = {0};

    (void)state;
    mailbox_init(&m, NULL, NULL);
    start_writers(thread, w, &m);
    for (int i = 0; i < WRITERS * EACH; i++)
        check_note(mailbox_wait(&m), next);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(next[i], EACH);
    }
    assert_null(mailbox_take(&m));
    mailbox_fini(&m, note_free);
}

static void count_wake(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

/* When a put returns, its wake was called, and at the wake the mail was there. */
static void every_put_wakes_after_the_mail_is_in(void **state)
{
    struct mailbox m;
    pthread_t thread[WRITERS];
    struct writer w[WRITERS];
    int next[WRITERS] = {0};
    atomic_int wakes = 0;
    struct mail *got;

    (void)state;
    mailbox_init(&m, count_wake, &wakes);
    start_writers(thread, w, &m);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&wakes), WRITERS * EACH);
    while ((got = mailbox_take(&m)))
        check_note(got, next);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(next[i], EACH);
    mailbox_fini(&m, note_free);
}

/* Mail that is left wakes nobody, and is read before the mail that wakes. */
static void left_mail_comes_with_the_next(void **state)
{
    struct mailbox m;
    atomic_int wakes = 0;
    struct mail *got;

    (void)state;
    mailbox_init(&m, count_wake, &wakes);
    for (int i = 0; i < 3; i++)
        mailbox_leave(&m, note_new(0, i));
    assert_int_equal(atomic_load(&wakes), 0);
    mailbox_put(&m, note_new(0, 3));
    assert_int_equal(atomic_load(&wakes), 1);
    for (int i = 0; (got = mailbox_take(&m)) || i < 4; i++) {
        assert_int_equal(container_of(got, struct note, mail)->number, i);
        note_free(got);
    }
    mailbox_leave(&m, note_new(0, 4));
    note_free(mailbox_take(&m)); /* a reader that looks finds it alone, too */
    mailbox_fini(&m, note_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_first_out),
        cmocka_unit_test(left_mail_comes_with_the_next),
        cmocka_unit_test(fini_frees_what_is_left),
        cmocka_unit_test(a_waiting_reader_gets_all_in_order),
        cmocka_unit_test(every_put_wakes_after_the_mail_is_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
