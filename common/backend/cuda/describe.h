/* describe - what the plugin's probe says of GPUs, and of why there are none; without CUDA, for
 * tests. */
#ifndef BACKEND_CUDA_DESCRIBE_H
#define BACKEND_CUDA_DESCRIBE_H

#include <stddef.h>

/* "GPU-xxxxxxxx-..." as nvidia-smi writes it, or "MIG-..." for a slice of a GPU, which CUDA tells
 * by its name alone ("NVIDIA H100 80GB HBM3 MIG 1g.10gb"); size >= 41. */
void describe_uuid(const unsigned char bytes[16], const char *name, char *out, size_t size);

/* Why the driver may see no GPU, and the remedy: the devices' files in `dev` ("/dev") are not
 * there, or not for us; or `visible`, the value of CUDA_VISIBLE_DEVICES (NULL: not set), hides
 * them.  "" if none of that is so. */
void describe_absence(const char *visible, const char *dev, char *out, size_t size);

#endif
