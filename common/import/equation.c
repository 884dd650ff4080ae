/* equation - spells out the equation of an einsum.
 *
 * The dimensions of "..." are aligned at their ends, as in PyTorch and NumPy.  They get letters
 * that the equation has not. */
#include "import/equation.h"

#include <string.h>

struct equation {
    char text[EQUATION_ROOM]; /* without spaces */
    char fresh[27];           /* letters for "..." */
    int rest[EQUATION_MOST];  /* dimensions of "..." of the operands */
    int most;                 /* and of the result */
    char *to;
    int n;
};

static int equation_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Without spaces; 0: it fits. */
static int equation_strip(struct equation *e, const char *given)
{
    int n = 0;

    for (const char *c = given; *c; c++) {
        if (*c == ' ')
            continue;
        if (n == EQUATION_ROOM - 1)
            return -1;
        e->text[n++] = *c;
    }
    e->text[n] = 0;
    return 0;
}

/* Count the dimensions of "..." in operand k, which begins at `at`.  Returns its end, or NULL. */
static const char *equation_measure(struct equation *e, const char *at, int k, int n_dims)
{
    int n_letters = 0, has_dots = 0;

    for (; *at && *at != ',' && *at != '-'; at++) {
        if (!strncmp(at, "...", 3) && !has_dots) {
            has_dots = 1;
            at += 2;
        } else if (equation_is_letter(*at)) {
            n_letters++;
        } else {
            return NULL;
        }
    }
    e->rest[k] = n_dims - n_letters;
    if (has_dots ? e->rest[k] < 0 : e->rest[k] != 0)
        return NULL;
    e->most = e->rest[k] > e->most ? e->rest[k] : e->most;
    return at;
}

/* The last letters of the alphabet that the equation has not; 0: there are enough. */
static int equation_choose(struct equation *e)
{
    int n = e->most;

    if (n > 26)
        return -1;
    for (char c = 'z'; c >= 'a' && n > 0; c--)
        if (!strchr(e->text, c))
            e->fresh[--n] = c;
    return n > 0 ? -1 : 0;
}

static int equation_put(struct equation *e, const char *from, int n)
{
    if (e->n + n >= EQUATION_ROOM)
        return -1;
    memcpy(e->to + e->n, from, (size_t)n);
    e->to[e->n += n] = 0;
    return 0;
}

/* The result that is left out: the dimensions of "...", and the letters that occur once, in the
 * order of the alphabet, capitals first. */
static int equation_put_result(struct equation *e)
{
    int rc = equation_put(e, "->", 2);

    if (rc == 0)
        rc = equation_put(e, e->fresh, e->most);
    for (char c = 'A'; c <= 'z' && rc == 0; c++) {
        const char *first = equation_is_letter(c) ? strchr(e->text, c) : NULL;

        if (first && !strchr(first + 1, c))
            rc = equation_put(e, &c, 1);
    }
    return rc;
}

int equation_spell(const char *given, const int *n_dims, int n, char to[EQUATION_ROOM])
{
    struct equation e = {.to = to};
    const char *at = e.text;
    int k = 0, rc = equation_strip(&e, given);

    to[0] = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        at = equation_measure(&e, at, i, n_dims[i]);
        rc = !at || (*at == ',') != (i < n - 1) ? -1 : 0;
        if (rc == 0 && *at == ',')
            at++;
    }
    if (rc == 0)
        rc = equation_choose(&e);
    for (const char *c = e.text; *c && rc == 0; c++) {
        k += *c == ',' || *c == '-';
        if (!strncmp(c, "...", 3)) {
            const int rest = k < n ? e.rest[k] : e.most;

            rc = equation_put(&e, e.fresh + e.most - rest, rest);
            c += 2;
        } else {
            rc = equation_put(&e, c, 1);
        }
    }
    return rc == 0 && !strchr(e.text, '-') ? equation_put_result(&e) : rc;
}
