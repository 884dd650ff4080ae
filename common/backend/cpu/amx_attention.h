/* amx_attention - the products of one head of attention in BF16, in the processor's tiles (amx.h).
 *
 * attention.c computes scores in blocks of 32 queries, and their softmax, in F32.  Here q, k, v and
 * dy stay BF16, and a block's probabilities and the gradients of its scores are rounded to BF16
 * before they are multiplied, as other implementations in BF16 do.  All sums are F32.
 *
 * In struct amx_head, t keys have d numbers each; t and d are multiples of 32.  Keys from `begin`
 * up to `end`, multiples of 32, are those that a block sees.  A block's scores [32,t] are F32.
 *
 * Threads: a head belongs to one thread, between amx_begin and amx_end. */
#ifndef BACKEND_CPU_AMX_ATTENTION_H
#define BACKEND_CPU_AMX_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

enum { AMX_QUERIES = 32 };

struct amx_head {
    int64_t t, d;
    uint16_t *kt, *v; /* b of amx.h, whose terms are d and keys */
    uint16_t *vt, *k; /* the same; gradient only */
    uint16_t *p, *ds; /* [32,t] */
    uint16_t *pairs;  /* [16,d,2] */
    uint16_t *turned; /* [t,32] */
    float *sum;       /* [32,d] */
    float *dk, *dv;   /* [t,d] */
};

/* 1: heads of these sizes can be computed so. */
int amx_attention_can(int64_t t, int64_t d);

/* 1: they are, of this type, by this processor.  widens_bf16 is struct cpu's. */
int amx_attention_fits(enum dtype type, int widens_bf16, int64_t t, int64_t d);

/* Bytes of the room of a head. */
size_t amx_head_bytes(int64_t t, int64_t d, int is_grad);

/* Arrange the head's keys and values, whose rows lie `row` numbers apart, and zero dk and dv. */
struct amx_head amx_head_of(void *room, int64_t t, int64_t d, const uint16_t *k, const uint16_t *v,
                            int64_t row, int is_grad);

/* score = q k^T, or dy v^T if it is of values; the block's rows of x lie `row` numbers apart. */
void amx_head_scores(const struct amx_head *h, int of_values, const uint16_t *x, int64_t row,
                     int64_t begin, int64_t end, float *score);

/* y = p v, rounded.  Rows of y lie `row` numbers apart. */
void amx_head_values(const struct amx_head *h, const float *score, int64_t begin, int64_t end,
                     uint16_t *y, int64_t row);

/* dq = ds k, rounded; dk += ds^T q; dv += p^T dy. */
void amx_head_grad(const struct amx_head *h, const float *score, const float *dp, int64_t begin,
                   int64_t end, const uint16_t *q, int64_t q_row, const uint16_t *dy,
                   int64_t dy_row, uint16_t *dq, int64_t dq_row);

/* dk and dv, rounded. */
void amx_head_finish(const struct amx_head *h, uint16_t *dk, uint16_t *dv, int64_t row);

#endif
