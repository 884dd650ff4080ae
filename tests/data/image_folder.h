/* image_folder - makes folders of pictures, opens them as a set of images of SIZE by SIZE, and
 * reads samples. */
#ifndef TESTS_DATA_IMAGE_FOLDER_H
#define TESTS_DATA_IMAGE_FOLDER_H

#include "../test.h"

#include <sys/stat.h>

#include "base/log.h"
#include "idx_file.h"
#include "open_set.h"
#include "picture_file.h"

enum { SIZE = 6, IMAGE = SIZE * SIZE * 3 };

static inline void make_parent(const char *folder, const char *name)
{
    char path[512];

    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)(slash - name), name);
        (void)mkdir(path, 0777);
    }
}

static inline void put(const char *folder, const char *name, const struct buf *b)
{
    make_parent(folder, name);
    write_file(folder, name, b);
}

/* A PNG of one colour, larger than the samples. */
static inline void put_colour(const char *folder, const char *name, uint8_t colour)
{
    uint8_t rgb[9 * 8 * 3];
    struct buf b = {0};

    memset(rgb, colour, sizeof rgb);
    put_rgb_png(&b, rgb, 9, 8);
    put(folder, name, &b);
    buf_fini(&b);
}

static inline void put_text(const char *folder, const char *name, const char *text)
{
    struct buf b = {0};

    buf_append(&b, text, strlen(text));
    put(folder, name, &b);
    buf_fini(&b);
}

/* Warnings that openings told so far; they are logged, too. */
static int n_told;

static inline void hear(void *arg, const char *text)
{
    (void)arg;
    n_told++;
    log_warn("%s", text);
}

static inline int try_open(struct dataset **out, const char *folder, enum dataset_purpose purpose,
                           const struct setting *extra, struct err *err)
{
    struct setting all[8];
    int n = 0;

    for (; extra && extra->key; extra++) /* of a key that comes twice the first value counts */
        all[n++] = *extra;
    all[n++] = (struct setting){"data.path", folder};
    all[n++] = (struct setting){"data.size", "6"};
    all[n] = (struct setting){NULL};
    return open_set(out, &format_images, all,
                    &(struct dataset_request){.purpose = purpose, .warn = hear}, err);
}

static inline struct dataset *open_ok(const char *folder, enum dataset_purpose purpose,
                                      const struct setting *extra)
{
    struct dataset *ds = NULL;
    struct err err = {0};

    if (try_open(&ds, folder, purpose, extra, &err) != 0)
        fail_msg("%s", err.msg);
    return ds;
}

static inline int32_t get(const struct dataset *ds, const struct dataset_draw *draw, int64_t i,
                          float x[IMAGE])
{
    int32_t label;
    struct err err = {0};

    if (dataset_gather_drawn(ds, draw, &i, 1, (void *[]){x, &label}, &err) != 0)
        fail_msg("%s", err.msg);
    return label;
}

/* Sample i is of one colour and has this label. */
static inline void check_colour(const struct dataset *ds, int64_t i, int colour, int label)
{
    float x[IMAGE];

    assert_int_equal(get(ds, NULL, i, x), label);
    for (int k = 0; k < IMAGE; k++)
        assert_true(x[k] == (float)colour / 255);
}

#endif
