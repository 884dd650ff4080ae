/* codec - numbers to codes of few bits, and back: what strategies send instead of gradients.
 *
 * encode      x [n] -> code U8 [chunks, bytes]: a code for each chunk of x.
 * decode      code U8 [chunks, bytes] -> y [n]
 * decode_sum  code U8 [ranks, bytes] -> y [n]: the sum of the codes' numbers, each of which stands
 *             for n numbers; added in float32, in the order of the rows.
 *   attr.number: kind (enum codec); chunks of encode; n of the others
 *   op/codec.h says what a chunk and a code are.  bytes >= codec_bytes(kind, elements of a chunk).
 *
 * MinMaxUInt8 (Bagua's, bagua_kernels.cu):
 *   scale = 255 / (max - min + 1e-7), upper = rint(max * scale), lower = upper - 255
 *   q = min(rint(x * scale), upper) - lower, clamped to 0 .. 255;  x is read as (q + lower) / scale
 * 1 bit (signSGD with error feedback, Karimireddy and others 2019):
 *   scale = the mean of |x|, whose sum is made in double;  x is read as scale if x >= 0, else
 * -scale
 *
 * All arithmetic but that sum is float32, each operation rounded by itself.  If a number of a chunk
 * is not finite, the header is NaN, and so is all that is read from the code. */
#include "op/codec.h"

#include "op/infer.h"

static int codec_has_kind(const struct node *n)
{
    const double kind = n->attr.number[ENCODE_ATTR_KIND];

    return kind == CODEC_MINMAX_UINT8 || kind == CODEC_ONEBIT;
}

static int infer_encode(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    const int64_t chunks = (int64_t)n->attr.number[ENCODE_ATTR_CHUNKS];
    int64_t elements;
    int rc = op_want(g, n, ENCODE_X, DTYPE_F32, 1, err);

    if (rc < 0)
        return rc;
    if (!codec_has_kind(n) || chunks < 1)
        return op_fail(n, err, "no codec %g of %g chunks", n->attr.number[ENCODE_ATTR_KIND],
                       n->attr.number[ENCODE_ATTR_CHUNKS]);
    elements = codec_chunk(op_shape(g, n, ENCODE_X)->dim[0], chunks);
    op_out(out, ENCODE_CODE, DTYPE_U8,
           SHAPE(chunks, codec_bytes((enum codec)n->attr.number[ENCODE_ATTR_KIND], elements)));
    return 0;
}

/* per_code: how many of `elements` each row of the codes stands for. */
static int codec_check_codes(const struct graph *g, const struct node *n, int64_t per_code,
                             struct err *err)
{
    const struct shape *code;
    int64_t least;
    int rc = op_want(g, n, DECODE_CODE, DTYPE_U8, 2, err);

    if (rc < 0)
        return rc;
    code = op_shape(g, n, DECODE_CODE);
    least = codec_bytes((enum codec)n->attr.number[DECODE_ATTR_KIND], per_code);
    if (!codec_has_kind(n) || code->dim[1] < least || code->dim[1] % CODEC_ALIGN)
        return op_fail(n, err, "a code has %lld bytes, want %lld or more, a multiple of %d",
                       (long long)code->dim[1], (long long)least, CODEC_ALIGN);
    return 0;
}

static int infer_decode(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    const int64_t elements = (int64_t)n->attr.number[DECODE_ATTR_N];
    const int64_t chunks = op_shape(g, n, DECODE_CODE)->dim[0];
    int rc = codec_check_codes(g, n, chunks > 0 ? codec_chunk(elements, chunks) : 0, err);

    if (rc == 0)
        op_out(out, DECODE_Y, DTYPE_F32, SHAPE(elements));
    return rc;
}

static int codec_infer_sum(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    const int64_t elements = (int64_t)n->attr.number[DECODE_SUM_ATTR_N];
    int rc = codec_check_codes(g, n, elements, err);

    if (rc == 0)
        op_out(out, DECODE_SUM_Y, DTYPE_F32, SHAPE(elements));
    return rc;
}

const struct op_def op_encode = {.infer = infer_encode, OP_SIGNATURE(encode)};
const struct op_def op_decode = {.infer = infer_decode, OP_SIGNATURE(decode)};
const struct op_def op_decode_sum = {.infer = codec_infer_sum, OP_SIGNATURE(decode_sum)};
