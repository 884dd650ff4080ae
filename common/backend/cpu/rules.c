/* rules - the kernels of the optimizers that are rules: a loop over the elements for each.
 *
 * op/rule.h says what a rule is, and optim/NAME.h has the formulas; the twin is cuda/rules.cu. */
#include "backend/cpu/update.h"
#include "optim/rule_list.h"

/* A slot that is absent is NULL. */
#define POINT(name, k, is_optional) \
    float *const name =             \
        p->out[UPDATE_NEW_SLOT + (k)] ? update_at(p->out[UPDATE_NEW_SLOT + (k)], u) : NULL;
#define LOAD(name, k, is_optional) e.name = (is_optional) && !is_whole ? 0.0f : name[i];
#define KEEP(name, k, is_optional)  \
    if (!(is_optional) || is_whole) \
        name[i] = e.name;

/* Whatever does not depend on the element is a constant here, so that the compiler takes the
 * conditions out of the loop. */
#define LOOP(rule)                                                                             \
    CPU_CLONES static void rule##_loop(const struct plain *p, const struct cpu_update *u,      \
                                       struct rule##_terms m)                                  \
    {                                                                                          \
        const float unscale = u->unscale, clip = u->clip, *grad = u->grad;                     \
        const int is_whole = p->out[UPDATE_NEW_SLOT] != NULL;                                  \
        const int64_t n = u->n;                                                                \
        float *const param = update_at(p->out[UPDATE_NEW_PARAM], u);                           \
                                                                                               \
        RULE_SLOTS_##rule(POINT);                                                              \
        CPU_INDEPENDENT                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                      \
            struct rule##_element e = {                                                        \
                .grad = grad[i], .unscale = unscale, .is_whole = is_whole, .param = param[i]}; \
                                                                                               \
            e.g = e.grad * unscale;                                                            \
            if (clip != 1.0f)                                                                  \
                e.g = e.g * clip;                                                              \
            RULE_SLOTS_##rule(LOAD);                                                           \
            rule##_step(&m, &e);                                                               \
            RULE_SLOTS_##rule(KEEP);                                                           \
            param[i] = e.param;                                                                \
        }                                                                                      \
    }

/* The rest of a kernel. */
#define KERNEL(rule)                                                                   \
    LOOP(rule)                                                                         \
                                                                                       \
    static void rule##_range(const struct plain *p, const struct cpu_update *u)        \
    {                                                                                  \
        const struct step_scalars *s = p->in[UPDATE_SCALARS];                          \
        struct rule##_terms m = rule##_begin(p->attr.number, s->n_updates);            \
                                                                                       \
        rule##_row(&m, u->rate, u->decay);                                             \
        rule##_loop(p, u, m);                                                          \
    }                                                                                  \
                                                                                       \
    static void rule##_part(const struct plain *p, int part, int64_t from, int64_t to) \
    {                                                                                  \
        (void)part;                                                                    \
        update_ranges(p, from, to, rule##_range);                                      \
    }                                                                                  \
                                                                                       \
    static void rule##_run(const struct plain *p)                                      \
    {                                                                                  \
        update_run(p, RULE_WORK_##rule, rule##_part);                                  \
    }                                                                                  \
                                                                                       \
    int cpu_make_##rule(struct cpu *b, const struct graph *g, const struct node *n,    \
                        struct kernel **out, struct err *err)                          \
    {                                                                                  \
        return plain_new_split(b, g, n, rule##_run, 0, 0, out, err);                   \
    }
RULE_LIST(KERNEL)
