/* fake - stand-ins for the CUDA runtime and NCCL, with the real headers' names, for coll/nccl.
 *
 * Ranks are threads of this process, each with a device of its own (cudaSetDevice tells a thread
 * which).  Streams keep their work until somebody looks (any query, of any rank, does at most one
 * piece a stream), so what host code wrongly takes for done shows; collectives really move bytes,
 * once all ranks have theirs at the head of a stream; a recording is replayed.
 *
 * What the real libraries demand is asserted, at the call: one thread inside a communicator, and
 * none any more once one is in ncclCommAbort; none of its calls, nothing on its stream, and no end
 * of a recording that it is in, while it is in progress; the poison word set before ncclCommAbort;
 * recordings destroyed before ncclCommDestroy; nothing queued then; memory registered and used only
 * while it is there; no capture left unjoined. */
#ifndef TESTS_NCCL_FAKE_H
#define TESTS_NCCL_FAKE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* Everything forgotten, whatever is open; no thread may be inside. */
void fake_reset(void);
int fake_open_things(void); /* streams, events, memory, recordings, communicators */

/* The n-th call (1: the next) of this device's threads fails; 0: none. */
void fake_fail_at(int device, int n);
int fake_fail_left(int device);     /* how many calls were left to it: > 0, it did not come */
const char *fake_failed_call(void); /* the call that failed last, or "" */

/* This device breaks for good (CUDA's sticky errors): what is queued on it is gone, and every call
 * of its threads fails; what frees, frees. */
void fake_break(int device);

enum fake_hang {
    FAKE_HANG_NONE,
    FAKE_HANG_KERNELS,  /* kernels go on waiting after an Abort */
    FAKE_HANG_DESTROY,  /* ncclCommDestroy and Abort do not return (until fake_reset) */
    FAKE_HANG_INIT,     /* the communicator stays in progress */
    FAKE_HANG_RECORD,   /* ... once a collective was recorded */
    FAKE_HANG_FINALIZE, /* ... once it was asked to finalize */
};
void fake_hang(enum fake_hang what);
void fake_async_error(int device); /* its communicator now has ncclRemoteError */
void fake_version(int version);
/* GPU memory left for ncclMemAlloc, which takes FAKE_PIECEs; SIZE_MAX: enough. */
enum { FAKE_PIECE = 2 << 20 };
void fake_room(size_t n_bytes);
void fake_windows(int are_given); /* 0: registering succeeds, and gives none */

/* Put a "kernel" on a stream, or into the recording under way. */
void fake_kernel(cudaStream_t s, void (*fn)(void *arg), void *arg);

/* Calls made so far by this thread. */
int fake_calls_here(void);

/* Calls but queries made so far, in order, "0:ncclCommAbort 0:cudaGraphExecDestroy ...", of those
 * that match one of the words (NULL at the end); for free(). */
char *fake_log(const char *const *words);

#endif
