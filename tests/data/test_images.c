/* images: class folders and tar shards are listed in order and read; what is drawn depends on seed,
 * epoch and sample alone; broken folders, shards and files are named. */
#include "../test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "data/image.h"
#include "data/tar.h"
#include "idx_file.h"
#include "open_set.h"
#include "picture_file.h"

enum { SIZE = 6, IMAGE = SIZE * SIZE * 3 };

/* ---- making ---- */

static void make_parent(const char *folder, const char *name)
{
    char path[512];

    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)(slash - name), name);
        (void)mkdir(path, 0777);
    }
}

static void put(const char *folder, const char *name, const struct buf *b)
{
    make_parent(folder, name);
    write_file(folder, name, b);
}

/* A PNG of one colour, larger than the samples. */
static void put_colour(const char *folder, const char *name, uint8_t colour)
{
    uint8_t rgb[9 * 8 * 3];
    struct buf b = {0};

    memset(rgb, colour, sizeof rgb);
    put_rgb_png(&b, rgb, 9, 8);
    put(folder, name, &b);
    buf_fini(&b);
}

static void put_text(const char *folder, const char *name, const char *text)
{
    struct buf b = {0};

    buf_append(&b, text, strlen(text));
    put(folder, name, &b);
    buf_fini(&b);
}

static int try_open(struct dataset **out, const char *folder, enum dataset_purpose purpose,
                    const struct setting *extra, struct err *err)
{
    struct setting all[8];
    int n = 0;

    for (; extra && extra->key; extra++) /* of a key that comes twice the first value counts */
        all[n++] = *extra;
    all[n++] = (struct setting){"data.path", folder};
    all[n++] = (struct setting){"data.size", "6"};
    all[n] = (struct setting){NULL};
    return open_set(out, &format_images, all, &(struct dataset_request){.purpose = purpose}, err);
}

static struct dataset *open_ok(const char *folder, enum dataset_purpose purpose,
                               const struct setting *extra)
{
    struct dataset *ds = NULL;
    struct err err = {0};

    if (try_open(&ds, folder, purpose, extra, &err) != 0)
        fail_msg("%s", err.msg);
    return ds;
}

static int32_t get(const struct dataset *ds, const struct dataset_draw *draw, int64_t i,
                   float x[IMAGE])
{
    int32_t label;
    struct err err = {0};

    if (dataset_gather_drawn(ds, draw, &i, 1, (void *[]){x, &label}, &err) != 0)
        fail_msg("%s", err.msg);
    return label;
}

/* Sample i is of one colour and has this label. */
static void check_colour(const struct dataset *ds, int64_t i, int colour, int label)
{
    float x[IMAGE];

    assert_int_equal(get(ds, NULL, i, x), label);
    for (int k = 0; k < IMAGE; k++)
        assert_true(x[k] == (float)colour / 255);
}

/* ---- folders ---- */

static void folders_are_classes(void **state)
{
    struct dataset *ds;

    put_colour(*state, "train/b/2.PNG", 4);
    put_colour(*state, "train/b/10.jpg", 3); /* by content, not by name */
    put_colour(*state, "train/a b/x.png", 1);
    put_colour(*state, "train/a b/y.jpeg", 2);
    put_colour(*state, "train/c/z.png", 5);
    put_text(*state, "train/b/notes.txt", "not a picture");
    put_text(*state, "train/list.csv", "not a class");
    put_colour(*state, "train/.hidden/x.png", 9);
    put_colour(*state, "val/c/1.png", 7);
    put_colour(*state, "val/a b/1.png", 6);
    ds = open_ok(*state, DATASET_TRAIN, NULL);
    assert_int_equal(ds->n_samples, 5);
    assert_int_equal(ds->spec.field[1].n_classes, 3);
    assert_true(shape_equal(&ds->spec.field[0].shape, &SHAPE(SIZE, SIZE, 3)));
    for (int i = 0; i < 5; i++)
        check_colour(ds, i, 1 + i, (int[]){0, 0, 1, 1, 2}[i]);
    dataset_close(ds);
    ds = open_ok(*state, DATASET_VALIDATION, NULL);
    assert_int_equal(ds->n_samples, 2);
    assert_int_equal(ds->spec.field[1].n_classes, 3);
    check_colour(ds, 0, 6, 0);
    check_colour(ds, 1, 7, 2); /* the number that the class has in training */
    dataset_close(ds);
    assert_int_equal(try_open(&ds, *state, DATASET_VALIDATION,
                              (struct setting[]){{"data.validation", "none"}, {NULL}},
                              &(struct err){0}),
                     DATASET_NONE);
}

/* Images of 3 bytes: labels need more room than that. */
static void smallest_images(void **state)
{
    float x[3][3];
    int32_t labels[3];
    struct err err = {0};
    struct dataset *ds;

    put_colour(*state, "train/a/1.png", 51);
    put_colour(*state, "train/b/1.png", 102);
    put_colour(*state, "train/c/1.png", 153);
    ds = open_ok(*state, DATASET_TRAIN, (struct setting[]){{"data.size", "1"}, {NULL}});
    assert_int_equal(dataset_gather(ds, (int64_t[]){2, 0, 1}, 3, (void *[]){x, labels}, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(labels[i], (i + 2) % 3);
        assert_true(x[i][2] == (float)(51 * (labels[i] + 1)) / 255);
    }
    dataset_close(ds);
}

/* ---- shards ---- */

static void put_sample(struct buf *b, const char *key, uint8_t colour, const char *label)
{
    char name[300];
    uint8_t rgb[9 * 8 * 3];
    struct buf png = {0};

    memset(rgb, colour, sizeof rgb);
    put_rgb_png(&png, rgb, 9, 8);
    snprintf(name, sizeof name, "%s.cls", key);
    put_member(b, '0', name, label, strlen(label));
    snprintf(name, sizeof name, "%s.json", key);
    put_member(b, '0', name, "{}", 2);
    snprintf(name, sizeof name, "%s.png", key);
    put_member(b, '0', name, png.data, png.len);
    buf_fini(&png);
}

static void shards_hold_samples(void **state)
{
    static const char pax[] = "33 path=folder.with.dots/pax.cls\n";
    char text[1200];
    struct buf b = {0};
    struct dataset *ds;

    put_member(&b, '5', "folder/", NULL, 0);
    put_sample(&b, "folder/1", 11, "2");
    put_sample(&b, "folder/2", 12, "0\n");
    end_tar(&b);
    put(*state, "train/s-1.tar", &b);
    buf_clear(&b);
    snprintf(text, sizeof text, "folder/%0200d.cls", 7); /* too long for a header */
    put_member(&b, 'L', "././@LongLink", text, strlen(text) + 1);
    put_member(&b, '0', "folder/0000", "1", 1);
    snprintf(text, sizeof text, "folder/%0200d.png", 7);
    put_member(&b, 'L', "././@LongLink", text, strlen(text) + 1);
    {
        struct buf png = {0};
        uint8_t rgb[9 * 8 * 3];

        memset(rgb, 13, sizeof rgb);
        put_rgb_png(&png, rgb, 9, 8);
        put_member(&b, '0', "folder/0000", png.data, png.len);
        put_member(&b, 'x', "PaxHeaders/pax", pax, sizeof pax - 1);
        put_member(&b, '0', "short", "3", 1);
        put_member(&b, '0', "folder.with.dots/pax.png", png.data, png.len);
        buf_fini(&png);
    }
    end_tar(&b);
    put(*state, "train/s-0.tar", &b);
    put(*state, "val/s.tar", &b);
    ds = open_ok(*state, DATASET_TRAIN, NULL);
    assert_int_equal(ds->n_samples, 4);
    assert_int_equal(ds->spec.field[1].n_classes, 4);
    check_colour(ds, 0, 13, 1);
    check_colour(ds, 1, 13, 3);
    check_colour(ds, 2, 11, 2);
    check_colour(ds, 3, 12, 0);
    dataset_close(ds);
    ds = open_ok(*state, DATASET_VALIDATION, NULL);
    assert_int_equal(ds->n_samples, 2);
    assert_int_equal(ds->spec.field[1].n_classes, 4);
    dataset_close(ds);
    buf_fini(&b);
}

/* A sample's picture is KEY.png; KEY.seg.png is another one. */
static void other_pictures_are_left_out(void **state)
{
    uint8_t rgb[9 * 8 * 3] = {0};
    struct buf b = {0}, black = {0};
    struct dataset *ds;

    put_rgb_png(&black, rgb, 9, 8);
    put_sample(&b, "folder.x/8", 14, "1");
    put_member(&b, '0', "folder.x/8.seg.png", black.data, black.len);
    end_tar(&b);
    put(*state, "train/s.tar", &b);
    ds = open_ok(*state, DATASET_TRAIN, NULL);
    assert_int_equal(ds->n_samples, 1);
    check_colour(ds, 0, 14, 1);
    dataset_close(ds);
    buf_fini(&black);
    buf_fini(&b);
}

/* A record of a pax header: its length counts its own five digits. */
static void put_record(struct buf *b, const char *key, const void *value, size_t n)
{
    char text[64];
    const int len = snprintf(text, sizeof text, "%05zu %s=", 5 + 1 + strlen(key) + 1 + n + 1, key);

    buf_append(b, text, (size_t)len);
    buf_append(b, value, n);
    buf_append(b, "\n", 1);
}

/* The records that follow a long value, or one with NUL in it, count as well. */
static void long_pax_headers_are_read(void **state)
{
    static const char other[5000] = "5 a=\n";
    struct buf b = {0}, pax = {0};
    struct dataset *ds;

    put_record(&pax, "SCHILY.xattr.x", other, sizeof other);
    put_record(&pax, "size", "1", 1);
    put_record(&pax, "path", "8.cls", 5);
    put_sample(&b, "7", 15, "0");
    put_sample(&b, "8", 16, "1");
    put_member(&b, 'x', "PaxHeaders/8", pax.data, pax.len);
    put_member(&b, '0', "short", "3\0", 2);
    end_tar(&b);
    put(*state, "train/s.tar", &b);
    ds = open_ok(*state, DATASET_TRAIN, NULL);
    assert_int_equal(ds->n_samples, 2);
    check_colour(ds, 1, 16, 3);
    dataset_close(ds);
    buf_fini(&pax);
    buf_fini(&b);
}

/* A header of one type, with n bytes, most of them 'n'. */
static const struct {
    int type;
    size_t n;
    const char *begin, *want;
} bad_extras[] = {
    {'L', TAR_NAME_BYTES, "", "a member's name is too long"},
    {'x', 1100, "1100 path=", "a member's name is too long"},
    {'x', (1 << 20) + 1, "1048577 path=", "its extended header is too long"},
    {'L', (1 << 20) + 1, "", "its extended header is too long"},
    {'x', 100, "101 path=", "its extended header is broken"},
    {'x', 100, "99 path=", "its extended header is broken"},
    {'x', 100, "-100 path=", "its extended header is broken"},
    {'x', 100, "2 path=", "its extended header is broken"},
    {'x', 100, "path=", "its extended header is broken"},
};

static void bad_extra_headers_are_named(void **state)
{
    char want[1024], text[512];

    for (size_t i = 0; i < ARRAY_LEN(bad_extras); i++) {
        const size_t n = bad_extras[i].n;
        char *content = malloc(n);
        struct buf b = {0};
        struct dataset *ds = NULL;
        struct err err = {0};

        memset(content, 'n', n);
        memcpy(content, bad_extras[i].begin, strlen(bad_extras[i].begin));
        content[n - 1] = bad_extras[i].type == 'x' ? '\n' : 'n';
        put_sample(&b, "1", 11, "2");
        put_member(&b, bad_extras[i].type, "extra", content, n);
        put_member(&b, '0', "short", "1", 1);
        end_tar(&b);
        put(*state, "train/s.tar", &b);
        assert_int_equal(try_open(&ds, *state, DATASET_TRAIN, NULL, &err), ERR_CORRUPT);
        snprintf(text, sizeof text,
                 "images: folder @/train: @/train/s.tar: offset 3072: %s; was it copied whole?",
                 bad_extras[i].want);
        assert_string_equal(err.msg, fill_in(want, sizeof want, text, *state));
        buf_fini(&b);
        free(content);
    }
}

/* The faults of a shard of two samples. */
enum wrong {
    CUT_CONTENT,
    CUT_END,
    CUT_HEADER,
    BAD_SUM,
    NO_CLASS,
    NO_PICTURE,
    BAD_CLASS,
    NO_SAMPLE
};

static const struct {
    enum wrong wrong;
    const char *want; /* @ is the folder */
} bad_shards[] = {
    {CUT_CONTENT,
     "images: folder @/train: @/train/s.tar: offset 5120: the archive ends within this "
     "member; was it copied whole?"},
    {CUT_END, "images: folder @/train: @/train/s.tar: offset 6144: the archive ends without an "
              "empty header; was it copied whole?"},
    {CUT_HEADER, "images: folder @/train: @/train/s.tar: offset 5120: the archive ends without an "
                 "empty header; was it copied whole?"},
    {BAD_SUM, "images: folder @/train: @/train/s.tar: offset 3072: there is no header of a tar "
              "archive; was it copied whole?"},
    {NO_CLASS, "images: folder @/train: @/train/s.tar: sample more has no .cls beside it"},
    {NO_PICTURE,
     "images: folder @/train: @/train/s.tar: sample more has no .jpg, .jpeg or .png beside it"},
    {BAD_CLASS, "images: folder @/train: @/train/s.tar: offset 6656: more.cls is \"cat\", want a "
                "class from 0 to 16777215"},
    {NO_SAMPLE,
     "images: folder @/train: @/train/s.tar has no sample; want members KEY.jpg and KEY.cls"},
};

static void break_shard(struct buf *b, enum wrong wrong)
{
    if (wrong == CUT_CONTENT)
        b->len = 6144 - 512;
    if (wrong == CUT_HEADER)
        b->len = 5120 + 300;
    if (wrong == BAD_SUM)
        b->data[3072 + 20] ^= 1;
    if (wrong == NO_CLASS)
        put_member(b, '0', "more.jpg", "x", 1);
    if (wrong == NO_PICTURE)
        put_member(b, '0', "more.cls", "1", 1);
    if (wrong == BAD_CLASS)
        put_member(b, '0', "more.cls", "cat", 3);
    if (wrong == NO_SAMPLE)
        b->len = 0;
    if (wrong >= BAD_SUM)
        end_tar(b);
}

static void bad_shards_are_named(void **state)
{
    char want[1024];

    for (size_t i = 0; i < ARRAY_LEN(bad_shards); i++) {
        struct buf b = {0};
        struct dataset *ds = NULL;
        struct err err = {0};

        put_sample(&b, "1", 11, "2");
        put_sample(&b, "2", 12, "0");
        assert_int_equal(b.len, 6144);
        break_shard(&b, bad_shards[i].wrong);
        put(*state, "train/s.tar", &b);
        assert_int_equal(try_open(&ds, *state, DATASET_TRAIN, NULL, &err), ERR_CORRUPT);
        assert_string_equal(err.msg, fill_in(want, sizeof want, bad_shards[i].want, *state));
        buf_fini(&b);
    }
}

/* ---- folders that are wrong ---- */

static void expect_refused(const char *folder, enum dataset_purpose purpose, int code,
                           const char *text)
{
    char want[1024];
    struct dataset *ds = NULL;
    struct err err = {0};

    assert_int_equal(try_open(&ds, folder, purpose, NULL, &err), code);
    assert_string_equal(err.msg, fill_in(want, sizeof want, text, folder));
}

static void bad_folders_are_named(void **state)
{
    char path[512];

    expect_refused(*state, DATASET_TRAIN, ERR_IO,
                   "images: folder @/train: it cannot be opened (set data.path, data.train or "
                   "data.validation; data.validation none is for no validation): No such file or "
                   "directory");
    put_text(*state, "train/readme", "");
    expect_refused(*state, DATASET_TRAIN, ERR_CORRUPT,
                   "images: folder @/train: it has neither class folders, such as @/train/cat, nor "
                   "shards that end in .tar; set data.path, data.train or data.validation");
    put_colour(*state, "train/b/1.png", 1);
    put_text(*state, "train/a/1.gif", "");
    expect_refused(*state, DATASET_TRAIN, ERR_CORRUPT,
                   "images: folder @/train: class folder @/train/a has no file that ends in .jpg, "
                   ".jpeg or .png; put some there, or remove it");
    put_colour(*state, "train/a/1.png", 1);
    put_colour(*state, "val/bird/1.png", 1);
    expect_refused(*state, DATASET_VALIDATION, ERR_CORRUPT,
                   "images: folder @/val: class folder bird is not among the training set's in "
                   "@/train; rename or remove it");
    put_text(*state, "train/s.tar", "");
    expect_refused(*state, DATASET_TRAIN, ERR_CORRUPT,
                   "images: folder @/train: it has 1 shards that end in .tar, and 2 class folders; "
                   "want one kind");
    snprintf(path, sizeof path, "%s/train/s.tar", (char *)*state);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/val/bird/1.png", (char *)*state);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/val/bird", (char *)*state);
    assert_int_equal(rmdir(path), 0);
    put_text(*state, "val/s.tar", "");
    expect_refused(*state, DATASET_VALIDATION, ERR_CORRUPT,
                   "images: folder @/val: it has shards, the training set has class folders; want "
                   "the same kind");
}

/* Opening a pipe would wait for its writer. */
static void pipes_are_no_shards(void **state)
{
    char path[512];

    make_parent(*state, "train/s.tar");
    snprintf(path, sizeof path, "%s/train/s.tar", (char *)*state);
    assert_int_equal(mkfifo(path, 0666), 0);
    expect_refused(*state, DATASET_TRAIN, ERR_IO,
                   "images: folder @/train: file @/train/s.tar is not a regular file");
}

static void options_agree(void **state)
{
    struct dataset *ds = NULL;
    struct err err = {0};

    assert_int_equal(try_open(&ds, *state, DATASET_TRAIN,
                              (struct setting[]){{"data.resize", "5"}, {NULL}}, &err),
                     ERR_CONFIG);
    assert_string_equal(err.msg, "data.resize is 5, want at least data.size, 6");
}

/* ---- files that are wrong ---- */

static void put_broken(const char *folder)
{
    uint8_t rgb[64 * 64 * 3];
    struct buf b = {0};

    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * i % 251);
    put_jpeg(&b, rgb, 64, 64, 3, 0, 0);
    b.len /= 2;
    put(folder, "train/b/half.jpg", &b);
    buf_fini(&b);
}

static void broken_files_end_the_job(void **state)
{
    char want[1024];
    struct dataset *ds;
    struct err err = {0};
    float x[2 * IMAGE];
    int32_t labels[2];

    put_colour(*state, "train/a/1.png", 1);
    put_broken(*state);
    ds = open_ok(*state, DATASET_TRAIN, NULL);
    assert_int_equal(dataset_gather(ds, (int64_t[]){0, 1}, 2, (void *[]){x, labels}, &err),
                     ERR_CORRUPT);
    assert_string_equal(
        err.msg, fill_in(want, sizeof want,
                         "@/train/b/half.jpg: as a JPEG file: Premature end of JPEG file; mend or "
                         "remove it, or set data.on_corrupt: skip, which leaves it out",
                         *state));
    snprintf(want, sizeof want, "%s/train/a/1.png", (char *)*state);
    assert_int_equal(unlink(want), 0);
    assert_int_equal(dataset_gather(ds, (int64_t[]){0}, 1, (void *[]){x, labels}, &err), ERR_IO);
    assert_string_equal(err.msg,
                        fill_in(want, sizeof want,
                                "@/train/a/1.png: opening it: No such file or directory", *state));
    dataset_close(ds);
}

/* Such a sample is black, and has no class, wherever it stands in the batch. */
static void broken_files_are_left_out(void **state)
{
    static const struct setting skip[] = {{"data.on_corrupt", "skip"}, {NULL}};
    static const float value[3] = {0.2F, 0, 0.4F};
    struct dataset *ds;
    struct err err = {0};
    float x[3 * IMAGE];
    int32_t labels[3];

    put_colour(*state, "train/a/1.png", 51);
    put_broken(*state);
    put_colour(*state, "train/c/1.png", 102);
    ds = open_ok(*state, DATASET_TRAIN, skip);
    for (int first = 0; first < 3; first++) {
        const int64_t index[3] = {first, (first + 1) % 3, (first + 2) % 3};

        memset(x, 1, sizeof x);
        assert_int_equal(dataset_gather(ds, index, 3, (void *[]){x, labels}, &err), 0);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(labels[k], index[k] == 1 ? SAMPLE_IGNORED : index[k]);
            for (int p = 0; p < IMAGE; p++)
                assert_true(x[k * IMAGE + p] == value[index[k]]);
        }
    }
    dataset_close(ds);
}

/* ---- what is taken of a picture ---- */

/* A picture whose red tells the column, and green the row. */
static void put_map(const char *folder, const char *name, int width, int height)
{
    uint8_t *rgb = malloc((size_t)(width * height * 3));
    struct buf b = {0};

    for (int i = 0; i < width * height; i++) {
        rgb[3 * i] = (uint8_t)(i % width);
        rgb[3 * i + 1] = (uint8_t)(i / width);
        rgb[3 * i + 2] = 200;
    }
    put_rgb_png(&b, rgb, width, height);
    put(folder, name, &b);
    buf_fini(&b);
    free(rgb);
}

/* The value at the centre of output pixel k is the coordinate there, minus half a pixel. */
static double place_of(const float x[IMAGE], int k, int channel)
{
    return (double)x[(k * SIZE + k) * 3 + channel] * 255 + 0.5;
}

static void the_middle_is_taken(void **state)
{
    float x[IMAGE];
    struct dataset *ds;

    put_map(*state, "train/a/1.png", 120, 60);
    ds = open_ok(*state, DATASET_TRAIN, NULL); /* 60 by 60 of it, 10 pixels each */
    get(ds, NULL, 0, x);
    assert_true(place_of(x, 1, 0) > 44 && place_of(x, 1, 0) < 46);
    assert_true(place_of(x, 1, 1) > 14 && place_of(x, 1, 1) < 16);
    dataset_close(ds);
    ds = open_ok(*state, DATASET_TRAIN, (struct setting[]){{"data.resize", "12"}, {NULL}});
    get(ds, NULL, 0, x); /* 30 by 30, 5 pixels each */
    assert_true(place_of(x, 0, 0) > 46.5 && place_of(x, 0, 0) < 48.5);
    assert_true(place_of(x, 0, 1) > 16.5 && place_of(x, 0, 1) < 18.5);
    dataset_close(ds);
}

/* Draws are within the picture, of the areas and forms that are allowed, and depend on seed, epoch
 * and sample. */
static void parts_are_drawn(void **state)
{
    static const struct setting cuts[] = {{"data.augment.random_resized_crop", "true"}, {NULL}};
    enum { W = 200, H = 150, EPOCHS = 300 };
    double least = 1, most = 0, slimmest = 9, widest = 0;
    float x[IMAGE], y[IMAGE];
    struct dataset *ds;
    int n_equal = 0;

    put_map(*state, "train/a/1.png", W, H);
    put_map(*state, "train/a/2.png", W, H);
    put_map(*state, "val/a/1.png", W, H);
    ds = open_ok(*state, DATASET_TRAIN, cuts);
    assert_true(dataset_draws(ds));
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        const struct dataset_draw draw = {7, epoch};
        double w, h;

        get(ds, &draw, 0, x);
        w = (place_of(x, 4, 0) - place_of(x, 1, 0)) * SIZE / 3;
        h = (place_of(x, 4, 1) - place_of(x, 1, 1)) * SIZE / 3;
        assert_true(place_of(x, 2, 0) > w * 0.4 - 2 && place_of(x, 2, 0) < W - w * 0.6 + 4);
        assert_true(place_of(x, 2, 1) > h * 0.4 - 2 && place_of(x, 2, 1) < H - h * 0.6 + 4);
        least = w * h / (W * H) < least ? w * h / (W * H) : least;
        most = w * h / (W * H) > most ? w * h / (W * H) : most;
        slimmest = w / h < slimmest ? w / h : slimmest;
        widest = w / h > widest ? w / h : widest;
        get(ds, &draw, 0, y);
        assert_memory_equal(x, y, sizeof x);
        get(ds, &draw, 1, y);
        n_equal += memcmp(x, y, sizeof x) == 0;
        get(ds, &(struct dataset_draw){8, epoch}, 0, y);
        n_equal += memcmp(x, y, sizeof x) == 0;
        get(ds, &(struct dataset_draw){7, epoch + 1}, 0, y);
        n_equal += memcmp(x, y, sizeof x) == 0;
    }
    assert_true(n_equal < 10);
    assert_true(least > 0.05 && least < 0.14 && most > 0.8 && most < 1.1);
    assert_true(slimmest > 0.65 && slimmest < 0.82 && widest > 1.22 && widest < 1.5);
    dataset_close(ds);
    ds = open_ok(*state, DATASET_VALIDATION, cuts);
    assert_false(dataset_draws(ds));
    dataset_close(ds);
}

/* ---- fingerprint ---- */

static struct hash128 print_of(const char *folder)
{
    struct dataset *ds = open_ok(folder, DATASET_TRAIN, NULL);
    struct hash128 h;
    struct err err = {0};

    assert_int_equal(dataset_fingerprint(ds, &h, &err), 0);
    dataset_close(ds);
    return h;
}

static void the_fingerprint_is_of_names_and_files(void **state)
{
    char *other = make_folder();
    struct hash128 first;

    put_colour(*state, "train/a/1.png", 1);
    put_colour(*state, "train/a/2.png", 2);
    put_colour(other, "train/a/2.png", 2); /* another order of making */
    put_colour(other, "train/a/1.png", 1);
    first = print_of(*state);
    assert_true(hash_equal(first, print_of(other)));
    put_colour(other, "train/a/2.png", 3);
    assert_false(hash_equal(first, print_of(other)));
    put_colour(other, "train/a/2.png", 2);
    assert_true(hash_equal(first, print_of(other)));
    put_colour(other, "train/a/3.png", 3);
    assert_false(hash_equal(first, print_of(other)));
    remove_folder(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(folders_are_classes),
        IN_FOLDER(smallest_images),
        IN_FOLDER(shards_hold_samples),
        IN_FOLDER(other_pictures_are_left_out),
        IN_FOLDER(long_pax_headers_are_read),
        IN_FOLDER(bad_extra_headers_are_named),
        IN_FOLDER(bad_shards_are_named),
        IN_FOLDER(bad_folders_are_named),
        IN_FOLDER(pipes_are_no_shards),
        IN_FOLDER(options_agree),
        IN_FOLDER(broken_files_end_the_job),
        IN_FOLDER(broken_files_are_left_out),
        IN_FOLDER(the_middle_is_taken),
        IN_FOLDER(parts_are_drawn),
        IN_FOLDER(the_fingerprint_is_of_names_and_files),
    };

    log_init("test_images", LOG_TEXT, LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
