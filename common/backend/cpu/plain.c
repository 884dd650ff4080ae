/* plain - kernels that are one C function, and cutting their work into parts.
 *
 * The counterpart for GPUs is cuda/own.c. */
#include "backend/cpu/plain.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/convert.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/parts.h"
#include "base/alloc.h"
#include "base/util.h"

/* A kernel with what its parts may change. */
struct made {
    struct plain p;
    atomic_int failure;
};

static int plain_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                      struct err *err)
{
    struct plain *p = container_of(k, struct plain, k);

    (void)err;
    for (int i = 0; i < NODE_MAX_IN; i++)
        p->in[i] = p->in_shape[i].n < 0 ? NULL : in[i];
    for (int i = 0; i < NODE_MAX_OUT; i++)
        p->out[i] = p->out_shape[i].n < 0 ? NULL : out[i];
    p->scratch = scratch;
    return 0;
}

static int plain_run(struct kernel *k, struct err *err)
{
    struct plain *p = container_of(k, struct plain, k);

    p->run(p);
    return dn_check((dnnl_status_t)atomic_exchange(p->failure, 0), "product of matrices", err);
}

static void plain_free(struct kernel *k) { free(container_of(k, struct made, p.k)); }

static const struct kernel_ops plain_ops = {
    .bind = plain_bind,
    .run = plain_run,
    .free = plain_free,
};

int plain_new(const struct graph *g, const struct node *n, void (*run)(const struct plain *p),
              size_t scratch_bytes, struct kernel **out, struct err *err)
{
    static const struct shape absent = {.n = -1};
    struct made *m;
    struct plain *p;
    void *mem;
    int rc = try_alloc(&mem, sizeof *m, "a kernel", err);

    if (rc < 0)
        return rc;
    m = mem;
    p = &m->p;
    p->failure = &m->failure;
    p->k.ops = &plain_ops;
    p->k.scratch_bytes = scratch_bytes;
    p->run = run;
    p->n_threads = 1;
    p->least_work = 1;
    p->adds = n->adds;
    p->attr = n->attr;
    for (int i = 0; i < NODE_MAX_IN; i++)
        p->in_shape[i] = cpu_has_in(n, i) ? *cpu_in(g, n, i) : absent;
    for (int i = 0; i < NODE_MAX_IN; i++)
        if (cpu_has_in(n, i))
            p->in_type[i] = g->value[n->in[i]].dtype;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        p->out_shape[i] = cpu_has_out(n, i) ? *cpu_out(g, n, i) : absent;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (cpu_has_out(n, i))
            p->out_type[i] = g->value[n->out[i]].dtype;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (cpu_has_out(n, i))
            p->out_bytes[i] =
                (size_t)shape_elements(cpu_out(g, n, i)) * dtype_size(g->value[n->out[i]].dtype);
    p->rows = 1;
    p->c = 1;
    for (int i = 0; i < p->in_shape[0].n; i++) {
        p->rows *= p->c;
        p->c = p->in_shape[0].dim[i];
    }
    *out = &p->k;
    return 0;
}

int plain_new_split(struct cpu *b, const struct graph *g, const struct node *n,
                    void (*run)(const struct plain *p), size_t scratch_bytes, size_t part_bytes,
                    struct kernel **out, struct err *err)
{
    const size_t line = 64, shared = (scratch_bytes + line - 1) / line * line;
    const size_t each = (part_bytes + line - 1) / line * line;
    struct plain *p;
    int rc = plain_new(g, n, run, shared + each * (size_t)b->n_threads, out, err);

    if (rc < 0)
        return rc;
    p = container_of(*out, struct plain, k);
    p->n_threads = b->n_threads;
    p->least_work = b->least_work;
    p->widens_bf16 = b->widens_bf16;
    p->part_scratch = shared;
    p->part_bytes = each;
    return 0;
}

void *plain_part_scratch(const struct plain *p, int i)
{
    return (char *)p->scratch + p->part_scratch + (size_t)i * p->part_bytes;
}

void plain_multiplied(const struct plain *p, int status)
{
    if (status != dnnl_success)
        atomic_store(p->failure, status);
}

CPU_CLONES void plain_add(float *restrict sum, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

CPU_CLONES void plain_sum(float *restrict y, const float *restrict a, const float *restrict b,
                          int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

struct split {
    const struct plain *p;
    int64_t n;
    int n_parts;
    plain_part *part;
};

int plain_adds(const struct plain *p, int i) { return p->adds >> i & 1; }

void plain_give(const struct plain *p, int i, const float *sum, int64_t n)
{
    if (plain_adds(p, i))
        plain_add(p->out[i], sum, n);
    else
        memcpy(p->out[i], sum, (size_t)n * sizeof *sum);
}

static void run_part(const void *task, int i)
{
    const struct split *s = task;

    s->part(s->p, i, s->n * i / s->n_parts, s->n * (i + 1) / s->n_parts);
}

int plain_parts(const struct plain *p, int64_t n, int64_t work)
{
    return parts_of(p->n_threads, p->least_work, n, work);
}

void plain_split(const struct plain *p, int64_t n, int64_t work, plain_part *part)
{
    const struct split s = {p, n, plain_parts(p, n, work), part};

    parts_run(s.n_parts, run_part, &s);
}

const float *plain_read(const struct plain *p, int i, int64_t from, int64_t n, float *room)
{
    if (p->in_type[i] == DTYPE_F32)
        return (const float *)p->in[i] + from;
    convert_to_f32(room, (const uint16_t *)p->in[i] + from, p->in_type[i], n);
    return room;
}

float *plain_dest(const struct plain *p, int i, int64_t from, float *room)
{
    return p->out_type[i] == DTYPE_F32 ? (float *)p->out[i] + from : room;
}

void plain_done(const struct plain *p, int i, int64_t from, int64_t n, const float *room)
{
    if (p->out_type[i] != DTYPE_F32)
        convert_from_f32((uint16_t *)p->out[i] + from, room, p->out_type[i], n);
}

int64_t plain_piece_rows(int64_t c) { return max_i64(1, PLAIN_PIECE / c); }

size_t plain_room_bytes(int64_t c)
{
    return (size_t)round_up_i64(plain_piece_rows(c) * c, 16) * sizeof(float);
}

size_t plain_room_of(const struct graph *g, int v)
{
    const struct shape *s = &g->value[v].shape;

    return plain_room_bytes(s->dim[s->n - 1]);
}

void plain_zero(const struct plain *p)
{
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (p->out_bytes[i] && p->out[i] && !plain_adds(p, i))
            memset(p->out[i], 0, p->out_bytes[i]);
}
