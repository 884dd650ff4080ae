/* zlib has the CRC-32 of Ethernet alone, so that of Castagnoli's polynomial stands here.  Records
 * have some hundred bytes, a few a second, so it goes bit by bit and needs no table. */
#include "see/tfrecord.h"

/* RFC 3720, 12.1, with its bits turned round. */
static const uint32_t castagnoli = 0x82f63b78;

uint32_t tfrecord_crc(const void *data, size_t n)
{
    const uint8_t *byte = data;
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        crc ^= byte[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? castagnoli : 0);
    }
    return ~crc;
}

/* The number's n bytes, lowest first. */
static void tfrecord_put_number(struct buf *out, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) {
        const uint8_t byte = (uint8_t)(v >> 8 * i);

        buf_append(out, &byte, 1);
    }
}

/* A checksum over bytes that hold their own checksum would be weak, so the format turns it. */
static void tfrecord_put_crc(struct buf *out, const void *data, size_t n)
{
    const uint32_t crc = tfrecord_crc(data, n);

    tfrecord_put_number(out, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8U), 4);
}

void tfrecord_put(struct buf *out, const void *data, size_t n)
{
    struct buf length = {0};

    tfrecord_put_number(&length, n, 8);
    buf_append(out, length.data, length.len);
    tfrecord_put_crc(out, length.data, length.len);
    buf_append(out, data, n);
    tfrecord_put_crc(out, data, n);
    buf_fini(&length);
}
