/* Three readers, of JSON and of single words.  A field that is missing or of another type is an
 * error where the answer cannot be understood without it, and else means that the time is not
 * known. */
#include "daemon/metadata_read.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

#include "base/util.h"

enum { PREEMPTED_S = 30, LONGEST_S = 7 * 24 * 3600 }; /* Google Cloud's notice */

/* The seconds until a time of day in this format; -1: it is none. */
static int64_t seconds_until(const char *text, const char *format, int64_t now_s)
{
    struct tm tm = {0};
    const char *end = text ? strptime(text, format, &tm) : NULL;

    if (!end || *end)
        return -1;
    return max_i64(0, min_i64((int64_t)timegm(&tm) - now_s, LONGEST_S));
}

static int bad_answer(struct err *err, const char *what, const char *text, size_t n)
{
    char seen[64];
    size_t k = 0;

    for (; k < n && k < sizeof seen - 1; k++)
        seen[k] = text[k] >= ' ' && text[k] <= '~' ? text[k] : '?';
    seen[k] = '\0';
    return err_set(err, ERR_PROTO, "its answer is no %s: \"%s%s\"", what, seen, k < n ? "..." : "");
}

static int metadata_is_one_of(const char *word, const char *const *words)
{
    for (; word && *words; words++)
        if (!strcmp(word, *words))
            return 1;
    return 0;
}

int metadata_read_aws(const char *text, size_t n, int64_t now_s, struct notice *out,
                      struct err *err)
{
    json_t *o = json_loadb(text, n, 0, NULL);

    if (!json_is_string(json_object_get(o, "action"))) {
        json_decref(o);
        return bad_answer(err, "action", text, n);
    }
    *out = (struct notice){.source = "aws",
                           .seconds = seconds_until(json_string_value(json_object_get(o, "time")),
                                                    "%Y-%m-%dT%H:%M:%SZ", now_s)};
    json_decref(o);
    return 1;
}

int metadata_read_gcp(const char *text, size_t n, struct notice *out, struct err *err)
{
    static const char *const stays[] = {"FALSE", "NONE", "MIGRATE_ON_HOST_MAINTENANCE", NULL};
    char word[40] = "";

    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    if (n < sizeof word && !memchr(text, '\0', n))
        memcpy(word, text, n);
    *out = (struct notice){.source = "gcp", .seconds = -1};
    if (metadata_is_one_of(word, stays))
        return 0;
    if (!strcmp(word, "TRUE"))
        out->seconds = PREEMPTED_S;
    else if (strcmp(word, "TERMINATE_ON_HOST_MAINTENANCE") != 0)
        return bad_answer(err, "word that is known", text, n);
    return 1;
}

static int names_vm(const json_t *event, const char *vm)
{
    const json_t *list = json_object_get(event, "Resources"), *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        if (json_is_string(item) && !strcmp(json_string_value(item), vm))
            return 1;
    }
    return 0;
}

int metadata_read_azure(const char *text, size_t n, const char *vm, int64_t now_s,
                        struct notice *out, struct err *err)
{
    static const char *const ends[] = {"Preempt", "Terminate", "Reboot", "Redeploy", NULL};
    json_t *o = json_loadb(text, n, 0, NULL);
    const json_t *events = json_object_get(o, "Events"), *event;
    int rc = 0;
    size_t i;

    if (!json_is_array(events)) {
        json_decref(o);
        return bad_answer(err, "list of events", text, n);
    }
    json_array_foreach(events, i, event)
    {
        const char *before = json_string_value(json_object_get(event, "NotBefore"));

        if (rc || !names_vm(event, vm) ||
            !metadata_is_one_of(json_string_value(json_object_get(event, "EventType")), ends))
            continue;
        rc = 1; /* an event without time has begun */
        *out =
            (struct notice){.source = "azure",
                            .seconds = seconds_until(before, "%a, %d %b %Y %H:%M:%S GMT", now_s)};
    }
    json_decref(o);
    return rc;
}
