/* Fuzz target: the input is a chat template, a zero byte, and a .jsonl file.  The template is
 * refused, or has a form; the lines are refused, or are documents, or pairs, and a conversation
 * becomes a text that has its answers in order, by the template's form and by each other one. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/documents.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_talk(const struct chat *c, const struct document *d)
{
    struct buf text = {0}, answers = {0};
    struct err err = {0};
    size_t at = 0;

    if (chat_write(c, d->message, d->n_messages, &text, &answers, &err) == 0) {
        const struct chat_span *const span = (const struct chat_span *)(const void *)answers.data;

        for (size_t i = 0; i < answers.len / sizeof *span; i++) {
            ASSERT(span[i].begin >= at && span[i].begin <= span[i].end);
            at = span[i].end;
        }
        ASSERT(at <= text.len);
    } else {
        ASSERT(err.msg[0]);
    }
    buf_fini(&text);
    buf_fini(&answers);
}

static int take(void *arg, const struct document *d, struct err *err)
{
    const struct chat *const found = arg;
    struct chat c;

    ASSERT(d->kind == DOCUMENT_CHAT || d->text);
    ASSERT(d->n_given == 0 || d->n_given < d->n_messages);
    for (int form = CHAT_AUTO; d->kind == DOCUMENT_CHAT && form <= CHAT_GEMMA; form++) {
        if (form != CHAT_AUTO)
            ASSERT(chat_choose(&c, (enum chat_form)form, "<b>", "<e>", err) == 0);
        if (form != CHAT_AUTO || found->form != CHAT_AUTO)
            write_talk(form != CHAT_AUTO ? &c : found, d);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *const end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t n = end ? (size_t)(end - data) : size;
    char *template = xcalloc(n + 1, 1), *lines = xcalloc(size - n + 1, 1);
    struct chat found;
    struct err err = {0};

    if (n > 0)
        memcpy(template, data, n);
    if (chat_find(&found, template, size % 2 ? "<b>" : NULL, "<e>", &err) < 0) {
        ASSERT(err.msg[0]);
        found.form = CHAT_AUTO;
    }
    if (end) {
        memcpy(lines, end + 1, size - n - 1);
        for (int of = DOCUMENTS_OF_ANY; of <= DOCUMENTS_OF_PAIRS; of++)
            ASSERT(documents_each_line(lines, size - n - 1, (enum documents_of)of, take, &found,
                                       &err) == 0 ||
                   err.msg[0]);
    }
    free(template);
    free(lines);
    return 0;
}
