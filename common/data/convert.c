/* convert - the stored numbers of a field become those that programs read.
 *
 * A way to convert is a row of the table below; the numbers of a field are found by their types. */
#include <string.h>

#include "base/util.h"
#include "data/reader.h"

static void unit_from_bytes(void *restrict to, const void *restrict from, int64_t n)
{
    const uint8_t *v = from;
    float *x = to;

    for (int64_t i = 0; i < n; i++)
        x[i] = reader_unit(v[i]);
}

static void real_from_bytes(void *restrict to, const void *restrict from, int64_t n)
{
    const uint8_t *v = from;
    float *x = to;

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)v[i];
}

static void number_from_bytes(void *restrict to, const void *restrict from, int64_t n)
{
    const uint8_t *v = from;
    int32_t *x = to;

    for (int64_t i = 0; i < n; i++)
        x[i] = v[i];
}

static void real_from_doubles(void *restrict to, const void *restrict from, int64_t n)
{
    const double *v = from;
    float *x = to;

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)v[i];
}

static void convert_words(void *restrict to, const void *restrict from, int64_t n)
{
    memcpy(to, from, (size_t)n * 4);
}

static const struct {
    enum dtype stored, dtype;
    enum sample_scale scale;
    reader_convert *convert;
} ways[] = {
    {DTYPE_U8, DTYPE_F32, SAMPLE_UNIT, unit_from_bytes},
    {DTYPE_U8, DTYPE_F32, SAMPLE_AS_IS, real_from_bytes},
    {DTYPE_U8, DTYPE_I32, SAMPLE_AS_IS, number_from_bytes},
    {DTYPE_I32, DTYPE_I32, SAMPLE_AS_IS, convert_words},
    {DTYPE_F32, DTYPE_F32, SAMPLE_AS_IS, convert_words},
    {DTYPE_F64, DTYPE_F32, SAMPLE_AS_IS, real_from_doubles},
};

reader_convert *reader_converter(const struct sample_field *f)
{
    size_t i = 0;

    while (ways[i].stored != f->stored || ways[i].dtype != f->dtype || ways[i].scale != f->scale)
        ASSERT(++i < ARRAY_LEN(ways));
    return ways[i].convert;
}
