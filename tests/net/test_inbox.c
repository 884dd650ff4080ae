/* Tests of inbox: the mail of several threads reaches the loop, none is lost, each thread's in its
 * order; unread mail is freed. */
#include "../test.h"

#include <pthread.h>

#include "base/alloc.h"
#include "fixture.h"
#include "net/inbox.h"

enum { N_WRITERS = 3, N_EACH = 5000 };

struct note {
    struct mail mail; /* first */
    int writer, number;
};

struct reader {
    int next[N_WRITERS]; /* the next number expected of each writer */
    int n, is_done;
};

struct writer {
    struct mailbox *box;
    int index;
    pthread_t thread;
};

static void on_mail(void *arg, struct mail *m)
{
    struct reader *r = arg;
    struct note *note = container_of(m, struct note, mail);

    assert_int_equal(note->number, r->next[note->writer]++);
    r->is_done = ++r->n == N_WRITERS * N_EACH;
    free(note);
}

static void free_note(struct mail *m) { free(container_of(m, struct note, mail)); }

static struct mail *new_note(int writer, int number)
{
    struct note *note = xcalloc(1, sizeof *note);

    note->writer = writer;
    note->number = number;
    return &note->mail;
}

static void put(struct mailbox *box, int writer, int number)
{
    mailbox_put(box, new_note(writer, number));
}

static void leave(struct mailbox *box, int writer, int number)
{
    mailbox_leave(box, new_note(writer, number));
}

static void *write_notes(void *arg)
{
    struct writer *w = arg;

    for (int i = 0; i < N_EACH; i++)
        put(w->box, w->index, i);
    return NULL;
}

static void test_all_in_order(void **state)
{
    struct inbox b;
    struct reader r = {0};
    struct writer w[N_WRITERS];

    inbox_init(&b, *state, on_mail, free_note, &r);
    for (int i = 0; i < N_WRITERS; i++) {
        w[i] = (struct writer){.box = &b.box, .index = i};
        pthread_create(&w[i].thread, NULL, write_notes, &w[i]);
    }
    run_until(*state, &r.is_done);
    for (int i = 0; i < N_WRITERS; i++)
        pthread_join(w[i].thread, NULL);
    leave(&b.box, 0, N_EACH); /* the loop does not wake for it, and finds it when it looks */
    uv_run(*state, UV_RUN_NOWAIT);
    assert_int_equal(r.n, N_WRITERS * N_EACH);
    inbox_look(&b);
    assert_int_equal(r.n, N_WRITERS * N_EACH + 1);
    put(&b.box, 0, N_EACH); /* unread mail is freed by dropping it, and by closing */
    inbox_drop(&b);
    put(&b.box, 0, N_EACH);
    inbox_close(&b);
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(r.n, N_WRITERS * N_EACH + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_in_order, loop_setup, loop_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
