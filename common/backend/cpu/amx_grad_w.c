/* amx_grad_w - dw[k][c][r][s] = sum over samples and pixels p,q of dy[p,q,k] * x[p+r,q+s,c], for
 * each tap r,s a product of matrices whose sum runs over pixels and, within a tile, over samples.
 *
 *   dy      [rows][Q][blocks][K][32 samples]                     a of amx.h, all threads'
 *   x       [rows of x][columns of x][blocks][16 pairs of samples][32 channels][2]
 *                                                                b of amx.h, a part's
 *   sums    [panels of 32 channels][R*S][K][32]                  or dw itself, if R*S is 1
 *
 * Work goes by chunks of `rows` rows of dy, `blocks` blocks of 32 samples and up to MOST_K of the
 * filters, such that dy's part of a chunk stays in the nearest large cache, and within a chunk by
 * panels of 32 channels of x.  The border of zeros is in x already.  A filter of 1 x 1 without
 * strides and a linear layer have one pixel, and their pixels are samples.
 *
 * Times beside oneDNN 2.6, in turn, on one vCPU of an Emerald Rapids: of the filters of ResNet-18
 * (batch 128, 32 x 32) 1.0 to 1.3 times as fast for 64 channels, 1.7 for 128, 3 for 256, 5 to 6 for
 * 512, and 2, 4 and 10 for those with strides.  Of the layers of a GPT of width 384 (3,072 rows) it
 * was 1.3 to 1.7 while the core's other thread was quiet, and 0.7 to 1.2 while that multiplied
 * tiles, too. */
#include "backend/cpu/amx_grad_w.h"

#include <string.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/plain.h"
#include "base/util.h"
#include "op/op.h"
#include "tensor/half.h"

enum {
    PANEL = AMX_BLOCK, /* channels */
    PAIRS = AMX_TERMS / 2,
    PIXEL = PAIRS * PANEL * 2, /* numbers of a block of samples at one pixel of x */
    CHUNK_BYTES = 1 << 20,     /* of dy */
    MOST_K = 512,
    GROUP = 64, /* filters: whole blocks */
    LANES = 16,
    MOST_X = 1 << 22,   /* numbers of a part's x, 8 MiB */
    MOST_SUMS = 1 << 26 /* numbers, 256 MiB */
};

struct dims {
    int64_t N, H, W, C, P, Q, K, R, S;
    int64_t stride[2], pad[2];
    int64_t rows, blocks, k;   /* of a chunk */
    int64_t x_rows, x_columns; /* that a chunk's taps read, the border included */
};

/* All threads compute one at a time. */
struct chunk {
    int64_t row, rows; /* of dy */
    int64_t sample, blocks;
    int64_t k, n_k; /* channels of dy */
    int is_first;
};

struct operands {
    const uint16_t *x, *dy;
    float *dw, *db; /* db NULL: absent */
    int dw_adds, db_adds;
    int transposed; /* of a linear layer: x and dy have changed places, and db sums x */
};

static int64_t n_blocks(const struct dims *d) { return ceil_div_i64(d->N, AMX_TERMS); }
static int64_t n_taps(const struct dims *d) { return d->R * d->S; }
static int64_t n_x_panels(const struct dims *d) { return ceil_div_i64(d->C, PANEL); }
static int64_t n_dy(const struct dims *d) { return d->rows * d->Q * d->blocks * d->k * AMX_TERMS; }
static int64_t n_x(const struct dims *d) { return d->x_rows * d->x_columns * d->blocks * PIXEL; }
static int64_t n_sums(const struct dims *d)
{
    return n_taps(d) == 1 ? 0 : n_x_panels(d) * n_taps(d) * d->K * PANEL;
}

/* Blocks of samples lie side by side for neighbouring pixels, which a stride would skip. */
static void set_chunk(struct dims *d)
{
    const int64_t k = min_i64(d->K, MOST_K), step_bytes = k * AMX_TERMS * (int64_t)sizeof(uint16_t);
    const int64_t steps = max_i64(1, CHUNK_BYTES / step_bytes);
    const int whole = d->P * d->Q <= steps && d->stride[1] == 1;

    d->rows = whole ? d->P : min_i64(d->P, max_i64(1, steps / d->Q));
    d->blocks = whole ? min_i64(n_blocks(d), steps / (d->P * d->Q)) : 1;
    d->k = k;
    d->x_rows = (d->rows - 1) * d->stride[0] + d->R;
    d->x_columns = (d->Q - 1) * d->stride[1] + d->S;
}

static struct dims of_rows(int64_t rows, int64_t c, int64_t k)
{
    struct dims d = {rows, 1, 1, c, 1, 1, k, 1, 1, .stride = {1, 1}};

    set_chunk(&d);
    return d;
}

static struct dims of_filter(const struct shape *x, const struct shape *w, const struct shape *dy,
                             const union node_attr *attr)
{
    struct dims d = {x->dim[0],  x->dim[1],  x->dim[2], x->dim[3], dy->dim[1],
                     dy->dim[2], dy->dim[3], w->dim[2], w->dim[3]};
    int plain = d.R * d.S == 1;

    for (int i = 0; i < 2; i++) {
        d.stride[i] = attr->conv.stride[i];
        d.pad[i] = attr->conv.pad[i];
        plain &= d.stride[i] == 1 && d.pad[i] == 0;
    }
    if (plain)
        return of_rows(d.N * d.H * d.W, d.C, d.K);
    set_chunk(&d);
    return d;
}

static struct dims filter_dims(const struct plain *p)
{
    return of_filter(&p->in_shape[CONV2D_GRAD_W_X], &p->out_shape[CONV2D_GRAD_W_DW],
                     &p->in_shape[CONV2D_GRAD_W_DY], &p->attr);
}

/* The gradient of a transposed weight is x^T dy. */
static struct dims linear_dims_of(const struct shape *x, const struct shape *dy, int transposed)
{
    const int64_t in = x->dim[1], out = dy->dim[1];

    return of_rows(x->dim[0], transposed ? out : in, transposed ? in : out);
}

/* ---- the scratch: a chunk, dy, the sums, and those of db ([K][16], transposed [16][C]) ---- */

struct room {
    struct dims d;
    struct operands o;
    struct chunk chunk;
};

static size_t head_bytes(void) { return (size_t)round_up_i64(sizeof(struct room), 64); }

static uint16_t *dy_at(const struct plain *p)
{
    return (uint16_t *)((char *)p->scratch + head_bytes());
}

static float *sums_at(const struct plain *p, const struct dims *d)
{
    return (float *)(dy_at(p) + n_dy(d));
}

static float *bias_at(const struct plain *p, const struct dims *d)
{
    return sums_at(p, d) + n_sums(d);
}

static size_t amx_room_bytes(const struct dims *d)
{
    return head_bytes() + (size_t)n_dy(d) * sizeof(uint16_t) +
           (size_t)(n_sums(d) + max_i64(d->K, d->C) * AMX_TILE) * sizeof(float);
}

/* ---- operands ---- */

/* Steps [from, to) of the chunk: a pixel of dy and a block of samples each. */
static void turn_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct room *room = p->scratch;
    const struct dims *d = &room->d;
    const struct chunk *c = &room->chunk;

    (void)part;
    for (int64_t i = from; i < to; i++) {
        const int64_t pixel = c->row * d->Q + i / c->blocks;
        const int64_t sample = c->sample + i % c->blocks * AMX_TERMS;
        const uint16_t *row[AMX_TERMS];

        for (int64_t k = 0; k < AMX_TERMS; k++)
            row[k] = sample + k < d->N
                         ? room->o.dy + ((sample + k) * d->P * d->Q + pixel) * d->K + c->k
                         : NULL;
        for (int64_t k = 0; k < c->n_k; k += AMX_TILE)
            amx_turn(row, k, dy_at(p) + (i * c->n_k + k) * AMX_TERMS);
    }
}

/* n channels of a pixel of x, or zeros. */
static void pair_pixel(const struct room *room, int64_t h, int64_t w, int64_t channel, int64_t n,
                       uint16_t *to)
{
    const struct dims *d = &room->d;
    const int64_t each = d->H * d->W * d->C;
    const int inside = h >= 0 && h < d->H && w >= 0 && w < d->W;
    const uint16_t *at = room->o.x + (h * d->W + w) * d->C + channel;

    for (int64_t i = 0; i < room->chunk.blocks * PAIRS; i++, to += 2 * PANEL) {
        const int64_t sample = room->chunk.sample + 2 * i;

        amx_pair(inside && sample < d->N ? at + sample * each : NULL,
                 inside && sample + 1 < d->N ? at + (sample + 1) * each : NULL, n, to);
    }
}

static void pair_panel(const struct room *room, int64_t channel, int64_t n, uint16_t *to)
{
    const struct dims *d = &room->d;
    const int64_t rows = (room->chunk.rows - 1) * d->stride[0] + d->R;

    for (int64_t h = 0; h < rows; h++)
        for (int64_t w = 0; w < d->x_columns; w++, to += room->chunk.blocks * PIXEL)
            pair_pixel(room, room->chunk.row * d->stride[0] + h - d->pad[0], w - d->pad[1], channel,
                       n, to);
}

/* ---- products ---- */

static struct amx chunk_product(const struct room *room)
{
    const struct dims *d = &room->d;
    const struct chunk *c = &room->chunk;

    return (struct amx){.n1 = c->rows,
                        .n2 = d->Q * c->blocks,
                        .a1 = d->Q * c->blocks * c->n_k * AMX_TERMS,
                        .a2 = c->n_k * AMX_TERMS,
                        .b1 = d->stride[0] * d->x_columns * c->blocks * PIXEL,
                        .b2 = d->stride[1] * PIXEL,
                        .a_row = AMX_TERMS,
                        .b_row = 2 * PANEL};
}

/* Add a chunk's products of n channels of x to c [n_k][c_row]. */
static void multiply_tap(struct amx *x, int64_t n_k, const uint16_t *dy, const uint16_t *b,
                         int64_t n, float *c)
{
    x->n_j = (int)n;
    for (int64_t k = 0; k < n_k; k += x->n_i) {
        x->n_i = (int)min_i64(AMX_BLOCK, n_k - k);
        amx_run(x, dy + k * AMX_TERMS, b, c + k * x->c_row);
    }
}

/* Sums of an operand are its product with ones: each of 16 columns (of dy) or rows (of a panel of
 * x) has them. */
static struct amx product_with_ones(const struct room *room, uint16_t ones[AMX_TERMS])
{
    struct amx x = chunk_product(room);

    for (int i = 0; i < AMX_TERMS; i++)
        ones[i] = bf16_from_float(1);
    x.adds = !room->chunk.is_first;
    return x;
}

/* Blocks [from, to) of the chunk's filters. */
static void bias_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct room *room = p->scratch;
    const int64_t first = from * AMX_BLOCK;
    uint16_t ones[AMX_TERMS];
    struct amx x = product_with_ones(room, ones);

    (void)part;
    x.b1 = x.b2 = x.b_row = 0;
    x.c_row = AMX_TILE;
    amx_begin();
    multiply_tap(&x, min_i64(room->chunk.n_k, to * AMX_BLOCK) - first, dy_at(p) + first * AMX_TERMS,
                 ones, AMX_TILE, bias_at(p, &room->d) + (room->chunk.k + first) * AMX_TILE);
    amx_end();
}

static void add_bias_of_panel(const struct plain *p, int64_t channel, int64_t n, const uint16_t *b)
{
    const struct room *room = p->scratch;
    uint16_t ones[AMX_TERMS];
    struct amx x = product_with_ones(room, ones);

    x.a1 = x.a2 = x.a_row = 0;
    x.c_row = room->d.C;
    x.n_i = AMX_TILE;
    x.n_j = (int)n;
    amx_run(&x, ones, b, bias_at(p, &room->d) + channel);
}

/* A part multiplies one at a time: a panel of x, at a tap, by GROUP filters or the rest of them.
 */
struct item {
    int64_t panel, tap, k, n_k;
};

static int64_t filter_groups(const struct room *room)
{
    return ceil_div_i64(room->chunk.n_k, GROUP);
}

static struct item numbered_item(const struct room *room, int64_t i)
{
    const int64_t groups = filter_groups(room), k = i % groups * GROUP;

    return (struct item){.panel = i / groups / n_taps(&room->d),
                         .tap = i / groups % n_taps(&room->d),
                         .k = k,
                         .n_k = min_i64(GROUP, room->chunk.n_k - k)};
}

/* x: the panel's pairs, of n channels. */
static void multiply_item(const struct plain *p, const struct item *item, const uint16_t *x,
                          int64_t n)
{
    const struct room *room = p->scratch;
    const struct dims *d = &room->d;
    const int direct = n_taps(d) == 1;
    const int64_t at = item->tap / d->S * d->x_columns + item->tap % d->S;
    struct amx product = chunk_product(room);
    float *sums = direct ? room->o.dw + item->panel * PANEL
                         : sums_at(p, d) + (item->panel * n_taps(d) + item->tap) * d->K * PANEL;

    product.c_row = direct ? d->C : PANEL;
    product.adds = !room->chunk.is_first || (direct && room->o.dw_adds);
    multiply_tap(&product, item->n_k, dy_at(p) + item->k * AMX_TERMS,
                 x + at * room->chunk.blocks * PIXEL, n,
                 sums + (room->chunk.k + item->k) * product.c_row);
}

static void items_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct room *room = p->scratch;
    uint16_t *x = plain_part_scratch(p, part);

    amx_begin();
    for (int64_t i = from; i < to; i++) {
        const struct item item = numbered_item(room, i);
        const int64_t channel = item.panel * PANEL, n = min_i64(PANEL, room->d.C - channel);

        if (i == from || item.panel != numbered_item(room, i - 1).panel)
            pair_panel(room, channel, n, x);
        if (room->o.db && room->o.transposed && room->chunk.k + item.tap + item.k == 0)
            add_bias_of_panel(p, channel, n, x);
        multiply_item(p, &item, x, n);
    }
    amx_end();
}

/* Rows [from, to) of K: the sums in the filter's layout, where they replace or are added to what is
 * there. */
static void give_filter_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct room *room = p->scratch;
    const struct dims *d = &room->d;
    const int64_t taps = n_taps(d);
    const float *sums = sums_at(p, d);

    (void)part;
    for (int64_t k = from; k < to; k++)
        for (int64_t c = 0; c < d->C; c++) {
            const float *sum = sums + (c / PANEL * taps * d->K + k) * PANEL + c % PANEL;
            float *at = room->o.dw + (k * d->C + c) * taps;

            for (int64_t t = 0; t < taps; t++)
                at[t] = sum[t * d->K * PANEL] + (room->o.dw_adds ? at[t] : 0);
        }
}

static void run_chunk(const struct plain *p)
{
    const struct room *room = p->scratch;
    const struct dims *d = &room->d;
    const int64_t steps = room->chunk.rows * d->Q * room->chunk.blocks;

    plain_split(p, steps, steps * room->chunk.n_k, turn_part);
    plain_split(p, n_x_panels(d) * n_taps(d) * filter_groups(room),
                steps * room->chunk.n_k * d->C * n_taps(d) / LANES, items_part);
    if (room->o.db && !room->o.transposed)
        plain_split(p, ceil_div_i64(room->chunk.n_k, AMX_BLOCK), steps * room->chunk.n_k,
                    bias_part);
}

static void give_bias(const struct dims *d, const struct operands *o, const float *sum)
{
    for (int64_t i = 0; i < (o->transposed ? d->C : d->K); i++)
        o->db[i] = sum[o->transposed ? i : i * AMX_TILE] + (o->db_adds ? o->db[i] : 0);
}

static void run_chunks(const struct plain *p, const struct dims *d, const struct operands *o)
{
    struct room *room = p->scratch;

    *room = (struct room){.d = *d, .o = *o};
    for (int64_t b = 0; b < n_blocks(d); b += d->blocks)
        for (int64_t row = 0; row < d->P; row += d->rows)
            for (int64_t k = 0; k < d->K; k += d->k) {
                room->chunk = (struct chunk){.row = row,
                                             .rows = min_i64(d->rows, d->P - row),
                                             .sample = b * AMX_TERMS,
                                             .blocks = min_i64(d->blocks, n_blocks(d) - b),
                                             .k = k,
                                             .n_k = min_i64(d->k, d->K - k),
                                             .is_first = b == 0 && row == 0};
                run_chunk(p);
            }
    if (n_taps(d) > 1)
        plain_split(p, d->K, n_sums(d), give_filter_part);
    if (o->db)
        give_bias(d, o, bias_at(p, d));
}

static void run_filter_grad(const struct plain *p)
{
    const struct dims d = filter_dims(p);
    const struct operands o = {.x = p->in[CONV2D_GRAD_W_X],
                               .dy = p->in[CONV2D_GRAD_W_DY],
                               .dw = p->out[CONV2D_GRAD_W_DW],
                               .db = p->out[CONV2D_GRAD_W_DB],
                               .dw_adds = plain_adds(p, CONV2D_GRAD_W_DW),
                               .db_adds = plain_adds(p, CONV2D_GRAD_W_DB)};

    run_chunks(p, &d, &o);
}

static void run_linear_grad(const struct plain *p)
{
    const int transposed = p->attr.linear.transposed;
    const struct dims d =
        linear_dims_of(&p->in_shape[LINEAR_GRAD_W_X], &p->in_shape[LINEAR_GRAD_W_DY], transposed);
    const struct operands o = {.x = p->in[transposed ? LINEAR_GRAD_W_DY : LINEAR_GRAD_W_X],
                               .dy = p->in[transposed ? LINEAR_GRAD_W_X : LINEAR_GRAD_W_DY],
                               .dw = p->out[LINEAR_GRAD_W_DW],
                               .db = p->out[LINEAR_GRAD_W_DB],
                               .dw_adds = plain_adds(p, LINEAR_GRAD_W_DW),
                               .db_adds = plain_adds(p, LINEAR_GRAD_W_DB),
                               .transposed = transposed};

    run_chunks(p, &d, &o);
}

/* ---- which nodes ---- */

static struct dims node_dims(const struct graph *g, const struct node *n)
{
    return n->op == OP_conv2d_grad_w
               ? of_filter(cpu_in(g, n, CONV2D_GRAD_W_X), cpu_out(g, n, CONV2D_GRAD_W_DW),
                           cpu_in(g, n, CONV2D_GRAD_W_DY), &n->attr)
               : linear_dims_of(cpu_in(g, n, LINEAR_GRAD_W_X), cpu_in(g, n, LINEAR_GRAD_W_DY),
                                n->attr.linear.transposed);
}

static int has_form(const struct node *n)
{
    if (n->op == OP_linear_grad_w) /* with a fused flatten, columns are in another order */
        return n->attr.linear.image[0] == 0;
    return n->op == OP_conv2d_grad_w && n->attr.conv.groups == 1 && n->attr.conv.dilation[0] == 1 &&
           n->attr.conv.dilation[1] == 1;
}

/* Whole tiles of channels, bounded memory, and three quarters of the samples' places taken. */
int amx_grad_w_can(const struct graph *g, const struct node *n)
{
    struct dims d;

    if (!has_form(n) || op_type(g, n) != DTYPE_BF16)
        return 0;
    for (int i = 0; i < n->n_out; i++)
        if (cpu_has_out(n, i) && g->value[n->out[i]].dtype != DTYPE_F32)
            return 0;
    d = node_dims(g, n);
    return d.K % AMX_TILE == 0 && d.C % AMX_TILE == 0 && d.C >= PANEL && n_sums(&d) <= MOST_SUMS &&
           n_x(&d) <= MOST_X && 3 * n_blocks(&d) * AMX_TERMS <= 4 * d.N;
}

int amx_grad_w_fits(const struct cpu *b, const struct graph *g, const struct node *n)
{
    return amx_available() && !b->widens_bf16 && amx_grad_w_can(g, n);
}

int amx_grad_w_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    const struct dims d = node_dims(g, n);

    return plain_new_split(b, g, n, n->op == OP_conv2d_grad_w ? run_filter_grad : run_linear_grad,
                           amx_room_bytes(&d), (size_t)n_x(&d) * sizeof(uint16_t), out, err);
}
