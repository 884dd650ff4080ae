/* added - tokens that are looked for in the text itself, such as <|endoftext|>: the leftmost, and
 * of several there the longest, as the library's automaton finds them.  Few bytes of a text begin
 * one, so it is enough to try those that begin with the byte. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

/* The order of the file decides between equal ones: its numbers are in the places of `a`. */
static int added_order(const void *left, const void *right)
{
    const struct added_token *const a = left, *const b = right;
    const uint8_t x = (uint8_t)a->text[0], y = (uint8_t)b->text[0];

    if (x != y)
        return x < y ? -1 : 1;
    if (a->len != b->len)
        return a->len > b->len ? -1 : 1;
    return memcmp(a->text, b->text, a->len);
}

void added_index(struct added_tokens *a)
{
    int at = 0;

    if (a->n > 0)
        qsort(a->token, (size_t)a->n, sizeof *a->token, added_order);
    for (int c = 0; c <= 256; c++) {
        while (at < a->n && (uint8_t)a->token[at].text[0] < c)
            at++;
        a->first[c] = at;
    }
}

/* The longest token at s, where n bytes are; NULL: none. */
static const struct added_token *added_at(const struct added_tokens *a, const char *s, size_t n)
{
    const int c = (uint8_t)s[0];

    for (int i = a->first[c]; i < a->first[c + 1]; i++)
        if (a->token[i].len <= n && !memcmp(a->token[i].text, s, a->token[i].len))
            return &a->token[i];
    return NULL;
}

static int added_is_alone(const char *s, size_t n, size_t start, size_t end)
{
    return (start == 0 || !utf8_is_word(utf8_code(s + utf8_before(s, start)))) &&
           (end == n || !utf8_is_word(utf8_code(s + end)));
}

static size_t added_spaces_before(const char *s, size_t at)
{
    while (at > 0 && utf8_is_space(utf8_code(s + utf8_before(s, at))))
        at = utf8_before(s, at);
    return at;
}

static size_t added_spaces_behind(const char *s, size_t n, size_t at)
{
    while (at < n && utf8_is_space(utf8_code(s + at)))
        at += utf8_len(s[at]);
    return at;
}

int added_next(const struct added_tokens *a, const char *s, size_t n, struct added_match *m)
{
    m->done = m->end;
    for (size_t at = m->search; a->n > 0 && at < n; at++) {
        const struct added_token *const token = added_at(a, s + at, n - at);
        size_t start = at, end;

        if (!token)
            continue;
        end = at + token->len;
        if (token->is_single_word && !added_is_alone(s, n, start, end)) {
            at = end - 1;
            continue;
        }
        m->search = end;
        if (token->takes_left)
            start = added_spaces_before(s, start);
        if (token->takes_left && start < m->done)
            start = m->done; /* the token before took them */
        m->end = token->takes_right ? added_spaces_behind(s, n, end) : end;
        m->start = start;
        m->number = token->number;
        return 1;
    }
    return 0;
}
