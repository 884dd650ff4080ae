/* Fuzz target: the input is the .npy file of the features and that of the targets, or one file for
 * both.  They are refused, or every sample is there, and its target is as the request wants it: a
 * class within the number of classes or an ignored one, or a number from 0 to 1.
 *
 * The input begins with a header of five bytes:
 *     0  flags: SHARES ...
 *     1  the label that the job ignores, 16 bits, little-endian; with IGNORES
 *     3  bytes of the first file, 16 bits, little-endian; with TWO.  The others are the second. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "input.h"

enum {
    SHARES = 1,    /* real targets are from 0 to 1 */
    IGNORES = 2,   /* the job ignores a label */
    VALIDATES = 4, /* the files are the validation set; the training set's targets are the first */
    TWO = 8,       /* there are two files */
    NORMALIZES = 16, /* the features have a mean and a standard deviation */
    NAMED = 32,      /* the fields have names; whole numbers of the first are from LEAST to MOST */
    HEADER = 5,
    LEAST = -3,
    MOST = 9,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct dataset_request request;
static int64_t ignored;

static void check_class(int32_t label, int64_t n_classes)
{
    if (request.ignored)
        ASSERT(label != ignored || label == SAMPLE_IGNORED);
    ASSERT(label == SAMPLE_IGNORED || (label >= 0 && label < n_classes));
}

static void check_target(const struct dataset *ds, void *const *field)
{
    const struct sample_field *y = &ds->spec.field[1];
    const int32_t *label = field[1];
    const float *real = field[1];

    for (int64_t k = 0; k < shape_elements(&y->shape); k++) {
        if (y->role == SAMPLE_CLASS)
            check_class(label[k], y->n_classes);
        else if (request.targets_are_fractions)
            ASSERT(real[k] >= 0 && real[k] <= 1);
    }
}

static void limit(const void *arg, const struct sample_spec *s, int field, int64_t *least,
                  int64_t *most)
{
    (void)arg;
    ASSERT(s->field[field].role == SAMPLE_INPUT && s->field[field].dtype == DTYPE_I32);
    *least = LEAST;
    *most = MOST;
}

/* 1: all samples can be read; of inputs of whole numbers one may have a number that is refused. */
static int can_be_read(const struct dataset *ds)
{
    const struct sample_field *x = &ds->spec.field[0];
    void *field[SAMPLE_MAX_FIELDS];
    struct err err;
    int rc = 0;

    if (x->dtype != DTYPE_I32)
        return 1;
    ASSERT(dataset_alloc(ds, 1, field, "a sample", &err) == 0);
    for (int64_t i = 0; rc == 0 && i < ds->n_samples; i++) {
        rc = dataset_gather(ds, &i, 1, field, &err);
        ASSERT(rc == 0 || (rc == ERR_CORRUPT && err.msg[0]));
        for (int64_t k = 0; rc == 0 && k < shape_elements(&x->shape); k++)
            ASSERT(((int32_t *)field[0])[k] >= LEAST && ((int32_t *)field[0])[k] <= MOST);
    }
    free(field[0]);
    return rc == 0;
}

static void open_files(int x, int y, int how)
{
    struct dataset *ds = NULL;
    struct err err = {0};
    char names[40], others[40];
    const struct setting settings[] = {{"data.path", "/proc/self/fd"},
                                       {"data.train", how & VALIDATES ? others : names},
                                       {"data.validation", names},
                                       {"data.normalize.mean", how & NORMALIZES ? "[0.5]" : "[]"},
                                       {"data.normalize.std", how & NORMALIZES ? "[2]" : "[]"},
                                       {NULL}};
    int rc;

    snprintf(names, sizeof names, how & NAMED ? "{x: %d, labels: %d}" : "%d, %d", x, y);
    snprintf(others, sizeof others, how & NAMED ? "{x: %d, labels: %d}" : "%d, %d", y, x);
    rc = open_set(&ds, &format_npy, settings, &request, &err);
    ASSERT(rc == 0 || (rc < 0 && err.msg[0]));
    if (rc == 0 && can_be_read(ds))
        input_samples(ds, check_target);
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int how = size > HEADER ? data[0] : 0;
    size_t n_x;
    int x, y;

    if (size <= HEADER)
        return 0;
    ignored = (int16_t)(data[1] | data[2] << 8);
    request = (struct dataset_request){
        .purpose = how & VALIDATES ? DATASET_VALIDATION : DATASET_TRAIN,
        .ignored = how & IGNORES ? &ignored : NULL,
        .targets_are_fractions = how & SHARES,
        .warn = input_hear,
        .limit = limit,
    };
    n_x = size - HEADER;
    if (how & TWO)
        n_x = (size_t)min_i64(data[3] | data[4] << 8, (int64_t)n_x);
    x = input_file(data + HEADER, n_x);
    y = how & TWO ? input_file(data + HEADER + n_x, size - HEADER - n_x) : x;
    open_files(x, y, how);
    close(x);
    if (y != x)
        close(y);
    return 0;
}
