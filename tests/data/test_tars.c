/* tars: samples are read from tar archives, with the extra headers that tar programs write;
 * broken archives are named.  Kinds of members and of names are in test_tar_kinds.c. */
#include <unistd.h>

#include "data/tar.h"
#include "image_folder.h"

static void put_sample(struct buf *b, const char *key, int colour, const char *label)
{
    char name[300];

    snprintf(name, sizeof name, "%s.cls", key);
    put_member(b, '0', name, label, strlen(label));
    snprintf(name, sizeof name, "%s.json", key);
    put_member(b, '0', name, "{}", 2);
    snprintf(name, sizeof name, "%s.png", key);
    put_picture(b, name, colour);
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

static void tell(void *arg, const char *text) { buf_printf(arg, "%s", text); }

static void classes_without_samples_are_told(void **state)
{
    const struct setting settings[] = {{"data.path", *state}, {"data.size", "8"}, {NULL}};
    struct buf b = {0}, told = {0};
    struct dataset_request r = {.purpose = DATASET_TRAIN, .warn = tell, .warn_arg = &told};
    struct dataset *ds;
    struct err err = {0};
    char want[512];

    put_sample(&b, "1", 11, "0");
    put_sample(&b, "2", 12, "255");
    end_tar(&b);
    put(*state, "train/s.tar", &b);
    assert_int_equal(open_set(&ds, &format_images, settings, &r, &err), 0);
    dataset_close(ds);
    assert_string_equal(buf_cstr(&told),
                        fill_in(want, sizeof want,
                                "folder @/train: 254 of 256 classes have no sample, such as 254; "
                                "if the label 255 marks places without a class, set "
                                "train.ignore_index: 255",
                                *state));
    buf_fini(&told);
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

static void endings_may_be_in_capitals(void **state)
{
    uint8_t rgb[9 * 8 * 3];
    struct buf b = {0}, png = {0};
    struct dataset *ds;

    memset(rgb, 18, sizeof rgb);
    put_rgb_png(&png, rgb, 9, 8);
    put_member(&b, '0', "K.PNG", png.data, png.len);
    put_member(&b, '0', "K.CLS", "1", 1);
    end_tar(&b);
    put(*state, "train/S.TAR", &b);
    ds = open_ok(*state, DATASET_TRAIN, NULL);
    assert_int_equal(ds->n_samples, 1);
    check_colour(ds, 0, 18, 1);
    dataset_close(ds);
    buf_fini(&png);
    buf_fini(&b);
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
    put_picture(&b, "8.png", 16);
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

/* The faults of a tar file of two samples. */
enum wrong {
    CUT_CONTENT,
    CUT_END,
    CUT_HEADER,
    BAD_SUM,
    NO_CLASS,
    NO_PICTURE,
    BAD_CLASS,
    NO_SAMPLE,
    PACKED,
    TWO_ARCHIVES
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
    {NO_CLASS, "images: folder @/train: @/train/s.tar: sample more has no .cls beside it; "
               "the members of a sample follow each other, as tar --sort=name writes them"},
    {NO_PICTURE,
     "images: folder @/train: @/train/s.tar: sample more has no .jpg, .jpeg or .png beside it; the "
     "members of a sample follow each other, as tar --sort=name writes them"},
    {BAD_CLASS, "images: folder @/train: @/train/s.tar: offset 6656: more.cls is \"cat\", want a "
                "class from 0 to 16777215"},
    {NO_SAMPLE,
     "images: folder @/train: @/train/s.tar has no sample; want members KEY.jpg and KEY.cls"},
    {PACKED, "images: folder @/train: @/train/s.tar is compressed by gzip, and shards are read in "
             "place; unpack it"},
    {TWO_ARCHIVES, "images: folder @/train: @/train/s.tar: offset 7168: a second archive follows "
                   "the end of the first; make a shard of each"},
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
    if (wrong == TWO_ARCHIVES) {
        end_tar(b);
        put_sample(b, "3", 13, "1");
    }
    if (wrong == PACKED)
        memcpy(b->data, "\x1f\x8b", 2);
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

/* A compressed tar file is not left out silently.  One beside class folders is what they came from,
 * and hidden files are no part of the set. */
static void compressed_shards_are_refused(void **state)
{
    static const char *const names[] = {"s-1.tar.gz", "s-1.TGZ", "s-1.tar.zst", "s-1.tar.xz",
                                        "s-1.tar.bz2"};
    char inside[64], path[512], text[512], want[1024];
    struct buf b = {0};

    put_sample(&b, "1", 11, "2");
    end_tar(&b);
    for (size_t i = 0; i < 2 * ARRAY_LEN(names); i++) { /* alone, then beside another */
        const char *name = names[i % ARRAY_LEN(names)];
        struct dataset *ds = NULL;
        struct err err = {0};

        if (i == ARRAY_LEN(names))
            put(*state, "train/s-0.tar", &b);
        snprintf(inside, sizeof inside, "train/%s", name);
        put(*state, inside, &b);
        assert_int_equal(try_open(&ds, *state, DATASET_TRAIN, NULL, &err), ERR_CORRUPT);
        snprintf(text, sizeof text,
                 "images: folder @/train: it has %s, which is compressed, and shards are read in "
                 "place; unpack it to a file that ends in .tar, or remove it",
                 name);
        assert_string_equal(err.msg, fill_in(want, sizeof want, text, *state));
        snprintf(path, sizeof path, "%s/%s", (char *)*state, inside);
        assert_int_equal(unlink(path), 0);
    }
    put(*state, "train/.s-1.tar.gz", &b);
    dataset_close(open_ok(*state, DATASET_TRAIN, NULL));
    snprintf(path, sizeof path, "%s/train/s-0.tar", (char *)*state);
    assert_int_equal(unlink(path), 0);
    put(*state, "train/s-1.tar.gz", &b);
    put_colour(*state, "train/cat/1.png", 17);
    dataset_close(open_ok(*state, DATASET_TRAIN, NULL));
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(shards_hold_samples),           IN_FOLDER(other_pictures_are_left_out),
        IN_FOLDER(long_pax_headers_are_read),     IN_FOLDER(bad_extra_headers_are_named),
        IN_FOLDER(endings_may_be_in_capitals),    IN_FOLDER(bad_shards_are_named),
        IN_FOLDER(compressed_shards_are_refused), IN_FOLDER(classes_without_samples_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
