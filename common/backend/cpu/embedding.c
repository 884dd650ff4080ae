/* embedding - copies rows of a table by token, and adds the gradients up row by row.
 *
 * The gradient is cut into columns, so that each element has one thread, which adds in the order of
 * the tokens: the bits do not depend on the number of threads.  A node that adds begins from what
 * is there, not from zero.  A BF16 gradient is added up in F32, in the scratch.  op/embedding.c has
 * the formulas; the twin is cuda/embedding.cu. */
#include <string.h>

#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "base/util.h"

static int64_t cpu_embedding_clamp(int32_t token, int64_t n)
{
    return max_i64(0, min_i64(token, n - 1));
}

/* The tokens of one row of the tokens' tensor. */
static int64_t cpu_embedding_length_of(const struct shape *tokens)
{
    return tokens->dim[tokens->n - 1];
}

/* The row of the positions for token r. */
static int64_t cpu_embedding_place(const int32_t *starts, int64_t r, int64_t length)
{
    const int64_t at = r % length;

    return starts ? at - max_i64(0, min_i64(starts[r], at)) : at;
}

static void cpu_embedding_forward_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int32_t *tokens = p->in[EMBEDDING_TOKENS], *starts = p->in[EMBEDDING_STARTS];
    const int64_t c = p->c, length = cpu_embedding_length_of(&p->in_shape[EMBEDDING_TOKENS]);
    float *room = plain_part_scratch(p, part);

    for (int64_t r = from; r < to; r++) {
        const float *row =
            plain_read(p, EMBEDDING_TABLE, cpu_embedding_clamp(tokens[r], p->rows) * c, c, room);
        float *y = plain_dest(p, EMBEDDING_Y, r * c, room + 2 * c);

        if (p->in[EMBEDDING_POSITION])
            plain_sum(y, row,
                      plain_read(p, EMBEDDING_POSITION, cpu_embedding_place(starts, r, length) * c,
                                 c, room + c),
                      c);
        else
            memcpy(y, row, (size_t)c * sizeof *y);
        plain_done(p, EMBEDDING_Y, r * c, c, y);
    }
}

static void cpu_embedding_run(const struct plain *p)
{
    const int64_t rows = p->out_shape[EMBEDDING_Y].dim[0];

    plain_split(p, rows, rows * p->c / 8, cpu_embedding_forward_part);
}

int cpu_make_embedding(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_embedding_run, 0,
                           (size_t)(3 * cpu_out(g, n, EMBEDDING_Y)->dim[1]) * sizeof(float), out,
                           err);
}

/* The n numbers at `sum`, from which the gradient's elements from `at` on are added up: those that
 * it has, if the node adds, else zeros. */
static void cpu_embedding_begin(const struct plain *p, int o, int64_t at, int64_t n, float *sum)
{
    if (!plain_adds(p, o))
        memset(sum, 0, (size_t)n * sizeof *sum);
    else if (p->out_type[o] != DTYPE_F32)
        convert_to_f32(sum, (const uint16_t *)p->out[o] + at, p->out_type[o], n);
}

/* Columns [from, to) of output `o`, which has `rows` rows: sums of dy's rows, by token or by
 * position. */
static void cpu_embedding_scatter(const struct plain *p, int part, int o, int64_t rows,
                                  int64_t from, int64_t to)
{
    const int32_t *tokens = p->in[EMBEDDING_GRAD_TOKENS], *starts = p->in[EMBEDDING_GRAD_STARTS];
    const int64_t c = p->in_shape[EMBEDDING_GRAD_DY].dim[1],
                  n = p->in_shape[EMBEDDING_GRAD_DY].dim[0],
                  length = cpu_embedding_length_of(&p->in_shape[EMBEDDING_GRAD_TOKENS]);
    float *room = plain_part_scratch(p, part), *sum = plain_dest(p, o, 0, p->scratch);

    for (int64_t r = 0; r < rows; r++)
        cpu_embedding_begin(p, o, r * c + from, to - from, sum + r * c + from);
    for (int64_t r = 0; r < n; r++) {
        const int64_t row = o == EMBEDDING_GRAD_DTABLE ? cpu_embedding_clamp(tokens[r], rows)
                                                       : cpu_embedding_place(starts, r, length);

        if (o == EMBEDDING_GRAD_DTABLE && row == p->attr.embedding.padding - 1)
            continue;
        plain_add(sum + row * c + from,
                  plain_read(p, EMBEDDING_GRAD_DY, r * c + from, to - from, room), to - from);
    }
    for (int64_t r = 0; r < rows; r++)
        plain_done(p, o, r * c + from, to - from, sum + r * c + from);
}

static void cpu_embedding_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    if (p->out[EMBEDDING_GRAD_DTABLE])
        cpu_embedding_scatter(p, part, EMBEDDING_GRAD_DTABLE, p->attr.embedding.rows, from, to);
    if (p->out[EMBEDDING_GRAD_DPOSITION])
        cpu_embedding_scatter(p, part, EMBEDDING_GRAD_DPOSITION, p->attr.embedding.positions, from,
                              to);
}

static void cpu_embedding_run_grad(const struct plain *p)
{
    const struct shape *dy = &p->in_shape[EMBEDDING_GRAD_DY];

    plain_split(p, dy->dim[1], (dy->dim[0] + p->attr.embedding.rows) * dy->dim[1] / 8,
                cpu_embedding_grad_part);
}

/* Room for the sums of a gradient that is not F32; 0 if both are. */
static int64_t cpu_embedding_n_sums(const struct graph *g, const struct node *n)
{
    int64_t most = 0;

    for (int o = 0; o < n->n_out; o++)
        if (cpu_has_out(n, o) && g->value[n->out[o]].dtype != DTYPE_F32)
            most = max_i64(most, shape_elements(cpu_out(g, n, o)));
    return most;
}

int cpu_make_embedding_grad(struct cpu *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    return plain_new_split(
        b, g, n, cpu_embedding_run_grad, (size_t)cpu_embedding_n_sums(g, n) * sizeof(float),
        (size_t)cpu_in(g, n, EMBEDDING_GRAD_DY)->dim[1] * sizeof(float), out, err);
}
