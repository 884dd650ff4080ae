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
    WIDE = 8,       /* the labels' file has the name of QMNIST's, of integers [N,8] */
    LETTERS = 16,   /* the prefix is that of EMNIST's letters, whose labels are from 1 to 26 */
    IGNORED = 3,
    HEADER = 3,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int flags;
static char *folder;

static void clean_up(void)
{
    rmdir(folder);
    free(folder);
}

static void make_folder(void)
{
    folder = scratch_folder();
    atexit(clean_up);
}

static const char *prefix(void) { return flags & LETTERS ? "emnist-letters-a" : "a"; }

/* The paths of the images and of the labels, for free(). */
static void name_files(char *path[2])
{
    path[0] = xasprintf("%s/%s-images-idx3-ubyte", folder, prefix());
    path[1] = xasprintf("%s/%s-labels%s", folder, prefix(),
                        flags & WIDE ? "-idx2-int" : ".idx1-ubyte.gz");
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
                                       {"data.train", prefix()},
                                       {"data.validation", prefix()},
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
    char *path[2];

    if (size < HEADER)
        return 0;
    if (!folder)
        make_folder();
    flags = data[0];
    n_images = (size_t)min_i64(data[1] | data[2] << 8, (int64_t)size - HEADER);
    name_files(path);
    scratch_write(path[0], data + HEADER, n_images);
    scratch_write(path[1], data + HEADER + n_images, size - HEADER - n_images);
    open_files();
    for (int i = 0; i < 2; i++) {
        unlink(path[i]);
        free(path[i]);
    }
    return 0;
}
