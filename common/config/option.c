/* Options themselves: finding them, what they may be, how to say so. */
#include "config/option.h"

#include <string.h>

#include "base/text.h"
#include "base/util.h"

const struct option *option_find(const char *key)
{
    for (size_t i = 0; i < n_config_options; i++)
        if (strcmp(config_options[i].key, key) == 0)
            return &config_options[i];
    return NULL;
}

const struct option *option_first(const char *group)
{
    size_t len = strlen(group);

    for (size_t i = 0; i < n_config_options; i++)
        if (strncmp(config_options[i].key, group, len) == 0 && config_options[i].key[len] == '.')
            return &config_options[i];
    return NULL;
}

int option_applies(const struct option *o, const struct job *job)
{
    const struct option *selector;

    if (!o->only)
        return 1;
    selector = option_find(o->only);
    ASSERT(selector && selector < o && selector->type == OPT_CHOICE);
    return o->only_values >> *(int *)option_field(selector, job) & 1;
}

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

static void want_range(const struct option *o, const char *what, struct buf *out)
{
    buf_printf(out, "%s %s %.16g %s %.16g", what, o->flags & OPT_ABOVE ? "above" : "from", o->min,
               o->flags & OPT_BELOW ? "to below" : (o->flags & OPT_ABOVE ? "up to" : "to"), o->max);
    if (o->unit)
        buf_printf(out, " %s", o->unit);
}

static void want_choice(const struct option *o, struct buf *out)
{
    for (int i = 0; o->choices[i]; i++)
        buf_printf(out, "%s%s", i == 0 ? "" : (o->choices[i + 1] ? ", " : " or "), o->choices[i]);
}

void option_want(const struct option *o, struct buf *out)
{
    switch (o->type) {
    case OPT_BOOL:
        buf_printf(out, "true or false");
        break;
    case OPT_INT:
        want_range(o, "an integer", out);
        break;
    case OPT_REAL:
    case OPT_SECONDS:
        want_range(o, "a number", out);
        break;
    case OPT_CHOICE:
        want_choice(o, out);
        break;
    case OPT_INTS:
        buf_printf(out, "a list of at most %d, each ", JOB_MAX_HIDDEN);
        want_range(o, "an integer", out);
        break;
    case OPT_NAME:
        buf_printf(
            out, "a name of 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit");
        break;
    case OPT_STRING:
        buf_printf(out, "text");
        break;
    case OPT_PATH:
        buf_printf(out, "a path");
        break;
    }
}

void option_when(const struct option *o, struct buf *out)
{
    const struct option *selector = option_find(o->only);
    int n = 0;

    for (int i = 0; selector->choices[i]; i++)
        if (o->only_values >> i & 1)
            buf_printf(out, "%s%s", n++ ? " or " : "", selector->choices[i]);
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
