/* Fuzz target: the input is what a stranger sends to --http, byte for byte.  The first byte says to
 * which of two servers: one of loopback, and one that wants a token.  The server answers by a known
 * status or closes; it gives its document to those alone who have the token, or have asked under a
 * name of loopback; and it serves the next one. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "net/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKEN   "0123456789abcdef0123456789abcdef"
#define CONTENT "{\"of the run\":1}"

enum { MAX_ASKED = 64 << 10, QUIET = 6, PATIENCE = 2000 };

static int make_content(void *arg, struct buf *out)
{
    (void)arg;
    buf_printf(out, CONTENT "\n");
    return 200;
}

static const struct http_document documents[] = {{"/s", "application/json", make_content}};
static const struct http_file files[] = {
    {"/", "text/html", (const unsigned char *)CONTENT, sizeof CONTENT - 1}};

static uv_loop_t loop;
static struct http *servers[2];

static void begin(void)
{
    struct err err;

    ASSERT(uv_loop_init(&loop) == 0);
    for (int i = 0; i < 2; i++) {
        struct http_options o = {.host = "127.0.0.1",
                                 .most = 64,
                                 .documents = documents,
                                 .n_documents = ARRAY_LEN(documents),
                                 .live = &documents[0],
                                 .live_event = "status",
                                 .stream = "/e",
                                 .files = files,
                                 .n_files = ARRAY_LEN(files)};

        if (i == 1)
            memcpy(o.token, TOKEN, sizeof TOKEN);
        ASSERT(http_open(&loop, &o, &servers[i], &err) == 0);
    }
}

/* A connection that leaves no trace in the system when it is closed; -1: no more files. */
static int dial(const struct http *h)
{
    const struct linger reset = {.l_onoff = 1};
    struct sockaddr_in a = {.sin_family = AF_INET};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    a.sin_port = htons((uint16_t)atoi(strrchr(http_url(h), ':') + 1));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    ASSERT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Send all of it, and gather what comes, until the server closes or says no more for a while. */
static void talk(int fd, const uint8_t *data, size_t size, struct buf *answer)
{
    char block[4096];
    int n_quiet = 0;

    for (int i = 0; i < PATIENCE && n_quiet < QUIET; i++) {
        const ssize_t n_out = size ? send(fd, data, size, MSG_NOSIGNAL) : 0;
        ssize_t n_in;

        uv_run(&loop, UV_RUN_NOWAIT);
        n_in = recv(fd, block, sizeof block, 0);
        if (n_in == 0 || (n_in < 0 && errno != EAGAIN))
            return;
        if (n_out > 0) {
            data += n_out;
            size -= (size_t)n_out;
        }
        if (n_in > 0)
            buf_append(answer, block, (size_t)n_in);
        n_quiet = n_in > 0 || n_out > 0 ? 0 : n_quiet + 1;
    }
}

/* The input with %XX decoded and in small letters, as a text. */
static char *decode(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *at = text;

    ASSERT(text);
    for (size_t i = 0; i < size; i++) {
        char digits[3] = {0};
        int c = data[i];

        if (c == '%' && i + 2 < size && isxdigit(data[i + 1]) && isxdigit(data[i + 2])) {
            memcpy(digits, data + i + 1, 2);
            c = (int)strtol(digits, NULL, 16);
            i += 2;
        }
        *at++ = c ? (char)tolower(c) : ' ';
    }
    *at = '\0';
    return text;
}

static int is_known_status(const char *text)
{
    static const int known[] = {100, 200, 303, 400, 401, 403, 404, 405, 408,
                                411, 413, 414, 431, 500, 501, 503, 505};
    const int status = atoi(text + strlen("HTTP/1.1 "));

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (status == known[i])
            return 1;
    return 0;
}

static void check(const uint8_t *data, size_t size, int wants_token, struct buf *answer)
{
    const char *said = buf_cstr(answer);
    char *asked;

    if (!answer->len)
        return;
    ASSERT(!strncmp(said, "HTTP/1.", 7) && is_known_status(said));
    ASSERT(!strstr(said, TOKEN) || wants_token);
    if (!strstr(said, CONTENT) && !strstr(said, TOKEN))
        return;
    asked = decode(data, size);
    if (wants_token)
        ASSERT(strstr(asked, TOKEN));
    else
        ASSERT(strstr(asked, "localhost") || strstr(asked, "127.") || strstr(asked, ":") ||
               strstr(asked, "http/1.0"));
    free(asked);
}

/* The server goes on to serve. */
static void ask_again(int which)
{
    static const char request[] = "GET /s?token=" TOKEN " HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n";
    struct buf answer = {0};
    const int fd = dial(servers[which]);

    if (fd < 0)
        return;
    for (int i = 0; i < PATIENCE && !strstr(buf_cstr(&answer), CONTENT); i++)
        talk(fd, (const uint8_t *)request, i ? 0 : sizeof request - 1, &answer);
    ASSERT(strstr(buf_cstr(&answer), CONTENT));
    close(fd);
    buf_fini(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned n_inputs;
    struct buf answer = {0};
    int fd;

    if (size < 1 || size > MAX_ASKED)
        return 0;
    if (!servers[0])
        begin();
    fd = dial(servers[data[0] & 1]);
    if (fd < 0)
        return 0;
    talk(fd, data + 1, size - 1, &answer);
    check(data + 1, size - 1, data[0] & 1, &answer);
    close(fd);
    buf_fini(&answer);
    if (n_inputs++ % 16 == 0)
        ask_again(data[0] & 1);
    uv_run(&loop, UV_RUN_NOWAIT);
    return 0;
}
