/* codec - writes gradients in few bits, and reads them.
 *
 * A part of encode is some chunks; a part of decode and decode_sum is a range of numbers.
 * op/codec.c has the formulas; the twin is cuda/codec.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"
#include "op/codec.h"

static enum codec cpu_codec_kind_of(const struct plain *p)
{
    return (enum codec)p->attr.number[ENCODE_ATTR_KIND];
}

/* ---- encode ---- */

enum { LANES = 16 };

/* The chunk's smallest and largest number, in header[0] and [1]; 0 if one is not finite. */
CPU_CLONES static int find_range(const float *x, int64_t n, float header[2])
{
    float min = x[0], max = x[0];
    int bad = 0;

    for (int64_t i = 0; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        bad |= !(fabsf(x[i]) <= 3.402823466e38f);
    }
    header[0] = min + 0.0f; /* -0 becomes 0: which of them is found depends on the order */
    header[1] = max + 0.0f;
    return !bad;
}

CPU_CLONES static void cpu_codec_write_bytes(const float *x, int64_t n, struct codec_minmax m,
                                             uint8_t *q)
{
    for (int64_t i = 0; i < n; i++)
        q[i] = codec_minmax_write(m, x[i]);
}

static void write_minmax(const float *x, int64_t n, uint8_t *code)
{
    float header[2];

    if (find_range(x, n, header))
        cpu_codec_write_bytes(x, n, codec_minmax_of(header[0], header[1]), code + CODEC_HEADER);
    else
        header[0] = header[1] = NAN;
    memcpy(code, header, sizeof header);
}

/* The sum of |x|: element i goes into lane i % LANES, and the lanes are added in their order. */
CPU_CLONES static double sum_sizes(const float *x, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)fabsf(x[i + k]);
    for (; i < n; i++)
        lane[i % LANES] += (double)fabsf(x[i]);
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

static void write_onebit(const float *x, int64_t n, uint8_t *code)
{
    const double sum = sum_sizes(x, n);
    const float scale = isfinite(sum) ? (float)(sum / (double)n) : NAN;

    memcpy(code, &scale, sizeof scale);
    for (int64_t i = 0; i < n; i++)
        code[CODEC_HEADER + i / 8] |= (uint8_t)((x[i] >= 0.0f) << (i % 8));
}

static void encode_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t n = p->in_shape[ENCODE_X].dim[0], chunks = p->out_shape[ENCODE_CODE].dim[0];
    const int64_t stride = p->out_shape[ENCODE_CODE].dim[1];
    const float *x = p->in[ENCODE_X];

    (void)part;
    for (int64_t i = from; i < to; i++) {
        const int64_t n_own = codec_chunk_of(n, chunks, i);
        uint8_t *code = (uint8_t *)p->out[ENCODE_CODE] + i * stride;

        memset(code, 0, (size_t)stride);
        if (n_own > 0 && cpu_codec_kind_of(p) == CODEC_ONEBIT)
            write_onebit(x + i * codec_chunk(n, chunks), n_own, code);
        else if (n_own > 0)
            write_minmax(x + i * codec_chunk(n, chunks), n_own, code);
    }
}

static void cpu_codec_run_encode(const struct plain *p)
{
    plain_split(p, p->out_shape[ENCODE_CODE].dim[0], p->in_shape[ENCODE_X].dim[0] / 2, encode_part);
}

/* ---- decode ---- */

CPU_CLONES static void cpu_codec_read_bytes(const uint8_t *q, int64_t n, struct codec_minmax m,
                                            int adds, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = codec_minmax_read(m, q[i]);

        y[i] = adds ? y[i] + v : v;
    }
}

/* Numbers [from, from + n) of a code; adds: to those in y. */
static void read_code(enum codec kind, const uint8_t *code, int64_t from, int64_t n, int adds,
                      float *y)
{
    float header[2];

    memcpy(header, code, sizeof header);
    if (kind == CODEC_MINMAX_UINT8) {
        cpu_codec_read_bytes(code + CODEC_HEADER + from, n, codec_minmax_of(header[0], header[1]),
                             adds, y);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = (adds ? y[i] : 0.0f) + codec_read(kind, code, from + i);
}

static void decode_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t whole =
        codec_chunk(p->out_shape[DECODE_Y].dim[0], p->in_shape[DECODE_CODE].dim[0]);
    const uint8_t *code = p->in[DECODE_CODE];

    (void)part;
    for (int64_t at = from, n; at < to; at += n) {
        n = min_i64(to - at, whole - at % whole);
        read_code(cpu_codec_kind_of(p), code + at / whole * p->in_shape[DECODE_CODE].dim[1],
                  at % whole, n, 0, (float *)p->out[DECODE_Y] + at);
    }
}

static void cpu_codec_run_decode(const struct plain *p)
{
    const int64_t n = p->out_shape[DECODE_Y].dim[0];

    plain_split(p, n, n / 4, decode_part);
}

static void sum_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const uint8_t *code = p->in[DECODE_SUM_CODE];

    (void)part;
    for (int64_t r = 0; r < p->in_shape[DECODE_SUM_CODE].dim[0]; r++)
        read_code(cpu_codec_kind_of(p), code + r * p->in_shape[DECODE_SUM_CODE].dim[1], from,
                  to - from, r > 0, (float *)p->out[DECODE_SUM_Y] + from);
}

static void cpu_codec_run_sum(const struct plain *p)
{
    const int64_t n = p->out_shape[DECODE_SUM_Y].dim[0];

    plain_split(p, n, n / 4 * p->in_shape[DECODE_SUM_CODE].dim[0], sum_part);
}

int cpu_make_encode(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return plain_new_split(b, g, n, cpu_codec_run_encode, 0, 0, out, err);
}

int cpu_make_decode(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return plain_new_split(b, g, n, cpu_codec_run_decode, 0, 0, out, err);
}

int cpu_make_decode_sum(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_codec_run_sum, 0, 0, out, err);
}
