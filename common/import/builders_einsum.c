/* builders_einsum - sums of products by letters, of one tensor or of several.
 *
 * First a letter that an operand has twice becomes the diagonal of these dimensions.  Then the
 * operands are joined from left to right, two at a time; what no later operand and no result has is
 * summed as soon as it can be. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "import/equation.h"
#include "import/lower_impl.h"

struct einsum_term {
    struct lowered x; /* in the order of the letters, nothing repeats */
    char letter[SHAPE_MAX_DIMS + 1];
};

/* The diagonal of dimensions d < e, whose letter then is the last one. */
static void einsum_diagonal(struct lower *l, struct einsum_term *t, int d, int e)
{
    const char letter = t->letter[d];
    struct lowered x = t->x;
    const int64_t n = extent_exported(l, x.dim[d]);
    int order[SHAPE_MAX_DIMS], k = 0;
    struct shape s;

    lower_refuse_batch(l, &x, 1u << d | 1u << e, "takes the diagonal of");
    if (!lower_failed(l) && (n < 1 || n > INT32_MAX || extent_exported(l, x.dim[e]) != n))
        lower_fail(l, ERR_CONFIG,
                   "letter %c is %lld and %lld in one operand, want 1 or more, and the same",
                   letter, (long long)n, (long long)extent_exported(l, x.dim[e]));
    if (lower_failed(l))
        return;
    for (int i = 0; i < x.n; i++)
        if (i != d && i != e) {
            t->letter[k] = t->letter[i];
            x.dim[k] = t->x.dim[i];
            order[k++] = i;
        }
    order[k] = d;
    order[k + 1] = e;
    t->letter[k] = letter;
    t->letter[k + 1] = 0;
    x.value = compose_permute(&l->c, x.value, order);
    if (lower_failed(l))
        return;
    s = l->m->g->value[x.value].shape;
    s.n--;
    s.dim[k] = n * n;
    x.value = compose_slice(&l->c, compose_reshape(&l->c, x.value, s), k, 0, n * n, n + 1);
    x.dim[k] = extent_of(n);
    t->x = lower_plain_value(l, x.value, k + 1, x.dim);
}

/* Operand `value` with the letters from *at on, which are those of its dimensions. */
static void einsum_term_of(struct lower *l, int value, const char **at, struct einsum_term *t)
{
    int n = 0;

    *t = (struct einsum_term){.x = lower_plain(l, lower_at(l, value))};
    for (; !lower_failed(l) && n < t->x.n; n++)
        t->letter[n] = *(*at)++;
    *at += 1;
    for (int e = 1; e < t->x.n && !lower_failed(l); e++)
        for (int d = 0; d < e; d++)
            if (t->letter[d] == t->letter[e]) {
                einsum_diagonal(l, t, d, e);
                e = 0;
                break;
            }
}

/* ---- one operand, and two ---- */

/* t without the letters that `to` lacks, in the order of `to`. */
static struct lowered einsum_one(struct lower *l, const struct einsum_term *t, const char *to)
{
    struct lowered x = t->x;
    char left[SHAPE_MAX_DIMS + 1] = "";
    int order[SHAPE_MAX_DIMS], n = 0;
    unsigned gone = 0;

    for (int d = 0; d < x.n; d++)
        if (strchr(to, t->letter[d]))
            left[n++] = t->letter[d];
        else
            gone |= 1u << d;
    lower_refuse_batch(l, &x, gone, "sums over");
    if (lower_failed(l))
        return x;
    if (gone)
        x = lower_without(x, gone, compose_reduce(&l->c, REDUCE_SUM, x.value, gone, 0));
    for (int d = 0; d < n; d++)
        order[d] = (int)(strchr(left, to[d]) - left);
    return lower_permute(x, order);
}

/* A letter of the batch must be in the result, and be the batch in both operands. */
static void einsum_refuse_batch(struct lower *l, const struct einsum_term t[2], const char *to)
{
    for (int k = 0; k < 2; k++)
        for (int d = 0; d < t[k].x.n && !lower_failed(l); d++) {
            const char letter = t[k].letter[d], *other = strchr(t[1 - k].letter, letter);

            if (!t[k].x.dim[d].is_batch)
                continue;
            if (!strchr(to, letter))
                lower_refuse_batch(l, &t[k].x, 1u << d, "sums over");
            if (other && !t[1 - k].x.dim[other - t[1 - k].letter].is_batch)
                lower_fail(l, ERR_UNSUPPORTED,
                           "letter %c is the batch in one operand, and not in the other: the "
                           "network depends on the batch of its export, %lld",
                           letter, (long long)l->batch);
        }
}

static struct lowered einsum_two(struct lower *l, const struct einsum_term t[2], const char *to)
{
    struct extent dim[SHAPE_MAX_DIMS];
    char text[3 * SHAPE_MAX_DIMS + 4];
    int n = 0;

    einsum_refuse_batch(l, t, to);
    for (; to[n] && !lower_failed(l); n++) {
        const char *first = strchr(t[0].letter, to[n]), *second = strchr(t[1].letter, to[n]);

        dim[n] = first ? t[0].x.dim[first - t[0].letter] : t[1].x.dim[second - t[1].letter];
    }
    if (lower_failed(l))
        return t[0].x;
    snprintf(text, sizeof text, "%s,%s->%s", t[0].letter, t[1].letter, to);
    return lower_plain_value(l, compose_einsum(&l->c, text, t[0].x.value, t[1].x.value), n, dim);
}

/* ---- several ---- */

/* The letters of two operands that are needed later: by the text `rest`. */
static int einsum_kept(struct lower *l, const struct einsum_term t[2], const char *rest,
                       char to[SHAPE_MAX_DIMS + 1])
{
    int n = 0;

    to[0] = 0;
    for (int k = 0; k < 2; k++)
        for (const char *c = t[k].letter; *c; c++) {
            if (!strchr(rest, *c) || strchr(to, *c))
                continue;
            if (n == SHAPE_MAX_DIMS) {
                lower_fail(l, ERR_UNSUPPORTED,
                           "the product of two of its operands has more than %d dimensions: want "
                           "the operands in another order",
                           SHAPE_MAX_DIMS);
                return -1;
            }
            to[n++] = *c;
            to[n] = 0;
        }
    return 0;
}

/* `text` is spelt out for the operands of `of`; `to` are its letters of the result. */
static struct lowered einsum_of(struct lower *l, const struct import_arg *of, const char *text,
                                const char *to)
{
    struct einsum_term t[2];

    einsum_term_of(l, of->values[0], &text, &t[0]);
    for (int i = 1; i < of->n && !lower_failed(l); i++) {
        char kept[SHAPE_MAX_DIMS + 1];

        einsum_term_of(l, of->values[i], &text, &t[1]);
        if (i == of->n - 1)
            return lower_failed(l) ? t[0].x : einsum_two(l, t, to);
        if (lower_failed(l) || einsum_kept(l, t, text, kept) < 0)
            break;
        t[0].x = einsum_two(l, t, kept);
        memcpy(t[0].letter, kept, sizeof kept);
    }
    return lower_failed(l) ? t[0].x : einsum_one(l, &t[0], to);
}

/* 1: the result has letters of the operands, each once. */
static int einsum_is_result(const char *text, const char *arrow)
{
    const char *const to = arrow + 2;

    for (const char *c = to; *c; c++)
        if (!memchr(text, *c, (size_t)(arrow - text)) || *c == ',' || strchr(c + 1, *c))
            return 0;
    return strlen(to) <= SHAPE_MAX_DIMS;
}

static void builders_einsum(struct lower *l, int kind)
{
    const struct import_arg *text = lower_arg(l, "equation", 0), *of = lower_arg(l, "tensors", 1);
    int n_dims[EQUATION_MOST] = {0};
    char plain[EQUATION_ROOM];
    const char *arrow;

    (void)kind;
    if (!text || !text->text || !of || of->kind != IMPORT_VALUES || of->n < 1 ||
        of->n > EQUATION_MOST) {
        lower_fail(l, ERR_UNSUPPORTED, "want an equation of 1 to %d tensors", EQUATION_MOST);
        return;
    }
    for (int i = 0; i < of->n; i++)
        n_dims[i] = lower_at(l, of->values[i]).n;
    if (lower_failed(l))
        return;
    arrow = equation_spell(text->text, n_dims, of->n, plain) < 0 ? NULL : strstr(plain, "->");
    if (!arrow || !einsum_is_result(plain, arrow)) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "its equation is \"%.60s\" for %d tensors, the first one of %d dimensions; want "
                   "a letter for each dimension of each, and a result of their letters",
                   text->text, of->n, n_dims[0]);
        return;
    }
    lower_set(l, 0, einsum_of(l, of, plain, arrow + 2));
}

/* Alone, the main diagonal of two dimensions, which then is the last dimension. */
static void builders_diagonal(struct lower *l, int kind)
{
    struct einsum_term t = {.x = lower_plain(l, lower_in(l, "self", 0)), .letter = "abcdefgh"};
    const int d = lower_dim(l, "dim1", 2, t.x.n, 0), e = lower_dim(l, "dim2", 3, t.x.n, 1);

    (void)kind;
    if (!lower_failed(l) && (t.x.n < 2 || d == e))
        lower_fail(l, ERR_CONFIG, "it is that of dimensions %d and %d of %d", d, e, t.x.n);
    if (lower_int(l, "offset", 1, 0) != 0)
        lower_fail(l, ERR_UNSUPPORTED, "its offset is %lld, want 0: the main diagonal",
                   (long long)lower_int(l, "offset", 1, 0));
    if (lower_failed(l))
        return;
    einsum_diagonal(l, &t, d < e ? d : e, d < e ? e : d);
    lower_set(l, 0, t.x);
}

const struct import_builder import_einsum[] = {
    {"einsum.default", builders_einsum, 0},
    {"diagonal.default", builders_diagonal, 0},
    {0},
};
