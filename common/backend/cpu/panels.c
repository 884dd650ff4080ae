/* panels - the two copies of a block, by vectors, and the description of oneDNN's layouts.
 *
 * A block whose rows are contiguous is transposed, 16 x 16 numbers at a time: four rounds in which
 * row i is interleaved with row i + 8 leave the columns where the rows were. */
#include "backend/cpu/panels.h"

#include <string.h>

#include "backend/cpu/parts.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"

enum { BLOCK_COLUMNS = LANES };

struct panels_layout {
    int width;
    dnnl_format_tag_t tag;
};

int panels_find(struct onednn *dn, const struct dn_layout *from, const struct dn_md *to,
                struct panels *p, struct err *err)
{
    static const struct panels_layout layout[] = {
        {64, dnnl_AB16b64a}, {32, dnnl_AB16b32a}, {16, dnnl_AB16b16a}};

    *p = (struct panels){0};
    if (!dn_has_avx512() || from->n != 2 || (from->stride[0] != 1 && from->stride[1] != 1))
        return 0;
    for (int i = 0; i < (int)ARRAY_LEN(layout); i++) {
        struct dn_md md;
        int rc;

        if (from->dim[0] % layout[i].width || from->dim[1] % BLOCK_COLUMNS)
            continue;
        rc = dn_md_tag(dn, &md, from, DTYPE_F32, layout[i].tag, err);
        if (rc < 0)
            return rc;
        if (dn_md_equal(&md, to)) {
            *p = (struct panels){.width = layout[i].width,
                                 .rows = from->dim[0],
                                 .columns = from->dim[1],
                                 .row = from->stride[0],
                                 .column = from->stride[1]};
            return 0;
        }
    }
    return 0;
}

/* to = v[0][0], v[8][0], v[0][1], v[8][1], ... and so on with rows 1 and 9. */
static inline void interleave_rows(const lanes *v, lanes *to)
{
    for (int i = 0; i < LANES / 2; i++) {
        to[2 * i] = __builtin_shufflevector(v[i], v[i + LANES / 2], 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                            20, 5, 21, 6, 22, 7, 23);
        to[2 * i + 1] = __builtin_shufflevector(v[i], v[i + LANES / 2], 8, 24, 9, 25, 10, 26, 11,
                                                27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
}

/* Rows are contiguous, and `row` apart. */
CPU_CLONES static void transpose_block(const float *from, int64_t row, int width, float *to)
{
    for (int a = 0; a < width; a += LANES) {
        lanes v[LANES], other[LANES];

        for (int i = 0; i < LANES; i++)
            v[i] = *(const lanes *)(from + (a + i) * row);
        interleave_rows(v, other);
        interleave_rows(other, v);
        interleave_rows(v, other);
        interleave_rows(other, v);
        for (int i = 0; i < LANES; i++)
            *(lanes *)(to + i * width + a) = v[i];
    }
}

/* Columns are contiguous, and `column` apart. */
static void copy_block(const float *from, int64_t column, int width, float *to)
{
    for (int i = 0; i < BLOCK_COLUMNS; i++)
        memcpy(to + (ptrdiff_t)i * width, from + i * column, (size_t)width * sizeof *to);
}

struct panels_task {
    const struct panels *p;
    const float *from;
    float *to;
    int n_parts;
};

static void panels_part(const void *task, int part)
{
    const struct panels_task *t = task;
    const struct panels *p = t->p;
    const int64_t across = p->columns / BLOCK_COLUMNS, n = p->rows / p->width * across;

    for (int64_t i = n * part / t->n_parts; i < n * (part + 1) / t->n_parts; i++) {
        const float *from =
            t->from + i / across * p->width * p->row + i % across * BLOCK_COLUMNS * p->column;
        float *to = t->to + i * p->width * BLOCK_COLUMNS;

        if (p->column == 1)
            transpose_block(from, p->row, p->width, to);
        else
            copy_block(from, p->column, p->width, to);
    }
}

void panels_fill(const struct panels *p, const float *from, float *to, int n_threads,
                 int64_t least_work)
{
    const int64_t n_blocks = p->rows / p->width * (p->columns / BLOCK_COLUMNS);
    const struct panels_task task = {
        p, from, to, parts_of(n_threads, least_work, n_blocks, p->rows * p->columns / LANES)};

    parts_run(task.n_parts, panels_part, &task);
}
