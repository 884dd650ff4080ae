/* An empty libcuda.so.1: a machine that has it counts as one with an NVIDIA driver. */
int fakegpu_is_no_driver(void);
int fakegpu_is_no_driver(void) { return 1; }
