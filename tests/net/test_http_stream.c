/* Tests of the server's stream: its beginning, the status once a change, and readers that are slow.
 * That of a reader whom the ring of notes overtakes is http_ring. */
#include "../test.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_world.h"

static void a_stream_tells(void **state)
{
    struct world w;
    struct buf out = {0};
    int fd;

    (void)state;
    open_at(&w, "127.0.0.1", "");
    fd = dial(&w);
    say(fd, GET("/events", ""));
    assert_true(hear(&w, fd, "event: status\ndata: {\"made\":1}\n\n", &out));
    http_publish(w.http, "row", NULL, "{\"step\":1}", 10);
    http_publish(w.http, "row", NULL, "{\"step\":2}", 10);
    assert_true(hear(&w, fd, "data: {\"step\":2}\n\n", &out));
    assert_non_null(strstr(buf_cstr(&out), "event: row\ndata: {\"step\":1}\n\n"));
    assert_true(hear(&w, fd, "{\"made\":2}", &out)); /* a second later */
    http_publish(w.http, "event", NULL, "{\"event\":\"done\"}", 16);
    world_end(&w); /* what was published is still sent, and the stream ends */
    buf_clear(&out);
    while (1) {
        char block[4096];
        const ssize_t n = recv(fd, block, sizeof block, 0);

        if (n <= 0)
            break;
        buf_append(&out, block, (size_t)n);
    }
    assert_non_null(strstr(buf_cstr(&out), "{\"event\":\"done\"}"));
    close(fd);
    buf_fini(&out);
}

/* Another stream that begins gets the status that is there, and the first one hears it once. */
static void a_status_is_told_once(void **state)
{
    struct world w;
    struct buf out = {0}, other_out = {0};
    int fd, other;

    (void)state;
    open_at(&w, "127.0.0.1", "");
    fd = dial(&w);
    say(fd, GET("/events", ""));
    assert_true(hear(&w, fd, "{\"made\":1}", &out));
    other = dial(&w);
    say(other, GET("/events", ""));
    assert_true(hear(&w, other, "event: status", &other_out));
    http_publish(w.http, "row", NULL, "{\"step\":1}", 10); /* wakes both */
    assert_true(hear(&w, fd, "{\"step\":1}", &out));
    assert_true(hear(&w, fd, "{\"made\":2}", &out));
    assert_null(strstr(strstr(buf_cstr(&out), "{\"made\":1}") + 1, "{\"made\":1}"));
    close(fd);
    close(other);
    buf_fini(&out);
    buf_fini(&other_out);
    world_end(&w);
}

/* A stream begins with what was before, in one piece with what comes, and a reader who comes again
 * says what it has. */
static void a_stream_begins(void **state)
{
    struct world w;
    struct buf out = {0};
    int fd;

    (void)state;
    open_at(&w, "127.0.0.1", "");
    fd = dial(&w);
    say(fd, GET("/events", ""));
    assert_true(hear(&w, fd, "event: status", &out));
    assert_non_null(strstr(buf_cstr(&out), "retry: 2000\n\n"));
    assert_non_null(strstr(buf_cstr(&out), "event: event\nid: x-1\ndata: none\n\n"));
    buf_clear(&out);
    http_publish(w.http, "event", "x-2", "two", 3);
    assert_true(hear(&w, fd, "event: event\nid: x-2\ndata: two\n\n", &out));
    close(fd);
    buf_clear(&out);
    fd = dial(&w);
    say(fd, GET("/events", "Last-Event-ID: x-1\r\n"));
    assert_true(hear(&w, fd, "event: status", &out));
    assert_null(strstr(buf_cstr(&out), "id: "));
    close(fd);
    buf_clear(&out);
    fd = dial(&w);
    say(fd, GET("/events", "Last-Event-ID: x-7\r\n"));
    assert_true(hear(&w, fd, "event: event\nid: x-1\ndata: x-7\n\n", &out));
    close(fd);
    buf_clear(&out);
    fd = dial(&w);
    say(fd, GET("/events", "Last-Event-ID: y-7\r\n")); /* foreign: as if it had heard none */
    assert_true(hear(&w, fd, "event: event\nid: x-1\ndata: none\n\n", &out));
    close(fd);
    buf_fini(&out);
    world_end(&w);
}

/* Notes that come one soon after another are sent together, in their order. */
static void notes_are_gathered(void **state)
{
    enum { NOTES = 100 };
    struct world w;
    struct buf out = {0};
    const char *at;
    int fd, n_chunks = 0;

    (void)state;
    open_at(&w, "127.0.0.1", "");
    fd = dial(&w);
    say(fd, GET("/events", ""));
    assert_true(hear(&w, fd, "event: status", &out));
    buf_clear(&out);
    for (int i = 0; i < NOTES; i++) {
        char line[32];
        const int n = snprintf(line, sizeof line, "{\"step\":%d}", i);

        http_publish(w.http, "row", NULL, line, (size_t)n);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    assert_true(hear(&w, fd, "{\"step\":99}\n\n", &out));
    at = buf_cstr(&out);
    for (int i = 0; i < NOTES; i++) {
        char line[32];

        snprintf(line, sizeof line, "data: {\"step\":%d}\n", i);
        at = strstr(at, line);
        assert_non_null(at);
    }
    for (at = buf_cstr(&out); (at = strstr(at, "\r\n")); at += 2)
        n_chunks++; /* two for each */
    assert_true(n_chunks < NOTES);
    close(fd);
    buf_fini(&out);
    world_end(&w);
}

/* A reader that takes nothing is cut off once the ring has overtaken it; another one is served. */
static void a_slow_reader_is_cut(void **state)
{
    static char line[64 << 10];
    struct world w;
    struct buf out = {0};
    int fd, other;

    (void)state;
    memset(line, 'x', sizeof line);
    open_at(&w, "127.0.0.1", "");
    fd = dial(&w);
    say(fd, GET("/events", ""));
    assert_true(hear(&w, fd, "event: status", &out));
    for (int i = 0; i < 400; i++) { /* 25 MiB: more than any socket holds */
        http_publish(w.http, "row", NULL, line, sizeof line);
        for (int k = 0; k < 8; k++)
            uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    other = dial(&w);
    say(other, GET("/status", ""));
    buf_clear(&out);
    assert_true(hear(&w, other, NULL, &out));
    buf_clear(&out);
    assert_true(hear(&w, fd, NULL, &out));
    assert_true(out.len < 400 * sizeof line);
    close(fd);
    close(other);
    buf_fini(&out);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_tells),       cmocka_unit_test(a_status_is_told_once),
        cmocka_unit_test(a_stream_begins),      cmocka_unit_test(notes_are_gathered),
        cmocka_unit_test(a_slow_reader_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
