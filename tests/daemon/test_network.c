/* Tests of network: the environment variables that --iface and --test-shared-gpu set for NCCL, and
 * the warnings about them. */
#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/daemon.h"

static const char *const names[] = {"NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY",
                                    "DPTRAIN_NETWORK_PID"};

/* The log of a process with or without a GPU; the caller frees it. */
static char *said(const struct daemon_options *o, const char *address, int has_gpu)
{
    FILE *f = tmpfile();
    int saved = dup(STDERR_FILENO);
    char *text = xcalloc(1, 4096);

    assert_non_null(f);
    fflush(stderr);
    dup2(fileno(f), STDERR_FILENO);
    daemon_set_nccl(o, address);
    if (has_gpu)
        daemon_check_nccl(o);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    assert_true(fread(text, 1, 4095, f) < 4095);
    fclose(f);
    return text;
}

static void assert_env(const char *name, const char *want)
{
    const char *value = getenv(name);

    if (want ? !value || strcmp(value, want) != 0 : value != NULL)
        fail_msg("%s is %s, want %s", name, value ? value : "not set", want ? want : "nothing");
}

struct row {
    struct daemon_options o;
    const char *address;
    const char *before[3], *after[2]; /* the values of `names`; NULL: not set */
    const char *says;                 /* part of the log; NULL: the log is empty */
    int has_none;                     /* no GPU was found */
};

static void by_iface(void **state)
{
    static const struct row rows[] = {
        {{.device = "cuda", .iface = "eth1"}, "10.0.0.7", {0}, {"=eth1", "AF_INET"}, NULL},
        {{.device = "auto", .iface = "eth1"}, "fd00::7", {0}, {"=eth1", "AF_INET6"}, NULL},
        {{.device = "cuda:1", .iface = "ib0"}, "10.1.0.7", {"", NULL}, {"=ib0", "AF_INET"}, NULL},
        /* There is no option, or NCCL is not used. */
        {{.device = "cuda"}, "", {0}, {0}, NULL},
        {{.device = "cpu", .iface = "eth1"}, "10.0.0.7", {0}, {0}, NULL},
        /* The user's own settings stay. */
        {{.device = "cuda", .iface = "eth1"},
         "10.0.0.7",
         {NULL, "AF_INET6"},
         {"=eth1", "AF_INET6"},
         NULL},
        {{.device = "cuda", .iface = "eth1"}, "10.0.0.7", {"=eth1"}, {"=eth1"}, NULL},
        {{.device = "cuda", .iface = "eth1"}, "10.0.0.7", {"eth1"}, {"eth1"}, NULL},
        {{.device = "cuda", .iface = "eth1"},
         "10.0.0.7",
         {"=eth0"},
         {"=eth0"},
         "--iface eth1: the environment's NCCL_SOCKET_IFNAME is \"=eth0\", and NCCL goes by that"},
        {{.device = "cuda", .iface = "eth1"}, "10.0.0.7", {"eth"}, {"eth"}, "unset it"},
        /* The warning comes once, from the process that started this one, and only if NCCL runs. */
        {{.device = "cuda", .iface = "eth1"}, "10.0.0.7", {"eth", NULL, "1"}, {"eth"}, NULL},
        {{.device = "auto", .iface = "eth1"}, "10.0.0.7", {"eth"}, {"eth"}, NULL, .has_none = 1},
        {{.device = "auto", .iface = "eth1:0"}, "10.0.0.7", {0}, {0}, NULL, .has_none = 1},
        /* NCCL does not know an address label ("eth1:0"); the user is told. */
        {{.device = "auto", .iface = "eth1:0"},
         "10.0.0.7",
         {0},
         {0},
         "--iface eth1:0 is a label, which NCCL does not know: it picks an interface itself"},
        {{.device = "cuda", .iface = "eth1:0"}, "10.0.0.7", {"=eth1"}, {"=eth1"}, NULL},
        /* Ranks on one GPU use the loopback interface, and the log says so. */
        {{.device = "cuda", .iface = "eth1", .test_shared_gpu = 1},
         "10.0.0.7",
         {"=eth0"},
         {"lo", "AF_INET"},
         "--test-shared-gpu: FOR TESTS ONLY"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *text;

        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            unsetenv(names[k]);
            if (rows[i].before[k])
                setenv(names[k], rows[i].before[k], 1);
        }
        text = said(&rows[i].o, rows[i].address, !rows[i].has_none);
        for (int k = 0; k < 2; k++)
            assert_env(names[k], rows[i].after[k]);
        if (rows[i].says ? !strstr(text, rows[i].says) : *text != '\0')
            fail_msg("row %zu: \"%s\" does not say \"%s\"", i, text,
                     rows[i].says ? rows[i].says : "");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_iface)};

    log_init("test", LOG_TEXT, LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
