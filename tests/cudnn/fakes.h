/* fakes - stand-ins for cuDNN and cuBLASLt that compute what they were described, on the CPU.
 *
 * They know the calls that backend/cuda makes, with the real headers' names and meanings, and take
 * tensors, strides, operations, layouts and epilogues from the descriptors alone.  Work is put on
 * the simulator's stream.  What the libraries demand is asserted: finalized descriptors, 16-byte
 * alignment, a workspace (which they fill with rubbish), leading dimensions.
 *
 * Each offers first what the backend must refuse: engines and algorithms that round, or whose bits
 * vary. */
#ifndef TESTS_CUDNN_FAKES_H
#define TESTS_CUDNN_FAKES_H

#ifdef __cplusplus
extern "C" {
#endif

/* 1: no graph of several operations has an engine that float32 may take, no product an epilogue; 2:
 * there are no such engines at all.  Of products alone: relu's mask is not written, or not read. */
enum { FAKE_NO_ENGINES = 2, FAKE_NO_RELU_AUX, FAKE_NO_DRELU };
void fakes_refuse_tails(int how);

/* The n-th call from now that gives a status fails (1: the next); 0 switches that off. */
int fakes_fail_at(int n); /* how many calls were left to the failure before */

/* How often algorithms were asked for, and how many products and graphs algorithm or engine i has
 * computed: FAKE_FIRST is the heuristics' first that float32 may take, FAKE_QUICK the one that
 * takes the least time. */
enum { FAKE_FIRST = 3, FAKE_QUICK = 4, FAKE_ENGINES = 5 };
int fakes_queries(void);
int fakes_runs(int i);
/* Products queued so far with this cublasLtEpilogue_t; some of them. */
enum {
    FAKE_PLAIN = 1,
    FAKE_BIAS = 4,
    FAKE_RELU_AUX_BIAS = 134,
    FAKE_DRELU = 136,
    FAKE_GELU_AUX_BIAS = 164,
    FAKE_DGELU = 192,
    FAKE_BGRADB = 512,
    FAKE_EPILOGUES = 1024
};
int fakes_epilogue_runs(int epilogue);

void fakes_forget_runs(void); /* and queries */
void fakes_disown(
    int i); /* from now on engine i is not repeatable, algorithm i unknown; -1: none */

/* 1: the heuristics' first mode (A) gives cuDNN graphs no engine; their fallback mode still does.
 */
void fakes_only_fall_back(int only);

/* Products' algorithms do not tell how they round. */
void fakes_keep_silent(int silent);

int fakes_open_things(void); /* handles and descriptors that were not given back */

#ifdef __cplusplus
}
#endif

#endif
