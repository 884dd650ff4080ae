/* Tests of what a request gets by its method, its target and the gate, without a server. */
#include "../test.h"

#include "base/util.h"
#include "net/http_route.h"

#define LONG_NAME                                                                      \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct http_document documents[] = {{.path = "/metrics"}};
static const struct http_file files[] = {{.path = "/"}};
static const struct http_folder folders[] = {{.path = "/api/incidents"}};
static const struct http_options options = {.documents = documents,
                                            .n_documents = ARRAY_LEN(documents),
                                            .files = files,
                                            .n_files = ARRAY_LEN(files),
                                            .folders = folders,
                                            .n_folders = ARRAY_LEN(folders),
                                            .stream = "/api/events"};
static const struct gate open_gate = {.is_loopback = 1, .own = "node7"};
static const struct gate shut_gate = {.token = "secret", .own = "node7"};

static struct http_route get(const struct gate *g, const char *host, const char *target,
                             const char *token)
{
    const struct gate_request r = {.host = host, .n_hosts = !!host, .query = token};

    return http_route_of(&options, g, "GET", target, &r);
}

/* A target may have scheme and host before the path, as a client sends it to a proxy. */
static void absolute_targets(void **state)
{
    static const struct {
        const char *target;
        enum http_route_kind kind;
    } cases[] = {
        {"http://localhost/metrics", ROUTE_DOCUMENT},
        {"HTTP://LocalHost:7070/metrics", ROUTE_DOCUMENT},
        {"http://127.0.0.1:7070/metrics", ROUTE_DOCUMENT},
        {"http://[::1]:7070/metrics", ROUTE_DOCUMENT},
        {"http://node7/api/events", ROUTE_STREAM},
        {"http://localhost", ROUTE_FILE},
        {"http://localhost/", ROUTE_FILE},
        {"http://localhost/nothing", ROUTE_NOTHING},
        {"http://localhost//metrics", ROUTE_NOTHING},
        {"http://localhost/http://localhost/metrics", ROUTE_NOTHING},
        {"https://localhost/metrics", ROUTE_NOTHING},
        {"http:/metrics", ROUTE_NOTHING},
        {"http://evil.example/metrics", ROUTE_OTHER_HOST},
        {"http://10.0.0.1/metrics", ROUTE_OTHER_HOST},
        {"http:///metrics", ROUTE_OTHER_HOST},
        {"http://", ROUTE_OTHER_HOST},
        {"http://localhost@evil.example/metrics", ROUTE_OTHER_HOST},
        {"http://evil.example@localhost/metrics", ROUTE_OTHER_HOST},
        {"http://localhost:999999/metrics", ROUTE_OTHER_HOST},
        {"http://" LONG_NAME "/metrics", ROUTE_OTHER_HOST},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(get(&open_gate, "localhost", cases[i].target, NULL).kind, cases[i].kind);
    assert_string_equal(
        get(&open_gate, "localhost", "http://localhost/api/incidents/one", NULL).name, "one");
}

/* Neither of the two hosts of a request opens the gate for the other. */
static void both_hosts_are_judged(void **state)
{
    static const char own[] = "http://localhost/metrics", evil[] = "http://evil.example/metrics";

    (void)state;
    assert_int_equal(get(&open_gate, "evil.example", own, NULL).kind, ROUTE_OTHER_HOST);
    assert_int_equal(get(&open_gate, NULL, evil, NULL).kind, ROUTE_OTHER_HOST);
    assert_int_equal(get(&open_gate, NULL, own, NULL).kind, ROUTE_DOCUMENT);
    assert_int_equal(get(&shut_gate, "evil.example", evil, NULL).kind, ROUTE_NO_TOKEN);
    assert_int_equal(get(&shut_gate, "evil.example", evil, "secret").kind, ROUTE_DOCUMENT);
    assert_int_equal(get(&shut_gate, "evil.example", "http://evil.example", "secret").kind,
                     ROUTE_KEEP_TOKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absolute_targets),
        cmocka_unit_test(both_hosts_are_judged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
