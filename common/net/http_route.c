/* The order of the checks matters: the gate comes before any path but an open document's, so that a
 * stranger cannot find out which other paths there are. */
#include "net/http_route.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"

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

static struct http_route route_refused(enum gate_verdict verdict)
{
    static const enum http_route_kind kind[] = {
        [GATE_OPEN] = ROUTE_NOTHING,
        [GATE_TWO_HOSTS] = ROUTE_TWO_HOSTS,
        [GATE_OTHER_HOST] = ROUTE_OTHER_HOST,
        [GATE_NO_TOKEN] = ROUTE_NO_TOKEN,
    };

    return (struct http_route){kind[verdict], 0, NULL};
}

/* The path of "http://HOST/path", as it is sent to proxies (RFC 9112, 3.2.2), or of a bare path.
 * HOST is judged as the header Host, which is judged, too. */
static const char *route_target(const struct gate *g, const char *target,
                                const struct gate_request *r, enum gate_verdict *verdict)
{
    static const char scheme[] = "http://";
    char host[ADDR_MAX_HOST + 16]; /* a longer one is cut, and refused as too long */
    struct gate_request there = *r;
    size_t n;

    *verdict = gate_check(g, r);
    if (*verdict != GATE_OPEN || strncasecmp(target, scheme, sizeof scheme - 1) != 0)
        return target;
    target += sizeof scheme - 1;
    n = strcspn(target, "/");
    snprintf(host, sizeof host, "%.*s", (int)min_i64((int64_t)n, sizeof host), target);
    there.host = host;
    *verdict = gate_check(g, &there);
    return target[n] ? target + n : "/";
}

struct http_route http_route_of(const struct http_options *o, const struct gate *g,
                                const char *method, const char *target,
                                const struct gate_request *r)
{
    enum gate_verdict verdict;
    const char *path;

    if (!http_is_method(method))
        return (struct http_route){ROUTE_METHOD, 0, NULL};
    path = route_target(g, target, r, &verdict);
    for (int i = 0; verdict == GATE_NO_TOKEN && i < o->n_documents; i++)
        if (o->documents[i].is_open && !strcmp(path, o->documents[i].path))
            return (struct http_route){ROUTE_DOCUMENT, i, NULL};
    return verdict == GATE_OPEN ? route_path(o, g, path, r) : route_refused(verdict);
}
