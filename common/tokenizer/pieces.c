/* pieces - the cuts of a text, which the library calls pre-tokenizers.  Each step cuts what the
 * step before it made; a piece goes through all of them before the next one is cut, so no list of
 * pieces is kept. */
#include <string.h>

#include "base/util.h"
#include "tokenizer/tokenizer_impl.h"

/* The parts that a step makes of s: they come in order, matches and what lies between them. */
struct piece_cut {
    struct tokenizer_work *w;
    int step; /* that takes the pieces */
    const char *s;
    int is_first;
    enum piece_behavior behavior;
    int is_held; /* 1: [start, end) waits for the part that follows */
    int held_is_match;
    size_t start, end;
};

static int piece_emit(const struct piece_cut *c, size_t start, size_t end, struct err *err)
{
    return end > start ? pieces_cut(c->w, c->step, c->s + start, end - start,
                                    c->is_first && start == 0, err)
                       : 0;
}

static int piece_release(struct piece_cut *c, struct err *err)
{
    const int was = c->is_held;

    c->is_held = 0;
    return was ? piece_emit(c, c->start, c->end, err) : 0;
}

/* 1: the part that follows belongs to the one that is held. */
static int piece_joins(const struct piece_cut *c, int is_match)
{
    if (!c->is_held)
        return 0;
    return c->behavior == PIECE_CONTIGUOUS      ? c->held_is_match == is_match
           : c->behavior == PIECE_WITH_PREVIOUS ? !c->held_is_match && is_match
                                                : c->held_is_match && !is_match;
}

static int piece_part(struct piece_cut *c, size_t start, size_t end, int is_match, struct err *err)
{
    if (start == end)
        return 0;
    if (c->behavior == PIECE_REMOVED && is_match)
        return 0;
    if (c->behavior <= PIECE_ISOLATED)
        return piece_emit(c, start, end, err);
    if (piece_joins(c, is_match)) {
        c->end = end;
        c->held_is_match = is_match;
        return 0;
    }
    if (piece_release(c, err) < 0)
        return err->code;
    c->is_held = 1;
    c->held_is_match = is_match;
    c->start = start;
    c->end = end;
    return 0;
}

static int piece_split(struct tokenizer_work *w, int step, const char *s, size_t n, int is_first,
                       struct err *err)
{
    const struct piece_step *const p = &w->t->piece[step];
    struct piece_cut c = {
        .w = w, .step = step + 1, .s = s, .is_first = is_first, .behavior = p->behavior};
    size_t at = 0, start, end;
    int rc;

    while ((rc = pattern_find(p->pattern, w->room, s, n, at, &start, &end, err)) > 0) {
        rc = piece_part(&c, at, start, p->is_inverted, err);
        if (rc == 0)
            rc = piece_part(&c, start, end, !p->is_inverted, err);
        if (rc < 0)
            break;
        at = end;
    }
    if (rc == 0)
        rc = piece_part(&c, at, n, p->is_inverted, err);
    return rc == 0 ? piece_release(&c, err) : rc;
}

/* s, with the step's text before it if it does not begin so. */
static int piece_prefix(struct tokenizer_work *w, int step, const char *s, size_t n, int is_first,
                        struct err *err)
{
    const struct piece_step *const p = &w->t->piece[step];
    struct buf *const b = &w->scratch[step];

    if (n >= p->len && !memcmp(s, p->text, p->len))
        return pieces_cut(w, step + 1, s, n, is_first, err);
    buf_clear(b);
    buf_append(b, p->text, p->len);
    if (buf_try_append(b, s, n, "a piece of text", err) < 0)
        return err->code;
    return pieces_cut(w, step + 1, (const char *)b->data, b->len, is_first, err);
}

/* Metaspace: each space becomes the mark, and one may be put in front. */
static int piece_spaces(struct tokenizer_work *w, int step, const char *s, size_t n, int is_first,
                        struct err *err)
{
    const struct piece_step *const p = &w->t->piece[step];
    const int begins = (n > 0 && s[0] == ' ') || (n >= p->len && !memcmp(s, p->text, p->len));
    struct buf *const b = &w->scratch[step];

    buf_clear(b);
    if (!begins && (p->prepend == PREPEND_ALWAYS || (p->prepend == PREPEND_FIRST && is_first)))
        buf_append(b, p->text, p->len);
    for (size_t at = 0, len; at < n; at += len) {
        const char *const space = memchr(s + at, ' ', n - at);

        len = space ? (size_t)(space - (s + at)) : n - at;
        if (buf_try_append(b, s + at, len, "a piece of text", err) < 0)
            return err->code;
        if (space) {
            buf_append(b, p->text, p->len);
            len++;
        }
    }
    return pieces_cut(w, step + 1, (const char *)b->data, b->len, is_first, err);
}

int pieces_cut(struct tokenizer_work *w, int step, const char *s, size_t n, int is_first,
               struct err *err)
{
    if (step == w->t->n_piece)
        return bpe_piece(w, s, n, err);
    switch (w->t->piece[step].kind) {
    case PIECE_SPLIT:
        return piece_split(w, step, s, n, is_first, err);
    case PIECE_PREFIX:
        return piece_prefix(w, step, s, n, is_first, err);
    case PIECE_SPACES:
        return piece_spaces(w, step, s, n, is_first, err);
    }
    ASSERT(!"a kind of step");
    return 0;
}
