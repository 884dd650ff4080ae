/* empty - an empty library, into which nothing calls.  By the name libcuda.so.1 it makes a machine
 * one with an NVIDIA driver for the daemons.  By the names of NVIDIA's other libraries (libraries/)
 * it is loaded in their place. */
int fakegpu_is_empty(void);
int fakegpu_is_empty(void) { return 1; }
