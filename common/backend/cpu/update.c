/* update - cuts an optimizer's update into ranges of elements with equal settings.
 *
 * If all parameters have the same settings, a thread's part is one range. */
#include "backend/cpu/update.h"

#include <string.h>

#include "base/util.h"

static struct cpu_update update_of(const struct plain *p)
{
    const float *scaler = p->in[UPDATE_SCALER];

    return (struct cpu_update){
        .unscale = 1.0f / update_scale(scaler),
        .clip = update_clip(p->in[UPDATE_CHECK], p->in[UPDATE_SCALARS], scaler),
    };
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
        range(p, &u);
    }
    if (p->out[UPDATE_NEW_COPY]) /* F32, since this backend computes in F32 alone */
        memcpy((float *)p->out[UPDATE_NEW_COPY] + from, (float *)p->out[UPDATE_NEW_PARAM] + from,
               (size_t)(to - from) * sizeof(float));
}

void update_run(const struct plain *p, int64_t work, plain_part *part)
{
    if (control_applies(p->in[UPDATE_CHECK], p->in[UPDATE_CONTROL]))
        plain_split(p, p->c, p->c * work / 16, part);
}
