/* http - a server of documents, files and a stream of events, to be looked at: it changes nothing.
 *
 * libmicrohttpd serves on the caller's loop.  A document is made when somebody asks for it, at most
 * once a second, and all readers share it.  The stream (server-sent events) gives each reader what
 * `begin` puts, then what is published from then on, and each second the document `live`, which is
 * not made while nobody reads.
 *
 * Bounds: `most` connections.  When few places are left, the oldest connection that is no stream
 * makes room, so those who come and say nothing keep nobody out.  Two fifths of the places are for
 * streams; one more is answered 200 and closed, since a browser never comes back after any other
 * status.  A reader of a stream who falls HTTP_BEHIND notes behind, or does not
 * read at all for HTTP_IDLE_S, is cut off.
 *
 * Only GET and HEAD are answered.  net/http_gate.h says to whom.
 *
 * Life:    http_open -> http_publish ... -> http_close; freed when the loop has closed it.
 * Threads: the loop's.
 * Errors:  ERR_ARG for an address that cannot be used, ERR_IO, with the remedy. */
#ifndef NET_HTTP_H
#define NET_HTTP_H

#include <stddef.h>
#include <uv.h>

#include "base/buf.h"
#include "net/http_gate.h"

enum {
    HTTP_DOCUMENTS = 8,
    HTTP_LEAST = 16,    /* connections */
    HTTP_MOST = 320,    /* likewise */
    HTTP_BEHIND = 1024, /* notes that wait for a reader */
    HTTP_IDLE_S = 15,
};

struct http; /* opaque */

struct http_document {
    const char *path, *type;
    int (*make)(void *arg, struct buf *out); /* appends the text; returns the HTTP status */
    int is_open;                             /* 1: also for those who have no token */
};

struct http_file { /* constant */
    const char *path, *type;
    const unsigned char *bytes;
    size_t n;
};

/* Documents that are read from a disk, by a thread of their own: its path, and all paths below it.
 * At most four are read or sent at a time; a fifth request is answered 503. */
struct http_folder { /* constant */
    const char *path, *type;
    char *(*root)(void *arg); /* what `read` gets, for free(); NULL: there is nothing yet */
    /* Appends the text of `name`, foreign bytes that came behind the path and a '/', or "" for the
     * path itself; returns the HTTP status.  It runs in any thread. */
    int (*read)(const char *root, const char *name, struct buf *out);
};

struct http_options { /* copied; what it points to stays */
    const char *host; /* a name or number to listen on */
    int port;         /* 0: a free one */
    int patience_ms;  /* of waiting in http_open for an address that is in use */
    int most;         /* connections, HTTP_LEAST to HTTP_MOST */
    char token[GATE_TOKEN];
    const struct http_document *documents;
    int n_documents;
    const struct http_document *live; /* one of them; it must be one line of text */
    const char *live_event;           /* its name in the stream */
    const char *stream;               /* path of the stream */
    /* NULL, or puts the notes that a stream begins with.  `last` is the id of the newest note that
     * this reader has heard in a stream before, or foreign bytes; NULL: it has heard none. */
    void (*begin)(void *arg, const char *last, struct buf *out);
    /* NULL, or whether `begin` puts less for this `last` than for NULL: it is called with NULL
     * otherwise, and what it puts then is shared. */
    int (*knows)(void *arg, const char *last);
    const struct http_file *files;
    int n_files;
    const struct http_folder *folders;
    int n_folders;
    void *arg;
};

int http_open(uv_loop_t *loop, const struct http_options *o, struct http **out, struct err *err);
void http_close(struct http *h); /* NULL is fine */

/* "http://127.0.0.1:7070/", with the token if there is one. */
const char *http_url(const struct http *h);

/* Give a line of text to all readers of the stream, within a fraction of a second.  `id` is unique,
 * or NULL for a note that a reader who comes again need not have.  A NULL for h is fine. */
void http_publish(struct http *h, const char *event, const char *id, const char *line, size_t n);

/* Append such a note, for `begin`. */
void http_put_note(struct buf *out, const char *event, const char *id, const char *line, size_t n);

#endif
