/* mixing: sums of rows and of columns, and mirrored rows, are those of plain loops to the byte, for
 * every length around those that vectors take; nothing beyond a result is written. */
#include "../test.h"

#include "base/alloc.h"
#include "data/mixing.h"

enum { C = 3, WIDEST = 43, MOST_TAPS = 9, GUARD = 0xa5 };

static uint32_t state_of_draws = 1;

static uint32_t next_draw(void)
{
    state_of_draws = state_of_draws * 1664525U + 1013904223U;
    return state_of_draws >> 8;
}

/* Half of the bytes are 0 or 255. */
static void draw_bytes(uint8_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t v = next_draw();

        to[i] = (uint8_t)(v & 0x100 ? (v & 0x200 ? 255 : 0) : v);
    }
}

/* n weights whose sum is 1; the first takes all in one case of four. */
static void draw_weights(int16_t *w, int64_t n)
{
    int left = MIXING_ONE;
    const int is_one = next_draw() % 4 == 0;

    for (int64_t k = n - 1; k > 0; k--) {
        w[k] = (int16_t)(is_one ? 0 : next_draw() % (uint32_t)(left / 2 + 1));
        left -= w[k];
    }
    w[0] = (int16_t)left;
}

static uint8_t byte_of(int32_t sum) { return (uint8_t)((sum + MIXING_ONE / 2) >> MIXING_SHIFT); }

static void check_guard(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(p[i], GUARD);
}

static void rows_are_mixed(void **state)
{
    enum { SPARE = 5 };
    int32_t sum[WIDEST * C];

    (void)state;
    for (int64_t n = 1; n <= WIDEST * C; n++)
        for (int64_t taps = 1; taps <= MOST_TAPS; taps++) {
            const int64_t stride = n + SPARE;
            uint8_t *from = xmalloc((size_t)(stride * (taps - 1) + n)), to[WIDEST * C + SPARE];
            int16_t w[MOST_TAPS];

            draw_bytes(from, (size_t)(stride * (taps - 1) + n));
            draw_weights(w, taps);
            memset(to, GUARD, sizeof to);
            mixing_rows(from, stride, w, taps, n, sum, to);
            for (int64_t i = 0; i < n; i++) {
                int32_t want = 0;

                for (int64_t k = 0; k < taps; k++)
                    want += from[k * stride + i] * w[k];
                assert_int_equal(to[i], byte_of(want));
            }
            check_guard(to + n, sizeof to - (size_t)n);
            free(from);
        }
}

/* Weights and places of n_results results of at most `taps` pixels each; those of half of the
 * results are fewer by one. */
static void draw_taps(struct mixing_taps *t, int64_t taps)
{
    memset(t->weight, 0, (size_t)(t->n_results * t->most) * sizeof *t->weight);
    for (int64_t i = 0; i < t->n_results; i++) {
        t->n[i] = taps == 1 || next_draw() % 2 ? taps : taps - 1;
        t->first[i] = next_draw() % (uint32_t)(WIDEST - t->n[i] + 1);
        draw_weights(t->weight + i * t->most, t->n[i]);
    }
}

static void check_columns(const uint8_t *from, const struct mixing_taps *t, const uint8_t *to)
{
    for (int64_t i = 0; i < t->n_results * C; i++) {
        const int64_t at = i / C;
        int32_t want = 0;

        for (int64_t k = 0; k < t->n[at]; k++)
            want += from[(t->first[at] + k) * C + i % C] * t->weight[at * t->most + k];
        assert_int_equal(to[i], byte_of(want));
    }
}

static void columns_are_mixed(void **state)
{
    enum { STRIDE = WIDEST * C + 1, MOST_ROWS = 3 };
    uint8_t to[MOST_ROWS * WIDEST * C + 8];
    int64_t first[WIDEST], n[WIDEST];
    int16_t weight[WIDEST * (MOST_TAPS + 1)];

    (void)state;
    for (int64_t taps = 1; taps <= MOST_TAPS; taps++)
        for (int64_t n_results = 1; n_results <= WIDEST; n_results++) {
            struct mixing_taps t = {n_results, (taps + 1) / 2 * 2, first, n, weight};
            const int64_t n_rows = 1 + n_results % MOST_ROWS, n_to = n_results * C;
            const size_t n_bytes =
                (size_t)((n_rows - 1) * STRIDE + WIDEST * C + MIXING_SPARE + C * t.most);
            uint8_t *from = xmalloc(n_bytes);

            draw_bytes(from, n_bytes);
            draw_taps(&t, taps);
            memset(to, GUARD, sizeof to);
            mixing_columns(from, STRIDE, n_rows, &t, to);
            for (int64_t y = 0; y < n_rows; y++)
                check_columns(from + y * STRIDE, &t, to + y * n_to);
            check_guard(to + n_rows * n_to, sizeof to - (size_t)(n_rows * n_to));
            free(from);
        }
}

static void rows_are_mirrored(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= WIDEST; n++) {
        uint8_t *from = xmalloc((size_t)(n * C + 1)), to[WIDEST * C + 8];

        draw_bytes(from, (size_t)(n * C));
        memset(to, GUARD, sizeof to);
        mixing_mirror(from, n, to);
        for (int64_t i = 0; i < n * C; i++)
            assert_int_equal(to[i], from[(n - 1 - i / C) * C + i % C]);
        check_guard(to + n * C, sizeof to - (size_t)(n * C));
        free(from);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_mixed),
        cmocka_unit_test(columns_are_mixed),
        cmocka_unit_test(rows_are_mirrored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
