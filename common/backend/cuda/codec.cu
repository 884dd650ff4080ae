/* codec - writes gradients in few bits, and reads them.
 *
 * encode is two launches: a block finds a chunk's header, then the threads write the numbers.
 * op/codec.c has the formulas; the twin is cpu/codec.c. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "op/codec.h"
}

struct chunks {
    int64_t n, count, stride; /* elements, codes, bytes of a code */
};

/* The largest v of all threads of the block.  Every thread of the block must call this. */
static __device__ inline float cuda_codec_block_largest(float v)
{
    const struct best lowest = {-INFINITY, 0}, own = {v, 0};

    return block_best_of(own, lowest).value;
}

static __global__ void find_ranges(const float *x, struct chunks c, uint8_t *code)
{
    for (int64_t k = blockIdx.x; k < c.count; k += gridDim.x) {
        const float *from = x + k * codec_chunk(c.n, c.count);
        const int64_t n = codec_chunk_of(c.n, c.count, k);
        float *header = (float *)(code + k * c.stride);
        float low = INFINITY, high = -INFINITY;
        double bad = 0;

        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            low = from[i] < low ? from[i] : low;
            high = from[i] > high ? from[i] : high;
            bad += fabsf(from[i]) <= 3.402823466e38f ? 0.0 : 1.0;
        }
        low = -cuda_codec_block_largest(-low);
        high = cuda_codec_block_largest(high);
        bad = block_sum(bad);
        if (threadIdx.x < CODEC_HEADER / sizeof(float))
            header[threadIdx.x] = threadIdx.x > 1 || n == 0 ? 0.0f
                                  : bad > 0                 ? NAN
                                  : threadIdx.x == 0        ? low + 0.0f
                                                            : high + 0.0f; /* no -0 */
    }
}

static __global__ void cuda_codec_write_bytes(const float *x, struct chunks c, uint8_t *code)
{
    const int64_t per_code = c.stride - CODEC_HEADER, whole = codec_chunk(c.n, c.count);

    for (int64_t i = grid_first(); i < c.count * per_code; i += grid_stride()) {
        const int64_t k = i / per_code, at = i % per_code;
        const float *header = (const float *)(code + k * c.stride);
        const bool is_number = at < codec_chunk_of(c.n, c.count, k) && header[0] == header[0];

        code[k * c.stride + CODEC_HEADER + at] =
            is_number ? codec_minmax_write(codec_minmax_of(header[0], header[1]), x[k * whole + at])
                      : (uint8_t)0;
    }
}

static __global__ void find_means(const float *x, struct chunks c, uint8_t *code)
{
    for (int64_t k = blockIdx.x; k < c.count; k += gridDim.x) {
        const float *from = x + k * codec_chunk(c.n, c.count);
        const int64_t n = codec_chunk_of(c.n, c.count, k);
        float *header = (float *)(code + k * c.stride);
        double sum = 0;

        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            sum += (double)fabsf(from[i]);
        sum = block_sum(sum);
        if (threadIdx.x < CODEC_HEADER / sizeof(float))
            header[threadIdx.x] = threadIdx.x > 0 || n == 0             ? 0.0f
                                  : fabs(sum) <= 1.7976931348623157e308 ? (float)(sum / (double)n)
                                                                        : NAN;
    }
}

static __global__ void write_signs(const float *x, struct chunks c, uint8_t *code)
{
    const int64_t per_code = c.stride - CODEC_HEADER, whole = codec_chunk(c.n, c.count);

    for (int64_t i = grid_first(); i < c.count * per_code; i += grid_stride()) {
        const int64_t k = i / per_code, at = i % per_code * 8;
        const int64_t n = codec_chunk_of(c.n, c.count, k);
        unsigned bits = 0;

        for (int b = 0; b < 8; b++)
            if (at + b < n && x[k * whole + at + b] >= 0.0f)
                bits |= 1u << b;
        code[k * c.stride + CODEC_HEADER + i % per_code] = (uint8_t)bits;
    }
}

static void cuda_codec_run_encode(const struct own *p)
{
    struct chunks c = {};
    const float *x = (const float *)p->in[ENCODE_X];
    uint8_t *code = (uint8_t *)p->out[ENCODE_CODE];
    int64_t n_bytes;

    c.n = p->in_shape[ENCODE_X].dim[0];
    c.count = p->out_shape[ENCODE_CODE].dim[0];
    c.stride = p->out_shape[ENCODE_CODE].dim[1];
    n_bytes = max_i64(c.count * (c.stride - CODEC_HEADER), 1);
    if (p->attr.number[ENCODE_ATTR_KIND] == CODEC_ONEBIT) {
        LAUNCH(find_means, blocks_for(p, c.count, 1), THREADS, p, x, c, code);
        LAUNCH(write_signs, blocks_for(p, n_bytes, THREADS), THREADS, p, x, c, code);
    } else {
        LAUNCH(find_ranges, blocks_for(p, c.count, 1), THREADS, p, x, c, code);
        LAUNCH(cuda_codec_write_bytes, blocks_for(p, n_bytes, THREADS), THREADS, p, x, c, code);
    }
}

static __global__ void read_codes(const uint8_t *code, struct chunks c, int kind, float *y)
{
    const int64_t whole = codec_chunk(c.n, c.count);

    for (int64_t i = grid_first(); i < c.n; i += grid_stride())
        y[i] = codec_read((enum codec)kind, code + i / whole * c.stride, i % whole);
}

static __global__ void sum_codes(const uint8_t *code, struct chunks c, int kind, float *y)
{
    for (int64_t i = grid_first(); i < c.n; i += grid_stride()) {
        float sum = codec_read((enum codec)kind, code, i);

        for (int64_t r = 1; r < c.count; r++)
            sum = sum + codec_read((enum codec)kind, code + r * c.stride, i);
        y[i] = sum;
    }
}

static struct chunks codes_of(const struct own *p)
{
    struct chunks c = {};

    c.n = p->out_shape[DECODE_Y].dim[0];
    c.count = p->in_shape[DECODE_CODE].dim[0];
    c.stride = p->in_shape[DECODE_CODE].dim[1];
    return c;
}

static void cuda_codec_run_decode(const struct own *p)
{
    const struct chunks c = codes_of(p);

    if (c.n > 0)
        LAUNCH(read_codes, blocks_for(p, c.n, THREADS), THREADS, p,
               (const uint8_t *)p->in[DECODE_CODE], c, (int)p->attr.number[DECODE_ATTR_KIND],
               (float *)p->out[DECODE_Y]);
}

static void cuda_codec_run_sum(const struct own *p)
{
    const struct chunks c = codes_of(p);

    if (c.n > 0)
        LAUNCH(sum_codes, blocks_for(p, c.n, THREADS), THREADS, p,
               (const uint8_t *)p->in[DECODE_SUM_CODE], c,
               (int)p->attr.number[DECODE_SUM_ATTR_KIND], (float *)p->out[DECODE_SUM_Y]);
}

extern "C" int cuda_make_encode(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_codec_run_encode, 0, out, err);
}

extern "C" int cuda_make_decode(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_codec_run_decode, 0, out, err);
}

extern "C" int cuda_make_decode_sum(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_codec_run_sum, 0, out, err);
}
