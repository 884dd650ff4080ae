/* Tests of shared_gpu: it sets the variables that let ranks of NCCL share a GPU, some of them
 * differently in each process. */
#include "../test.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/shared_gpu.h"

extern char **environ;

static int n_nccl(void)
{
    int n = 0;

    for (char **e = environ; *e; e++)
        n += !strncmp(*e, "NCCL_", 5);
    return n;
}

static void assert_env(const char *name, const char *want)
{
    const char *value = getenv(name);

    if (!value || strcmp(value, want) != 0)
        fail_msg("%s is %s, want %s", name, value ? value : "not set", want);
}

/* All variables that a shared GPU needs are set, whatever the user has set; NCCL_DEBUG stays the
 * user's. */
static void all_is_set(void **state)
{
    (void)state;
    setenv("NCCL_SOCKET_IFNAME", "eth0", 1);
    setenv("NCCL_PROTO", "LL", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    daemon_share_gpu();
    assert_env("NCCL_NET", "Socket");
    assert_env("NCCL_IB_DISABLE", "1");
    assert_env("NCCL_NET_PLUGIN", "none");
    assert_env("NCCL_SOCKET_IFNAME", "lo");
    assert_env("NCCL_SOCKET_FAMILY", "AF_INET");
    assert_env("NCCL_MNNVL_ENABLE", "0");
    assert_env("NCCL_RAS_ENABLE", "0");
    assert_env("NCCL_ALGO", "Ring");
    assert_env("NCCL_PROTO", "Simple");
    assert_env("NCCL_MAX_CTAS", "2");
    assert_env("NCCL_P2P_DISABLE", "1");
    assert_env("NCCL_SHM_DISABLE", "1");
    assert_env("NCCL_NVLS_ENABLE", "0");
    assert_env("NCCL_DEBUG", "INFO");
    assert_non_null(getenv("NCCL_HOSTID"));
    assert_int_equal(n_nccl(), 15);
}

/* NCCL takes ranks with equal host ids for ranks of one host, and refuses the second one that uses
 * the same GPU; so host ids must differ. */
static void processes_differ(void **state)
{
    char mine[128];
    int status;
    pid_t pid;

    (void)state;
    daemon_share_gpu();
    snprintf(mine, sizeof mine, "%s", getenv("NCCL_HOSTID"));
    pid = fork();
    if (pid == 0) {
        daemon_share_gpu();
        _exit(strcmp(mine, getenv("NCCL_HOSTID")) == 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_set),
        cmocka_unit_test(processes_differ),
    };

    log_init("test", LOG_TEXT, LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
