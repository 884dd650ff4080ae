/* Fuzz target: the input is a training file, or one and a validation file.  They are refused, or
 * every sample is there, its features are numbers, and its target is as the request wants it: a
 * class, or numbers, from 0 to 1 for some losses.
 *
 * The input begins with a header of four bytes:
 *     0  flags: NUMBERS ...
 *     1  the delimiter, data.missing, data.unknown (one bit), unused, and data.missing_values: two
 *        bits each
 *     2  bytes of the first file, 16 bits, little-endian; with TWO.  The others are the second. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "base/log.h"
#include "input.h"

enum {
    NUMBERS = 1, /* targets are numbers */
    SHARES = 2,  /* ... from 0 to 1 */
    TENTH = 4,   /* a tenth of the rows validates */
    TWO = 8,     /* there is a validation file, and it is opened */
    NO_HEADER = 16,
    DROPS = 32,     /* the column "a" is left out, and "b" has categories */
    VALIDATES = 64, /* with TENTH: the tenth is opened */
    LACKS = 128,    /* with TWO: the validation file may have no targets */
    HEADER = 4,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct dataset_request request;

static void check_sample(const struct dataset *ds, void *const *field)
{
    const struct sample_field *x = &ds->spec.field[0], *y = &ds->spec.field[1];
    const int32_t *label = field[1];
    const float *real = field[1];

    ASSERT(ds->ops->number(ds, 0) >= 0);
    ASSERT(ds->ops->number(ds, ds->n_samples - 1) >= ds->n_samples - 1);
    for (int64_t k = 0; k < shape_elements(&x->shape); k++) {
        ASSERT(isfinite(((const float *)field[0])[k]));
        ASSERT(ds->ops->feature(ds, k).name[0]);
    }
    ASSERT((y->role == SAMPLE_CLASS) == !request.targets_are_numbers);
    if (y->role == SAMPLE_CLASS)
        ASSERT(*label >= 0 && *label < y->n_classes && ds->class_names[*label]);
    for (int64_t k = 0; y->role == SAMPLE_REAL && k < shape_elements(&y->shape); k++)
        ASSERT(isfinite(real[k]) &&
               (!request.targets_are_fractions || (real[k] >= 0 && real[k] <= 1)));
}

static void open_files(int train, int val, int how, int choice)
{
    static const char *const delimiters[] = {"comma", "semicolon", "tab", "comma"},
                             *const missings[] = {"error", "mean", "drop", "mean"},
                             *const values[] = {"usual", "empty", "usual, b, 1", ", "};
    struct dataset *ds = NULL;
    struct err err = {0};
    char names[2][16];
    const struct setting settings[] = {
        {"data.path", "/proc/self/fd"},
        {"data.train", names[0]},
        {how & (TWO | TENTH) ? "data.validation" : "data.path", how & TWO     ? names[1]
                                                                : how & TENTH ? "every_tenth"
                                                                              : "/proc/self/fd"},
        {"data.header", how & NO_HEADER ? "false" : "true"},
        {how & DROPS ? "data.drop" : "data.header", "a"},
        {how & DROPS ? "data.categories" : "data.header", "b"},
        {"data.delimiter", delimiters[choice & 3]},
        {"data.missing", missings[choice >> 2 & 3]},
        {"data.missing_values", values[choice >> 6 & 3]},
        {"data.unknown", choice >> 4 & 1 ? "none" : "error"},
        {NULL}};
    int rc;

    snprintf(names[0], sizeof names[0], "%d", train);
    snprintf(names[1], sizeof names[1], "%d", val);
    rc = open_set(&ds, &format_csv, settings, &request, &err);
    if (rc == 0)
        input_samples(ds, check_sample);
    else
        ASSERT(rc == DATASET_NONE || (rc < 0 && err.msg[0]));
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int how = size > HEADER ? data[0] : 0;
    size_t n;
    int train, val;

    if (size <= HEADER)
        return 0;
    request = (struct dataset_request){
        .purpose =
            how & TWO || (how & TENTH && how & VALIDATES) ? DATASET_VALIDATION : DATASET_TRAIN,
        .targets_are_numbers = (how & (NUMBERS | SHARES)) != 0,
        .targets_are_fractions = (how & SHARES) != 0,
        .may_lack_labels = (how & LACKS) != 0,
        .warn = input_hear,
    };
    log_init("fuzz", LOG_TEXT, LOG_ERROR);
    n = size - HEADER;
    if (how & TWO)
        n = (size_t)min_i64(data[2] | data[3] << 8, (int64_t)n);
    train = input_file(data + HEADER, n);
    val = how & TWO ? input_file(data + HEADER + n, size - HEADER - n) : train;
    open_files(train, val, how, data[1]);
    close(train);
    if (val != train)
        close(val);
    return 0;
}
