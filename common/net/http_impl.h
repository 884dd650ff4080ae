/* http_impl - the server, as http.c, http_folder.c, http_stream.c and http_socket.c share it.  No
 * other file includes this.
 *
 * Threads: the loop's. */
#ifndef NET_HTTP_IMPL_H
#define NET_HTTP_IMPL_H

#include <microhttpd.h>

#include "net/http_route.h"

enum {
    HTTP_FRESH_MS = 900, /* a document is made at most so often.  Less than a beat of the streams:
                          * one that comes early would send again what the beat before has sent. */
    HTTP_SPARE = 8,      /* places that are kept free by turning idle connections out */
    HTTP_URL = 448,
    HTTP_NAME = ADDR_MAX_HOST + ADDR_TEXT, /* an address in a link */
    HTTP_COOKIE = 32,
    HTTP_HELD = 1 << 20, /* bytes of notes that wait for readers */
    HTTP_READS = 4,      /* documents of folders that are read or sent at a time */
};

struct http_copy { /* of a document */
    struct MHD_Response *response;
    int status;
    int64_t made_ns;
};

struct http_visitor { /* a connection */
    struct MHD_Connection *connection;
    int is_busy; /* it has a stream */
    int is_out;  /* told to go */
    struct http_visitor *next, **link;
};

/* A text that streams send, shared by all that have not sent it yet. */
struct http_note {
    int n_users;
    size_t n;
    char text[];
};

struct http_streams {
    struct http_stream *first;
    int n;
    struct http_note *note[HTTP_BEHIND]; /* a ring of those from `begin` to `end` */
    uint64_t begin, end;
    size_t n_bytes;
    int n_new; /* notes since the streams were woken */
    size_t n_new_bytes;
    struct http_note *hello; /* what a new stream sends first; NULL: to be made */
    struct http_note *live;  /* the newest, or NULL */
    int64_t live_ns;         /* when its text was made (struct http_copy) */
};

struct http {
    struct http_options o;
    struct gate gate;
    char url[HTTP_URL], cookie[HTTP_COOKIE];
    char other_host[1024]; /* the answer to one who asks under another name */
    struct MHD_Daemon *mhd;
    uv_poll_t poll;    /* libmicrohttpd's epoll descriptor */
    uv_timer_t timer;  /* until libmicrohttpd wants to run again */
    uv_timer_t beat;   /* each second while there are streams */
    uv_timer_t gather; /* until the streams are woken for notes that wait */
    int n_handles, is_closing;
    struct http_copy copy[HTTP_DOCUMENTS];
    struct buf live; /* the text of o.live, of copy's age */
    struct http_visitor *oldest, **newest;
    int n_visitors;
    struct http_streams streams;
    struct http_read *reads; /* of http_folder.c */
    int n_reads;
};

/* http.c */
void http_kick(struct http *h); /* libmicrohttpd has something to do that no descriptor tells */
void http_dress(struct MHD_Response *r, const char *type); /* the headers of all answers */
struct http_visitor *http_visitor_of(struct MHD_Connection *c);
const struct http_copy *http_fresh(struct http *h, const struct http_document *d);
void http_turn_out(struct MHD_Connection *c);
/* Answer with a few words, and one more header unless that is NULL. */
enum MHD_Result http_say(struct MHD_Connection *c, unsigned status, const char *text,
                         const char *header, const char *value);

/* http_stream.c */
enum MHD_Result http_stream_open(struct http *h, struct MHD_Connection *c, int is_head);
void http_streams_wake(struct http *h);
void http_streams_fini(struct http *h); /* once no stream is left */

/* http_folder.c.  After http_folder_open has left a read in *state, the request comes again for the
 * answer, and is completed at last.  http_reads_end is called before libmicrohttpd stops. */
enum MHD_Result http_folder_open(struct http *h, struct MHD_Connection *c,
                                 const struct http_folder *folder, const char *name, void **state);
enum MHD_Result http_read_answer(struct http_read *r);
void http_read_completed(struct http_read *r);
void http_reads_end(struct http *h);

/* http_socket.c: listen, and make `url` and the gate. */
int http_listen(struct http *h, int *fd, struct err *err);

#endif
