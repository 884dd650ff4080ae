/* Values of options, from text and to text.  Reading is strict: a value that another reader of YAML
 * could take for something else is refused. */
#include "config/option.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest decimal that reads back as `v`, with a point if it has an exponent: some readers of
 * YAML take 1e-05 for a string. */
static void format_real(double v, struct buf *out)
{
    char text[40], *e;

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    e = strchr(text, 'e');
    if (e && !strchr(text, '.'))
        buf_printf(out, "%.*s.0%s", (int)(e - text), text, e);
    else
        buf_printf(out, "%s", text);
}

static int in_range(const struct option *o, double v)
{
    return (o->flags & OPT_ABOVE ? v > o->min : v >= o->min) &&
           (o->flags & OPT_BELOW ? v < o->max : v <= o->max);
}

/* -?(0|[1-9][0-9]*), at most 18 digits: no octal, no sign games, no overflow. */
static int scan_int(const char *s, size_t len, int64_t *out)
{
    size_t i = len > 0 && s[0] == '-';
    int64_t v = 0;

    if (i == len || len - i > 18 || (s[i] == '0' && len - i > 1))
        return 0;
    for (size_t at = i; at < len; at++) {
        if (!isdigit((unsigned char)s[at]))
            return 0;
        v = v * 10 + (s[at] - '0');
    }
    *out = i ? -v : v;
    return 1;
}

static size_t n_digits(const char *s)
{
    size_t n = 0;

    while (isdigit((unsigned char)s[n]))
        n++;
    return n;
}

/* -?digits[.digits][e[+-]digits], with a digit on either side of the point; finite. */
static int scan_real(const char *text, size_t len, double *out)
{
    char copy[64];
    const char *s = copy;
    size_t whole, part = 0;

    if (len >= sizeof copy || memchr(text, 0, len))
        return 0;
    memcpy(copy, text, len);
    copy[len] = 0;
    s += *s == '-';
    s += whole = n_digits(s);
    if (*s == '.')
        s += 1 + (part = n_digits(s + 1));
    if (whole + part == 0)
        return 0;
    if (*s == 'e' || *s == 'E') {
        s += 1 + (s[1] == '+' || s[1] == '-');
        if (!n_digits(s))
            return 0;
        s += n_digits(s);
    }
    *out = strtod(copy, NULL);
    return *s == 0 && isfinite(*out);
}

static int value_is_text(const char *s, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = line_char_len(s + i, len - i);
        if (n == 0)
            return 0;
    }
    return 1;
}

static int value_is_name(const char *s, size_t len)
{
    if (len == 0 || len > 64 || !isalnum((unsigned char)s[0]))
        return 0;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && (!s[i] || !strchr("._-", s[i])))
            return 0;
    return 1;
}

static int parse_text(const struct option *o, void *field, struct arena *arena, const char *text,
                      size_t len, struct err *err)
{
    char shown[64];
    char *copy;

    if (o->type == OPT_NAME && !value_is_name(text, len))
        return option_fail(o, show_text(text, len, shown), err);
    if (len == 0)
        return option_fail(o, "empty", err);
    if (len > OPT_TEXT_BYTES)
        return err_set(err, ERR_CONFIG, "%s has %zu bytes, want at most %d", o->key, len,
                       OPT_TEXT_BYTES);
    if (!value_is_text(text, len))
        return err_set(err, ERR_CONFIG,
                       "%s is %s, with a control character or broken UTF-8, want text in one line",
                       o->key, show_text(text, len, shown));
    copy = arena_alloc(arena, len + 1);
    memcpy(copy, text, len);
    *(const char **)field = copy;
    return 0;
}

/* The rest of a list that is being read: "[1, 2]" or "1, 2" or "". */
struct rest {
    const char *at, *end;
};

static struct rest list_of(const char *text, size_t len)
{
    struct rest r = {text, text + len};

    if (len >= 2 && *text == '[' && r.end[-1] == ']')
        r.at++, r.end--;
    while (r.at < r.end && *r.at == ' ')
        r.at++;
    return r;
}

/* The next item and its length, taken from `r`.  A comma at the end leaves an empty item. */
static const char *next_item(struct rest *r, size_t *len)
{
    const char *comma = memchr(r->at, ',', (size_t)(r->end - r->at));
    const char *item = r->at, *stop = comma ? comma : r->end;

    r->at = comma && comma != r->end - 1 ? comma + 1 : stop;
    while (item < stop && *item == ' ')
        item++;
    while (item < stop && stop[-1] == ' ')
        stop--;
    *len = (size_t)(stop - item);
    return item;
}

static int parse_ints(const struct option *o, struct option_ints *list, const char *text,
                      size_t len)
{
    struct rest r = list_of(text, len);

    for (list->n = 0; r.at < r.end; list->n++) {
        const char *item = next_item(&r, &len);

        if (list->n == OPT_MAX_INTS || !scan_int(item, len, &list->v[list->n]) ||
            !in_range(o, (double)list->v[list->n]))
            return -1;
    }
    return 0;
}

static int parse_reals(const struct option *o, struct option_reals *list, const char *text,
                       size_t len)
{
    struct rest r = list_of(text, len);

    for (list->n = 0; r.at < r.end; list->n++) {
        const char *item = next_item(&r, &len);

        if (list->n == OPT_MAX_REALS || !scan_real(item, len, &list->v[list->n]) ||
            !in_range(o, list->v[list->n]))
            return -1;
    }
    return o->count && list->n != o->count ? -1 : 0;
}

static int parse_numbers(const struct option *o, struct option_numbers *list, struct arena *arena,
                         const char *text, size_t len)
{
    struct rest r = list_of(text, len);
    int64_t n = r.at < r.end;
    double *v;

    for (const char *s = r.at; s < r.end; s++)
        n += *s == ',';
    if (n > OPT_MAX_NUMBERS)
        return -1;
    v = arena_alloc(arena, (size_t)n * sizeof *v + 1);
    for (list->n = 0; r.at < r.end; list->n++) {
        const char *item = next_item(&r, &len);

        if (!scan_real(item, len, &v[list->n]) || !in_range(o, v[list->n]))
            return -1;
        v[list->n] += 0.0; /* -0 becomes 0 */
    }
    list->v = v;
    return 0;
}

static int parse_choice(const struct option *o, int *field, const char *text, size_t len)
{
    for (int i = o->first; o->choices[i]; i++)
        if (strlen(o->choices[i]) == len && !memcmp(o->choices[i], text, len)) {
            *field = i;
            return 0;
        }
    return -1;
}

int option_is_word(const struct option *o, const char *text, size_t len)
{
    int ignored;

    return o->choices && parse_choice(o, &ignored, text, len) == 0;
}

static int parse_set(const struct option *o, unsigned *set, const char *text, size_t len)
{
    struct rest r = list_of(text, len);

    for (*set = 0; r.at < r.end;) {
        const char *item = next_item(&r, &len);
        int bit;

        if (parse_choice(o, &bit, item, len) < 0)
            return -1;
        *set |= 1u << bit;
    }
    return 0;
}

/* A word in place of an integer, in quotes or not. */
static int parse_word(const struct option *o, int64_t *field, const char *text, size_t len)
{
    int i;

    if (o->type != OPT_INT || !o->choices || parse_choice(o, &i, text, len) < 0)
        return -1;
    *field = option_word(i);
    return 0;
}

static int parse_number(const struct option *o, void *field, const char *text, size_t len)
{
    double real;
    int64_t integer;

    if (o->type == OPT_INT) {
        if (!scan_int(text, len, &integer) || !in_range(o, (double)integer))
            return -1;
        *(int64_t *)field = integer;
        return 0;
    }
    if (!scan_real(text, len, &real) || !in_range(o, real))
        return -1;
    if (o->type == OPT_SECONDS)
        *(int64_t *)field = (int64_t)llround(real * 1000);
    else
        *(double *)field = real + 0.0; /* -0 becomes 0 */
    return 0;
}

static int parse_bool(int *field, const char *text, size_t len)
{
    int yes = len == 4 && !memcmp(text, "true", 4);

    if (!yes && !(len == 5 && !memcmp(text, "false", 5)))
        return -1;
    *field = yes;
    return 0;
}

static int parse_entry(const struct option *o, const struct option_group **field, const char *text,
                       size_t len)
{
    const struct option_group *g = option_entry(o->registry, text, len);

    if (!g)
        return -1;
    *field = g;
    return 0;
}

static int parse_plain(const struct option *o, void *field, struct arena *arena, const char *text,
                       size_t len)
{
    switch (o->type) {
    case OPT_BOOL:
        return parse_bool(field, text, len);
    case OPT_INTS:
        return parse_ints(o, field, text, len);
    case OPT_REALS:
        return parse_reals(o, field, text, len);
    case OPT_NUMBERS:
        return parse_numbers(o, field, arena, text, len);
    case OPT_SET:
        return parse_set(o, field, text, len);
    case OPT_CHOICE:
        return parse_choice(o, field, text, len);
    case OPT_ENTRY:
        return parse_entry(o, field, text, len);
    default:
        return parse_number(o, field, text, len);
    }
}

static int parse_tree(const struct option *o, const char **field, struct arena *arena,
                      const char *text, size_t len, struct err *err)
{
    size_t at;
    char *copy;

    if (len > OPT_TREE_BYTES)
        return option_fail(o, "longer", err);
    if (!value_is_text(text, len))
        return option_fail(o, "a text with control characters or broken UTF-8", err);
    if (o->tree(text, len, &at, err) < 0)
        return err_wrap(err, "%s", o->key);
    copy = arena_alloc(arena, len + 1);
    memcpy(copy, text, len);
    *field = copy;
    return 0;
}

int option_parse(const struct option *o, void *field, struct arena *arena, const char *text,
                 size_t len, int quoted, struct err *err)
{
    const int is_word = o->type == OPT_CHOICE || o->type == OPT_ENTRY;
    char seen[96];

    if (o->type >= OPT_NAME)
        return parse_text(o, field, arena, text, len, err);
    if (o->type == OPT_TREE)
        return parse_tree(o, field, arena, text, len, err);
    if (o->type == OPT_ITEMS)
        return option_parse_items(o, field, arena, text, len, err);
    if ((is_word || !quoted) && parse_plain(o, field, arena, text, len) == 0)
        return 0;
    if (parse_word(o, field, text, len) == 0)
        return 0;
    return option_fail(o, show_scalar(text, len, quoted && !is_word, seen), err);
}

int option_try(const struct option *o, const char *text, size_t len, int quoted, struct err *err)
{
    union {
        int flag;
        int64_t integer;
        double real;
        const void *pointer;
        struct option_ints ints;
        struct option_reals reals;
        struct option_numbers numbers;
        struct option_items items;
    } field;
    struct arena arena;
    int rc;

    arena_init(&arena);
    rc = option_parse(o, &field, &arena, text, len, quoted, err);
    arena_fini(&arena);
    return rc;
}

static void value_format_text(const char *s, struct buf *out)
{
    buf_append(out, "\"", 1);
    for (; *s; s++)
        buf_printf(out, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    buf_append(out, "\"", 1);
}

static void format_ints(const struct option_ints *list, struct buf *out)
{
    buf_printf(out, "[");
    for (int i = 0; i < list->n; i++)
        buf_printf(out, "%s%lld", i ? ", " : "", (long long)list->v[i]);
    buf_printf(out, "]");
}

static void format_reals(const double *v, int n, struct buf *out)
{
    buf_printf(out, "[");
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s", i ? ", " : "");
        format_real(v[i], out);
    }
    buf_printf(out, "]");
}

static void format_set(const struct option *o, unsigned set, struct buf *out)
{
    int n = 0;

    buf_printf(out, "[");
    for (int i = o->first; o->choices[i]; i++)
        if (set >> i & 1)
            buf_printf(out, "%s%s", n++ ? ", " : "", o->choices[i]);
    buf_printf(out, "]");
}

static void format_int(const struct option *o, int64_t v, struct buf *out)
{
    if (o->choices && v < 0)
        buf_printf(out, "%s", o->choices[-1 - v]);
    else
        buf_printf(out, "%lld", (long long)v);
}

static void format_string(const struct option *o, const char *text, struct buf *out)
{
    if (!text)
        buf_printf(out, "null");
    else if (option_is_word(o, text, strlen(text)))
        buf_printf(out, "%s", text);
    else
        value_format_text(text, out);
}

void option_format(const struct option *o, const void *p, struct buf *out)
{
    const struct option_reals *reals = p;
    const struct option_numbers *numbers = p;

    switch (o->type) {
    case OPT_BOOL:
        buf_printf(out, "%s", *(const int *)p ? "true" : "false");
        break;
    case OPT_INT:
        format_int(o, *(const int64_t *)p, out);
        break;
    case OPT_REAL:
        format_real(*(const double *)p, out);
        break;
    case OPT_SECONDS:
        format_real((double)*(const int64_t *)p / 1000, out);
        break;
    case OPT_CHOICE:
        buf_printf(out, "%s", o->choices[*(const int *)p]);
        break;
    case OPT_ENTRY:
        buf_printf(out, "%s", (*(const struct option_group *const *)p)->name);
        break;
    case OPT_INTS:
        format_ints(p, out);
        break;
    case OPT_REALS:
        format_reals(reals->v, reals->n, out);
        break;
    case OPT_NUMBERS:
        format_reals(numbers->v, numbers->n, out);
        break;
    case OPT_SET:
        format_set(o, *(const unsigned *)p, out);
        break;
    case OPT_ITEMS:
        option_format_items(o, p, out);
        break;
    case OPT_TREE:
        buf_printf(out, "%s", *(const char *const *)p);
        break;
    case OPT_NAME:
    case OPT_STRING:
    case OPT_PATH:
        format_string(o, *(const char *const *)p, out);
        break;
    }
}
