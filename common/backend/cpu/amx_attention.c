/* amx_attention - how a head's operands lie, all of them operands b of amx.h but for the scores:
 *
 *   kt, vt   [t/32][d/32][16 pairs of d][32 keys][2]
 *   k, v     [t/32][16 pairs of keys][d][2]
 *   pairs    [16 pairs of queries][d][2]                 of q or dy of a block
 *   turned   [t][32 queries]                             of p or ds of a block: operand a */
#include "backend/cpu/amx_attention.h"

#include <string.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/convert.h"
#include "base/util.h"

enum { PANEL = AMX_BLOCK };

_Static_assert((int)AMX_QUERIES == (int)AMX_BLOCK, "a block of queries is a block of sums");

int amx_attention_can(int64_t t, int64_t d) { return t % PANEL == 0 && d % AMX_TERMS == 0; }

int amx_attention_fits(enum dtype type, int widens_bf16, int64_t t, int64_t d)
{
    return type == DTYPE_BF16 && !widens_bf16 && amx_available() && amx_attention_can(t, d);
}

/* ---- the room ---- */

static void *next_room(char **at, int64_t n, size_t size)
{
    char *taken = *at;

    *at += (size_t)round_up_i64(n * (int64_t)size, 64);
    return taken;
}

/* Lay out a head from *at on, and move *at behind it. */
static struct amx_head laid_out(char **at, int64_t t, int64_t d, int is_grad)
{
    struct amx_head h = {.t = t, .d = d};

    h.kt = next_room(at, t * d, sizeof *h.kt);
    h.p = next_room(at, PANEL * t, sizeof *h.p);
    h.sum = next_room(at, PANEL * d, sizeof *h.sum);
    if (!is_grad) {
        h.v = next_room(at, t * d, sizeof *h.v);
        return h;
    }
    h.vt = next_room(at, t * d, sizeof *h.vt);
    h.k = next_room(at, t * d, sizeof *h.k);
    h.ds = next_room(at, PANEL * t, sizeof *h.ds);
    h.pairs = next_room(at, PANEL * d, sizeof *h.pairs);
    h.turned = next_room(at, PANEL * t, sizeof *h.turned);
    h.dk = next_room(at, t * d, sizeof *h.dk);
    h.dv = next_room(at, t * d, sizeof *h.dv);
    return h;
}

size_t amx_head_bytes(int64_t t, int64_t d, int is_grad)
{
    char *const begin = (char *)64, *at = begin;

    (void)laid_out(&at, t, d, is_grad);
    return (size_t)(at - begin);
}

/* ---- operands ---- */

static void pair_rows(const uint16_t *from, int64_t row, int64_t n, int64_t d, uint16_t *to)
{
    for (int64_t i = 0; i < n; i += 2, to += 2 * d)
        amx_pair(from + i * row, from + (i + 1) * row, d, to);
}

static void turn_columns(const uint16_t *from, int64_t row, int64_t t, int64_t d, uint16_t *to)
{
    for (int64_t j = 0; j < t; j += AMX_TILE)
        for (int64_t e = 0; e < d; e += AMX_TERMS)
            amx_turn_pairs(from + j * row + e, row,
                           to + j / PANEL * PANEL * d + e * PANEL + j % PANEL * 2, 2 * PANEL);
}

struct amx_head amx_head_of(void *room, int64_t t, int64_t d, const uint16_t *k, const uint16_t *v,
                            int64_t row, int is_grad)
{
    char *at = room;
    struct amx_head h = laid_out(&at, t, d, is_grad);

    turn_columns(k, row, t, d, h.kt);
    if (!is_grad) {
        pair_rows(v, row, t, d, h.v);
        return h;
    }
    turn_columns(v, row, t, d, h.vt);
    pair_rows(k, row, t, d, h.k);
    memset(h.dk, 0, (size_t)(t * d) * sizeof *h.dk);
    memset(h.dv, 0, (size_t)(t * d) * sizeof *h.dv);
    return h;
}

/* ---- products ---- */

void amx_head_scores(const struct amx_head *h, int of_values, const uint16_t *x, int64_t row,
                     int64_t begin, int64_t end, float *score)
{
    const struct amx product = {.n1 = 1,
                                .n2 = h->d / AMX_TERMS,
                                .a2 = AMX_TERMS,
                                .b2 = AMX_TERMS * PANEL,
                                .a_row = row,
                                .b_row = 2 * PANEL,
                                .c_row = h->t,
                                .n_i = PANEL,
                                .n_j = PANEL};

    for (int64_t j = begin; j < end; j += PANEL)
        amx_run(&product, x, (of_values ? h->vt : h->kt) + j * h->d, score + j);
}

static void round_rows(const float *from, int64_t from_row, int64_t n, uint16_t *to, int64_t row)
{
    for (int64_t i = 0; i < PANEL; i++)
        convert_from_f32(to + i * row, from + i * from_row, DTYPE_BF16, n);
}

/* to = x b, rounded, with x [32,t] and b in pairs of keys. */
static void times_keys(const struct amx_head *h, const uint16_t *x, const uint16_t *b,
                       int64_t begin, int64_t end, uint16_t *to, int64_t row)
{
    const struct amx product = {.n1 = 1,
                                .n2 = (end - begin) / AMX_TERMS,
                                .a2 = AMX_TERMS,
                                .b2 = AMX_TERMS * h->d,
                                .a_row = h->t,
                                .b_row = 2 * h->d,
                                .c_row = h->d,
                                .n_i = PANEL,
                                .n_j = PANEL};

    for (int64_t e = 0; e < h->d; e += PANEL)
        amx_run(&product, x + begin, b + begin * h->d + 2 * e, h->sum + e);
    round_rows(h->sum, h->d, h->d, to, row);
}

void amx_head_values(const struct amx_head *h, const float *score, int64_t begin, int64_t end,
                     uint16_t *y, int64_t row)
{
    round_rows(score + begin, h->t, end - begin, h->p + begin, h->t);
    times_keys(h, h->p, h->v, begin, end, y, row);
}

/* sum [t,d] += x^T y, with x [32,t] and y in pairs of queries. */
static void add_turned(const struct amx_head *h, const uint16_t *x, int64_t begin, int64_t end,
                       float *sum)
{
    const struct amx product = {.n1 = 1,
                                .n2 = 1,
                                .a_row = AMX_TERMS,
                                .b_row = 2 * h->d,
                                .c_row = h->d,
                                .n_i = PANEL,
                                .n_j = PANEL,
                                .adds = 1};
    const uint16_t *rows[AMX_TERMS];

    for (int i = 0; i < AMX_TERMS; i++)
        rows[i] = x + i * h->t;
    for (int64_t j = begin; j < end; j += AMX_TILE)
        amx_turn(rows, j, h->turned + j * AMX_TERMS);
    for (int64_t j = begin; j < end; j += PANEL)
        for (int64_t e = 0; e < h->d; e += PANEL)
            amx_run(&product, h->turned + j * AMX_TERMS, h->pairs + 2 * e, sum + j * h->d + e);
}

void amx_head_grad(const struct amx_head *h, const float *score, const float *dp, int64_t begin,
                   int64_t end, const uint16_t *q, int64_t q_row, const uint16_t *dy,
                   int64_t dy_row, uint16_t *dq, int64_t dq_row)
{
    round_rows(score + begin, h->t, end - begin, h->p + begin, h->t);
    round_rows(dp + begin, h->t, end - begin, h->ds + begin, h->t);
    times_keys(h, h->ds, h->k, begin, end, dq, dq_row);
    pair_rows(q, q_row, PANEL, h->d, h->pairs);
    add_turned(h, h->ds, begin, end, h->dk);
    pair_rows(dy, dy_row, PANEL, h->d, h->pairs);
    add_turned(h, h->p, begin, end, h->dv);
}

void amx_head_finish(const struct amx_head *h, uint16_t *dk, uint16_t *dv, int64_t row)
{
    for (int64_t j = 0; j < h->t; j += PANEL) {
        round_rows(h->dk + j * h->d, h->d, h->d, dk + j * row, row);
        round_rows(h->dv + j * h->d, h->d, h->d, dv + j * row, row);
    }
}
