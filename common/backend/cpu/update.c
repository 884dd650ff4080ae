/* update - cuts an optimizer's update into ranges of elements with equal settings.
 *
 * If all parameters have the same settings, a thread's part is one range. */
#include "backend/cpu/update.h"

#include "backend/cpu/convert.h"
#include "base/util.h"

static struct cpu_update update_of(const struct plain *p)
{
    const float *control = p->in[UPDATE_CONTROL], *scaler = p->in[UPDATE_SCALER];
    const struct step_scalars *s = p->in[UPDATE_SCALARS];

    return (struct cpu_update){
        .unscale = 1.0f / update_scale(control, s, scaler),
        .clip = update_clip(p->in[UPDATE_CHECK], control, s, scaler),
    };
}

/* Calls `range` for [u->from, u->from + u->n), in pieces if the gradient is BF16. */
static void run_range(const struct plain *p, struct cpu_update u, update_range *range)
{
    const int64_t end = u.from + u.n;
    float room[PLAIN_PIECE];

    for (; u.from < end; u.from += u.n) {
        u.n = end - u.from;
        if (p->in_type[UPDATE_GRAD] != DTYPE_F32)
            u.n = min_i64(u.n, PLAIN_PIECE);
        u.grad = plain_read(p, UPDATE_GRAD, u.from, u.n, room);
        range(p, &u);
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
    if (p->out[UPDATE_NEW_COPY])
        convert_from_f32((char *)p->out[UPDATE_NEW_COPY] +
                             (size_t)from * dtype_size(p->out_type[UPDATE_NEW_COPY]),
                         (const float *)p->out[UPDATE_NEW_PARAM] + from,
                         p->out_type[UPDATE_NEW_COPY], to - from);
}

void update_run(const struct plain *p, int64_t work, plain_part *part)
{
    if (control_applies(p->in[UPDATE_CHECK], p->in[UPDATE_CONTROL]))
        plain_split(p, p->c, p->c * work / 16, part);
}
