/* Fuzz target: the input is a file of tokens, of either width, or a text of characters or bytes.
 * It is refused, or every sample is there, and its tokens are within the vocabulary.
 *
 * The input begins with a header of four bytes:
 *     0  the kind, two bits (enum kind), and flags: VALIDATES ...
 *     1  the context, from 0
 *     2  the vocabulary, 16 bits, little-endian; 0: the data say */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "input.h"

enum kind { UINT16, UINT32, CHARS, BYTES };

enum {
    KIND = 3,
    VALIDATES = 4,
    ALL_TRAINS = 8, /* a text has no validation part */
    TWICE = 16,     /* tokens: the file is given twice */
    IGNORES = 32,   /* the job ignores token IGNORED as a target */
    IGNORED = 1,
    HEADER = 4,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int flags;

/* The targets are the tokens, one place further on. */
static void check_tokens(const struct dataset *ds, void *const *field)
{
    const int32_t *x = field[0], *y = field[1];

    for (int64_t k = 0; k < ds->spec.field[0].shape.dim[0]; k++) {
        const int is_ignored = flags & IGNORES && y[k] == SAMPLE_IGNORED;

        ASSERT(x[k] >= 0 && x[k] < ds->spec.field[0].n_classes);
        ASSERT(is_ignored || (y[k] >= 0 && y[k] < ds->spec.field[1].n_classes));
        ASSERT(!(flags & IGNORES) || y[k] != IGNORED);
        if (k > 0)
            ASSERT(x[k] == (y[k - 1] == SAMPLE_IGNORED ? IGNORED : y[k - 1]));
    }
}

static void open_kind(enum kind kind, int fd, const struct dataset_request *request)
{
    const int is_text = kind == CHARS || kind == BYTES;
    char names[40], path[64];
    const struct setting tokens[] = {{"data.path", "/proc/self/fd"},
                                     {"data.train", names},
                                     {"data.validation", names},
                                     {"data.dtype", kind == UINT32 ? "uint32" : "uint16"},
                                     {NULL}};
    const struct setting text[] = {
        {"data.path", path},
        {"data.validation", flags & ALL_TRAINS ? DATASET_WORD_NONE : "last_tenth"},
        {"data.tokenizer", kind == BYTES ? "bytes" : "chars"},
        {NULL}};
    struct dataset *ds = NULL;
    struct err err = {0};
    int rc;

    snprintf(names, sizeof names, flags & TWICE ? "%d, %d" : "%d", fd, fd);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    rc = open_set(&ds, is_text ? &format_text : &format_tokens, is_text ? text : tokens, request,
                  &err);
    if (rc == 0) {
        ASSERT(ds->spec.field[0].shape.dim[0] == request->context);
        ASSERT(!request->vocab || ds->spec.field[0].n_classes == request->vocab);
        input_samples(ds, check_tokens);
    } else if (rc == DATASET_NONE) {
        ASSERT(is_text && flags & VALIDATES && flags & ALL_TRAINS);
    } else {
        ASSERT(err.msg[0]);
    }
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t ignored = IGNORED;
    struct dataset_request request;
    int fd;

    if (size < HEADER)
        return 0;
    flags = data[0];
    request = (struct dataset_request){
        .purpose = flags & VALIDATES ? DATASET_VALIDATION : DATASET_TRAIN,
        .context = data[1],
        .vocab = data[2] | data[3] << 8,
        .ignored = flags & IGNORES ? &ignored : NULL,
    };
    fd = input_file(data + HEADER, size - HEADER);
    open_kind((enum kind)(flags & KIND), fd, &request);
    close(fd);
    return 0;
}
