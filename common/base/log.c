/* Log lines: formatted into one buffer, cleaned, and written by one write(2), at once or by the
 * writer's thread.  A line is never cut: the buffer has room for the longest message in its longest
 * form. */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/util.h"

/* Written by log_init before threads start, read afterwards: the process has one standard error.
 * A field that changes later is atomic. */
static struct {
    const char *program;
    enum log_format format;
    enum log_level least;
    void (*_Atomic before_line)(void);
    struct writer *_Atomic writer;
    _Atomic int64_t n_missing;  /* lines that did not fit, and of which no line tells yet */
    _Atomic int64_t missing_ns; /* when the first of them was dropped */
    _Atomic int name;           /* > 0: rank + 1; < 0: -number; 0: none */
} sink = {.program = "dptrain", .format = LOG_TEXT, .least = LOG_INFO};

static const char *const level_names[] = {"debug", "info", "warning", "error"};

void log_init(const char *program, enum log_format format, enum log_level least)
{
    sink.program = program;
    sink.format = format;
    sink.least = least;
}

void log_set_name(int number, int rank)
{
    atomic_store(&sink.name, number == 0 ? 0 : rank >= 0 ? rank + 1 : -number);
}

void log_set_writer(struct writer *w) { atomic_store(&sink.writer, w); }

void log_set_before_line(void (*before)(void)) { atomic_store(&sink.before_line, before); }

/* Longest message; a byte of it takes at most 6 in JSON ("\\u000a"), so no line is ever cut. */
enum { MSG_BYTES = 2048, LINE_BYTES = 6 * MSG_BYTES + 256 };

enum { ASSERT_PATIENCE_MS = 1000, NAME_BYTES = 40 };

static void log_put_name(char out[NAME_BYTES], const char *rank_form, const char *number_form)
{
    int name = atomic_load(&sink.name);

    out[0] = '\0';
    if (name > 0)
        snprintf(out, NAME_BYTES, rank_form, name - 1);
    else if (name < 0)
        snprintf(out, NAME_BYTES, number_form, -name);
}

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
    size_t len;
    char name[NAME_BYTES];

    log_put_name(name, "\"rank\":%d,", "\"process\":%d,");
    len = (size_t)snprintf(out, 256,
                           "{\"time\":%.6f,\"program\":\"%.64s\",%s\"level\":\"%s\",\"message\":\"",
                           clock_wall_s(), sink.program, name, level_names[level]);

    len = put_json_string(out, len, msg);
    memcpy(out + len, "\"}\n", 3);
    return len + 3;
}

static size_t log_format_text(char *out, enum log_level level, const char *msg)
{
    int named = level != LOG_INFO;
    char name[NAME_BYTES];

    log_put_name(name, "[rank %d] ", "[process %d] ");
    return (size_t)snprintf(out, LINE_BYTES, "%s%.64s: %s%s%s\n", name, sink.program,
                            named ? level_names[level] : "", named ? ": " : "", msg);
}

/* ---- writing ---- */

/* One write(2), unless a signal comes before its first byte, or `fd` does not block, as when
 * another program has made the terminal so: then the rest is written when there is room. */
static void log_write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EAGAIN)
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (n < 0 && errno != EINTR)
            return; /* nobody reads any more */
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

struct output {
    struct task task;
    int fd;
    size_t len;
    char data[];
};

static void run_output(struct task *t)
{
    struct output *o = container_of(t, struct output, task);

    log_write_all(o->fd, o->data, o->len);
    free(o);
}

/* 0: written, or queued; WRITER_FULL. */
static int put_bytes(int fd, const void *data, size_t len)
{
    struct writer *w = atomic_load(&sink.writer);
    struct output *o;
    int rc;

    if (!w) {
        log_write_all(fd, data, len);
        return 0;
    }
    o = xmalloc(sizeof *o + len);
    *o = (struct output){.task = {.n_bytes = len, .run = run_output}, .fd = fd, .len = len};
    memcpy(o->data, data, len);
    rc = writer_put(w, &o->task);
    if (rc != 0)
        free(o);
    return rc;
}

void log_put(int fd, const void *data, size_t n) { (void)put_bytes(fd, data, n); }

static int put_line(enum log_level level, const char *msg)
{
    char line[LINE_BYTES];
    size_t len =
        sink.format == LOG_JSON ? format_json(line, level, msg) : log_format_text(line, level, msg);

    return put_bytes(STDERR_FILENO, line, len);
}

static void count_missing(int64_t n, int64_t since_ns)
{
    if (atomic_fetch_add(&sink.n_missing, n) == 0)
        atomic_store(&sink.missing_ns, since_ns);
}

/* Tell of the lines that did not fit, once there is room: 0, or WRITER_FULL. */
static int log_tell_missing(void)
{
    int64_t since_ns = atomic_load(&sink.missing_ns), n = atomic_exchange(&sink.n_missing, 0);
    char msg[160];

    if (n == 0)
        return 0;
    snprintf(msg, sizeof msg,
             "%lld lines are missing here: nobody read standard error, and for %.0f s there was no "
             "room for more",
             (long long)n, clock_since_s(since_ns));
    if (put_line(LOG_WARN, msg) == 0)
        return 0;
    count_missing(n, since_ns);
    return WRITER_FULL;
}

void log_at(enum log_level level, const char *fmt, ...)
{
    void (*before)(void) = atomic_load(&sink.before_line);
    char msg[MSG_BYTES];
    va_list ap;

    if (level < sink.least)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    text_clean(msg);
    if (before)
        before();
    if (log_tell_missing() == WRITER_FULL || put_line(level, msg) == WRITER_FULL)
        count_missing(1, clock_mono_ns());
}

int log_is_behind(void) { return writer_is_behind(atomic_load(&sink.writer)); }

int log_flush(int64_t patience_ms)
{
    struct writer *w = atomic_load(&sink.writer);
    int rc = writer_flush(w, patience_ms);

    if (rc == 0 && log_tell_missing() == 0)
        rc = writer_flush(w, patience_ms);
    return rc;
}

void assert_failed(const char *cond, const char *file, int line)
{
    log_error("internal error: %s is false (%s:%d); please report this", cond, file, line);
    log_flush(ASSERT_PATIENCE_MS);
    abort();
}
