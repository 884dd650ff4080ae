/* Fuzz target: the input is the file of images and that of labels of a set like MNIST, in IDX's
 * format, compressed or not.  They are refused, or every sample is there, with its label.
 *
 * The input begins with a header of three bytes: flags (VALIDATES ...), and how many bytes the
 * images have (16 bits, little-endian); the others are the labels. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "input.h"
#include "scratch.h"

enum {
    VALIDATES = 1,
    NORMALIZES = 2, /* one channel is normalised */
    IGNORES = 4,    /* the job ignores label IGNORED */
    IGNORED = 3,
    HEADER = 3,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int flags;
static char *folder, *paths[2];

static void clean_up(void)
{
    for (int i = 0; i < 2; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
    rmdir(folder);
    free(folder);
}

static void make_folder(void)
{
    folder = scratch_folder();
    paths[0] = xasprintf("%s/a-images-idx3-ubyte", folder);
    paths[1] = xasprintf("%s/a-labels.idx1-ubyte.gz", folder);
    atexit(clean_up);
}

static void check_sample(const struct dataset *ds, void *const *field)
{
    const int32_t label = *(int32_t *)field[1];
    const float *x = field[0];

    ASSERT(flags & IGNORES ? label != IGNORED : label != SAMPLE_IGNORED);
    ASSERT(label == SAMPLE_IGNORED || (label >= 0 && label < ds->spec.field[1].n_classes));
    for (int64_t i = 0; i < shape_elements(&ds->spec.field[0].shape); i++)
        ASSERT(flags & NORMALIZES || (x[i] >= 0 && x[i] <= 1));
}

static void open_files(void)
{
    static const int64_t ignored = IGNORED;
    const struct dataset_request request = {.purpose = flags & VALIDATES ? DATASET_VALIDATION
                                                                         : DATASET_TRAIN,
                                            .ignored = flags & IGNORES ? &ignored : NULL};
    const struct setting settings[] = {{"data.path", folder},
                                       {"data.train", "a"},
                                       {"data.validation", "a"},
                                       {"data.normalize.mean", flags & NORMALIZES ? "[0.5]" : "[]"},
                                       {NULL}};
    struct dataset *ds = NULL;
    struct err err = {0};

    if (open_set(&ds, &format_mnist, settings, &request, &err) == 0)
        input_samples(ds, check_sample);
    else
        ASSERT(err.msg[0]);
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n_images;

    if (size < HEADER)
        return 0;
    if (!folder)
        make_folder();
    flags = data[0];
    n_images = (size_t)min_i64(data[1] | data[2] << 8, (int64_t)size - HEADER);
    scratch_write(paths[0], data + HEADER, n_images);
    scratch_write(paths[1], data + HEADER + n_images, size - HEADER - n_images);
    open_files();
    return 0;
}
