/* The token, and the checks of a request.  All texts of a request are foreign bytes that end with a
 * NUL. */
#include "net/http_gate.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "net/addr.h"

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

/* 1: a Host header that names this machine's loopback, with or without a port. */
static int gate_is_own_host(const char *host)
{
    static const char name[] = "localhost";
    char number[ADDR_TEXT];
    size_t n;

    if (!strncasecmp(host, name, sizeof name - 1))
        return gate_is_port(host + sizeof name - 1);
    if (host[0] == '[') {
        n = strcspn(++host, "]");
        if (host[n] != ']' || !gate_is_port(host + n + 1))
            return 0;
    } else {
        n = strcspn(host, ":");
        if (!gate_is_port(host + n))
            return 0;
    }
    if (n >= sizeof number)
        return 0;
    memcpy(number, host, n);
    number[n] = '\0';
    return addr_is_number(number) && addr_number_is_loopback(number);
}

enum gate_verdict gate_check(const struct gate *g, const struct gate_request *r)
{
    if (g->is_loopback && r->host && !gate_is_own_host(r->host))
        return GATE_OTHER_HOST;
    if (!g->token[0] || gate_is_token(g, r->query) || gate_is_token(g, r->cookie) ||
        gate_is_token(g, gate_bearer(r->authorization)))
        return GATE_OPEN;
    return GATE_NO_TOKEN;
}
