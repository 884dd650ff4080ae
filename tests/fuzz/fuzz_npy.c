/* Fuzz target: the input is a .npy file, taken as features and as targets.  It is refused, or every
 * sample is there and its classes are within their number, or ignored. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_classes(const struct dataset *ds, void *const *field)
{
    const struct sample_field *y = &ds->spec.field[1];

    for (int64_t k = 0; y->role == SAMPLE_CLASS && k < shape_elements(&y->shape); k++) {
        const int32_t class = ((int32_t *)field[1])[k];

        ASSERT(class == SAMPLE_IGNORED || (class >= 0 && class < y->n_classes));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct dataset_request request = {.purpose = DATASET_TRAIN};
    const int fd = input_file(data, size);
    struct dataset *ds = NULL;
    struct err err;
    char names[40];

    snprintf(names, sizeof names, "%d, %d", fd, fd);
    if (open_set(&ds, &format_npy,
                 (struct setting[]){{"data.path", "/proc/self/fd"}, {"data.train", names}, {NULL}},
                 &request, &err) == 0)
        input_samples(ds, check_classes);
    dataset_close(ds);
    close(fd);
    return 0;
}
