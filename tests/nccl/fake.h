/* fake - stand-ins for the CUDA runtime and NCCL, with the real headers' names, for coll/nccl.
 *
 * Ranks are threads of this process, each with its own device (cudaSetDevice tells a thread which).
 * Streams keep their work until a rank queries: each query, by any rank, does at most one piece of
 * work of each stream (of 64 streams in turn, where there are more).  So host code that takes work
 * for done too early is found out.  Collectives really move bytes, once all ranks have theirs at
 * the head of a stream; a recording is replayed.
 *
 * Each call asserts the real libraries' demands:
 *   - One thread at a time is inside a communicator, and no other once one is in ncclCommAbort.
 *   - While a communicator is in progress, no collective or registration is called on it, no work
 *     is put on its stream, and no recording ends that holds its collectives.
 *   - The poison word is set before ncclCommAbort.
 *   - Before ncclCommDestroy, recordings are destroyed and no work is queued.
 *   - Memory is registered and used only while it is allocated.
 *   - No capture is left unjoined.
 *   - The communicators of one device that may run at the same time have few thread blocks.
 *   - A collective is recorded only once its kind has run.
 * The first collective of each kind stays in progress until all ranks have called it, since the
 * real NCCL connects the ranks then. */
#ifndef TESTS_NCCL_FAKE_H
#define TESTS_NCCL_FAKE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

enum { FAKE_DEVICES = 4096 };

/* Forget everything, even what is open; no thread may be inside a call. */
void fake_reset(void);
int fake_open_things(void); /* streams, events, memory, recordings, communicators */

/* The n-th call (1: the next) of this device's threads fails; 0: no call does. */
void fake_fail_at(int device, int n);
int fake_fail_left(int device); /* how many calls the failure is still away; > 0: it never came */
const char *fake_failed_call(void); /* the call that failed last, or "" */

/* The n-th call of the CUDA runtime by this device's threads (1: the next) first calls fn, and then
 * lets the threads that fn started go first for a while.  Calls that free do not count. */
void fake_strike_at(int device, int n, void (*fn)(void *arg), void *arg);
int fake_strike_left(int device); /* how many calls fn is still away; > 0: it was never called */

/* This device breaks for good (CUDA's sticky errors): its queued work is gone, and every call of
 * its threads fails; calls that free still free. */
void fake_break(int device);

enum fake_hang {
    FAKE_HANG_NONE,
    FAKE_HANG_KERNELS,  /* kernels go on waiting after an Abort */
    FAKE_HANG_DESTROY,  /* ncclCommDestroy and ncclCommAbort do not return (until fake_reset) */
    FAKE_HANG_INIT,     /* the communicator stays in progress */
    FAKE_HANG_SPLIT,    /* ... once it is split */
    FAKE_HANG_RECORD,   /* ... once a collective was recorded */
    FAKE_HANG_FINALIZE, /* ... once it was asked to finalize */
};
void fake_hang(enum fake_hang what);
void fake_async_error(int device); /* its first communicator now has ncclRemoteError */
void fake_version(int version);
/* The GPU memory left for ncclMemAlloc, which takes multiples of FAKE_PIECE; SIZE_MAX: enough. */
enum { FAKE_PIECE = 2 << 20 };
void fake_room(size_t n_bytes);
/* Memory is filled, when it is allocated or set, in its first n_bytes only: that of thousands of
 * ranks is more than a machine has.  fake_reset leaves it so. */
void fake_fill_at_most(size_t n_bytes);
void fake_windows(int are_given); /* 0: registering succeeds, but gives no window */

/* Put a "kernel" on a stream, or into the recording that the stream is part of. */
void fake_kernel(cudaStream_t s, void (*fn)(void *arg), void *arg);

/* The number of calls that this thread has made. */
int fake_calls_here(void);

/* The calls so far that match one of the words (NULL ends them), without queries, in order:
 * "0:ncclCommAbort 0:cudaGraphExecDestroy ...".  The caller frees the text. */
char *fake_log(const char *const *words);

#endif
