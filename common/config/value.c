/* Values of options: from text, and to text. */
#include "config/option.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

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

static int is_text(const char *s, size_t len)
{
    for (size_t i = 0, n; i < len; i += n)
        if ((n = line_char_len(s + i, len - i)) == 0)
            return 0;
    return 1;
}

static int is_name(const char *s, size_t len)
{
    if (len == 0 || len > 64 || !isalnum((unsigned char)s[0]))
        return 0;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && (!s[i] || !strchr("._-", s[i])))
            return 0;
    return 1;
}

static int parse_text(const struct option *o, struct job *job, const char *text, size_t len,
                      struct err *err)
{
    char shown[64];
    char *copy;

    if (o->type == OPT_NAME && !is_name(text, len))
        return option_fail(o, show_text(text, len, shown), err);
    if (len == 0)
        return option_fail(o, "empty", err);
    if (len > OPT_TEXT_BYTES)
        return err_set(err, ERR_CONFIG, "%s has %zu bytes, want at most %d", o->key, len,
                       OPT_TEXT_BYTES);
    if (!is_text(text, len))
        return err_set(err, ERR_CONFIG,
                       "%s is %s, with a control character or broken UTF-8, want text in one line",
                       o->key, show_text(text, len, shown));
    copy = arena_alloc(&job->arena, len + 1);
    memcpy(copy, text, len);
    *(const char **)option_field(o, job) = copy;
    return 0;
}

/* "[1, 2]" or "1, 2" or "" */
static int parse_ints(const struct option *o, struct job *job, const char *text, size_t len)
{
    const char *end = text + len;
    int n = 0;

    if (len >= 2 && *text == '[' && end[-1] == ']')
        text++, end--;
    while (text < end && *text == ' ')
        text++;
    for (; text < end; n++) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma ? comma : end;
        int64_t *to = &job->model.hidden[n];

        while (text < stop && *text == ' ')
            text++;
        while (text < stop && stop[-1] == ' ')
            stop--;
        if (n == JOB_MAX_HIDDEN || !scan_int(text, (size_t)(stop - text), to) ||
            !in_range(o, (double)*to) || comma == end - 1)
            return -1;
        text = comma ? comma + 1 : end;
    }
    job->model.n_hidden = n;
    return 0;
}

static int parse_choice(const struct option *o, struct job *job, const char *text, size_t len)
{
    for (int i = 0; o->choices[i]; i++)
        if (strlen(o->choices[i]) == len && memcmp(o->choices[i], text, len) == 0) {
            *(int *)option_field(o, job) = i;
            return 0;
        }
    return -1;
}

static int parse_number(const struct option *o, struct job *job, const char *text, size_t len)
{
    double real;
    int64_t integer;

    if (o->type == OPT_INT) {
        if (!scan_int(text, len, &integer) || !in_range(o, (double)integer))
            return -1;
        *(int64_t *)option_field(o, job) = integer;
        return 0;
    }
    if (!scan_real(text, len, &real) || !in_range(o, real))
        return -1;
    if (o->type == OPT_SECONDS)
        *(int64_t *)option_field(o, job) = (int64_t)llround(real * 1000);
    else
        *(double *)option_field(o, job) = real + 0.0; /* -0 becomes 0 */
    return 0;
}

static int parse_bool(const struct option *o, struct job *job, const char *text, size_t len)
{
    int yes = len == 4 && memcmp(text, "true", 4) == 0;

    if (!yes && !(len == 5 && memcmp(text, "false", 5) == 0))
        return -1;
    *(int *)option_field(o, job) = yes;
    return 0;
}

int option_parse(const struct option *o, struct job *job, const char *text, size_t len, int quoted,
                 struct err *err)
{
    char shown[64], seen[96];
    int rc;

    if (o->type >= OPT_NAME)
        return parse_text(o, job, text, len, err);
    if (o->type == OPT_CHOICE)
        rc = parse_choice(o, job, text, len);
    else if (quoted)
        rc = -1;
    else if (o->type == OPT_BOOL)
        rc = parse_bool(o, job, text, len);
    else if (o->type == OPT_INTS)
        rc = parse_ints(o, job, text, len);
    else
        rc = parse_number(o, job, text, len);
    if (rc == 0)
        return 0;
    show_text(text, len, shown);
    snprintf(seen, sizeof seen, "%s%s", shown, quoted && o->type != OPT_CHOICE ? " in quotes" : "");
    return option_fail(o, seen, err);
}

static void format_text(const char *s, struct buf *out)
{
    buf_append(out, "\"", 1);
    for (; *s; s++)
        buf_printf(out, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    buf_append(out, "\"", 1);
}

void option_format(const struct option *o, const struct job *job, struct buf *out)
{
    const void *p = option_field(o, job);

    switch (o->type) {
    case OPT_BOOL:
        buf_printf(out, "%s", *(const int *)p ? "true" : "false");
        break;
    case OPT_INT:
        buf_printf(out, "%lld", (long long)*(const int64_t *)p);
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
    case OPT_INTS:
        buf_printf(out, "[");
        for (int i = 0; i < job->model.n_hidden; i++)
            buf_printf(out, "%s%lld", i ? ", " : "", (long long)job->model.hidden[i]);
        buf_printf(out, "]");
        break;
    case OPT_NAME:
    case OPT_STRING:
    case OPT_PATH:
        if (*(const char *const *)p)
            format_text(*(const char *const *)p, out);
        else
            buf_printf(out, "null");
        break;
    }
}
