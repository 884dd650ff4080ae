/* documents - the documents of a corpus, one after the other: a .txt file is one, and so is each
 * line of a .jsonl file, a mapping of JSON with these keys:
 *
 *     messages              a conversation: [{"role": "user", "content": "..."}, ...]
 *     prompt, completion    two texts, of which the second one is to be learnt
 *     text                  a text
 *
 * Of a line that has several of them, the first of this list counts.  Other keys are left out, and
 * so are lines of blanks.
 *
 * Where pairs of answers are wanted, lines have these keys, and each is two documents, first that
 * with the rejected answer:
 *
 *     prompt, chosen, rejected   three texts, or three lists of messages
 *     chosen, rejected           two lists of messages, which begin with the same ones: the prompt
 *
 * Threads: pure.
 * Errors:  ERR_CORRUPT, as FILE: line N: seen, wanted; ERR_IO. */
#ifndef DATA_DOCUMENTS_H
#define DATA_DOCUMENTS_H

#include <stddef.h>

#include "data/chat.h"
#include "data/corpus.h"

enum documents_of { DOCUMENTS_OF_ANY, DOCUMENTS_OF_PAIRS };

enum document_kind { DOCUMENT_TEXT, DOCUMENT_PROMPT, DOCUMENT_CHAT };

struct document {
    enum document_kind kind;
    const char *text; /* the text, or the prompt: n bytes; of a .txt file they may be anything */
    size_t n;
    const char *completion; /* DOCUMENT_PROMPT: n_completion bytes */
    size_t n_completion;
    const struct chat_message *message; /* DOCUMENT_CHAT: n_messages, one at least an answer */
    int n_messages;
    int n_given; /* the first messages, which are the prompt of a pair */
};

/* Takes the next document, which is borrowed during the call.  Messages get its file, and its line,
 * in front. */
typedef int documents_take(void *arg, const struct document *d, struct err *err);

/* Hand all documents of the corpus to `take`, until it fails. */
int documents_each(const struct corpus *c, enum documents_of of, documents_take *take, void *arg,
                   struct err *err);

/* The same for the n bytes of a .jsonl file. */
int documents_each_line(const char *s, size_t n, enum documents_of of, documents_take *take,
                        void *arg, struct err *err);

#endif
