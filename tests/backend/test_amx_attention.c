/* amx_attention - a head's products beside the plain sums in double, of all keys and of those that
 * a block sees; by plain loops where the processor has no tiles.  That attention is right with them
 * is tested in tests/op, on processors that have them. */
#include "../test.h"

#include <math.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/amx_attention.h"
#include "kernels.h"

enum { T = 96, D = 64, Q = AMX_QUERIES, ROW = D + 16 };

struct tensors {
    uint16_t *q, *dy, *k, *v; /* [Q,ROW], [Q,ROW], [T,ROW], [T,ROW] */
    float p[Q * T], ds[Q * T];
    uint16_t y[Q * ROW], dq[Q * ROW], dk[T * ROW], dv[T * ROW];
};

static double number(uint16_t x) { return (double)bf16_to_float(x); }
static double rounded(float x) { return number(bf16_from_float(x)); }

static void want(const char *what, int64_t i, double got, double sum, double size)
{
    if (!(fabs(got - sum) <= 1e-5 * size + 0x1p-8 * fabs(sum)))
        fail_msg("%s[%d]: %.9g, want %.9g", what, (int)i, got, sum);
}

/* score [Q,T], of q or dy (x) and k or v (y). */
static void want_scores(const float *score, const uint16_t *x, const uint16_t *y, int64_t begin,
                        int64_t end)
{
    for (int64_t i = 0; i < Q; i++)
        for (int64_t j = 0; j < T; j++) {
            double sum = 0, size = 0;

            for (int64_t e = 0; e < D; e++) {
                const double term = number(x[i * ROW + e]) * number(y[j * ROW + e]);

                sum += term;
                size += fabs(term);
            }
            if (j >= begin && j < end)
                want("score", i * T + j, (double)score[i * T + j], sum, size);
            else
                assert_true(score[i * T + j] == 7);
        }
}

/* to [Q,D] = s y, with s [Q,T] of the keys that are seen. */
static void want_times(const char *what, const uint16_t *to, const float *s, const uint16_t *y,
                       int64_t begin, int64_t end)
{
    for (int64_t i = 0; i < Q; i++)
        for (int64_t e = 0; e < D; e++) {
            double sum = 0, size = 0;

            for (int64_t j = begin; j < end; j++) {
                const double term = rounded(s[i * T + j]) * number(y[j * ROW + e]);

                sum += term;
                size += fabs(term);
            }
            want(what, i * ROW + e, number(to[i * ROW + e]), sum, size);
        }
}

/* to [T,D] = s^T x, of `times` blocks of queries. */
static void want_turned(const char *what, const uint16_t *to, const float *s, const uint16_t *x,
                        int64_t begin, int64_t end, int times)
{
    for (int64_t j = 0; j < T; j++)
        for (int64_t e = 0; e < D; e++) {
            double sum = 0, size = 0;

            for (int64_t i = 0; j >= begin && j < end && i < Q; i++) {
                const double term = times * rounded(s[i * T + j]) * number(x[i * ROW + e]);

                sum += term;
                size += fabs(term);
            }
            want(what, j * ROW + e, number(to[j * ROW + e]), sum, size);
        }
}

static struct tensors drawn(void)
{
    struct tensors x = {.q = bf16_numbers(Q * ROW, 1),
                        .dy = bf16_numbers(Q * ROW, 2),
                        .k = bf16_numbers(T * ROW, 3),
                        .v = bf16_numbers(T * ROW, 4)};
    struct rng_stream s;

    rng_stream_init(&s, 1, RNG_TEST, 5);
    for (int i = 0; i < Q * T; i++) {
        x.p[i] = (float)rng_next_normal(&s);
        x.ds[i] = (float)rng_next_normal(&s);
    }
    return x;
}

static void tensors_free(struct tensors *x)
{
    free(x->q);
    free(x->dy);
    free(x->k);
    free(x->v);
}

/* A room of NaNs. */
static void *room_of(int is_grad)
{
    const size_t bytes = amx_head_bytes(T, D, is_grad);

    return memset(xcalloc(1, bytes), 0xff, bytes);
}

/* The numbers between the rows of a tensor are another head's. */
static void want_untouched(const uint16_t *x, int64_t rows)
{
    for (int64_t i = 0; i < rows * ROW; i++)
        if (i % ROW >= D)
            assert_int_equal(x[i], 0x7e7e);
}

static void test_a_head(void **state)
{
    static float score[2][Q * T];
    struct tensors x = drawn();

    (void)state;
    assert_true(amx_attention_can(T, D));
    assert_false(amx_attention_can(T + 16, D));
    assert_false(amx_attention_can(T, D + 16));
    memset(x.y, 0x7e, sizeof x.y);
    memset(x.dq, 0x7e, sizeof x.dq);
    memset(x.dk, 0x7e, sizeof x.dk);
    memset(x.dv, 0x7e, sizeof x.dv);
    amx_begin();
    for (int64_t begin = 0; begin < T; begin += Q)
        for (int64_t end = begin + Q; end <= T; end += Q) {
            void *room = room_of(1);
            struct amx_head h = amx_head_of(room, T, D, x.k, x.v, ROW, 1);

            for (int i = 0; i < 2 * Q * T; i++)
                score[i / (Q * T)][i % (Q * T)] = 7;
            amx_head_scores(&h, 0, x.q, ROW, begin, end, score[0]);
            amx_head_scores(&h, 1, x.dy, ROW, begin, end, score[1]);
            want_scores(score[0], x.q, x.k, begin, end);
            want_scores(score[1], x.dy, x.v, begin, end);
            for (int times = 0; times < 2; times++)
                amx_head_grad(&h, x.p, x.ds, begin, end, x.q, ROW, x.dy, ROW, x.dq, ROW);
            amx_head_finish(&h, x.dk, x.dv, ROW);
            want_times("dq", x.dq, x.ds, x.k, begin, end);
            want_turned("dk", x.dk, x.ds, x.q, begin, end, 2);
            want_turned("dv", x.dv, x.p, x.dy, begin, end, 2);
            free(room);

            room = room_of(0);
            h = amx_head_of(room, T, D, x.k, x.v, ROW, 0);
            amx_head_values(&h, x.p, begin, end, x.y, ROW);
            want_times("y", x.y, x.p, x.v, begin, end);
            free(room);
        }
    amx_end();
    want_untouched(x.y, Q);
    want_untouched(x.dq, Q);
    want_untouched(x.dk, T);
    want_untouched(x.dv, T);
    tensors_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_head)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
