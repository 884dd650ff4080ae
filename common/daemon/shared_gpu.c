/* The environment with which NCCL lets several ranks use one GPU.
 * Only tests need it: ranks that share a GPU take turns. */
#include "daemon/shared_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"

/* Sockets over the loopback interface, one ring, few thread blocks: the way between "two hosts",
 * which the ranks are for NCCL (NCCL_HOSTID); it refuses a GPU twice on one host.  The low-latency
 * protocols are very slow where processes take turns on a GPU. */
static const struct {
    const char *name, *value;
} environment[] = {
    {"NCCL_NET", "Socket"},       {"NCCL_IB_DISABLE", "1"},   {"NCCL_NET_PLUGIN", "none"},
    {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_ALGO", "Ring"},      {"NCCL_SOCKET_FAMILY", "AF_INET"},
    {"NCCL_PROTO", "Simple"},     {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_MAX_CTAS", "2"},
    {"NCCL_RAS_ENABLE", "0"},     {"NCCL_P2P_DISABLE", "1"},  {"NCCL_SHM_DISABLE", "1"},
    {"NCCL_NVLS_ENABLE", "0"},
};

void daemon_share_gpu(void)
{
    char id[64];

    snprintf(id, sizeof id, "dptrain-test-%ld-%llx", (long)getpid(),
             (unsigned long long)clock_mono_ns());
    setenv("NCCL_HOSTID", id, 1);
    for (size_t i = 0; i < ARRAY_LEN(environment); i++)
        setenv(environment[i].name, environment[i].value, 1);
    if (!getenv("NCCL_DEBUG"))
        setenv("NCCL_DEBUG", "WARN", 1);
    log_warn("--test-shared-gpu: FOR TESTS ONLY: several ranks may use one GPU of this machine, "
             "and speak over its loopback interface; this is slow, and NCCL does not support it");
}
