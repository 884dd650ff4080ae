/* libmicrohttpd on a libuv loop.
 *
 * Its epoll descriptor tells that a socket is ready, and its timeout when an idle connection ends.
 * After a suspended connection is resumed neither tells anything, so http_kick has the loop run it
 * once more.  A suspended connection does not notice that its peer has gone before it writes. */
#include "net/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "net/http_impl.h"

enum {
    HTTP_MEMORY = 32 << 10, /* of a request's headers and an answer's buffer, a connection */
    HTTP_LAST_RUNS = 64,    /* to send what is left at the end */
};

/* ---- the loop ---- */

static void http_on_timer(uv_timer_t *t);

static void http_run(struct http *h)
{
    MHD_UNSIGNED_LONG_LONG ms;

    MHD_run(h->mhd);
    if (MHD_get_timeout(h->mhd, &ms) == MHD_YES)
        uv_timer_start(&h->timer, http_on_timer, ms, 0);
    else
        uv_timer_stop(&h->timer);
}

static void http_on_timer(uv_timer_t *t) { http_run(t->data); }

static void http_on_poll(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    http_run(p->data);
}

void http_kick(struct http *h)
{
    if (!h->is_closing)
        uv_timer_start(&h->timer, http_on_timer, 0, 0);
}

/* ---- connections ---- */

struct http_visitor *http_visitor_of(struct MHD_Connection *c)
{
    return MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* libmicrohttpd closes the connection when it next looks at its socket. */
void http_turn_out(struct MHD_Connection *c)
{
    http_visitor_of(c)->is_out = 1;
    shutdown(MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd, SHUT_RDWR);
}

/* Keep places free for those who ask something. */
static void http_make_room(struct http *h)
{
    struct http_visitor *v = h->oldest;

    if (h->n_visitors <= h->o.most - HTTP_SPARE)
        return;
    while (v && (v->is_busy || v->is_out))
        v = v->next;
    if (v)
        http_turn_out(v->connection);
}

static void http_visitor_enter(struct http *h, struct MHD_Connection *c, void **context)
{
    struct http_visitor *v = xcalloc(1, sizeof *v);

    *v = (struct http_visitor){.connection = c, .link = h->newest};
    *h->newest = v;
    h->newest = &v->next;
    h->n_visitors++;
    *context = v;
    http_make_room(h);
}

static void http_visitor_leave(struct http *h, struct http_visitor *v)
{
    *v->link = v->next;
    if (v->next)
        v->next->link = v->link;
    else
        h->newest = v->link;
    h->n_visitors--;
    free(v);
}

static void http_on_connection(void *arg, struct MHD_Connection *c, void **context,
                               enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        http_visitor_enter(arg, c, context);
    else
        http_visitor_leave(arg, *context);
}

/* ---- answers ---- */

void http_dress(struct MHD_Response *r, const char *type)
{
    static const char *const headers[][2] = {
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
        {"Content-Security-Policy", /* curves.svg has its style inside */
         "default-src 'self'; style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action "
         "'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
    };

    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    for (size_t i = 0; i < ARRAY_LEN(headers); i++)
        MHD_add_response_header(r, headers[i][0], headers[i][1]);
}

enum MHD_Result http_say(struct MHD_Connection *c, unsigned status, const char *text,
                         const char *header, const char *value)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                                             MHD_RESPMEM_MUST_COPY);
    enum MHD_Result rc;

    http_dress(r, "text/plain; charset=utf-8");
    if (header)
        MHD_add_response_header(r, header, value);
    rc = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return rc;
}

const struct http_copy *http_fresh(struct http *h, const struct http_document *d)
{
    struct http_copy *copy = &h->copy[d - h->o.documents];
    const int64_t now = clock_mono_ns();
    struct buf text = {0};

    if (copy->response && now - copy->made_ns < (int64_t)1000000 * HTTP_FRESH_MS)
        return copy;
    if (copy->response)
        MHD_destroy_response(copy->response);
    copy->status = d->make(h->o.arg, &text);
    copy->response = MHD_create_response_from_buffer(text.len, text.data, MHD_RESPMEM_MUST_COPY);
    copy->made_ns = now;
    http_dress(copy->response, d->type);
    if (d == h->o.live) {
        buf_fini(&h->live);
        h->live = text;
    } else {
        buf_fini(&text);
    }
    return copy;
}

static enum MHD_Result http_answer_file(struct MHD_Connection *c, const struct http_file *f)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(f->n, (void *)(uintptr_t)f->bytes, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result rc;

    http_dress(r, f->type);
    rc = MHD_queue_response(c, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return rc;
}

/* ---- requests ---- */

static const char *http_value(struct MHD_Connection *c, enum MHD_ValueKind kind, const char *key)
{
    return MHD_lookup_connection_value(c, kind, key);
}

/* The link was opened.  The browser keeps the token as a cookie, and the address loses it. */
static enum MHD_Result http_keep_token(struct http *h, struct MHD_Connection *c)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    char cookie[HTTP_COOKIE + GATE_TOKEN + 64];
    enum MHD_Result rc;

    http_dress(r, "text/plain; charset=utf-8");
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Lax", h->cookie,
             h->gate.token);
    MHD_add_response_header(r, MHD_HTTP_HEADER_SET_COOKIE, cookie);
    MHD_add_response_header(r, MHD_HTTP_HEADER_LOCATION, "/");
    rc = MHD_queue_response(c, MHD_HTTP_SEE_OTHER, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result http_count_host(void *n, enum MHD_ValueKind kind, const char *key,
                                       const char *value)
{
    (void)kind;
    (void)value;
    *(int *)n += !strcasecmp(key, MHD_HTTP_HEADER_HOST);
    return MHD_YES;
}

static struct gate_request http_parts(const struct http *h, struct MHD_Connection *c)
{
    struct gate_request r = {.host = http_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST),
                             .authorization =
                                 http_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION),
                             .query = http_value(c, MHD_GET_ARGUMENT_KIND, "token"),
                             .cookie = http_value(c, MHD_COOKIE_KIND, h->cookie)};

    MHD_get_connection_values(c, MHD_HEADER_KIND, http_count_host, &r.n_hosts);
    return r;
}

static enum MHD_Result http_answer_document(struct http *h, struct MHD_Connection *c, int i)
{
    const struct http_copy *copy = http_fresh(h, &h->o.documents[i]);

    return MHD_queue_response(c, (unsigned)copy->status, copy->response);
}

static enum MHD_Result http_answer(struct http *h, struct MHD_Connection *c, const char *method,
                                   struct http_route to, void **state)
{
    switch (to.kind) {
    case ROUTE_METHOD:
        return http_say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "this server can be looked at: GET, HEAD\n",
                        MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    case ROUTE_TWO_HOSTS:
        return http_say(c, MHD_HTTP_BAD_REQUEST, "a request has one Host header\n", NULL, NULL);
    case ROUTE_OTHER_HOST:
        return http_say(c, MHD_HTTP_FORBIDDEN, h->other_host, NULL, NULL);
    case ROUTE_NO_TOKEN:
        return http_say(c, MHD_HTTP_UNAUTHORIZED,
                        "the token is missing or wrong: open the link that dpdriver printed, or "
                        "send \"Authorization: Bearer TOKEN\"\n",
                        MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    case ROUTE_DOCUMENT:
        return http_answer_document(h, c, to.i);
    case ROUTE_STREAM:
        return http_stream_open(h, c, !strcmp(method, MHD_HTTP_METHOD_HEAD));
    case ROUTE_KEEP_TOKEN:
        return http_keep_token(h, c);
    case ROUTE_FILE:
        return http_answer_file(c, &h->o.files[to.i]);
    case ROUTE_FOLDER:
        return http_folder_open(h, c, &h->o.folders[to.i], to.name, state);
    case ROUTE_NOTHING:
    default:
        return http_say(c, MHD_HTTP_NOT_FOUND, "there is nothing at this path\n", NULL, NULL);
    }
}

/* It comes twice: with the headers, and after the body, of which nothing is read.  An answer to the
 * first call ends the connection: so those whose method sends a body are answered then. */
static enum MHD_Result http_on_request(void *arg, struct MHD_Connection *c, const char *path,
                                       const char *method, const char *version, const char *upload,
                                       size_t *n_upload, void **state)
{
    struct http *h = arg;
    const struct gate_request r = http_parts(h, c);

    (void)version;
    (void)upload;
    (void)n_upload;
    if (!*state && http_is_method(method)) {
        *state = h;
        return MHD_YES;
    }
    if (*state && *state != h)
        return http_read_answer(*state);
    return http_answer(h, c, method, http_route_of(&h->o, &h->gate, method, path, &r), state);
}

static void http_on_completed(void *arg, struct MHD_Connection *c, void **state,
                              enum MHD_RequestTerminationCode why)
{
    (void)c;
    (void)why;
    if (*state && *state != arg)
        http_read_completed(*state);
}

/* ---- life ---- */

static int http_start(struct http *h, int fd, struct err *err)
{
    h->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, http_on_request, h,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->o.most,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
        http_on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, h, MHD_OPTION_END);
    if (h->mhd)
        return 0;
    close(fd);
    return err_set(err, ERR_IO, "--http: libmicrohttpd %s does not start", MHD_get_version());
}

int http_open(uv_loop_t *loop, const struct http_options *o, struct http **out, struct err *err)
{
    struct http *h = xcalloc(1, sizeof *h);
    int fd = -1, rc;

    ASSERT(o->n_documents <= HTTP_DOCUMENTS && o->most >= HTTP_LEAST && o->most <= HTTP_MOST);
    h->o = *o;
    h->newest = &h->oldest;
    rc = http_listen(h, &fd, err);
    if (rc == 0)
        rc = http_start(h, fd, err);
    if (rc < 0) {
        free(h);
        return rc;
    }
    uv_poll_init(loop, &h->poll, MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd);
    uv_timer_init(loop, &h->timer);
    uv_timer_init(loop, &h->beat);
    uv_timer_init(loop, &h->gather);
    h->poll.data = h->timer.data = h->beat.data = h->gather.data = h;
    h->n_handles = 4;
    uv_poll_start(&h->poll, UV_READABLE, http_on_poll);
    *out = h;
    return 0;
}

const char *http_url(const struct http *h) { return h->url; }

static void http_on_closed(uv_handle_t *handle)
{
    struct http *h = handle->data;

    if (--h->n_handles == 0)
        free(h);
}

/* Send what is published, and end the streams. */
static void http_finish(struct http *h)
{
    h->is_closing = 1;
    http_reads_end(h);
    http_streams_wake(h);
    for (int i = 0; i < HTTP_LAST_RUNS && (h->streams.n || h->reads); i++)
        MHD_run(h->mhd);
}

void http_close(struct http *h)
{
    if (!h)
        return;
    http_finish(h);
    uv_close((uv_handle_t *)&h->poll, http_on_closed);
    uv_close((uv_handle_t *)&h->timer, http_on_closed);
    uv_close((uv_handle_t *)&h->beat, http_on_closed);
    uv_close((uv_handle_t *)&h->gather, http_on_closed);
    MHD_stop_daemon(h->mhd);
    http_streams_fini(h);
    for (int i = 0; i < HTTP_DOCUMENTS; i++)
        if (h->copy[i].response)
            MHD_destroy_response(h->copy[i].response);
    buf_fini(&h->live);
}
