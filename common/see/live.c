/* The past belongs to the disk's thread until it says that it has been read, and then to the other
 * side.  If that side does not want it any more, the disk's thread frees it. */
#include "see/live.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"

enum live_state { LIVE_ASKED, LIVE_READ, LIVE_UNWANTED };

struct live_past {
    struct task task;
    char *run_dir;
    struct history_live history;
    struct err err;
    int rc;
    _Atomic enum live_state state;
};

struct live {
    struct live_past *past;      /* NULL: `history` has it */
    struct history_live history; /* once the past is there */
    struct buf held;             /* lines with their ends, which wait for the past */
};

/* ---- the past ---- */

static void live_past_free(struct live_past *p)
{
    history_live_fini(&p->history);
    free(p->run_dir);
    free(p);
}

static void live_past_read(struct task *t)
{
    struct live_past *p = container_of(t, struct live_past, task);
    enum live_state asked = LIVE_ASKED;

    if (atomic_load(&p->state) == LIVE_ASKED)
        p->rc = history_live_read(p->run_dir, &p->history, &p->err);
    if (!atomic_compare_exchange_strong(&p->state, &asked, LIVE_READ))
        live_past_free(p);
}

static void live_past_leave(struct live_past *p)
{
    if (atomic_exchange(&p->state, LIVE_UNWANTED) == LIVE_READ)
        live_past_free(p);
}

/* ---- the present ---- */

struct live *live_new(const char *run_dir, struct writer *disk)
{
    struct live *l = xcalloc(1, sizeof *l);
    struct live_past *p = xcalloc(1, sizeof *p);

    p->task = (struct task){.n_bytes = sizeof *p, .run = live_past_read};
    p->run_dir = xstrdup(run_dir);
    atomic_init(&p->state, LIVE_ASKED);
    if (writer_put(disk, &p->task) == WRITER_FULL) {
        log_warn("%s: the curves begin here: the disk hangs", run_dir);
        live_past_free(p);
        return l;
    }
    l->past = p;
    return l;
}

void live_free(struct live *l)
{
    if (!l)
        return;
    if (l->past)
        live_past_leave(l->past);
    history_live_fini(&l->history);
    buf_fini(&l->held);
    free(l);
}

/* Add what was heard meanwhile. */
static void live_release(struct live *l)
{
    const char *at = buf_cstr(&l->held), *end;

    for (; (end = strchr(at, '\n')); at = end + 1)
        history_hear(&l->history, at, (size_t)(end - at));
    buf_fini(&l->held);
}

/* 1: the past has been read, or is not wanted any more. */
static int live_has_past(struct live *l)
{
    struct live_past *p = l->past;

    if (!p)
        return 1;
    if (atomic_load(&p->state) != LIVE_READ)
        return 0;
    if (p->rc < 0)
        log_warn("the curves begin here: %s", p->err.msg);
    l->history = p->history;
    p->history = (struct history_live){0};
    live_past_free(p);
    l->past = NULL;
    live_release(l);
    return 1;
}

void live_hear(struct live *l, const char *line, size_t n)
{
    if (live_has_past(l)) {
        history_hear(&l->history, line, n);
        return;
    }
    buf_append(&l->held, line, n);
    buf_append(&l->held, "\n", 1);
    if (l->held.len <= LIVE_HELD)
        return;
    log_warn("%s: the curves begin here: the disk hangs", l->past->run_dir);
    live_past_leave(l->past);
    l->past = NULL;
    live_release(l);
}

int live_now(struct live *l, struct history *out)
{
    if (!live_has_past(l))
        return 0;
    *out = history_now(&l->history);
    return 1;
}
