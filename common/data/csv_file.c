/* csv_file - cuts a table in text into cells, and reads numbers.
 *
 * Most numbers have few digits: digits and exponent are then exact as doubles, and their quotient
 * or product is correctly rounded.  The C library reads the others. */
#include "data/csv_file.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/util.h"

int csv_begin(struct csv_reader *r, const void *bytes, size_t n_bytes, char delimiter,
              struct err *err)
{
    static const char bom[3] = "\xef\xbb\xbf";
    const char *at = bytes;

    *r = (struct csv_reader){
        .at = at, .end = n_bytes ? at + n_bytes : at, .delimiter = delimiter, .next_line = 1};
    if (n_bytes >= 2 && (!memcmp(at, "\xff\xfe", 2) || !memcmp(at, "\xfe\xff", 2)))
        return err_set(err, ERR_CORRUPT,
                       "line 1: the text is in UTF-16, want UTF-8; save or convert it as UTF-8");
    if (n_bytes >= sizeof bom && !memcmp(at, bom, sizeof bom))
        r->at += sizeof bom;
    return 0;
}

void csv_end(struct csv_reader *r)
{
    free(r->cell);
    *r = (struct csv_reader){0};
}

static int is_line_end(char c) { return c == '\n' || c == '\r'; }

static int is_blank(const struct csv_reader *r, char c)
{
    return c == ' ' || (c == '\t' && r->delimiter != '\t');
}

static void skip_blanks(struct csv_reader *r)
{
    while (r->at < r->end && is_blank(r, *r->at))
        r->at++;
}

static void skip_line_end(struct csv_reader *r)
{
    if (r->at < r->end && *r->at == '\r')
        r->at++;
    else if (r->at < r->end)
        r->at++;
    else
        return;
    if (r->at[-1] == '\r' && r->at < r->end && *r->at == '\n')
        r->at++;
    r->next_line++;
}

/* The cell that begins behind a quote.  A line end inside counts as a line. */
static int read_quoted(struct csv_reader *r, struct csv_cell *cell, struct err *err)
{
    const char *first = ++r->at;

    for (; r->at < r->end; r->at++) {
        if (*r->at == '"' && r->at + 1 < r->end && r->at[1] == '"')
            r->at++;
        else if (*r->at == '"')
            break;
        else if (*r->at == '\n' || (*r->at == '\r' && (r->at + 1 == r->end || r->at[1] != '\n')))
            r->next_line++;
    }
    if (r->at == r->end)
        return err_set(err, ERR_CORRUPT,
                       "line %lld: cell %d begins with a quote, and no other ends it",
                       (long long)r->line, r->n_cells + 1);
    *cell = (struct csv_cell){first, (size_t)(r->at++ - first)};
    skip_blanks(r);
    if (r->at < r->end && *r->at != r->delimiter && !is_line_end(*r->at))
        return err_set(err, ERR_CORRUPT,
                       "line %lld: cell %d goes on behind the quote that ends it; a quote inside "
                       "is written twice",
                       (long long)r->line, r->n_cells + 1);
    return 0;
}

static int read_bare(struct csv_reader *r, struct csv_cell *cell, struct err *err)
{
    const char *first = r->at, *end;

    for (; r->at < r->end && *r->at != r->delimiter && !is_line_end(*r->at); r->at++)
        if (*r->at == '"' || *r->at == 0)
            return err_set(err, ERR_CORRUPT,
                           *r->at ? "line %lld: cell %d has a quote inside, but begins with none; "
                                    "want \"a \"\"b\"\"\""
                                  : "line %lld: cell %d has a byte of 0; is this text?",
                           (long long)r->line, r->n_cells + 1);
    for (end = r->at; end > first && is_blank(r, end[-1]);)
        end--;
    *cell = (struct csv_cell){first, (size_t)(end - first)};
    return 0;
}

static int csv_file_grow(struct csv_reader *r, struct err *err)
{
    if (r->n_cells < r->n_room)
        return 0;
    if (r->n_cells == CSV_MOST_COLUMNS)
        return err_set(err, ERR_CORRUPT, "line %lld has more than %d cells, the most that are read",
                       (long long)r->line, CSV_MOST_COLUMNS);
    r->n_room = r->n_room ? 2 * r->n_room : 64;
    r->cell = xrealloc(r->cell, (size_t)r->n_room * sizeof *r->cell);
    return 0;
}

int csv_next(struct csv_reader *r, struct err *err)
{
    for (skip_blanks(r); r->at < r->end && is_line_end(*r->at); skip_blanks(r))
        skip_line_end(r);
    if (r->at == r->end)
        return CSV_END;
    r->line = r->next_line;
    for (r->n_cells = 0;; r->at++) { /* over the delimiter */
        int rc = csv_file_grow(r, err);

        skip_blanks(r);
        if (rc == 0 && r->at < r->end && *r->at == '"')
            rc = read_quoted(r, &r->cell[r->n_cells], err);
        else if (rc == 0)
            rc = read_bare(r, &r->cell[r->n_cells], err);
        if (rc < 0)
            return rc;
        r->n_cells++;
        if (r->at == r->end || is_line_end(*r->at))
            break;
    }
    skip_line_end(r);
    return 0;
}

/* ---- numbers ---- */

/* A number's parts: its digits as a whole number, and the power of ten. */
struct decimal {
    int is_negative;
    int n_digits; /* without leading zeroes; more than 18 are counted, but not in `digits` */
    uint64_t digits;
    int64_t exponent;
};

static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* Digits at s; how many there are is returned. */
static size_t take_digits(const char *s, size_t n, struct decimal *d)
{
    size_t i = 0;

    for (; i < n && is_digit(s[i]); i++) {
        if (d->n_digits < 18)
            d->digits = 10 * d->digits + (uint64_t)(s[i] - '0');
        d->n_digits += d->n_digits < 19 && (d->n_digits > 0 || s[i] != '0');
    }
    return i;
}

/* 1: all n characters are [sign] digits [point digits] [e [sign] digits]. */
static int csv_file_parse(const char *s, size_t n, char point, struct decimal *d)
{
    size_t i = 0, whole, part = 0;

    *d = (struct decimal){0};
    if (n > 0 && (s[0] == '-' || s[0] == '+'))
        d->is_negative = s[i++] == '-';
    whole = take_digits(s + i, n - i, d);
    i += whole;
    if (i < n && s[i] == point) {
        i++;
        part = take_digits(s + i, n - i, d);
        i += part;
    }
    if (whole + part == 0)
        return 0;
    d->exponent = -(int64_t)part;
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        const int is_negative = ++i < n && s[i] == '-';
        int64_t e = 0;

        i += i < n && (s[i] == '-' || s[i] == '+');
        if (i == n)
            return 0;
        for (; i < n && is_digit(s[i]); i++)
            e = min_i64(10 * e + (s[i] - '0'), 100000);
        d->exponent += is_negative ? -e : e;
    }
    return i == n;
}

/* Numbers of many digits, or far from 1. */
static double parse_slowly(const struct csv_cell *c)
{
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char small[64], *text = c->len < sizeof small ? small : xmalloc(c->len + 1);
    double v;

    ASSERT(plain);
    memcpy(text, c->text, c->len);
    text[c->len] = 0;
    v = strtod_l(text, NULL, plain);
    freelocale(plain);
    if (text != small)
        free(text);
    return v;
}

int csv_number(const struct csv_cell *c, double *out)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    struct decimal d;
    double v;

    if (!csv_file_parse(c->text, c->len, '.', &d))
        return 0;
    if (d.n_digits > 18 || d.digits > 1ULL << 53 || d.exponent < -22 || d.exponent > 22) {
        *out = parse_slowly(c);
        return 1;
    }
    v = (double)d.digits;
    v = d.exponent < 0 ? v / ten[-d.exponent] : v * ten[d.exponent];
    *out = d.is_negative ? -v : v;
    return 1;
}

int csv_has_decimal_comma(const struct csv_cell *c)
{
    struct decimal d;

    return memchr(c->text, ',', c->len) && csv_file_parse(c->text, c->len, ',', &d);
}

int csv_resembles_number(const char *word)
{
    static const char *const words[] = {"inf", "infinity", "nan"};

    word += *word == '-' || *word == '+';
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (!strcasecmp(word, words[i]))
            return 1;
    return word[0] == '0' && (word[1] == 'x' || word[1] == 'X') && word[2] &&
           word[2 + strspn(word + 2, "0123456789abcdefABCDEF")] == 0;
}

int csv_is_usual_missing(const struct csv_cell *c)
{
    static const char *const words[] = {"?",   "NA",   "N/A",  "n/a",  "#N/A", "<NA>", "nan", "NaN",
                                        "NAN", "-nan", "-NaN", "null", "NULL", "None", "NaT"};

    if (c->len > 4)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strlen(words[i]) == c->len && !memcmp(words[i], c->text, c->len))
            return 1;
    return 0;
}
