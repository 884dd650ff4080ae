/* Reads and checks the address of --http.  addr_split does not know port 0, so that is read as port
 * 1 first. */
#include "driver/web_address.h"

#include <stdio.h>
#include <string.h>

int web_address(const char *text, char host[ADDR_MAX_HOST], int *port, struct err *err)
{
    const size_t n = strlen(text);
    char copy[ADDR_MAX_HOST + 16];
    const int is_free = !strcmp(text, "0") || (n > 2 && !strcmp(text + n - 2, ":0"));
    const char *colon = strrchr(text, ':');

    if (n >= sizeof copy - sizeof "127.0.0.1:")
        return err_set(err, ERR_ARG, "--http: the address has %zu characters", n);
    snprintf(copy, sizeof copy, "%s%s", colon ? "" : "127.0.0.1:", text);
    if (is_free)
        copy[strlen(copy) - 1] = '1';
    if (addr_split(copy, host, port, err) < 0)
        return err_wrap(err, "--http %s: want PORT or ADDR:PORT", text);
    if (is_free)
        *port = 0;
    return 0;
}

int web_check(const struct options *o, struct err *err)
{
    char host[ADDR_MAX_HOST];
    struct sockaddr_storage sa = {0};
    int port;

    if (web_address(o->http, host, &port, err) < 0)
        return err->code;
    if (addr_resolve(host, port, &sa, err) < 0)
        return err_wrap(err, "--http");
    if (addr_is_loopback((struct sockaddr *)&sa) || o->common.insecure || o->common.secret_files.n)
        return 0;
    return err_set(err, ERR_ARG,
                   "--http %s: whoever reaches this address could look at the job; give "
                   "--secret-file (\"dpdriver --make-secret F\" makes one), of which a token is "
                   "made, or on a private network add --insecure, or --http %s for this machine "
                   "only",
                   o->http, strrchr(o->http, ':') + 1);
}
