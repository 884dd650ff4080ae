/* rules - the kernels of the optimizers that are rules: one pass over the parameters for each.
 *
 * Every operation is rounded by itself (compiled without contraction), so replicas stay equal.
 * op/rule.h says what a rule is, and optim/NAME.h has the formulas; the twin is cpu/rules.c. */
#include "backend/cuda/update.cuh"

extern "C" {
#include "optim/rule_list.h"
}

/* The arrays of a node.  `copy` is the working copy of the parameters, or NULL. */
template <typename G, typename C> struct arrays {
    float *param;
    const G *grad;
    C *copy;
    float *slot[NODE_MAX_OUT - UPDATE_NEW_SLOT]; /* NULL: absent */
    int is_whole;                                /* 1: all slots are there */
};

template <typename G, typename C> static arrays<G, C> arrays_of(const struct own *p)
{
    arrays<G, C> a = {};

    a.param = (float *)p->out[UPDATE_NEW_PARAM];
    a.grad = (const G *)p->in[UPDATE_GRAD];
    a.copy = (C *)p->out[UPDATE_NEW_COPY];
    for (int i = UPDATE_NEW_SLOT; i < NODE_MAX_OUT; i++)
        a.slot[i - UPDATE_NEW_SLOT] = (float *)p->out[i];
    a.is_whole = a.slot[0] != NULL;
    return a;
}

#define LOAD(name, k, is_optional) e.name = (is_optional) && !e.is_whole ? 0.0f : a.slot[k][i];
#define KEEP(name, k, is_optional)    \
    if (!(is_optional) || e.is_whole) \
        a.slot[k][i] = e.name;

#define KERNEL(rule)                                                                              \
    template <typename G, typename C>                                                             \
    static __global__ void rule##_update(struct cuda_update u, arrays<G, C> a,                    \
                                         union node_attr attr)                                    \
    {                                                                                             \
        struct rule##_terms m = rule##_begin(attr.number, u.scalars->n_updates);                  \
        struct update_thread thread(&u);                                                          \
                                                                                                  \
        if (!control_applies(u.check, u.control))                                                 \
            return;                                                                               \
        for (int64_t i = grid_first(); i < u.n; i += grid_stride()) {                             \
            struct rule##_element e = {};                                                         \
                                                                                                  \
            if (thread.find(i))                                                                   \
                rule##_row(&m, thread.rate, thread.decay);                                        \
            e.g = thread.gradient(a.grad, i);                                                     \
            e.grad = (float)a.grad[i];                                                            \
            e.unscale = thread.unscale;                                                           \
            e.is_whole = a.is_whole;                                                              \
            e.param = a.param[i];                                                                 \
            RULE_SLOTS_##rule(LOAD);                                                              \
            rule##_step(&m, &e);                                                                  \
            RULE_SLOTS_##rule(KEEP);                                                              \
            const float next = u.keep(i, e.param, a.param[i]);                                    \
            a.param[i] = next;                                                                    \
            if (a.copy)                                                                           \
                a.copy[i] = (C)next;                                                              \
        }                                                                                         \
    }                                                                                             \
                                                                                                  \
    template <typename G, typename C> static void rule##_run(const struct own *p)                 \
    {                                                                                             \
        if (p->n > 0)                                                                             \
            LAUNCH((rule##_update<G, C>), blocks_for(p, p->n, THREADS), THREADS, p, update_of(p), \
                   (arrays_of<G, C>(p)), p->attr);                                                \
    }                                                                                             \
                                                                                                  \
    extern "C" int cuda_make_##rule(struct cuda *b, const struct graph *g, const struct node *n,  \
                                    struct kernel **out, struct err *err)                         \
    {                                                                                             \
        return own_new(b, g, n, UPDATE_RUN(g, n, rule##_run), 0, out, err);                       \
    }
RULE_LIST(KERNEL)
