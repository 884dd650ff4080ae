/* Tests of secret: a secret that was made can be read again.  A file that others can read or own,
 * or that holds something else, is refused, and no message shows a secret. */
#include "../test.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "net/secret.h"

#define HEX   "00112233445566778899aabbccddeeffABCDEF00112233445566778899aabbcc"
#define START "dptrain-secret-1 "

static char folder[] = "/tmp/dptrain-secret-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/secret", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void put(const char *text, size_t len, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* The file is refused for a reason that contains `has`; the message shows none of its content, and
 * the secret stays zero. */
static void expect_refusal(const char *has)
{
    static const struct secret none;
    struct secret s;
    struct err err;

    memset(&s, 0x55, sizeof s);
    assert_int_equal(secret_read(path, &s, &err), ERR_ARG);
    assert_memory_equal(&s, &none, sizeof s);
    if (!strstr(err.msg, has))
        fail_msg("\"%s\" is not in: %s", has, err.msg);
    assert_null(strstr(err.msg, "00112233"));
}

static void test_made_and_read(void **state)
{
    static const struct secret none;
    struct secret a, b;
    struct stat st;
    struct err err;
    mode_t old = umask(0);

    (void)state;
    assert_int_equal(secret_make(path, &err), 0);
    umask(old);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, strlen(START) + 2 * SECRET_BYTES + 1);
    assert_int_equal(secret_read(path, &a, &err), 0);
    assert_int_equal(secret_make(path, &err), ERR_ARG); /* it never replaces a secret */
    assert_non_null(strstr(err.msg, "is there already"));
    assert_int_equal(secret_read(path, &b, &err), 0);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(secret_read(path, &b, &err), 0);
    unlink(path);
    assert_int_equal(secret_make(path, &err), 0);
    assert_int_equal(secret_read(path, &b, &err), 0);
    assert_memory_not_equal(&a, &b, sizeof a);
    secret_wipe(&b);
    assert_memory_equal(&b, &none, sizeof b);
    unlink(path);
}

/* The disk is full after some bytes: no part of a secret stays to block the next try. */
static void test_disk_full(void **state)
{
    struct rlimit old, small;
    struct secret s;
    struct err err;
    int rc;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 20, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    rc = secret_make(path, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_true(rc < 0);
    assert_non_null(strstr(err.msg, "cannot write it"));
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(secret_make(path, &err), 0);
    assert_int_equal(secret_read(path, &s, &err), 0);
    unlink(path);
}

static void test_text(void **state)
{
    static const struct {
        const char *text, *has;
    } cases[] = {
        {START HEX "\n", NULL},
        {START HEX, NULL},
        {"", "begins otherwise"},
        {"dptrain", "begins otherwise"},
        {HEX "\n", "begins otherwise"},
        {START "\n", "cut short"},
        {"dptrain-secret-2 " HEX "\n", "another version"},
        {START "0011223344\n", "cut short"},
        {START HEX "0", "too long"},
        {START HEX "\n\n", "too long"},
        {START HEX "\r\n", "too long"},
        {START HEX "\n" START HEX "\n", "too long"},
        {START "00112233445566778899aabbccddeeffABCDEF00112233445566778899aabbcg\n", "hex digits"},
        {START "0011223344556677 899aabbccddeeffABCDEF00112233445566778899aabbcc\n", "hex digits"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct secret s;
        struct err err;

        put(cases[i].text, strlen(cases[i].text), 0600);
        if (cases[i].has) {
            expect_refusal(cases[i].has);
            continue;
        }
        assert_int_equal(secret_read(path, &s, &err), 0);
        assert_int_equal(s.key[1], 0x11);
        assert_int_equal(s.key[16], 0xab);
        assert_int_equal(s.key[31], 0xcc);
    }
    put(START "\0", sizeof START, 0600);
    expect_refusal("cut short");
    unlink(path);
}

static void test_modes(void **state)
{
    static const mode_t bad[] = {0644, 0640, 0604, 0660, 0601, 0620, 0602, 0700, 0777};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char has[128];

        put(START HEX "\n", strlen(START HEX "\n"), bad[i]);
        snprintf(has, sizeof has, "mode %04o", (unsigned)bad[i]);
        expect_refusal(has);
        snprintf(has, sizeof has, "chmod 600 %s", path);
        expect_refusal(has);
    }
    unlink(path);
}

static void test_not_a_file(void **state)
{
    (void)state;
    expect_refusal("No such file");
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refusal("not a regular file");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refusal("not a regular file"); /* and does not hang */
    unlink(path);
}

static void test_owner(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    put(START HEX "\n", strlen(START HEX "\n"), 0600);
    assert_int_equal(chown(path, 12345, 12345), 0);
    expect_refusal("belongs to user 12345");
    unlink(path);
}

/* A file in systemd's credentials folder may be readable to the group, a file elsewhere not. */
static void test_credential(void **state)
{
    struct secret s;
    struct err err;

    (void)state;
    put(START HEX "\n", strlen(START HEX "\n"), 0440);
    expect_refusal("mode 0440");
    setenv("CREDENTIALS_DIRECTORY", "/run/credentials/other", 1);
    expect_refusal("mode 0440");
    setenv("CREDENTIALS_DIRECTORY", "/tmp", 1); /* not the folder itself */
    expect_refusal("mode 0440");
    setenv("CREDENTIALS_DIRECTORY", folder, 1);
    assert_int_equal(secret_read(path, &s, &err), 0);
    assert_int_equal(chmod(path, 0444), 0);
    expect_refusal("mode 0444");
    unsetenv("CREDENTIALS_DIRECTORY");
    secret_wipe(&s);
    unlink(path);
}

/* In a process of this user and group: 1 if the file can be read, 0 if it is refused. */
static int is_read_by(uid_t user, gid_t group)
{
    const pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        struct secret s;
        struct err err;

        if (setgroups(0, NULL) < 0 || setgid(group) < 0 || setuid(user) < 0)
            _exit(2);
        _exit(secret_read(path, &s, &err) < 0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    assert_true(WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

/* In a pod root may give a file to the group of its processes; nobody else may be let in. */
static void test_given_to_a_group(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    put(START HEX "\n", strlen(START HEX "\n"), 0440);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chown(path, 0, 12345), 0);
    assert_false(is_read_by(10001, 12345)); /* on a machine of many users */
    setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
    assert_true(is_read_by(10001, 12345));
    assert_false(is_read_by(10001, 10001));
    assert_int_equal(chmod(path, 0444), 0);
    assert_false(is_read_by(10001, 12345));
    assert_false(is_read_by(10001, 10001));
    assert_int_equal(chmod(path, 0460), 0);
    assert_false(is_read_by(10001, 12345));
    assert_int_equal(chown(path, 10002, 12345), 0);
    assert_int_equal(chmod(path, 0440), 0);
    assert_false(is_read_by(10001, 12345));
    unsetenv("KUBERNETES_SERVICE_HOST");
    unlink(path);
}

/* A secret without a name is read at its descriptor's path, and nobody can write it. */
static void test_nameless(void **state)
{
    struct secret made, seen;
    char at[SECRET_PATH];
    struct err err;
    int fd;

    (void)state;
    assert_int_equal(secret_make_nameless(&made, &fd, &err), 0);
    secret_descriptor_path(fd, at);
    assert_true(secret_is_descriptor(at));
    assert_false(secret_is_descriptor(path));
    if (secret_read(at, &seen, &err) < 0)
        fail_msg("%s", err.msg);
    assert_memory_equal(&seen, &made, sizeof made);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
}

static void test_cannot_make(void **state)
{
    struct err err;
    char *deep = xasprintf("%s/no/such/secret", folder);

    (void)state;
    assert_true(secret_make(deep, &err) < 0);
    assert_non_null(strstr(err.msg, "No such file"));
    free(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_and_read), cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_modes),
        cmocka_unit_test(test_not_a_file),    cmocka_unit_test(test_owner),
        cmocka_unit_test(test_credential),    cmocka_unit_test(test_nameless),
        cmocka_unit_test(test_cannot_make),   cmocka_unit_test(test_given_to_a_group),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
