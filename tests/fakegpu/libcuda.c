/* libcuda - an empty libcuda.so.1.  The daemons take a machine where they find it for one with an
 * NVIDIA driver; nothing calls into it. */
int fakegpu_is_no_driver(void);
int fakegpu_is_no_driver(void) { return 1; }
