/* Each second the driver is asked anew.  When nobody answers any more, the run's files tell how it
 * ended; a standby of which the driver told may go on with the run, and is given time to.
 *
 * A frame is one write, from the terminal's upper left corner on: what it replaces is overwritten,
 * never wiped first, so nothing flickers.  Lines are not wrapped while it is drawn. */
#include "driver/watching.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "driver/ask.h"
#include "driver/request.h"
#include "driver/status_socket.h"
#include "see/past.h"

enum {
    WATCHING_OTHER_LINES = 9, /* of a status, beside its ranks, and the cursor's */
    WATCHING_END_S = 10,      /* for a driver to write how the run ended */
    WATCHING_STANDBY_S = 30,  /* for a standby to lead */
};

struct watching {
    const char *run_dir;
    int log_format;
    int is_terminal;
    int has_drawn;
    int has_standby;  /* by the newest status */
    int n_unanswered; /* questions since it */
};

/* ---- frames ---- */

/* The rows of the terminal, or 0 if its size is not known. */
static int watching_rows(void)
{
    struct winsize size = {0};

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

/* ?7: whether lines are wrapped; H: to the corner; K, J: clear to the end of the line, the screen.
 */
static void watching_draw(struct watching *w, const char *text)
{
    struct buf frame = {0};

    buf_printf(&frame, "%s\033[?7l\033[H", w->has_drawn ? "" : "\033[2J");
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");

        buf_printf(&frame, "%.*s\033[K\n", (int)n, at);
        at += n + (at[n] == '\n');
    }
    buf_printf(&frame, "\033[J\033[?7h");
    fwrite(frame.data, 1, frame.len, stdout);
    w->has_drawn = 1;
    buf_fini(&frame);
}

static void watching_show_text(struct watching *w, const char *text)
{
    if (w->is_terminal)
        watching_draw(w, text);
    else
        printf("%s%s", w->has_drawn ? "\n" : "", text);
    w->has_drawn = 1;
}

static void watching_show_status(struct watching *w, const json_t *answer)
{
    const json_t *status = json_object_get(answer, "status");

    w->has_standby = json_is_object(json_object_get(status, "standby"));
    if (w->log_format == LOG_JSON) {
        json_dumpf(status, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        printf("\n");
    } else {
        watching_show_text(w, json_string_value(json_object_get(answer, "text")));
    }
}

/* Tell that the driver does not answer as it should, and go on. */
static void watching_show_trouble(struct watching *w, const char *why)
{
    char text[640];

    if (!w->is_terminal || w->log_format == LOG_JSON) {
        log_warn("--watch: %s", why);
        return;
    }
    snprintf(text, sizeof text, "%s\nIt is asked again; Ctrl-C ends this.\n", why);
    watching_draw(w, text);
}

/* ---- the end ---- */

static int watching_tell_end(const struct watching *w, const struct past *p)
{
    const long long step = max_i64(0, p->status.step);
    const char *stage = p->status.stage;

    if (!strcmp(stage, "done")) {
        log_info("--watch: the run in %s is done after step %lld", w->run_dir, step);
        return STATUS_OK;
    }
    if (!strcmp(stage, "failed")) {
        log_error("--watch: the run in %s has failed after step %lld; its events.jsonl says why",
                  w->run_dir, step);
        return STATUS_FAILED;
    }
    log_warn(
        "--watch: the run in %s has stopped after step %lld; dpdriver --resume goes on with it",
        w->run_dir, step);
    return STATUS_STOPPED;
}

/* No driver answers.  Returns 1 once the run has ended, and its exit status. */
static int watching_has_ended(struct watching *w, int *status)
{
    struct past past;
    struct err err;
    int has_ended = 0, is_over;

    if (past_read(w->run_dir, clock_wall_s(), &past, &err) < 0) {
        log_error("--watch: no driver is running in %s any more, and: %s", w->run_dir, err.msg);
        *status = STATUS_REFUSED;
        return 1;
    }
    is_over = past.status.latest.is_done || past.status.latest.has_failed;
    if (is_over || w->n_unanswered > (w->has_standby ? WATCHING_STANDBY_S : WATCHING_END_S) ||
        (!w->has_standby && !strcmp(past.status.stage, "stopped"))) {
        *status = watching_tell_end(w, &past);
        has_ended = 1;
    }
    past_fini(&past);
    return has_ended;
}

/* ---- asking ---- */

static void watching_take(struct watching *w, const struct buf *answer)
{
    json_t *o = json_loadb((const char *)answer->data, answer->len, 0, NULL);
    const char *error = json_string_value(json_object_get(o, "error"));

    if (json_is_string(json_object_get(o, "text")) && json_is_object(json_object_get(o, "status")))
        watching_show_status(w, o);
    else
        watching_show_trouble(w, error ? error : "the driver's answer is cut short");
    json_decref(o);
}

/* Ask once.  Returns 1 when all is over, and the exit status. */
static int watching_look(struct watching *w, int *status)
{
    const int rows = w->is_terminal ? watching_rows() : 0;
    char request[STATUS_REQUEST];
    struct buf answer = {0};
    struct err err;
    int rc;

    snprintf(request, sizeof request, "%s %lld", request_names[ASK_watch],
             (long long)(rows ? max_i64(1, rows - WATCHING_OTHER_LINES) : 0));
    rc = status_socket_ask(w->run_dir, request, &answer, &err);
    if (rc == 0)
        watching_take(w, &answer);
    else if (rc < 0)
        watching_show_trouble(w, err.msg);
    w->n_unanswered = rc == STATUS_NOBODY ? w->n_unanswered + 1 : 0;
    buf_fini(&answer);
    return rc == STATUS_NOBODY && watching_has_ended(w, status);
}

static void watching_wait_until(int64_t at_ns)
{
    const struct timespec at = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* The terminal understands escape sequences. */
static int watching_can_draw(void)
{
    const char *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
}

int watching_run(const char *run_dir, int log_format)
{
    struct watching w = {.run_dir = run_dir,
                         .log_format = log_format,
                         .is_terminal = log_format != LOG_JSON && watching_can_draw()};
    int64_t next_ns = clock_mono_ns();
    struct err err;
    int status = STATUS_OK;

    if (status_socket_find(run_dir, &err) == STATUS_NOBODY) {
        log_error("--watch: no driver is running in %s", run_dir);
        return STATUS_REFUSED;
    }
    while (!watching_look(&w, &status)) {
        if (fflush(stdout) != 0)
            break; /* nobody reads any more; daemon_end_output says so */
        next_ns = max_i64(next_ns + 1000000000, clock_mono_ns());
        watching_wait_until(next_ns);
    }
    return status;
}
