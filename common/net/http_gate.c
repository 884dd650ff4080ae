/* The token, and the checks of a request.  All texts of a request are foreign bytes that end with a
 * NUL. */
#include "net/http_gate.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char purpose[] = "dptrain page 1"; /* the secret makes other keys, too */

int gate_token(const struct secret *s, char out[GATE_TOKEN])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (!HMAC(EVP_sha256(), s->key, sizeof s->key, (const unsigned char *)purpose,
              sizeof purpose - 1, mac, &n))
        return -1;
    for (int i = 0; i < GATE_TOKEN / 2; i++)
        snprintf(out + 2 * (size_t)i, 3, "%02x", mac[i]);
    OPENSSL_cleanse(mac, sizeof mac);
    return 0;
}

int gate_is_token(const struct gate *g, const char *text)
{
    const size_t n = strlen(g->token);

    return text && n && strlen(text) == n && CRYPTO_memcmp(text, g->token, n) == 0;
}

/* The token of "Bearer TOKEN"; NULL: the header has none. */
static const char *gate_bearer(const char *header)
{
    static const char scheme[] = "Bearer ";

    if (!header || strncasecmp(header, scheme, sizeof scheme - 1) != 0)
        return NULL;
    header += sizeof scheme - 1;
    return header + strspn(header, " ");
}

/* 1: nothing, or a colon and a port. */
static int gate_is_port(const char *text)
{
    size_t n;

    if (!*text)
        return 1;
    n = strspn(text + 1, "0123456789");
    return text[0] == ':' && n >= 1 && n <= 5 && text[1 + n] == '\0';
}

/* The name or number of a Host header, without its port and brackets: 1, or 0 if it has none. */
static int gate_host(const char *header, char out[ADDR_MAX_HOST])
{
    const int is_bracketed = header[0] == '[';
    const char *name = header + is_bracketed;
    const size_t n = strcspn(name, is_bracketed ? "]" : ":");
    const char *rest = name + n;

    if (is_bracketed && *rest++ != ']')
        return 0;
    if (n == 0 || n >= ADDR_MAX_HOST || !gate_is_port(rest))
        return 0;
    memcpy(out, name, n);
    out[n] = '\0';
    return !is_bracketed || strchr(out, ':');
}

static int gate_is_own_host(const struct gate *g, const char *header)
{
    char host[ADDR_MAX_HOST];

    if (!gate_host(header, host))
        return 0;
    if (addr_is_number(host))
        return !g->is_loopback || addr_number_is_loopback(host);
    return !strcasecmp(host, "localhost") || !strcasecmp(host, g->given) ||
           !strcasecmp(host, g->own);
}

void gate_own_name(char out[ADDR_MAX_HOST])
{
    if (gethostname(out, ADDR_MAX_HOST) < 0)
        out[0] = '\0';
    out[ADDR_MAX_HOST - 1] = '\0';
}

enum gate_verdict gate_check(const struct gate *g, const struct gate_request *r)
{
    if (r->n_hosts > 1) /* RFC 9112, 3.2: a proxy may have looked at another one */
        return GATE_TWO_HOSTS;
    if (!g->token[0] && r->host && !gate_is_own_host(g, r->host))
        return GATE_OTHER_HOST;
    if (!g->token[0] || gate_is_token(g, r->query) || gate_is_token(g, r->cookie) ||
        gate_is_token(g, gate_bearer(r->authorization)))
        return GATE_OPEN;
    return GATE_NO_TOKEN;
}
