/* normal - the changes of a text before it is cut, which the library calls normalizers.
 * Most texts need no change of form, and are not copied for it. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/util.h"
#include "tokenizer/tokenizer_impl.h"

/* Characters below U+0300 are composed already, and do not compose with each other; those of ASCII
 * are the same in each form. */
static int normal_is_plain(const char *s, size_t n, int form)
{
    const uint8_t least = form & UTF8PROC_COMPOSE && !(form & UTF8PROC_COMPAT) ? 0xcc : 0x80;
    uint8_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = (uint8_t)s[i] > most ? (uint8_t)s[i] : most;
    return most < least;
}

static int normal_form(struct buf *to, const char *s, size_t n, int form, struct err *err)
{
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t len = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n,
                                              &made, (utf8proc_option_t)form);
    int rc = 0;

    if (len < 0)
        return err_set(err, len == UTF8PROC_ERROR_NOMEM ? ERR_NOMEM : ERR_CORRUPT,
                       "a text of %zu bytes cannot be normalized: %s", n, utf8proc_errmsg(len));
    rc = buf_try_append(to, made, (size_t)len, "a normalized text", err);
    free(made);
    return rc;
}

/* The next match, by the quick way where it is a byte. */
static int normal_find(struct tokenizer_work *w, const struct normal_step *p, const char *s,
                       size_t n, size_t at, size_t *start, size_t *end, struct err *err)
{
    const char *found;

    if (p->byte < 0)
        return pattern_find(p->pattern, w->room, s, n, at, start, end, err);
    found = n > at ? memchr(s + at, p->byte, n - at) : NULL;
    if (!found)
        return 0;
    *start = (size_t)(found - s);
    *end = *start + 1;
    return 1;
}

static int normal_replace(struct tokenizer_work *w, const struct normal_step *p, struct buf *to,
                          const char *s, size_t n, struct err *err)
{
    size_t at = 0, start, end;
    int rc;

    while ((rc = normal_find(w, p, s, n, at, &start, &end, err)) > 0) {
        if (buf_try_append(to, s + at, start - at, "a normalized text", err) < 0 ||
            buf_try_append(to, p->text, p->len, "a normalized text", err) < 0)
            return err->code;
        at = end;
    }
    return rc < 0 ? rc : buf_try_append(to, s + at, n - at, "a normalized text", err);
}

int normal_apply(struct tokenizer_work *w, const char **s, size_t *n, struct err *err)
{
    int rc = 0, n_made = 0;

    for (int i = 0; rc == 0 && i<w->t->n_normal && * n> 0; i++) {
        const struct normal_step *const p = &w->t->normal[i];
        struct buf *const to = &w->normal[n_made % 2]; /* *s may be in the other one */

        if (p->kind == NORMAL_FORM && normal_is_plain(*s, *n, p->form))
            continue;
        n_made++;
        buf_clear(to);
        (void)buf_reserve(to, 1); /* what is made may be empty */
        switch (p->kind) {
        case NORMAL_FORM:
            rc = normal_form(to, *s, *n, p->form, err);
            break;
        case NORMAL_PREPEND:
            buf_append(to, p->text, p->len);
            rc = buf_try_append(to, *s, *n, "a normalized text", err);
            break;
        case NORMAL_REPLACE:
            rc = normal_replace(w, p, to, *s, *n, err);
            break;
        }
        *s = (const char *)to->data;
        *n = to->len;
    }
    return rc;
}
