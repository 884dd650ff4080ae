/* amx - the tiles of amx.h: four of them hold sums, two a part of a, and two a part of b.  On other
 * processors, and where the system does not grant the tiles, plain loops compute the same. */
#include "backend/cpu/amx.h"

#include <string.h>

#include "backend/cpu/onednn.h"
#include "base/util.h"
#include "tensor/half.h"

static int64_t amx_low(const struct amx *x) { return x->a_low ? x->a_low : AMX_TILE * x->a_row; }

/* ---- plain loops ---- */

static float plain_sum_of(const struct amx *x, const uint16_t *a, const uint16_t *b)
{
    float sum = 0;

    for (int64_t t1 = 0; t1 < x->n1; t1++)
        for (int64_t t2 = 0; t2 < x->n2; t2++)
            for (int64_t k = 0; k < AMX_TERMS; k++)
                sum += bf16_to_float(a[t1 * x->a1 + t2 * x->a2 + k]) *
                       bf16_to_float(b[t1 * x->b1 + t2 * x->b2 + k / 2 * x->b_row + k % 2]);
    return sum;
}

static void run_plain(const struct amx *x, const uint16_t *a, const uint16_t *b, float *c)
{
    for (int64_t i = 0; i < x->n_i; i++)
        for (int64_t j = 0; j < x->n_j; j++) {
            const int64_t row = i / AMX_TILE * amx_low(x) + i % AMX_TILE * x->a_row;
            const float sum = plain_sum_of(x, a + row, b + 2 * j);
            float *to = c + i * x->c_row + j;

            *to = x->adds ? *to + sum : sum;
        }
    for (int64_t step = 0; x->beside && step < x->n1 * x->n2; step++)
        x->beside(x->task, step);
}

static void write_plain(const float *sum, const int64_t *place, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < AMX_BLOCK && place[i] >= 0; j++)
            to[place[i] + j] = bf16_from_float(sum[i * AMX_BLOCK + j]);
}

static void pair_plain(const uint16_t *low, const uint16_t *high, int64_t n, uint16_t *to)
{
    for (int64_t j = 0; j < n; j++) {
        to[2 * j] = low ? low[j] : 0;
        to[2 * j + 1] = high ? high[j] : 0;
    }
}

static void turn_pairs_plain(const uint16_t *from, int64_t row, uint16_t *to, int64_t to_row)
{
    for (int j = 0; j < AMX_TILE; j++)
        for (int k = 0; k < AMX_TILE; k++)
            memcpy(to + k * to_row + 2 * j, from + j * row + 2 * k, 2 * sizeof *to);
}

static void turn_plain(const uint16_t *const row[AMX_TERMS], int64_t at, uint16_t *to)
{
    for (int i = 0; i < AMX_TILE; i++)
        for (int k = 0; k < AMX_TERMS; k++)
            to[i * AMX_TERMS + k] = row[k] ? row[k][at + i] : 0;
}

#ifdef __x86_64__

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AMX    __attribute__((target("avx512f,amx-tile,amx-bf16")))
#define AVX512 __attribute__((target("avx512f")))
#define ROUNDS __attribute__((target("avx512f,avx512bf16")))

#include "backend/cpu/pairs.h"

/* ---- tiles ---- */

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, N_TILES = 8, TILE_BYTES = 64 };

/* The operand of LDTILECFG, as Intel's manual gives it. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* GCC 12's _tile_loadconfig tells the compiler of 8 bytes that it reads (findings/
 * gcc_tile_config.sh), so the instruction is written out. */
AMX static void amx_configure(void)
{
    struct tile_config config = {.palette = 1};

    for (int i = 0; i < N_TILES; i++) {
        config.row_bytes[i] = TILE_BYTES;
        config.rows[i] = AMX_TILE;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

AMX static void amx_release(void) { _tile_release(); }

/* Sums of row i and column j of tiles are in tile 2*i + j.  The compiler knows I and J. */
/* clang-format off */
AMX __attribute__((always_inline)) static inline void amx_block(const struct amx *x,
                                                                const uint16_t *a,
                                                                const uint16_t *b, float *c,
                                                                const int I, const int J)
{
    const int64_t a_bytes = x->a_row * 2, b_bytes = x->b_row * 2, c_bytes = x->c_row * 4;
    const uint16_t *a_low = a + amx_low(x), *b_right = b + 2 * AMX_TILE;
    float *c_low = c + AMX_TILE * x->c_row;
    int64_t step = 0;

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (x->adds) {
        _tile_loadd(0, c, c_bytes);
        if (J) _tile_loadd(1, c + AMX_TILE, c_bytes);
        if (I) _tile_loadd(2, c_low, c_bytes);
        if (I && J) _tile_loadd(3, c_low + AMX_TILE, c_bytes);
    }
    for (int64_t t1 = 0; t1 < x->n1; t1++) {
        int64_t a_at = t1 * x->a1, b_at = t1 * x->b1;

        for (int64_t t2 = 0; t2 < x->n2; t2++, a_at += x->a2, b_at += x->b2) {
            _tile_loadd(4, a + a_at, a_bytes);
            _tile_loadd(6, b + b_at, b_bytes);
            _tile_dpbf16ps(0, 4, 6);
            if (J) _tile_loadd(7, b_right + b_at, b_bytes);
            if (J) _tile_dpbf16ps(1, 4, 7);
            if (I) _tile_loadd(5, a_low + a_at, a_bytes);
            if (I) _tile_dpbf16ps(2, 5, 6);
            if (I && J) _tile_dpbf16ps(3, 5, 7);
            if (x->beside) x->beside(x->task, step++);
        }
    }
    _tile_stored(0, c, c_bytes);
    if (J) _tile_stored(1, c + AMX_TILE, c_bytes);
    if (I) _tile_stored(2, c_low, c_bytes);
    if (I && J) _tile_stored(3, c_low + AMX_TILE, c_bytes);
}
/* clang-format on */

/* Not inlined: the compiler does not know what memory the tiles read and write. */
AMX __attribute__((noinline)) static void run_tiles(const struct amx *x, const uint16_t *a,
                                                    const uint16_t *b, float *c)
{
    const int low = x->n_i > AMX_TILE, right = x->n_j > AMX_TILE;

    if (low && right)
        amx_block(x, a, b, c, 1, 1);
    else if (low)
        amx_block(x, a, b, c, 1, 0);
    else if (right)
        amx_block(x, a, b, c, 0, 1);
    else
        amx_block(x, a, b, c, 0, 0);
}

static int amx_ask(void)
{
    return dn_has_amx() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

int amx_available(void)
{
    static _Atomic int known; /* 1: no, 2: yes */

    if (!known)
        known = 1 + amx_ask();
    return known == 2;
}

void amx_begin(void)
{
    if (amx_available())
        amx_configure();
}

void amx_end(void)
{
    if (amx_available())
        amx_release();
}

void amx_run(const struct amx *x, const uint16_t *a, const uint16_t *b, float *c)
{
    ASSERT((x->n_i == AMX_TILE || x->n_i == AMX_BLOCK) &&
           (x->n_j == AMX_TILE || x->n_j == AMX_BLOCK));
    if (amx_available())
        run_tiles(x, a, b, c);
    else
        run_plain(x, a, b, c);
}

ROUNDS static void write_wide(const float *sum, const int64_t *place, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++, sum += AMX_BLOCK)
        if (place[i] >= 0)
            _mm512_storeu_si512(to + place[i],
                                (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(sum + AMX_TILE),
                                                             _mm512_loadu_ps(sum)));
}

void amx_write(const float *sum, const int64_t *place, int64_t n, uint16_t *to)
{
    if (amx_available())
        write_wide(sum, place, n, to);
    else
        write_plain(sum, place, n, to);
}

/* ---- how operands lie ---- */

/* Pair j of row i becomes pair i of row j: within quarters of a vector, then the quarters. */
/* clang-format off */
INLINE void store_turned(__m512i x[AMX_TILE], uint16_t *to, int64_t to_row)
{
    __m512i y[AMX_TILE];

    EACH(i, AMX_TILE / 2) {
        y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    EACH(i, AMX_TILE / 4) {
        x[4 * i] = _mm512_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
        x[4 * i + 1] = _mm512_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
        x[4 * i + 2] = _mm512_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
        x[4 * i + 3] = _mm512_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
    }
    EACH(i, AMX_TILE / 4) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
    EACH(i, AMX_TILE / 2) {
        _mm512_storeu_si512(to + i * to_row, _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88));
        _mm512_storeu_si512(to + (i + 8) * to_row, _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd));
    }
}

AVX512 static void turn_wide(const uint16_t *const row[AMX_TERMS], int64_t at, uint16_t *to)
{
    __m512i x[AMX_TILE];

    EACH(i, AMX_TILE)
        x[i] = pairs_of(row[2 * i] ? row[2 * i] + at : NULL,
                        row[2 * i + 1] ? row[2 * i + 1] + at : NULL);
    store_turned(x, to, AMX_TERMS);
}

AVX512 static void turn_pairs_wide(const uint16_t *from, int64_t row, uint16_t *to, int64_t to_row)
{
    __m512i x[AMX_TILE];

    EACH(j, AMX_TILE)
        x[j] = _mm512_loadu_si512(from + j * row);
    store_turned(x, to, to_row);
}
/* clang-format on */

void amx_pair(const uint16_t *low, const uint16_t *high, int64_t n, uint16_t *to)
{
    ASSERT(n % AMX_TILE == 0);
    if (amx_available())
        pairs_zip(low, high, n, to);
    else
        pair_plain(low, high, n, to);
}

void amx_turn_pairs(const uint16_t *from, int64_t row, uint16_t *to, int64_t to_row)
{
    if (amx_available())
        turn_pairs_wide(from, row, to, to_row);
    else
        turn_pairs_plain(from, row, to, to_row);
}

void amx_turn(const uint16_t *const row[AMX_TERMS], int64_t at, uint16_t *to)
{
    if (amx_available())
        turn_wide(row, at, to);
    else
        turn_plain(row, at, to);
}

#else

int amx_available(void) { return 0; }
void amx_begin(void) {}
void amx_end(void) {}

void amx_run(const struct amx *x, const uint16_t *a, const uint16_t *b, float *c)
{
    run_plain(x, a, b, c);
}

void amx_write(const float *sum, const int64_t *place, int64_t n, uint16_t *to)
{
    write_plain(sum, place, n, to);
}

void amx_pair(const uint16_t *low, const uint16_t *high, int64_t n, uint16_t *to)
{
    pair_plain(low, high, n, to);
}

void amx_turn_pairs(const uint16_t *from, int64_t row, uint16_t *to, int64_t to_row)
{
    turn_pairs_plain(from, row, to, to_row);
}

void amx_turn(const uint16_t *const row[AMX_TERMS], int64_t at, uint16_t *to)
{
    turn_plain(row, at, to);
}

#endif
