/* tokenizer_impl - what a tokenizer.json says, for the files of this room.
 *
 *     read.c, read_parts.c   the file
 *     encode.c               a text: added tokens, normalizers, pieces, byte pairs, in this order
 *     added.c                where a text has tokens that are taken as they are
 *     normal.c               the changes of a text before it is cut
 *     pieces.c               the cuts of a text into pieces, which are encoded one by one
 *     bpe.c                  byte pair encoding of a piece
 *     decode.c               the way back
 *
 * Threads: see tokenizer.h. */
#ifndef TOKENIZER_TOKENIZER_IMPL_H
#define TOKENIZER_TOKENIZER_IMPL_H

#include <jansson.h>

#include "base/arena.h"
#include "tokenizer/pattern.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

enum {
    TOKENIZER_MOST_TOKENS = 1 << 24,
    TOKENIZER_MOST_STEPS = 16, /* of a sequence: normalizers, cuts, decoders */
    TOKENIZER_CACHED = 23,     /* bytes of the longest piece whose tokens are kept */
    TOKENIZER_CACHED_TOKENS = 8,
    TOKENIZER_TAKEN = 1 << 14, /* tokens that are handed on at once, and some */
};

/* The texts of tokens, by number. */
struct token_text {
    const char *text; /* in the arena; NULL: no token has the number */
    uint32_t len;
    int is_special;
};

/* A token that is looked for in the text itself. */
struct added_token {
    const char *text; /* in the arena */
    size_t len;
    int32_t number;
    int is_single_word;          /* 1: not where it is a part of a word */
    int takes_left, takes_right; /* 1: white space beside it belongs to it */
};

struct added_tokens {
    struct added_token *token; /* [n], by first byte, then longest first */
    int n;
    int first[257]; /* first[c]: where those begin that begin with byte c */
};

enum normal_kind { NORMAL_FORM, NORMAL_PREPEND, NORMAL_REPLACE };

struct normal_step {
    enum normal_kind kind;
    int form;                /* NORMAL_FORM: options of utf8proc_map */
    struct pattern *pattern; /* NORMAL_REPLACE */
    int byte;                /* ... a pattern that is this one byte; -1: another one */
    const char *text;        /* what is prepended, or what replaces; in the arena */
    size_t len;
};

enum piece_kind { PIECE_SPLIT, PIECE_PREFIX, PIECE_SPACES };

/* The fate of matches, in the order of the library's words. */
enum piece_behavior {
    PIECE_REMOVED,
    PIECE_ISOLATED,
    PIECE_WITH_PREVIOUS,
    PIECE_WITH_NEXT,
    PIECE_CONTIGUOUS
};

enum piece_prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct piece_step {
    enum piece_kind kind;
    struct pattern *pattern; /* PIECE_SPLIT */
    enum piece_behavior behavior;
    int is_inverted;            /* matches are what lies between those of the pattern */
    enum piece_prepend prepend; /* PIECE_SPACES */
    const char *text; /* PIECE_PREFIX: before a piece without it; PIECE_SPACES: in place */
    size_t len;       /* of each space; in the arena */
};

enum decode_kind {
    DECODE_BYTES,    /* ByteLevel */
    DECODE_FALLBACK, /* ByteFallback */
    DECODE_FUSE,
    DECODE_REPLACE,
    DECODE_STRIP,
    DECODE_SPACES /* Metaspace */
};

struct decode_step {
    enum decode_kind kind;
    struct pattern *pattern; /* DECODE_REPLACE */
    const char *text;        /* what replaces, is stripped, or stands for a space; in the arena */
    size_t len;
    int64_t n_start, n_stop; /* DECODE_STRIP: at most so many, at each end */
    int drops_first;         /* DECODE_SPACES: the first token's are none */
};

struct tokenizer {
    struct arena arena;
    struct hash128 hash;
    struct token_text *text; /* [n_texts] by number */
    int64_t n_texts, room_texts;
    struct vocab vocab; /* by the texts of the file */
    size_t n_model;     /* of these, how many are the model's */
    /* The model. */
    struct pairs pairs;
    struct vocab whole; /* ignore_merges: pieces that are tokens, by their bytes; else empty */
    int is_bytes;       /* 1: pieces are bytes; 0: characters */
    int32_t byte[256];  /* the token of a byte, or of byte fallback; -1: none */
    int has_fallback, fuses_unknown;
    int32_t unknown;  /* -1: none */
    int cuts_at_mark; /* 1: no merge goes over a U+2581 that begins a word (bpe.c) */
    /* The steps. */
    struct added_tokens raw, normalized; /* looked for before the normalizers, and after */
    struct normal_step normal[TOKENIZER_MOST_STEPS];
    struct piece_step piece[TOKENIZER_MOST_STEPS];
    struct decode_step decode[TOKENIZER_MOST_STEPS];
    int n_normal, n_piece, n_decode;
    int32_t *before, *after; /* what the post-processor adds; in the arena */
    size_t n_before, n_after;
};

struct bpe_cached {
    uint8_t len; /* of bytes; 0: free */
    char bytes[TOKENIZER_CACHED];
    uint32_t n;
    int32_t token[TOKENIZER_CACHED_TOKENS];
};

struct tokenizer_work {
    const struct tokenizer *t;
    struct pattern_room *room;
    struct bpe_cached *cache;
    struct buf scratch[TOKENIZER_MOST_STEPS]; /* texts that a step of `piece` made */
    struct buf normal[2];                     /* ... of `normal` */
    struct buf units;                         /* bpe.c: numbers, links and a heap */
    struct buf tokens;                        /* int32_t, not yet taken */
    tokenizer_take *take;
    void *arg;
};

/* ---- encode.c ---- */

int tokenizer_put(struct tokenizer_work *w, int32_t token, struct err *err);
/* Hand on what is there, if it is `least` tokens or more. */
int tokenizer_hand_on(struct tokenizer_work *w, size_t least, struct err *err);

/* ---- bpe.c ---- */

int bpe_piece(struct tokenizer_work *w, const char *s, size_t n, struct err *err);

/* ---- pieces.c ---- */

/* Cut s[0..n) by the steps from number `step` on, and encode the pieces; is_first: s begins the
 * text. */
int pieces_cut(struct tokenizer_work *w, int step, const char *s, size_t n, int is_first,
               struct err *err);

/* ---- normal.c ---- */

/* *s, *n: the text, then the changed one, in w's memory. */
int normal_apply(struct tokenizer_work *w, const char **s, size_t *n, struct err *err);

/* ---- added.c ---- */

/* The next token in s[0..n), after the one that *m was filled with; zeroes before the first.  1:
 * there is one; 0: there is none, and m->done is where the last one ended. */
struct added_match {
    size_t start, end; /* with white space that the token takes */
    int32_t number;
    size_t done;   /* the end of the match before */
    size_t search; /* where the search goes on */
};
int added_next(const struct added_tokens *a, const char *s, size_t n, struct added_match *m);
void added_index(struct added_tokens *a); /* sort the tokens, and note where each byte's begin */

/* ---- read.c, read_parts.c ---- */

int tokenizer_read_parts(struct tokenizer *t, const json_t *root, struct err *err);

/* The pieces of the ByteLevel form: the characters that stand for bytes. */
uint32_t tokenizer_char_of_byte(uint8_t byte);
int tokenizer_byte_of_char(uint32_t code); /* -1: none */

/* A member: its text; NULL where it is absent or null. */
const char *tokenizer_text(const json_t *object, const char *key, size_t *len);

#endif
