/* Fuzz target: the input is a picture or a tar archive.  A picture alone is refused, or a square of
 * it is there.  A data set of one picture, or of an archive, is refused, or each of its samples is
 * there, with a class among the classes, or is left out.
 *
 * The input begins with two bytes: the kind (enum kind, else PICTURE), and flags: MENDS ... */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "../data/open_set.h"
#include "base/log.h"
#include "data/picture.h"
#include "data/tar.h"
#include "input.h"
#include "scratch.h"

enum kind { PICTURE = 'p', FOLDER = 'f', ARCHIVE = 't' };

enum {
    MENDS = 1, /* the checksums of PNG chunks, or of the archive's headers, are made right */
    SKIPS = 2, /* a picture that cannot be decoded is left out */
    DRAWS = 4,
    NORMALIZES = 8,
    VALIDATES = 16,
    IGNORES = 32,   /* the job ignores class 1 */
    WHOLE = 64,     /* JPEG files are decoded at their own size */
    PREDICTS = 128, /* samples for validation need no labels */
    HEADER = 2,
};

/* Larger ones are legal, and take long: of a picture alone, and in a data set. */
enum { MOST_PIXELS = 1 << 20, MOST_SET_PIXELS = 1 << 14 };
enum { SIZE = 16, SET_SIZE = 8, BLOCK = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int flags;

/* ---- checksums ---- */

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A PNG file: 8 bytes, then chunks of a length, 4 letters, the content, and its checksum. */
static void mend_png(uint8_t *data, size_t size)
{
    for (size_t at = 8, n; at + 12 <= size; at += 12 + n) {
        uint32_t sum;

        n = big_endian(data + at);
        if (n > size - at - 12)
            break;
        sum = (uint32_t)crc32(0, data + at + 4, (uInt)n + 4);
        for (int i = 0; i < 4; i++)
            data[at + 8 + n + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    }
}

static void mend_tar(uint8_t *data, size_t size)
{
    static const uint8_t empty[BLOCK];

    for (size_t at = 0, n; at + BLOCK <= size && memcmp(data + at, empty, BLOCK) != 0; at += n) {
        uint8_t *p = data + at;
        char text[13] = "", sum_text[8];
        unsigned sum = 0;

        memset(p + 148, ' ', 8);
        for (int i = 0; i < BLOCK; i++)
            sum += p[i];
        snprintf(sum_text, sizeof sum_text, "%06o", sum & 0777777);
        memcpy(p + 148, sum_text, 7);
        memcpy(text, p + 124, 12);
        n = (size_t)strtoull(text, NULL, 8);
        if (n > size)
            break;
        n = BLOCK + (n + BLOCK - 1) / BLOCK * BLOCK;
        if (p[156] == 'S' && p[482]) /* a sparse file's spans are a block of their own */
            n += BLOCK;
    }
}

/* ---- a picture ---- */

static int is_small(const uint8_t *data, size_t size, int64_t most)
{
    struct picture *p;
    struct err err;
    struct picture_size it = {0};

    if (picture_open(&p, data, size, &err) == 0) {
        it = picture_size(p);
        picture_close(p);
    }
    return it.width * it.height <= most;
}

/* Read the middle third of the picture, or what is below it: 0, an error, or 1: it is too large. */
static int read_part(const uint8_t *data, size_t size, int is_below, struct err *err)
{
    uint8_t rgb[SIZE * SIZE * PICTURE_CHANNELS];
    struct picture *p = NULL;
    struct picture_box box;
    struct picture_size it;
    int rc = picture_open(&p, data, size, err);

    if (rc < 0)
        return rc;
    it = picture_size(p);
    box = (struct picture_box){(double)it.width / 5, (double)it.height * (1 + is_below) / 3,
                               (double)it.width / 2, (double)it.height / 3};
    rc = it.width * it.height > MOST_PIXELS
             ? 1
             : picture_read(p, &box, (struct picture_size){SIZE, SIZE},
                            flags & WHOLE ? PICTURE_WHOLE : PICTURE_SMALLEST, rgb, err);
    picture_close(p);
    return rc;
}

/* A broken picture is one whatever part of it is read. */
static void read_picture(const uint8_t *data, size_t size)
{
    struct err err = {0};
    const int rc = read_part(data, size, 0, &err);

    ASSERT(rc >= 0 || err.msg[0]);
    ASSERT(read_part(data, size, 1, &err) == rc);
}

/* ---- the folder of a data set ---- */

/* Class folders and a shard, whose files hold the input. */
static char *root;
static const char *const inside[] = {"/classes", "/classes/one", "/classes/one/in", "/classes/two",
                                     "/shards"};
static const char *const pictures[] = {"/classes/one/a.jpg", "/classes/one/in/a.png",
                                       "/classes/two/b.png"};
static const char archive[] = "/shards/a.tar";

static char *path_of(const char *name)
{
    static char path[4096];

    ASSERT(snprintf(path, sizeof path, "%s%s", root, name) < (int)sizeof path);
    return path;
}

static void clean_up(void)
{
    for (size_t i = 0; i < ARRAY_LEN(pictures); i++)
        unlink(path_of(pictures[i]));
    unlink(path_of(archive));
    for (size_t i = ARRAY_LEN(inside); i-- > 0;)
        rmdir(path_of(inside[i]));
    rmdir(root);
    free(root);
}

static void make_folder(void)
{
    root = scratch_folder();
    for (size_t i = 0; i < ARRAY_LEN(inside); i++)
        ASSERT(mkdir(path_of(inside[i]), 0700) == 0);
    atexit(clean_up);
    log_init("fuzz", LOG_TEXT, LOG_ERROR);
}

/* ---- a data set ---- */

/* A sample that was left out is black. */
static void check_sample(const struct dataset *ds, void *const *field)
{
    const int32_t label = *(int32_t *)field[1];
    const float *x = field[0];

    ASSERT(label >= 0 || (label == SAMPLE_IGNORED && flags & (SKIPS | IGNORES | PREDICTS)));
    ASSERT(label < ds->spec.field[1].n_classes && !(flags & IGNORES && label == 1));
    ASSERT(ds->leaves_out == ((flags & SKIPS) && !(flags & IGNORES)));
    for (int i = 0; i < SET_SIZE * SET_SIZE * PICTURE_CHANNELS; i++) {
        if (!(flags & NORMALIZES))
            ASSERT(x[i] >= 0 && x[i] <= 1);
        if (label < 0 && ds->leaves_out && !(flags & PREDICTS))
            ASSERT(x[i] == (flags & NORMALIZES ? -0.25F : 0));
    }
}

/* Without SKIPS, a picture that cannot be decoded is an error that names it. */
static int is_whole(const struct dataset *ds)
{
    void *to[SAMPLE_MAX_FIELDS];
    struct err err = {0};
    int rc = dataset_alloc(ds, 1, to, "a sample", &err);

    ASSERT(rc == 0);
    for (int64_t i = 0; rc == 0 && i < ds->n_samples; i++)
        rc = dataset_gather(ds, &i, 1, to, &err);
    ASSERT(rc == 0 || (rc == ERR_CORRUPT && !(flags & SKIPS) && strstr(err.msg, root)));
    free(to[0]);
    return rc == 0;
}

static void open_folder(const char *name)
{
    static const int64_t ignored = 1;
    const struct dataset_request request = {.purpose = flags & VALIDATES ? DATASET_VALIDATION
                                                                         : DATASET_TRAIN,
                                            .ignored = flags & IGNORES ? &ignored : NULL,
                                            .may_lack_labels = (flags & PREDICTS) != 0};
    const char *const draws = flags & DRAWS ? "true" : "false";
    const struct setting settings[] = {
        {"data.path", root},
        {"data.train", name},
        {"data.validation", flags & PREDICTS ? "." : name},
        {"data.size", "8"},
        {"data.resize", "9"},
        {"data.on_corrupt", flags & SKIPS ? "skip" : "fail"},
        {"data.jpeg_scale", flags & WHOLE ? "whole" : "auto"},
        {"data.augment.random_resized_crop", draws},
        {"data.augment.flip", draws},
        {"data.normalize.mean", flags & NORMALIZES ? "[0.25, 0.25, 0.25]" : "[]"},
        {NULL}};
    struct dataset *ds = NULL;
    struct err err = {0};

    if (open_set(&ds, &format_images, settings, &request, &err) < 0)
        ASSERT(err.msg[0]);
    else if (is_whole(ds))
        input_samples(ds, check_sample);
    dataset_close(ds);
}

/* Each member of an archive lies within it.  1: none is a large picture. */
static int read_archive(const uint8_t *data, size_t size)
{
    const int fd = input_file(data, size);
    struct tar t = {.fd = fd, .path = "archive", .n_bytes = (int64_t)size};
    struct tar_member m;
    struct err err = {0};
    int are_small = 1;

    while (tar_next(&t, &m, &err) == 0) {
        ASSERT(strlen(m.name) < TAR_NAME_BYTES && strlen(m.link) < TAR_NAME_BYTES);
        ASSERT(m.n_bytes >= 0 && m.offset >= 0 && m.offset + m.n_bytes <= (int64_t)size);
        are_small &= is_small(data + m.offset, (size_t)m.n_bytes, MOST_SET_PIXELS);
    }
    tar_close(&t);
    return are_small;
}

static void run(int kind, uint8_t *data, size_t size)
{
    if (flags & MENDS)
        (kind == ARCHIVE ? mend_tar : mend_png)(data, size);
    if (kind == ARCHIVE && read_archive(data, size)) {
        scratch_write(path_of(archive), data, size);
        open_folder("shards");
    } else if (kind == FOLDER && is_small(data, size, MOST_SET_PIXELS)) {
        for (size_t i = 0; i < ARRAY_LEN(pictures); i++)
            scratch_write(path_of(pictures[i]), data, size);
        open_folder("classes");
    } else if (kind != FOLDER && kind != ARCHIVE) {
        read_picture(data, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int is_made;
    uint8_t *copy;

    if (size < HEADER)
        return 0;
    if (!is_made)
        make_folder();
    is_made = 1;
    flags = data[1];
    copy = malloc(size - HEADER + !(size - HEADER)); /* its own block, for ASan */
    ASSERT(copy);
    memcpy(copy, data + HEADER, size - HEADER);
    run(data[0], copy, size - HEADER);
    free(copy);
    return 0;
}
