/* The order of the checks matters: the gate comes before any path, so that a stranger cannot find
 * out which paths there are. */
#include "net/http_route.h"

#include <string.h>

int http_is_method(const char *method) { return !strcmp(method, "GET") || !strcmp(method, "HEAD"); }

/* The path's meaning for those who may look. */
static struct http_route route_path(const struct http_options *o, const struct gate *g,
                                    const char *path, const struct gate_request *r)
{
    for (int i = 0; i < o->n_documents; i++)
        if (!strcmp(path, o->documents[i].path))
            return (struct http_route){ROUTE_DOCUMENT, i, NULL};
    if (o->stream && !strcmp(path, o->stream))
        return (struct http_route){ROUTE_STREAM, 0, NULL};
    if (!strcmp(path, "/") && gate_is_token(g, r->query))
        return (struct http_route){ROUTE_KEEP_TOKEN, 0, NULL};
    for (int i = 0; i < o->n_files; i++)
        if (!strcmp(path, o->files[i].path))
            return (struct http_route){ROUTE_FILE, i, NULL};
    for (int i = 0; i < o->n_folders; i++) {
        const size_t n = strlen(o->folders[i].path);

        if (!strncmp(path, o->folders[i].path, n) && (!path[n] || path[n] == '/'))
            return (struct http_route){ROUTE_FOLDER, i, path[n] ? path + n + 1 : ""};
    }
    return (struct http_route){ROUTE_NOTHING, 0, NULL};
}

struct http_route http_route_of(const struct http_options *o, const struct gate *g,
                                const char *method, const char *path, const struct gate_request *r)
{
    if (!http_is_method(method))
        return (struct http_route){ROUTE_METHOD, 0, NULL};
    switch (gate_check(g, r)) {
    case GATE_TWO_HOSTS:
        return (struct http_route){ROUTE_TWO_HOSTS, 0, NULL};
    case GATE_OTHER_HOST:
        return (struct http_route){ROUTE_OTHER_HOST, 0, NULL};
    case GATE_NO_TOKEN:
        return (struct http_route){ROUTE_NO_TOKEN, 0, NULL};
    case GATE_OPEN:
    default:
        return route_path(o, g, path, r);
    }
}
