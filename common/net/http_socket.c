/* Opens the server's socket, so that what is wrong with the address is told before a run begins,
 * and makes the link that people open. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "net/addr.h"
#include "net/http_impl.h"

static int http_listen_error(int error, const char *where, int port, struct err *err)
{
    if (error == EADDRINUSE)
        return err_set(err, ERR_ARG,
                       "--http: cannot listen on %s: address already in use (EADDRINUSE): another "
                       "program has it (\"ss -ltnp sport = :%d\" says which); end it, or take "
                       "another port (--http 0: any free one)",
                       where, port);
    if (error == EADDRNOTAVAIL)
        return err_set(err, ERR_ARG,
                       "--http: cannot listen on %s: this host has no such address "
                       "(EADDRNOTAVAIL); give one of its own (\"ip address\" lists them)",
                       where);
    if (error == EACCES)
        return err_set(err, ERR_ARG,
                       "--http: cannot listen on %s: permission denied (EACCES): ports below 1024 "
                       "are root's; take a port above, or --http 0",
                       where);
    return err_sys(err, error, "--http: cannot listen on %s", where);
}

enum { HTTP_BIND_AGAIN_MS = 20 };

static int http_bind_once(const struct sockaddr *sa, int *fd)
{
    const socklen_t n =
        sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    const int on = 1, off = 0;
    int error;

    *fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return errno;
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (sa->sa_family == AF_INET6)
        setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(*fd, sa, n) == 0 && listen(*fd, SOMAXCONN) == 0)
        return 0;
    error = errno;
    close(*fd);
    return error;
}

static int http_bind(const struct sockaddr *sa, int patience_ms, int *fd)
{
    int error = http_bind_once(sa, fd);

    for (int ms = 0; error == EADDRINUSE && ms < patience_ms; ms += HTTP_BIND_AGAIN_MS) {
        usleep(1000 * HTTP_BIND_AGAIN_MS);
        error = http_bind_once(sa, fd);
    }
    return error;
}

/* The address in a link: for all addresses, this host's name. */
static void http_name(const struct sockaddr *sa, const char *own, char out[HTTP_NAME])
{
    char number[ADDR_TEXT], *colon;

    addr_number(sa, number);
    addr_text(sa, out);
    if (strcmp(number, "0.0.0.0") != 0 && strcmp(number, "::") != 0)
        return;
    colon = strrchr(out, ':');
    snprintf(number, sizeof number, "%s", colon);
    snprintf(out, HTTP_NAME, "%s%s", own[0] ? own : "localhost", number);
}

/* Names under which this server answers, and what it says to those who use another one. */
static void http_names(struct http *h)
{
    struct gate *g = &h->gate;

    gate_own_name(g->own);
    if (!addr_is_number(h->o.host))
        snprintf(g->given, sizeof g->given, "%s", h->o.host);
    snprintf(h->other_host, sizeof h->other_host,
             "this server answers to %s, localhost%s%s%s%s alone: another name in the address may "
             "belong to a foreign page; use one of these, or give --http NAME:PORT with that "
             "name\n",
             g->is_loopback ? "127.0.0.1" : "its numbers", g->own[0] ? ", " : "", g->own,
             g->given[0] ? ", " : "", g->given);
}

static int http_name_all(struct http *h, int fd, struct err *err)
{
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof sa;
    char name[HTTP_NAME];

    if (getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
        return err_sys(err, errno, "--http: getsockname");
    http_name((struct sockaddr *)&sa, h->gate.own, name);
    snprintf(h->url, sizeof h->url, "http://%s/%s%s", name, h->gate.token[0] ? "?token=" : "",
             h->gate.token);
    snprintf(h->cookie, sizeof h->cookie, "dptrain-%d", addr_port((struct sockaddr *)&sa));
    return 0;
}

int http_listen(struct http *h, int *fd, struct err *err)
{
    struct sockaddr_storage sa = {0};
    char where[ADDR_TEXT];
    int error, rc;

    if (addr_resolve(h->o.host, h->o.port, &sa, err) < 0)
        return err_wrap(err, "--http");
    addr_text((struct sockaddr *)&sa, where);
    h->gate.is_loopback = addr_is_loopback((struct sockaddr *)&sa);
    snprintf(h->gate.token, sizeof h->gate.token, "%s", h->o.token);
    http_names(h);
    error = http_bind((struct sockaddr *)&sa, h->o.patience_ms, fd);
    if (error)
        return http_listen_error(error, where, h->o.port, err);
    rc = http_name_all(h, *fd, err);
    if (rc < 0)
        close(*fd);
    return rc;
}
