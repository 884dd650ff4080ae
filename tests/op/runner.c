/* runner - runs a case on a backend, compares the results with the reference and with central
 * differences, and checks guards, inputs, allocations, and that equal runs give equal bytes. */
#include "runner.h"

#include "../test.h"

#include <malloc.h>
#include <math.h>

#include "base/alloc.h"
#include "places.h"
#include "ref_backend.h"
#include "tensor/half.h"

static void world_init(struct world *w, const struct op_case *c, const struct op_runner *r)
{
    *w = (struct world){.c = c, .r = r};
    w->g = case_build(c, r->types, w->din);
    w->own = xcalloc((size_t)w->g->n_values, sizeof *w->own);
    w->ref = xcalloc((size_t)w->g->n_values, sizeof *w->ref);
    for (int i = 0; i < w->g->n_values; i++) {
        w->own[i] = xcalloc(1, case_bytes(w->g, i) + 64);
        w->ref[i] = xcalloc(1, case_bytes(w->g, i) + 64);
        if (w->g->value[i].producer < 0)
            case_fill(c, w->g, i, w->own[i]);
        memcpy(w->ref[i], w->own[i], case_bytes(w->g, i));
    }
}

static void world_fini(struct world *w)
{
    for (int i = 0; i < w->g->n_values; i++) {
        free(w->own[i]);
        free(w->ref[i]);
    }
    free(w->own);
    free(w->ref);
    graph_free(w->g);
}

/* Bytes of heap in use.  oneDNN allocates small objects in every call and frees them before it
 * returns.  But its threads keep some memory for good, so with several threads there is nothing to
 * compare. */
static size_t heap_in_use(const struct world *w)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
    (void)w;
    return 0; /* a sanitizer's allocator keeps no such count */
#else
    return w->r->watch_heap ? mallinfo2().uordblks : 0;
#endif
}

/* Memory that oneDNN frees goes to glibc's per-thread cache first, where it still counts as in use,
 * until the cache has 7 entries of each size.  So the heap may grow in the first turns; if it still
 * does in the last of TURNS, there are more turns, up to MOST_TURNS. */
enum { TURNS = 10, MOST_TURNS = 60 };

/* Returns 1 if the heap grew meanwhile. */
static int run_once(struct kernel *k, struct world *w, const struct node *n)
{
    const uint64_t allocs = alloc_count();
    const size_t heap = heap_in_use(w);
    int grew = 0;
    struct err err;

    if (k->ops->run(k, &err) < 0)
        world_fail(w, n, err.msg);
    else if (alloc_count() != allocs)
        world_fail(w, n, "a run allocated memory");
    else
        grew = heap_in_use(w) != heap;
    if (backend_sync(w->r->b, &err) < 0)
        world_fail(w, n, err.msg);
    return grew;
}

static void run_often(struct kernel *k, struct places *p, struct world *w, const struct node *n,
                      unsigned char *copy[NODE_MAX_OUT])
{
    const int n_turns = w->r->n_turns ? w->r->n_turns : TURNS;
    int grew = 0;

    for (int turn = 0; (turn < n_turns || (grew && turn < MOST_TURNS)) && !is_wrong(w); turn++) {
        places_load(p, w, n);
        if (w->r->before_run)
            w->r->before_run((uint64_t)turn);
        grew = run_once(k, w, n);
        for (int i = 0; i < n->n_out && !is_wrong(w); i++) {
            if (n->out[i] == NO_VALUE)
                continue;
            guarded_get(p->at[i], p->now[i]);
            if (turn > 0 && memcmp(copy[i], p->now[i], p->at[i]->n_bytes))
                world_fail(w, n, "another run gave other bytes");
            memcpy(copy[i], p->now[i], p->at[i]->n_bytes);
        }
    }
    if (grew && !is_wrong(w))
        world_fail(w, n, "a run allocated memory");
}

/* Returns 1 if the node has no kernel, or one that this run leaves out. */
static int is_left_out(const struct world *w, const struct node *n)
{
    if (w->c->fusion &&
        !backend_can_fuse(w->r->b, w->g, n, (enum fusion)w->c->fusion,
                          w->c->fusion == FUSE_NORM ? w->c->attr.norm.act : w->c->attr.linear.act))
        return 1;
    return op_get(n->op)->flags & (OP_ALIAS | OP_ENGINE) || (w->r->has && !w->r->has(n->op));
}

/* Run the node in guarded places.  copy[i] gets output i, `metrics` the metrics' new content. */
static void run_placed(struct world *w, const struct node *n, size_t shift, int in_place,
                       unsigned char *copy[NODE_MAX_OUT], double metrics[METRIC_COUNT])
{
    struct kernel *k = NULL;
    struct places p;
    struct err err;

    if (backend_make_kernel(w->r->b, w->g, n, &k, &err) < 0) {
        world_fail(w, n, err.msg);
        return;
    }
    places_init(&p, w, n, k->scratch_bytes, shift, in_place);
    if (k->ops->bind(k, p.in_at, p.out_at, p.scratch.at, &err) < 0)
        world_fail(w, n, err.msg);
    run_often(k, &p, w, n, copy);
    if (!is_wrong(w)) { /* after an error the device may not even copy */
        places_check_guards(&p, w, n);
        places_check_inputs(&p, w, n);
        if (op_get(n->op)->flags & OP_EFFECT)
            guarded_get(&p.in[places_input(n, w->g->metrics)], metrics);
    }
    k->ops->free(k);
    places_fini(&p);
}

static double number_at(const void *v, enum dtype dtype, int64_t i)
{
    if (dtype == DTYPE_F64)
        return ((const double *)v)[i];
    if (dtype == DTYPE_I64)
        return (double)((const int64_t *)v)[i];
    if (dtype == DTYPE_U8)
        return ((const uint8_t *)v)[i];
    return dtype_is_real(dtype) ? (double)real_get(v, dtype, i) : (double)((const int32_t *)v)[i];
}

/* The distance between 1 and the next larger number of the type. */
static double epsilon(enum dtype type)
{
    return type == DTYPE_F32 ? 0x1p-23 : type == DTYPE_BF16 ? 0x1p-7 : 0x1p-10;
}

/* The difference that rounding may make.  A result of half precision may have been rounded to the
 * other of two neighbours; where rounds_more, there are more roundings, to the node's type.  A sum
 * with what the output held before is rounded once more, by half the distance at most; `seen` is
 * that sum. */
static double unit(const struct world *w, const struct node *n, int rounds_more, enum dtype dtype,
                   double value, double seen, double largest)
{
    const enum dtype type = rounds_more ? op_type(w->g, n) : dtype;
    double most = 0;

    if (dtype == DTYPE_F64 || (w->c->tol == 0 && !w->adds))
        return 0;
    if (dtype_is_half(type))
        most = epsilon(type) * (rounds_more ? largest : fabs(value)) +
               (type == DTYPE_F16 ? 0x1p-24 : 0);
    return w->adds && dtype_is_real(dtype) ? most + epsilon(dtype) / 2 * fabs(seen) : most;
}

static void compare(struct world *w, const struct node *n, int rounds_more, const void *seen,
                    const void *want, enum dtype dtype, int64_t len)
{
    double largest = 0;

    for (int64_t i = 0; i < len; i++)
        if (isfinite(number_at(want, dtype, i)))
            largest = fmax(largest, fabs(number_at(want, dtype, i)));
    for (int64_t i = 0; i < len; i++) {
        const double b = number_at(want, dtype, i), sum = number_at(seen, dtype, i);
        const double a = sum - (w->adds ? places_term(i) : 0);
        char text[128];

        if (fabs(a - b) <=
                w->c->tol * (largest + 1e-3) + unit(w, n, rounds_more, dtype, b, sum, largest) ||
            (isnan(a) && isnan(b)) || a == b)
            continue;
        snprintf(text, sizeof text, "element %lld of %lld is %.9g, the reference has %.9g",
                 (long long)i, (long long)len, a, b);
        world_fail(w, n, text);
        return;
    }
}

/* Output i of the node. */
static void compare_output(struct world *w, const struct node *n, int i, const void *seen)
{
    const struct op_runner *r = w->r;
    const struct value *v = &w->g->value[n->out[i]];

    compare(w, n, r->rounds_twice || (r->rounds_points && r->rounds_points(r->b, w->g, n, i)), seen,
            w->ref[n->out[i]], v->dtype, shape_elements(&v->shape));
}

static void run_reference(const struct world *w, const struct node *n, void **value)
{
    void *in[NODE_MAX_IN] = {0}, *out[NODE_MAX_OUT] = {0};

    if (op_get(n->op)->flags & OP_ALIAS)
        memcpy(value[n->out[0]], value[n->in[0]], case_bytes(w->g, n->out[0]));
    if (op_get(n->op)->flags & (OP_ALIAS | OP_ENGINE))
        return;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE)
            in[i] = value[n->in[i]];
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NO_VALUE)
            out[i] = value[n->out[i]];
    ref_run_node(w->g, n, in, out);
}

/* Returns 1 if only the backend that made the value can read it: the numbers of the elements that a
 * maximum pool chose, or a mask.  Others of I32 are whole numbers, which every backend can read. */
static int is_opaque(const struct graph *g, int value)
{
    const int maker = g->value[value].producer;

    if (g->value[value].dtype != DTYPE_I32 || maker < 0)
        return 0;
    return g->node[maker].op != OP_gather && g->node[maker].op != OP_cast &&
           g->node[maker].op != OP_integers;
}

/* Check linear's mask, in the order that backend/cuda/blas.h describes: a bit for each y, set where
 * y is positive.  Bits after the last column have no meaning. */
static void check_mask(struct world *w, const struct node *n, unsigned char *copy[NODE_MAX_OUT])
{
    const struct shape *y = &w->g->value[n->out[LINEAR_Y]].shape;
    const int64_t words = w->g->value[n->out[LINEAR_MASK]].shape.dim[1];
    const enum dtype type = w->g->value[n->out[LINEAR_Y]].dtype;

    for (int64_t row = 0; row < y->dim[0]; row++)
        for (int64_t c = 0; c < y->dim[1]; c++) {
            const uint32_t word = ((const uint32_t *)copy[1])[row * words + c / 32];
            const float v = real_get(copy[0], type, row * y->dim[1] + c);
            char text[128];

            if ((word >> c % 32 & 1) == (v > 0))
                continue;
            snprintf(text, sizeof text, "row %lld, column %lld is %.9g, but its mask's bit is %d",
                     (long long)row, (long long)c, (double)v, !(v > 0));
            world_fail(w, n, text);
            return;
        }
}

/* Returns 1 if the node may work in place, by the rule of program/plan.c. */
static int may_be_in_place(const struct world *w, const struct node *n)
{
    const struct op_def *def = op_get(n->op);

    return def->flags & OP_INPLACE && n->in[def->inplace_in] != NO_VALUE &&
           case_bytes(w->g, n->in[def->inplace_in]) == case_bytes(w->g, n->out[0]);
}

/* Run a variant of the node: plain, at an odd address, or in place where that is allowed. */
static void check_variant(struct world *w, const struct node *n, int variant,
                          unsigned char *copy[NODE_MAX_OUT])
{
    double metrics[METRIC_COUNT];

    if (variant == 2 && !may_be_in_place(w, n))
        return;
    run_placed(w, n, variant == 1 ? 16 : 0, variant == 2, copy, metrics);
    if (is_wrong(w))
        return;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NO_VALUE && !is_opaque(w->g, n->out[i]))
            compare_output(w, n, i, copy[i]);
    if (n->op == OP_linear && n->out[LINEAR_MASK] != NO_VALUE)
        check_mask(w, n, copy);
    if (op_get(n->op)->flags & OP_EFFECT)
        compare(w, n, 0, metrics, w->ref[w->g->metrics], DTYPE_F64, METRIC_COUNT);
}

/* The new outputs of real type to which the node may add, as node.adds has them. */
static unsigned addable(const struct world *w, const struct node *n)
{
    const struct op_def *def = op_get(n->op);
    unsigned adds = 0;

    for (int i = 0; i < n->n_out && !(def->flags & OP_EFFECT); i++)
        if (n->out[i] != NO_VALUE && !def->update[i] &&
            dtype_is_real(w->g->value[n->out[i]].dtype) && places_input(n, n->out[i]) < 0)
            adds |= 1u << i;
    return adds;
}

/* Run the node as one that adds to its outputs, if it is one that makes gradients, or a cast. */
static void check_adding(struct world *w, const struct node *n, unsigned char *copy[NODE_MAX_OUT])
{
    struct node adding = *n;
    double metrics[METRIC_COUNT];

    adding.adds = addable(w, n);
    if (is_wrong(w) || !adding.adds || (n - w->g->node < w->g->n_forward && n->op != OP_cast))
        return;
    w->adds = 1;
    run_placed(w, &adding, 0, 0, copy, metrics);
    for (int i = 0; i < n->n_out && !is_wrong(w); i++)
        if (adding.adds >> i & 1)
            compare_output(w, n, i, copy[i]);
    w->adds = 0;
}

/* Run the node on both backends and compare; later nodes read the outputs of each. */
static void check_node(struct world *w, const struct node *n)
{
    unsigned char *copy[NODE_MAX_OUT] = {0};

    if (is_left_out(w, n)) {
        run_reference(w, n, w->own);
        return;
    }
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NO_VALUE)
            copy[i] = xcalloc(1, case_bytes(w->g, n->out[i]) + 1);
    for (int i = 0; i < w->g->n_values; i++)
        if (!is_opaque(w->g, i))
            memcpy(w->ref[i], w->own[i], case_bytes(w->g, i));
    run_reference(w, n, w->ref);
    for (int variant = 0; variant < 3 && !is_wrong(w); variant++)
        check_variant(w, n, variant, copy);
    for (int i = 0; i < n->n_out; i++)
        if (copy[i])
            memcpy(w->own[n->out[i]], copy[i], case_bytes(w->g, n->out[i]));
    check_adding(w, n, copy);
    for (int i = 0; i < NODE_MAX_OUT; i++)
        free(copy[i]);
}

/* The sum of dy * y, or the loss, after the forward part has run on the reference. */
static double objective(const struct world *w, void **value)
{
    const struct node *n = &w->g->node[w->g->n_forward - 1];
    const struct value *y = &w->g->value[n->out[0]];
    const float *dy;
    double sum = 0;
    int in = -1;

    memset(value[w->g->metrics], 0, sizeof(double[METRIC_COUNT]));
    for (int i = 0; i < w->g->n_forward; i++)
        run_reference(w, &w->g->node[i], value);
    if (op_get(n->op)->flags & OP_LOSS)
        return ((double *)value[w->g->metrics])[METRIC_LOSS_SUM] *
               (double)((struct step_scalars *)value[w->g->scalars])->loss_scale;
    for (int i = 0; i < w->g->n_values; i++)
        if (!strcmp(w->g->value[i].name, "dy"))
            in = i;
    dy = value[in];
    for (int64_t i = 0; i < shape_elements(&y->shape); i++)
        sum += (double)dy[i] * (double)((float *)value[n->out[0]])[i];
    return sum;
}

/* Compare the gradient of `input`, which is in `grad`, with central differences at up to 6
 * elements. */
static void check_gradient(struct world *w, int input, int grad, void **value)
{
    const float h = 1e-3f, *g = w->own[grad];
    const int64_t len = shape_elements(&w->g->value[input].shape), step = len / 6 + 1;
    float *x = value[input];
    double largest = 0;

    for (int64_t i = 0; i < len; i++)
        largest = fmax(largest, fabs((double)g[i]));
    for (int64_t i = 0; i < len; i += step) {
        const float old = x[i], up = old + h, down = old - h;
        double high, low, slope;

        x[i] = up;
        high = objective(w, value);
        x[i] = down;
        low = objective(w, value);
        x[i] = old;
        slope = (high - low) / ((double)up - (double)down);
        if (fabs(slope - (double)g[i]) > w->c->grad_tol * (largest + 1e-2)) {
            snprintf(w->wrong, sizeof w->wrong,
                     "case %s: gradient of %s, element %lld is %.6g, differences give %.6g",
                     w->c->name, w->g->value[input].name, (long long)i, (double)g[i], slope);
            return;
        }
    }
}

static void check_gradients(struct world *w)
{
    const struct node *n = &w->g->node[w->g->n_forward - 1];
    int checked = 0;

    for (int i = 0; i < w->g->n_values; i++)
        memcpy(w->ref[i], w->own[i], case_bytes(w->g, i));
    for (int i = 0; i < NODE_MAX_IN && !is_wrong(w); i++) {
        if (w->din[i] == NO_VALUE)
            continue;
        check_gradient(w, n->in[i], w->din[i], w->ref);
        checked++;
    }
    ASSERT(checked > 0); /* a case with grad_tol has a gradient to check */
}

/* Returns the number of nodes that were checked; if not all were, w->wrong says why. */
static int run_case(struct world *w, int with_gradients)
{
    int n_nodes = 0;

    for (int k = 0; k < w->g->n_nodes && !is_wrong(w); k++) {
        check_node(w, &w->g->node[k]);
        n_nodes += !is_left_out(w, &w->g->node[k]);
    }
    if (!is_wrong(w) && with_gradients && w->c->grad_tol > 0 && w->r->types.type == DTYPE_F32)
        check_gradients(w);
    return n_nodes;
}

static int is_wanted(const struct op_runner *r, const struct op_case *c)
{
    int named = !r->only;

    for (int i = 0; r->only && r->only[i]; i++)
        named |= strcmp(r->only[i], c->name) == 0;
    return named && (r->types.type == DTYPE_F32 || case_is_typed(c));
}

/* The failures so far, to be listed again at the end. */
struct report {
    char (*wrong)[MOST_WRONG];
    int n_wrong, n_cases;
};

static void note(struct report *rep, const char *wrong)
{
    print_error("WRONG: %s\n", wrong);
    rep->wrong = xrealloc(rep->wrong, (size_t)(rep->n_wrong + 1) * sizeof *rep->wrong);
    snprintf(rep->wrong[rep->n_wrong++], MOST_WRONG, "%s", wrong);
}

/* Fail the test if anything was wrong. */
static void conclude(struct report *rep)
{
    const int n = rep->n_wrong;

    for (int i = 0; i < n; i++)
        print_error("%s%s\n", i ? "       " : "wrong: ", rep->wrong[i]);
    free(rep->wrong);
    if (n > 0)
        fail_msg("%d of the %d cases that ran are wrong, as listed above", n, rep->n_cases);
}

int op_runner_cases(const struct op_runner *r, int with_gradients)
{
    struct report rep = {0};
    struct err err;
    int n_nodes = 0, is_well = 1;
    const struct op_case *c;

    for (int i = 0; is_well && (c = op_case_at(i)); i++) {
        struct world w;

        if (!is_wanted(r, c))
            continue;
        printf("case %s\n", c->name);
        fflush(stdout); /* if a kernel hangs or ends the process, the output names the case */
        rep.n_cases++;
        world_init(&w, c, r);
        n_nodes += run_case(&w, with_gradients);
        if (is_wrong(&w)) {
            note(&rep, w.wrong);
            is_well = backend_sync(r->b, &err) == 0;
            if (!is_well)
                print_error("the device takes no more work, so no case behind this one ran: %s\n",
                            err.msg);
        }
        world_fini(&w);
    }
    conclude(&rep);
    return n_nodes;
}

/* Fail the n-th allocation, for n = 1, 2 ...: ERR_NOMEM each time, until the kernel is made. */
static void sweep(const struct world *w, const struct node *n)
{
    struct kernel *k = NULL;
    struct err err;

    if (is_left_out(w, n))
        return;
    for (uint64_t fail = 1; !k; fail++) {
        alloc_fail_at(fail);
        if (backend_make_kernel(w->r->b, w->g, n, &k, &err) < 0)
            assert_int_equal(err.code, ERR_NOMEM);
        else
            assert_true(fail > 1); /* at least the kernel itself is allocated */
        alloc_fail_at(0);
    }
    k->ops->free(k);
}

void op_runner_out_of_memory(const struct op_runner *r)
{
    const struct op_case *c;

    for (int i = 0; (c = op_case_at(i)); i++) {
        struct world w;

        world_init(&w, c, r);
        for (int k = 0; k < w.g->n_nodes; k++)
            sweep(&w, &w.g->node[k]);
        world_fini(&w);
    }
}
