/* update - what the GPU kernels of optimizers share.
 * The twin of backend/cpu/update.h. */
#ifndef BACKEND_CUDA_UPDATE_CUH
#define BACKEND_CUDA_UPDATE_CUH

#include "backend/cuda/device.cuh"

extern "C" {
#include "op/update.h"
}

struct cuda_update {
    const double *check, *segments;
    const float *control, *scaler; /* scaler NULL: none */
    const struct step_scalars *scalars;
    int64_t n, n_segments;
};

static inline struct cuda_update update_of(const struct own *p)
{
    struct cuda_update u = {};

    u.check = (const double *)p->in[UPDATE_CHECK];
    u.segments = (const double *)p->in[UPDATE_SEGMENTS];
    u.control = (const float *)p->in[UPDATE_CONTROL];
    u.scaler = (const float *)p->in[UPDATE_SCALER];
    u.scalars = (const struct step_scalars *)p->in[UPDATE_SCALARS];
    u.n = p->n;
    u.n_segments = p->in_shape[UPDATE_SEGMENTS].dim[0];
    return u;
}

/* The update as one thread sees it.  Elements of a thread come in ascending order, and a row is
 * looked for only when its end is passed: where all parameters have one setting, never again. */
struct update_thread {
    const struct cuda_update *u;
    float unscale, clip;
    float rate, decay; /* of the element last found */
    int64_t end;       /* of its row */

    __device__ explicit update_thread(const struct cuda_update *update)
        : u(update), unscale(1.0f / update_scale(update->scaler)),
          clip(update_clip(update->check, update->scalars, update->scaler)), rate(0), decay(0),
          end(0)
    {
    }

    /* Whether element i is of another row than the one before. */
    __device__ bool find(int64_t i)
    {
        if (i < end)
            return false;
        const double *row =
            u->segments + update_row(u->segments, u->n_segments, i) * SEGMENT_COLUMNS;

        end = (int64_t)row[SEGMENT_END];
        rate = u->scalars->rate * (float)row[SEGMENT_RATE];
        decay = (float)row[SEGMENT_DECAY];
        return true;
    }

    template <typename G> __device__ float gradient(const G *grad, int64_t i) const
    {
        const float g = (float)grad[i] * unscale;

        return clip != 1.0f ? g * clip : g;
    }
};

/* The run function of an optimizer's kernel by the type of the copies (none: float), and by whether
 * the gradient is of that type or float.  KERNEL<gradient, copies> is a run_fn. */
#define UPDATE_RUN(g, n, KERNEL)                                                          \
    ((g)->value[(n)->in[UPDATE_GRAD]].dtype == DTYPE_F32                                  \
         ? typed(g, n, KERNEL<float, float>, KERNEL<float, bf16_t>, KERNEL<float, f16_t>) \
         : typed(g, n, KERNEL<float, float>, KERNEL<bf16_t, bf16_t>, KERNEL<f16_t, f16_t>))

#endif
