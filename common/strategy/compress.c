/* compress - the parts that the compressing methods share, and the choice among the methods.
 *
 * The methods themselves are in half.c (float16, bfloat16), bytegrad.c (uint8, onebit) and
 * powersgd.c. */
#include "strategy/compress.h"

#include <stdlib.h>

#include "op/control.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

const struct slot_def compress_error = {.name = "error",
                                        .suffix = ".error",
                                        .scope = SLOT_PER_TRAINED,
                                        .dtype = DTYPE_F32,
                                        .placement = SLOT_OWN};

const struct strategy_ops *compress_choose(const struct compress_options *o)
{
    static const struct strategy_ops *const ways[] = {
        [COMPRESS_NONE] = NULL,
        [COMPRESS_FLOAT16] = &compress_float16,
        [COMPRESS_BFLOAT16] = &compress_bfloat16,
        [COMPRESS_UINT8] = &strategy_bytegrad,
        [COMPRESS_POWERSGD] = &compress_powersgd,
        [COMPRESS_ONEBIT] = &compress_onebit,
    };

    return ways[o->kind];
}

int compress_sum_control(struct strategy *s, int bucket, struct err *err)
{
    const struct layout *l = s->at.layout;

    if (bucket != l->n_buckets - 1)
        return 0;
    return exchange_allreduce(s->at.exchange, bucket, (float *)s->at.grad + l->n_trained,
                              CONTROL_LEN, DTYPE_F32, err);
}

int compress_zero_padding(struct strategy *s, int bucket, struct err *err)
{
    const struct layout *l = s->at.layout;
    const int64_t from = l->bucket[bucket].offset, to = from + cut_bucket(l, bucket);
    float *grad = s->at.grad;
    int rc = 0;

    for (int i = 0; i < l->n_params && rc == 0; i++) {
        const int64_t end = l->param[i].offset + l->param[i].length;
        const int64_t next = i + 1 < l->n_params ? l->param[i + 1].offset : l->n_total;

        if (end > from && end <= to && end < next && !l->param[i].info.frozen)
            rc = backend_zero(s->at.backend, grad + end, sizeof *grad * (size_t)(next - end), err);
    }
    return rc;
}

int compress_zeroed(struct backend *b, size_t n_bytes, const char *what, void **out,
                    struct err *err)
{
    int rc = backend_alloc(b, n_bytes, what, out, err);

    return rc == 0 ? backend_zero(b, *out, n_bytes, err) : rc;
}

void compress_add_commit(struct sketch *s, const struct strategy_site *at, int64_t n, void *next,
                         void *kept)
{
    const int in[] = {
        [COMMIT_SHADOW] = sketch_place(s, DTYPE_F32, SHAPE(n), next, "next"),
        [COMMIT_CHECK] = sketch_place(s, DTYPE_F64, SHAPE(2), (void *)at->check, "check"),
        [COMMIT_CONTROL] = sketch_place(s, DTYPE_F32, SHAPE(CONTROL_LEN),
                                        (float *)at->grad + at->layout->n_trained, "control"),
        [COMMIT_SCALARS] = sketch_place(s, DTYPE_U8, SHAPE(sizeof(struct step_scalars)),
                                        (void *)at->scalars, "scalars")};
    int out[] = {sketch_place(s, DTYPE_F32, SHAPE(n), kept, "kept")};

    sketch_node(s, OP_commit, NULL, in, 4, out, "commit");
}
