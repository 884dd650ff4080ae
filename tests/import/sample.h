/* sample - a small network as torch.export.save writes it: linear(x) with a tied weight, a buffer,
 * a view of a storage, a no_grad block and a symbolic batch.  Its texts are the seed `sample` of
 * the fuzz target pt2.
 *
 * Threads: any. */
#ifndef TESTS_IMPORT_SAMPLE_H
#define TESTS_IMPORT_SAMPLE_H

#include <stdlib.h>

#include "base/alloc.h"
#include "import/archive.h"

/* The network, the tables of weights and of constants. */
enum { SAMPLE_TEXTS = 3, SAMPLE_MAX_BYTES = 65536 };

struct sample {
    char bytes[SAMPLE_MAX_BYTES];
    const char *text[SAMPLE_TEXTS]; /* in bytes */
};

/* A value that a node makes or reads, as JSON. */
#define SAMPLE_T(name) "\"as_tensor\":{\"name\":\"" name "\"}"

/* Read the file $SAMPLE.  Its texts are separated by lines "%%". */
static inline void sample_read(struct sample *s)
{
    FILE *f = fopen(getenv("SAMPLE"), "rb");
    char *at = s->bytes;

    ASSERT(f);
    s->bytes[fread(s->bytes, 1, SAMPLE_MAX_BYTES - 1, f)] = '\0';
    fclose(f);
    for (int i = 0; i < SAMPLE_TEXTS; i++) {
        char *end = strstr(at, "\n%%\n");

        s->text[i] = at;
        ASSERT(end || i == SAMPLE_TEXTS - 1);
        if (end) {
            *end = '\0';
            at = end + 4;
        }
    }
}

/* The archive of these texts. */
static inline void sample_write(struct archive *a, const char *const text[SAMPLE_TEXTS])
{
    static const int64_t index[] = {5, -6};
    float numbers[16];

    for (int i = 0; i < 16; i++)
        numbers[i] = (float)i;
    archive_text(a, "net/archive_format", "pt2");
    archive_text(a, "net/archive_version", "0");
    archive_text(a, "net/byteorder", "little");
    archive_text(a, "net/models/model.json", text[0]);
    archive_text(a, "net/data/weights/model_weights_config.json", text[1]);
    archive_text(a, "net/data/constants/model_constants_config.json", text[2]);
    archive_add(a, "net/data/weights/weight_0", numbers, sizeof numbers);
    archive_add(a, "net/data/weights/weight_1", index, sizeof index);
    archive_add(a, "net/data/weights/weight_2", numbers, sizeof numbers);
    archive_add(a, "net/data/constants/tensor_0", numbers, 8 * sizeof *numbers);
}

#endif
