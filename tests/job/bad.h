/* bad - tables of job files that are refused, with their exact messages.
 *
 * A message may have "@KIND" for all words of a kind ("lenet, mlp or vit"), and "@KIND.KEY" for
 * those whose entries have this key of their own: a new entry changes no table. */
#ifndef TESTS_JOB_BAD_H
#define TESTS_JOB_BAD_H

#include "../test.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "data/dataset.h"
#include "job/table.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "strategy/strategy.h"

#define HEAD       "model: {arch: lenet}\ndata: {format: digits}\n" /* what follows is in line 3 */
#define MLP        "model: {arch: mlp, "
#define BY_BUCKETS " works by buckets, which then may not change in the run; want a number of bytes"
#define NOT_LINEAR ", whose sum depends on which rank has which samples; leave one of the two out"
#define DIGITS     "\ndata: {format: digits}\n"

struct bad {
    const char *text;
    const char *want; /* the message */
};

static inline int bad_has_key(const struct option_group *g, const char *key, size_t len)
{
    for (int i = 0; i < g->n_options; i++)
        if (strlen(g->option[i].key) == len && !memcmp(g->option[i].key, key, len))
            return 1;
    return 0;
}

/* Append the words of a registry, of those entries that have a key; len 0: of all. */
static inline void bad_put_words(const struct option_group *const *g, const char *key, size_t len,
                                 struct buf *out)
{
    const struct option_group *last = NULL;
    int n = 0;

    for (; *g; g++) {
        if (len > 0 && !bad_has_key(*g, key, len))
            continue;
        if (last)
            buf_printf(out, "%s%s", n++ ? ", " : "", last->name);
        last = *g;
    }
    assert_non_null(last);
    buf_printf(out, "%s%s", n ? " or " : "", last->name);
}

/* The message with its lists, for free(). */
static inline char *bad_message(const char *want)
{
    static const struct {
        const char *kind;
        const struct option_group *const *groups;
    } kinds[] = {{"@arch", job_archs},
                 {"@format", data_formats},
                 {"@optimizer", optimizers},
                 {"@schedule", schedules},
                 {"@strategy", strategies}};
    struct buf out = {0};
    char *text;

    while (*want) {
        size_t k = 0, len = 0;

        while (k < ARRAY_LEN(kinds) && strncmp(want, kinds[k].kind, strlen(kinds[k].kind)) != 0)
            k++;
        if (k == ARRAY_LEN(kinds)) {
            buf_append(&out, want++, 1);
            continue;
        }
        want += strlen(kinds[k].kind);
        if (*want == '.')
            len = strspn(++want, "abcdefghijklmnopqrstuvwxyz_.");
        bad_put_words(kinds[k].groups, want, len, &out);
        want += len;
    }
    text = xstrdup(buf_cstr(&out));
    buf_fini(&out);
    return text;
}

static inline void bad_check(int rc, const struct err *err, const struct bad *b, struct job *job)
{
    char *want = bad_message(b->want);

    if (rc == 0 || strcmp(err->msg, want) != 0)
        print_error("%s\n  says  %s\n  want  %s\n", b->text, rc ? err->msg : "nothing", want);
    assert_int_equal(rc, ERR_CONFIG);
    assert_null(job);
    assert_string_equal(err->msg, want);
    free(want);
}

static inline void bad_check_texts(const struct bad *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct job *job = NULL;
        struct err err;
        int rc = job_parse(b[i].text, strlen(b[i].text), "f", "/base", &job, &err);

        bad_check(rc, &err, &b[i], job);
    }
}

#endif
