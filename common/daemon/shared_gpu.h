/* shared_gpu - --test-shared-gpu: several ranks on one GPU, for tests on a machine with one GPU.
 *
 * NCCL reads its environment when it is first used, and getenv is not safe beside setenv.  So this
 * is called in main, before any thread starts.  All ranks must be on one machine, and all need the
 * option.
 *
 * Threads: main's, before it starts any other. */
#ifndef DAEMON_SHARED_GPU_H
#define DAEMON_SHARED_GPU_H

/* Set the environment with which NCCL accepts that, replacing the user's values, and warn of it. */
void daemon_share_gpu(void);

#endif
