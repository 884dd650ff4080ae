/* shared_gpu - --test-shared-gpu: several ranks on one GPU, for tests where there is but one.
 *
 * NCCL reads its environment when it is first used, and getenv is not safe beside setenv: so this
 * comes in main, before any thread.  All ranks must be on one machine, and all be told so. */
#ifndef DAEMON_SHARED_GPU_H
#define DAEMON_SHARED_GPU_H

/* Set what lets NCCL run so, replacing what the user set, and say so as a warning. */
void daemon_share_gpu(void);

#endif
