/* npy: arrays as numpy.save() writes them are read, whatever their type; files that are no such
 * arrays, or do not belong together, are refused with their reason. */
#include "../test.h"

#include <math.h>

#include "npy_set.h"
#include "tensor/half.h"

/* Each type, as features [3,2,2] and as a target [3]; element i of an array is i. */
static void every_type_is_read(void **state)
{
    static const struct {
        const char *x, *y;
        size_t size;
        char as;
    } types[] = {
        {KEYS("|u1", "(3, 2, 2)"), KEYS("|u1", "(3,)"), 1, 'i'},
        {KEYS("|i1", "(3, 2, 2)"), KEYS("|i1", "(3,)"), 1, 'i'},
        {KEYS("<i2", "(3, 2, 2)"), KEYS("<i2", "(3,)"), 2, 'i'},
        {KEYS("<u2", "(3,2,2)"), KEYS("<u2", "(3, )"), 2, 'i'},
        {KEYS("<i4", "(3, 2, 2)"), KEYS("<i4", "(3, 1)"), 4, 'i'},
        {KEYS("<u4", "(3, 2, 2)"), KEYS("<u4", "(3,)"), 4, 'i'},
        {KEYS("<i8", "(3, 2, 2)"), KEYS("<i8", "(3,)"), 8, 'i'},
        {KEYS("<u8", "(3, 2, 2)"), KEYS("<u8", "(3,)"), 8, 'i'},
        {KEYS("<f2", "(3, 2, 2)"), KEYS("<f2", "(3,)"), 2, 'h'},
        {KEYS("<f4", "(3, 2, 2)"), KEYS("<f4", "(3,)"), 4, 'f'},
        {KEYS("<f8", "(3, 2, 2)"), KEYS("<f8", "(3, 1)"), 8, 'd'},
    };

    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        const int is_class = types[t].as == 'i';
        const int64_t index[] = {2, 0, 1};
        uint8_t bytes[12 * 8] = {0};
        float x[12];
        union {
            int32_t i[3];
            float f[3];
        } y;
        struct dataset *ds;
        struct err err;

        for (int i = 0; i < 12; i++) {
            const float f = (float)i;
            const double d = i;
            const uint16_t h = f16_from_float(f);

            if (types[t].as == 'h')
                memcpy(bytes + 2 * i, &h, 2);
            else if (types[t].as == 'f')
                memcpy(bytes + 4 * i, &f, 4);
            else if (types[t].as == 'd')
                memcpy(bytes + 8 * i, &d, 8);
            else
                bytes[types[t].size * (size_t)i] = (uint8_t)i;
        }
        write_npy(*state, "x.npy", 1 + (int)t % 3, types[t].x, bytes, 12 * types[t].size);
        write_npy(*state, "y.npy", 1, types[t].y, bytes, 3 * types[t].size);
        ds = open_ok(*state, DATASET_TRAIN);
        assert_int_equal(ds->n_samples, 3);
        assert_true(shape_equal(&ds->spec.field[0].shape, &SHAPE(2, 2)));
        assert_int_equal(ds->spec.field[1].role, is_class ? SAMPLE_CLASS : SAMPLE_REAL);
        assert_int_equal(ds->spec.field[1].n_classes, is_class ? 3 : 0);
        assert_int_equal(ds->spec.field[1].shape.n, is_class ? 0 : 1);
        assert_int_equal(dataset_gather(ds, index, 3, (void *[]){x, &y}, &err), 0);
        for (int i = 0; i < 12; i++)
            assert_true(x[i] == (float)(4 * index[i / 4] + i % 4));
        for (int i = 0; i < 3; i++)
            assert_true(is_class ? y.i[i] == index[i] : y.f[i] == (float)index[i]);
        dataset_close(ds);
    }
}

/* A class for each place, more than one block of them, and classes as the training set has them. */
static void targets_may_have_a_shape(void **state)
{
    static int64_t y[2 * 5000];
    static int32_t labels[5000];
    struct dataset *ds;
    struct err err;
    float x;

    for (int i = 0; i < 10000; i++)
        y[i] = i * 7 % 4500;
    write_npy(*state, "x.npy", 1, KEYS("<f4", "(2,)"), (float[]){0.5F, 1.5F}, 8);
    write_npy(*state, "y.npy", 1, KEYS("<i8", "(2, 50, 100)"), y, sizeof y);
    write_npy(*state, "vx.npy", 1, KEYS("<f4", "(1,)"), (float[]){2.5F}, 4);
    write_npy(*state, "vy.npy", 1, KEYS("<i8", "(1, 50, 100)"), (int64_t[5000]){7, 8, 9}, 40000);
    for (int p = 0; p < 2; p++) {
        ds = open_ok(*state, p);
        assert_true(shape_equal(&ds->spec.field[0].shape, &SHAPE(1)));
        assert_true(shape_equal(&ds->spec.field[1].shape, &SHAPE(50, 100)));
        assert_int_equal(ds->spec.field[1].n_classes, 4500);
        assert_int_equal(dataset_gather(ds, (int64_t[]){1 - p}, 1, (void *[]){&x, labels}, &err),
                         0);
        assert_true(x == (p ? 2.5F : 1.5F));
        for (int i = 0; i < 5000; i++)
            assert_int_equal(labels[i], p ? (i < 3 ? 7 + i : 0) : y[5000 + i]);
        dataset_close(ds);
    }
}

static const struct bad_case {
    const char *x, *y; /* the headers; NULL: no file */
    size_t x_bytes, y_bytes;
    const char *train; /* NULL: the default */
    int code;
    const char *want; /* @ is the folder */
} bad_cases[] = {
    {KEYS("<f4", "(3, 2)"), KEYS("|u1", "(3,)"), 25, 3, NULL, ERR_CORRUPT,
     "npy: @/x.npy: offset 70: 25 bytes follow the header, want 24, as many as [3,2] of <f4; was "
     "it copied whole?"},
    {KEYS("<f4", "(3, 2)"), KEYS("|u1", "(2,)"), 24, 2, NULL, ERR_CORRUPT,
     "npy: @/y.npy has 2 rows, want 3, as many as @/x.npy; do the two belong together?"},
    {KEYS("<f4", "(3, 2)"), KEYS("|u1", "(3,)"), 23, 3, NULL, ERR_CORRUPT,
     "npy: @/x.npy: offset 70: 23 bytes follow the header, want 24, as many as [3,2] of <f4; was "
     "it copied whole?"},
    {KEYS(">f4", "(3, 2)"), KEYS("|u1", "(3,)"), 24, 3, NULL, ERR_CORRUPT,
     "npy: @/x.npy: its type is >f4, want one of |u1, |i1, |b1, <i2, <u2, <i4, <u4, <i8, <u8, <f2, "
     "<f4, <f8; "
     "convert it with astype()"},
    {KEYS("<f4", "()"), KEYS("|u1", "(3,)"), 4, 3, NULL, ERR_CORRUPT,
     "npy: @/x.npy: it is one number, want an array with a row for each sample"},
    {KEYS("<f4", "(0, 2)"), KEYS("|u1", "(3,)"), 0, 3, NULL, ERR_CORRUPT,
     "npy: @/x.npy: its shape is (0, 2), want up to 8 extents from 1 on"},
    {KEYS("<f4", "(3, 9000000000000000000)"), KEYS("|u1", "(3,)"), 0, 3, NULL, ERR_CORRUPT,
     "npy: @/x.npy: its shape is (3, 9000000000000000000), want up to 8 extents from 1 on"},
    {KEYS("<f4", "(3, 300000000)"), KEYS("|u1", "(3,)"), 0, 3, NULL, ERR_CORRUPT,
     "npy: @/x.npy: a row has 300000000 numbers, want at most 268435456"},
    {"'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), ", KEYS("|u1", "(3,)"), 24, 3, NULL,
     ERR_CORRUPT,
     "npy: @/x.npy: its order is Fortran's, want C's; write it anew with "
     "numpy.ascontiguousarray()"},
    {"'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), ", KEYS("|u1", "(3,)"), 12, 3,
     NULL, ERR_CORRUPT, NULL},
    {KEYS("<f4", "(3, 2)"), KEYS("|i1", "(3,)"), 24, 3, NULL, ERR_CORRUPT,
     "npy: @/y.npy: offset 69: the class of sample 1 is -1, want 0 to 16777215, or "
     "train.ignore_index; whole numbers are classes: store targets that are numbers as float32"},
    {KEYS("<f4", "(3, 2)"), KEYS("|u1", "(3,)"), 24, 3, "x.npy", ERR_CONFIG,
     "npy: data.train is x.npy, want two files: [x.npy, y.npy]"},
    {KEYS("<f4", "(3, 2)"), NULL, 24, 3, "x.npy, z.npy", ERR_IO,
     "npy: file @/z.npy (of data.path, data.train or data.validation): No such file or directory"},
};

/* A class above INT64_MAX is told as the file has it.  As a number with a sign it would be -100,
 * which is ignored. */
static void huge_classes_are_refused(void **state)
{
    static const uint64_t y[3] = {0, UINT64_MAX - 99, 1};
    const struct setting settings[] = {
        {"data.path", *state}, {"data.train", "x.npy,y.npy"}, {NULL}};
    const struct dataset_request r = purpose(DATASET_TRAIN);
    const float x[6] = {0};
    struct dataset *ds = NULL;
    struct err err = {0};

    write_npy(*state, "x.npy", 1, KEYS("<f4", "(3, 2)"), x, sizeof x);
    write_npy(*state, "y.npy", 1, KEYS("<u8", "(3,)"), y, sizeof y);
    assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "the class of sample 1 is 18446744073709551516, want 0 to "));
}

static void bad_files_are_refused(void **state)
{
    static const uint8_t bytes[32] = {0, 255};
    const struct dataset_request r = purpose(DATASET_TRAIN);
    char want[1024];

    for (size_t i = 0; i < ARRAY_LEN(bad_cases); i++) {
        const struct bad_case *c = &bad_cases[i];
        const struct setting settings[] = {
            {"data.path", *state}, {"data.train", c->train ? c->train : "x.npy,y.npy"}, {NULL}};
        struct dataset *ds = NULL;
        struct err err = {0};

        write_npy(*state, "x.npy", 1, c->x, bytes, c->x_bytes);
        if (c->y)
            write_npy(*state, "y.npy", 1, c->y, bytes, c->y_bytes);
        assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), c->code);
        if (c->want)
            assert_string_equal(err.msg, fill_in(want, sizeof want, c->want, *state));
        else
            assert_non_null(strstr(err.msg, "x.npy: offset 10: the header is \"{'descr': [('a'"));
    }
}

static void validation_has_the_classes_of_training(void **state)
{
    const struct setting settings[] = {
        {"data.path", *state}, {"data.validation", "x.npy,v.npy"}, {NULL}};
    const struct dataset_request r = purpose(DATASET_VALIDATION);
    struct dataset *ds = NULL;
    struct err err = {0};
    char want[1024];

    write_npy(*state, "x.npy", 1, KEYS("|u1", "(3, 2)"), "abcdef", 6);
    write_npy(*state, "y.npy", 1, KEYS("|u1", "(3,)"), "\0\3\1", 3);
    write_npy(*state, "v.npy", 1, KEYS("|u1", "(3,)"), "\0\1\4", 3);
    assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, fill_in(want, sizeof want,
                                         "npy: @/v.npy: offset 70: the class of sample 2 is 4, "
                                         "want 0 to 3, the training set's largest, or "
                                         "train.ignore_index",
                                         *state));
}

/* bce takes targets from 0 to 1 alone; wrong ones are found in the second block of them, too. */
static void targets_of_bce_are_from_0_to_1(void **state)
{
    enum { ROWS = 3000, N = 2 * ROWS };
    static const struct {
        float y;
        int at;
        const char *want;
    } bad[] = {
        {1.5F, 3, "offset 85: a target of sample 1 is 1.5"},
        {-1e-7F, N - 1, "offset 24069: a target of sample 2999 is -1.00000001e-07"},
        {NAN, 0, "offset 73: a target of sample 0 is nan"},
        {-100, 0, "offset 73: a target of sample 0 is -100"},
    };
    const struct setting settings[] = {{"data.path", *state}, {NULL}};
    struct dataset_request r = purpose(DATASET_TRAIN);
    static uint8_t x[ROWS];
    static float y[N];
    struct dataset *ds;
    struct err err;
    char want[1024];

    r.targets_are_fractions = 1;
    y[7] = 1;
    write_npy(*state, "x.npy", 1, KEYS("|u1", "(3000,)"), x, sizeof x);
    write_npy(*state, "y.npy", 1, KEYS("<f4", "(3000, 2)"), y, sizeof y);
    assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), 0);
    dataset_close(ds);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const float good = y[bad[i].at];

        y[bad[i].at] = bad[i].y;
        write_npy(*state, "y.npy", 1, KEYS("<f4", "(3000, 2)"), y, sizeof y);
        y[bad[i].at] = good;
        assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), ERR_CORRUPT);
        snprintf(want, sizeof want, "npy: %s/y.npy: %s, want 0 to 1 with model.loss: bce",
                 (char *)*state, bad[i].want);
        assert_string_equal(err.msg, want);
        dataset_close(open_ok(*state, DATASET_TRAIN)); /* as other losses take it */
    }
}

/* Not one of numpy.save()'s, or torn within its beginning. */
static void strange_bytes_are_refused(void **state)
{
    static const char *const bytes[] = {"", "\x93NUMPY\1", "PK\3\4 an .npz, 12",
                                        "\x93NUMPY\1\1\377\377 cut", "\x93NUMPY\7\1\1\1 of 7"};
    static const char *const want[] = {"offset 0: this is no file of numpy.save()",
                                       "offset 0: this is no file of numpy.save()",
                                       "begins with 0x93 NUMPY; it is a zip archive (numpy.savez()",
                                       "offset 8: a header of 65535 bytes, want at most 4096",
                                       "offset 6: version 7 of the format, want 1 to 3"};
    const struct setting settings[] = {{"data.path", *state}, {NULL}};
    const struct dataset_request r = purpose(DATASET_TRAIN);

    write_npy(*state, "x.npy", 1, KEYS("|u1", "(3, 2)"), "abcdef", 6);
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
        struct buf b = {0};
        struct dataset *ds = NULL;
        struct err err = {0};

        buf_append(&b, bytes[i], strlen(bytes[i]));
        write_file(*state, "y.npy", &b);
        buf_fini(&b);
        assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), ERR_CORRUPT);
        if (!strstr(err.msg, want[i]))
            fail_msg("%s, want %s", err.msg, want[i]);
    }
}

/* Open x.npy and y.npy; *want is told, @ is the folder. */
static void check_told(const char *folder, const char *layout, struct dataset_request r,
                       const char *want)
{
    const struct setting settings[] = {
        {"data.path", folder}, {"data.validation", "x.npy,y.npy"}, {"data.layout", layout}, {NULL}};
    struct dataset *ds = NULL;
    struct err err = {0};
    char text[1024];

    r.warn = tell;
    told[0] = 0;
    if (open_set(&ds, &format_npy, settings, &r, &err) != 0)
        fail_msg("%s", err.msg);
    dataset_close(ds);
    assert_string_equal(told, fill_in(text, sizeof text, want, folder));
}

/* Labels [6] of which the user is told, or not. */
static const struct doubted_labels {
    uint8_t y[6];
    int ignored; /* 0: none */
    int targets_are_numbers;
    const char *want; /* @ is the folder */
} doubted_labels[] = {
    {{0, 1, 2, 3, 2, 1}, 0, 0, ""},
    {{0, 0, 0, 0, 0, 0}, 0, 0, ""},
    {{0, 1, 2, 3, 255, 1},
     0,
     0,
     "@/y.npy: 251 of 256 classes have no sample, such as 254; if the label 255 marks places "
     "without a class, set train.ignore_index: 255"},
    {{0, 1, 2, 3, 255, 1}, 255, 0, ""},
    {{0, 1, 2, 4, 4, 1},
     0,
     0,
     "@/y.npy: 1 of 5 classes have no sample, such as 3; if the label 4 marks places without a "
     "class, set train.ignore_index: 4"},
    {{1, 2, 3, 4, 5, 6},
     0,
     0,
     "@/y.npy: 1 of 7 classes has no sample: 0; number the labels from 0 on without gaps, or "
     "store them as float32 if they are numbers (model.loss mse or l1)"},
    {{0, 2, 4, 5, 5, 5},
     0,
     0,
     "@/y.npy: 2 of 6 classes have no sample, such as 1; number the labels from 0 on without gaps, "
     "or store them as float32 if they are numbers (model.loss mse or l1)"},
    {{0, 1, 17, 3, 250, 1},
     0,
     1,
     "@/y.npy: its whole numbers are taken as 251 classes, with an output of the network for each; "
     "store them as float32 if they are numbers, which model.loss then compares"},
    {{0, 1, 0, 1, 0, 1},
     0,
     1,
     "@/y.npy: its whole numbers are taken as 2 classes, with an output of the network for each; "
     "store them as float32 if they are numbers, which model.loss then compares"},
};

static void strange_labels_are_told(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(doubted_labels); i++) {
        const struct doubted_labels *c = &doubted_labels[i];
        const int64_t ignored = c->ignored;
        struct dataset_request r = purpose(DATASET_TRAIN);

        r.ignored = c->ignored ? &ignored : NULL;
        r.targets_are_numbers = c->targets_are_numbers;
        write_npy(*state, "x.npy", 1, KEYS("|u1", "(6,)"), "abcdef", 6);
        write_npy(*state, "y.npy", 1, KEYS("|u1", "(6,)"), c->y, 6);
        check_told(*state, "nhwc", r, c->want);
        r.purpose = DATASET_VALIDATION; /* which is told of once */
        check_told(*state, "nhwc", r, "");
    }
    write_npy(*state, "y.npy", 1, KEYS("<f4", "(6,)"), (float[6]){0, 1, 250}, 24);
    check_told(*state, "nhwc", (struct dataset_request){.targets_are_numbers = 1}, "");
}

static const struct doubted_layout {
    const char *layout, *keys;
    const char *want; /* behind "@/x.npy: its shape is " */
} doubted_layouts[] = {
    {"nhwc", KEYS("|u1", "(1, 3, 8, 8)"),
     "[1,3,8,8], and data.layout is nhwc: pictures are taken to have 8 channels; if they have 3, "
     "set data.layout: nchw"},
    {"nhwc", KEYS("|u1", "(3, 1, 8, 8)"),
     "[3,1,8,8], and data.layout is nhwc: pictures are taken to have 8 channels; if they have 1, "
     "set data.layout: nchw"},
    {"nhwc", KEYS("|u1", "(6, 4, 1, 8)"),
     "[6,4,1,8], and data.layout is nhwc: pictures are taken to have 8 channels; if they have 4, "
     "set data.layout: nchw"},
    {"nhwc", KEYS("|u1", "(1, 8, 8, 3)"), NULL},
    {"nhwc", KEYS("|u1", "(3, 4, 4, 4)"), NULL},
    {"nhwc", KEYS("|u1", "(6, 2, 2, 8)"), NULL},
    {"nhwc", KEYS("|u1", "(8, 3, 8)"), NULL},
    {"nchw", KEYS("|u1", "(1, 3, 8, 8)"), NULL},
    {"nchw", KEYS("|u1", "(1, 8, 8, 3)"),
     "[1,8,8,3], and data.layout is nchw: pictures are taken to have 8 channels; if they have 3, "
     "set data.layout: nhwc"},
};

static void strange_layouts_are_told(void **state)
{
    static const uint8_t zeroes[192];

    for (size_t i = 0; i < ARRAY_LEN(doubted_layouts); i++) {
        const struct doubted_layout *c = &doubted_layouts[i];
        const int n = atoi(strchr(c->keys, '(') + 1);
        char want[256] = "", y[128];

        snprintf(y, sizeof y, "'descr': '|u1', 'fortran_order': False, 'shape': (%d,), ", n);
        write_npy(*state, "x.npy", 1, c->keys, zeroes, 192);
        write_npy(*state, "y.npy", 1, y, zeroes, (size_t)n);
        if (c->want)
            snprintf(want, sizeof want, "@/x.npy: its shape is %s", c->want);
        check_told(*state, c->layout, purpose(DATASET_TRAIN), want);
    }
}

/* Pictures [3,2,2,3] of each size of elements: [N,C,H,W] with data.layout nchw are the same data
 * set as their transposition to [N,H,W,C], normalised, too. */
static void both_layouts_are_the_same_set(void **state)
{
    enum { C = 3, H = 2, W = 4, ROW = C * H * W, N = 3 };
    static const struct {
        const char *nchw, *nhwc;
        size_t size;
    } types[] = {
        {KEYS("|u1", "(3, 3, 2, 4)"), KEYS("|u1", "(3, 2, 4, 3)"), 1},
        {KEYS("<i2", "(3, 3, 2, 4)"), KEYS("<i2", "(3, 2, 4, 3)"), 2},
        {KEYS("<f4", "(3, 3, 2, 4)"), KEYS("<f4", "(3, 2, 4, 3)"), 4},
        {KEYS("<f8", "(3, 3, 2, 4)"), KEYS("<f8", "(3, 2, 4, 3)"), 8},
    };
    const struct dataset_request r = purpose(DATASET_TRAIN);

    for (size_t t = 0; t < 2 * ARRAY_LEN(types); t++) {
        const size_t size = types[t / 2].size;
        const char *const mean = t % 2 ? "1,2,3" : "[]";
        uint8_t turned[N * ROW * 8], plain[N * ROW * 8];
        float x[2][N * ROW];
        struct hash128 print[2];
        struct err err = {0};

        for (int i = 0; i < N * ROW; i++) {
            const int n = i / ROW, c = i / (H * W) % C, p = i % (H * W);
            const float f = (float)(i + 1);
            const double d = i + 1;
            const int16_t whole = (int16_t)(i + 1);
            const void *from = size == 8 ? (const void *)&d : size == 4 ? (const void *)&f : &whole;

            memcpy(turned + size * (size_t)i, from, size);
            memcpy(plain + size * (size_t)(n * ROW + p * C + c), from, size);
        }
        write_npy(*state, "y.npy", 1, KEYS("|u1", "(3,)"), "\0\1\1", 3);
        for (int k = 0; k < 2; k++) {
            const struct setting settings[] = {{"data.path", *state},
                                               {"data.layout", k ? "nchw" : "nhwc"},
                                               {"data.normalize.mean", mean},
                                               {NULL}};
            struct dataset *ds = NULL;

            write_npy(*state, "x.npy", 1, k ? types[t / 2].nchw : types[t / 2].nhwc,
                      k ? turned : plain, N * ROW * size);
            if (open_set(&ds, &format_npy, settings, &r, &err) != 0)
                fail_msg("%s", err.msg);
            assert_true(shape_equal(&ds->spec.field[0].shape, &SHAPE(H, W, C)));
            assert_int_equal(
                dataset_gather(ds, (int64_t[]){2, 0, 1}, N, (void *[]){x[k], NULL}, &err), 0);
            assert_int_equal(dataset_fingerprint(ds, &print[k], &err), 0);
            dataset_close(ds);
        }
        assert_memory_equal(x[0], x[1], sizeof x[0]);
        assert_memory_equal(&print[0], &print[1], sizeof print[0]);
        assert_true(x[1][1] == 2 * ROW + H * W + 1 - (t % 2 ? 2 : 0)); /* channel 1 of pixel 0 */
    }
}

static void nchw_is_of_pictures(void **state)
{
    const struct setting settings[] = {{"data.path", *state}, {"data.layout", "nchw"}, {NULL}};
    const struct dataset_request r = purpose(DATASET_TRAIN);
    struct dataset *ds = NULL;
    struct err err = {0};
    char want[512];

    write_npy(*state, "x.npy", 1, KEYS("|u1", "(3, 1, 2)"), "abcdef", 6);
    write_npy(*state, "y.npy", 1, KEYS("|u1", "(3,)"), "\0\1\1", 3);
    assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), ERR_CONFIG);
    assert_string_equal(err.msg, fill_in(want, sizeof want,
                                         "npy: @/x.npy: its shape is [3,1,2], but data.layout is "
                                         "nchw, want [N,C,H,W]; leave data.layout out",
                                         *state));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(every_type_is_read),
        IN_FOLDER(targets_may_have_a_shape),
        IN_FOLDER(bad_files_are_refused),
        IN_FOLDER(huge_classes_are_refused),
        IN_FOLDER(validation_has_the_classes_of_training),
        IN_FOLDER(strange_bytes_are_refused),
        IN_FOLDER(targets_of_bce_are_from_0_to_1),
        IN_FOLDER(strange_labels_are_told),
        IN_FOLDER(strange_layouts_are_told),
        IN_FOLDER(nchw_is_of_pictures),
        IN_FOLDER(both_layouts_are_the_same_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
