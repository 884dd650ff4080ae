/* Fuzz target: the input is a CIFAR file, compressed or not, read as cifar10 and as cifar100.  It
 * is refused, or every sample is there and has a label among the classes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../data/open_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct dataset *ds)
{
    void *to[SAMPLE_MAX_FIELDS];
    struct err err;

    ASSERT(ds->n_samples > 0);
    ASSERT(dataset_alloc(ds, 1, to, "a sample", &err) == 0);
    for (int64_t i = 0; i < ds->n_samples; i++) {
        ASSERT(dataset_gather(ds, &i, 1, to, &err) == 0);
        ASSERT(*(int32_t *)to[1] < ds->spec.field[1].n_classes);
    }
    free(to[0]);
}

static void open_as(const struct data_format *format, const char *file)
{
    const struct setting settings[] = {
        {"data.path", "/proc/self/fd"}, {"data.train", file}, {"data.validation", file}, {0}};
    const struct dataset_request request = {.purpose = DATASET_TRAIN};
    struct dataset *ds = NULL;
    struct err err;

    if (open_set(&ds, format, settings, &request, &err) == 0)
        read_all(ds);
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[16];
    int fd = memfd_create("cifar", MFD_CLOEXEC);

    ASSERT(fd >= 0);
    ASSERT(write(fd, data, size) == (ssize_t)size);
    snprintf(name, sizeof name, "%d", fd);
    open_as(&format_cifar10, name);
    open_as(&format_cifar100, name);
    close(fd);
    return 0;
}
