/* rotary - turns pairs of numbers, row by row.
 *
 * A row is small, so the rows that make a piece are read together.  Each number of y is two
 * products and a sum, without contraction, so the bits are those of the separate nodes. op/rotary.c
 * has the formulas; the twin is cuda/rotary.cu. */
#include "backend/cpu/plain.h"
#include "base/util.h"

/* Pairs i and half + i.  y may be x. */
CPU_CLONES static void cpu_rotary_halves(const float *x, const float *cos, const float *sin,
                                         float *y, int64_t half)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[half + i];

        y[i] = a * cos[i] - b * sin[i];
        y[half + i] = b * cos[half + i] + a * sin[half + i];
    }
}

CPU_CLONES static void cpu_rotary_halves_back(const float *x, const float *cos, const float *sin,
                                              float *y, int64_t half)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[half + i];

        y[i] = a * cos[i] + b * sin[half + i];
        y[half + i] = b * cos[half + i] - a * sin[i];
    }
}

/* Pairs 2i and 2i + 1. */
CPU_CLONES static void cpu_rotary_pairs(const float *x, const float *cos, const float *sin,
                                        float *y, int64_t half)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];

        y[2 * i] = a * cos[2 * i] - b * sin[2 * i];
        y[2 * i + 1] = b * cos[2 * i + 1] + a * sin[2 * i + 1];
    }
}

CPU_CLONES static void cpu_rotary_pairs_back(const float *x, const float *cos, const float *sin,
                                             float *y, int64_t half)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];

        y[2 * i] = a * cos[2 * i] + b * sin[2 * i + 1];
        y[2 * i + 1] = b * cos[2 * i + 1] - a * sin[2 * i];
    }
}

typedef void cpu_rotary_turn(const float *x, const float *cos, const float *sin, float *y,
                             int64_t half);

static cpu_rotary_turn *const cpu_rotary_turns[2][2] = {{cpu_rotary_halves, cpu_rotary_halves_back},
                                                        {cpu_rotary_pairs, cpu_rotary_pairs_back}};

/* The rows of a piece, n numbers from number `from` of x on; y may be x. */
static void cpu_rotary_piece(const struct plain *p, const float *x, float *y, int64_t from,
                             int64_t n)
{
    const int64_t c = p->c, places = p->in_shape[ROTARY_COS].dim[0];
    cpu_rotary_turn *turn = cpu_rotary_turns[p->attr.rotary.pairs][p->attr.rotary.back];

    for (int64_t i = 0; i < n; i += c) {
        const int64_t at = (from + i) / c / p->attr.rotary.inner % places * c;

        turn(x + i, (const float *)p->in[ROTARY_COS] + at, (const float *)p->in[ROTARY_SIN] + at,
             y + i, c / 2);
    }
}

static void cpu_rotary_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t c = p->c, step = plain_piece_rows(c);
    float *room = plain_part_scratch(p, part);

    for (int64_t r = from; r < to; r += step) {
        const int64_t n = min_i64(to - r, step) * c;
        const float *x = plain_read(p, ROTARY_X, r * c, n, room);

        cpu_rotary_piece(p, x, plain_dest(p, ROTARY_Y, r * c, room), r * c, n);
        plain_done(p, ROTARY_Y, r * c, n, room);
    }
}

static void cpu_rotary_run(const struct plain *p)
{
    plain_split(p, p->rows, p->rows * p->c / 2, cpu_rotary_part);
}

int cpu_make_rotary(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return plain_new_split(b, g, n, cpu_rotary_run, 0, plain_room_of(g, n->in[ROTARY_X]), out, err);
}
