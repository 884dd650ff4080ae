/* minmax - the codec MinMaxUInt8 in plain loops over host memory.
 *
 * The arithmetic of one number is in op/codec.h, so the codes equal those of op/codec.c. */
#include "strategy/minmax.h"

#include <math.h>
#include <string.h>

struct range {
    float min, max;
};

/* Find the smallest and the largest of x[n].  Returns 1 if a number or the range is not finite.
 * Comparisons ignore NaN, so the sum of x * 0 is taken, too: it is NaN if a number is not finite.
 */
static int find_range(const float *x, int64_t n, struct range *out)
{
    struct range r = {n > 0 ? x[0] : 0, n > 0 ? x[0] : 0};
    float bad = 0;

    for (int64_t i = 0; i < n; i++) {
        r.min = x[i] < r.min ? x[i] : r.min;
        r.max = x[i] > r.max ? x[i] : r.max;
        bad += x[i] * 0.0f;
    }
    *out = r;
    return bad != 0.0f || !isfinite(r.max - r.min);
}

int minmax_encode(const float *x, int64_t n, uint8_t *chunk)
{
    struct codec_minmax m;
    struct range r;

    if (find_range(x, n, &r))
        return 1;
    m = codec_minmax_of(r.min, r.max);
    memset(chunk, 0, (size_t)minmax_bytes(n));
    memcpy(chunk, &r, sizeof r);
    for (int64_t i = 0; i < n; i++)
        chunk[CODEC_HEADER + i] = codec_minmax_write(m, x[i]);
    return 0;
}

void minmax_add(const uint8_t *chunk, int64_t n, float *y)
{
    struct codec_minmax m;
    struct range r;

    memcpy(&r, chunk, sizeof r);
    m = codec_minmax_of(r.min, r.max);
    for (int64_t i = 0; i < n; i++)
        y[i] += codec_minmax_read(m, chunk[CODEC_HEADER + i]);
}
