/* Fuzz target: the parts of a request, a line each: method, path, host, authorization, token of the
 * query, cookie.  The first byte says which of them are there, and at which of three servers the
 * request comes.  Whoever is let in has shown the token, or has asked under a name of the server's
 * own; what is judged twice is judged the same. */
#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "net/http_route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKEN "0123456789abcdef0123456789abcdef"

enum { METHOD, PATH, HOST, AUTHORIZATION, QUERY, COOKIE, N_PARTS, MAX_TEXT = 4096 };

static int make_nothing(void *arg, struct buf *out)
{
    (void)arg;
    (void)out;
    return 200;
}

static const struct http_document documents[] = {{"/api/status", "", make_nothing},
                                                 {"/metrics", "", make_nothing}};
static const struct http_file files[] = {{"/", "", NULL, 0}, {"/page.js", "", NULL, 0}};
static const struct http_folder folders[] = {{"/api/incidents", "", NULL, NULL}};
static const struct http_options options = {.documents = documents,
                                            .n_documents = ARRAY_LEN(documents),
                                            .files = files,
                                            .n_files = ARRAY_LEN(files),
                                            .folders = folders,
                                            .n_folders = ARRAY_LEN(folders),
                                            .stream = "/api/events"};
static const struct gate gates[] = {
    {.is_loopback = 1, .own = "node7"},
    {.token = TOKEN, .own = "node7"},
    {.given = "train.example", .own = "node7"},
};

/* 1: the host without a port is a number of any form that inet_pton takes. */
static int is_number(const char *host, size_t n)
{
    struct in6_addr six;
    struct in_addr four;
    char text[256], *zone;

    if (n >= sizeof text)
        return 0;
    memcpy(text, host, n);
    text[n] = '\0';
    zone = strchr(text, '%');
    if (zone)
        *zone = '\0';
    return inet_pton(AF_INET, text, &four) == 1 || inet_pton(AF_INET6, text, &six) == 1;
}

/* 1: the header is one of the server's own names, with or without a port. */
static int is_own(const struct gate *g, const char *host)
{
    const char *const names[] = {"localhost", g->given, g->own};
    const char *const colon = strrchr(host, ':');
    const size_t n = colon ? (size_t)(colon - host) : strlen(host);

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i][0] && strlen(names[i]) == n && !strncasecmp(host, names[i], n))
            return 1;
    if (host[0] == '[')
        return strchr(host, ']') && is_number(host + 1, strcspn(host + 1, "]"));
    return is_number(host, n);
}

/* The path of a target, and if it is absolute and no token is wanted, its host is the server's. */
static const char *path_of(const struct gate *g, const char *target)
{
    static const char scheme[] = "http://";
    char host[MAX_TEXT + 1];
    const char *at = target + strlen(scheme);

    if (strncasecmp(target, scheme, strlen(scheme)) != 0)
        return target;
    snprintf(host, sizeof host, "%.*s", (int)strcspn(at, "/"), at);
    ASSERT(g->token[0] || is_own(g, host));
    at += strcspn(at, "/");
    return *at ? at : "/";
}

static void check(const struct gate *g, char *const part[N_PARTS], struct http_route to)
{
    const char *const bearer = part[AUTHORIZATION] ? strstr(part[AUTHORIZATION], TOKEN) : NULL;
    const int shows = (part[QUERY] && !strcmp(part[QUERY], TOKEN)) ||
                      (part[COOKIE] && !strcmp(part[COOKIE], TOKEN)) || bearer;
    const char *path;

    if (to.kind <= ROUTE_NO_TOKEN)
        return;
    ASSERT(!strcmp(part[METHOD], "GET") || !strcmp(part[METHOD], "HEAD"));
    ASSERT(!g->token[0] || shows);
    ASSERT(g->token[0] || !part[HOST] || is_own(g, part[HOST]));
    path = path_of(g, part[PATH]);
    ASSERT(to.kind != ROUTE_KEEP_TOKEN || (g->token[0] && part[QUERY]));
    if (to.kind == ROUTE_DOCUMENT)
        ASSERT(to.i < options.n_documents && !strcmp(path, documents[to.i].path));
    if (to.kind == ROUTE_FILE)
        ASSERT(to.i < options.n_files && !strcmp(path, files[to.i].path));
    if (to.kind == ROUTE_FOLDER) {
        const size_t n = strlen(folders[to.i].path);

        ASSERT(!strncmp(path, folders[to.i].path, n));
        ASSERT(path[n] ? to.name == path + n + 1 : !*to.name);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[MAX_TEXT + 1];
    char *rest = text, *part[N_PARTS] = {0};
    struct gate_request r;
    struct http_route to, again;
    const struct gate *g;

    if (size < 1 || size > MAX_TEXT)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    for (int i = 0; i < N_PARTS && rest; i++) {
        part[i] = strsep(&rest, "\n");
        if (i >= HOST && !(data[0] >> 2 & 1 << (i - HOST)))
            part[i] = NULL;
    }
    if (!part[PATH])
        return 0;
    g = &gates[(data[0] & 3) % ARRAY_LEN(gates)];
    r = (struct gate_request){part[HOST], data[0] >> 6 & 3, part[AUTHORIZATION], part[QUERY],
                              part[COOKIE]};
    to = http_route_of(&options, g, part[METHOD], part[PATH], &r);
    again = http_route_of(&options, g, part[METHOD], part[PATH], &r);
    ASSERT(to.kind == again.kind && to.i == again.i);
    ASSERT(r.n_hosts < 2 || to.kind <= ROUTE_TWO_HOSTS);
    check(g, part, to);
    return 0;
}
