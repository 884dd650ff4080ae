/* fakes - stand-ins for cuDNN and cuBLASLt that compute, on the CPU, what their descriptors say.
 *
 * They offer the calls that backend/cuda makes, with the real headers' names and meanings, and take
 * tensors, strides, operations, layouts and epilogues from the descriptors alone.  Work is put on
 * the simulator's stream.  They assert the libraries' demands: finalized descriptors, 16-byte
 * alignment, a workspace (which they fill with rubbish), leading dimensions.
 *
 * The first engines and algorithms that each stand-in offers are those that the backend must
 * refuse: they round, or their bits vary from run to run. */
#ifndef TESTS_CUDNN_FAKES_H
#define TESTS_CUDNN_FAKES_H

#ifdef __cplusplus
extern "C" {
#endif

/* Take away fused tails.  1: no graph of several operations, or of one that adds to its result, has
 * an engine that float32 may take, and no product has an epilogue.  FAKE_NO_ENGINES: such graphs
 * have no engine at all.  The other two are about products alone: no epilogue writes relu's mask,
 * or none reads it. */
enum { FAKE_NO_ENGINES = 2, FAKE_NO_RELU_AUX, FAKE_NO_DRELU };
void fakes_refuse_tails(int how);

/* The n-th call from now that returns a status fails (1: the next); 0 switches failures off.
 * Returns how many calls the previous failure was still away. */
int fakes_fail_at(int n);

/* Counters: how often the heuristics were asked, and how many products and graphs were computed by
 * algorithm or engine i.  FAKE_FIRST is the first of the heuristics' list that float32 may take,
 * FAKE_QUICK the one that takes the least time. */
enum { FAKE_FIRST = 3, FAKE_QUICK = 4, FAKE_ENGINES = 5 };
int fakes_queries(void);
int fakes_runs(int i);
/* The number of products queued so far with this cublasLtEpilogue_t; the enum names some of its
 * values. */
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

void fakes_forget_runs(void); /* sets the counts of runs and queries to 0 */

/* From now on the bits of engine i vary, and algorithm i is unknown; -1: of none. */
void fakes_disown(int i);

/* 1: the heuristics' first mode (A) gives cuDNN graphs no engine; the fallback mode still does. */
void fakes_only_fall_back(int only);

/* 1: the algorithms of products do not tell how they round. */
void fakes_keep_silent(int silent);

int fakes_open_things(void); /* handles and descriptors that were not destroyed */

#ifdef __cplusplus
}
#endif

#endif
