/* chat - conversations as texts, in the forms that networks were tuned with.
 *
 *     chatml    <|im_start|>user\nTEXT<|im_end|>\n                            Qwen, SmolLM
 *     llama3    <|start_header_id|>user<|end_header_id|>\n\nTEXT<|eot_id|>    Llama 3
 *     mistral   [INST] TEXT[/INST] ANSWER</s>                                 Mistral
 *     phi3      <|user|>\nTEXT<|end|>\n                                       Phi-3
 *     gemma     <start_of_turn>user\nTEXT<end_of_turn>\n                      Gemma
 *
 * A network's own form is in its folder, as a template in the language Jinja.  The template is not
 * run.  The form is known by its marks, and what differs between networks of a form (the beginning,
 * a system message of its own, blanks) is looked up in the template.  A template that does more is
 * refused by what it has: thoughts that it leaves out, or today's date.
 *
 * Threads: any; pure.
 * Errors:  ERR_CONFIG (the template), ERR_CORRUPT (a conversation that the form cannot write). */
#ifndef DATA_CHAT_H
#define DATA_CHAT_H

#include "base/buf.h"

enum chat_form { CHAT_AUTO, CHAT_CHATML, CHAT_LLAMA3, CHAT_MISTRAL, CHAT_PHI3, CHAT_GEMMA };

#define CHAT_FORM_WORDS                                                       \
    [CHAT_AUTO] = "auto", [CHAT_CHATML] = "chatml", [CHAT_LLAMA3] = "llama3", \
    [CHAT_MISTRAL] = "mistral", [CHAT_PHI3] = "phi3", [CHAT_GEMMA] = "gemma"

#define CHAT_FORMS "chatml, llama3, mistral, phi3 or gemma"

/* The word of a form, as a job file has it. */
const char *chat_word(enum chat_form form);

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_N_ROLES };

extern const char *const chat_roles[CHAT_N_ROLES + 1]; /* "system" ...; NULL at the end */

struct chat_message {
    enum chat_role role;
    const char *text; /* n bytes */
    size_t n;
};

/* A form, as a network has it.  Texts are at most as long as here. */
enum { CHAT_MOST_MARK = 64, CHAT_MOST_SYSTEM = 1024 };

struct chat {
    enum chat_form form;
    char begin[CHAT_MOST_MARK];    /* before the first message */
    char end[CHAT_MOST_MARK];      /* after the last one */
    char system[CHAT_MOST_SYSTEM]; /* that of a conversation without one; "": none */
    /* Around each role's text.  An answer's `after` begins with its end mark. */
    struct {
        char before[CHAT_MOST_MARK], after[CHAT_MOST_MARK];
    } part[CHAT_N_ROLES];
    char lead[4];            /* before an answer's text, and a part of it */
    size_t mark;             /* bytes of the end mark */
    int trims[CHAT_N_ROLES]; /* 1: blanks around the text are left out */
    int has_system;          /* 0: a system message is refused */
    int system_is_of_user;   /* 1: it stands before the first user's text, with an empty line */
    int alternates;          /* 1: user and assistant take turns, the user first */
};

/* The form of a template.  begin, end: the texts of the tokens bos_token and eos_token; NULL: they
 * are not known. */
int chat_find(struct chat *out, const char *template, const char *begin, const char *end,
              struct err *err);

/* The form that the user chose, not CHAT_AUTO, as it mostly is. */
int chat_choose(struct chat *out, enum chat_form form, const char *begin, const char *end,
                struct err *err);

/* Where an answer is in a text: its bytes [begin, end), its end mark included. */
struct chat_span {
    size_t begin, end;
};

/* Append the text of n messages to `out`, and a struct chat_span for each answer to `answers`. */
int chat_write(const struct chat *c, const struct chat_message *message, int n, struct buf *out,
               struct buf *answers, struct err *err);

/* A special token of the form, by which it is told if a tokenizer knows the form. */
const char *chat_mark(enum chat_form form);

#endif
