/* Fuzz target: the input is a CIFAR file, compressed or not, read as cifar10 and as cifar100.  It
 * is refused, or every sample is there and has a label among the classes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/dataset.h"

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

/* The options' struct is private to the reader, so it is filled through its table of options. */
static void open_as(const struct data_format *format, const char *file)
{
    const struct option_group *g = &format->group;
    void *options = xcalloc(1, g->size);
    struct dataset *ds = NULL;
    struct arena arena;
    struct err err;

    arena_init(&arena);
    for (int i = 0; i < g->n_options; i++) {
        const struct option *o = &g->option[i];
        const char *text = !strcmp(o->key, "data.path") ? "/proc/self/fd"
                           : o->type == OPT_STRING      ? file
                                                        : o->def;

        if (!text)
            continue;
        ASSERT(option_parse(o, (char *)options + o->offset, &arena, text, strlen(text), 0, &err) ==
               0);
    }
    if (dataset_open(&ds, &(struct data_options){format, options},
                     &(struct dataset_request){.purpose = DATASET_TRAIN}, &err) == 0)
        read_all(ds);
    dataset_close(ds);
    arena_fini(&arena);
    free(options);
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
