/* coll/nccl/ops - the table of the collectives over NCCL.  common/plugin exports it together with
 * the backend's functions.
 *
 * Threads: the table is constant. */
#ifndef COLL_NCCL_OPS_H
#define COLL_NCCL_OPS_H

#include "coll/device.h"

extern const struct coll_device_ops coll_nccl_ops;

#endif
