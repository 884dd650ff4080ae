/* The queue of actions, the freeing of actions, and the clock of a session (queue.h).
 * All session machines share them. */
#include "session/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

struct action_node {
    struct action_node *next;
    struct action action;
};

static void queue_free_done(struct session_event *e)
{
    free(e->done.peak_rss_mib);
    free(e->done.no_energy);
}

/* Free what an event owns, by its kind. */
static void event_fini(struct session_event *e)
{
    free(e->host);
    free(e->text);
    if (e->kind == EVENT_FIRST_STEP)
        free(e->first_step.rss_mib);
    else if (e->kind == EVENT_REBALANCE)
        free(e->rebalance.share);
    else if (e->kind == EVENT_DONE)
        queue_free_done(e);
    else if (e->kind == EVENT_SPANS)
        spans_piece_fini(&e->spans.piece);
    if (e->kind != EVENT_FORM)
        return;
    for (int k = 0; e->form.process && k < e->form.n_ranks; k++)
        free(e->form.process[k].host);
    free(e->form.process);
}

void action_fini(struct action *a)
{
    switch (a->kind) {
    case ACTION_SEND:
        frame_unref(a->send.frame);
        break;
    case ACTION_CLOSE:
        free(a->close.text);
        break;
    case ACTION_COMMAND:
        cmd_free(a->command);
        break;
    case ACTION_LOG:
        free(a->log.text);
        break;
    case ACTION_EVENT:
        event_fini(&a->event);
        break;
    case ACTION_INCIDENT:
        incident_free(a->incident);
        break;
    case ACTION_FINISHED:
        free(a->finished.text);
        break;
    case ACTION_SEEK:
        free(a->seek.other);
        break;
    case ACTION_RING:
    case ACTION_TRACE:
    case ACTION_TRUST:
    case ACTION_REQUEST:
    case ACTION_ABORT:
    case ACTION_INJECT:
        break;
    }
}

void queue_init(struct action_queue *q)
{
    q->first = NULL;
    q->last = q->last_trust = &q->first;
}

void queue_fini(struct action_queue *q)
{
    struct action a;
    while (queue_take(q, &a))
        action_fini(&a);
}

void queue_put(struct action_queue *q, const struct action *a)
{
    struct action_node *n = xcalloc(1, sizeof *n);
    ASSERT(a->kind >= ACTION_SEND && a->kind <= ACTION_FINISHED);
    n->action = *a;
    *q->last = n;
    q->last = &n->next;
}

/* The peer stays a stranger to the listener, which may make room by it, until this is done. */
static void put_first(struct action_queue *q, const struct action *a)
{
    struct action_node *n = xcalloc(1, sizeof *n);
    n->action = *a;
    n->next = *q->last_trust;
    *q->last_trust = n;
    if (q->last == q->last_trust)
        q->last = &n->next;
    q->last_trust = &n->next;
}

int queue_take(struct action_queue *q, struct action *out)
{
    struct action_node *n = q->first;
    ASSERT(n || q->last == &q->first);
    if (!n)
        return 0;
    *out = n->action;
    q->first = n->next;
    if (q->last == &n->next)
        q->last = &q->first;
    if (q->last_trust == &n->next)
        q->last_trust = &q->first;
    free(n);
    return 1;
}

void queue_send(struct action_queue *q, int64_t conn, struct frame *f)
{
    ASSERT(f);
    queue_put(q, &(struct action){.kind = ACTION_SEND, .conn = conn, .send.frame = f});
}

void queue_close(struct action_queue *q, int64_t conn, const char *text)
{
    ASSERT(text);
    queue_put(q, &(struct action){.kind = ACTION_CLOSE, .conn = conn, .close.text = xstrdup(text)});
}

void queue_trust(struct action_queue *q, int64_t conn)
{
    put_first(q, &(struct action){.kind = ACTION_TRUST, .conn = conn});
}

void queue_command(struct action_queue *q, struct cmd *c)
{
    ASSERT(c && c->kind >= CMD_OPEN && c->kind <= CMD_STOP);
    queue_put(q, &(struct action){.kind = ACTION_COMMAND, .command = c});
}

void queue_abort(struct action_queue *q) { queue_put(q, &(struct action){.kind = ACTION_ABORT}); }

void queue_inject(struct action_queue *q, const struct injection *f)
{
    queue_put(q, &(struct action){.kind = ACTION_INJECT, .inject = *f});
}

void queue_log(struct action_queue *q, enum log_level level, const char *fmt, ...)
{
    struct action a = {.kind = ACTION_LOG, .log.level = level};
    va_list ap;

    va_start(ap, fmt);
    a.log.text = xvasprintf(fmt, ap);
    va_end(ap);
    queue_put(q, &a);
}

void queue_log_useless(struct action_queue *q, const char *address, const char *why, char **said)
{
    if (*said && !strcmp(*said, why))
        return;
    queue_log(q, LOG_INFO, "the driver at %s is of no use yet: %s", address, why);
    free(*said);
    *said = xstrdup(why);
}

const char *session_reason(const struct err *why)
{
    const char *text = why ? why->msg : "it closed the connection (crashed or killed?)";
    const size_t address = !strncmp(text, "from ", 5) ? 5 + strcspn(text + 5, " ") : 0;

    return address && text[address] && text[address - 1] == ':' ? text + address + 1 : text;
}

int64_t session_enter_ms(struct session_clock *c, int64_t now_ns)
{
    const int64_t late_ns = now_ns - c->due_ns;
    int64_t now_ms;

    ASSERT(c->stalled_ns >= 0);
    if (late_ns > STALL_SLACK_MS * INT64_C(1000000))
        c->stalled_ns += late_ns;
    now_ms = (now_ns - c->stalled_ns) / 1000000;
    ASSERT(now_ms >= c->now_ms);
    c->now_ms = now_ms;
    return now_ms;
}

void session_leave(struct session_clock *c, int64_t due_ms)
{
    ASSERT(due_ms >= 0);
    if (due_ms < c->now_ms)
        due_ms = c->now_ms;
    c->due_ns = due_ms == INT64_MAX ? INT64_MAX : due_ms * 1000000 + c->stalled_ns;
}
