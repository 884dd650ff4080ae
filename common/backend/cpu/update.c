/* update - cuts an optimizer's update into ranges of elements with equal settings.
 *
 * If all parameters have the same settings, a thread's part is one range. */
#include "backend/cpu/update.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/convert.h"
#include "base/util.h"

enum { LANES = 16, KEEP_PIECE = 8192 };

struct cpu_update update_of(const struct plain *p)
{
    const float *control = p->in[UPDATE_CONTROL], *scaler = p->in[UPDATE_SCALER];
    const struct step_scalars *s = p->in[UPDATE_SCALARS];

    return (struct cpu_update){
        .unscale = 1.0f / update_scale(control, s, scaler),
        .clip = update_clip(p->in[UPDATE_CHECK], control, s, scaler),
    };
}

/* Exponents of ones are infinities and NaN. */
CPU_CLONES static int are_finite(const float *restrict x, int64_t n)
{
    const uint32_t ones = 0x7f800000;
    uint32_t bad = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & ones) == ones;
    }
    return !bad;
}

/* Parts run side by side. */
static void note_kept(const struct plain *p, int64_t element)
{
    int64_t *kept = p->out[UPDATE_NEW_KEPT];
    const int64_t mark =
        update_mark(p->in[UPDATE_SEGMENTS], p->in_shape[UPDATE_SEGMENTS].dim[0], element);
    int64_t seen;

    if (!kept || !mark)
        return;
    seen = __atomic_load_n(&kept[KEPT_LOWEST], __ATOMIC_RELAXED);
    while (seen < mark && !__atomic_compare_exchange_n(&kept[KEPT_LOWEST], &seen, mark, 1,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    __atomic_fetch_add(&kept[KEPT_COUNT], 1, __ATOMIC_RELAXED);
}

void update_keep(const struct plain *p, const float *before, int64_t from, int64_t n)
{
    float *param = (float *)p->out[UPDATE_NEW_PARAM] + from;

    if (are_finite(param, n))
        return;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(param[i])) {
            param[i] = before[i];
            note_kept(p, from + i);
        }
}

/* Calls `range` for [u->from, u->from + u->n), in pieces that stay in the nearest caches. */
static void run_range(const struct plain *p, struct cpu_update u, update_range *range)
{
    const int64_t end = u.from + u.n;
    const int64_t most = p->in_type[UPDATE_GRAD] == DTYPE_F32 ? KEEP_PIECE : PLAIN_PIECE;
    float room[PLAIN_PIECE], before[KEEP_PIECE];

    for (; u.from < end; u.from += u.n) {
        u.n = min_i64(end - u.from, most);
        u.grad = plain_read(p, UPDATE_GRAD, u.from, u.n, room);
        memcpy(before, (float *)p->out[UPDATE_NEW_PARAM] + u.from, (size_t)u.n * sizeof *before);
        range(p, &u);
        update_keep(p, before, u.from, u.n);
    }
}

void update_ranges(const struct plain *p, int64_t from, int64_t to, update_range *range)
{
    const struct step_scalars *s = p->in[UPDATE_SCALARS];
    const double *row = p->in[UPDATE_SEGMENTS];
    struct cpu_update u = update_of(p);

    row += update_row(row, p->in_shape[UPDATE_SEGMENTS].dim[0], from) * SEGMENT_COLUMNS;
    for (u.from = from; u.from < to; u.from += u.n, row += SEGMENT_COLUMNS) {
        u.n = min_i64((int64_t)row[SEGMENT_END], to) - u.from;
        u.rate = s->rate * (float)row[SEGMENT_RATE];
        u.decay = (float)row[SEGMENT_DECAY];
        run_range(p, u, range);
    }
    update_copies(p, from, to);
}

void update_copies(const struct plain *p, int64_t from, int64_t to)
{
    if (p->out[UPDATE_NEW_COPY])
        convert_from_f32((char *)p->out[UPDATE_NEW_COPY] +
                             (size_t)from * dtype_size(p->out_type[UPDATE_NEW_COPY]),
                         (const float *)p->out[UPDATE_NEW_PARAM] + from,
                         p->out_type[UPDATE_NEW_COPY], to - from);
}

CPU_CLONES static void scale_gradient(const struct cpu_update *u, const float *restrict grad,
                                      float *restrict to)
{
    const float unscale = u->unscale, clip = u->clip;

    for (int64_t i = 0; i < u->n; i++)
        to[i] = grad[i] * unscale;
    for (int64_t i = 0; clip != 1.0f && i < u->n; i++)
        to[i] = to[i] * clip;
}

void update_gradient(const struct plain *p, const struct cpu_update *u, float *room)
{
    float piece[PLAIN_PIECE];
    struct cpu_update part = *u;

    for (int64_t at = 0; at < u->n; at += PLAIN_PIECE) {
        part.n = min_i64(u->n - at, PLAIN_PIECE);
        scale_gradient(&part, plain_read(p, UPDATE_GRAD, u->from + at, part.n, piece), room + at);
    }
}

CPU_CLONES double update_squares(const float *restrict x, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i < n; i++, j++)
        lane[j] += (double)x[i] * (double)x[i];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

void update_run(const struct plain *p, int64_t work, plain_part *part)
{
    if (control_applies(p->in[UPDATE_CHECK], p->in[UPDATE_CONTROL]))
        plain_split(p, p->c, p->c * work / 16, part);
}
