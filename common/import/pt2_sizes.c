/* pt2_sizes - sizes of an export: numbers, and expressions of symbols.
 *
 * PyTorch writes an expression as sympy's srepr: "Symbol('s77', positive=True, integer=True)",
 * "Mul(Integer(2), Symbol('s77', ...))".  Read are products and sums that come to scale * symbol +
 * plus; any other one is refused by its text. */
#include <stdlib.h>
#include <string.h>

#include "import/pt2_impl.h"

enum { SIZES_MAX_DEPTH = 32, SIZES_NAME_BYTES = 64 };

/* scale * name + plus; a name of "": the number plus, and scale is 0. */
struct sizes_form {
    char name[SIZES_NAME_BYTES];
    int64_t scale, plus;
};

static int sizes_parse(const char **at, struct sizes_form *out, int depth);

static int sizes_take(const char **at, const char *word)
{
    const size_t len = strlen(word);

    if (strncmp(*at, word, len) != 0)
        return 0;
    *at += len;
    return 1;
}

/* a * b, of which one is a number. */
static int sizes_times(struct sizes_form *a, const struct sizes_form *b)
{
    const struct sizes_form *number = b->name[0] ? a : b, *other = b->name[0] ? b : a;
    struct sizes_form to = *other;

    if (number->name[0] || __builtin_mul_overflow(other->scale, number->plus, &to.scale) ||
        __builtin_mul_overflow(other->plus, number->plus, &to.plus))
        return -1;
    *a = to;
    return 0;
}

static int sizes_add(struct sizes_form *a, const struct sizes_form *b)
{
    if (a->name[0] && b->name[0] && strcmp(a->name, b->name) != 0)
        return -1;
    if (b->name[0])
        memcpy(a->name, b->name, sizeof a->name);
    return __builtin_add_overflow(a->scale, b->scale, &a->scale) ||
                   __builtin_add_overflow(a->plus, b->plus, &a->plus)
               ? -1
               : 0;
}

/* The operands of Mul( or Add(, to the closing bracket. */
static int sizes_operands(const char **at, int is_product, struct sizes_form *out, int depth)
{
    if (sizes_parse(at, out, depth + 1) < 0)
        return -1;
    while (sizes_take(at, ", ")) {
        struct sizes_form next;

        if (sizes_parse(at, &next, depth + 1) < 0 ||
            (is_product ? sizes_times(out, &next) : sizes_add(out, &next)) < 0)
            return -1;
    }
    return sizes_take(at, ")") ? 0 : -1;
}

static int sizes_symbol(const char **at, struct sizes_form *out)
{
    const size_t len = strcspn(*at, "'");
    const char *end;

    if (len == 0 || len >= sizeof out->name || (*at)[len] != '\'')
        return -1;
    memcpy(out->name, *at, len);
    out->scale = 1;
    end = strchr(*at + len, ')');
    if (!end)
        return -1;
    *at = end + 1;
    return 0;
}

static int sizes_parse(const char **at, struct sizes_form *out, int depth)
{
    *out = (struct sizes_form){0};
    if (depth > SIZES_MAX_DEPTH)
        return -1;
    if (sizes_take(at, "Symbol('"))
        return sizes_symbol(at, out);
    if (sizes_take(at, "Integer(")) {
        char *end;

        out->plus = strtoll(*at, &end, 10);
        if (end == *at || *end != ')' || out->plus == INT64_MAX || out->plus == INT64_MIN)
            return -1;
        *at = end + 1;
        return 0;
    }
    if (sizes_take(at, "Mul("))
        return sizes_operands(at, 1, out, depth);
    if (sizes_take(at, "Add("))
        return sizes_operands(at, 0, out, depth);
    return -1;
}

static int sizes_new(struct pt2 *p, const char *name, struct import_symbol **out)
{
    struct import_network *n = p->net;

    if (pt2_grow(p, (void **)&n->symbol, sizeof *n->symbol, n->n_symbols, &p->room_symbols,
                 IMPORT_MAX_VALUES, "symbols") < 0)
        return p->err->code;
    *out = &n->symbol[n->n_symbols];
    **out = (struct import_symbol){
        .name = arena_strdup(&n->arena, name), .max = INT64_MAX, .of = -1, .scale = 1};
    json_object_set_new(p->symbols, name, json_integer(n->n_symbols));
    return n->n_symbols++;
}

/* The range that the file gives for a free symbol. */
static int sizes_range(struct pt2 *p, struct import_symbol *s)
{
    json_t *range = json_object_get(json_object_get(p->root, "range_constraints"), s->name),
           *min = json_object_get(range, "min_val"), *max = json_object_get(range, "max_val");

    if (json_is_integer(min))
        s->min = json_integer_value(min);
    if (json_is_integer(max))
        s->max = json_integer_value(max);
    if (s->hint < s->min || s->hint > s->max)
        return pt2_damaged(p, "symbol %s was %lld at export, want %lld to %lld", s->name,
                           (long long)s->hint, (long long)s->min, (long long)s->max);
    return 0;
}

static int sizes_free_symbol(struct pt2 *p, const char *name, int64_t hint)
{
    json_t *at = json_object_get(p->symbols, name);
    struct import_symbol *s;
    int i;

    if (at)
        return (int)json_integer_value(at);
    i = sizes_new(p, name, &s);
    if (i < 0)
        return i;
    s->hint = hint;
    return sizes_range(p, s) < 0 ? p->err->code : i;
}

/* The symbol of a form with the number `hint` at export. */
static int sizes_find(struct pt2 *p, const struct sizes_form *f, int64_t hint, const char *text)
{
    char name[SIZES_NAME_BYTES + 48];
    struct import_symbol *s;
    json_t *at;
    int of, i;

    if ((hint - f->plus) % f->scale != 0)
        return pt2_damaged(p, "size %s was %lld at export, which it cannot be", text,
                           (long long)hint);
    of = sizes_free_symbol(p, f->name, (hint - f->plus) / f->scale);
    if (of < 0 || (f->scale == 1 && f->plus == 0))
        return of;
    snprintf(name, sizeof name, "%lld*%s%+lld", (long long)f->scale, f->name, (long long)f->plus);
    at = json_object_get(p->symbols, name);
    if (at)
        return (int)json_integer_value(at);
    i = sizes_new(p, name, &s);
    if (i < 0)
        return i;
    s->hint = hint;
    s->min = INT64_MIN;
    s->of = of;
    s->scale = f->scale;
    s->plus = f->plus;
    return i;
}

int pt2_size(struct pt2 *p, json_t *size, int64_t *number, int *symbol)
{
    json_t *what, *hint;
    const char *kind = pt2_union(size, &what), *text, *at;
    struct sizes_form f;
    int i;

    *symbol = -1;
    if (kind && !strcmp(kind, "as_int") && json_is_integer(what)) {
        *number = json_integer_value(what);
        return 0;
    }
    text = at = json_string_value(json_object_get(what, "expr_str"));
    if (!kind || strcmp(kind, "as_expr") != 0 || !text)
        return pt2_damaged(p, "a size is neither a number nor an expression");
    hint = json_object_get(json_object_get(what, "hint"), "as_int");
    if (!json_is_integer(hint))
        return pt2_refuse(p, "size %s depends on the data, want one that is known before a step",
                          text);
    *number = json_integer_value(hint);
    if (sizes_parse(&at, &f, 0) < 0 || *at)
        return pt2_refuse(p,
                          "size %s is not supported, want a number, a symbol, or a multiple of "
                          "one; export with fixed sizes besides the batch",
                          text);
    if (f.scale == 0) {
        *number = f.plus;
        return 0;
    }
    if (*number < -(INT64_C(1) << 62) || *number > INT64_C(1) << 62 ||
        f.plus < -(INT64_C(1) << 60) || f.plus > INT64_C(1) << 60)
        return pt2_damaged(p, "size %s is too large", text);
    i = sizes_find(p, &f, *number, text);
    *symbol = i;
    return i < 0 ? i : 0;
}

int pt2_meta(struct pt2 *p, json_t *meta, const char *name, struct import_value *v)
{
    json_t *sizes = json_object_get(meta, "sizes"), *code = json_object_get(meta, "dtype"),
           *layout = json_object_get(meta, "layout");
    const int type = pt2_type(json_integer_value(code));

    if (!json_is_array(sizes) || !json_is_integer(code))
        return pt2_damaged(p, "tensor %s has no type or sizes", name);
    if (type < 0)
        return pt2_refuse(
            p,
            "tensor %s has element type %d of PyTorch's schema (complex, quantized or "
            "newer), which is not supported",
            name, (int)json_integer_value(code));
    if (layout && json_integer_value(layout) != 7)
        return pt2_refuse(p, "tensor %s has layout %d of PyTorch's schema, want 7 (strided)", name,
                          (int)json_integer_value(layout));
    if (json_array_size(sizes) > IMPORT_MAX_DIMS)
        return pt2_refuse(p, "tensor %s has %zu dimensions, want %d at most", name,
                          json_array_size(sizes), IMPORT_MAX_DIMS);
    v->type = (enum import_type)type;
    v->n_dims = (int)json_array_size(sizes);
    for (int i = 0; i < v->n_dims; i++)
        if (pt2_size(p, json_array_get(sizes, (size_t)i), &v->dim[i], &v->symbol[i]) < 0)
            return err_wrap(p->err, "tensor %s", name);
    return 0;
}
