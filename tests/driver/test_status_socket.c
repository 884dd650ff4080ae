/* status_socket: who may ask, who is answered, and that nobody holds up the loop. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../report/folder.h"
#include "base/alloc.h"
#include "driver/status_socket.h"

struct rig {
    uv_loop_t loop;
    struct status_socket *socket;
    uv_async_t stop;
    pthread_t thread;
    size_t n_bytes; /* sent to each client */
    int n_asked;
};

static void describe(void *arg, struct buf *out)
{
    struct rig *r = arg;

    r->n_asked++;
    buf_printf(out, "answer %d ", r->n_asked);
    while (out->len < r->n_bytes)
        buf_append(out, "................", 16);
}

static void on_stop(uv_async_t *a)
{
    struct rig *r = a->data;

    status_socket_close(r->socket);
    uv_close((uv_handle_t *)a, NULL);
}

static void *run(void *arg)
{
    uv_run(&((struct rig *)arg)->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* A driver's loop, on a thread. */
static void start(struct rig *r, const char *folder, size_t n_bytes)
{
    struct err err;

    memset(r, 0, sizeof *r);
    r->n_bytes = n_bytes;
    assert_int_equal(uv_loop_init(&r->loop), 0);
    uv_async_init(&r->loop, &r->stop, on_stop);
    r->stop.data = r;
    if (status_socket_open(&r->loop, folder, describe, r, &r->socket, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
}

static void stop(struct rig *r)
{
    uv_async_send(&r->stop);
    pthread_join(r->thread, NULL);
    assert_int_equal(uv_loop_close(&r->loop), 0);
}

static void assert_answer(const char *folder, const char *want)
{
    struct buf out = {0};
    struct err err;
    int rc = status_socket_ask(folder, &out, &err);

    if (rc < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(rc, 0);
    assert_true(strncmp(buf_cstr(&out), want, strlen(want)) == 0);
    buf_fini(&out);
}

static void assert_nobody(const char *folder)
{
    struct buf out = {0};
    struct err err;

    assert_int_equal(status_socket_ask(folder, &out, &err), STATUS_NOBODY);
    assert_int_equal(out.len, 0);
}

static void who_asks_is_answered(void **state)
{
    struct rig r;
    struct stat st;

    assert_nobody(*state);
    umask(0);
    start(&r, *state, 10);
    assert_int_equal(stat("status.sock", &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_answer(*state, "answer 1 ");
    assert_answer(*state, "answer 2 ");
    stop(&r);
    assert_int_equal(access("status.sock", F_OK), -1); /* it is gone with its driver */
    assert_nobody(*state);
}

static void a_folder_may_have_a_long_path(void **state)
{
    char part[201], path[4096];
    struct rig r;

    memset(part, 'x', 200);
    part[200] = '\0';
    snprintf(path, sizeof path, "%s/%s", (char *)*state, part);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_true(strlen(path) > sizeof(((struct sockaddr_un *)0)->sun_path));
    start(&r, path, 10);
    assert_answer(path, "answer 1 ");
    stop(&r);
    assert_int_equal(rmdir(path), 0);
}

/* As a driver leaves it that was killed. */
static void what_is_left_over_is_replaced(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "status.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct rig r;

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    assert_int_equal(access("status.sock", F_OK), 0);
    assert_nobody(*state);
    start(&r, *state, 10);
    assert_answer(*state, "answer 1 ");
    stop(&r);
}

static int connect_only(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "status.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* Far more than a socket holds is on its way to those who do not read it. */
static void who_does_not_read_holds_up_nobody(void **state)
{
    enum { SILENT = STATUS_CLIENTS / 2, BIG = 4 << 20 };
    int fd[SILENT];
    struct rig r;

    start(&r, *state, BIG);
    for (int i = 0; i < SILENT; i++)
        fd[i] = connect_only();
    assert_answer(*state, "answer ");
    assert_answer(*state, "answer ");
    for (int i = 0; i < SILENT; i++)
        close(fd[i]);
    assert_answer(*state, "answer ");
    fd[0] = connect_only(); /* one is there when the driver ends */
    stop(&r);
    close(fd[0]);
}

static void too_many_at_once_are_turned_away(void **state)
{
    enum { ALL = STATUS_CLIENTS + 4 };
    int fd[ALL], n_empty = 0;
    struct rig r;
    char byte;

    start(&r, *state, 4 << 20);
    for (int i = 0; i < ALL; i++)
        fd[i] = connect_only();
    for (int i = 0; i < ALL; i++)
        n_empty += recv(fd[i], &byte, 1, 0) <= 0;
    assert_int_equal(n_empty, ALL - STATUS_CLIENTS);
    for (int i = 0; i < ALL; i++)
        close(fd[i]);
    stop(&r);
}

/* Its loop stands still, as by SIGSTOP: asking ends all the same. */
static void a_driver_that_is_stopped_is_told(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "status.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct buf out = {0};
    struct err err;

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(status_socket_ask(*state, &out, &err), ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "does not answer"));
    close(fd);
    assert_int_equal(status_socket_ask("/proc/none", &out, &err), ERR_IO);
}

#define FOLDER_TEST(t) cmocka_unit_test_setup_teardown(t, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(who_asks_is_answered),
        FOLDER_TEST(a_folder_may_have_a_long_path),
        FOLDER_TEST(what_is_left_over_is_replaced),
        FOLDER_TEST(who_does_not_read_holds_up_nobody),
        FOLDER_TEST(too_many_at_once_are_turned_away),
        FOLDER_TEST(a_driver_that_is_stopped_is_told),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
