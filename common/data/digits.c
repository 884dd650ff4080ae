/* digits - draws the samples, and keeps those that were drawn.
 *
 * Happy path of one sample: choose a glyph, bend its control points, transform them, and flatten
 * the curves to segments.  Keep for each pixel the least squared distance to any segment (only
 * within a segment's reach).  Turn distance into coverage, and add noise.
 *
 * Same bytes everywhere: float + - * / and sqrt are exactly specified, contraction is off, and no
 * result depends on libm or on the order of a reduction.  A rotation is given by t = tan(angle/2),
 * so sine and cosine are quotients. */
#include "data/digits.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"

/* ---- the glyphs ---- */

enum { MAX_STROKES = 3, MAX_POINTS = 13 };
enum curve { STRAIGHT, SMOOTH }; /* lines between the points, or a Catmull-Rom spline */

struct stroke {
    enum curve curve;
    int n;                    /* points; 0: no such stroke */
    int8_t at[MAX_POINTS][2]; /* x right, y down, in hundredths of half the glyph's height */
};

static const struct glyph {
    int32_t digit;
    struct stroke stroke[MAX_STROKES];
} glyphs[] = {
    {0,
     {{SMOOTH,
       9,
       {{5, -100},
        {-42, -72},
        {-60, 0},
        {-44, 70},
        {0, 100},
        {44, 70},
        {60, 0},
        {42, -72},
        {-5, -98}}}}},
    {1, {{STRAIGHT, 2, {{4, -100}, {-2, 100}}}}},
    {1, {{STRAIGHT, 3, {{-34, -58}, {4, -100}, {2, 100}}}}},
    {1, {{STRAIGHT, 3, {{-34, -62}, {2, -100}, {2, 96}}}, {STRAIGHT, 2, {{-38, 96}, {40, 96}}}}},
    {2,
     {{SMOOTH,
       8,
       {{-50, -52}, {-28, -90}, {14, -100}, {50, -74}, {48, -34}, {14, 12}, {-24, 54}, {-60, 94}}},
      {STRAIGHT, 2, {{-60, 94}, {60, 92}}}}},
    {2,
     {{SMOOTH,
       12,
       {{-48, -58},
        {-20, -94},
        {24, -96},
        {50, -62},
        {36, -14},
        {0, 36},
        {-36, 84},
        {-58, 92},
        {-50, 66},
        {-14, 72},
        {24, 96},
        {62, 86}}}}},
    {3,
     {{SMOOTH, 6, {{-50, -74}, {-10, -100}, {38, -82}, {44, -40}, {10, -10}, {-18, -4}}},
      {SMOOTH, 7, {{-18, -4}, {16, -4}, {54, 22}, {54, 66}, {16, 98}, {-26, 98}, {-58, 72}}}}},
    {3,
     {{STRAIGHT, 3, {{-50, -96}, {44, -96}, {-8, -14}}},
      {SMOOTH, 7, {{-8, -14}, {28, -12}, {56, 20}, {52, 66}, {16, 98}, {-26, 98}, {-58, 74}}}}},
    {4, {{STRAIGHT, 3, {{16, -100}, {-60, 32}, {62, 30}}}, {STRAIGHT, 2, {{26, -44}, {24, 100}}}}},
    {4, {{STRAIGHT, 3, {{-42, -96}, {-50, 16}, {46, 10}}}, {STRAIGHT, 2, {{44, -90}, {34, 100}}}}},
    {5,
     {{STRAIGHT, 3, {{52, -96}, {-38, -94}, {-46, -8}}},
      {SMOOTH,
       8,
       {{-46, -8}, {-10, -28}, {38, -16}, {58, 28}, {42, 74}, {2, 100}, {-34, 96}, {-58, 74}}}}},
    {6,
     {{SMOOTH,
       11,
       {{36, -100},
        {-10, -70},
        {-44, -14},
        {-54, 40},
        {-34, 84},
        {6, 100},
        {46, 80},
        {54, 38},
        {28, 6},
        {-12, 8},
        {-46, 38}}}}},
    {7, {{STRAIGHT, 3, {{-58, -94}, {58, -94}, {-8, 100}}}}},
    {7, {{STRAIGHT, 3, {{-58, -92}, {58, -96}, {-14, 100}}}, {STRAIGHT, 2, {{-26, 2}, {48, -2}}}}},
    {8,
     {{SMOOTH,
       13,
       {{44, -70},
        {6, -100},
        {-40, -76},
        {-36, -36},
        {2, -4},
        {46, 36},
        {46, 78},
        {0, 100},
        {-48, 78},
        {-46, 34},
        {-2, -4},
        {38, -38},
        {40, -74}}}}},
    {9,
     {{SMOOTH,
       8,
       {{50, -56}, {22, -94}, {-24, -94}, {-50, -54}, {-32, -14}, {14, -10}, {44, -38}, {50, -60}}},
      {STRAIGHT, 2, {{50, -60}, {30, 100}}}}},
    {9,
     {{SMOOTH,
       8,
       {{48, -52}, {20, -94}, {-24, -92}, {-48, -54}, {-30, -16}, {12, -12}, {42, -38}, {50, -60}}},
      {SMOOTH, 5, {{50, -60}, {52, 10}, {34, 76}, {-10, 98}, {-44, 82}}}}},
};

/* ---- what is random about a sample ---- */

struct point {
    float x, y;
};

struct look {
    float xx, xy, yx, yy;   /* glyph to pixels: rotation, shear and scale */
    struct point middle;    /* of the glyph, in pixels */
    float radius;           /* half the stroke's width, in pixels */
    float ink, noise;       /* grey levels: of the stroke, and the noise's largest step */
    const struct glyph *of; /* which glyph */
};

static float digits_between(struct rng_stream *r, float lo, float hi)
{
    return lo + (hi - lo) * rng_to_unit(rng_next_u32(r));
}

static const struct glyph *choose_glyph(struct rng_stream *r, int32_t digit)
{
    const struct glyph *first = NULL;
    uint32_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(glyphs); i++)
        if (glyphs[i].digit == digit) {
            first = first ? first : &glyphs[i];
            n++;
        }
    return first + rng_next_u32(r) % n;
}

static struct look choose_look(struct rng_stream *r, int32_t digit)
{
    struct look k = {.of = choose_glyph(r, digit)};
    float t = digits_between(r, -0.12f, 0.12f); /* up to 14 degrees */
    float cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
    float size = digits_between(r, 7.2f, 10), shear = digits_between(r, -0.25f, 0.25f);
    float width = size * digits_between(r, 0.8f, 1.2f);

    k.xx = cosine * width;
    k.xy = (cosine * shear - sine) * size;
    k.yx = sine * width;
    k.yy = (sine * shear + cosine) * size;
    k.middle.x = 13.5f + digits_between(r, -2, 2);
    k.middle.y = 13.5f + digits_between(r, -2, 2);
    k.radius = digits_between(r, 0.8f, 1.9f);
    k.ink = digits_between(r, 180, 255);
    k.noise = digits_between(r, 0, 60);
    return k;
}

/* ---- drawing ---- */

struct canvas {
    float d2[DIGITS_BYTES]; /* squared distance to the nearest segment, or `far` */
    float reach;            /* beyond it a segment leaves no trace */
};

static const float far = 1e6f;

/* The pixels, of 0 .. DIGITS_SIDE-1, between lo and hi. */
static int pixel_from(float lo) { return lo <= 0 ? 0 : (int)lo; }
static int pixel_to(float hi) { return hi >= DIGITS_SIDE - 1 ? DIGITS_SIDE - 1 : (int)hi; }

static void draw_row(float *d2, int from, int to, struct point a, struct point dir, float inverse,
                     float dy)
{
    for (int i = from; i <= to; i++) {
        float dx = (float)i - a.x;
        float t = (dx * dir.x + dy * dir.y) * inverse; /* nearest point: a + t dir, 0 <= t <= 1 */
        float ex, ey, e2;

        t = t < 0 ? 0 : t;
        t = t > 1 ? 1 : t;
        ex = dx - t * dir.x;
        ey = dy - t * dir.y;
        e2 = ex * ex + ey * ey;
        d2[i] = e2 < d2[i] ? e2 : d2[i];
    }
}

static void draw_segment(struct canvas *c, struct point a, struct point b)
{
    struct point dir = {b.x - a.x, b.y - a.y};
    float length2 = dir.x * dir.x + dir.y * dir.y;
    float inverse = length2 > 0 ? 1 / length2 : 0;
    int from = pixel_from((a.x < b.x ? a.x : b.x) - c->reach);
    int to = pixel_to((a.x < b.x ? b.x : a.x) + c->reach);
    int last = pixel_to((a.y < b.y ? b.y : a.y) + c->reach);

    for (int row = pixel_from((a.y < b.y ? a.y : b.y) - c->reach); row <= last; row++)
        draw_row(c->d2 + row * DIGITS_SIDE, from, to, a, dir, inverse, (float)row - a.y);
}

/* Catmull-Rom from p[1] to p[2], as four lines; the weights are those at 1/4, 1/2 and 3/4. */
static void draw_spline(struct canvas *c, const struct point p[4])
{
    static const float weight[3][4] = {{-9 / 128.0f, 111 / 128.0f, 29 / 128.0f, -3 / 128.0f},
                                       {-8 / 128.0f, 72 / 128.0f, 72 / 128.0f, -8 / 128.0f},
                                       {-3 / 128.0f, 29 / 128.0f, 111 / 128.0f, -9 / 128.0f}};
    struct point last = p[1];

    for (int i = 0; i < 3; i++) {
        const float *w = weight[i];
        struct point next = {w[0] * p[0].x + w[1] * p[1].x + w[2] * p[2].x + w[3] * p[3].x,
                             w[0] * p[0].y + w[1] * p[1].y + w[2] * p[2].y + w[3] * p[3].y};

        draw_segment(c, last, next);
        last = next;
    }
    draw_segment(c, last, p[2]);
}

static void draw_stroke(struct canvas *c, const struct stroke *s, const struct point *p)
{
    for (int i = 0; i + 1 < s->n; i++) {
        const struct point four[4] = {p[max_i64(i - 1, 0)], p[i], p[i + 1],
                                      p[min_i64(i + 2, s->n - 1)]};

        if (s->curve == SMOOTH)
            draw_spline(c, four);
        else
            draw_segment(c, p[i], p[i + 1]);
    }
}

/* Ends of strokes that coincide are bent apart a little, as in people's writing. */
static void draw_glyph(struct canvas *c, const struct look *k, struct rng_stream *r)
{
    for (int s = 0; s < MAX_STROKES; s++) {
        const struct stroke *stroke = &k->of->stroke[s];
        struct point p[MAX_POINTS];

        for (int i = 0; i < stroke->n; i++) {
            float x = 0.01f * stroke->at[i][0] + digits_between(r, -0.12f, 0.12f);
            float y = 0.01f * stroke->at[i][1] + digits_between(r, -0.12f, 0.12f);

            p[i] = (struct point){k->middle.x + k->xx * x + k->xy * y,
                                  k->middle.y + k->yx * x + k->yy * y};
        }
        draw_stroke(c, stroke, p);
    }
}

/* Ink falls to 0 over the pixel at the stroke's edge. */
static void ink_levels(float *restrict level, const float *restrict d2, float radius, float ink)
{
    for (int i = 0; i < DIGITS_BYTES; i++) {
        float v = ink * (radius + 0.5f - sqrtf(d2[i]));

        v = v < 0 ? 0 : v;
        v = v > ink ? ink : v;
        level[i] = v;
    }
}

/* Triangular noise: the sum of two uniform bytes.  Split in loops that the compiler vectorises. */
static void add_noise(uint8_t *pixels, const float *level, float noise, struct rng_stream *r)
{
    uint16_t random[DIGITS_BYTES];
    float step = noise / 255.0f;

    for (int i = 0; i < DIGITS_BYTES; i += 2) {
        uint32_t word = rng_next_u32(r);

        random[i] = (uint16_t)word;
        random[i + 1] = (uint16_t)(word >> 16);
    }
    for (int i = 0; i < DIGITS_BYTES; i++) {
        int sum = (random[i] & 255) + (random[i] >> 8) - 255;
        float v = level[i] + step * (float)sum + 0.5f;

        v = v < 0 ? 0 : v;
        v = v > 255 ? 255 : v;
        pixels[i] = (uint8_t)(int)v;
    }
}

int32_t digits_draw(uint64_t seed, enum dataset_purpose purpose, int64_t i, uint8_t *pixels)
{
    uint64_t number = (uint64_t)i | (purpose == DATASET_VALIDATION ? (uint64_t)1 << 62 : 0);
    int32_t digit = (int32_t)(i % DIGITS_CLASSES);
    struct rng_stream r;
    struct canvas c;
    struct look k;
    float level[DIGITS_BYTES];

    rng_stream_init(&r, seed, RNG_DIGITS, number);
    k = choose_look(&r, digit);
    c.reach = k.radius + 0.5f;
    for (int j = 0; j < DIGITS_BYTES; j++)
        c.d2[j] = far;
    draw_glyph(&c, &k, &r);
    ink_levels(level, c.d2, k.radius, k.ink);
    add_noise(pixels, level, k.noise, &r);
    return digit;
}

/* ---- the data set ---- */

enum { MAX_SAMPLES = 4000000 }; /* 3 GB: more is a mistake */
enum state { EMPTY, BUSY, READY };

struct digits {
    struct dataset base;
    uint64_t seed;
    enum dataset_purpose purpose;
    uint8_t *pixels;            /* [n,28,28,1], filled as gathered */
    atomic_uchar *pixels_state; /* [n]: an enum state, guards that sample's pixels */
};

/* The label of sample i is that of i modulo 10. */
static const uint8_t labels[DIGITS_CLASSES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

/* If several threads want a sample for the first time, one of them draws it into the memory that is
 * kept.  The others do not wait for that one: each draws its own copy into `spare`. */
static const uint8_t *sample_pixels(const struct digits *d, int64_t i, uint8_t *spare)
{
    uint8_t *kept = d->pixels + i * DIGITS_BYTES;
    unsigned char expected = EMPTY;

    if (atomic_load_explicit(&d->pixels_state[i], memory_order_acquire) == READY)
        return kept;
    if (!atomic_compare_exchange_strong(&d->pixels_state[i], &expected, BUSY))
        kept = spare;
    digits_draw(d->seed, d->purpose, i, kept);
    if (kept != spare)
        atomic_store_explicit(&d->pixels_state[i], READY, memory_order_release);
    return kept;
}

static int digits_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                      struct err *err)
{
    const struct digits *d = container_of(ds, struct digits, base);

    (void)err;
    if (field == 0)
        *row = sample_pixels(d, i, room);
    else
        *row = &labels[i % DIGITS_CLASSES];
    return 0;
}

static void digits_close(struct dataset *ds)
{
    struct digits *d = container_of(ds, struct digits, base);

    free(d->pixels_state);
    free(d->pixels);
    free(d);
}

static const struct dataset_ops digits_ops = {
    .name = "digits", .row = digits_row, .close = digits_close};

static int digits_open(struct dataset **out, const void *options,
                       const struct dataset_request *request, struct err *err)
{
    const struct digits_options *o = options;
    int64_t n = request->purpose == DATASET_TRAIN ? o->samples : o->validation_samples;
    struct digits *d;
    void *pixels;

    if (n == 0)
        return DATASET_NONE;
    if (try_alloc(&pixels, (size_t)n * DIGITS_BYTES, "drawn digits", err) < 0)
        return err->code;
    d = xcalloc(1, sizeof *d);
    *d =
        (struct digits){.base = {.ops = &digits_ops,
                                 .n_samples = n,
                                 .spec = SAMPLE_IMAGES(DIGITS_SIDE, DIGITS_SIDE, 1, DIGITS_CLASSES),
                                 .room_bytes = DIGITS_BYTES},
                        .seed = request->seed,
                        .purpose = request->purpose,
                        .pixels = pixels,
                        .pixels_state = xcalloc((size_t)n, sizeof *d->pixels_state)};
    *out = &d->base;
    return 0;
}

#define AT(field) offsetof(struct digits_options, field)

static const struct option rows[] = {
    {"data.samples", OPT_INT, AT(samples), "20000", 1, MAX_SAMPLES, .unit = "samples",
     .help = "The number of training digits that are drawn."},
    {"data.validation_samples", OPT_INT, AT(validation_samples), "4000", 0, MAX_SAMPLES,
     .unit = "samples",
     .help = "The number of validation digits that are drawn; with 0 nothing is validated."},
};

static const char *const mnist[] = {"data.format=mnist", "data.path=FOLDER", "data.validation=t10k",
                                    NULL};

const struct data_format format_digits = {
    .group = {.name = "digits",
              .help = "drawn ones, no files needed",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct digits_options)},
    .own = mnist,
    .own_folder = "where MNIST's four files are",
    .open = digits_open,
};
