/* Fuzz target: the input is a file of tokens, of either width, and a text of characters and of
 * bytes.  It is refused, or every sample is there and its tokens are within the vocabulary. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "input.h"

enum { CONTEXT = 4, VOCAB = 30000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tokens(const struct dataset *ds, void *const *field)
{
    for (int k = 0; k < CONTEXT; k++) {
        const int32_t x = ((int32_t *)field[0])[k], y = ((int32_t *)field[1])[k];

        ASSERT(x >= 0 && y >= 0 && x < ds->spec.field[0].n_classes);
        ASSERT(y < ds->spec.field[1].n_classes);
        ASSERT(k == 0 || x == ((int32_t *)field[1])[k - 1]);
    }
}

static void open_as(const struct data_format *format, const struct setting *settings, int64_t vocab)
{
    const struct dataset_request request = {
        .purpose = DATASET_TRAIN, .context = CONTEXT, .vocab = vocab};
    struct dataset *ds = NULL;
    struct err err;

    if (open_set(&ds, format, settings, &request, &err) == 0)
        input_samples(ds, check_tokens);
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[16], path[64];
    const int fd = input_file(data, size);

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
