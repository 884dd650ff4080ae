/* sim_impl - the interface between the simulator's two files: fake_runtime.cc keeps the work of a
 * stream, and sim.cc runs a kernel's threads. */
#ifndef TESTS_CUDASIM_SIM_IMPL_HH
#define TESTS_CUDASIM_SIM_IMPL_HH

#include <stdint.h>

#include <functional>
#include <string>

namespace cudasim
{

struct work {
    std::string name;
    int64_t blocks, threads; /* 0: not a kernel; `thread` is the whole work */
    std::function<void()> thread;
};

/* Run all threads of all blocks; returns the reason if that failed, else "". */
std::string run_launch(const struct work &w);

} /* namespace cudasim */

#endif
