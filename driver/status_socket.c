/* The status socket: a few short-lived clients, each with a timer of its own, on the driver's loop.
 *
 * The client's end, for --status and --drain, blocks.  It is at the end of this file. */
#include "driver/status_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"

enum { ANSWER_LIMIT = 64 << 20 };

static const char name[] = "status.sock";
static const char aside[] = "status.sock.new"; /* until somebody listens there */

struct status_socket {
    uv_pipe_t pipe;
    int folder;     /* its descriptor */
    ino_t name_ino; /* of our socket in it */
    void (*answer)(void *arg, const struct status_client *who, const char *request,
                   struct buf *out);
    void *arg;
    struct client *clients;
    int n_clients;
};

struct client {
    uv_pipe_t pipe;
    uv_timer_t patience;
    uv_write_t write;
    char request[STATUS_REQUEST + 1];
    size_t n_read;
    struct buf text;
    int n_handles; /* not yet closed */
    struct status_socket *owner;
    struct client *next;
};

/* A path short enough for an address, whatever the folder's is. */
static struct sockaddr_un address_in(int folder, const char *file)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", folder, file);
    return a;
}

/* ---- clients ---- */

static void drop_client(struct client *c)
{
    struct client **p = &c->owner->clients;

    for (; *p != c; p = &(*p)->next)
        ;
    *p = c->next;
    c->owner->n_clients--;
}

static void on_handle_closed(uv_handle_t *h)
{
    struct client *c = h->data;

    if (--c->n_handles > 0)
        return;
    buf_fini(&c->text);
    free(c);
}

static void end_client(struct client *c)
{
    if (uv_is_closing((uv_handle_t *)&c->pipe))
        return;
    drop_client(c);
    uv_close((uv_handle_t *)&c->pipe, on_handle_closed);
    uv_close((uv_handle_t *)&c->patience, on_handle_closed);
}

static void status_socket_on_written(uv_write_t *w, int status)
{
    (void)status; /* the client may be gone; in any case it is served */
    end_client(w->data);
}

static void on_impatience(uv_timer_t *t) { end_client(t->data); }

/* The process that connected; it may have passed the connection on to another one. */
static struct status_client who_is(const struct client *c)
{
    struct ucred u;
    socklen_t len = sizeof u;
    int fd;

    if (uv_fileno((const uv_handle_t *)&c->pipe, &fd) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &len) < 0)
        return (struct status_client){-1, -1};
    return (struct status_client){u.uid, u.pid};
}

static void status_socket_answer(struct client *c, const char *request)
{
    const struct status_client who = who_is(c);
    uv_buf_t b;

    uv_read_stop((uv_stream_t *)&c->pipe);
    c->owner->answer(c->owner->arg, &who, request, &c->text);
    b = uv_buf_init((char *)c->text.data, (unsigned)c->text.len);
    c->write.data = c;
    uv_timer_start(&c->patience, on_impatience, STATUS_PATIENCE_MS, 0);
    if (uv_write(&c->write, (uv_stream_t *)&c->pipe, &b, 1, status_socket_on_written) < 0)
        end_client(c);
}

/* 1: the client has closed the connection.  It may have done so while this process was stopped. Its
 * user was told then that the request failed, so the request must not be carried out any more. */
static int status_socket_is_gone(const struct client *c)
{
    struct pollfd p = {0};

    return uv_fileno((const uv_handle_t *)&c->pipe, &p.fd) < 0 ||
           (poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR));
}

/* Read into the room that is left for the line. */
static void status_socket_on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *out)
{
    struct client *c = h->data;

    (void)suggested;
    *out = uv_buf_init(c->request + c->n_read, (unsigned)(sizeof c->request - c->n_read));
}

/* One line of characters that can be shown, and nothing after it. */
static int is_request(const char *line, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        if (line[i] < ' ' || line[i] > '~')
            return 0;
    return n > 0 && line[n - 1] == '\n';
}

static void status_socket_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b)
{
    struct client *c = stream->data;

    (void)b;
    if (n > 0)
        c->n_read += (size_t)n;
    if (n >= 0 && !memchr(c->request, '\n', c->n_read) && c->n_read < sizeof c->request)
        return; /* more will come */
    if (c->n_read == 0 || status_socket_is_gone(c)) {
        end_client(c); /* the client may only have looked whether a driver is there */
        return;
    }
    if (!is_request(c->request, c->n_read)) {
        status_socket_answer(c, NULL);
        return;
    }
    c->request[c->n_read - 1] = '\0';
    status_socket_answer(c, c->request);
}

static void status_socket_on_connection(uv_stream_t *listener, int status)
{
    struct status_socket *s = listener->data;
    struct client *c;

    if (status < 0)
        return;
    c = xcalloc(1, sizeof *c);
    c->owner = s;
    c->n_handles = 2;
    c->next = s->clients;
    s->clients = c;
    s->n_clients++;
    uv_pipe_init(listener->loop, &c->pipe, 0);
    uv_timer_init(listener->loop, &c->patience);
    c->pipe.data = c->patience.data = c;
    if (uv_accept(listener, (uv_stream_t *)&c->pipe) < 0 || s->n_clients > STATUS_CLIENTS)
        end_client(c);
    else if (uv_read_start((uv_stream_t *)&c->pipe, status_socket_on_alloc, status_socket_on_read) <
             0)
        end_client(c);
    else
        uv_timer_start(&c->patience, on_impatience, STATUS_PATIENCE_MS, 0);
}

/* ---- the socket ---- */

static int bind_in(int folder, int *out, struct err *err)
{
    struct sockaddr_un a = address_in(folder, aside);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_sys(err, errno, "a UNIX socket");
    unlinkat(folder, aside, 0);
    /* The mode is set before the socket has a name, so no other user can open it at any moment. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
        fchmodat(folder, aside, 0600, 0) < 0) {
        err_sys(err, errno, "%s", aside);
        unlinkat(folder, aside, 0);
        close(fd);
        return err->code;
    }
    *out = fd;
    return 0;
}

static void status_socket_on_closed(uv_handle_t *h)
{
    struct status_socket *s = h->data;

    close(s->folder);
    free(s);
}

static int listen_on(struct status_socket *s, uv_loop_t *loop, int fd, struct err *err)
{
    struct stat st;
    int rc;

    if (fstatat(s->folder, aside, &st, AT_SYMLINK_NOFOLLOW) == 0)
        s->name_ino = st.st_ino;

    uv_pipe_init(loop, &s->pipe, 0);
    s->pipe.data = s;
    rc = uv_pipe_open(&s->pipe, fd);
    if (rc < 0)
        close(fd);
    if (rc == 0)
        rc = uv_listen((uv_stream_t *)&s->pipe, STATUS_CLIENTS, status_socket_on_connection);
    if (rc == 0 && renameat(s->folder, aside, s->folder, name) < 0)
        rc = uv_translate_sys_error(errno);
    if (rc == 0)
        return 0;
    err_set(err, ERR_IO, "%s: %s", name, uv_strerror(rc));
    unlinkat(s->folder, aside, 0);
    uv_close((uv_handle_t *)&s->pipe, status_socket_on_closed);
    return err->code;
}

int status_socket_open(uv_loop_t *loop, const char *run_dir,
                       void (*answer_it)(void *arg, const struct status_client *who,
                                         const char *request, struct buf *out),
                       void *arg, struct status_socket **out, struct err *err)
{
    int folder = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
    struct status_socket *s;
    int rc = folder < 0 ? err_sys(err, errno, "%s", run_dir) : bind_in(folder, &fd, err);

    if (rc < 0) {
        if (folder >= 0)
            close(folder);
        return rc;
    }
    s = xcalloc(1, sizeof *s);
    *s = (struct status_socket){.folder = folder, .answer = answer_it, .arg = arg};
    rc = listen_on(s, loop, fd, err);
    if (rc == 0)
        *out = s;
    return rc;
}

static int status_socket_is_ours(const struct status_socket *s)
{
    struct stat st;

    return fstatat(s->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == s->name_ino;
}

void status_socket_close(struct status_socket *s)
{
    if (!s)
        return;
    while (s->clients)
        end_client(s->clients);
    if (status_socket_is_ours(s)) /* not that of a driver that has taken the run over */
        unlinkat(s->folder, name, 0);
    uv_close((uv_handle_t *)&s->pipe, status_socket_on_closed);
}

/* ---- the other end ---- */

/* A call with a time limit is interrupted if this process is stopped and continued (Ctrl-Z, fg).
 * Then it begins anew. */

static ssize_t send_whole(int fd, const struct buf *line)
{
    ssize_t n;

    do
        n = send(fd, line->data, line->len, MSG_NOSIGNAL); /* a new socket takes so little whole */
    while (n < 0 && errno == EINTR);
    return n;
}

static ssize_t read_some(int fd, char *block, size_t size)
{
    ssize_t n;

    do
        n = read(fd, block, size);
    while (n < 0 && errno == EINTR);
    return n;
}

static int connect_patiently(int fd, const struct sockaddr_un *a)
{
    int rc;

    do
        rc = connect(fd, (const struct sockaddr *)a, sizeof *a);
    while (rc < 0 && errno == EINTR);
    return rc;
}

/* Send the request.  A driver that turns this client away may close without reading it.  That is no
 * failure here, because the driver's answer can still be read. */
static int send_line(int fd, const char *request, struct err *err)
{
    struct buf line = {0};
    ssize_t n;

    buf_printf(&line, "%s\n", request);
    n = send_whole(fd, &line);
    buf_fini(&line);
    return n < 0 && errno != EPIPE && errno != ECONNRESET ? err_sys(err, errno, "%s", name) : 0;
}

static int status_socket_read_all(int fd, struct buf *out, struct err *err)
{
    char block[65536];
    ssize_t n;

    while ((n = read_some(fd, block, sizeof block)) > 0 && out->len < ANSWER_LIMIT)
        buf_append(out, block, (size_t)n);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return err_set(err, ERR_TIMEOUT,
                       "the driver does not answer: it has been stopped, or busy for %d s",
                       STATUS_PATIENCE_MS / 1000);
    return n < 0 && errno != ECONNRESET ? err_sys(err, errno, "%s", name) : 0;
}

static int connect_in(int folder, int *out, struct err *err)
{
    struct sockaddr_un a = address_in(folder, name);
    struct timeval patience = {.tv_sec = STATUS_PATIENCE_MS / 1000};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;

    if (fd < 0)
        return err_sys(err, errno, "a UNIX socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect_patiently(fd, &a) == 0) {
        *out = fd;
        return 0;
    }
    if (errno == ENOENT || errno == ECONNREFUSED) /* refused: a killed driver's */
        rc = STATUS_NOBODY;
    else if (errno == EAGAIN)
        rc =
            err_set(err, ERR_TIMEOUT, "the driver does not answer: too many ask, or it is stopped");
    else
        rc = err_sys(err, errno, "%s", name);
    close(fd);
    return rc;
}

static int connect_to(const char *run_dir, int *out, struct err *err)
{
    int folder = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = folder < 0 ? err_sys(err, errno, "run directory") : connect_in(folder, out, err);

    if (folder >= 0)
        close(folder);
    return rc < 0 ? err_wrap(err, "%s", run_dir) : rc;
}

int status_socket_find(const char *run_dir, struct err *err)
{
    int fd = -1, rc = connect_to(run_dir, &fd, err);

    if (rc == 0)
        close(fd);
    return rc;
}

int status_socket_ask(const char *run_dir, const char *request, struct buf *out, struct err *err)
{
    int fd = -1, rc = connect_to(run_dir, &fd, err);

    if (rc != 0)
        return rc;
    rc = send_line(fd, request, err);
    if (rc == 0)
        rc = status_socket_read_all(fd, out, err);
    close(fd);
    return rc < 0 ? err_wrap(err, "%s", run_dir) : 0;
}
