/* Reads the numbers of a run's events backwards, from the newest line on, and stops as soon as
 * older lines can change nothing.  At most MOST_BYTES are read, since a driver with --resume calls
 * this before it listens, and a run's events may have hundreds of MiB.  A line that is no JSON (a
 * torn last one) is skipped.
 *
 * A run may go back, to a checkpoint or to an older state of its followers.  The line `form` tells
 * the step from which the run goes on; what was trained beyond it before is lost, and the lines of
 * those epochs tell nothing of the branch that follows.  Inside a branch steps only grow.  So the
 * newest line of an epoch counts, up to the lowest step of a formation that came after it. */
#include "report/led.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "report/lines.h"
#include "wire/msg.h"

/* The size of the end that is read at first, and at most.  From one attempt to the next it grows by
 * the factor TIMES.  The numbers of lines before the end stay 0. */
enum { FIRST_BYTES = 64 << 10, MOST_BYTES = 16 << 20, TIMES = 16 };

struct scan {
    struct led led;
    int64_t bound; /* the lowest step of the formations so far */
    int has_form, has_epoch, has_validated, has_voters, has_account;
    double newest_s; /* the time of the newest line of the last driver; 0: not known */
};

/* From 0 to `most`, whatever stands there. */
static int64_t led_bounded(const json_t *o, const char *key, int64_t most)
{
    return min_i64(max_i64(0, json_integer_value(json_object_get(o, key))), most);
}

/* A count or a step.  Those that follow it fit into messages, too (MANY in wire/rules.c). */
static int64_t led_number(const json_t *o, const char *key)
{
    return led_bounded(o, key, INT64_MAX / 4);
}

static int led_has_word(const char *line, size_t len, const char *word)
{
    return memmem(line, len, word, strlen(word)) != NULL;
}

/* The newest line that tells of a standby counts: one without an id says that none may lead. */
static void note_voters(struct scan *s, const json_t *o, const char *id)
{
    const char *text = json_string_value(json_object_get(o, id));

    if (!s->has_voters && text)
        s->led.voters = voters_of(led_number(o, "term"), led_number(o, "generation"),
                                  (int)led_bounded(o, "nranks", MSG_MAX_RANKS), text);
    s->has_voters = 1;
}

static double led_real(const json_t *o, const char *key)
{
    const double most = 3e8; /* ten years: the sum of all causes fits into 64 bits of ns */
    double v = json_number_value(json_object_get(o, key));

    return v > 0 && v < most ? v : 0;
}

/* An older version wrote no step into `form`. */
static void note_form(struct scan *s, const json_t *o)
{
    if (!json_is_integer(json_object_get(o, "step")))
        return;
    if (!s->has_form) {
        s->led.live_lr = led_real(o, "live_lr");
        s->led.live_step = led_number(o, "live_step");
    }
    s->has_form = 1;
    s->bound = min_i64(s->bound, led_number(o, "step"));
}

static void led_note_epoch(struct scan *s, const json_t *o)
{
    int64_t step = min_i64(led_number(o, "step"), s->bound);

    if (!s->has_epoch)
        s->led.epoch_step = step;
    s->has_epoch = 1;
    if (!json_object_get(o, "validation_loss"))
        return;
    if (!s->has_validated)
        s->led.validated_step = step;
    s->has_validated = 1;
}

struct account_times led_times(const json_t *o)
{
    const json_t *badput = json_object_get(o, "badput");
    struct account_times t = {{0}};
    int64_t wall = llrint(1e9 * led_real(o, "wall_seconds"));

    for (int i = ACCOUNT_PRODUCTIVE + 1; i < ACCOUNT_KINDS; i++)
        t.ns[i] = llrint(1e9 * led_real(badput, account_key(i)));
    t.rank_us = llrint(fmin(3600e6 * led_real(o, "rank_hours"), (double)(INT64_MAX / 32)));
    t.ns[ACCOUNT_PRODUCTIVE] = max_i64(0, wall - account_wall_ns(&t));
    return t;
}

struct energy_sums led_energy(const json_t *o)
{
    const json_t *joules = json_object_get(o, "joules");
    const double most = 1e15; /* a gigawatt for ten days: sums of mJ fit into a message */
    struct energy_sums s;

    for (int i = 0; i < ENERGY_KINDS; i++) {
        double v = json_number_value(json_object_get(joules, energy_key(i)));

        s.mj[i] = v > 0 ? llrint(1e3 * fmin(v, most)) : 0;
    }
    return s;
}

/* The newest account counts.  Nothing more is known of the time from there to the newest line of
 * its driver: steps of that time are beyond the marks, so it counts as repeated. */
static void note_account(struct scan *s, const json_t *o)
{
    struct account_past *past = &s->led.account;
    struct account_times t = led_times(o);
    struct account_mark mark = {.step = led_number(o, "step"),
                                .ns = t.ns[ACCOUNT_PRODUCTIVE] + t.ns[ACCOUNT_DATA]};
    double since = s->newest_s - json_number_value(json_object_get(o, "time"));

    if (!s->has_account) {
        past->times = t;
        s->led.energy = led_energy(o);
        if (s->newest_s > 0 && since > 0 && since < 3e8)
            past->times.ns[ACCOUNT_REPEATED] += llrint(1e9 * since);
    }
    s->has_account = 1;
    if (past->n_marks < ACCOUNT_PAST_MARKS &&
        (past->n_marks == 0 || mark.step < past->mark[past->n_marks - 1].step))
        past->mark[past->n_marks++] = mark;
}

/* A driver that wrote its first line, and no account, took time that is not counted. */
static void note_time(struct scan *s, const json_t *o, const char *event)
{
    if (s->newest_s == 0)
        s->newest_s = json_number_value(json_object_get(o, "time"));
    if (json_is_object(json_object_get(o, "badput")))
        note_account(s, o);
    if (!strcmp(event, "start"))
        s->newest_s = 0;
}

/* Before the newest formation only formations and epochs count, and no other line is parsed. */
static void note_line(struct scan *s, const char *line, size_t len)
{
    const char *event;
    json_t *o;

    if (s->has_form && !led_has_word(line, len, "\"form\"") &&
        !led_has_word(line, len, "\"epoch\""))
        return;
    o = json_loadb(line, len, 0, NULL);
    event = json_string_value(json_object_get(o, "event"));
    if (event && !s->has_form) {
        s->led.generation = max_i64(s->led.generation, led_number(o, "generation"));
        s->led.step = max_i64(s->led.step, led_number(o, "step"));
    }
    if (event)
        note_time(s, o, event);
    if (event && !strcmp(event, "standby"))
        note_voters(s, o, "id");
    if (event && !strcmp(event, "form"))
        note_voters(s, o, "standby");
    if (event && !strcmp(event, "done"))
        s->led.is_done |= !s->has_form;
    if (event && !strcmp(event, "form"))
        note_form(s, o);
    if (event && !strcmp(event, "epoch"))
        led_note_epoch(s, o);
    json_decref(o);
}

static int is_done(const struct scan *s)
{
    return s->has_form && (s->bound == 0 || (s->has_epoch && s->has_validated));
}

/* The lines of text, the last one first.  memrchr would be slow under the thread sanitizer, which
 * checks all bytes before len at each call. */
static void note_lines(struct scan *s, const char *text, size_t len)
{
    while (len > 0 && !is_done(s)) {
        size_t begin = len - 1;

        while (begin > 0 && text[begin - 1] != '\n')
            begin--;
        note_line(s, text + begin, len - begin);
        len = begin;
    }
}

/* Read `len` bytes of fd from `from` on; less if the file has become shorter. */
static size_t led_read_at(int fd, char *out, size_t len, off_t from)
{
    size_t n = 0;

    while (n < len) {
        ssize_t more = pread(fd, out + n, len - n, from + (off_t)n);

        if (more <= 0)
            break;
        n += (size_t)more;
    }
    return n;
}

/* The end of a file, at most `left` bytes of it.  A line that begins before them is left out.
 * Returns how many bytes that were. */
static size_t note_file(struct scan *s, const char *path, size_t left)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st = {.st_size = 0};
    size_t len, skip = 0, n;
    char *text;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        st.st_size = 0;
    len = st.st_size < (off_t)left ? (size_t)st.st_size : left;
    text = xmalloc(len + 1);
    n = led_read_at(fd, text, len, st.st_size - (off_t)len);
    if ((off_t)len < st.st_size) {
        const char *nl = memchr(text, '\n', n);

        skip = nl ? (size_t)(nl - text) + 1 : n;
    }
    note_lines(s, text + skip, n - skip);
    free(text);
    if (fd >= 0)
        close(fd);
    return len;
}

/* The last `left` bytes of all parts.  1: more of them would tell more. */
static int led_scan(const char *events_path, size_t left, struct scan *s)
{
    *s = (struct scan){.bound = INT64_MAX};
    for (int i = LINES_OLD; i >= 0 && left > 0 && !is_done(s); i--) {
        char *path = lines_part(events_path, i);

        left -= note_file(s, path, left);
        free(path);
    }
    return left == 0 && !is_done(s);
}

/* The marks were read backwards. */
static void led_reverse(struct account_past *past)
{
    for (int i = 0, k = past->n_marks - 1; i < k; i++, k--) {
        struct account_mark m = past->mark[i];

        past->mark[i] = past->mark[k];
        past->mark[k] = m;
    }
}

void led_read(const char *events_path, struct led *out)
{
    struct scan s;
    size_t most = FIRST_BYTES;

    while (led_scan(events_path, most, &s) && most < MOST_BYTES)
        most *= TIMES;
    led_reverse(&s.led.account);
    *out = s.led;
}
