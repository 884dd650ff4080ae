/* elementwise - arithmetic with broadcasting; the formulas are those of ir/elementwise.h.
 *
 * All threads take the same branch of the switch over the kinds, so that one kernel serves all.
 * op/elementwise.c has the semantics; the twin is cpu/elementwise.c. */
#include "backend/cuda/strided.cuh"

/* An operand and its map into the result; x is NULL if there is none. */
template <typename T> struct operand {
    const T *x;
    struct strided s;

    __device__ float get(int64_t i) const { return x ? (float)x[place_of(s, i)] : 0.0f; }
};

struct settings {
    int kind;
    float p, q;
};

static __device__ float result_of(const struct settings &f, float a, float b, float c)
{
    const float p = f.p, q = f.q;

    (void)p, (void)q;
    switch (f.kind) {
#define X(kind, name, n, y, da, db) \
    case EW_##kind:                 \
        return y;
        ELEMENTWISE_LIST(X)
#undef X
    default:
        return 0.0f;
    }
}

/* The gradient of a, or of b. */
static __device__ float slope_of(const struct settings &f, bool of_b, float a, float b, float c,
                                 float dy)
{
    const float p = f.p, q = f.q, y = result_of(f, a, b, c);

    (void)p, (void)q, (void)y;
    switch (f.kind) {
#define X(kind, name, n, y, da, db) \
    case EW_##kind:                 \
        return of_b ? (db) : (da);
        ELEMENTWISE_LIST(X)
#undef X
    default:
        return 0.0f;
    }
}

template <typename T>
static __global__ void cuda_elementwise_forward(struct operand<T> a, struct operand<T> b,
                                                struct operand<T> c, struct settings f, T *y,
                                                int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = (T)result_of(f, a.get(i), b.get(i), c.get(i));
}

/* da or db may be NULL. */
template <typename T>
static __global__ void cuda_elementwise_backward(struct operand<T> a, struct operand<T> b,
                                                 struct operand<T> c, struct settings f,
                                                 const T *dy, T *da, T *db, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        const float va = a.get(i), vb = b.get(i), vc = c.get(i), d = (float)dy[i];

        if (da)
            da[i] = (T)slope_of(f, false, va, vb, vc, d);
        if (db)
            db[i] = (T)slope_of(f, true, va, vb, vc, d);
    }
}

template <typename T>
static struct operand<T> operand_of(const struct own *p, int i, const struct shape *result) {
    struct operand<T> o = {
    };

    if (p->in_shape[i].n >= 0) {
        o.x = (const T *)p->in[i];
        o.s = strided_broadcast(&p->in_shape[i], result);
    }
    return o;
}

static struct settings
settings_of(const struct own *p)
{
    return {(int)p->attr.elementwise.kind, p->attr.elementwise.p, p->attr.elementwise.q};
}

template <typename T> static void cuda_elementwise_run(const struct own *p)
{
    const struct shape *y = &p->out_shape[ELEMENTWISE_Y];
    const int64_t n = shape_elements(y);

    LAUNCH((cuda_elementwise_forward<T>), blocks_for(p, n, THREADS), THREADS, p,
           operand_of<T>(p, ELEMENTWISE_A, y), operand_of<T>(p, ELEMENTWISE_B, y),
           operand_of<T>(p, ELEMENTWISE_C, y), settings_of(p), (T *)p->out[ELEMENTWISE_Y], n);
}

template <typename T> static void cuda_elementwise_run_grad(const struct own *p)
{
    const struct shape *y = &p->in_shape[ELEMENTWISE_GRAD_DY];
    const int64_t n = shape_elements(y);

    LAUNCH((cuda_elementwise_backward<T>), blocks_for(p, n, THREADS), THREADS, p,
           operand_of<T>(p, ELEMENTWISE_GRAD_A, y), operand_of<T>(p, ELEMENTWISE_GRAD_B, y),
           operand_of<T>(p, ELEMENTWISE_GRAD_C, y), settings_of(p),
           (const T *)p->in[ELEMENTWISE_GRAD_DY], (T *)p->out[ELEMENTWISE_GRAD_DA],
           (T *)p->out[ELEMENTWISE_GRAD_DB], n);
}

extern "C" int cuda_make_elementwise(struct cuda *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_elementwise_run<float>, cuda_elementwise_run<bf16_t>,
                         cuda_elementwise_run<f16_t>),
                   0, out, err);
}

extern "C" int cuda_make_elementwise_grad(struct cuda *b, const struct graph *g,
                                          const struct node *n, struct kernel **out,
                                          struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_elementwise_run_grad<float>, cuda_elementwise_run_grad<bf16_t>,
                         cuda_elementwise_run_grad<f16_t>),
                   0, out, err);
}
