/* Fuzz target: the input is a .npy file, taken as features and as targets.  It is refused, or every
 * sample is there and its classes are within their number. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../data/open_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct dataset *ds)
{
    const struct sample_field *y = &ds->spec.field[1];
    void *to[SAMPLE_MAX_FIELDS];
    struct err err;

    ASSERT(ds->n_samples > 0);
    ASSERT(dataset_alloc(ds, 1, to, "a sample", &err) == 0);
    for (int64_t i = 0; i < ds->n_samples; i++) {
        ASSERT(dataset_gather(ds, &i, 1, to, &err) == 0);
        for (int64_t k = 0; y->role == SAMPLE_CLASS && k < shape_elements(&y->shape); k++)
            ASSERT(((int32_t *)to[1])[k] >= 0 && ((int32_t *)to[1])[k] < y->n_classes);
    }
    free(to[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct dataset_request request = {.purpose = DATASET_TRAIN};
    int fd = memfd_create("npy", MFD_CLOEXEC);
    struct dataset *ds = NULL;
    struct err err;
    char names[40];

    ASSERT(fd >= 0);
    ASSERT(write(fd, data, size) == (ssize_t)size);
    snprintf(names, sizeof names, "%d, %d", fd, fd);
    if (open_set(&ds, &format_npy,
                 (struct setting[]){{"data.path", "/proc/self/fd"}, {"data.train", names}, {NULL}},
                 &request, &err) == 0)
        read_all(ds);
    dataset_close(ds);
    close(fd);
    return 0;
}
