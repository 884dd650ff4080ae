/* network - the interface that NCCL speaks over: that of --iface.
 *
 * NCCL reads its environment when it is first used, and getenv is not safe beside setenv: so this
 * comes in main, before any thread.  Processes started later inherit it. */
#ifndef DAEMON_NETWORK_H
#define DAEMON_NETWORK_H

/* Nothing but interface `iface`, by the kind (IPv4, IPv6) of its numeric `address`, for NCCL's
 * sockets: NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY.  An interface that the user set there is
 * left, with a warning if it is another; so is a family. */
void daemon_name_network(const char *iface, const char *address);

#endif
