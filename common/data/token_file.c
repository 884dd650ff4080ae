/* token_file - writes and reads the file of a corpus's tokens.  Nothing of it is trusted: a file of
 * another length than its header says is none, and numbers are compared with the vocabulary when
 * they are read. */
#include "data/token_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

enum {
    TOKEN_FILE_VERSION = 1,
    TOKEN_FILE_HEADER = 64,
    TOKEN_FILE_BLOCK = 1 << 20, /* bytes that are written at once */
    TOKEN_FILE_MOST_DOCUMENTS = 1 << 30,
    TOKEN_FILE_MOST_VOCAB = 1 << 30,
};

#define TOKEN_FILE_UNLEARNT 0x80000000U

struct token_header {
    char magic[8];
    uint32_t version, kind;
    struct hash128 key;
    int64_t n_tokens, n_documents, vocab;
    int32_t end;
    uint32_t reserved;
};

_Static_assert(sizeof(struct token_header) == TOKEN_FILE_HEADER, "the header's size");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's numbers are little-endian");

static const char token_file_magic[8] = "dptokens";

/* ---- reading ---- */

static int64_t token_file_length(const struct token_header *h)
{
    return TOKEN_FILE_HEADER + h->n_tokens * (int64_t)sizeof(uint32_t) +
           (h->n_documents + 1) * (int64_t)sizeof(uint64_t);
}

static int token_file_is_whole(const struct token_header *h, size_t n_bytes, struct hash128 key)
{
    return !memcmp(h->magic, token_file_magic, sizeof h->magic) &&
           h->version == TOKEN_FILE_VERSION && h->kind <= TOKEN_FILE_PAIRS &&
           (h->kind != TOKEN_FILE_PAIRS || h->n_documents % 2 == 0) && hash_equal(h->key, key) &&
           h->n_tokens > 0 && h->n_tokens < INT64_MAX / 16 && h->n_documents > 0 &&
           h->n_documents <= TOKEN_FILE_MOST_DOCUMENTS && h->vocab > 0 &&
           h->vocab <= TOKEN_FILE_MOST_VOCAB && h->end >= -1 && h->end < h->vocab &&
           token_file_length(h) == (int64_t)n_bytes;
}

int token_file_open(struct token_file *out, const char *path, struct hash128 key, struct err *err)
{
    struct token_header h;

    *out = (struct token_file){0};
    if (access(path, R_OK) < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
        return TOKEN_FILE_NONE;
    if (mapped_open(&out->file, path, err) < 0)
        return err->code;
    if (out->file.n_bytes >= sizeof h)
        memcpy(&h, out->file.bytes, sizeof h);
    if (out->file.n_bytes < sizeof h || !token_file_is_whole(&h, out->file.n_bytes, key)) {
        token_file_close(out);
        return TOKEN_FILE_NONE;
    }
    out->facts = (struct token_facts){.kind = (enum token_file_kind)h.kind,
                                      .n_tokens = h.n_tokens,
                                      .n_documents = h.n_documents,
                                      .vocab = h.vocab,
                                      .end = h.end};
    return 0;
}

void token_file_close(struct token_file *f) { mapped_close(&f->file); }

static int token_file_damaged(const struct token_file *f, size_t offset, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "file %s: offset %zu: damaged; remove it, and it is made anew",
                   f->file.path, offset);
}

int token_file_document(const struct token_file *f, int64_t i, int64_t *first, int64_t *n,
                        struct err *err)
{
    const size_t offset =
        TOKEN_FILE_HEADER + (size_t)f->facts.n_tokens * sizeof(uint32_t) + (size_t)i * 8;
    uint64_t place[2];

    ASSERT(i >= 0 && i < f->facts.n_documents);
    if (mapped_read(&f->file, offset, place, sizeof place, err) < 0)
        return err->code;
    if (place[0] >= place[1] || place[1] > (uint64_t)f->facts.n_tokens)
        return token_file_damaged(f, offset, err);
    *first = (int64_t)place[0];
    *n = (int64_t)(place[1] - place[0]);
    return 0;
}

int token_file_read(const struct token_file *f, int64_t first, int64_t n, int32_t *token,
                    uint8_t *unlearnt, struct err *err)
{
    const size_t offset = TOKEN_FILE_HEADER + (size_t)first * sizeof(uint32_t);

    ASSERT(first >= 0 && n >= 0 && n <= f->facts.n_tokens - first);
    if (mapped_read(&f->file, offset, token, (size_t)n * sizeof *token, err) < 0)
        return err->code;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = (uint32_t)token[i];

        token[i] = (int32_t)(word & ~TOKEN_FILE_UNLEARNT);
        if (unlearnt)
            unlearnt[i] = (word & TOKEN_FILE_UNLEARNT) != 0;
        if (token[i] >= f->facts.vocab)
            return token_file_damaged(f, offset + (size_t)i * sizeof *token, err);
    }
    return 0;
}

/* ---- writing ---- */

static int token_writer_write(struct token_writer *w, const void *data, size_t n, int64_t offset,
                              struct err *err)
{
    for (size_t done = 0; done < n;) {
        const ssize_t len =
            pwrite(w->fd, (const char *)data + done, n - done, (off_t)(offset + (int64_t)done));

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return err_sys(err, errno,
                           "cannot write the tokens of the texts to %s, after %lld MB "
                           "(data.cache names another folder for them)",
                           w->path, (long long)(w->offset >> 20));
        done += (size_t)len;
    }
    return 0;
}

static int token_writer_flush(struct token_writer *w, struct err *err)
{
    const int rc = token_writer_write(w, w->tokens.data, w->tokens.len, w->offset, err);

    w->offset += (int64_t)w->tokens.len;
    buf_clear(&w->tokens);
    return rc;
}

void token_writer_open(struct token_writer *w, int fd, const char *path)
{
    const uint64_t none = 0;

    *w = (struct token_writer){.fd = fd, .path = path, .offset = TOKEN_FILE_HEADER};
    buf_append(&w->documents, &none, sizeof none);
}

int token_writer_put(struct token_writer *w, const int32_t *token, size_t n, int is_learnt,
                     struct err *err)
{
    uint32_t *const to = (uint32_t *)(void *)buf_reserve(&w->tokens, n * sizeof *to);

    for (size_t i = 0; i < n; i++)
        to[i] = (uint32_t)token[i] | (is_learnt ? 0 : TOKEN_FILE_UNLEARNT);
    w->tokens.len += n * sizeof *to;
    w->n_tokens += (int64_t)n;
    return w->tokens.len >= TOKEN_FILE_BLOCK ? token_writer_flush(w, err) : 0;
}

int token_writer_end(struct token_writer *w, struct err *err)
{
    const uint64_t place = (uint64_t)w->n_tokens;

    if (w->documents.len / sizeof place > TOKEN_FILE_MOST_DOCUMENTS)
        return err_set(err, ERR_CORRUPT, "more than %d documents; divide the data",
                       TOKEN_FILE_MOST_DOCUMENTS);
    return buf_try_append(&w->documents, &place, sizeof place, "where documents begin", err);
}

int token_writer_finish(struct token_writer *w, struct hash128 key, const struct token_facts *facts,
                        struct err *err)
{
    const struct token_header h = {
        .magic = "dptokens",
        .version = TOKEN_FILE_VERSION,
        .kind = (uint32_t)facts->kind,
        .key = key,
        .n_tokens = w->n_tokens,
        .n_documents = (int64_t)(w->documents.len / sizeof(uint64_t)) - 1,
        .vocab = facts->vocab,
        .end = facts->end,
    };

    if (token_writer_flush(w, err) < 0 ||
        token_writer_write(w, w->documents.data, w->documents.len, w->offset, err) < 0 ||
        token_writer_write(w, &h, sizeof h, 0, err) < 0)
        return err->code;
    return fsync(w->fd) < 0
               ? err_sys(err, errno, "cannot write the tokens of the texts to %s", w->path)
               : 0;
}

void token_writer_drop(struct token_writer *w)
{
    buf_fini(&w->tokens);
    buf_fini(&w->documents);
}
