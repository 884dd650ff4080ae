/* log - the lines that a daemon writes for its operator, on standard error.
 *
 * Text: `dpdriver: warning: message`; with LOG_JSON one object a line with time, program, level,
 * message, so a collector can read it.  A live progress line (report/meter.h) is cleared first.
 *
 * A line is written by the thread that logs it, until log_set_writer gives the lines to a writer's
 * thread (base/writer.h).  From then on a terminal or a collector that does not read holds up
 * nobody.  Lines that the writer's queue does not take are counted, and a warning tells their
 * number once there is room again.
 *
 * Life:    log_init once in main, before threads start; without it: text, program "dptrain".
 * Text:    a message of at most 2047 bytes; bytes that are not UTF-8, and control characters, which
 *          may come from a peer, are shown as '?' (base/text.h).
 * Threads: any; each line leaves in one write(2), lines of one thread in their order. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/err.h"
#include "base/writer.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* `program`, a plain word of at most 64 bytes, is borrowed for the life of the process. */
void log_init(const char *program, enum log_format format, enum log_level least);

/* Name this process in its lines, because several share one log: by its rank, or by `number` if no
 * rank is known (-1).  Text: "[rank 3] dpfollower: ..." or "[process 2] ..."; JSON: a field
 * "rank" or "process".  number 0: no name, which is so at the start. */
void log_set_name(int number, int rank);

void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

/* From now on `w` writes, or NULL: the thread that logs.  Call it where no other thread logs. */
void log_set_writer(struct writer *w);

/* Write n bytes to `fd`, in order with the lines: what belongs to the same terminal.  Bytes that do
 * not fit into the queue are dropped. */
void log_put(int fd, const void *data, size_t n);

int log_is_behind(void); /* 1: lines wait for whoever reads them */

/* Wait until the lines so far are written: 0, or WRITER_LATE. */
int log_flush(int64_t patience_ms);

/* Called before each line, to clear a progress line; NULL: nothing.  Set from the main thread. */
void log_set_before_line(void (*before)(void));

#endif
