/* The live line: formatted to the terminal's width and redrawn in place.
 * Log lines of any thread clear it first; the next reading draws it again. */
#include "report/meter.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

enum { REDRAW_NS = 200 * 1000 * 1000, MAX_LINE = 256 };

static const char clear_line[] = "\r\033[K";

/* The process has one standard error; only `drawn` is shared with other threads' log lines. */
static struct {
    int fd;
    int is_terminal;
    int64_t drawn_ns; /* when the line was drawn last */
    atomic_int drawn; /* the line is on the screen */
} meter = {.fd = -1};

void format_count(char *out, size_t cap, double v)
{
    char digits[32];
    size_t n, len = 0;

    if (!isfinite(v) || fabs(v) > 1e15) {
        snprintf(out, cap, "-");
        return;
    }
    if (fabs(v) < 100) {
        snprintf(out, cap, "%.3g", v);
        return;
    }
    n = (size_t)snprintf(digits, sizeof digits, "%.0f", v);
    for (size_t i = 0; i < n && len + 2 < cap; i++) {
        out[len++] = digits[i];
        if ((n - i) % 3 == 1 && i + 1 < n && digits[i] != '-')
            out[len++] = ',';
    }
    out[len] = '\0';
}

void format_loss(char *out, size_t cap, double v)
{
    if (isinf(v))
        snprintf(out, cap, "overflow");
    else if (isnan(v)) /* printf may give it a sign */
        snprintf(out, cap, "nan");
    else
        snprintf(out, cap, fabs(v) < 1e6 ? "%.4f" : "%.4g", v);
}

void format_duration(char *out, size_t cap, double seconds)
{
    int64_t s = isfinite(seconds) && seconds > 0 ? (int64_t)fmin(seconds + 0.5, 1e12) : 0;

    if (s < 3600)
        snprintf(out, cap, "%d:%02d", (int)(s / 60), (int)(s % 60));
    else
        snprintf(out, cap, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60),
                 (int)(s % 60));
}

static void format_eta(char *out, size_t cap, const struct meter_reading *r)
{
    double left = (double)(r->n_steps - r->step) * (double)r->samples_per_step;

    if (r->n_steps > r->step && r->samples_per_second > 0)
        format_duration(out, cap, left / r->samples_per_second);
    else
        snprintf(out, cap, r->n_steps ? "0:00" : "-:--");
}

size_t meter_format(char *out, size_t cap, size_t width, const struct meter_reading *r)
{
    char rate[32], eta[32], loss[32], line[MAX_LINE], steps[32] = "";
    size_t len;

    format_count(rate, sizeof rate, r->samples_per_second);
    format_eta(eta, sizeof eta, r);
    format_loss(loss, sizeof loss, r->loss);
    if (r->n_steps > 0)
        snprintf(steps, sizeof steps, "/%lld", (long long)r->n_steps);
    snprintf(line, sizeof line, "epoch %lld/%lld  step %lld%s  loss %s  %s samples/s  ETA %s",
             (long long)r->epoch, (long long)r->n_epochs, (long long)r->step, steps, loss, rate,
             eta);
    len =
        (size_t)min_i64((int64_t)strlen(line), (int64_t)min_i64((int64_t)width, (int64_t)cap - 1));
    memcpy(out, line, len);
    out[len] = '\0';
    return len;
}

/* Log lines of other threads come here, too.  Only the one that finds the line drawn clears it. */
void meter_clear(void)
{
    if (atomic_exchange(&meter.drawn, 0))
        log_put(meter.fd, clear_line, sizeof clear_line - 1);
}

/* A terminal that does not understand escape sequences, such as an editor's. */
static int is_dumb(const char *term) { return term && !strcmp(term, "dumb"); }

int meter_start(int fd)
{
    meter.fd = fd;
    meter.is_terminal = isatty(fd) && !is_dumb(getenv("TERM"));
    meter.drawn_ns = 0;
    atomic_store(&meter.drawn, 0);
    if (meter.is_terminal)
        log_set_before_line(meter_clear);
    return meter.is_terminal;
}

static size_t terminal_width(int fd)
{
    struct winsize w = {0};

    /* The last column stays free: some terminals wrap when it is filled. */
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79;
}

void meter_show(const struct meter_reading *r, int64_t now_ns)
{
    char line[MAX_LINE + sizeof clear_line];
    size_t n = sizeof clear_line - 1;

    if (!meter.is_terminal || (meter.drawn_ns && now_ns - meter.drawn_ns < REDRAW_NS))
        return;
    if (log_is_behind()) /* the terminal was stopped: it need not show what was meanwhile */
        return;
    memcpy(line, clear_line, n);
    n += meter_format(line + n, sizeof line - n, terminal_width(meter.fd), r);
    meter.drawn_ns = now_ns;
    atomic_store(&meter.drawn, 1);
    log_put(meter.fd, line, n);
}

void meter_stop(void)
{
    if (!meter.is_terminal)
        return;
    meter_clear();
    log_set_before_line(NULL);
    meter.is_terminal = 0;
}
