/* Tests of the server's documents and folder, of requests that it refuses, and of its port. */
#include "../test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_world.h"

static void documents_are_served(void **state)
{
    struct world w;
    struct buf out = {0};

    (void)state;
    open_at(&w, "127.0.0.1", "");
    ask(&w, GET("/status", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 200 "));
    assert_non_null(strstr(buf_cstr(&out), "\r\n\r\n{\"made\":1}\n"));
    assert_non_null(strstr(buf_cstr(&out), "Content-Security-Policy: default-src 'self'"));
    assert_non_null(strstr(buf_cstr(&out), "X-Content-Type-Options: nosniff\r\n"));
    assert_non_null(strstr(buf_cstr(&out), "Referrer-Policy: no-referrer\r\n"));
    ask(&w, GET("/status", ""), &out); /* within the same second */
    assert_non_null(strstr(buf_cstr(&out), "{\"made\":1}\n"));
    ask(&w, GET("/health", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 503 "));
    ask(&w, GET("/other", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 404 "));
    ask(&w, "HEAD /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(buf_cstr(&out), "Content-Length: 11\r\n"));
    assert_null(strstr(buf_cstr(&out), "made"));
    ask(&w, "HEAD /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(buf_cstr(&out), "Content-Type: text/event-stream\r\n"));
    buf_fini(&out);
    world_end(&w);
}

static void others_are_refused(void **state)
{
    static const struct {
        const char *request, *answer;
    } cases[] = {
        {"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
         "HTTP/1.1 405 "},
        {"DELETE /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 405 "},
        {"GET /status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 403 "},
        {"GET /status HTTP/1.1\r\nHost: localhost.evil.example\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 403 "},
        {"GET /status HTTP/1.1\r\nHost: 10.0.0.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 403 "},
        {"GET /status HTTP/1.1\r\nHost: 127.0.0.1:99999x\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 403 "},
        {"GET /status HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 200 "},
        {"GET /status HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 "},
        {"GET /status HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 "},
        {"GET /status HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\nConnection: close"
         "\r\n\r\n",
         "HTTP/1.1 400 "},
        {"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 404 "},
        {"GET /%00%ff%zz?%=&&token HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 404 "},
    };
    struct world w;
    struct buf out = {0};

    (void)state;
    open_at(&w, "127.0.0.1", "");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        ask(&w, cases[i].request, &out);
        if (!begins(&out, cases[i].answer))
            fail_msg("%s: %s", cases[i].request, buf_cstr(&out));
    }
    buf_fini(&out);
    world_end(&w);
}

/* Without a token a foreign name is refused on every address: it may resolve to it. */
static void names_are_judged(void **state)
{
    static const struct gate loopback = {.is_loopback = 1, .given = "lo.example", .own = "node7"};
    static const struct gate open = {.given = "train.example", .own = "node7"};
    static const struct gate guarded = {.token = TOKEN};
    static const struct {
        const char *host;
        int on_loopback, beyond;
    } cases[] = {
        {NULL, 1, 1},
        {"localhost", 1, 1},
        {"LocalHost:7070", 1, 1},
        {"127.0.0.1:7070", 1, 1},
        {"[::1]:7070", 1, 1},
        {"[::ffff:127.0.0.1]", 1, 1},
        {"node7:7070", 1, 1},
        {"NODE7", 1, 1},
        {"10.0.0.1:7070", 0, 1},
        {"[2001:db8::1]:7070", 0, 1},
        {"train.example:7070", 0, 1},
        {"lo.example", 1, 0},
        {"evil.example:7070", 0, 0},
        {"node7.evil.example", 0, 0},
        {"localhost.evil.example", 0, 0},
        {"train.example.evil.example", 0, 0},
        {"127.0.0.1.evil.example", 0, 0},
        {"127.0.0.1:7070.evil.example", 0, 0},
        {"[::1].evil.example", 0, 0},
        {"[node7]", 0, 0},
        {"::1", 0, 0}, /* without brackets there is no telling the port */
        {"node7:", 0, 0},
        {"node7:123456", 0, 0},
        {"", 0, 0},
        {":7070", 0, 0},
        {"[]", 0, 0},
        {"[", 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct gate_request r = {.host = cases[i].host};
        const enum gate_verdict a = gate_check(&loopback, &r), b = gate_check(&open, &r);

        if (a != (cases[i].on_loopback ? GATE_OPEN : GATE_OTHER_HOST) ||
            b != (cases[i].beyond ? GATE_OPEN : GATE_OTHER_HOST))
            fail_msg("Host \"%s\": %d %d", cases[i].host, a, b);
        assert_int_equal(gate_check(&guarded, &r), GATE_NO_TOKEN);
    }
}

static void other_names_are_told_the_remedy(void **state)
{
    char own[ADDR_MAX_HOST], request[512];
    struct world w;
    struct buf out = {0};

    (void)state;
    gate_own_name(own);
    assert_true(own[0]);
    open_at(&w, "0.0.0.0", "");
    ask(&w, "GET /status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", &out);
    assert_true(begins(&out, "HTTP/1.1 403 "));
    assert_non_null(strstr(buf_cstr(&out), own));
    assert_non_null(strstr(buf_cstr(&out), "give --http NAME:PORT"));
    assert_null(strstr(buf_cstr(&out), "made"));
    snprintf(request, sizeof request,
             "GET /status HTTP/1.1\r\nHost: %s:%d\r\nConnection: close"
             "\r\n\r\n",
             own, w.port);
    ask(&w, request, &out);
    assert_true(begins(&out, "HTTP/1.1 200 "));
    buf_fini(&out);
    world_end(&w);
}

/* Beyond loopback, which a test on 0.0.0.0 stands for. */
static void a_token_opens(void **state)
{
    char request[256];
    struct world w;
    struct buf out = {0};

    (void)state;
    open_at(&w, "0.0.0.0", TOKEN);
    assert_non_null(strstr(http_url(w.http), "/?token=" TOKEN));
    ask(&w, GET("/status", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 401 "));
    assert_null(strstr(buf_cstr(&out), TOKEN));
    ask(&w, GET("/events", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 401 "));
    ask(&w, GET("/health", ""), &out); /* the one open document */
    assert_true(begins(&out, "HTTP/1.1 503 "));
    ask(&w, GET("/health/", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 401 "));
    ask(&w, GET("/status?token=0123456789abcdef0123456789abcdee", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 401 "));
    ask(&w, GET("/status?token=", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 401 "));
    ask(&w, GET("/status?token=" TOKEN, ""), &out);
    assert_true(begins(&out, "HTTP/1.1 200 "));
    ask(&w, GET("/status", "Authorization: Bearer " TOKEN "\r\n"), &out);
    assert_true(begins(&out, "HTTP/1.1 200 "));
    ask(&w, GET("/?token=" TOKEN, ""), &out);
    assert_true(begins(&out, "HTTP/1.1 303 "));
    assert_non_null(strstr(buf_cstr(&out), "=" TOKEN "; Path=/; HttpOnly; SameSite=Lax\r\n"));
    snprintf(request, sizeof request, GET("/status", "Cookie: a=b; dptrain-%d=" TOKEN "\r\n"),
             w.port);
    ask(&w, request, &out);
    assert_true(begins(&out, "HTTP/1.1 200 "));
    buf_fini(&out);
    world_end(&w);
}

/* Silent connections, more than there are places, keep nobody out; nor do browsers that go away in
 * the middle of a stream. */
static void silent_ones_make_room(void **state)
{
    enum { SILENT = 200 };
    struct world w;
    struct buf out = {0};
    int fd[SILENT], n_streams = 0;

    (void)state;
    open_at(&w, "127.0.0.1", "");
    for (int i = 0; i < SILENT; i++) {
        fd[i] = dial(&w);
        if (i % 4 == 0) {
            say(fd[i], GET("/events", ""));
            n_streams++;
        }
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < SILENT; i += 4)
        close(fd[i]);
    ask(&w, GET("/status", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 200 "));
    for (int i = 0; i < SILENT; i++)
        if (i % 4)
            close(fd[i]);
    buf_fini(&out);
    world_end(&w);
}

static void a_port_in_use_is_told(void **state)
{
    struct world w;
    struct http_options o = {.host = "127.0.0.1", .most = HTTP_LEAST};
    struct http *other;
    struct err err;

    (void)state;
    open_at(&w, "127.0.0.1", "");
    o.port = w.port;
    assert_int_equal(http_open(&w.loop, &o, &other, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "EADDRINUSE"));
    assert_non_null(strstr(err.msg, "--http 0"));
    o.host = "192.0.2.1";
    assert_int_equal(http_open(&w.loop, &o, &other, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "no such address"));
    world_end(&w);
}

static void *give_back(void *fd)
{
    poll(NULL, 0, 50); /* the first attempts find the port in use */
    close(*(int *)fd);
    return NULL;
}

/* A driver that was killed still holds its port when its standby on the same host leads. */
static void a_port_is_awaited(void **state)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct http_options o = {.host = "127.0.0.1", .most = HTTP_LEAST, .patience_ms = 60000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof sa;
    pthread_t thread;
    struct http *h;
    struct err err;
    uv_loop_t loop;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, n) | listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    o.port = ntohs(sa.sin_port);
    uv_loop_init(&loop);
    assert_int_equal(pthread_create(&thread, NULL, give_back, &fd), 0);
    assert_int_equal(http_open(&loop, &o, &h, &err), 0);
    pthread_join(thread, NULL);
    http_close(h);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void a_folder_is_read(void **state)
{
    static const struct {
        const char *path, *answer, *text;
    } cases[] = {
        {"/files", "200 ", "root has []"},
        {"/files/", "200 ", "root has []"},
        {"/files/a.json", "200 ", "root has [a.json]"},
        {"/files/%2e%2e/%2e%2e/etc/passwd", "404 ", "root has [../../etc/passwd]"},
        {"/files/a%00b", "200 ", "root has [a]"},
        {"/filesystem", "404 ", "nothing at this path"},
    };
    struct world w;
    struct buf out = {0};
    char request[256];

    (void)state;
    open_at(&w, "127.0.0.1", "");
    ask(&w, GET("/files", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 503 "));
    assert_non_null(strstr(buf_cstr(&out), "Retry-After: 1\r\n"));
    w.has_root = 1;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(request, sizeof request,
                 "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", cases[i].path);
        ask(&w, request, &out);
        if (strncmp(buf_cstr(&out) + strlen("HTTP/1.1 "), cases[i].answer, 4) != 0 ||
            !strstr(buf_cstr(&out), cases[i].text))
            fail_msg("%s: %s", cases[i].path, buf_cstr(&out));
    }
    ask(&w, "HEAD /files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(buf_cstr(&out), "Content-Length: 11\r\n"));
    assert_null(strstr(buf_cstr(&out), "root has"));
    buf_fini(&out);
    world_end(&w);
}

/* While a disk hangs, other documents are served, and a fifth reader is sent away. */
static void a_disk_that_hangs(void **state)
{
    struct world w;
    struct buf out = {0};
    int fd[4];

    (void)state;
    assert_int_equal(sem_init(&held, 0, 0), 0);
    open_at(&w, "127.0.0.1", "");
    w.has_root = 1;
    for (int i = 0; i < 4; i++) {
        fd[i] = dial(&w);
        say(fd[i], GET("/files/hold", ""));
    }
    do {
        ask(&w, GET("/files", ""), &out); /* answered until all four have arrived */
    } while (begins(&out, "HTTP/1.1 200 "));
    assert_true(begins(&out, "HTTP/1.1 503 "));
    ask(&w, GET("/status", ""), &out);
    assert_true(begins(&out, "HTTP/1.1 200 "));
    close(fd[3]); /* a reader that has gone */
    for (int i = 0; i < 4; i++)
        sem_post(&held);
    for (int i = 0; i < 3; i++) {
        buf_clear(&out);
        assert_true(hear(&w, fd[i], NULL, &out));
        assert_non_null(strstr(buf_cstr(&out), "root has [hold]"));
        close(fd[i]);
    }
    do {
        ask(&w, GET("/files", ""), &out); /* until the fourth has been noticed */
    } while (begins(&out, "HTTP/1.1 503 "));
    assert_true(begins(&out, "HTTP/1.1 200 "));
    for (int i = 0; i < 3; i++) { /* the server ends while they wait */
        fd[i] = dial(&w);
        say(fd[i], GET("/files/hold", ""));
    }
    ask(&w, GET("/status", ""), &out);
    http_close(w.http);
    for (int i = 0; i < 3; i++)
        sem_post(&held);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_served),  cmocka_unit_test(others_are_refused),
        cmocka_unit_test(names_are_judged),      cmocka_unit_test(other_names_are_told_the_remedy),
        cmocka_unit_test(a_token_opens),         cmocka_unit_test(silent_ones_make_room),
        cmocka_unit_test(a_port_in_use_is_told), cmocka_unit_test(a_port_is_awaited),
        cmocka_unit_test(a_folder_is_read),      cmocka_unit_test(a_disk_that_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
