/* blocks - packs float32 numbers to 8 bits.
 *
 * That packing is stable follows from the rounding of the scale: the largest code of a block is
 * 127, and 127 * scale is exact, so the quotient by 127 is the scale again. */
#include "tensor/blocks.h"

#include <math.h>
#include <string.h>

enum { MOST = 127 };

/* most / 127, rounded to 16 significant bits, ties to even. */
static float blocks_scale(float most)
{
    float scale = most / MOST;
    uint32_t bits;

    memcpy(&bits, &scale, sizeof bits);
    bits += 0x7f + (bits >> 8 & 1);
    bits &= ~(uint32_t)0xff;
    memcpy(&scale, &bits, sizeof bits);
    return scale;
}

static float blocks_pack_one(const float *x, int64_t n, int8_t *codes)
{
    float most = 0, scale;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    scale = most < BLOCKS_LEAST ? 0 : blocks_scale(most);
    for (int64_t i = 0; i < n; i++)
        codes[i] = scale > 0 ? (int8_t)rintf(x[i] / scale) : 0;
    return scale;
}

void blocks_pack(const float *x, int64_t n, int8_t *codes, float *scales)
{
    for (int64_t at = 0; at < n; at += BLOCKS_LEN)
        scales[at / BLOCKS_LEN] =
            blocks_pack_one(x + at, n - at < BLOCKS_LEN ? n - at : BLOCKS_LEN, codes + at);
}
