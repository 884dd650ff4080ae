/* Fuzz target: the input is a file of tokens, of either width, and a text of characters and of
 * bytes.  It is refused, or every sample is there and its tokens are within the vocabulary. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../data/open_set.h"

enum { CONTEXT = 4, VOCAB = 30000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct dataset *ds)
{
    void *to[SAMPLE_MAX_FIELDS];
    struct err err;

    ASSERT(ds->n_samples > 0);
    ASSERT(dataset_alloc(ds, 1, to, "a sample", &err) == 0);
    for (int64_t i = 0; i < ds->n_samples; i++) {
        ASSERT(dataset_gather(ds, &i, 1, to, &err) == 0);
        for (int k = 0; k < CONTEXT; k++) {
            const int32_t x = ((int32_t *)to[0])[k], y = ((int32_t *)to[1])[k];

            ASSERT(x >= 0 && y >= 0 && x < ds->spec.field[0].n_classes);
            ASSERT(y < ds->spec.field[1].n_classes);
            ASSERT(k == 0 || x == ((int32_t *)to[1])[k - 1]);
        }
    }
    free(to[0]);
}

static void open_as(const struct data_format *format, const struct setting *settings, int64_t vocab)
{
    const struct dataset_request request = {
        .purpose = DATASET_TRAIN, .context = CONTEXT, .vocab = vocab};
    struct dataset *ds = NULL;
    struct err err;

    if (open_set(&ds, format, settings, &request, &err) == 0)
        read_all(ds);
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[16], path[64];
    int fd = memfd_create("sequence", MFD_CLOEXEC);

    ASSERT(fd >= 0);
    ASSERT(write(fd, data, size) == (ssize_t)size);
    snprintf(name, sizeof name, "%d", fd);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int i = 0; i < 2; i++) {
        const struct setting tokens[] = {{"data.path", "/proc/self/fd"},
                                         {"data.train", name},
                                         {"data.dtype", i ? "uint32" : "uint16"},
                                         {NULL}};
        const struct setting text[] = {
            {"data.path", path}, {"data.tokenizer", i ? "bytes" : "chars"}, {NULL}};

        open_as(&format_tokens, tokens, VOCAB);
        open_as(&format_text, text, 0);
    }
    close(fd);
    return 0;
}
