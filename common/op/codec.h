/* codec - how gradients are written in few bits: the sizes of codes, and the arithmetic of a
 * number.
 *
 * A code stands for a chunk of numbers: CODEC_HEADER bytes, then the numbers' bits, then zeros up
 * to a multiple of CODEC_ALIGN bytes.  Several chunks are one array of codes, at equal distances.
 *
 * Codes are equal on all backends bit for bit, and so are the numbers that are read from them.
 *
 * Threads: pure. */
#ifndef OP_CODEC_H
#define OP_CODEC_H

#include <math.h>
#include <stdint.h>

#include "op/control.h" /* OP_BOTH */

enum codec {
    /* Bagua's MinMaxUInt8: 8 bits a number, which divide the range from the chunk's smallest number
     * to its largest.  The header has both, F32. */
    CODEC_MINMAX_UINT8,
    /* 1 bit a number: its sign.  The header has the mean of the absolute values, F32. */
    CODEC_ONEBIT,
};

enum { CODEC_HEADER = 32, CODEC_ALIGN = 32 };

/* The elements of every chunk but the last ones, when n elements are cut into `chunks`: those may
 * be shorter, or empty.  Nothing is padded. */
OP_BOTH static inline int64_t codec_chunk(int64_t n, int64_t chunks)
{
    return (n + chunks - 1) / chunks;
}

/* The elements of chunk i. */
OP_BOTH static inline int64_t codec_chunk_of(int64_t n, int64_t chunks, int64_t i)
{
    const int64_t whole = codec_chunk(n, chunks), rest = n - i * whole;

    return rest < 0 ? 0 : rest < whole ? rest : whole;
}

/* The bytes of a code of n elements. */
OP_BOTH static inline int64_t codec_bytes(enum codec kind, int64_t n)
{
    const int64_t n_bytes = kind == CODEC_ONEBIT ? (n + 7) / 8 : n;

    return CODEC_HEADER + (n_bytes + CODEC_ALIGN - 1) / CODEC_ALIGN * CODEC_ALIGN;
}

/* MinMaxUInt8's constants of a chunk: x is written as q, 0 to 255, and read as (q + lower) / scale.
 * 1e-7 keeps the scale finite where all numbers are equal. */
struct codec_minmax {
    float scale, upper, lower;
};

OP_BOTH static inline struct codec_minmax codec_minmax_of(float min, float max)
{
    struct codec_minmax m;

    m.scale = 255.0f / (max - min + 1e-7f);
    m.upper = rintf(max * m.scale);
    m.lower = m.upper - 255.0f;
    return m;
}

/* Both ends are clamped: rounding could make q -1 or 256. */
OP_BOTH static inline uint8_t codec_minmax_write(struct codec_minmax m, float x)
{
    const float r = rintf(x * m.scale), q = (r < m.upper ? r : m.upper) - m.lower;

    return (uint8_t)(q > 0.0f ? (q < 255.0f ? q : 255.0f) : 0.0f);
}

OP_BOTH static inline float codec_minmax_read(struct codec_minmax m, uint8_t q)
{
    return ((float)q + m.lower) / m.scale;
}

/* Number i of the code at `code`. */
OP_BOTH static inline float codec_read(enum codec kind, const uint8_t *code, int64_t i)
{
    const float *header = (const float *)(const void *)code;

    if (kind == CODEC_ONEBIT)
        return code[CODEC_HEADER + i / 8] >> (i % 8) & 1 ? header[0] : -header[0];
    return codec_minmax_read(codec_minmax_of(header[0], header[1]), code[CODEC_HEADER + i]);
}

#endif
