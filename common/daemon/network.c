/* NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY: set by the first process, checked by it alone.
 * A variable of our own tells the processes that it starts. */
#include "daemon/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/minder.h"

static const char name[] = "NCCL_SOCKET_IFNAME";

/* Set by the process that warns: the first one.  The processes that it starts stay silent. */
static const char teller[] = "DPTRAIN_NETWORK_PID";

/* For NCCL "=eth0" means that interface, "eth0" every interface whose name begins so. */
static int network_is_same(const char *value, const char *iface)
{
    return !strcmp(value + (*value == '='), iface);
}

/* "eth0:1" is a label of one address of eth0; NCCL reads port 1 of eth0's first address. */
static int is_label(const char *iface) { return strchr(iface, ':') != NULL; }

/* The user's value, or NULL.  NCCL takes an empty value for none. */
static const char *set_already(void)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

void daemon_name_network(const char *iface, const char *address)
{
    char text[256];

    snprintf(text, sizeof text, "%ld", (long)getpid());
    setenv(teller, text, 0);
    if (set_already() || is_label(iface))
        return;
    snprintf(text, sizeof text, "=%s", iface);
    setenv(name, text, 1);
    setenv("NCCL_SOCKET_FAMILY", strchr(address, ':') ? "AF_INET6" : "AF_INET", 0);
}

void daemon_check_network(const char *iface)
{
    const char *value = set_already(), *pid = getenv(teller);

    if (!pid || strtol(pid, NULL, 10) != getpid())
        return;
    if (!value)
        log_warn("--iface %s is a label, which NCCL does not know: it picks an interface itself "
                 "for gradients on GPUs; name one by %s",
                 iface, name);
    else if (!is_label(iface) && !network_is_same(value, iface))
        log_warn("--iface %s: the environment's %s is \"%s\", and NCCL goes by that for gradients "
                 "on GPUs; unset it to have them go over %s",
                 iface, name, value, iface);
}

/* Containers have 64 MiB by default.  NVIDIA's documents want 1 GiB for NCCL.  NCCL reserves the
 * memory when it connects two ranks, and then fails, or is killed by SIGBUS. */
void daemon_check_shared_memory(const char *folder)
{
    enum { SMALL_MIB = 512 };
    const struct minder_role role = minder_role();
    const char *off = getenv("NCCL_SHM_DISABLE");
    struct statvfs at;
    unsigned long long mib;

    if (role.kind == MINDER_DRIVER || role.number > 1 || (off && !strcmp(off, "1")))
        return;
    if (statvfs(folder, &at) < 0)
        return;
    mib = (unsigned long long)at.f_blocks * at.f_frsize >> 20;
    if (mib < SMALL_MIB)
        log_warn("%s has %llu MiB, and NCCL exchanges gradients between GPUs of one machine there: "
                 "want 1024 MiB (docker: --shm-size 1g; Kubernetes: an emptyDir of medium Memory), "
                 "or NCCL_SHM_DISABLE=1, which uses the network instead",
                 folder, mib);
}
