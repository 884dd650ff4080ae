/* Fuzz target: the input is a file of tokens, of either width, or a text of characters or bytes.
 * It is refused, or every sample is there, and its tokens are within the vocabulary.  Tokens may
 * have an index of Megatron's beside them.
 *
 * The input begins with a header of four bytes:
 *     0  the kind, two bits (enum kind), and flags: VALIDATES ...; with INDEXED the first INDEX
 *        bytes that follow the header, or as many as there are, are the index
 *     1  the context, from 0
 *     2  the vocabulary, 16 bits, little-endian; 0: the data say */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "data/foreign.h"
#include "input.h"
#include "scratch.h"

enum kind { UINT16, UINT32, CHARS, BYTES };

enum {
    KIND = 3,
    VALIDATES = 4,
    ALL_TRAINS = 8, /* a text has no validation part */
    TWICE = 16,     /* tokens: the file is given twice */
    IGNORES = 32,   /* the job ignores token IGNORED as a target */
    INDEXED = 64,   /* tokens: a.bin and a.idx */
    PACKS = 128,    /* tokens: documents, which the token 2 ends */
    IGNORED = 1,
    HEADER = 4,
    INDEX = 20, /* two bytes more than are read */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int flags;

/* A document begins at this place, or goes on. */
static int begins(const int32_t *starts, int64_t k)
{
    if (!starts)
        return k == 0;
    ASSERT(starts[k] == k || (k > 0 && starts[k] == starts[k - 1]));
    return starts[k] == k;
}

/* The targets are the tokens, one place further on. */
static void check_tokens(const struct dataset *ds, void *const *field)
{
    const int32_t *x = field[0], *y = field[1], *starts = ds->spec.n_fields > 2 ? field[2] : NULL;

    for (int64_t k = 0; k < ds->spec.field[0].shape.dim[0]; k++) {
        const int is_padding = starts && x[k] == 0 && starts[k] == k;
        const int is_ignored = (flags & IGNORES || is_padding) && y[k] == SAMPLE_IGNORED;

        ASSERT(x[k] >= 0 && x[k] < ds->spec.field[0].n_classes);
        ASSERT(is_ignored || (y[k] >= 0 && y[k] < ds->spec.field[1].n_classes));
        ASSERT(!(flags & IGNORES) || y[k] != IGNORED);
        if (!begins(starts, k))
            ASSERT(x[k] == (y[k - 1] == SAMPLE_IGNORED ? IGNORED : y[k - 1]));
    }
}

/* The kind of a file is told in the same way for any size, without a byte beyond its end. */
static void check_foreign(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size + !size);
    const struct foreign *kind;

    ASSERT(exact);
    if (size > 0)
        memcpy(exact, data, size);
    kind = foreign_find(exact, size);
    ASSERT(!kind || (kind->what[0] && kind->remedy[0]));
    ASSERT(!foreign_is_megatron(exact, size) || size >= 9);
    free(exact);
}

static void check_opened(const struct dataset *ds, const struct dataset_request *request)
{
    ASSERT(ds->spec.field[0].shape.dim[0] == request->context);
    ASSERT(!request->vocab || ds->spec.field[0].n_classes == request->vocab);
    ASSERT((ds->spec.n_fields == 3) == (flags & PACKS && !strcmp(ds->ops->name, "tokens")));
    input_samples(ds, check_tokens);
}

/* a.bin with a.idx beside it. */
static void open_indexed(const uint8_t *data, size_t size, const struct dataset_request *request)
{
    char *folder = scratch_folder(), *index = xasprintf("%s/a.idx", folder),
         *tokens = xasprintf("%s/a.bin", folder);
    const size_t n_index = size < INDEX ? size : INDEX;
    const struct setting settings[] = {{"data.path", folder},
                                       {"data.train", "a.bin"},
                                       {"data.validation", "a.bin"},
                                       {"data.dtype", flags & UINT32 ? "uint32" : "uint16"},
                                       {"data.pack", flags & PACKS ? "true" : "false"},
                                       {"data.end_token", "2"},
                                       {NULL}};
    struct dataset *ds = NULL;
    struct err err = {0};

    scratch_write(index, data, n_index);
    scratch_write(tokens, data + n_index, size - n_index);
    if (open_set(&ds, &format_tokens, settings, request, &err) == 0)
        check_opened(ds, request);
    else
        ASSERT(err.msg[0]);
    dataset_close(ds);
    unlink(index);
    unlink(tokens);
    rmdir(folder);
    free(index);
    free(tokens);
    free(folder);
}

static void open_kind(enum kind kind, int fd, const struct dataset_request *request)
{
    const int is_text = kind == CHARS || kind == BYTES;
    char names[40], path[64];
    const struct setting tokens[] = {{"data.path", "/proc/self/fd"},
                                     {"data.train", names},
                                     {"data.validation", names},
                                     {"data.dtype", kind == UINT32 ? "uint32" : "uint16"},
                                     {"data.pack", flags & PACKS ? "true" : "false"},
                                     {"data.end_token", "2"},
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
        check_opened(ds, request);
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
        .warn = input_hear,
    };
    check_foreign(data + HEADER, size - HEADER);
    if (flags & INDEXED && (flags & KIND) <= UINT32) {
        open_indexed(data + HEADER, size - HEADER, &request);
        return 0;
    }
    fd = input_file(data + HEADER, size - HEADER);
    open_kind((enum kind)(flags & KIND), fd, &request);
    close(fd);
    return 0;
}
