/* test_image - crops, flips and normalisation of images, against plain loops; what is drawn depends
 * on seed, epoch and sample alone. */
#include "../test.h"

#include <math.h>

#include "base/rng.h"
#include "base/util.h"
#include "data/image.h"

enum { N = 64, H = 5, W = 11, C = 3, IMAGE = H * W * C };

struct images {
    struct dataset base;
    uint8_t byte[N][IMAGE], label[N];
};

static int row_of(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                  struct err *err)
{
    const struct images *s = container_of(ds, struct images, base);

    (void)room, (void)err;
    *row = field == 0 ? s->byte[i] : &s->label[i];
    return 0;
}

static void nothing(struct dataset *ds) { (void)ds; }

static const struct dataset_ops ops = {"images", row_of, nothing};

static void make(struct images *s, const struct image_options *o, enum dataset_purpose purpose)
{
    *s = (struct images){.base = {.ops = &ops, .n_samples = N, .spec = SAMPLE_IMAGES(H, W, C, 10)}};
    for (int i = 0; i < N; i++)
        for (int k = 0; k < IMAGE; k++)
            s->byte[i][k] = (uint8_t)(1 + (i * 31 + k * 7) % 255);
    image_prepare(&s->base, o, purpose);
}

static void gather(const struct images *s, const struct dataset_draw *draw, int64_t i,
                   float x[IMAGE])
{
    int32_t label;
    struct err err;

    assert_int_equal(dataset_gather_drawn(&s->base, draw, &i, 1, (void *[]){x, &label}, &err), 0);
}

/* The pixel of the sample's image, moved and mirrored; outside it is 0. */
static float expected(const struct images *s, int64_t i, int h, int w, int c, int64_t dy,
                      int64_t dx, int is_mirrored)
{
    const int64_t y = h + dy, x = (is_mirrored ? W - 1 - w : w) + dx;

    if (y < 0 || y >= H || x < 0 || x >= W)
        return 0;
    return (float)s->byte[i][(y * W + x) * C + c] / 255;
}

static int fits(const struct images *s, int64_t i, const float *seen, int64_t dy, int64_t dx,
                int is_mirrored)
{
    for (int h = 0; h < H; h++)
        for (int w = 0; w < W; w++)
            for (int c = 0; c < C; c++)
                if (seen[(h * W + w) * C + c] != expected(s, i, h, w, c, dy, dx, is_mirrored))
                    return 0;
    return 1;
}

/* Every drawn image is the sample's, moved by at most the padding; all places come, and both
 * directions. */
static void crops_and_flips(void **state)
{
    enum { PAD = 2, PLACES = 2 * PAD + 1 };
    const struct image_options o = {.crop = PAD, .flip = 1};
    static struct images s;
    int seen[PLACES][PLACES][2] = {{{0}}}, n = 0;
    float x[IMAGE];

    (void)state;
    make(&s, &o, DATASET_TRAIN);
    assert_true(dataset_draws(&s.base));
    for (int64_t epoch = 1; epoch <= 20; epoch++)
        for (int64_t i = 0; i < N; i++) {
            int n_fit = 0;

            gather(&s, &(struct dataset_draw){7, epoch}, i, x);
            for (int k = 0; k < PLACES * PLACES * 2; k++) {
                const int dy = k / 2 / PLACES, dx = k / 2 % PLACES;

                if (!fits(&s, i, x, dy - PAD, dx - PAD, k & 1))
                    continue;
                seen[dy][dx][k & 1]++;
                n_fit++;
            }
            assert_int_equal(n_fit, 1);
        }
    for (int k = 0; k < PLACES * PLACES * 2; k++)
        n += seen[k / 2 / PLACES][k / 2 % PLACES][k & 1] > 5; /* 25 on average */
    assert_int_equal(n, PLACES * PLACES * 2);
}

/* The number of images that differ between two draws. */
static int n_different(const struct images *s, const struct dataset_draw *a,
                       const struct dataset_draw *b)
{
    float x[IMAGE], y[IMAGE];
    int n = 0;

    for (int64_t i = 0; i < N; i++) {
        gather(s, a, i, x);
        gather(s, b, N - 1 - i, y); /* another order, to no effect */
        gather(s, b, i, y);
        n += memcmp(x, y, sizeof x) != 0;
    }
    return n;
}

static void drawn_from_seed_and_epoch(void **state)
{
    const struct image_options o = {.crop = 2, .flip = 1};
    const struct dataset_draw draw = {7, 3}, later = {7, 4}, other = {8, 3};
    static struct images s;

    (void)state;
    make(&s, &o, DATASET_TRAIN);
    assert_int_equal(n_different(&s, &draw, &draw), 0);
    assert_true(n_different(&s, &draw, &later) > N / 2);
    assert_true(n_different(&s, &draw, &other) > N / 2);
    assert_true(n_different(&s, &draw, NULL) > N / 2);
    make(&s, &o, DATASET_VALIDATION);
    assert_false(dataset_draws(&s.base));
    assert_int_equal(n_different(&s, &draw, NULL), 0);
}

/* A padding larger than the image leaves black images, too, but nothing outside is read. */
static void wide_padding(void **state)
{
    const struct image_options o = {.crop = 9};
    static struct images s;
    float x[IMAGE];

    (void)state;
    make(&s, &o, DATASET_TRAIN);
    for (int64_t i = 0; i < N; i++) {
        int n_fit = 0;

        gather(&s, &(struct dataset_draw){1, 1}, i, x);
        for (int dy = -9; dy <= 9; dy++)
            for (int dx = -9; dx <= 9; dx++)
                n_fit += fits(&s, i, x, dy, dx, 0);
        assert_true(n_fit >= 1);
    }
}

/* Without padding an image is itself, or mirrored. */
static void flips_alone(void **state)
{
    const struct image_options o = {.flip = 1};
    static struct images s;
    float x[IMAGE];
    int n_mirrored = 0;

    (void)state;
    make(&s, &o, DATASET_TRAIN);
    for (int64_t i = 0; i < N; i++) {
        gather(&s, &(struct dataset_draw){1, 1}, i, x);
        assert_true(fits(&s, i, x, 0, 0, 0) != fits(&s, i, x, 0, 0, 1));
        n_mirrored += fits(&s, i, x, 0, 0, 1);
    }
    assert_true(n_mirrored > N / 4 && n_mirrored < N * 3 / 4);
}

/* Padding is black before it is normalised; validation is normalised, too. */
static void normalises(void **state)
{
    const struct image_options o = {
        .crop = 1, .mean = {3, {0.25, 0.5, 0.75}}, .std = {3, {0.5, 0.25, 2}}};
    static struct images s;
    struct dataset_draw draw = {1, 1};
    float x[IMAGE], plain[IMAGE];

    (void)state;
    for (int purpose = DATASET_TRAIN; purpose <= (int)DATASET_VALIDATION; purpose++) {
        make(&s, &o, (enum dataset_purpose)purpose);
        gather(&s, &draw, 5, x);
        s.base.image.n_channels = 0;
        gather(&s, &draw, 5, plain);
        for (int k = 0; k < IMAGE; k++)
            assert_true(x[k] == (plain[k] - (float)o.mean.v[k % C]) / (float)o.std.v[k % C]);
    }
}

/* Mean and standard deviation as by their definitions, in two passes. */
static void measures(void **state)
{
    struct option_reals mean, std;
    static struct images s;
    struct err err;

    (void)state;
    make(&s, &(struct image_options){0}, DATASET_TRAIN);
    assert_int_equal(image_measure(&s.base, &mean, &std, &err), 0);
    assert_int_equal(mean.n, C);
    assert_int_equal(std.n, C);
    for (int c = 0; c < C; c++) {
        const double n = N * H * W;
        double sum = 0, squares = 0;

        for (int i = 0; i < N; i++)
            for (int k = c; k < IMAGE; k += C)
                sum += s.byte[i][k] / 255.0;
        for (int i = 0; i < N; i++)
            for (int k = c; k < IMAGE; k += C)
                squares += (s.byte[i][k] / 255.0 - sum / n) * (s.byte[i][k] / 255.0 - sum / n);
        assert_float_equal(mean.v[c], sum / n, 1e-12);
        assert_float_equal(std.v[c], sqrt(squares / n), 1e-12);
    }
    for (int i = 0; i < N; i++)
        for (int k = 1; k < IMAGE; k += C)
            s.byte[i][k] = 9;
    assert_int_equal(image_measure(&s.base, &mean, &std, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "data.normalize is auto, but channel 1 is the same in all images; "
                                 "give mean and std");
}

static void options_fit_the_channels(void **state)
{
    const struct image_options two = {.mean = {2, {0, 0}}}, four = {.std = {4, {1, 1, 1, 1}}};
    struct err err;

    (void)state;
    assert_int_equal(image_check(&(struct image_options){0}, 3, &err), 0);
    assert_int_equal(image_check(&two, 3, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "data.normalize.mean has 2 numbers, want 3, one for each channel");
    assert_int_equal(image_check(&four, 3, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "data.normalize.std has 4 numbers, want 3, one for each channel");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crops_and_flips),
        cmocka_unit_test(drawn_from_seed_and_epoch),
        cmocka_unit_test(wide_padding),
        cmocka_unit_test(flips_alone),
        cmocka_unit_test(normalises),
        cmocka_unit_test(measures),
        cmocka_unit_test(options_fit_the_channels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
