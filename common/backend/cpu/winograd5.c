/* winograd5 - the gradients of a convolution with a 5 x 5 filter, over tiles of 3 x 3 pixels of y
 * and the 7 x 7 pixels of x that they depend on.
 *
 * With the matrices of winograd5_transform.h the passes are, for each tile and pair of channels (o:
 * element by element):
 *
 *   grad_x   dx = B [ (G w G^T) o (A dy A^T) ] B^T        summed over the channels of y, and tiles
 *   grad_w   dw = G^T [ (B^T x B) o (A dy A^T) ] G        summed over the tiles
 *
 * grad_x is the forward pass y = A^T [ (G w G^T) o (B^T x B) ] A read backwards: its tiles overlap
 * in dx.  As many products as for y are enough so, where F(3x3, 5x5) of the larger dx would take
 * more.
 *
 * Each of the 49 elements between the brackets, the points, is a product of matrices over many
 * tiles (outer.h or tile.h).  A thread takes a part of the samples, and their tiles in chunks whose
 * points stay in its cache.
 *
 * Milliseconds of one core's time for 20 -> 50 channels of 13 x 13 pixels (bench_lenet, a Zen 5
 * beside other work), and without this file, by conv_rows.c or, with AVX2, by oneDNN 2.6:
 *                            grad_x        grad_w
 *                         here without  here without
 *   batch 256, AVX-512    3.4    5.3    2.9    4.8
 *   batch 256, AVX2       4.7   17.5    3.9   12.9
 *   batch 8, AVX-512      0.12   0.17   0.11   0.16
 * With 2 samples, or 18 tiles, both took the same time.
 *
 * The forward pass took 2.9 ms in place of 4.5 so.  It is left to the plain sum all the same: its
 * errors, three times as large, turn the signs of values near zero before a ReLU.  A LeNet then
 * left the bound within which it follows PyTorch's (tests/interop/test_pytorch.py). */
#include "backend/cpu/winograd5.h"

#include <string.h>

#include "backend/cpu/outer.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/vector.h"
#include "backend/cpu/winograd5_transform.h"
#include "base/util.h"
#include "op/op.h"

enum {
    CHUNK = 36,        /* tiles */
    LEAST_TILES5 = 36, /* of a kernel: fewer do not pay for the filter's transform */
    LINE_NUMBERS = 16,
    COLUMNS_AT_ONCE = 64, /* of a product: 4 vectors by 6 rows fill the registers */
    POINT_GAP5 = 16, /* the points of a tile would else have one place in a cache of few ways */
    MOST_CHANNELS =
        2048 /* of x times those of y: the filter's points must stay in a core's cache */
};

/* N samples; x has H x W pixels of C channels, y has P x Q of K; Cp and Kp are C and K rounded up
 * to whole vectors. */
struct winograd5 {
    int64_t N, H, W, C, P, Q, K, Cp, Kp;
    int64_t pad[2];
    int64_t tiles_h, tiles_w; /* of one sample */
};

static struct winograd5 winograd5_of(const struct shape *x, const struct shape *y, const int pad[2])
{
    return (struct winograd5){.N = x->dim[0],
                              .H = x->dim[1],
                              .W = x->dim[2],
                              .C = x->dim[3],
                              .P = y->dim[1],
                              .Q = y->dim[2],
                              .K = y->dim[3],
                              .Cp = round_up_i64(x->dim[3], LANES),
                              .Kp = round_up_i64(y->dim[3], LANES),
                              .pad = {pad[0], pad[1]},
                              .tiles_h = ceil_div_i64(y->dim[1], W5_TILE),
                              .tiles_w = ceil_div_i64(y->dim[2], W5_TILE)};
}

static int64_t tiles_of_sample(const struct winograd5 *f) { return f->tiles_h * f->tiles_w; }

/* From a point to the next: of a chunk's tiles of c channels, and of a filter. */
static int64_t chunk_point(int64_t c) { return CHUNK * c + POINT_GAP5; }
static int64_t filter_point5(int64_t rows, int64_t columns) { return rows * columns + POINT_GAP5; }

/* Vector instructions of the products. */
static int64_t cpu_winograd5_work(const struct winograd5 *f)
{
    return f->N * tiles_of_sample(f) * W5_POINTS * f->C * f->Kp / LANES;
}

/* ---- a part's scratch ---- */

/* `none` stands for the pixels of zeros outside of an image; what is written there goes to
 * `nowhere`. */
struct room5 {
    float *none, *nowhere, *of_x, *of_y, *u, *db;
};

/* Numbers of a row of zeros, of all points of a chunk of x and of y, and of grad_w's sums. */
static int64_t row_numbers(const struct winograd5 *f) { return max_i64(f->Cp, f->Kp); }
static int64_t chunk_numbers(int64_t c) { return W5_POINTS * chunk_point(c); }
static int64_t u_numbers(const struct winograd5 *f)
{
    return W5_POINTS * filter_point5(f->C, f->Kp);
}

static size_t winograd5_room_bytes(const struct winograd5 *f, int has_sums)
{
    const int64_t sums = has_sums ? u_numbers(f) + f->Kp : 0;

    return (size_t)(2 * row_numbers(f) + chunk_numbers(f->Cp) + chunk_numbers(f->Kp) + sums) *
           sizeof(float);
}

static struct room5 winograd5_room_of(const struct plain *p, const struct winograd5 *f, int part)
{
    struct room5 r = {.none = plain_part_scratch(p, part)};

    r.nowhere = r.none + row_numbers(f);
    r.of_x = r.nowhere + row_numbers(f);
    r.of_y = r.of_x + chunk_numbers(f->Cp);
    r.u = r.of_y + chunk_numbers(f->Kp);
    r.db = r.u + u_numbers(f);
    return r;
}

/* The room for the part's own thread, which begins with it. */
static struct room5 winograd5_room_begun(const struct plain *p, const struct winograd5 *f, int part)
{
    const struct room5 r = winograd5_room_of(p, f, part);

    memset(r.none, 0, (size_t)(2 * row_numbers(f)) * sizeof(float));
    return r;
}

/* ---- where a tile lies ---- */

struct image5 {
    float *at; /* the first sample */
    int64_t h, w, c;
};

/* The first channel of size x size pixels from (row, column) on; `outside` for those that are not
 * in the image. */
static void find_square(const struct image5 *s, int64_t sample, int64_t row, int64_t column,
                        int size, float *outside, float **pixel)
{
    for (int64_t r = row; r < row + size; r++)
        for (int64_t c = column; c < column + size; c++) {
            const int is_in = r >= 0 && r < s->h && c >= 0 && c < s->w;

            *pixel++ = is_in ? s->at + ((sample * s->h + r) * s->w + c) * s->c : outside;
        }
}

static void pixels_of_x(const struct winograd5 *f, float *x, int64_t tile, float *outside,
                        float **pixel)
{
    const struct image5 s = {x, f->H, f->W, f->C};
    const int64_t each = tiles_of_sample(f), in_sample = tile % each;

    find_square(&s, tile / each, in_sample / f->tiles_w * W5_TILE - f->pad[0],
                in_sample % f->tiles_w * W5_TILE - f->pad[1], W5_EDGE, outside, pixel);
}

static void pixels_of_y(const struct winograd5 *f, float *y, int64_t tile, float *outside,
                        float **pixel)
{
    const struct image5 s = {y, f->P, f->Q, f->K};
    const int64_t each = tiles_of_sample(f), in_sample = tile % each;

    find_square(&s, tile / each, in_sample / f->tiles_w * W5_TILE, in_sample % f->tiles_w * W5_TILE,
                W5_TILE, outside, pixel);
}

/* Fetch into the cache what a tile some rows behind tile `number` touches: an equal share of a
 * tensor of the samples, of `each` numbers a sample.  The processor sees no pattern in the rows of
 * tiles, and waited longer for pixels than it computed. */
static void fetch_share(const struct winograd5 *f, const float *data, int64_t each, int64_t number)
{
    const int64_t tiles = tiles_of_sample(f), ahead = number + 3 * f->tiles_w;
    const int64_t to = min_i64((ahead + 1) * each / tiles, f->N * each);

    for (int64_t i = ahead * each / tiles; i < to; i += LINE_NUMBERS)
        __builtin_prefetch(data + i);
}

/* The points of tiles [first, first + n). */
static void points_of_x(const struct winograd5 *f, float *x, int64_t first, int64_t n,
                        const struct room5 *r)
{
    float *pixel[W5_POINTS];

    for (int64_t i = 0; i < n; i++) {
        fetch_share(f, x, f->H * f->W * f->C, first + i);
        pixels_of_x(f, x, first + i, r->none, pixel);
        winograd5_of_x(pixel, f->C, chunk_point(f->Cp), r->of_x + i * f->Cp);
    }
}

static void points_of_dy(const struct winograd5 *f, float *dy, int64_t first, int64_t n,
                         const struct room5 *r, float *db)
{
    float *pixel[W5_TILE_PIXELS];

    for (int64_t i = 0; i < n; i++) {
        fetch_share(f, dy, f->P * f->Q * f->K, first + i);
        pixels_of_y(f, dy, first + i, r->none, pixel);
        winograd5_of_dy(pixel, f->K, chunk_point(f->Kp), r->of_y + i * f->Kp, db);
    }
}

/* ---- products ---- */

/* to [m,n] = a [m,k] b [k,n], or += if it adds; rows of b and of `to` are b_row and to_row apart,
 * element (i, l) of a is at a.at[i * a.row + l * a.col]. */
struct product5 {
    struct matrix a;
    const float *b;
    float *to;
    int64_t b_row, to_row, m, n, k;
    int adds;
};

static void multiply_rows(const struct product5 *p, int64_t column)
{
    struct outer o = {.n1 = 1,
                      .n2 = p->k,
                      .a2 = p->a.col,
                      .b2 = p->b_row,
                      .n_j = (int)min_i64(COLUMNS_AT_ONCE, p->n - column),
                      .end = p->adds ? OUTER_ADD : OUTER_STORE};
    const int most = outer_max_i(o.n_j);

    for (int64_t i = 0; i < p->m; i += o.n_i) {
        o.n_i = (int)ceil_div_i64(p->m - i, ceil_div_i64(p->m - i, most));
        for (int j = 0; j < o.n_i; j++) {
            o.a_off[j] = j * p->a.row;
            o.to_off[j] = j * p->to_row;
        }
        outer_run(&o, p->a.at + i * p->a.row, p->b + column, p->to + i * p->to_row + column);
    }
}

static void multiply_all(const struct product5 *p)
{
    if (!outer_available())
        tile_product(p->a, p->b, p->b_row, p->to, p->to_row, p->m, p->n, p->k, p->adds);
    else
        for (int64_t column = 0; column < p->n; column += COLUMNS_AT_ONCE)
            multiply_rows(p, column);
}

/* ---- filters ---- */

/* w [K,C,5,5] -> [point][k][c], rows of Cp */
static void filter_by_channel(const struct winograd5 *f, const float *w, int64_t from, int64_t to,
                              float *points)
{
    for (int64_t k = from; k < to; k++)
        for (int64_t c = 0; c < f->C; c += LANES)
            winograd5_of_w(w + (k * f->C + c) * W5_TAPS, W5_TAPS, (int)min_i64(LANES, f->C - c),
                           filter_point5(f->K, f->Cp), points + k * f->Cp + c);
}

/* Vector instructions of a filter's transform. */
static int64_t filter_work5(const struct winograd5 *f) { return f->C * f->K * W5_POINTS; }

/* ---- grad_x ---- */

static struct winograd5 winograd5_grad_x(const struct plain *p)
{
    return winograd5_of(&p->out_shape[CONV2D_GRAD_X_DX], &p->in_shape[CONV2D_GRAD_X_DY],
                        p->attr.conv.pad);
}

static void grad_x_chunk(const struct plain *p, const struct winograd5 *f, const struct room5 *r,
                         int64_t first, int64_t n)
{
    float *pixel[W5_POINTS];

    points_of_dy(f, p->in[CONV2D_GRAD_X_DY], first, n, r, NULL);
    for (int i = 0; i < W5_POINTS; i++)
        multiply_all(
            &(struct product5){.a = {r->of_y + i * chunk_point(f->Kp), f->Kp, 1},
                               .b = (const float *)p->scratch + i * filter_point5(f->K, f->Cp),
                               .to = r->of_x + i * chunk_point(f->Cp),
                               .b_row = f->Cp,
                               .to_row = f->Cp,
                               .m = n,
                               .n = f->C,
                               .k = f->K});
    for (int64_t i = 0; i < n; i++) {
        fetch_share(f, p->out[CONV2D_GRAD_X_DX], f->H * f->W * f->C, first + i);
        pixels_of_x(f, p->out[CONV2D_GRAD_X_DX], first + i, r->nowhere, pixel);
        winograd5_to_dx(r->of_x + i * f->Cp, f->C, chunk_point(f->Cp), pixel);
    }
}

static void winograd5_grad_x_samples(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct winograd5 f = winograd5_grad_x(p);
    const struct room5 r = winograd5_room_begun(p, &f, part);
    const int64_t end = to * tiles_of_sample(&f), of_sample = f.H * f.W * f.C;

    memset((float *)p->out[CONV2D_GRAD_X_DX] + from * of_sample, 0,
           (size_t)((to - from) * of_sample) * sizeof(float));
    for (int64_t tile = from * tiles_of_sample(&f); tile < end; tile += CHUNK)
        grad_x_chunk(p, &f, &r, tile, min_i64(CHUNK, end - tile));
}

static void winograd5_grad_x_filter(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct winograd5 f = winograd5_grad_x(p);

    (void)part;
    filter_by_channel(&f, p->in[CONV2D_GRAD_X_W], from, to, p->scratch);
}

static void cpu_winograd5_run_grad_x(const struct plain *p)
{
    const struct winograd5 f = winograd5_grad_x(p);

    plain_split(p, f.K, filter_work5(&f), winograd5_grad_x_filter);
    plain_split(p, f.N, cpu_winograd5_work(&f), winograd5_grad_x_samples);
}

/* ---- grad_w ---- */

static struct winograd5 winograd5_grad_w(const struct plain *p)
{
    return winograd5_of(&p->in_shape[CONV2D_GRAD_W_X], &p->in_shape[CONV2D_GRAD_W_DY],
                        p->attr.conv.pad);
}

/* u[point][c][k] += sum over the chunk's tiles of x times dy */
static void grad_w_chunk(const struct plain *p, const struct winograd5 *f, const struct room5 *r,
                         int64_t first, int64_t n)
{
    points_of_x(f, p->in[CONV2D_GRAD_W_X], first, n, r);
    points_of_dy(f, p->in[CONV2D_GRAD_W_DY], first, n, r, p->out[CONV2D_GRAD_W_DB] ? r->db : NULL);
    for (int i = 0; i < W5_POINTS; i++)
        multiply_all(&(struct product5){.a = {r->of_x + i * chunk_point(f->Cp), 1, f->Cp},
                                        .b = r->of_y + i * chunk_point(f->Kp),
                                        .to = r->u + i * filter_point5(f->C, f->Kp),
                                        .b_row = f->Kp,
                                        .to_row = f->Kp,
                                        .m = f->C,
                                        .n = f->K,
                                        .k = n,
                                        .adds = 1});
}

static void winograd5_grad_w_samples(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct winograd5 f = winograd5_grad_w(p);
    const struct room5 r = winograd5_room_begun(p, &f, part);
    const int64_t end = to * tiles_of_sample(&f);

    memset(r.u, 0, (size_t)(u_numbers(&f) + f.Kp) * sizeof(float));
    for (int64_t tile = from * tiles_of_sample(&f); tile < end; tile += CHUNK)
        grad_w_chunk(p, &f, &r, tile, min_i64(CHUNK, end - tile));
}

static int winograd5_n_parts(const struct plain *p, const struct winograd5 *f)
{
    return plain_parts(p, f->N, cpu_winograd5_work(f));
}

/* The sum of all parts for channels [from, to) of x, and then the gradients of their filters. */
static void winograd5_grad_w_filter(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct winograd5 f = winograd5_grad_w(p);
    const int64_t each = filter_point5(f.C, f.Kp);
    const int adds = plain_adds(p, CONV2D_GRAD_W_DW);
    float *u = winograd5_room_of(p, &f, 0).u, *dw = p->out[CONV2D_GRAD_W_DW];

    (void)part;
    for (int k = 1; k < winograd5_n_parts(p, &f); k++)
        for (int64_t i = 0; i < W5_POINTS; i++)
            plain_add(u + i * each + from * f.Kp,
                      winograd5_room_of(p, &f, k).u + i * each + from * f.Kp, (to - from) * f.Kp);
    for (int64_t c = from; c < to; c++)
        for (int64_t k = 0; k < f.K; k += LANES)
            winograd5_to_dw(u + c * f.Kp + k, each, (int)min_i64(LANES, f.K - k), f.C * W5_TAPS,
                            adds, dw + (k * f.C + c) * W5_TAPS);
}

static void cpu_winograd5_run_grad_w(const struct plain *p)
{
    const struct winograd5 f = winograd5_grad_w(p);
    float *db = winograd5_room_of(p, &f, 0).db;

    plain_split(p, f.N, cpu_winograd5_work(&f), winograd5_grad_w_samples);
    plain_split(p, f.C, filter_work5(&f), winograd5_grad_w_filter);
    if (!p->out[CONV2D_GRAD_W_DB])
        return;
    for (int k = 1; k < winograd5_n_parts(p, &f); k++)
        plain_add(db, winograd5_room_of(p, &f, k).db, f.K);
    plain_give(p, CONV2D_GRAD_W_DB, db, f.K);
}

/* ---- making ---- */

static struct winograd5 winograd5_of_node(const struct graph *g, const struct node *n)
{
    const int is_of_x = n->op == OP_conv2d_grad_x;
    const struct shape *x =
        is_of_x ? cpu_out(g, n, CONV2D_GRAD_X_DX) : cpu_in(g, n, CONV2D_GRAD_W_X);
    const struct shape *y =
        is_of_x ? cpu_in(g, n, CONV2D_GRAD_X_DY) : cpu_in(g, n, CONV2D_GRAD_W_DY);

    return winograd5_of(x, y, n->attr.conv.pad);
}

/* The conditions: a gradient; AVX-512 or AVX2; float32; a 5 x 5 filter, stride 1, no dilation, one
 * group; a whole vector of channels on both sides, and few enough; tiles that are mostly inside of
 * y; enough tiles, and a sample for each thread. */
int winograd5_fits(const struct cpu *b, const struct graph *g, const struct node *n)
{
    const struct shape *w = cpu_conv_filter(g, n);
    struct winograd5 f;
    int64_t tiles;

    if (n->op == OP_conv2d)
        return 0;
    for (int i = 0; i < 2; i++)
        if (n->attr.conv.stride[i] != 1 || n->attr.conv.dilation[i] != 1 ||
            n->attr.conv.pad[i] >= W5_FILTER || w->dim[2 + i] != W5_FILTER)
            return 0;
    if (!(outer_available() || tile_available()) || n->attr.conv.groups != 1 ||
        op_type(g, n) != DTYPE_F32)
        return 0;
    f = winograd5_of_node(g, n);
    tiles = tiles_of_sample(&f);
    return f.C >= LANES && f.K >= LANES && f.C * f.K <= MOST_CHANNELS &&
           2 * f.P * f.Q > tiles * W5_TILE_PIXELS && f.N * tiles >= LEAST_TILES5 &&
           f.N >= b->n_threads;
}

int winograd5_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                   struct err *err)
{
    const struct winograd5 f = winograd5_of_node(g, n);
    const size_t room = winograd5_room_bytes(&f, n->op == OP_conv2d_grad_w);
    const size_t filter = (size_t)(W5_POINTS * filter_point5(f.K, f.Cp)) * sizeof(float);

    if (n->op == OP_conv2d_grad_x)
        return plain_new_split(b, g, n, cpu_winograd5_run_grad_x, filter, room, out, err);
    return plain_new_split(b, g, n, cpu_winograd5_run_grad_w, 0, room, out, err);
}
