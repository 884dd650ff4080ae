/* Log lines: formatted into one buffer, cleaned, and written by one write(2).
 * A line is never cut: the buffer has room for the longest message in its longest form. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/util.h"

/* Written by log_init before threads start, read afterwards: the process has one standard error. */
static struct {
    const char *program;
    enum log_format format;
    enum log_level least;
    void (*_Atomic before_line)(void);
} sink = {.program = "dptrain", .format = LOG_TEXT, .least = LOG_INFO};

static const char *const level_names[] = {"debug", "info", "warning", "error"};

void log_init(const char *program, enum log_format format, enum log_level least)
{
    sink.program = program;
    sink.format = format;
    sink.least = least;
}

void log_set_before_line(void (*before)(void)) { atomic_store(&sink.before_line, before); }

/* Longest message; a byte of it takes at most 6 in JSON ("\\u000a"), so no line is ever cut. */
enum { MSG_BYTES = 2048, LINE_BYTES = 6 * MSG_BYTES + 256 };

/* Append the JSON string form of s, which is clean (RFC 8259 section 7). */
static size_t put_json_string(char *out, size_t len, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\') {
            out[len++] = '\\';
            out[len++] = (char)c;
        } else if (c < 0x20) {
            len += (size_t)sprintf(out + len, "\\u%04x", c);
        } else {
            out[len++] = (char)c;
        }
    }
    return len;
}

static size_t format_json(char *out, enum log_level level, const char *msg)
{
    size_t len = (size_t)snprintf(
        out, 256, "{\"time\":%.6f,\"program\":\"%.64s\",\"level\":\"%s\",\"message\":\"",
        clock_wall_s(), sink.program, level_names[level]);

    len = put_json_string(out, len, msg);
    memcpy(out + len, "\"}\n", 3);
    return len + 3;
}

static size_t format_text(char *out, enum log_level level, const char *msg)
{
    int named = level != LOG_INFO;

    return (size_t)snprintf(out, LINE_BYTES, "%.64s: %s%s%s\n", sink.program,
                            named ? level_names[level] : "", named ? ": " : "", msg);
}

/* One write(2) per line, repeated only if a signal came before its first byte. */
static void write_line(const char *line, size_t len)
{
    while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
        ;
}

void log_at(enum log_level level, const char *fmt, ...)
{
    char msg[MSG_BYTES], line[LINE_BYTES];
    void (*before)(void) = atomic_load(&sink.before_line);
    size_t len;
    va_list ap;

    if (level < sink.least)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    text_clean(msg);
    len = sink.format == LOG_JSON ? format_json(line, level, msg) : format_text(line, level, msg);
    if (before)
        before();
    write_line(line, len);
}

void assert_failed(const char *cond, const char *file, int line)
{
    log_error("internal error: %s is false (%s:%d); please report this", cond, file, line);
    abort();
}
