/* winograd - the three passes of a convolution with a 3 x 3 filter, over tiles of 2 x 2 pixels of
 * y.
 *
 * A tile of y depends on 4 x 4 pixels of x.  With the matrices of winograd_transform.h the passes
 * are, for each tile and pair of channels (o: element by element):
 *
 *   forward  y  = A^T [ (G w G^T) o (B^T x B) ] A         summed over the channels of x
 *   grad_x   as forward, of dy, with the filter turned by 180 degrees
 *   grad_w   dw = G^T [ (B^T x B) o (A dy A^T) ] G        summed over the tiles
 *
 * Each of the 16 elements between the brackets, the points, is a product of matrices over many
 * tiles: outer.h's.  A thread takes a block of tiles, and keeps what it computes of them in cache.
 * All between the transforms is F32, also where the operands are BF16; but where the processor
 * multiplies pairs of BF16, the factors of the products are such pairs (winograd_pairs.h). */
#include "backend/cpu/winograd.h"

#include <string.h>

#include "backend/cpu/outer.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/vector.h"
#include "backend/cpu/winograd_pairs.h"
#include "base/util.h"
#include "op/op.h"

enum {
    LEAST_TILES = 32,
    AHEAD = 6,          /* tiles from the one that is read to the one whose pixels are fetched */
    LINE = 64,          /* bytes of a cache line */
    MOST_SUMS = 1 << 26 /* numbers that all threads' sums of grad_w hold, 256 MiB */
};

/* Images in NHWC. */
struct images {
    int64_t n, h, w, c;
    enum dtype type;
};

/* A convolution of `from` to `to`, of one type, each of whose tiles begins `pad` pixels before its
 * own place. */
struct pass {
    struct images from, to;
    int64_t pad[2];
    int64_t tiles_h, tiles_w; /* of one image of `to` */
    int64_t n_blocks;         /* of nearly equal numbers of tiles */
    int64_t panel;            /* channels of a panel */
    int is_paired;            /* 1: the factors of the products are pairs of BF16 */
};

static struct images images_of(const struct shape *s, enum dtype type)
{
    return (struct images){s->dim[0], s->dim[1], s->dim[2], s->dim[3], type};
}

/* Channels of a panel: what outer.h or tile.h multiply at once. */
static int64_t cpu_winograd_panel(void) { return outer_available() ? MOST_PANEL : TILE_COLUMNS; }

/* 1: the products of a kernel for operands of this type are those of pairs of BF16. */
static int cpu_winograd_is_paired(enum dtype type, int widens_bf16)
{
    return type == DTYPE_BF16 && !widens_bf16;
}

/* The places of 4 bytes that n factors take. */
static int64_t factor_places(int is_paired, int64_t n) { return is_paired ? n / 2 : n; }

static int64_t n_tiles(const struct pass *p) { return p->to.n * p->tiles_h * p->tiles_w; }

static struct pass pass_of(const struct plain *k, const struct shape *from, const struct shape *to,
                           const int pad[2])
{
    struct pass p = {.from = images_of(from, k->in_type[0]),
                     .to = images_of(to, k->in_type[0]),
                     .pad = {pad[0], pad[1]},
                     .tiles_h = ceil_div_i64(to->dim[1], 2),
                     .tiles_w = ceil_div_i64(to->dim[2], 2),
                     .panel = cpu_winograd_panel(),
                     .is_paired = cpu_winograd_is_paired(k->in_type[0], k->widens_bf16)};

    /* As many for each thread, unless they would be too small. */
    p.n_blocks = min_i64(round_up_i64(ceil_div_i64(n_tiles(&p), TILES), k->n_threads),
                         ceil_div_i64(n_tiles(&p), LEAST_TILES));
    return p;
}

static int64_t first_tile(const struct pass *p, int64_t block)
{
    return n_tiles(p) * block / p->n_blocks;
}

/* Places of a block's tiles of c channels, as results and as factors, and of a filter of c * k. */
static int64_t tile_results(int64_t c) { return POINTS * tiles_point(c); }
static int64_t tile_factors(int is_paired, int64_t c)
{
    return POINTS * tiles_point(factor_places(is_paired, c));
}
static int64_t filter_results(int64_t c, int64_t k) { return POINTS * filter_point(c, k); }
static int64_t filter_factors(int is_paired, int64_t c, int64_t k)
{
    return POINTS * filter_point(factor_places(is_paired, c), k);
}

/* Vector instructions of the products, and of making the filter. */
static int64_t cpu_winograd_work(const struct pass *p)
{
    return n_tiles(p) * filter_factors(p->is_paired, p->from.c, p->to.c) / LANES;
}

static int64_t filter_work(const struct pass *p) { return filter_results(p->from.c, p->to.c); }

/* ---- where a tile lies ---- */

struct tile {
    int64_t image, row, column; /* of its first pixel in `to` */
};

static struct tile tile_at(const struct pass *p, int64_t number)
{
    const int64_t in_image = number % (p->tiles_h * p->tiles_w);

    return (struct tile){number / (p->tiles_h * p->tiles_w), in_image / p->tiles_w * 2,
                         in_image % p->tiles_w * 2};
}

/* The first channel of size x size pixels from (row, column) on; NULL outside of the image. */
static void find_pixels(const struct images *s, const void *data, int64_t image, int64_t row,
                        int64_t column, int size, const void **pixel)
{
    const int64_t n_bytes = s->c * (int64_t)dtype_size(s->type);

    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            const int64_t r = row + i, c = column + j;
            const int is_in = r >= 0 && r < s->h && c >= 0 && c < s->w;

            pixel[i * size + j] =
                is_in ? (const char *)data + ((image * s->h + r) * s->w + c) * n_bytes : NULL;
        }
}

/* Fetch 2 x 2 pixels into the cache: for those outside of the image, others in it. */
static void fetch_pixels(const struct images *s, const void *data, int64_t image, int64_t row,
                         int64_t column)
{
    const int64_t n_bytes = s->c * (int64_t)dtype_size(s->type), width = min_i64(s->w, 2);

    for (int i = 0; i < 2; i++) {
        const int64_t r = max_i64(0, min_i64(row + i, s->h - 1));
        const int64_t c = max_i64(0, min_i64(column, s->w - width));
        const char *at = (const char *)data + ((image * s->h + r) * s->w + c) * n_bytes;

        for (int64_t j = 0; j < width * n_bytes; j += LINE)
            __builtin_prefetch(at + j);
    }
}

/* Fetch what tile `number` depends on: the pixels of `to`, or those of `from` that no tile before
 * it has read, the lower right ones.  The processor sees no pattern in the rows of tiles: with this
 * the passes of ResNet-18 took a Zen 5 0.95 of their time in float32, and 0.96 in bfloat16. */
static void fetch_to(const struct pass *p, const void *to, int64_t number)
{
    const struct tile t = tile_at(p, min_i64(number, n_tiles(p) - 1));

    fetch_pixels(&p->to, to, t.image, t.row, t.column);
}

static void fetch_from(const struct pass *p, const void *from, int64_t number)
{
    const struct tile t = tile_at(p, min_i64(number, n_tiles(p) - 1));

    fetch_pixels(&p->from, from, t.image, t.row - p->pad[0] + 2, t.column - p->pad[1] + 2);
}

/* The 4 x 4 pixels of `from` that tile `number` depends on, or its 2 x 2 pixels of `to`. */
static void read_from(const struct pass *p, const void *from, int64_t number, const void **pixel)
{
    const struct tile t = tile_at(p, number);

    fetch_from(p, from, number + AHEAD);
    find_pixels(&p->from, from, t.image, t.row - p->pad[0], t.column - p->pad[1], 4, pixel);
}

static void read_to(const struct pass *p, const void *to, int64_t number, const void **pixel)
{
    const struct tile t = tile_at(p, number);

    fetch_to(p, to, number + AHEAD);
    find_pixels(&p->to, to, t.image, t.row, t.column, 2, pixel);
}

/* to[point] = the transform of the pixels of `from` that tile `number` depends on */
static void begin_tile(const struct pass *p, const void *from, int64_t number, float *to)
{
    const void *pixel[POINTS];

    read_from(p, from, number, pixel);
    if (p->is_paired)
        pair_x_channels(pixel, p->from.c, to);
    else
        transform_x(pixel, p->from.c, p->from.type, p->panel, to);
}

/* ---- filters ---- */

/* w is [K,C,3,3]. */
static struct filter filter_forward(int64_t K, int64_t C)
{
    const int64_t panel = cpu_winograd_panel();

    return (struct filter){panel, C, K / panel, panel * C * TAPS, TAPS, C * TAPS, 0};
}

static struct filter filter_grad_x(int64_t K, int64_t C)
{
    const int64_t panel = cpu_winograd_panel();

    return (struct filter){panel, K, C / panel, panel * TAPS, C * TAPS, TAPS, 1};
}

/* ---- forward, grad_x ---- */

typedef void winograd_run(const struct outer *o, const float *a, const float *b, float *to);

static winograd_run *cpu_winograd_run(const struct pass *p)
{
    if (p->is_paired)
        return outer_run_pairs;
    return p->panel == TILE_COLUMNS ? tile_outer : outer_run;
}

/* Rows of `n` in blocks, as many as the registers take. */
static int cpu_winograd_next_block(struct outer *o, int64_t left, int64_t a_step, int64_t to_step)
{
    const int most = o->n_j == TILE_COLUMNS ? TILE_ROWS : outer_max_i(o->n_j);
    const int64_t blocks = ceil_div_i64(left, most);

    o->n_i = (int)ceil_div_i64(left, blocks);
    for (int i = 0; i < o->n_i; i++) {
        o->a_off[i] = i * a_step;
        o->to_off[i] = i * to_step;
    }
    return o->n_i;
}

/* m[point][panel][tile][column] = sum over channels of tiles times filter */
static void cpu_winograd_multiply(const struct pass *p, const float *tiles, const float *filter,
                                  int64_t n, float *m)
{
    const int64_t rows = factor_places(p->is_paired, p->from.c);
    const int64_t inner = factor_places(p->is_paired, p->panel);
    const int64_t width = p->panel, panels = p->to.c / width;
    struct outer o = {.n1 = rows / inner,
                      .n2 = inner,
                      .a1 = TILES * inner,
                      .a2 = 1,
                      .b1 = inner * width,
                      .b2 = width,
                      .n_j = (int)width,
                      .end = OUTER_STORE};
    winograd_run *run = cpu_winograd_run(p);

    for (int64_t i = 0; i < POINTS * panels; i++) {
        const int64_t point = i / panels, panel = i % panels;
        const float *from = tiles + point * tiles_point(rows);
        const float *by = filter + point * filter_point(rows, p->to.c) + panel * rows * width;
        float *to = m + point * tiles_point(p->to.c) + panel * TILES * width;

        for (int64_t t = 0; t < n; t += o.n_i) {
            cpu_winograd_next_block(&o, n - t, inner, width);
            run(&o, from + t * inner, by, to + t * width);
        }
    }
}

static struct pass pass_forward(const struct plain *p)
{
    return pass_of(p, &p->in_shape[CONV2D_X], &p->out_shape[CONV2D_Y], p->attr.conv.pad);
}

static struct pass pass_grad_x(const struct plain *p)
{
    const int pad[2] = {2 - p->attr.conv.pad[0], 2 - p->attr.conv.pad[1]};

    return pass_of(p, &p->in_shape[CONV2D_GRAD_X_DY], &p->out_shape[CONV2D_GRAD_X_DX], pad);
}

struct ends {
    const void *from, *bias, *add; /* bias, add: or NULL */
    void *to;
    int is_relu;
};

/* The pixels of tile `number`, from its points m. */
static void end_tile(const struct pass *s, const struct ends *e, int64_t number, const float *m)
{
    const struct tile t = tile_at(s, number);
    const void *pixel[4], *add[4];
    const struct transform_end end = {s->to.type, e->bias, e->add ? add : NULL, e->is_relu};

    find_pixels(&s->to, e->to, t.image, t.row, t.column, 2, pixel);
    if (e->add)
        find_pixels(&s->to, e->add, t.image, t.row, t.column, 2, add);
    transform_m(m, s->to.c, s->panel, &end, (void *const *)pixel);
}

static void run_blocks(const struct plain *p, const struct pass *s, const struct ends *e, int part,
                       int64_t first, int64_t end)
{
    float *tiles = plain_part_scratch(p, part);
    float *m = tiles + tile_factors(s->is_paired, s->from.c);

    for (int64_t block = first; block < end; block++) {
        const int64_t b = first_tile(s, block), n = first_tile(s, block + 1) - b;

        for (int64_t i = 0; i < n; i++)
            begin_tile(s, e->from, b + i, tiles + i * factor_places(s->is_paired, s->panel));
        cpu_winograd_multiply(s, tiles, p->scratch, n, m);
        for (int64_t i = 0; i < n; i++)
            end_tile(s, e, b + i, m + i * s->panel);
    }
}

/* Rows, or pairs of rows, of all panels of a filter. */
static int64_t filter_rows(const struct pass *s)
{
    return factor_places(s->is_paired, s->from.c) * s->to.c / s->panel;
}

/* Make rows [from, to) of the filter's points, which are the factors of the pass. */
static void make_filter(const struct plain *p, const struct pass *s, const struct filter *f, int w,
                        int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        if (s->is_paired)
            pair_w_rows(f, p->in[w], i, p->scratch);
        else
            transform_w(f, p->in[w], p->in_type[w], i, p->scratch);
}

static void forward_blocks(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct pass s = pass_forward(p);
    const struct ends e = {p->in[CONV2D_X], p->in[CONV2D_B], p->in[CONV2D_ADD], p->out[CONV2D_Y],
                           p->attr.conv.act == ACT_RELU};

    run_blocks(p, &s, &e, part, from, to);
}

static void forward_filter(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct pass s = pass_forward(p);
    const struct filter f = filter_forward(s.to.c, s.from.c);

    (void)part;
    make_filter(p, &s, &f, CONV2D_W, from, to);
}

static void cpu_winograd_run_forward(const struct plain *p)
{
    const struct pass s = pass_forward(p);

    plain_split(p, filter_rows(&s), filter_work(&s), forward_filter);
    plain_split(p, s.n_blocks, cpu_winograd_work(&s), forward_blocks);
}

static void grad_x_blocks(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct pass s = pass_grad_x(p);
    const struct ends e = {.from = p->in[CONV2D_GRAD_X_DY], .to = p->out[CONV2D_GRAD_X_DX]};

    run_blocks(p, &s, &e, part, from, to);
}

static void grad_x_filter(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct pass s = pass_grad_x(p);
    const struct filter f = filter_grad_x(s.from.c, s.to.c);

    (void)part;
    make_filter(p, &s, &f, CONV2D_GRAD_X_W, from, to);
}

static void cpu_winograd_run_grad_x(const struct plain *p)
{
    const struct pass s = pass_grad_x(p);

    plain_split(p, filter_rows(&s), filter_work(&s), grad_x_filter);
    plain_split(p, s.n_blocks, cpu_winograd_work(&s), grad_x_blocks);
}

/* ---- grad_w ---- */

static struct pass pass_grad_w(const struct plain *p)
{
    return pass_of(p, &p->in_shape[CONV2D_GRAD_W_X], &p->in_shape[CONV2D_GRAD_W_DY],
                   p->attr.conv.pad);
}

/* A part's scratch: u in the layout of a filter and db [K], which are sums over its tiles; then the
 * tiles of x and of dy. */
static int64_t point_sums(const struct pass *s) { return filter_results(s->from.c, s->to.c); }
static int64_t sum_numbers(const struct pass *s) { return point_sums(s) + s->to.c; }

/* u[point][panel of k][c][k] += sum over tiles of x times dy */
static void cpu_winograd_add_products(const struct pass *s, const float *x, const float *dy,
                                      int64_t n, float *u)
{
    const int64_t rows = s->from.c, width = s->panel, panels = s->to.c / width;
    const int64_t x_point = tiles_point(factor_places(s->is_paired, rows));
    const int64_t dy_point = tiles_point(factor_places(s->is_paired, s->to.c));
    const int64_t each = factor_places(s->is_paired, TILES) * width; /* a panel's tiles */
    struct outer o = {.n1 = 1,
                      .n2 = s->is_paired ? ceil_div_i64(n, 2) : n,
                      .a2 = width,
                      .b2 = width,
                      .n_j = (int)width,
                      .end = OUTER_ADD};
    winograd_run *run = cpu_winograd_run(s);

    for (int64_t i = 0; i < POINTS * panels; i++) {
        const int64_t point = i / panels, panel = i % panels;
        const float *from = x + point * x_point, *by = dy + point * dy_point + panel * each;
        float *to = u + point * filter_point(rows, s->to.c) + panel * rows * width;

        for (int64_t c = 0; c < rows; c += o.n_i) {
            cpu_winograd_next_block(&o, width - c % width, 1, width);
            run(&o, from + c / width * each + c % width, by, to + c * width);
        }
    }
}

/* The factors of tile `number`. */
static void grad_w_tile(const struct plain *p, const struct pass *s, int64_t number, float *x,
                        float *dy, float *db)
{
    const void *pixel[4];

    begin_tile(s, p->in[CONV2D_GRAD_W_X], number, x);
    read_to(s, p->in[CONV2D_GRAD_W_DY], number, pixel);
    transform_dy(pixel, s->to.c, s->to.type, s->panel, dy, db);
}

/* Those of tile `number` and of the next one, in place of which there are zeros if is_last. */
static void grad_w_pair(const struct plain *p, const struct pass *s, int64_t number, int is_last,
                        float *x, float *dy, float *db)
{
    const void *of_x[2 * POINTS] = {0}, *of_dy[2 * 4] = {0};

    for (int i = 0; i < (is_last ? 1 : 2); i++) {
        read_from(s, p->in[CONV2D_GRAD_W_X], number + i, of_x + i * POINTS);
        read_to(s, p->in[CONV2D_GRAD_W_DY], number + i, of_dy + i * 4);
    }
    pair_x_tiles(of_x, s->from.c, x);
    pair_dy_tiles(of_dy, s->to.c, dy, db);
}

static void grad_w_blocks(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct pass s = pass_grad_w(p);
    float *u = plain_part_scratch(p, part), *sum = u + point_sums(&s);
    float *db = p->out[CONV2D_GRAD_W_DB] ? sum : NULL;
    float *x = u + sum_numbers(&s), *dy = x + tile_factors(s.is_paired, s.from.c);

    memset(u, 0, (size_t)sum_numbers(&s) * sizeof *u);
    for (int64_t block = from; block < to; block++) {
        const int64_t b = first_tile(&s, block), n = first_tile(&s, block + 1) - b;

        if (s.is_paired)
            for (int64_t i = 0; i < n; i += 2)
                grad_w_pair(p, &s, b + i, i + 1 == n, x + i / 2 * s.panel, dy + i / 2 * s.panel,
                            db);
        else
            for (int64_t i = 0; i < n; i++)
                grad_w_tile(p, &s, b + i, x + i * s.panel, dy + i * s.panel, db);
        cpu_winograd_add_products(&s, x, dy, n, u);
    }
}

static int n_parts(const struct plain *p, const struct pass *s)
{
    return plain_parts(p, s->n_blocks, cpu_winograd_work(s));
}

/* The sum of all parts for rows [from, to) of the filter, and then their gradients. */
static void grad_w_filter(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct pass s = pass_grad_w(p);
    const struct filter f = filter_forward(s.to.c, s.from.c);
    const int64_t each = filter_point(s.from.c, s.to.c);
    float *sum = plain_part_scratch(p, 0);

    (void)part;
    for (int k = 1; k < n_parts(p, &s); k++)
        for (int64_t i = 0; i < POINTS; i++)
            plain_add(sum + i * each + from * s.panel,
                      (float *)plain_part_scratch(p, k) + i * each + from * s.panel,
                      (to - from) * s.panel);
    for (int64_t i = from; i < to; i++)
        transform_u(&f, sum, i, plain_adds(p, CONV2D_GRAD_W_DW), p->out[CONV2D_GRAD_W_DW]);
}

static void cpu_winograd_run_grad_w(const struct plain *p)
{
    const struct pass s = pass_grad_w(p);
    float *db = (float *)plain_part_scratch(p, 0) + point_sums(&s);

    plain_split(p, s.n_blocks, cpu_winograd_work(&s), grad_w_blocks);
    plain_split(p, s.from.c * s.to.c / s.panel, filter_work(&s), grad_w_filter);
    if (!p->out[CONV2D_GRAD_W_DB])
        return;
    for (int k = 1; k < n_parts(p, &s); k++)
        plain_add(db, (float *)plain_part_scratch(p, k) + point_sums(&s), s.to.c);
    plain_give(p, CONV2D_GRAD_W_DB, db, s.to.c);
}

/* ---- making ---- */

static const struct shape *to_of(const struct graph *g, const struct node *n)
{
    return n->op == OP_conv2d          ? cpu_out(g, n, CONV2D_Y)
           : n->op == OP_conv2d_grad_x ? cpu_out(g, n, CONV2D_GRAD_X_DX)
                                       : cpu_in(g, n, CONV2D_GRAD_W_DY);
}

/* F32, or BF16 that is widened or multiplied in pairs; with a gradient of F32. */
static int has_type(const struct cpu *b, const struct graph *g, const struct node *n)
{
    if (op_type(g, n) == DTYPE_F32)
        return 1;
    return op_type(g, n) == DTYPE_BF16 && (b->widens_bf16 || outer_has_pairs()) &&
           (n->op != OP_conv2d_grad_w || g->value[n->out[CONV2D_GRAD_W_DW]].dtype == DTYPE_F32);
}

/* The conditions: AVX-512 or AVX2; float32, or bfloat16 that is widened or, with AVX512-BF16 and
 * without AMX, multiplied in pairs; a 3 x 3 filter, stride 1, no dilation, one group; whole panels
 * of channels; for each thread enough tiles to pay for the filter's transform; and bounded memory,
 * since each thread sums a gradient of its own. */
int winograd_fits(const struct cpu *b, const struct graph *g, const struct node *n)
{
    const struct shape *w = cpu_conv_filter(g, n), *to = to_of(g, n);
    const int64_t tiles = to->dim[0] * ceil_div_i64(to->dim[1], 2) * ceil_div_i64(to->dim[2], 2);

    for (int i = 0; i < 2; i++)
        if (n->attr.conv.stride[i] != 1 || n->attr.conv.dilation[i] != 1 ||
            n->attr.conv.pad[i] > 2 || w->dim[2 + i] != 3)
            return 0;
    if (!(outer_available() || tile_available()) || n->attr.conv.groups != 1 || !has_type(b, g, n))
        return 0;
    if (n->op == OP_conv2d && n->attr.conv.act != ACT_NONE && n->attr.conv.act != ACT_RELU)
        return 0;
    return w->dim[0] % MOST_PANEL == 0 && w->dim[1] % MOST_PANEL == 0 &&
           tiles >= (int64_t)LEAST_TILES * b->n_threads &&
           POINTS * w->dim[0] * w->dim[1] * b->n_threads <= MOST_SUMS;
}

int winograd_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    const struct shape *w = cpu_conv_filter(g, n);
    const int64_t K = w->dim[0], C = w->dim[1];
    const int is_paired = cpu_winograd_is_paired(op_type(g, n), b->widens_bf16);
    const int64_t of_c = tile_factors(is_paired, C), of_k = tile_factors(is_paired, K);
    const size_t filter = (size_t)filter_factors(is_paired, C, K) * sizeof(float);

    if (n->op == OP_conv2d)
        return plain_new_split(b, g, n, cpu_winograd_run_forward, filter,
                               (size_t)(of_c + tile_results(K)) * sizeof(float), out, err);
    if (n->op == OP_conv2d_grad_x)
        return plain_new_split(b, g, n, cpu_winograd_run_grad_x, filter,
                               (size_t)(of_k + tile_results(C)) * sizeof(float), out, err);
    return plain_new_split(b, g, n, cpu_winograd_run_grad_w, 0,
                           (size_t)(filter_results(C, K) + K + of_c + of_k) * sizeof(float), out,
                           err);
}
