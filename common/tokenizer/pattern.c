/* pattern - the rewriting from Oniguruma's syntax, and PCRE2 with its compiler to machine code.
 *
 * Differences that matter here: \s, \w and their opposites are other sets of characters; ^ and $
 * are also at line ends within the text; after {2,} a + is no possessive quantifier, and after {2}
 * a ? no lazy one; {,2} begins at 0; \h is a hexadecimal digit; classes may hold classes.  The
 * first two are rewritten, others refused. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "tokenizer/utf8.h"

#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"

enum {
    MOST_PATTERN = 1 << 16, /* bytes */
    MOST_STEPS = 1000000,   /* of one search */
    LEAST_STACK = 32 << 10,
    MOST_STACK = 4 << 20,
};

struct pattern {
    pcre2_code *code;
    int is_jit;
};

struct pattern_room {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- rewriting ---- */

struct rewrite {
    const char *text;
    size_t n, at;
    int in_class;
    struct buf out;
    struct err *err;
};

static int rewrite_refuse(struct rewrite *r, size_t len, const char *why)
{
    return err_set(r->err, ERR_CONFIG, "expression \"%.*s\": offset %zu: %.*s %s", (int)r->n,
                   r->text, r->at, (int)len, r->text + r->at, why);
}

static void rewrite_copy(struct rewrite *r, size_t len)
{
    buf_append(&r->out, r->text + r->at, len);
    r->at += len;
}

/* A set of characters, or its opposite. */
static int rewrite_set(struct rewrite *r, const char *set, int is_opposite)
{
    if (r->in_class && is_opposite)
        return rewrite_refuse(r, 2, "within a class is not supported");
    buf_printf(&r->out, r->in_class ? "%s%s" : is_opposite ? "[^%s%s]" : "[%s%s]", set, "");
    r->at += 2;
    return 0;
}

/* The length of {...}, or of the rest. */
static size_t rewrite_braces(const struct rewrite *r)
{
    const char *const end = memchr(r->text + r->at, '}', r->n - r->at);

    return end ? (size_t)(end - (r->text + r->at)) + 1 : r->n - r->at;
}

static int rewrite_escape(struct rewrite *r)
{
    const char c = r->at + 1 < r->n ? r->text[r->at + 1] : 0;

    if (c == 's' || c == 'S')
        return rewrite_set(r, UTF8_SPACES, c == 'S');
    if (c == 'w' || c == 'W')
        return rewrite_set(r, WORDS, c == 'W');
    if (c == 'u' && r->at + 6 <= r->n) {
        buf_printf(&r->out, "\\x{%.4s}", r->text + r->at + 2);
        r->at += 6;
        return 0;
    }
    if (c == 0 || (c & 0x80) ||
        ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) >
            (strchr("dDpPnrtfxbBAz", c) != NULL))
        return rewrite_refuse(r, c && !(c & 0x80) ? 2 : 1, "is not supported");
    rewrite_copy(r, 2);
    if (strchr("pPx", c) && r->at < r->n && r->text[r->at] == '{')
        rewrite_copy(r, rewrite_braces(r));
    return 0;
}

static int rewrite_in_class(struct rewrite *r)
{
    const char c = r->text[r->at];

    if (c == '[')
        return rewrite_refuse(r, 1, "within a class is not supported; write \\[ for the character");
    if (c == '&' && r->at + 1 < r->n && r->text[r->at + 1] == '&')
        return rewrite_refuse(r, 2, "within a class is not supported");
    r->in_class = c != ']';
    rewrite_copy(r, 1);
    return 0;
}

/* A group is plain, or of one of these kinds.  (?i) stands at the beginning alone: elsewhere it
 * holds the | that follows it in Oniguruma, and not in PCRE2. */
static int rewrite_group(struct rewrite *r)
{
    static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};

    if (r->at + 1 >= r->n || r->text[r->at + 1] != '?') {
        rewrite_copy(r, 1);
        return 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t len = strlen(kinds[i]);

        if (r->n - r->at >= len && !memcmp(r->text + r->at, kinds[i], len)) {
            if (kinds[i][len - 1] == ')' && r->at > 0)
                return rewrite_refuse(r, len, "is not supported");
            rewrite_copy(r, len);
            return 0;
        }
    }
    return rewrite_refuse(r, r->n - r->at < 3 ? r->n - r->at : 3, "is not supported");
}

static int rewrite_outside(struct rewrite *r)
{
    const char c = r->text[r->at], next = r->at + 1 < r->n ? r->text[r->at + 1] : '.';

    if (c == '(')
        return rewrite_group(r);
    if ((c == '}' && (next == '+' || next == '?')) || (c == '{' && next == ','))
        return rewrite_refuse(r, 2, "is not supported");
    if (c == '[') {
        r->in_class = 1;
        rewrite_copy(r, 1);
        if (r->at < r->n && r->text[r->at] == '^')
            rewrite_copy(r, 1);
        if (r->at < r->n && r->text[r->at] == ']')
            return rewrite_refuse(r, 1, "first in a class is not supported; write \\]");
        return 0;
    }
    rewrite_copy(r, 1);
    return 0;
}

static int rewrite_all(struct rewrite *r)
{
    int rc = 0;

    while (rc == 0 && r->at < r->n)
        rc = r->text[r->at] == '\\' ? rewrite_escape(r)
             : r->in_class          ? rewrite_in_class(r)
                                    : rewrite_outside(r);
    return rc;
}

/* ---- compiling ---- */

static int pattern_compile(struct pattern *p, const char *text, size_t n, uint32_t flags,
                           struct err *err)
{
    pcre2_compile_context *const context = pcre2_compile_context_create(NULL);
    PCRE2_UCHAR why[128] = "";
    PCRE2_SIZE offset = 0;
    uint32_t is_empty = 0;
    int code = 0;

    ASSERT(context);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    p->code = pcre2_compile((PCRE2_SPTR)text, n, flags | PCRE2_UTF, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (!p->code) {
        pcre2_get_error_message(code, why, sizeof why);
        return err_set(err, ERR_CONFIG, "expression \"%.*s\": %s", (int)n, text, (const char *)why);
    }
    p->is_jit = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &is_empty);
    if (is_empty)
        return err_set(err, ERR_CONFIG,
                       "expression \"%.*s\" also matches the empty text, which is not supported",
                       (int)n, text);
    return 0;
}

int pattern_new(struct pattern **out, const char *text, size_t n, int is_literal, struct err *err)
{
    struct pattern *const p = xcalloc(1, sizeof *p);
    struct rewrite r = {.text = text, .n = n, .err = err};
    int rc = 0;

    if (n == 0 || n > MOST_PATTERN)
        rc = err_set(err, ERR_CONFIG, "a pattern of %zu bytes, want 1 to %d", n, MOST_PATTERN);
    if (rc == 0 && is_literal)
        rc = pattern_compile(p, text, n, PCRE2_LITERAL, err);
    if (rc == 0 && !is_literal)
        rc = rewrite_all(&r);
    if (rc == 0 && !is_literal)
        rc = pattern_compile(p, (const char *)r.out.data, r.out.len, PCRE2_UCP | PCRE2_MULTILINE,
                             err);
    buf_fini(&r.out);
    if (rc < 0)
        pattern_free(p);
    else
        *out = p;
    return rc;
}

void pattern_free(struct pattern *p)
{
    if (p)
        pcre2_code_free(p->code);
    free(p);
}

/* ---- searching ---- */

struct pattern_room *pattern_room_new(void)
{
    struct pattern_room *const room = xcalloc(1, sizeof *room);

    room->data = pcre2_match_data_create(1, NULL); /* the bounds of the whole match */
    room->context = pcre2_match_context_create(NULL);
    room->stack = pcre2_jit_stack_create(LEAST_STACK, MOST_STACK, NULL);
    ASSERT(room->data && room->context && room->stack);
    pcre2_set_match_limit(room->context, MOST_STEPS);
    pcre2_jit_stack_assign(room->context, NULL, room->stack);
    return room;
}

void pattern_room_free(struct pattern_room *room)
{
    if (!room)
        return;
    pcre2_match_data_free(room->data);
    pcre2_match_context_free(room->context);
    pcre2_jit_stack_free(room->stack);
    free(room);
}

int pattern_find(const struct pattern *p, struct pattern_room *room, const char *s, size_t n,
                 size_t from, size_t *start, size_t *end, struct err *err)
{
    const PCRE2_SIZE *const bound = pcre2_get_ovector_pointer(room->data);
    PCRE2_UCHAR why[128] = "";
    const int rc = p->is_jit ? pcre2_jit_match(p->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK,
                                               room->data, room->context)
                             : pcre2_match(p->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK,
                                           room->data, room->context);

    if (rc >= 0) {
        *start = bound[0];
        *end = bound[1];
        return 1;
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    pcre2_get_error_message(rc, why, sizeof why);
    return err_set(err, ERR_CORRUPT,
                   "an expression of the tokenizer fails on a text of %zu bytes, from byte %zu on: "
                   "%s",
                   n, from, (const char *)why);
}
