/* host - the names by which processes tell this machine and themselves from others.
 *
 * Threads: any. */
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include <stdint.h>

enum { HOST_NAME = 256, HOST_BOOT = 64 };

/* The host's name; "unknown-host" if it has none. */
void host_name(char out[HOST_NAME]);

/* The id of this boot of the machine's kernel, equal for all its processes, containers included.
 * "" where /proc does not tell. */
void host_boot(char out[HOST_BOOT]);

/* The number of this process's space of pids; 0 where /proc does not tell.  Two containers of one
 * machine have different ones, so their equal pids mean different processes. */
int64_t host_pid_space(void);

/* When the process with this pid of our own space started, in clock ticks since boot; 0: there is
 * no such process, or /proc does not tell. */
int64_t host_process_start(int64_t pid);

#endif
