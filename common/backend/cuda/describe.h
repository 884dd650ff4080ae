/* describe - a GPU's UUID as text, and the likely reason why the driver finds no GPU.
 *
 * For the plugin's probe; it calls no CUDA, so tests need no GPU.
 *
 * Threads: any; no state. */
#ifndef BACKEND_CUDA_DESCRIBE_H
#define BACKEND_CUDA_DESCRIBE_H

#include <stddef.h>

/* Writes "GPU-xxxxxxxx-..." as nvidia-smi does, or "MIG-..." for a slice of a GPU.  CUDA marks a
 * slice only in its name ("NVIDIA H100 80GB HBM3 MIG 1g.10gb").  size >= 41. */
void describe_uuid(const unsigned char bytes[16], const char *name, char *out, size_t size);

/* Writes the likely reason why the driver finds no GPU, and the remedy.  Either the devices' files
 * in `dev` ("/dev") are missing, or this user may not open them, or `visible`, the value of
 * CUDA_VISIBLE_DEVICES (NULL: not set), hides the GPUs.  Writes "" if none of these is true. */
void describe_absence(const char *visible, const char *dev, char *out, size_t size);

#endif
