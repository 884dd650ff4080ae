/* Documents that are read from a disk.  A thread of libuv's pool reads one, while its connection is
 * suspended.  Then the connection goes on, and libmicrohttpd asks for the answer once more.
 *
 * Two sides use a `http_read`: the pool, until the loop has heard that the work is over, and the
 * request, until libmicrohttpd has completed it, which is before its daemon has stopped.  The last
 * one frees it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "net/http_impl.h"

struct http_read {
    uv_work_t work;
    struct http *http;
    struct MHD_Connection *connection; /* NULL: the request is completed */
    const struct http_folder *folder;
    char *root, *name;
    struct buf text;
    int status, is_over; /* `text` and `status` are there */
    int n_users;
    struct http_read *next, **link;
};

static void read_drop(struct http_read *r)
{
    if (--r->n_users > 0)
        return;
    free(r->root);
    free(r->name);
    buf_fini(&r->text);
    free(r);
}

static void read_work(uv_work_t *work)
{
    struct http_read *r = work->data;

    r->status = r->folder->read(r->root, r->name, &r->text);
}

static void read_on_end(uv_work_t *work, int status)
{
    struct http_read *r = work->data;

    if (r->connection && !r->http->is_closing) {
        r->is_over = status == 0;
        MHD_resume_connection(r->connection);
        http_kick(r->http);
    }
    read_drop(r);
}

static struct http_read *read_new(struct http *h, struct MHD_Connection *c,
                                  const struct http_folder *folder, char *root, const char *name)
{
    struct http_read *r = xcalloc(1, sizeof *r);

    *r = (struct http_read){.http = h,
                            .connection = c,
                            .folder = folder,
                            .root = root,
                            .name = xstrdup(name),
                            .n_users = 2,
                            .next = h->reads,
                            .link = &h->reads};
    r->work.data = r;
    if (r->next)
        r->next->link = &r->next;
    h->reads = r;
    h->n_reads++;
    return r;
}

enum MHD_Result http_folder_open(struct http *h, struct MHD_Connection *c,
                                 const struct http_folder *folder, const char *name, void **state)
{
    struct http_read *r;
    char *root;

    if (h->n_reads >= HTTP_READS)
        return http_say(c, MHD_HTTP_SERVICE_UNAVAILABLE,
                        "others are reading from the disk: ask again\n", "Retry-After", "1");
    root = folder->root(h->o.arg);
    if (!root)
        return http_say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "there are no files yet: ask again\n",
                        "Retry-After", "1");
    *state = r = read_new(h, c, folder, root, name);
    MHD_suspend_connection(c);
    uv_queue_work(h->poll.loop, &r->work, read_work, read_on_end);
    return MHD_YES;
}

enum MHD_Result http_read_answer(struct http_read *r)
{
    struct MHD_Response *answer;
    enum MHD_Result rc;

    if (!r->is_over)
        return http_say(r->connection, MHD_HTTP_SERVICE_UNAVAILABLE, "this server ends\n", NULL,
                        NULL);
    answer = MHD_create_response_from_buffer(r->text.len, r->text.data, MHD_RESPMEM_PERSISTENT);
    http_dress(answer, r->folder->type);
    rc = MHD_queue_response(r->connection, (unsigned)r->status, answer);
    MHD_destroy_response(answer);
    return rc;
}

void http_read_completed(struct http_read *r)
{
    *r->link = r->next;
    if (r->next)
        r->next->link = r->link;
    r->http->n_reads--;
    r->connection = NULL;
    read_drop(r);
}

void http_reads_end(struct http *h)
{
    for (struct http_read *r = h->reads; r; r = r->next) {
        if (r->is_over)
            continue;
        uv_cancel((uv_req_t *)&r->work);
        MHD_resume_connection(r->connection);
    }
}
