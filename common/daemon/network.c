#include "daemon/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

static const char name[] = "NCCL_SOCKET_IFNAME";

/* "=eth0" is that interface, "eth0" each whose name begins so. */
static int is_same(const char *value, const char *iface)
{
    return strcmp(value + (*value == '='), iface) == 0;
}

void daemon_name_network(const char *iface, const char *address)
{
    const char *value = getenv(name);
    char *exact;

    if (value && *value) { /* NCCL takes an empty one for none */
        if (!is_same(value, iface))
            log_warn("--iface %s: the environment's %s is \"%s\", and NCCL goes by that for "
                     "gradients on GPUs; unset it to have them go over %s",
                     iface, name, value, iface);
        return;
    }
    exact = xasprintf("=%s", iface);
    setenv(name, exact, 1);
    setenv("NCCL_SOCKET_FAMILY", strchr(address, ':') ? "AF_INET6" : "AF_INET", 0);
    free(exact);
}
