/* The lines of audit.jsonl, one function for each event.
 * Texts that came from peers are cleaned. */
#include "report/audit.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "report/json_text.h"

/* A request that was granted, and has its line. */
struct audit_asker {
    int64_t uid, pid;
    struct hash128 request;
};

struct audit {
    struct lines *lines;
    struct audit_asker asker[AUDIT_ASKERS]; /* number i is at i % AUDIT_ASKERS */
    int64_t n_askers;
    /* A bucket of tokens, of which each refused peer takes one. */
    double n_tokens;
    int64_t filled_ns; /* when the tokens were counted */
    int64_t n_omitted; /* peers since the last line */
    int has_told;
};

struct audit *audit_new(struct lines *lines)
{
    struct audit *a = xcalloc(1, sizeof *a);

    a->lines = lines;
    a->n_tokens = AUDIT_BURST;
    a->filled_ns = clock_mono_ns();
    return a;
}

void audit_free(struct audit *a)
{
    if (!a)
        return;
    lines_free(a->lines);
    free(a);
}

static int audit_is_again(struct audit *a, const struct audit_asker *who)
{
    for (int i = 0; i < AUDIT_ASKERS && i < a->n_askers; i++) {
        const struct audit_asker *known = &a->asker[i];

        if (known->uid == who->uid && known->pid == who->pid &&
            hash_equal(known->request, who->request))
            return 1;
    }
    a->asker[a->n_askers++ % AUDIT_ASKERS] = *who;
    return 0;
}

void audit_asked(struct audit *a, const char *request, int64_t uid, int64_t pid,
                 const char *refused)
{
    struct audit_asker who = {.uid = uid, .pid = pid};

    if (request && !refused && pid > 0) {
        who.request = hash_of(request, strlen(request));
        if (audit_is_again(a, &who))
            return;
    }
    json_text_line(a->lines,
                   json_pack("{s:s, s:f, s:o, s:I, s:I, s:o}", "event", "asked", "time",
                             clock_wall_s(), "request", json_text(request), "uid", (json_int_t)uid,
                             "pid", (json_int_t)pid, "refused", json_text(refused)));
}

/* 1: a line may be written for one more peer. */
static int take_token(struct audit *a)
{
    int64_t now = clock_mono_ns();
    double n = a->n_tokens + 1e-9 * AUDIT_RATE * (double)(now - a->filled_ns);

    a->n_tokens = n < AUDIT_BURST ? n : AUDIT_BURST;
    a->filled_ns = now;
    if (a->n_tokens < 1)
        return 0;
    a->n_tokens--;
    return 1;
}

static void audit_omit(struct audit *a)
{
    a->n_omitted++;
    if (a->has_told)
        return;
    a->has_told = 1;
    log_warn("audit.jsonl: many peers are not let in; beyond %d a second they have no line of "
             "their own there, and are counted",
             AUDIT_RATE);
}

void audit_flush(struct audit *a)
{
    if (a->n_omitted)
        json_text_line(a->lines, json_pack("{s:s, s:f, s:I}", "event", "omitted", "time",
                                           clock_wall_s(), "count", (json_int_t)a->n_omitted));
    a->n_omitted = 0;
}

void audit_refused(struct audit *a, const char *reason)
{
    if (!take_token(a)) {
        audit_omit(a);
        return;
    }
    audit_flush(a);
    json_text_line(a->lines, json_pack("{s:s, s:f, s:o}", "event", "refused", "time",
                                       clock_wall_s(), "reason", json_text(reason)));
}
