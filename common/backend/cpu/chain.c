/* chain - builds and runs a kernel made of oneDNN primitives.  It reorders a tensor if a primitive
 * wants another layout, widens BF16 where F32 is computed, and puts temporaries and scratchpads
 * into the kernel's scratch. */
#include "backend/cpu/chain.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/activate.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/panels.h"
#include "backend/cpu/parts.h"
#include "backend/cpu/vector.h"
#include "base/alloc.h"
#include "base/util.h"
#include "op/op.h"

enum { MAX_TENSORS = 16, MAX_STEPS = 8, ALIGN = 64 };

struct tensor {
    enum chain_place place;
    int index;       /* IN, OUT */
    enum dtype type; /* of the memory that the primitives see */
    size_t offset;   /* TEMP, or is_widened: in the scratch */
    void *at;        /* once bound: the memory that the primitives see */
    int is_widened;  /* the operand is BF16, and the primitives see it in F32 */
    void *operand;   /* is_widened: where the BF16 numbers are, once bound */
    int64_t n;       /* elements; 0 for a temporary of a primitive's layout */
    struct dn_layout layout;
    struct dn_md md;
    dnnl_memory_t memory;
};

struct step {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[CHAIN_MAX_ARGS + 1];
    int n_args;
    dnnl_memory_t pad; /* scratchpad, or NULL */
    int is_copy;       /* chain_copy made it, between these two tensors: left out if they are one */
    int from, to;
    enum activation act;  /* of tensor `to`, in place; there is no primitive */
    struct panels panels; /* width > 0: fill tensor `to` from `from`; there is no primitive */
};

struct chain {
    struct kernel k;
    struct onednn *dn;
    const struct graph *g; /* while building, with n and err */
    const struct node *n;
    struct err *err;
    int widens; /* the primitives see BF16 operands in F32 */
    int rc;
    struct tensor tensor[MAX_TENSORS];
    int n_tensors;
    struct step step[MAX_STEPS];
    int n_steps;
    size_t temp_bytes, pad_bytes;
    int n_threads; /* with least_work: as in struct cpu, when the chain was made */
    int64_t least_work;
    void *scratch;
};

static void chain_free(struct kernel *k)
{
    struct chain *c = container_of(k, struct chain, k);

    for (int i = 0; i < c->n_steps; i++) {
        if (c->step[i].primitive)
            dnnl_primitive_destroy(c->step[i].primitive);
        if (c->step[i].pad)
            dnnl_memory_destroy(c->step[i].pad);
    }
    for (int i = 0; i < c->n_tensors; i++)
        if (c->tensor[i].memory)
            dnnl_memory_destroy(c->tensor[i].memory);
    free(c);
}

static int bind_tensor(struct tensor *t, void *const *in, void *const *out, char *scratch,
                       struct err *err)
{
    void *at = scratch + t->offset;

    if (t->place != CHAIN_TEMP)
        t->operand = t->place == CHAIN_IN ? in[t->index] : out[t->index];
    if (t->place != CHAIN_TEMP && !t->is_widened)
        at = t->operand;
    t->at = at;
    return dn_check(dnnl_memory_set_data_handle(t->memory, at), "set an address", err);
}

static int chain_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                      struct err *err)
{
    struct chain *c = container_of(k, struct chain, k);
    int rc = 0;

    c->scratch = scratch;
    for (int i = 0; rc == 0 && i < c->n_tensors; i++)
        rc = bind_tensor(&c->tensor[i], in, out, scratch, err);
    for (int i = 0; rc == 0 && i < c->n_steps; i++) {
        struct step *s = &c->step[i];

        if (s->pad)
            rc = dn_check(dnnl_memory_set_data_handle(s->pad, (char *)scratch + c->temp_bytes),
                          "set an address", err);
    }
    return rc;
}

/* A tensor whose numbers are widened or, if it is an output, rounded. */
struct conversion {
    const struct tensor *t;
    float *wide;
    int n_parts;
};

static void convert_part(const void *task, int i)
{
    const struct conversion *v = task;
    const int64_t from = v->t->n * i / v->n_parts, n = v->t->n * (i + 1) / v->n_parts - from;
    uint16_t *half = (uint16_t *)v->t->operand + from;

    if (v->t->place == CHAIN_IN)
        convert_to_f32(v->wide + from, half, DTYPE_BF16, n);
    else
        convert_from_f32(half, v->wide + from, DTYPE_BF16, n);
}

/* Convert the operands on one side of the node that the primitives see in F32. */
static void cpu_chain_convert(const struct chain *c, enum chain_place place)
{
    for (int i = 0; i < c->n_tensors; i++) {
        const struct tensor *t = &c->tensor[i];
        const struct conversion v = {t, (float *)((char *)c->scratch + t->offset),
                                     parts_of(c->n_threads, c->least_work, t->n, t->n / LANES)};

        if (t->is_widened && t->place == place)
            parts_run(v.n_parts, convert_part, &v);
    }
}

/* An activation of a tensor's n elements, in place. */
struct activated {
    enum activation act;
    enum dtype type;
    void *at;
    int64_t n;
    int n_parts;
};

static void cpu_chain_activate_part(const void *task, int i)
{
    const struct activated *a = task;
    const int64_t from = a->n * i / a->n_parts, n = a->n * (i + 1) / a->n_parts - from;

    if (a->type == DTYPE_F32)
        activate_f32(a->act, (float *)a->at + from, (float *)a->at + from, n);
    else
        activate_relu_bf16((uint16_t *)a->at + from, (uint16_t *)a->at + from, n);
}

static void cpu_chain_activate(const struct chain *c, enum activation act, const struct tensor *t)
{
    const struct activated a = {act, t->type, t->at, t->n,
                                parts_of(c->n_threads, c->least_work, t->n, t->n / LANES)};

    parts_run(a.n_parts, cpu_chain_activate_part, &a);
}

static int chain_run(struct kernel *k, struct err *err)
{
    struct chain *c = container_of(k, struct chain, k);

    cpu_chain_convert(c, CHAIN_IN);
    for (int i = 0; i < c->n_steps; i++) {
        struct step *s = &c->step[i];
        dnnl_status_t st;

        if (s->is_copy && c->tensor[s->from].at == c->tensor[s->to].at)
            continue;
        if (s->act != ACT_NONE) {
            cpu_chain_activate(c, s->act, &c->tensor[s->to]);
            continue;
        }
        if (s->panels.width) {
            panels_fill(&s->panels, c->tensor[s->from].at, c->tensor[s->to].at, c->n_threads,
                        c->least_work);
            continue;
        }
        st = dnnl_primitive_execute(s->primitive, c->dn->stream, s->n_args, s->arg);
        if (st != dnnl_success)
            return dn_check(st, "execute", err);
    }
    cpu_chain_convert(c, CHAIN_OUT);
    return 0; /* a CPU engine's stream runs in the calling thread, so all work is done by now */
}

static const struct kernel_ops chain_ops = {
    .bind = chain_bind,
    .run = chain_run,
    .free = chain_free,
};

struct chain *chain_new(struct cpu *b, const struct graph *g, const struct node *n, struct err *err)
{
    struct chain *c;
    void *mem;

    if (try_alloc(&mem, sizeof *c, "a kernel", err) < 0)
        return NULL;
    c = mem;
    c->k.ops = &chain_ops;
    c->dn = b->dn;
    c->n_threads = b->n_threads;
    c->least_work = b->least_work;
    c->g = g;
    c->n = n;
    c->err = err;
    c->widens = !dn_has_bf16();
    return c;
}

struct chain *chain_new_products(struct cpu *b, const struct graph *g, const struct node *n,
                                 struct err *err)
{
    struct chain *c = chain_new(b, g, n, err);

    if (c)
        c->widens = b->widens_bf16;
    return c;
}

struct onednn *chain_onednn(struct chain *c) { return c->dn; }

struct err *chain_err(struct chain *c) { return c->err; }

static int cpu_chain_add_tensor(struct chain *c, struct tensor t)
{
    size_t n_bytes = dn_md_bytes(&t.md);

    ASSERT(c->n_tensors < MAX_TENSORS);
    if (t.place == CHAIN_TEMP || t.is_widened) {
        t.offset = c->temp_bytes;
        c->temp_bytes += (size_t)round_up_i64((int64_t)n_bytes, ALIGN);
    }
    c->rc = dn_memory_new(c->dn, &t.md, &t.memory, c->err);
    c->tensor[c->n_tensors] = t;
    return c->n_tensors++;
}

/* The type of the operand, or of the node's temporaries. */
static enum dtype cpu_chain_type_of(const struct chain *c, enum chain_place place, int index)
{
    if (place == CHAIN_TEMP)
        return op_type(c->g, c->n);
    return c->g->value[place == CHAIN_IN ? c->n->in[index] : c->n->out[index]].dtype;
}

static int64_t cpu_chain_count(const struct dn_layout *l)
{
    int64_t n = 1;

    for (int i = 0; i < l->n; i++)
        n *= l->dim[i];
    return n;
}

int chain_tensor(struct chain *c, enum chain_place place, int index, struct dn_layout layout)
{
    struct tensor t = {
        .place = place, .index = index, .layout = layout, .n = cpu_chain_count(&layout)};

    if (!c || c->rc < 0)
        return CHAIN_NONE;
    t.type = cpu_chain_type_of(c, place, index);
    if (t.type == DTYPE_BF16 && c->widens) {
        t.is_widened = place != CHAIN_TEMP;
        t.type = DTYPE_F32;
    }
    if ((c->rc = dn_md_init(c->dn, &t.md, &layout, t.type, c->err)) < 0)
        return CHAIN_NONE;
    return cpu_chain_add_tensor(c, t);
}

const struct dn_md *chain_md(struct chain *c, int tensor)
{
    return tensor == CHAIN_NONE ? NULL : &c->tensor[tensor].md;
}

struct dn_md chain_any(struct chain *c, int tensor)
{
    struct dn_md md = {0};

    if (c->rc == 0)
        c->rc = dn_md_any(c->dn, &md, &c->tensor[tensor].layout, c->tensor[tensor].type, c->err);
    return md;
}

static struct step *add_step(struct chain *c)
{
    ASSERT(c->n_steps < MAX_STEPS);
    return &c->step[c->n_steps++];
}

/* Append the primitive of pd, with a scratchpad if it needs one.  Takes pd. */
static void add_primitive(struct chain *c, dnnl_primitive_desc_t pd, const dnnl_exec_arg_t *arg,
                          int n_args)
{
    struct step *s = add_step(c);
    struct dn_md pad;
    int has_pad = 0;

    memcpy(s->arg, arg, (size_t)n_args * sizeof *arg);
    s->n_args = n_args;
    c->rc = dn_check(dnnl_primitive_create(&s->primitive, pd), "make a primitive", c->err);
    if (c->rc == 0 && (has_pad = dn_md_of_arg(c->dn, pd, DNNL_ARG_SCRATCHPAD, &pad, c->err)) < 0)
        c->rc = has_pad;
    if (has_pad > 0 && dn_md_bytes(&pad) > 0) {
        size_t n_bytes = dn_md_bytes(&pad);

        c->pad_bytes = n_bytes > c->pad_bytes ? n_bytes : c->pad_bytes;
        c->rc = dn_memory_new(c->dn, &pad, &s->pad, c->err);
        s->arg[s->n_args++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, s->pad};
    }
    dnnl_primitive_desc_destroy(pd);
}

/* Append the reorder of an operand into a primitive's layout, if panels.h has it; else returns 0.
 * Only an operand's layout is known: a temporary may be in one that a primitive chose. */
static int add_panels(struct chain *c, int from, int to)
{
    const struct tensor *t = &c->tensor[from];
    struct panels p;

    if (t->place != CHAIN_IN || t->type != DTYPE_F32 || c->tensor[to].place != CHAIN_TEMP)
        return 0;
    c->rc = panels_find(c->dn, &t->layout, &c->tensor[to].md, &p, c->err);
    if (c->rc < 0 || !p.width)
        return 0;
    *add_step(c) = (struct step){.panels = p, .from = from, .to = to};
    return 1;
}

static void add_reorder(struct chain *c, int from, int to, int adds)
{
    const dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, c->tensor[from].memory},
                                   {DNNL_ARG_TO, c->tensor[to].memory}};
    dnnl_primitive_desc_t pd;

    if (c->rc < 0 || (!adds && add_panels(c, from, to)))
        return;
    if (c->rc == 0)
        c->rc = dn_reorder(c->dn, &c->tensor[from].md, &c->tensor[to].md, adds, &pd, c->err);
    if (c->rc == 0)
        add_primitive(c, pd, arg, 2);
}

/* Returns the argument's tensor if pd wants its layout and may use its memory, else a temporary in
 * pd's layout. */
static int cpu_chain_fit(struct chain *c, dnnl_primitive_desc_t pd, const struct chain_arg *arg)
{
    const struct tensor *wanted = &c->tensor[arg->tensor];
    struct tensor t = {.place = CHAIN_TEMP, .type = wanted->type, .layout = wanted->layout};

    const int has = dn_md_of_arg(c->dn, pd, arg->arg, &t.md, c->err);

    if (has < 0)
        c->rc = has;
    if (has <= 0 || (!arg->adds && dn_md_equal(&t.md, &wanted->md)))
        return arg->tensor;
    return cpu_chain_add_tensor(c, t);
}

static void add_activation(struct chain *c, enum activation act, int tensor)
{
    ASSERT(act == ACT_RELU || c->tensor[tensor].type == DTYPE_F32);
    *add_step(c) = (struct step){.act = act, .to = tensor};
}

void chain_add(struct chain *c, int rc, dnnl_primitive_desc_t pd, const struct chain_arg *args,
               int n_args)
{
    dnnl_exec_arg_t exec[CHAIN_MAX_ARGS] = {0};
    int used[CHAIN_MAX_ARGS], n_exec = 0;

    ASSERT(n_args <= CHAIN_MAX_ARGS);
    if (rc < 0) {
        c->rc = rc;
        return;
    }
    for (int i = 0; i < n_args && c->rc == 0; i++) {
        used[i] = CHAIN_NONE;
        if (args[i].tensor == CHAIN_NONE)
            continue;
        used[i] = cpu_chain_fit(c, pd, &args[i]);
        if (c->rc == 0 && used[i] != args[i].tensor && !args[i].is_out)
            add_reorder(c, args[i].tensor, used[i], 0);
        exec[n_exec++] = (dnnl_exec_arg_t){args[i].arg, c->tensor[used[i]].memory};
    }
    if (c->rc < 0) {
        dnnl_primitive_desc_destroy(pd);
        return;
    }
    add_primitive(c, pd, exec, n_exec);
    for (int i = 0; i < n_args && c->rc == 0; i++)
        if (args[i].is_out && used[i] != args[i].tensor)
            add_reorder(c, used[i], args[i].tensor, args[i].adds);
    for (int i = 0; i < n_args && c->rc == 0; i++)
        if (args[i].act != ACT_NONE)
            add_activation(c, args[i].act, args[i].tensor);
}

void chain_reorder(struct chain *c, int from, int to)
{
    if (c && c->rc == 0)
        add_reorder(c, from, to, 0);
}

void chain_copy(struct chain *c, int from, int to)
{
    const int at = c ? c->n_steps : 0;

    chain_reorder(c, from, to);
    if (c && c->rc == 0) {
        c->step[at].is_copy = 1;
        c->step[at].from = from;
        c->step[at].to = to;
    }
}

void chain_sum(struct chain *c, int a, int b, int y)
{
    dnnl_primitive_desc_t pd = NULL;
    int rc;

    if (!c || c->rc < 0)
        return;
    rc = dn_sum(c->dn, chain_md(c, a), chain_md(c, b), chain_md(c, y), &pd, c->err);
    chain_add(
        c, rc, pd,
        (struct chain_arg[]){{DNNL_ARG_SRC_0, a, 0}, {DNNL_ARG_SRC_1, b, 0}, {DNNL_ARG_DST, y, 1}},
        3);
}

int chain_finish(struct chain *c, struct kernel **out)
{
    int rc;

    if (!c)
        return ERR_NOMEM;
    rc = c->rc;
    c->err = NULL;
    dn_release(c->dn);
    c->k.scratch_bytes = c->temp_bytes + c->pad_bytes;
    if (rc < 0)
        chain_free(&c->k);
    else
        *out = &c->k;
    return rc;
}
