/* network - the interface that NCCL speaks over: that of --iface.
 *
 * NCCL reads its environment when it is first used, and getenv is not safe beside setenv: so it
 * is named in main, before any thread.  Processes started later inherit it. */
#ifndef DAEMON_NETWORK_H
#define DAEMON_NETWORK_H

/* Nothing but interface `iface`, by the kind (IPv4, IPv6) of its numeric `address`, for NCCL's
 * sockets: NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY.  What the user set there is left; and for a
 * label ("eth0:1"), which NCCL cannot be told, nothing is set. */
void daemon_name_network(const char *iface, const char *address);

/* After that, at any time, where NCCL will be used: warn if its sockets will go by another
 * interface.  Not again in processes started by one that named its network. */
void daemon_check_network(const char *iface);

#endif
