/* Tests of trust: which secret a daemon takes, why it takes none, and whether its memory may be
 * dumped.  Each case runs in a process of its own, as a process that was hidden stays hidden. */
#include "../test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/trust.h"
#include "net/secret.h"

static char folder[] = "/tmp/dptrain-trust-XXXXXX";
static char shared[64], file[64];

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(shared, sizeof shared, "%s/dptrain-secret", folder);
    snprintf(file, sizeof file, "%s/file", folder);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(shared);
    unlink(file);
    return rmdir(folder);
}

static int clean(void **state)
{
    (void)state;
    unlink(shared);
    unlink(file);
    return chmod(folder, 0700);
}

/* Run fn in a child; assertions there end it with a status that is not 0. */
static void in_child(void (*fn)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        fn();
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define CHECK(x)                                                    \
    do {                                                            \
        if (!(x)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
            _exit(1);                                               \
        }                                                           \
    } while (0)

static int may_be_dumped(void)
{
    struct rlimit core;

    getrlimit(RLIMIT_CORE, &core);
    CHECK((prctl(PR_GET_DUMPABLE) == 1) == (core.rlim_max != 0));
    return prctl(PR_GET_DUMPABLE);
}

static struct trust opened(struct trust_options o)
{
    static const struct arg_list none;
    struct trust t;
    struct err err = {0};

    if (!o.files)
        o.files = &none;
    if (trust_open(&o, &t, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        _exit(1);
    }
    return t;
}

/* ---- where the secret comes from ---- */

static void user_shares(void)
{
    struct trust t = opened((struct trust_options){.role = TLS_DRIVER});
    struct stat st;

    CHECK(t.tls && !t.is_local && !t.why_not[0]);
    CHECK(stat(shared, &st) == 0 && (st.st_mode & 07777) == 0600);
    CHECK(!may_be_dumped());
    trust_close(&t);
}

static void files_come_first(void)
{
    struct arg_list files = {.item = {file}, .n = 1};
    struct trust t;
    struct err err;

    CHECK(secret_make(file, &err) == 0);
    CHECK(trust_check_files(&files, &err) == 0);
    CHECK(may_be_dumped()); /* that kept nothing */
    t = opened((struct trust_options){.files = &files, .insecure = 1, .is_local = 1});
    CHECK(t.tls && !t.is_local && access(shared, F_OK) < 0 && !may_be_dumped());
    trust_close(&t);
}

static void insecure_has_none(void)
{
    struct trust t = opened((struct trust_options){.insecure = 1, .is_local = 1, .has_guests = 1});

    CHECK(!t.tls && !t.is_local && !t.why_not[0] && access(shared, F_OK) < 0);
    CHECK(may_be_dumped());
}

static void local_has_its_own(void)
{
    struct trust t = opened((struct trust_options){.is_local = 1});
    struct secret s;
    struct arg_list files = {.n = 1};
    struct trust child;
    char path[SECRET_PATH];
    struct err err;

    CHECK(t.tls && t.is_local && access(shared, F_OK) < 0);
    CHECK(fcntl(t.fd, F_GETFD) == FD_CLOEXEC);
    secret_descriptor_path(t.fd, path);
    CHECK(secret_read(path, &s, &err) == 0);
    CHECK(pwrite(t.fd, "x", 1, 0) < 0 && ftruncate(t.fd, 0) < 0);
    files.item[0] = path;
    child = opened((struct trust_options){.role = TLS_FOLLOWER, .files = &files});
    CHECK(child.tls && !child.is_local && may_be_dumped());
    trust_close(&child);
    trust_close(&t);
    CHECK(secret_read(path, &s, &err) < 0);
}

static void guests_have_the_user_s(void)
{
    struct trust t = opened((struct trust_options){.is_local = 1, .has_guests = 1});

    CHECK(t.tls && t.is_local && access(shared, F_OK) == 0 && !may_be_dumped());
    trust_close(&t);
}

static void test_sources(void **state)
{
    void (*cases[])(void) = {user_shares, files_come_first, insecure_has_none, local_has_its_own,
                             guests_have_the_user_s};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        clean(state);
        in_child(cases[i]);
    }
}

/* ---- this user's folder ---- */

static void expect_why_not(const char *has)
{
    static const struct arg_list none;
    struct trust_options o = {.role = TLS_FOLLOWER, .files = &none};
    struct trust t;
    struct err err;

    assert_int_equal(trust_open(&o, &t, &err), 0);
    assert_null(t.tls);
    if (!strstr(t.why_not, has))
        fail_msg("\"%s\" is not in: %s", has, t.why_not);
    trust_close(&t);
}

static void test_no_folder(void **state)
{
    (void)state;
    unsetenv("XDG_RUNTIME_DIR");
    expect_why_not("is not set");
    setenv("XDG_RUNTIME_DIR", "", 1);
    expect_why_not("is not set");
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    expect_why_not("relative, which is no folder");
    setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1);
    expect_why_not("/no/such/folder, which is no folder");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_int_equal(chmod(folder, 0750), 0);
    expect_why_not("has mode 0750");
    assert_int_equal(access(shared, F_OK), -1);
    assert_int_equal(chmod(folder, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(folder, 12345, 12345), 0);
        expect_why_not("is of user 12345, and this process of 0");
        assert_int_equal(chown(folder, 0, 0), 0);
    }
}

/* A file that others can read, or that holds no secret, is not passed over. */
static void test_bad_file(void **state)
{
    static const struct arg_list none;
    struct trust_options o = {.role = TLS_DRIVER, .files = &none};
    struct trust t;
    struct err err;
    int fd = open(shared, O_WRONLY | O_CREAT, 0600);

    (void)state;
    assert_int_equal(write(fd, "nonsense", 8), 8);
    assert_int_equal(trust_open(&o, &t, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "remove it, and a new one is made"));
    assert_non_null(strstr(err.msg, "holds no secret"));
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(trust_open(&o, &t, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "has mode 0644"));
    close(fd);
}

/* Processes that make the secret at the same time get the same one, and leave nothing else. */
static void test_race(void **state)
{
    enum { N = 16 };
    struct secret first, s;
    int ends[2], status;
    struct err err;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < N; i++)
        if (fork() == 0) {
            struct secret mine;

            if (secret_share(shared, &mine, &err) < 0)
                _exit(1);
            _exit(write(ends[1], &mine, sizeof mine) != (ssize_t)sizeof mine);
        }
    for (int i = 0; i < N; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(secret_read(shared, &first, &err), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(read(ends[0], &s, sizeof s), sizeof s);
        assert_memory_equal(&s, &first, sizeof s);
    }
    unlink(shared);
    assert_int_equal(rmdir(folder), 0); /* no other file was left */
    assert_int_equal(mkdir(folder, 0700), 0);
    close(ends[0]);
    close(ends[1]);
}

static void test_too_many_files(void **state)
{
    struct arg_list files = {.n = TLS_MAX_SECRETS + 1};
    struct err err;

    (void)state;
    for (size_t i = 0; i < files.n; i++)
        files.item[i] = file;
    assert_int_equal(trust_check_files(&files, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "was given 5 times, want at most 4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sources, clean),
        cmocka_unit_test_setup(test_race, clean),
        cmocka_unit_test_setup(test_too_many_files, clean),
        cmocka_unit_test_setup(test_bad_file, clean),
        cmocka_unit_test_setup(test_no_folder, clean),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
