/* err - the one way in which a function here says why it failed.
 *
 * A fallible function returns int and takes `struct err *err` last:
 *    0   ok;
 *   <0   failed, *err is filled: forward it, with err_wrap() where this layer knows more;
 *   >0   an expected outcome that its header documents (LOADER_END, ...): handle it, never forward.
 *
 * Life:    an err is a plain value on the caller's stack; no heap, nothing to free.
 * Threads: an err belongs to the function that holds it; it is never shared.
 * Text:    say the value seen, the value wanted, where, and the remedy where known. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>

/* code, what it means */
#define ERR_LIST(X)                                   \
    X(ERR_ARG, "bad argument")                        \
    X(ERR_CONFIG, "bad configuration")                \
    X(ERR_IO, "input/output error")                   \
    X(ERR_NOMEM, "out of memory")                     \
    X(ERR_PROTO, "protocol violation")                \
    X(ERR_CORRUPT, "damaged file")                    \
    X(ERR_PEER, "a rank was lost")                    \
    X(ERR_TIMEOUT, "deadline passed")                 \
    X(ERR_CANCELED, "canceled")                       \
    X(ERR_REFUSED, "refused")                         \
    X(ERR_UNSUPPORTED, "not supported in this build") \
    X(ERR_DEVICE, "device or library failure")        \
    X(ERR_NUMERIC, "non-finite or diverging numbers")

enum err_code {
    ERR_NONE = 0,
#define X(code, text) code##_INDEX,
    ERR_LIST(X)
#undef X
#define X(code, text) code = -code##_INDEX,
        ERR_LIST(X)
#undef X
};

struct err {
    int code;         /* an err_code, negative */
    int line;         /* where it was first noticed */
    const char *file; /* relative to the source root */
    char msg[512]; /* outermost context first, "..." at the end if too long; clean (base/text.h) */
};

/* Fill *err and return `code` (negative).  The old err->msg may be among the arguments. */
#define err_set(err, code, ...) err_set_at((err), (code), __FILE__, __LINE__, __VA_ARGS__)

int err_set_at(struct err *err, int code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Like err_set, and append ": " and the text of `errnum` (an errno value).  The code is ERR_NOMEM
 * where the system has too little memory, threads or descriptors, else ERR_IO. */
#define err_sys(err, errnum, ...) err_sys_at((err), (errnum), __FILE__, __LINE__, __VA_ARGS__)

int err_sys_at(struct err *err, int errnum, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Prefix *err's message with context and ": "; returns err->code, so `return err_wrap(...)`. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The short text of a code, such as "damaged file"; never NULL. */
const char *err_code_text(int code);

#endif
