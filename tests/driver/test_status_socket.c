/* Tests of status_socket: which processes may ask, and which answers they get; no client can hold
 * up the driver's loop. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../report/folder.h"
#include "base/util.h"
#include "driver/status_socket.h"

struct rig {
    uv_loop_t loop;
    struct status_socket *socket;
    uv_async_t stop;
    pthread_t thread;
    size_t n_bytes; /* the size of an answer */
    int n_asked;
};

static void reply(void *arg, const struct status_client *who, const char *request, struct buf *out)
{
    struct rig *r = arg;

    assert_int_equal(who->uid, getuid()); /* the test asks from this process */
    assert_int_equal(who->pid, getpid());
    r->n_asked++;
    if (!request)
        buf_printf(out, "no request ");
    else
        buf_printf(out, "answer %d to %s ", r->n_asked, request);
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

/* Set up a driver whose loop does not run, as after SIGSTOP. */
static void start_frozen(struct rig *r, const char *folder, size_t n_bytes)
{
    struct err err;

    memset(r, 0, sizeof *r);
    r->n_bytes = n_bytes;
    assert_int_equal(uv_loop_init(&r->loop), 0);
    uv_async_init(&r->loop, &r->stop, on_stop);
    r->stop.data = r;
    if (status_socket_open(&r->loop, folder, reply, r, &r->socket, &err) < 0)
        fail_msg("%s", err.msg);
}

static void thaw(struct rig *r) { assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0); }

static void start(struct rig *r, const char *folder, size_t n_bytes)
{
    start_frozen(r, folder, n_bytes);
    thaw(r);
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
    int rc = status_socket_ask(folder, "this", &out, &err);

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

    assert_int_equal(status_socket_ask(folder, "this", &out, &err), STATUS_NOBODY);
    assert_int_equal(out.len, 0);
    assert_int_equal(status_socket_find(folder, &err), STATUS_NOBODY);
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
    assert_answer(*state, "answer 1 to this ");
    assert_int_equal(status_socket_find(*state, &(struct err){0}), 0);
    assert_answer(*state, "answer 2 to this ");
    stop(&r);
    assert_int_equal(r.n_asked, 2);                    /* to look for it is not to ask */
    assert_int_equal(access("status.sock", F_OK), -1); /* the driver's end removes the socket */
    assert_nobody(*state);
}

/* A driver that has taken the run over is still found when the one before it ends. */
static void another_drivers_socket_stays(void **state)
{
    struct rig before, after;

    start(&before, *state, 10);
    start(&after, *state, 10);
    stop(&before);
    assert_answer(*state, "answer 1 to this ");
    stop(&after);
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

/* A killed driver leaves its socket behind; the next driver replaces it. */
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

static int connect_and_ask(void)
{
    int fd = connect_only();

    assert_int_equal(send(fd, "this\n", 5, MSG_NOSIGNAL), 5);
    return fd;
}

/* ---- bytes that are no request ---- */

/* Read all that the driver sends, until the connection ends or breaks. */
static void read_answer(int fd, char out[64])
{
    size_t len = 0;
    ssize_t n;

    while (len < 63 && (n = read(fd, out + len, 63 - len)) > 0)
        len += (size_t)n;
    out[len] = '\0';
    close(fd);
}

static void assert_replied(int fd, const char *want)
{
    char got[64];

    read_answer(fd, got);
    if (!*want && *got)
        fail_msg("\"%s\" came, want nothing", got);
    if (strncmp(got, want, strlen(want)) != 0)
        fail_msg("\"%s\" came, want \"%s\"", got, want);
}

static void send_all(int fd, const void *bytes, size_t n)
{
    if (send(fd, bytes, n, MSG_NOSIGNAL) < 0)
        assert_true(errno == EPIPE || errno == ECONNRESET); /* the driver has stopped reading */
}

static void what_is_no_request_is_answered_too(void **state)
{
    static const char *const bad[] = {"a\tb\n",   "\x01\n",     "caf\xc3\xa9\n", "\xff\xfe\n",
                                      "one\ntwo", "one\ntwo\n", "\n\n",          "\r\n"};
    char nul[] = "th\0is\n", longest[STATUS_REQUEST + 2], endless[100000];
    struct rig r;
    int fd;

    start(&r, *state, 10);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        fd = connect_only();
        send_all(fd, bad[i], strlen(bad[i]));
        assert_replied(fd, "no request ");
    }
    fd = connect_only();
    send_all(fd, nul, sizeof nul - 1);
    assert_replied(fd, "no request ");
    memset(endless, 'x', sizeof endless); /* a line that does not end */
    fd = connect_only();
    send_all(fd, endless, sizeof endless);
    assert_replied(fd, "no request ");
    fd = connect_only(); /* a request that is cut off */
    send_all(fd, "thi", 3);
    shutdown(fd, SHUT_WR);
    assert_replied(fd, "no request ");
    fd = connect_only(); /* a client that only looks whether there is a driver */
    shutdown(fd, SHUT_WR);
    assert_replied(fd, "");
    assert_answer(*state, "answer 12 to this ");

    memset(longest, 'x', sizeof longest);
    longest[STATUS_REQUEST] = '\n';
    fd = connect_only();
    send_all(fd, longest, STATUS_REQUEST + 1);
    assert_replied(fd, "answer 13 to xxxxxx");
    fd = connect_only(); /* a byte more */
    longest[STATUS_REQUEST] = 'x';
    send_all(fd, longest, STATUS_REQUEST + 1);
    assert_replied(fd, "no request ");
    stop(&r);
}

/* A line may come in pieces. */
static void a_request_is_put_together(void **state)
{
    struct rig r;
    int fd;

    start(&r, *state, 10);
    fd = connect_only();
    for (const char *c = "dr ain\n"; *c; c++) {
        send_all(fd, c, 1);
        assert_answer(*state, "answer ");
    }
    assert_replied(fd, "answer 7 to dr ain ");
    stop(&r);
}

/* Whatever the bytes are, they get an answer, and so does the next client. */
static void noise_is_answered(void **state)
{
    enum { ROUNDS = 300, MOST = 2 * STATUS_REQUEST };
    unsigned seed = 1;
    char noise[MOST], got[64];
    struct rig r;

    start(&r, *state, 10);
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = 1 + (size_t)rand_r(&seed) % (MOST - 1);
        int fd = connect_only();

        for (size_t k = 0; k < n; k++)
            noise[k] = (char)(i % 2 ? rand_r(&seed) : ' ' + rand_r(&seed) % 96);
        send_all(fd, noise, n);
        shutdown(fd, SHUT_WR);
        read_answer(fd, got);
        assert_true(!strncmp(got, "no request ", 11) || !strncmp(got, "answer ", 7));
    }
    assert_answer(*state, "answer ");
    stop(&r);
}

/* ---- clients that misbehave ---- */

/* Clients do not read their answers, which are far larger than a socket's buffer. */
static void who_does_not_read_holds_up_nobody(void **state)
{
    enum { SILENT = STATUS_CLIENTS / 2, BIG = 4 << 20 };
    int fd[SILENT];
    struct rig r;

    start(&r, *state, BIG);
    for (int i = 0; i < SILENT; i++)
        fd[i] = i % 2 ? connect_and_ask() : connect_only(); /* half of them do not even ask */
    assert_answer(*state, "answer ");
    assert_answer(*state, "answer ");
    for (int i = 0; i < SILENT; i++)
        close(fd[i]);
    assert_answer(*state, "answer ");
    fd[0] = connect_and_ask(); /* this client is still connected when the driver ends */
    stop(&r);
    close(fd[0]);
}

/* A request that was reported as failed is not carried out when the driver wakes up. */
static void who_lost_patience_is_not_served(void **state)
{
    struct rig r;

    start_frozen(&r, *state, 10);
    close(connect_and_ask());
    thaw(&r);
    assert_answer(*state, "answer 1 to this ");
    stop(&r);
    assert_int_equal(r.n_asked, 1);
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
        send_all(fd[i], "this\n", 5);
    for (int i = 0; i < ALL; i++)
        n_empty += recv(fd[i], &byte, 1, 0) <= 0;
    assert_int_equal(n_empty, ALL - STATUS_CLIENTS);
    for (int i = 0; i < ALL; i++)
        close(fd[i]);
    stop(&r);
}

/* The driver's loop does not run, as after SIGSTOP: asking ends all the same. */
static void a_driver_that_is_stopped_is_told(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "status.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct buf out = {0};
    struct err err;

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(status_socket_ask(*state, "this", &out, &err), ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "does not answer"));
    close(fd);
    assert_int_equal(status_socket_ask("/proc/none", "this", &out, &err), ERR_IO);
}

/* Stop this whole process for a moment.  A child wakes it again, because a stopped process cannot
 * wake itself; then the driver answers. */
static void *stop_all_of_us(void *rig)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    int status;
    const pid_t us = getpid(), child = fork();

    for (int i = 0; child == 0 && i < 6; i++) {
        nanosleep(&moment, NULL);
        kill(us, i % 2 ? SIGCONT : SIGSTOP);
    }
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, &status, 0), child);
    thaw(rig);
    return NULL;
}

static void who_is_stopped_while_asking_waits_on(void **state)
{
    pthread_t stopping;
    struct rig r;

    start_frozen(&r, *state, 10);
    assert_int_equal(pthread_create(&stopping, NULL, stop_all_of_us, &r), 0);
    assert_answer(*state, "answer 1 to this ");
    pthread_join(stopping, NULL);
    stop(&r);
}

#define FOLDER_TEST(t) cmocka_unit_test_setup_teardown(t, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(who_asks_is_answered),
        FOLDER_TEST(another_drivers_socket_stays),
        FOLDER_TEST(a_folder_may_have_a_long_path),
        FOLDER_TEST(what_is_left_over_is_replaced),
        FOLDER_TEST(what_is_no_request_is_answered_too),
        FOLDER_TEST(a_request_is_put_together),
        FOLDER_TEST(noise_is_answered),
        FOLDER_TEST(who_does_not_read_holds_up_nobody),
        FOLDER_TEST(who_lost_patience_is_not_served),
        FOLDER_TEST(too_many_at_once_are_turned_away),
        FOLDER_TEST(a_driver_that_is_stopped_is_told),
        FOLDER_TEST(who_is_stopped_while_asking_waits_on),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
