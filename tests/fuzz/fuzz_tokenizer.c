/* Fuzz target: the input is a tokenizer.json, a zero byte, and a text.  The file is refused, or the
 * text becomes tokens of its vocabulary, twice the same, which have a text. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int keep(void *arg, const int32_t *token, size_t n, struct err *err)
{
    (void)err;
    buf_append(arg, token, n * sizeof *token);
    return 0;
}

static void encode(const struct tokenizer *t, const char *text, size_t n)
{
    struct tokenizer_work *const w = tokenizer_work_new(t);
    struct buf once = {0}, twice = {0}, back = {0};
    struct err err = {0};
    const int rc = tokenizer_encode(w, text, n, TOKENIZER_BARE, keep, &once, &err);

    ASSERT(rc == 0 || err.msg[0]);
    ASSERT(tokenizer_encode(w, text, n, TOKENIZER_BARE, keep, &twice, &err) == rc);
    ASSERT(once.len == twice.len && (once.len == 0 || !memcmp(once.data, twice.data, once.len)));
    if (once.len > 0 && tokenizer_decode(t, (const int32_t *)once.data, once.len / sizeof(int32_t),
                                         TOKENIZER_SPECIAL, &back, &err) < 0)
        ASSERT(err.code != ERR_ARG);
    (void)tokenizer_encode(w, text, n, TOKENIZER_SPECIAL, keep, &twice, &err);
    buf_fini(&once);
    buf_fini(&twice);
    buf_fini(&back);
    tokenizer_work_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *const end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t len = end ? (size_t)(end - data) : size;
    struct tokenizer *t = NULL;
    struct err err = {0};

    log_init("fuzz", LOG_TEXT, LOG_ERROR);
    if (tokenizer_parse(&t, (const char *)data, len, &err) < 0) {
        ASSERT(err.msg[0]);
        return 0;
    }
    if (end)
        encode(t, (const char *)end + 1, size - len - 1);
    tokenizer_free(t);
    return 0;
}
