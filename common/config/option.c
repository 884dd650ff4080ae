/* The words for the values that an option may have, as messages and --help-job say them, and text
 * from a stranger made fit to be shown. */
#include "config/option.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

size_t line_char_len(const char *s, size_t len)
{
    size_t n = text_char_len(s);
    unsigned c = (unsigned char)s[0];

    if (n == 0 || n > len)
        return 0;
    c = n == 1 ? c : c & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3f);
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
        (c & 0xfffe) == 0xfffe)
        return 0;
    return n;
}

const char *show_text(const char *text, size_t len, char out[64])
{
    enum { SHOWN = 48 };
    size_t at = 0, n, to = 0;
    int number = len > 0;

    out[to++] = '"';
    for (; at < len && to < SHOWN; at += n ? n : 1) {
        n = line_char_len(text + at, len - at);
        number = number && text[at] && strchr("0123456789+-.eE", text[at]);
        memcpy(out + to, n ? text + at : "?", n ? n : 1);
        to += n ? n : 1;
    }
    snprintf(out + to, 64 - to, at < len ? "...\"" : "\"");
    if (number && at == len) {
        memmove(out, out + 1, to - 1);
        out[to - 1] = 0;
    }
    return out;
}

const char *show_scalar(const char *text, size_t len, int quoted, char out[96])
{
    char shown[64];

    snprintf(out, 96, "%s%s", show_text(text, len, shown), quoted ? " in quotes" : "");
    return out;
}

static void want_range(const struct option *o, const char *what, struct buf *out)
{
    buf_printf(out, "%s %s %.16g %s %.16g", what, o->flags & OPT_ABOVE ? "above" : "from", o->min,
               o->flags & OPT_BELOW ? "to below" : (o->flags & OPT_ABOVE ? "up to" : "to"), o->max);
    if (o->unit)
        buf_printf(out, " %s", o->unit);
}

static void want_choice(const struct option *o, struct buf *out)
{
    for (int i = o->first; o->choices[i]; i++)
        buf_printf(out, "%s%s", i == o->first ? "" : (o->choices[i + 1] ? ", " : " or "),
                   o->choices[i]);
}

static void want_entry(const struct option_registry *r, struct buf *out)
{
    for (int i = 0; r->entry[i]; i++)
        buf_printf(out, "%s%s", i == 0 ? "" : (r->entry[i + 1] ? ", " : " or "), r->entry[i]->name);
}

/* "a list of at most 64 mappings, each with match: text; lr_scale: a number ... (1)" */
static void want_items(const struct option_item *item, struct buf *out)
{
    buf_printf(out, "a list of at most %d mappings, each with ", OPT_MAX_ITEMS);
    for (int i = 0; i < item->n_options; i++) {
        const struct option *o = &item->option[i];

        buf_printf(out, "%s%s: ", i ? "; " : "", o->key);
        option_want(o, out);
        buf_printf(out, " (%s)", option_default_text(o));
    }
}

void option_want(const struct option *o, struct buf *out)
{
    switch (o->type) {
    case OPT_BOOL:
        buf_printf(out, "true or false");
        break;
    case OPT_INT:
        want_range(o, "an integer", out);
        if (o->choices) {
            buf_printf(out, ", or ");
            want_choice(o, out);
        }
        break;
    case OPT_REAL:
    case OPT_SECONDS:
        want_range(o, "a number", out);
        break;
    case OPT_CHOICE:
        want_choice(o, out);
        break;
    case OPT_ENTRY:
        want_entry(o->registry, out);
        break;
    case OPT_INTS:
        buf_printf(out, "a list of at most %d, each ", OPT_MAX_INTS);
        want_range(o, "an integer", out);
        break;
    case OPT_REALS:
        buf_printf(out, o->count ? "a list of %d, each " : "a list of at most %d, each ",
                   o->count ? o->count : OPT_MAX_REALS);
        want_range(o, "a number", out);
        break;
    case OPT_NUMBERS:
        buf_printf(out, "a list of at most %d, each ", OPT_MAX_NUMBERS);
        want_range(o, "a number", out);
        break;
    case OPT_SET:
        buf_printf(out, "a list of some of ");
        want_choice(o, out);
        break;
    case OPT_TREE:
        buf_printf(out, "a %s of %s", o->flags & OPT_MAP ? "mapping" : "list",
                   o->unit ? o->unit : "layers");
        break;
    case OPT_ITEMS:
        want_items(o->item, out);
        break;
    case OPT_NAME:
        buf_printf(
            out, "a name of 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit");
        break;
    case OPT_STRING:
        buf_printf(out, o->flags & OPT_MAP    ? "text, a list of texts, or a mapping"
                        : o->flags & OPT_MANY ? "text, or a list of texts"
                                              : "text");
        break;
    case OPT_PATH:
        if (o->choices)
            want_choice(o, out);
        buf_printf(out, o->choices ? ", or a path" : "a path");
        break;
    }
}

const struct option_group *option_entry(const struct option_registry *r, const char *name,
                                        size_t len)
{
    for (int i = 0; r->entry[i]; i++)
        if (strlen(r->entry[i]->name) == len && !memcmp(r->entry[i]->name, name, len))
            return r->entry[i];
    return NULL;
}

const char *option_default_text(const struct option *o)
{
    return o->def ? o->def : o->flags & OPT_REQUIRED ? "must be given" : "none";
}

int option_fail(const struct option *o, const char *seen, struct err *err)
{
    struct buf want = {0};
    int rc;

    option_want(o, &want);
    rc = err_set(err, ERR_CONFIG, "%s is %s, want %s", o->key, seen, buf_cstr(&want));
    buf_fini(&want);
    return rc;
}

const char *option_next_item(const char *text, char item[OPT_TEXT_BYTES + 1])
{
    static const char between[] = ", ";
    const char *end = strstr(text, between);
    const size_t n = end ? (size_t)(end - text) : strlen(text);

    ASSERT(n <= OPT_TEXT_BYTES);
    memcpy(item, text, n);
    item[n] = '\0';
    return end ? end + strlen(between) : NULL;
}
