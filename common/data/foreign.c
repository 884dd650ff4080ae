/* foreign - the table of magics, and the kinds that have none of one piece.
 *
 * Bare numbers of 16 bits may begin with any bytes, so a magic of two or three bytes is not enough:
 * such kinds are known by more of their structure. */
#include "data/foreign.h"

#include <string.h>

#include "base/text.h"
#include "base/util.h"

enum {
    LEAST_TEXT = 64,  /* bytes: fewer may be numbers that look like characters */
    MOST_TEXT = 4096, /* bytes that are looked at */
    MOST_CHAR = 4,    /* bytes of a character */
};

#define NUMBERS  "store its token numbers by numpy.save()"
#define UNPACK   "unpack it"
#define MEGATRON "MMIDIDX\0\0"

static const struct magic {
    const char *bytes;
    size_t n, at;
    struct foreign kind;
} magics[] = {
#define MAGIC(text, at, what, remedy)                \
    {                                                \
        text, sizeof(text) - 1, at, { what, remedy } \
    }
    MAGIC("\x93NUMPY", 0, "an array of numpy.save()", "name it where arrays are read"),
    MAGIC("PK\3\4", 0, "a zip archive (numpy.savez()'s .npz, torch.save()'s .pt)", NUMBERS),
    MAGIC("PK\5\6", 0, "an empty zip archive", NUMBERS),
    MAGIC(MEGATRON, 0, "the index of Megatron's data", "name the file .bin beside it"),
    MAGIC("\x80\2\x8a\nl\xfc\x9c"
          "F\xf9 j\xa8P\x19.",
          0, "a file of torch.save(), of the old kind", NUMBERS),
    MAGIC("PAR1", 0, "a Parquet file", NUMBERS),
    MAGIC("ARROW1\0\0", 0, "an Arrow file", NUMBERS),
    MAGIC("\x89HDF\r\n\x1a\n", 0, "an HDF5 file", NUMBERS),
    MAGIC("GGUF", 0, "a model in GGUF", "name the file of token numbers"),
    MAGIC("\x28\xb5\x2f\xfd", 0, "compressed by zstd", UNPACK),
    MAGIC("\xfd"
          "7zXZ\0",
          0, "compressed by xz", UNPACK),
    MAGIC("\x04\x22\x4d\x18", 0, "compressed by lz4", UNPACK),
    MAGIC("1AY&SY", 4, "compressed by bzip2", UNPACK),
    MAGIC("ustar", 257, "a tar archive", UNPACK),
#undef MAGIC
};

static int foreign_has(const uint8_t *bytes, size_t n, const struct magic *m)
{
    return n >= m->at + m->n && !memcmp(bytes + m->at, m->bytes, m->n);
}

/* The method is deflate, and flags, level and system are some that are defined (RFC 1952). */
static int is_gzip(const uint8_t *b, size_t n)
{
    return n >= 18 && b[0] == 0x1f && b[1] == 0x8b && b[2] == 8 && b[3] < 0x20 &&
           (b[8] == 0 || b[8] == 2 || b[8] == 4) && (b[9] < 14 || b[9] == 255);
}

/* The length of a header, 64 bits, and the header, which is JSON with spaces at its end. */
static int is_safetensors(const uint8_t *b, size_t n)
{
    uint64_t len = 0;

    for (int i = 7; i >= 0 && n > 8; i--)
        len = len << 8 | b[i];
    return len >= 2 && len <= n - 8 && b[8] == '{' && (b[7 + len] == '}' || b[7 + len] == ' ');
}

/* Arrow's stream, of which the files of Hugging Face's data sets are: a message begins with 32 bits
 * of 1, and the length of its description, a multiple of 8. */
static int is_arrow_stream(const uint8_t *b, size_t n)
{
    return n >= 16 && !memcmp(b, "\xff\xff\xff\xff", 4) && b[4] % 8 == 0 && b[6] == 0 &&
           b[7] == 0 && (size_t)(b[4] | b[5] << 8) <= n - 8 && (b[4] || b[5]);
}

/* A pickle of protocol 2 to 5 begins with its version and an opcode, and ends with a dot. */
static int is_pickle(const uint8_t *b, size_t n)
{
    if (n < 16 || b[0] != 0x80 || b[1] < 2 || b[1] > 5 || b[n - 1] != '.')
        return 0;
    return b[1] < 4 ? strchr("]}(cX\x8a", b[2]) != NULL && b[2] != 0 : b[2] == 0x95;
}

/* The first bytes are characters of UTF-8, and none of them is a control character. */
static int foreign_is_text(const uint8_t *bytes, size_t n)
{
    char text[MOST_TEXT + 1];
    const size_t len = n < MOST_TEXT ? n : MOST_TEXT;

    if (n < LEAST_TEXT)
        return 0;
    memcpy(text, bytes, len);
    text[len] = 0;
    for (size_t at = 0; at < len;) {
        const uint8_t c = (uint8_t)text[at];
        const size_t char_len = text_char_len(text + at);

        if ((c < 0x20 && !(c >= '\t' && c <= '\r')) || c == 0x7f)
            return 0;
        if (char_len == 0) /* the last character may be cut off by the end of what is looked at */
            return n > len && at + MOST_CHAR > len;
        at += char_len;
    }
    return 1;
}

/* The kinds that are known by more than a magic. */
static const struct {
    int (*is)(const uint8_t *bytes, size_t n);
    struct foreign kind;
} shapes[] = {
    {is_gzip, {"compressed by gzip", UNPACK, 0}},
    {is_safetensors, {"a file of safetensors", NUMBERS, 0}},
    {is_arrow_stream, {"a stream of Arrow", NUMBERS, 0}},
    {is_pickle, {"a pickle of Python", NUMBERS, 0}},
    {foreign_is_text, {"plain text", "data.format: text reads it, or " NUMBERS, 1}},
};

const struct foreign *foreign_find(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(magics); i++)
        if (foreign_has(bytes, n, &magics[i]))
            return &magics[i].kind;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        if (shapes[i].is(bytes, n))
            return &shapes[i].kind;
    return NULL;
}

int foreign_is_megatron(const uint8_t *bytes, size_t n)
{
    return n >= sizeof MEGATRON - 1 && !memcmp(bytes, MEGATRON, sizeof MEGATRON - 1);
}
