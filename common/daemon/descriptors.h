/* descriptors - what a child does not inherit.
 *
 * Our own descriptors close at exec by themselves.  Those of libraries may not: libfabric 1.17
 * opens its sockets without FD_CLOEXEC.  A command that inherited them would keep a lost rank's
 * connections open.
 *
 * Threads: any.  Both functions are safe between fork and exec. */
#ifndef DAEMON_DESCRIPTORS_H
#define DAEMON_DESCRIPTORS_H

/* Let all descriptors of this process from 3 on close at exec. */
void descriptors_close_at_exec(void);

/* Let a descriptor stay open at exec if `word` is its path, below /dev/fd or /proc/self/fd. */
void descriptors_keep_named(const char *word);

#endif
