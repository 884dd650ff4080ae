/* coded - sums of gradients that travel as codes of few bits: strategy bytegrad (Bagua's ByteGrad),
 * and compress onebit (signs with error feedback).
 *
 * Each bucket is cut into one chunk for each rank.  For each bucket:
 *   1. Every rank encodes all chunks of its own gradients, and gives chunk j to rank j
 * (all-to-all).
 *   2. Rank j decodes chunk j of all ranks, adds these in float32, in rank order, and encodes the
 *      sum.
 *   3. All ranks get the codes of all sums (all-gather), and decode them.
 * A rank sends about 2 (size-1)/size codec_bytes(bucket) bytes.  All ranks decode the same bytes,
 * so they get the same gradients.
 *
 * The lengths of chunks are those of op/codec.h.  Bagua pads the bucket with zeros to a multiple of
 * the number of ranks; here the last chunk is shorter instead.  One rank alone sends nothing, and
 * keeps its gradients as they are.
 *
 * With error feedback (onebit), the rounding error of a code is kept and added to the numbers of
 * the next step.  Every rank does so for its own gradients, and rank j for the sums of chunk j:
 *   m = g + error;  c = encode(m) is sent;  error' = m - decode(c)
 * A step that is not applied leaves the errors unchanged.  Each rank has its own errors.  The
 * errors of the sums start at zero in each formation, because the chunks then belong to other
 * ranks.  The errors of the gradients start at zero on a rank that joins or resumes.
 *
 * A number that is not finite makes its chunk NaN on all ranks, so the update notices it. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/codec.h"
#include "program/sketch.h"
#include "strategy/coded.h"
#include "strategy/compress.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

struct coded_bucket {
    int64_t n, n_own, stride; /* elements; those of this rank's chunk; bytes from code to code */
    uint8_t *sent, *taken;    /* [size * stride]: a code for each rank, and one from each rank */
    float *sum;               /* [n_own]: this rank's chunk, summed; then its new error */
    float *with_error;        /* [n]: gradients plus errors; then the new errors; with feedback */
    float *sum_error;         /* [n_own]: error of the sum of the step before; with feedback */
    struct coll_span *part;   /* [size]: places of the codes in `sent` and in `taken`, in bytes */
    struct program *encode, *reduce, *decode, *commit;
};

struct coded {
    struct strategy base; /* first */
    enum codec kind;
    int feeds_back, averages;
    int size, rank;              /* of the formation; size 0: none yet */
    struct coded_bucket *bucket; /* [n_buckets] */
    void *arena;
};

static struct coded *bytegrad_of(struct strategy *s) { return container_of(s, struct coded, base); }

static float *at_bucket(const struct coded *c, void *flat, int b)
{
    return (float *)flat + c->base.at.layout->bucket[b].offset;
}

/* ---- the programs of a bucket ---- */

static void add_encode(struct sketch *s, const struct coded *c, int x, int64_t chunks, int code)
{
    const union node_attr attr = {
        .number = {[ENCODE_ATTR_KIND] = c->kind, [ENCODE_ATTR_CHUNKS] = (double)chunks}};

    sketch_node(s, OP_encode, &attr, &x, 1, (int[]){code}, "encode");
}

static int add_decode(struct sketch *s, const struct coded *c, enum op op, int code, int64_t n,
                      int y)
{
    const union node_attr attr = {
        .number = {[DECODE_ATTR_KIND] = c->kind, [DECODE_ATTR_N] = (double)n}};
    int out[] = {y};

    sketch_node(s, op, &attr, &code, 1, out, "decode");
    return out[0];
}

static int bytegrad_make_encode(struct coded *c, int b, struct err *err)
{
    struct coded_bucket *k = &c->bucket[b];
    struct sketch s = sketch_begin(err);
    int x = sketch_place(&s, DTYPE_F32, SHAPE(k->n), at_bucket(c, c->base.at.grad, b), "grad");
    const int code = sketch_place(&s, DTYPE_U8, SHAPE(c->size, k->stride), k->sent, "sent");

    if (c->feeds_back) {
        const int error =
            sketch_place(&s, DTYPE_F32, SHAPE(k->n), at_bucket(c, c->base.at.slot[0], b), "error");
        const int sum = sketch_place(&s, DTYPE_F32, SHAPE(k->n), k->with_error, "with_error");

        x = sketch_elementwise(&s, EW_ADD, x, error, sum);
    }
    add_encode(&s, c, x, c->size, code);
    if (c->feeds_back)
        (void)sketch_elementwise(&s, EW_SUB, x,
                                 add_decode(&s, c, OP_decode, code, k->n, NODE_NEW_OUT), x);
    return sketch_end(&s, c->base.at.backend, NULL, &k->encode);
}

static int make_reduce(struct coded *c, int b, struct err *err)
{
    struct coded_bucket *k = &c->bucket[b];
    struct sketch s = sketch_begin(err);
    const int taken = sketch_place(&s, DTYPE_U8, SHAPE(c->size, k->stride), k->taken, "taken");
    const int sum = sketch_place(&s, DTYPE_F32, SHAPE(k->n_own), k->sum, "sum");
    const int code = sketch_place(&s, DTYPE_U8, SHAPE(1, codec_bytes(c->kind, k->n_own)),
                                  k->sent + c->rank * k->stride, "own");

    (void)add_decode(&s, c, OP_decode_sum, taken, k->n_own, sum);
    if (c->averages)
        (void)sketch_scale(&s, sum, 1.0 / c->size, sum);
    if (c->feeds_back)
        (void)sketch_elementwise(
            &s, EW_ADD, sum,
            sketch_place(&s, DTYPE_F32, SHAPE(k->n_own), k->sum_error, "sum_error"), sum);
    add_encode(&s, c, sum, 1, code);
    if (c->feeds_back)
        (void)sketch_elementwise(&s, EW_SUB, sum,
                                 add_decode(&s, c, OP_decode, code, k->n_own, NODE_NEW_OUT), sum);
    return sketch_end(&s, c->base.at.backend, NULL, &k->reduce);
}

static int make_decode(struct coded *c, int b, struct err *err)
{
    struct coded_bucket *k = &c->bucket[b];
    struct sketch s = sketch_begin(err);
    const int code = sketch_place(&s, DTYPE_U8, SHAPE(c->size, k->stride), k->sent, "sent");
    const int y =
        sketch_place(&s, DTYPE_F32, SHAPE(k->n), at_bucket(c, c->base.at.grad, b), "grad");

    (void)add_decode(&s, c, OP_decode, code, k->n, y);
    return sketch_end(&s, c->base.at.backend, NULL, &k->decode);
}

/* A program for after_update: the new errors replace the old ones, if the step is applied. */
static int bytegrad_make_commit(struct coded *c, int b, struct err *err)
{
    struct coded_bucket *k = &c->bucket[b];
    struct sketch s = sketch_begin(err);

    compress_add_commit(&s, &c->base.at, k->n, k->with_error, at_bucket(c, c->base.at.slot[0], b));
    if (k->n_own > 0)
        compress_add_commit(&s, &c->base.at, k->n_own, k->sum, k->sum_error);
    return sketch_end(&s, c->base.at.backend, NULL, &k->commit);
}

/* ---- a formation ---- */

static void drop_bucket(struct coded *c, struct coded_bucket *k)
{
    struct backend *b = c->base.at.backend;

    program_free(k->encode);
    program_free(k->reduce);
    program_free(k->decode);
    program_free(k->commit);
    backend_free(b, k->sent);
    backend_free(b, k->taken);
    backend_free(b, k->sum);
    backend_free(b, k->with_error);
    backend_free(b, k->sum_error);
    free(k->part);
    *k = (struct coded_bucket){0};
}

static void bytegrad_drop(struct coded *c)
{
    for (int b = 0; b < c->base.at.layout->n_buckets; b++)
        drop_bucket(c, &c->bucket[b]);
    backend_free(c->base.at.backend, c->arena);
    c->arena = NULL;
    c->size = 0;
}

static int bytegrad_take(struct coded *c, int64_t n_bytes, void *out, struct err *err)
{
    void **p = out;

    return n_bytes == 0
               ? 0
               : compress_zeroed(c->base.at.backend, (size_t)n_bytes, "codes of gradients", p, err);
}

static int bytegrad_make_memory(struct coded *c, struct coded_bucket *k, struct err *err)
{
    const int64_t n_codes = c->size * k->stride, f = (int64_t)sizeof(float);

    if (bytegrad_take(c, n_codes, &k->sent, err) < 0 ||
        bytegrad_take(c, n_codes, &k->taken, err) < 0 ||
        bytegrad_take(c, f * k->n_own, &k->sum, err) < 0)
        return err->code;
    if (c->feeds_back && (bytegrad_take(c, f * k->n, &k->with_error, err) < 0 ||
                          bytegrad_take(c, f * k->n_own, &k->sum_error, err) < 0))
        return err->code;
    return 0;
}

static int bytegrad_make_bucket(struct coded *c, int b, struct err *err)
{
    struct coded_bucket *k = &c->bucket[b];
    int rc;

    k->n = cut_bucket(c->base.at.layout, b);
    if (k->n == 0) /* of the control vector alone */
        return 0;
    k->n_own = codec_chunk_of(k->n, c->size, c->rank);
    k->stride = codec_bytes(c->kind, codec_chunk(k->n, c->size));
    k->part = xcalloc((size_t)c->size, sizeof *k->part);
    for (int r = 0; r < c->size; r++)
        k->part[r] = (struct coll_span){r * k->stride, k->stride};
    rc = bytegrad_make_memory(c, k, err);
    if (rc == 0)
        rc = bytegrad_make_encode(c, b, err);
    if (rc == 0 && k->n_own > 0)
        rc = make_reduce(c, b, err);
    if (rc == 0)
        rc = make_decode(c, b, err);
    if (rc == 0 && c->feeds_back)
        rc = bytegrad_make_commit(c, b, err);
    return rc;
}

static int bytegrad_bind_all(struct coded *c, struct err *err)
{
    const int n = c->base.at.layout->n_buckets;
    struct program **all = xcalloc((size_t)n * 4, sizeof(struct program *));
    int rc;

    for (int b = 0; b < n; b++) {
        all[4 * b] = c->bucket[b].encode;
        all[4 * b + 1] = c->bucket[b].reduce;
        all[4 * b + 2] = c->bucket[b].decode;
        all[4 * b + 3] = c->bucket[b].commit;
    }
    rc = sketch_bind(all, 4 * n, c->base.at.backend, &c->arena, err);
    free(all);
    return rc;
}

int coded_form(struct strategy *s, int source, struct err *err)
{
    struct coded *c = bytegrad_of(s);
    struct coll *coll = exchange_coll(s->at.exchange);
    int rc = 0;

    (void)source;
    bytegrad_drop(c);
    c->size = coll_size(coll);
    c->rank = coll_rank(coll);
    for (int b = 0; b < s->at.layout->n_buckets && rc == 0 && c->size > 1; b++)
        rc = bytegrad_make_bucket(c, b, err);
    return rc < 0 ? rc : bytegrad_bind_all(c, err);
}

void coded_free(struct strategy *s)
{
    bytegrad_drop(bytegrad_of(s));
    free(bytegrad_of(s)->bucket);
    free(bytegrad_of(s));
}

int coded_new(const struct strategy_site *site, const struct coded_options *o,
              struct strategy **out)
{
    struct coded *c = xcalloc(1, sizeof *c);

    c->base.at = *site;
    c->kind = o->kind;
    c->feeds_back = o->feeds_back;
    c->averages = o->averages;
    c->bucket = xcalloc((size_t)site->layout->n_buckets, sizeof *c->bucket);
    *out = &c->base;
    return 0;
}

/* ---- a step ---- */

static int give_codes(struct coded *c, int b, struct err *err)
{
    struct coded_bucket *k = &c->bucket[b];

    if (sketch_run(k->encode, err) < 0)
        return err->code;
    return exchange_all_to_all(
        c->base.at.exchange, b, (struct coll_parts){k->sent, k->part, k->stride},
        (struct coll_parts){k->taken, k->part, k->stride}, c->size * k->stride, DTYPE_U8, err);
}

int coded_encode(struct strategy *s, int bucket, struct err *err)
{
    struct coded *c = bytegrad_of(s);

    if (c->bucket[bucket].n > 0 && give_codes(c, bucket, err) < 0)
        return err->code;
    return compress_sum_control(s, bucket, err);
}

/* When the bucket's codes have come, sum them, and start to give the code of this rank's sum to all
 * ranks.  Code r is rank r's span of the array `sent`, because all codes have equal length. */
static int give_sums(struct coded *c, int b, struct err *err)
{
    struct coded_bucket *k = &c->bucket[b];
    int rc = exchange_wait(c->base.at.exchange, b, err);

    if (rc == 0)
        rc = sketch_run(k->reduce, err);
    return rc < 0 || k->n == 0 ? rc
                               : exchange_allgather_spans(c->base.at.exchange, b, k->sent,
                                                          c->size * k->stride, DTYPE_U8, err);
}

int coded_decode(struct strategy *s, struct err *err)
{
    struct coded *c = bytegrad_of(s);
    const int n = s->at.layout->n_buckets;
    int rc = 0;

    for (int b = 0; b < n && rc == 0; b++)
        rc = give_sums(c, b, err);
    for (int b = 0; b < n && rc == 0; b++) {
        rc = exchange_wait(s->at.exchange, b, err);
        if (rc == 0)
            rc = sketch_run(c->bucket[b].decode, err);
        if (rc == 0 && c->feeds_back && c->size > 1)
            rc = compress_zero_padding(s, b, err);
    }
    return rc;
}

static int bytegrad_commit(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = sketch_run(bytegrad_of(s)->bucket[b].commit, err);
    return rc;
}

static int new_bytes(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    (void)err;
    return coded_new(site, &(struct coded_options){.kind = CODEC_MINMAX_UINT8}, out);
}

static int new_signs(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    (void)err;
    return coded_new(site, &(struct coded_options){.kind = CODEC_ONEBIT, .feeds_back = 1}, out);
}

const struct strategy_ops strategy_bytegrad = {
    .group = {.name = "bytegrad",
              .help =
                  "gradients travel as 8 bits a number: a quarter of the bytes, for slow links"},
    .wants_float32 = 1,
    .promises = COMPRESS_PROMISES,
    .new = new_bytes,
    .form = coded_form,
    .bucket_ready = coded_encode,
    .before_update = coded_decode,
    .free = coded_free,
};

static const struct slot_def *const slots[] = {&compress_error};

const struct strategy_ops compress_onebit = {
    .group.name = "allreduce",
    .wants_float32 = 1,
    .promises = COMPRESS_PROMISES,
    .slot = slots,
    .n_slots = 1,
    .new = new_signs,
    .form = coded_form,
    .bucket_ready = coded_encode,
    .before_update = coded_decode,
    .after_update = bytegrad_commit,
    .free = coded_free,
};
