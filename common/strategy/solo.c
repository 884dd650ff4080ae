/* solo - a step in which only the control vector is summed, and sums of parameters.
 *
 * This is for CPUs only, because it reads the buckets and copies parameters in host memory. */
#include "strategy/solo.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

static struct solo *of(const struct strategy *s) { return (struct solo *)s; }

int solo_new(const struct strategy_site *site, size_t size, struct solo **out, struct err *err)
{
    const size_t n_bytes = sizeof(float) * (size_t)site->layout->n_trained;
    struct solo *o = xcalloc(1, size);

    ASSERT(!backend_is_device(site->backend)); /* job_check_supported has seen to it */
    o->base.at = *site;
    if (backend_alloc(site->backend, n_bytes, "parameters that are exchanged", (void **)&o->aside,
                      err) < 0) {
        free(o);
        return err->code;
    }
    *out = o;
    return 0;
}

void solo_free(struct strategy *s)
{
    backend_free(s->at.backend, of(s)->aside);
    free(of(s));
}

int solo_n_ranks(const struct strategy *s) { return coll_size(exchange_coll(s->at.exchange)); }

/* ---- a step ---- */

/* 1 if a number of x[n] is not finite, which means that all bits of its exponent are set. */
static int has_bad_float(const float *x, int64_t n)
{
    enum { EXPONENT = 0x7f800000 };
    int bad = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & EXPONENT) == EXPONENT;
    }
    return bad;
}

static int has_bad_bf16(const uint16_t *x, int64_t n)
{
    enum { EXPONENT = 0x7f80 };
    int bad = 0;

    for (int64_t i = 0; i < n; i++)
        bad |= (x[i] & EXPONENT) == EXPONENT;
    return bad;
}

static int is_bad(const struct strategy *s, int bucket)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];
    const void *x = (const char *)s->at.grad + b->at;
    const int64_t n = cut_bucket(s->at.layout, bucket);

    return s->at.layout->grad_dtype == DTYPE_BF16 ? has_bad_bf16(x, n) : has_bad_float(x, n);
}

int solo_bucket_ready(struct strategy *s, int bucket, struct err *err)
{
    struct solo *o = of(s);

    o->is_bad = (bucket > 0 && o->is_bad) || is_bad(s, bucket);
    if (bucket < s->at.layout->n_buckets - 1)
        return 0;
    if (o->is_bad && s->at.control[CONTROL_NONFINITE] == 0)
        s->at.control[CONTROL_NONFINITE] = 1;
    return exchange_sum_control(s->at.exchange, s->at.control, err);
}

int solo_before_update(struct strategy *s, struct err *err)
{
    return exchange_wait_control(s->at.exchange, err);
}

double solo_loss_factor(const struct strategy *s, int64_t step, double part)
{
    (void)step;
    (void)part;
    return solo_n_ranks(s);
}

/* ---- sums of parameters ---- */

int solo_sum_aside(struct strategy *s, struct err *err)
{
    const struct layout *l = s->at.layout;
    int rc = 0;

    for (int b = 0; b < l->n_buckets && rc == 0; b++)
        rc = exchange_allreduce(s->at.exchange, b, of(s)->aside + l->bucket[b].offset,
                                cut_bucket(l, b), DTYPE_F32, err);
    return rc;
}

int solo_wait_buckets(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = exchange_wait(s->at.exchange, b, err);
    return rc;
}
