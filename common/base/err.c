/* Filling an err: the text is formatted aside first, since an old message may be an argument.
 * The message is cleaned here, once, so that every reader may print it. */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

/* Write the formatted text, then ": " and `tail` unless it is NULL; either may lie in err->msg. */
static void set_msg(struct err *err, const char *tail, const char *fmt, va_list ap)
{
    static const char cut[] = "...";
    char text[sizeof err->msg];
    int len = vsnprintf(text, sizeof text, fmt, ap);

    ASSERT(len >= 0);
    if (tail && (size_t)len < sizeof text)
        len += snprintf(text + len, sizeof text - (size_t)len, ": %s", tail);
    if ((size_t)len >= sizeof text)
        memcpy(text + sizeof text - sizeof cut, cut, sizeof cut);
    text_clean(text);
    memcpy(err->msg, text, sizeof text);
}

int err_set_at(struct err *err, int code, const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    ASSERT(code < 0);
    va_start(ap, fmt);
    set_msg(err, NULL, fmt, ap);
    va_end(ap);
    err->code = code;
    err->file = file;
    err->line = line;
    return code;
}

/* Another start may find enough: memory, threads (EAGAIN), descriptors. */
static int is_shortage(int errnum)
{
    return errnum == ENOMEM || errnum == EAGAIN || errnum == EMFILE || errnum == ENFILE;
}

int err_sys_at(struct err *err, int errnum, const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_msg(err, strerror(errnum), fmt, ap);
    va_end(ap);
    err->code = is_shortage(errnum) ? ERR_NOMEM : ERR_IO;
    err->file = file;
    err->line = line;
    return err->code;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_msg(err, err->msg, fmt, ap);
    va_end(ap);
    return err->code;
}

const char *err_code_text(int code)
{
    switch (code) {
#define X(name, text) \
    case name:        \
        return text;
        ERR_LIST(X)
#undef X
    default:
        return "no error";
    }
}
