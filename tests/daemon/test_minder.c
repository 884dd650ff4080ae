/* Tests of minder: a signal ends a child at every moment of its life, and a child inherits no
 * descriptor that is not meant for it. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "daemon/minder.h"
#include "session/action.h"

enum { ROUNDS = 200, PATIENCE_MS = 30000 };

static volatile sig_atomic_t *n_handled; /* in memory that children share */

static void count(int number)
{
    (void)number;
    ++*n_handled;
}

static void start_sleeper(struct minder *m)
{
    struct minder_command c = {.n = 0};
    const struct minder_order order = {
        .command = &c, .role = {MINDER_AGENT, 1}, .death_signal = SIGKILL};
    struct err err;

    minder_add(&c, "/bin/sleep", "600");
    assert_int_equal(minder_start(m, &order, 0, &err), 0);
}

/* Wait until a child has ended.  Returns how, as minder_reap does; 0: it does not end. */
static int reap(struct minder *m, int *status)
{
    char text[64];
    int tag, how = 0;

    for (int ms = 0; ms < PATIENCE_MS && how == 0; ms++) {
        how = minder_reap(m, &tag, text, status);
        if (how == 0)
            usleep(1000);
    }
    return how;
}

/* The child may not have come to its exec yet: then the handler of this process must not take the
 * signal for it. */
static void test_signal_at_once(void **state)
{
    struct minder m = {0};

    (void)state;
    n_handled =
        mmap(NULL, sizeof *n_handled, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(n_handled, MAP_FAILED);
    signal(SIGTERM, count);
    for (int i = 0; i < ROUNDS; i++) {
        start_sleeper(&m);
        minder_signal(&m, SIGTERM);
        minder_wait(&m, PATIENCE_MS);
        assert_int_equal(minder_n_running(&m), 0);
    }
    assert_int_equal(*n_handled, 0);
    signal(SIGTERM, SIG_DFL);
    minder_end(&m, 0, 0);
    munmap((void *)(uintptr_t)n_handled, sizeof *n_handled);
}

/* Only the signals that the parent had blocked are blocked once a child has been started. */
static void test_parent_keeps_its_signals(void **state)
{
    struct minder m = {0};
    sigset_t before, one, after;

    (void)state;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    sigemptyset(&after);
    sigprocmask(SIG_SETMASK, &one, &before);
    start_sleeper(&m);
    sigprocmask(SIG_SETMASK, &before, &after);
    for (int number = 1; number < NSIG; number++)
        assert_int_equal(sigismember(&after, number), number == SIGUSR2);
    minder_end(&m, 0, 1);
}

/* A child that does not catch a signal to stop has the status of one that does. */
static void test_status_of_signals(void **state)
{
    static const struct {
        int number, status;
    } cases[] = {{SIGTERM, STATUS_STOPPED},
                 {SIGINT, STATUS_STOPPED},
                 {SIGHUP, STATUS_STOPPED},
                 {SIGKILL, STATUS_FAILED},
                 {SIGSEGV, STATUS_FAILED}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct minder m = {0};
        int status;

        signal(cases[i].number, SIG_DFL); /* nohup ignores SIGHUP, and so would the child */
        start_sleeper(&m);
        minder_signal(&m, cases[i].number);
        assert_int_equal(reap(&m, &status), 2);
        assert_int_equal(status, cases[i].status);
        minder_end(&m, 0, 1);
    }
}

/* Between fork and exec the child opens a file of its own; it closes by exec. */
static void test_no_file_is_left_open(void **state)
{
    struct minder m = {0};
    struct minder_command c = {.n = 0};
    const struct minder_order order = {
        .command = &c, .role = {MINDER_AGENT, 1}, .death_signal = SIGKILL};
    const int next = dup(STDIN_FILENO); /* the lowest number that is free */
    char command[64];
    int status;
    struct err err;

    (void)state;
    close(next);
    snprintf(command, sizeof command, "test ! -e /proc/$$/fd/%d", next);
    minder_add(&c, "/bin/sh", NULL);
    minder_add(&c, "-c", command);
    assert_int_equal(minder_start(&m, &order, 0, &err), 0);
    assert_int_equal(reap(&m, &status), 1);
    assert_int_equal(status, 0);
    minder_end(&m, 0, 1);
}

/* Run a script that a minder starts with `word` as its $1.  Returns its exit status. */
static int status_of_script(const char *script, const char *word)
{
    struct minder m = {0};
    struct minder_command c = {.n = 0};
    const struct minder_order order = {
        .command = &c, .role = {MINDER_AGENT, 1}, .death_signal = SIGKILL};
    int status = -1;
    struct err err;

    minder_add(&c, "/bin/sh", NULL);
    minder_add(&c, "-c", script);
    minder_add(&c, "sh", word);
    if (minder_start(&m, &order, 0, &err) == 0)
        reap(&m, &status);
    minder_end(&m, 0, 1);
    return status;
}

/* A descriptor without FD_CLOEXEC, as a library's socket, is not the child's, even at a high
 * number. One that an argument names is.  Returns 1 if that is so. */
static int inherits_what_is_named(void)
{
    static const char absent[] = "test ! -e /proc/$$/fd/$1", there[] = "test -r \"$1\"";
    const int low = dup(STDERR_FILENO), high = fcntl(low, F_DUPFD, low + 500);
    char number[16], path[40], beside[40];
    int is_so = 1;

    snprintf(number, sizeof number, "%d", low);
    is_so &= status_of_script(absent, number) == 0;
    snprintf(number, sizeof number, "%d", high);
    is_so &= status_of_script(absent, number) == 0;
    snprintf(path, sizeof path, "/dev/fd/%d", high);
    is_so &= status_of_script(there, path) == 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", low);
    is_so &= status_of_script(there, path) == 0;
    snprintf(beside, sizeof beside, "/dev/fd/%d.", high); /* names none */
    is_so &= status_of_script("test ! -e \"${1%.}\"", beside) == 0;
    is_so &= !(fcntl(low, F_GETFD) & FD_CLOEXEC); /* of the parent, as before */
    close(low);
    close(high);
    return is_so;
}

static void test_inherits_what_is_named(void **state)
{
    (void)state;
    assert_true(inherits_what_is_named());
}

/* From here on the system refuses close_range, as one before Linux 5.9 does.  1: it does. */
static int refuse_close_range(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = ARRAY_LEN(code), .filter = code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
           syscall(SYS_close_range, ~0U, ~0U, 0) < 0 && errno == ENOSYS;
}

static void test_inherits_the_same_on_old_systems(void **state)
{
    enum { UNTESTED = 77 };
    const pid_t pid = fork();
    int how;

    (void)state;
    if (pid == 0)
        _exit(!refuse_close_range() ? UNTESTED : !inherits_what_is_named());
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == UNTESTED)
        skip(); /* no filters of system calls: an emulator, or a kernel without them */
    assert_int_equal(WEXITSTATUS(how), 0);
}

/* A minder that starts a child whose standard input is the end of a pipe to write to, and waits to
 * be killed. */
static pid_t fork_minder(const int end[2])
{
    struct minder m = {0};
    struct minder_command c = {.n = 0};
    const struct minder_order order = {
        .command = &c, .role = {MINDER_AGENT, 1}, .death_signal = SIGKILL, .input_fd = end[1]};
    const pid_t pid = fork();
    struct err err;

    if (pid != 0)
        return pid;
    minder_add(&c, "/bin/sh", NULL);
    minder_add(&c, "-c", "echo $$ >&0; exec sleep 600");
    if (minder_start(&m, &order, 0, &err) == 0) {
        close(end[1]);
        pause();
    }
    _exit(1);
}

/* The pipe ends once the child has. */
static void test_a_child_ends_with_its_minder(void **state)
{
    struct pollfd ended = {.events = POLLIN};
    char text[32] = "";
    int end[2];
    pid_t minder;

    (void)state;
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    minder = fork_minder(end);
    close(end[1]);
    assert_true(read(end[0], text, sizeof text - 1) > 0);
    kill(minder, SIGKILL);
    assert_int_equal(waitpid(minder, NULL, 0), minder);
    ended.fd = end[0];
    if (poll(&ended, 1, PATIENCE_MS) != 1) {
        kill((pid_t)atoi(text), SIGKILL);
        fail_msg("process %s goes on without its minder", text);
    }
    close(end[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signal_at_once),
        cmocka_unit_test(test_parent_keeps_its_signals),
        cmocka_unit_test(test_status_of_signals),
        cmocka_unit_test(test_no_file_is_left_open),
        cmocka_unit_test(test_inherits_what_is_named),
        cmocka_unit_test(test_inherits_the_same_on_old_systems),
        cmocka_unit_test(test_a_child_ends_with_its_minder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
