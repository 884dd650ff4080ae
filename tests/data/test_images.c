/* images: class folders are listed in order and read; what is drawn depends on seed, epoch and
 * sample alone; broken folders and files are named.  Tar archives are in test_tars.c. */
#include <math.h>
#include <unistd.h>

#include "base/log.h"
#include "image_folder.h"

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

static void put_link(const char *folder, const char *name, const char *to)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(symlink(to, path), 0);
}

/* torchvision's order: by the folder's path, then by name. */
static void folders_in_classes_are_walked(void **state)
{
    static const int label[] = {0, 0, 0, 0, 0, 0, 1, 1};
    struct dataset *ds;

    put_colour(*state, "train/a/x/1.png", 4);
    put_colour(*state, "train/a/x/deep/er/0.png", 6);
    put_colour(*state, "train/a/x-ray/0.png", 5);
    put_colour(*state, "train/a/y.png", 2);
    put_colour(*state, "train/a/b.png", 1);
    put_colour(*state, "train/a/folder.png/1.png", 3); /* a folder, whatever its name */
    put_colour(*state, "train/a/.cache/1.png", 9);
    put_text(*state, "train/a/none/readme", "");
    put_colour(*state, "elsewhere/1.png", 8);
    put_colour(*state, "train/b/p/2.png", 7);
    put_link(*state, "train/b/q", "../../elsewhere");
    put_link(*state, "train/b/broken", "nowhere");
    ds = open_ok(*state, DATASET_TRAIN, NULL);
    assert_int_equal(ds->n_samples, ARRAY_LEN(label));
    assert_int_equal(ds->spec.field[1].n_classes, 2);
    for (int i = 0; i < 8; i++)
        check_colour(ds, i, 1 + i, label[i]);
    dataset_close(ds);
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

/* Open a set, and return what that writes into the log, for free(). */
static char *log_of(const char *folder, enum dataset_purpose purpose, const struct setting *extra,
                    int64_t n_samples)
{
    FILE *file = tmpfile();
    const int saved = dup(STDERR_FILENO);
    char *text = calloc(1, 4096);
    struct dataset *ds;
    int n_warnings = 0;

    assert_non_null(file);
    n_told = 0;
    dup2(fileno(file), STDERR_FILENO);
    log_init("test_images", LOG_TEXT, LOG_INFO);
    ds = open_ok(folder, purpose, extra);
    log_init("test_images", LOG_TEXT, LOG_ERROR);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(ds->n_samples, n_samples);
    dataset_close(ds);
    rewind(file);
    (void)!fread(text, 1, 4095, file);
    fclose(file);
    for (const char *at = text; (at = strstr(at, "warning: ")); at++)
        n_warnings++;
    assert_int_equal(n_warnings, n_told); /* no warning is a log line alone */
    return text;
}

static char *log_of_opening(const char *folder, int64_t n_samples)
{
    return log_of(folder, DATASET_TRAIN, NULL, n_samples);
}

/* Members that are left out of tar files, and keys that come again, are told once for each set. */
static void rests_of_shards_are_told(void **state)
{
    char want[1024], *text;
    struct buf b = {0};

    for (int k = 0; k < 3; k++) {
        put_picture(&b, k == 1 ? "b.png" : "a.png", k + 1);
        put_member(&b, '0', k == 1 ? "b.cls" : "a.cls", k == 1 ? "0" : "1", 1);
        put_member(&b, '0', k == 1 ? "b.json" : "a.json", "{}", 2);
    }
    end_tar(&b);
    put(*state, "train/s.tar", &b);
    put(*state, "val/s.tar", &b);
    for (int purpose = DATASET_TRAIN; purpose <= DATASET_VALIDATION; purpose++) {
        text = log_of(*state, purpose, NULL, 3);
        assert_string_equal(
            text, fill_in(want, sizeof want,
                          purpose == DATASET_TRAIN
                              ? "test_images: warning: folder @/train: 1 samples have the key of "
                                "an earlier one of their shard, such as a; each is a sample, as "
                                "with WebDataset; remove the older ones if they were replaced (tar "
                                "--append, --update)\ntest_images: folder @/train: 3 members "
                                "beside pictures and classes are left out, such as a.json\n"
                              : "test_images: warning: folder @/val: 1 samples have the key of an "
                                "earlier one of their shard, such as a; each is a sample, as with "
                                "WebDataset; remove the older ones if they were replaced (tar "
                                "--append, --update)\ntest_images: folder @/val: 3 members beside "
                                "pictures and classes are left out, such as a.json\n",
                          *state));
        free(text);
    }
    buf_fini(&b);
}

static void one_folder_of_both_sets_is_told(void **state)
{
    char want[1024], *text;

    put_colour(*state, "train/a/1.png", 1);
    put_colour(*state, "val/a/1.png", 2);
    text = log_of(*state, DATASET_VALIDATION, NULL, 1);
    assert_string_equal(text, "");
    free(text);
    text = log_of(*state, DATASET_VALIDATION,
                  (struct setting[]){{"data.validation", "train"}, {NULL}}, 1);
    assert_string_equal(
        text, fill_in(want, sizeof want,
                      "test_images: warning: folder @/train both trains and validates, so the "
                      "validation says nothing about other pictures; set data.train and "
                      "data.validation to two folders\n",
                      *state));
    free(text);
}

/* Other files, such as notes, are nobody's loss. */
static void pictures_of_other_kinds_are_left_out_aloud(void **state)
{
    char want[1024], *text;

    put_colour(*state, "train/a/1.png", 1);
    put_text(*state, "train/a/2.txt", "");
    put_colour(*state, "train/b/1.png", 2);
    text = log_of_opening(*state, 2);
    assert_string_equal(text, "");
    free(text);
    put_text(*state, "train/a/in/3.WEBP", "");
    text = log_of_opening(*state, 2);
    assert_string_equal(
        text,
        fill_in(want, sizeof want,
                "test_images: warning: folder @/train: pictures that are neither JPEG nor PNG are "
                "left out, 1 of them, such as a/in/3.WEBP; convert them to one of these, or "
                "remove them\n",
                *state));
    free(text);
    put_text(*state, "train/a/4.tiff", "");
    text = log_of_opening(*state, 2);
    assert_non_null(strstr(text, ", 2 of them, such as a/"));
    free(text);
}

static void one_class_is_told(void **state)
{
    char want[1024], *text;

    put_colour(*state, "train/train/a/1.png", 1);
    put_colour(*state, "train/train/b/1.png", 2);
    text = log_of_opening(*state, 2);
    assert_string_equal(
        text, fill_in(want, sizeof want,
                      "test_images: warning: folder @/train: its 2 pictures are all of one class, "
                      "train, so there is nothing to learn; is data.path or data.train one level "
                      "too high?\n",
                      *state));
    free(text);
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
                   "@/train; rename or remove it; pictures without classes are for --predict");
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

/* Listing a million files takes a second, so it is done once: the other openings, which want the
 * classes alone, do not notice that class b has no file. */
static void classes_are_known_without_their_files(void **state)
{
    const struct dataset_request names = {.purpose = DATASET_TRAIN, .names_only = 1};
    const struct setting path[] = {{"data.path", *state}, {NULL}};
    struct dataset *ds;
    struct err err = {0};
    char empty[512];

    put_colour(*state, "train/c/x.png", 1);
    put_colour(*state, "train/a/x.png", 1);
    put_colour(*state, "val/c/x.png", 2);
    snprintf(empty, sizeof empty, "%s/train/b", (const char *)*state);
    assert_int_equal(mkdir(empty, 0777), 0);
    assert_int_equal(try_open(&ds, *state, DATASET_TRAIN, NULL, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "train/b has no file"));
    ds = open_ok(*state, DATASET_VALIDATION, NULL);
    check_colour(ds, 0, 2, 2);
    dataset_close(ds);
    assert_int_equal(open_set(&ds, &format_images, path, &names, &err), 0);
    assert_int_equal(ds->spec.field[1].n_classes, 3);
    assert_string_equal(ds->class_names[1], "b");
    dataset_close(ds);
}

static void links_that_loop_are_refused(void **state)
{
    put_colour(*state, "train/a/in/1.png", 1);
    put_link(*state, "train/a/in/out", "..");
    expect_refused(
        *state, DATASET_TRAIN, ERR_CORRUPT,
        "images: folder @/train: folder @/train/a/in/out is folder @/train/a again, by a "
        "symbolic link; remove the link");
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

/* A JPEG file of 64 by 64 pixels, or its first half. */
static void put_noise(const char *folder, const char *name, int is_cut)
{
    uint8_t rgb[64 * 64 * 3];
    struct buf b = {0};

    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * i % 251);
    put_jpeg(&b, rgb, 64, 64, 3, 0, 0);
    b.len /= is_cut ? 2 : 1;
    put(folder, name, &b);
    buf_fini(&b);
}

static void put_broken(const char *folder) { put_noise(folder, "train/b/half.jpg", 1); }

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

/* A picture of 130 by 100 is resized to 9 by 7, not to 9.1 by 7.  The middle begins at pixel 2 of 9
 * and at pixel 0 of 7, since 1.5 and 0.5 are rounded to even numbers. */
static void the_middle_is_that_of_torchvision(void **state)
{
    float x[IMAGE];
    struct dataset *ds;

    put_map(*state, "train/a/1.png", 130, 100);
    ds = open_ok(*state, DATASET_TRAIN, (struct setting[]){{"data.resize", "7"}, {NULL}});
    get(ds, NULL, 0, x);
    assert_true(fabs(place_of(x, 1, 0) - 3.5 * 130 / 9) < 1);
    assert_true(fabs(place_of(x, 1, 1) - 1.5 * 100 / 7) < 1);
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
    int n_equal = 0, n_small_and_wide = 0;

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
        n_small_and_wide += w * h < 0.3 * W * H && w / h > 1.1;
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
    assert_true(n_small_and_wide > 5); /* area and form are drawn apart */
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

/* Training decodes at a smaller size, unless data.jpeg_scale says otherwise; validation never. */
static void jpegs_that_validate_are_decoded_whole(void **state)
{
    float x[2][2][IMAGE]; /* by jpeg_scale, and by purpose */

    put_noise(*state, "train/a/1.jpg", 0);
    put_noise(*state, "val/a/1.jpg", 0);
    for (int is_whole = 0; is_whole < 2; is_whole++)
        for (int purpose = DATASET_TRAIN; purpose <= DATASET_VALIDATION; purpose++) {
            struct dataset *ds = open_ok(
                *state, purpose,
                (struct setting[]){{"data.jpeg_scale", is_whole ? "whole" : "auto"}, {NULL}});

            get(ds, NULL, 0, x[is_whole][purpose]);
            dataset_close(ds);
        }
    assert_memory_equal(x[0][DATASET_VALIDATION], x[1][DATASET_VALIDATION], sizeof x[0][0]);
    assert_memory_equal(x[1][DATASET_TRAIN], x[1][DATASET_VALIDATION], sizeof x[0][0]);
    assert_memory_not_equal(x[0][DATASET_TRAIN], x[1][DATASET_TRAIN], sizeof x[0][0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(folders_are_classes),
        IN_FOLDER(folders_in_classes_are_walked),
        IN_FOLDER(classes_are_known_without_their_files),
        IN_FOLDER(links_that_loop_are_refused),
        IN_FOLDER(pictures_of_other_kinds_are_left_out_aloud),
        IN_FOLDER(one_class_is_told),
        IN_FOLDER(rests_of_shards_are_told),
        IN_FOLDER(one_folder_of_both_sets_is_told),
        IN_FOLDER(smallest_images),
        IN_FOLDER(bad_folders_are_named),
        IN_FOLDER(pipes_are_no_shards),
        IN_FOLDER(options_agree),
        IN_FOLDER(broken_files_end_the_job),
        IN_FOLDER(broken_files_are_left_out),
        IN_FOLDER(jpegs_that_validate_are_decoded_whole),
        IN_FOLDER(the_middle_is_taken),
        IN_FOLDER(the_middle_is_that_of_torchvision),
        IN_FOLDER(parts_are_drawn),
        IN_FOLDER(the_fingerprint_is_of_names_and_files),
    };

    log_init("test_images", LOG_TEXT, LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
