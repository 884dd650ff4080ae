/* update - the part that the optimizers' GPU kernels share: settings, unscaling and clipping.
 *
 * The twin is backend/cpu/update.h. */
#ifndef BACKEND_CUDA_UPDATE_CUH
#define BACKEND_CUDA_UPDATE_CUH

#include <float.h>

#include "backend/cuda/device.cuh"

extern "C" {
#include "op/update.h"
}

struct cuda_update {
    const double *check, *segments;
    const float *control, *scaler; /* scaler NULL: gradients are not scaled */
    const struct step_scalars *scalars;
    unsigned long long *kept; /* [KEPT_LEN]; NULL: nothing is noted */
    int64_t n, n_segments;

    /* The new value of parameter i, or the old one, `before`, if it is not finite (op/update.c). */
    __device__ float keep(int64_t i, float next, float before) const
    {
        if (fabsf(next) <= FLT_MAX)
            return next;
        const int64_t mark = kept ? update_mark(segments, n_segments, i) : 0;

        if (mark) {
            atomicMax(&kept[KEPT_LOWEST], (unsigned long long)mark);
            atomicAdd(&kept[KEPT_COUNT], 1ULL);
        }
        return before;
    }
};

static inline struct cuda_update update_of(const struct own *p)
{
    struct cuda_update u = {};

    u.check = (const double *)p->in[UPDATE_CHECK];
    u.segments = (const double *)p->in[UPDATE_SEGMENTS];
    u.control = (const float *)p->in[UPDATE_CONTROL];
    u.scaler = (const float *)p->in[UPDATE_SCALER];
    u.scalars = (const struct step_scalars *)p->in[UPDATE_SCALARS];
    u.kept = (unsigned long long *)p->out[UPDATE_NEW_KEPT];
    u.n = p->n;
    u.n_segments = p->in_shape[UPDATE_SEGMENTS].dim[0];
    return u;
}

/* The update as one thread sees it.  A thread takes its elements in ascending order, so it looks
 * for a row of the segments' table only when it has passed the end of the row before.  If all
 * parameters have the same settings, it looks once. */
struct update_thread {
    const struct cuda_update *u;
    float unscale, clip;
    float rate, decay; /* the settings of the element that was found last */
    int64_t row, end;  /* that element's row, and the end of the row */

    __device__ explicit update_thread(const struct cuda_update *update)
        : u(update), unscale(1.0f / update_scale(update->control, update->scalars, update->scaler)),
          clip(update_clip(update->check, update->control, update->scalars, update->scaler)),
          rate(0), decay(0), row(-1), end(0)
    {
    }

    /* Finds the settings of element i.  1: it is in another row than the element before. */
    __device__ bool find(int64_t i)
    {
        if (i < end)
            return false;
        row = update_row(u->segments, u->n_segments, i);
        const double *settings = u->segments + row * SEGMENT_COLUMNS;

        end = (int64_t)settings[SEGMENT_END];
        rate = u->scalars->rate * (float)settings[SEGMENT_RATE];
        decay = (float)settings[SEGMENT_DECAY];
        return true;
    }

    template <typename G> __device__ float gradient(const G *grad, int64_t i) const
    {
        const float g = (float)grad[i] * unscale;

        return clip != 1.0f ? g * clip : g;
    }
};

/* Picks the run function of an optimizer's kernel, by the type of the working copies (float if
 * there are none), and by whether the gradient has that type or is float.  KERNEL<gradient, copies>
 * is a run_fn. */
#define UPDATE_RUN(g, n, KERNEL)                                                          \
    ((g)->value[(n)->in[UPDATE_GRAD]].dtype == DTYPE_F32                                  \
         ? typed(g, n, KERNEL<float, float>, KERNEL<float, bf16_t>, KERNEL<float, f16_t>) \
         : typed(g, n, KERNEL<float, float>, KERNEL<bf16_t, bf16_t>, KERNEL<f16_t, f16_t>))

#endif
