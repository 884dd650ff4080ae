/* network - tells NCCL to use the interface of --iface, and looks at the memory that it will share.
 *
 * NCCL reads its environment when it is first used, and getenv is not safe beside setenv.  So the
 * interface is named in main, before any thread starts.  Processes started later inherit it.
 *
 * Threads: main's, before it starts any other. */
#ifndef DAEMON_NETWORK_H
#define DAEMON_NETWORK_H

/* Restrict NCCL's sockets to interface `iface`, and to the family (IPv4, IPv6) of its numeric
 * `address`: NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY.  Values that the user set stay.  NCCL knows
 * no labels of addresses ("eth0:1"): for one, nothing is set. */
void daemon_name_network(const char *iface, const char *address);

/* Warn if NCCL's sockets will use another interface.  Call it after daemon_name_network, in a
 * process that will use NCCL.  A process that was started by one that named its network does not
 * warn again. */
void daemon_check_network(const char *iface);

/* Warn if `folder`, NCCL's /dev/shm, is small.  Call it in a process that will use NCCL: of the
 * ranks that one process started on this machine, only the first one warns. */
void daemon_check_shared_memory(const char *folder);

#endif
