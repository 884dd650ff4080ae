/* The streams of server-sent events.  All of them read one ring of notes, each from its own place.
 * A stream that has sent all that there is suspends its connection, and the next note wakes it.  A
 * stream that the ring has overtaken is cut off. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "net/http_impl.h"

enum {
    STREAM_BLOCK = 16384,
    GATHER_MS = 200, /* a note waits so long for others, as waking many streams for each is dear */
    BEAT_MS = 1000,  /* also how fast a browser that went away is noticed: its socket fails then */
};

struct http_stream {
    struct http *http;
    struct MHD_Connection *connection;
    uint64_t at;            /* the next note of the ring */
    int64_t live_ns;        /* of the `live` note that was sent last */
    struct http_note *note; /* that is being sent, or NULL */
    size_t n_sent;          /* bytes of it */
    int is_asleep, is_over; /* suspended; nothing more is to be sent */
    struct http_stream *next, **link;
};

/* ---- notes ---- */

static struct http_note *note_new(const void *text, size_t n)
{
    struct http_note *note = xmalloc(sizeof *note + n);

    note->n_users = 1;
    note->n = n;
    memcpy(note->text, text, n);
    return note;
}

void http_put_note(struct buf *out, const char *event, const char *id, const char *line, size_t n)
{
    buf_printf(out, "event: %s\n", event);
    if (id)
        buf_printf(out, "id: %s\n", id);
    buf_printf(out, "data: ");
    buf_append(out, line, n);
    buf_append(out, "\n\n", 2);
}

static struct http_note *note_of(const char *event, const char *id, const char *line, size_t n)
{
    struct buf text = {0};
    struct http_note *note;

    http_put_note(&text, event, id, line, n);
    note = note_new(text.data, text.len);
    buf_fini(&text);
    return note;
}

static void note_drop(struct http_note *note)
{
    if (note && --note->n_users == 0)
        free(note);
}

static struct http_note *note_use(struct http_note *note)
{
    note->n_users++;
    return note;
}

static void ring_shift(struct http_streams *s)
{
    struct http_note *oldest = s->note[s->begin++ % HTTP_BEHIND];

    s->n_bytes -= oldest->n;
    note_drop(oldest);
}

static void ring_add(struct http_streams *s, struct http_note *note)
{
    if (s->end - s->begin == HTTP_BEHIND)
        ring_shift(s);
    s->note[s->end++ % HTTP_BEHIND] = note;
    s->n_bytes += note->n;
    while (s->n_bytes > HTTP_HELD && s->end - s->begin > 1)
        ring_shift(s);
    s->n_new++;
    s->n_new_bytes += note->n;
}

/* ---- one stream ---- */

static void stream_cut(struct http_stream *s)
{
    s->is_over = 1;
    http_turn_out(s->connection);
}

static struct http_note *stream_next(struct http_stream *s)
{
    struct http_streams *all = &s->http->streams;

    if (s->at < all->end)
        return note_use(all->note[s->at++ % HTTP_BEHIND]);
    if (!all->live || s->live_ns == all->live_ns)
        return NULL;
    s->live_ns = all->live_ns;
    return note_use(all->live);
}

/* 1: there is a note to be sent, or the rest of one.  A stream that waits for room in its socket is
 * read before the streams are woken: the ring may have dropped its next note by then. */
static int stream_has_note(struct http_stream *s)
{
    if (s->is_over)
        return 0;
    if (!s->note && s->at < s->http->streams.begin) {
        stream_cut(s);
        return 0;
    }
    if (!s->note) {
        s->note = stream_next(s);
        s->n_sent = 0;
    }
    return s->note != NULL;
}

static size_t stream_copy(struct http_stream *s, char *out, size_t room)
{
    const size_t n = s->note->n - s->n_sent < room ? s->note->n - s->n_sent : room;

    memcpy(out, s->note->text + s->n_sent, n);
    s->n_sent += n;
    if (s->n_sent == s->note->n) {
        note_drop(s->note);
        s->note = NULL;
    }
    return n;
}

/* libmicrohttpd wants the next bytes, which it sends by one call: so they are of as many notes as
 * have room.  Zero bytes without a suspension would be asked for again at once, for ever. */
static ssize_t stream_read(void *arg, uint64_t position, char *out, size_t room)
{
    struct http_stream *s = arg;
    size_t n = 0;

    (void)position;
    while (n < room && stream_has_note(s))
        n += stream_copy(s, out + n, room - n);
    if (n)
        return (ssize_t)n;
    if (s->is_over || s->http->is_closing)
        return MHD_CONTENT_READER_END_OF_STREAM;
    MHD_suspend_connection(s->connection);
    s->is_asleep = 1;
    return 0;
}

static void stream_free(void *arg)
{
    struct http_stream *s = arg;
    struct http *h = s->http;

    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    if (--h->streams.n == 0 && !h->is_closing)
        uv_timer_stop(&h->beat);
    note_drop(s->note);
    free(s);
}

/* ---- all streams ---- */

void http_streams_wake(struct http *h)
{
    h->streams.n_new = 0;
    h->streams.n_new_bytes = 0;
    if (!h->is_closing)
        uv_timer_stop(&h->gather);
    for (struct http_stream *s = h->streams.first; s; s = s->next) {
        if (s->at < h->streams.begin && !s->is_over)
            stream_cut(s);
        if (!s->is_asleep)
            continue;
        s->is_asleep = 0;
        MHD_resume_connection(s->connection);
    }
    http_kick(h);
}

static void streams_on_gather(uv_timer_t *t) { http_streams_wake(t->data); }

void http_publish(struct http *h, const char *event, const char *id, const char *line, size_t n)
{
    struct http_streams *all = h ? &h->streams : NULL;

    if (!all)
        return;
    note_drop(all->hello); /* it lacks this note */
    all->hello = NULL;
    if (all->n == 0)
        return;
    ring_add(all, note_of(event, id, line, n));
    if (all->n_new > HTTP_BEHIND / 4 || all->n_new_bytes > HTTP_HELD / 4)
        http_streams_wake(h);
    else if (!uv_is_active((uv_handle_t *)&h->gather))
        uv_timer_start(&h->gather, streams_on_gather, GATHER_MS, 0);
}

/* Have the newest live document as a note. */
static void streams_renew_live(struct http *h)
{
    struct buf *text = &h->live;
    const int64_t made_ns = http_fresh(h, h->o.live)->made_ns;

    if (h->streams.live && made_ns == h->streams.live_ns) /* a stream began meanwhile */
        return;
    note_drop(h->streams.live);
    h->streams.live =
        note_of(h->o.live_event, NULL, buf_cstr(text),
                text->len && text->data[text->len - 1] == '\n' ? text->len - 1 : text->len);
    h->streams.live_ns = made_ns;
}

static void streams_on_beat(uv_timer_t *t)
{
    struct http *h = t->data;

    streams_renew_live(h);
    http_streams_wake(h);
}

/* All places of streams are taken: the browser comes again after half a minute. */
static enum MHD_Result streams_refuse(struct MHD_Connection *c)
{
    static const char later[] = "retry: 30000\n\n";
    struct MHD_Response *r = MHD_create_response_from_buffer(
        sizeof later - 1, (void *)(uintptr_t)later, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result rc;

    http_dress(r, "text/event-stream");
    rc = MHD_queue_response(c, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return rc;
}

/* The note that a stream sends first.  All readers who have heard nothing before share it. */
static struct http_note *streams_hello(struct http *h, const char *last)
{
    struct http_streams *all = &h->streams;
    struct buf text = {0};
    struct http_note *note;

    if (last && h->o.knows && !h->o.knows(h->o.arg, last))
        last = NULL;
    if (all->hello && !last)
        return note_use(all->hello);
    buf_printf(&text, "retry: 2000\n\n");
    if (h->o.begin)
        h->o.begin(h->o.arg, last, &text);
    note = note_new(text.data, text.len);
    buf_fini(&text);
    if (!last)
        all->hello = note_use(note);
    return note;
}

static struct http_stream *stream_new(struct http *h, struct MHD_Connection *c)
{
    const char *last = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Last-Event-ID");
    struct http_stream *s = xcalloc(1, sizeof *s);

    *s = (struct http_stream){.http = h, .connection = c, .at = h->streams.end};
    s->note = streams_hello(h, last);
    s->next = h->streams.first;
    s->link = &h->streams.first;
    if (s->next)
        s->next->link = &s->next;
    h->streams.first = s;
    h->streams.n++;
    return s;
}

enum MHD_Result http_stream_open(struct http *h, struct MHD_Connection *c, int is_head)
{
    struct MHD_Response *r;
    enum MHD_Result rc;

    if (!is_head && h->streams.n >= 2 * h->o.most / 5)
        return streams_refuse(c);
    if (is_head) {
        r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    } else {
        struct http_stream *s = stream_new(h, c);

        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, stream_read, s,
                                              stream_free);
        http_visitor_of(c)->is_busy = 1;
        streams_renew_live(h);
        if (!uv_is_active((uv_handle_t *)&h->beat))
            uv_timer_start(&h->beat, streams_on_beat, BEAT_MS, BEAT_MS);
    }
    http_dress(r, "text/event-stream");
    rc = MHD_queue_response(c, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return rc;
}

void http_streams_fini(struct http *h)
{
    ASSERT(h->streams.n == 0);
    while (h->streams.begin < h->streams.end)
        ring_shift(&h->streams);
    note_drop(h->streams.hello);
    note_drop(h->streams.live);
}
