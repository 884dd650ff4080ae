/* tfrecord - TFRecord, the framing of TensorBoard's files: a record is its length, a checksum of
 * the length, the bytes, and a checksum of the bytes.
 *
 * Threads: any; no state. */
#ifndef SEE_TFRECORD_H
#define SEE_TFRECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { TFRECORD_FRAME = 16 }; /* what a record has beside its bytes */

/* CRC-32C (Castagnoli), as in iSCSI. */
uint32_t tfrecord_crc(const void *data, size_t n);

/* Append `data` as one record. */
void tfrecord_put(struct buf *out, const void *data, size_t n);

#endif
