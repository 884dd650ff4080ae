/* digits: the drawings have the same bytes on every machine, each class can be recognized, and
 * several threads may want the same sample. */
#include "../test.h"

#include <pthread.h>
#include <time.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/digits.h"

/* The first 1000 training and validation samples of seed 1: the same bytes on every machine, with
 * every compiler and instruction set, and in every version. */
static void bytes_are_the_same_everywhere(void **state)
{
    static const char *const want[2] = {"cefac35702bb81b058d27dd3dcd8cc2a",
                                        "5e76663f0f70059f4a3b9eafeb5c7f4f"};

    (void)state;
    for (int purpose = DATASET_TRAIN; purpose <= DATASET_VALIDATION; purpose++) {
        struct hasher *h = hasher_new();
        uint8_t pixels[DIGITS_BYTES];
        char text[HASH_TEXT_LEN];

        for (int i = 0; i < 1000; i++) {
            assert_int_equal(digits_draw(1, purpose, i, pixels), i % 10);
            hasher_add(h, pixels, sizeof pixels);
        }
        hash_to_text(hasher_end(h), text);
        assert_string_equal(text, want[purpose]);
        hasher_free(h);
    }
}

/* There is ink in the middle, and the border is empty but for noise. */
static void samples_look_like_writing(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        uint8_t pixels[DIGITS_BYTES];
        int n_ink = 0, n_border = 0;

        digits_draw(4, DATASET_TRAIN, i, pixels);
        for (int j = 0; j < DIGITS_BYTES; j++) {
            int row = j / DIGITS_SIDE, col = j % DIGITS_SIDE;
            int ink = pixels[j] > 120;

            n_ink += ink;
            n_border +=
                ink && (row == 0 || row == DIGITS_SIDE - 1 || col == 0 || col == DIGITS_SIDE - 1);
        }
        if (n_ink < 10 || n_ink > 300 || n_border > 12)
            fail_msg("sample %d: %d pixels of ink, %d on the border", i, n_ink, n_border);
    }
}

static int compare(const void *a, const void *b) { return memcmp(a, b, sizeof(struct hash128)); }

/* No drawing comes twice: not in training, not in validation, not with another seed. */
static void drawings_are_distinct(void **state)
{
    enum { N = 3000 };
    struct hash128 *seen = xcalloc(3 * N, sizeof *seen);

    (void)state;
    for (int i = 0; i < 3 * N; i++) {
        uint8_t pixels[DIGITS_BYTES];

        digits_draw(i < 2 * N ? 1 : 2, i < N ? DATASET_TRAIN : DATASET_VALIDATION, i % N, pixels);
        seen[i] = hash_of(pixels, sizeof pixels);
    }
    qsort(seen, 3 * N, sizeof *seen, compare);
    for (int i = 1; i < 3 * N; i++)
        assert_false(hash_equal(seen[i - 1], seen[i]));
    free(seen);
}

static struct dataset *open_digits(enum dataset_purpose purpose, int64_t n)
{
    const struct digits_options digits = {n, n};
    const struct data_options o = {&format_digits, &digits};
    const struct dataset_request request = {purpose, 1};
    struct dataset *ds;
    struct err err;

    assert_int_equal(dataset_open(&ds, &o, &request, &err), 0);
    return ds;
}

static void sizes_are_as_documented(void **state)
{
    struct dataset *train = open_digits(DATASET_TRAIN, 20000);
    struct dataset *validation = open_digits(DATASET_VALIDATION, 4000);

    (void)state;
    assert_int_equal(train->n_samples, 20000);
    assert_int_equal(validation->n_samples, 4000);
    assert_int_equal(train->spec.field[1].n_classes, 10);
    assert_true(shape_equal(&train->spec.field[0].shape, &SHAPE(28, 28, 1)));
    dataset_close(train);
    dataset_close(validation);
}

static void gathered_is_what_is_drawn(void **state)
{
    struct dataset *ds = open_digits(DATASET_VALIDATION, 50);
    float x[DIGITS_BYTES];
    uint8_t pixels[DIGITS_BYTES];
    struct err err;

    (void)state;
    for (int twice = 0; twice < 2; twice++)
        for (int64_t i = 0; i < 50; i++) {
            int32_t y;

            assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, &y}, &err), 0);
            assert_int_equal(digits_draw(1, DATASET_VALIDATION, i, pixels), y);
            for (int j = 0; j < DIGITS_BYTES; j++)
                assert_true(x[j] == (float)pixels[j] / 255.0f);
        }
    dataset_close(ds);
}

/* With data.reconstruct the target is the input, with what is drawn and normalised. */
static void input_is_the_target(void **state)
{
    const struct digits_options digits = {50, 50};
    const struct data_options o = {.kind = &format_digits, .options = &digits, .reconstruct = 1};
    const struct dataset_request request = {DATASET_TRAIN, 1};
    struct hash128 print[2];
    struct dataset *ds, *plain = open_digits(DATASET_TRAIN, 50);
    static float x[50 * DIGITS_BYTES], y[50 * DIGITS_BYTES], as_read[DIGITS_BYTES];
    int64_t index[50];
    struct err err;

    (void)state;
    assert_int_equal(dataset_open(&ds, &o, &request, &err), 0);
    assert_int_equal(ds->spec.field[1].role, SAMPLE_REAL);
    assert_true(shape_equal(&ds->spec.field[1].shape, &SHAPE(28, 28, 1)));
    ds->image =
        (struct dataset_image){.crop = 3, .flip = 1, .n_channels = 1, .mean = {0.25}, .std = {0.5}};
    for (int i = 0; i < 50; i++)
        index[i] = 49 - i;
    assert_int_equal(
        dataset_gather_drawn(ds, &(struct dataset_draw){1, 2}, index, 50, (void *[]){x, y}, &err),
        0);
    assert_memory_equal(x, y, sizeof x);
    memset(y, 0, sizeof y);
    assert_int_equal(dataset_gather_drawn(ds, &(struct dataset_draw){1, 2}, index, 50,
                                          (void *[]){NULL, y}, &err),
                     0);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(dataset_gather(ds, index, 1, (void *[]){as_read, NULL}, &err), 0);
    assert_memory_not_equal(x, as_read, sizeof as_read);
    assert_int_equal(dataset_fingerprint(ds, &print[0], &err), 0);
    assert_int_equal(dataset_fingerprint(plain, &print[1], &err), 0);
    assert_false(hash_equal(print[0], print[1]));
    dataset_close(ds);
    dataset_close(plain);
}

/* ---- several threads want the same samples for the first time ---- */

enum { SHARED = 500, N_THREADS = 4 };

struct reader {
    struct dataset *ds;
    struct hash128 hash;
    pthread_t thread;
};

static void *read_all(void *arg)
{
    struct reader *r = arg;
    struct hasher *h = hasher_new();
    float x[DIGITS_BYTES];
    struct err err;
    int32_t y;

    for (int64_t i = 0; i < SHARED; i++) {
        dataset_gather(r->ds, &i, 1, (void *[]){x, &y}, &err);
        hasher_add(h, x, sizeof x);
    }
    r->hash = hasher_end(h);
    hasher_free(h);
    return NULL;
}

static void threads_may_gather_at_once(void **state)
{
    struct reader r[N_THREADS];
    struct dataset *ds = open_digits(DATASET_TRAIN, SHARED);

    (void)state;
    for (int i = 0; i < N_THREADS; i++) {
        r[i].ds = ds;
        assert_int_equal(pthread_create(&r[i].thread, NULL, read_all, &r[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(r[i].thread, NULL);
    for (int i = 1; i < N_THREADS; i++)
        assert_true(hash_equal(r[0].hash, r[i].hash));
    dataset_close(ds);
}

/* The processor's time of this thread, in seconds, without the time that others take. */
static double cpu_s(void)
{
    struct timespec t;

    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Not a benchmark: it shows the figure, and fails only at a figure that no slow machine
 * explains. */
static void drawing_is_quick(void **state)
{
    const double start = cpu_s();
    uint8_t pixels[DIGITS_BYTES];

    (void)state;
    for (int i = 0; i < 6000; i++)
        digits_draw(3, DATASET_TRAIN, i, pixels);
    print_message("24,000 digits take %.3f s\n", 4 * (cpu_s() - start));
    assert_true(cpu_s() - start < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_the_same_everywhere),
        cmocka_unit_test(samples_look_like_writing),
        cmocka_unit_test(drawings_are_distinct),
        cmocka_unit_test(sizes_are_as_documented),
        cmocka_unit_test(gathered_is_what_is_drawn),
        cmocka_unit_test(input_is_the_target),
        cmocka_unit_test(threads_may_gather_at_once),
        cmocka_unit_test(drawing_is_quick),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
