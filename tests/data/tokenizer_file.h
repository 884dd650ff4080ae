/* tokenizer_file - writes a tokenizer.json for the tests: byte pair encoding of bytes, in which
 * byte b has the number b, "th" has number 256, and the special tokens follow. */
#ifndef TESTS_DATA_TOKENIZER_FILE_H
#define TESTS_DATA_TOKENIZER_FILE_H

#include "idx_file.h"
#include "tokenizer/tokenizer_impl.h"

enum { TOKEN_TH = 256, TOKEN_END, TOKEN_FIRST_SPECIAL = TOKEN_END };

static const char *const tokenizer_specials[] = {"<end>",
                                                 "<begin>",
                                                 "<|im_start|>",
                                                 "<|im_end|>",
                                                 "<|start_header_id|>",
                                                 "<|end_header_id|>",
                                                 "<|eot_id|>",
                                                 "<start_of_turn>",
                                                 "<end_of_turn>",
                                                 "<|user|>",
                                                 "<|assistant|>",
                                                 "<|end|>"};

enum { TOKENIZER_VOCAB = TOKEN_FIRST_SPECIAL + ARRAY_LEN(tokenizer_specials) };

/* Append a byte's character, as JSON. */
static inline void put_byte_char(struct buf *b, int byte)
{
    buf_printf(b, "\\u%04x", (unsigned)tokenizer_char_of_byte((uint8_t)byte));
}

static inline void write_texts(const char *folder, const char *name, const char *text)
{
    struct buf b = {0};

    buf_append(&b, text, strlen(text));
    write_file(folder, name, &b);
    buf_fini(&b);
}

/* FOLDER/tokenizer.json; begins: 1: its post-processor puts <begin> before a text. */
static inline void write_tokenizer(const char *folder, int begins)
{
    struct buf b = {0};

    buf_printf(&b, "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                   "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false},");
    if (begins)
        buf_printf(&b,
                   "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                   "\"SpecialToken\":{\"id\":\"<begin>\",\"type_id\":0}},{\"Sequence\":{\"id\":"
                   "\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<begin>\":{\"id\":"
                   "\"<begin>\",\"ids\":[%d],\"tokens\":[\"<begin>\"]}}},",
                   TOKEN_FIRST_SPECIAL + 1);
    buf_printf(&b, "\"added_tokens\":[");
    for (size_t i = 0; i < ARRAY_LEN(tokenizer_specials); i++)
        buf_printf(&b, "%s{\"id\":%zu,\"content\":\"%s\",\"special\":true,\"normalized\":false}",
                   i ? "," : "", TOKEN_FIRST_SPECIAL + i, tokenizer_specials[i]);
    buf_printf(&b, "],\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int byte = 0; byte < 256; byte++) {
        buf_printf(&b, "\"");
        put_byte_char(&b, byte);
        buf_printf(&b, "\":%d,", byte);
    }
    buf_printf(&b, "\"th\":%d},\"merges\":[[\"t\",\"h\"]]}}", TOKEN_TH);
    write_file(folder, "tokenizer.json", &b);
    buf_fini(&b);
}

#endif
