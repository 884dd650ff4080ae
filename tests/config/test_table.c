/* The mechanism on a small table of its own: two entries of a registry that share a key, and lists
 * of every kind. */
#include "../test.h"

#include <math.h>

#include "base/util.h"
#include "config/read.h"

struct group {
    const char *match;
    double scale, decay; /* decay: NAN where not given */
    int frozen;
};

struct plain {
    double rate;
    int same;
    const char *label;
};

struct rich {
    double rate;
    int same;
    int64_t label;
    struct option_reals betas;
    unsigned parts;
    struct option_items groups;
};

struct thing {
    const struct option_group *kind;
    const void *options;
    int64_t size;
};

static const char *const words[] = {"none", "bias", "norm", "embedding", NULL};

static const struct option plain_rows[] = {
    {"thing.rate", OPT_REAL, offsetof(struct plain, rate), "0.5", 0, 1, .help = "A rate."},
    {"thing.same", OPT_BOOL, offsetof(struct plain, same), "false", .help = "The same in both."},
    {"thing.label", OPT_STRING, offsetof(struct plain, label), NULL, .help = "A text."},
};

static const struct option group_rows[] = {
    {"match", OPT_STRING, offsetof(struct group, match), NULL, .flags = OPT_REQUIRED, .help = "."},
    {"scale", OPT_REAL, offsetof(struct group, scale), "1", 0, 100, .help = "."},
    {"decay", OPT_REAL, offsetof(struct group, decay), NULL, 0, 1, .help = "."},
    {"frozen", OPT_BOOL, offsetof(struct group, frozen), "false", .help = "."},
};

static const struct option_item group_item = {group_rows, ARRAY_LEN(group_rows),
                                              sizeof(struct group)};

static const struct option rich_rows[] = {
    {"thing.rate", OPT_REAL, offsetof(struct rich, rate), "2", 0, 10, .help = "A larger rate."},
    {"thing.same", OPT_BOOL, offsetof(struct rich, same), "false", .help = "The same in both."},
    {"thing.label", OPT_INT, offsetof(struct rich, label), "7", 0, 9, .help = "A number."},
    {"thing.betas", OPT_REALS, offsetof(struct rich, betas), "[0.9, 0.999]", 0, 1,
     .flags = OPT_BELOW, .count = 2, .help = "Two of them."},
    {"thing.parts", OPT_SET, offsetof(struct rich, parts), "[]", .choices = words, .first = 1,
     .help = "Some of them."},
    {"thing.groups", OPT_ITEMS, offsetof(struct rich, groups), "[]", .item = &group_item,
     .help = "Groups."},
};

static int check_rich(const void *options, struct err *err)
{
    const struct rich *o = options;

    return o->rate == 3 ? err_set(err, ERR_CONFIG, "thing.rate is 3, want another") : 0;
}

static const struct option_group
    plain = {"plain", "a plain one", plain_rows, ARRAY_LEN(plain_rows), sizeof(struct plain), NULL},
    rich = {"rich", "a rich one", rich_rows, ARRAY_LEN(rich_rows), sizeof(struct rich), check_rich};
static const struct option_group *const entries[] = {&plain, &rich, NULL};
static const struct option_registry registry = {entries, offsetof(struct thing, options)};
static const struct option kind_row = {
    "thing.kind",          OPT_ENTRY,       offsetof(struct thing, kind), "plain",
    .registry = &registry, .help = "Which."};
static const struct option size_row = {
    "thing.size", OPT_INT, offsetof(struct thing, size), "1", 0, 9, .help = "A size."};
static const struct option_part parts[] = {
    {&kind_row, 1, 0, NULL}, {NULL, 0, 0, &kind_row}, {&size_row, 1, 0, NULL}};
static const struct option_table table = {parts, ARRAY_LEN(parts)};

static struct option_list list;
static struct arena arena;

/* The thing that `text` and, if not NULL, one --set describe. */
static int read_thing(const char *text, const char *set, struct thing *out, struct err *err)
{
    struct reader r;
    int rc;

    *out = (struct thing){0};
    reader_init(&r, &list, out, &arena);
    r.origin = "f";
    rc = read_yaml(&r, text, strlen(text), err);
    if (rc == 0 && set)
        rc = read_set(&r, set, err);
    if (rc == 0)
        rc = read_finish(&r, err);
    reader_fini(&r);
    return rc;
}

static struct thing good(const char *text, const char *set)
{
    struct thing t;
    struct err err;

    if (read_thing(text, set, &t, &err) < 0)
        fail_msg("%s %s: %s", text, set ? set : "", err.msg);
    return t;
}

static void bad(const char *text, const char *set, const char *want)
{
    struct thing t;
    struct err err = {0};

    assert_int_equal(read_thing(text, set, &t, &err), ERR_CONFIG);
    assert_string_equal(err.msg, want);
}

/* Whatever comes first, the choice or the key: the chosen entry's row holds. */
static void shared_keys(void **state)
{
    struct thing t = good("thing: {size: 2}", NULL);

    (void)state;
    assert_ptr_equal(t.kind, &plain);
    assert_true(((const struct plain *)t.options)->rate == 0.5 && t.size == 2);
    t = good("thing: {kind: rich}", NULL);
    assert_true(((const struct rich *)t.options)->rate == 2);
    t = good("thing: {rate: 5, kind: rich}", NULL);
    assert_true(((const struct rich *)t.options)->rate == 5);
    t = good("thing: {rate: 0.75}", NULL);
    assert_true(((const struct plain *)t.options)->rate == 0.75);
    bad("thing: {rate: 5}", NULL, "f:1:15: thing.rate is 5, want a number from 0 to 1");
    bad("thing: {rate: 50, kind: rich}", NULL,
        "f:1:15: thing.rate is 50, want a number from 0 to 10");
    bad("thing: {kind: rich}", "thing.rate=11",
        "--set: thing.rate is 11, want a number from 0 to 10");
    bad("thing: {rate: 3, kind: rich}", NULL, "f:1:15: thing.rate is 3, want another");
    bad("thing: {label: \"3\", kind: rich}", NULL,
        "f:1:16: thing.label is 3 in quotes, want an integer from 0 to 9");
    assert_string_equal(((const struct plain *)good("thing: {label: \"3\"}", NULL).options)->label,
                        "3");
    bad("thing: {kind: poor}", NULL, "f:1:15: thing.kind is \"poor\", want plain or rich");
}

/* An override of the choice keeps the keys that the new choice has, too. */
static void overridden_choices(void **state)
{
    struct thing t = good("thing: {kind: rich, rate: 0.25, betas: [0, 0]}", "thing.kind=plain");

    (void)state;
    assert_ptr_equal(t.kind, &plain);
    assert_true(((const struct plain *)t.options)->rate == 0.25);
    bad("thing: {kind: rich, rate: 5}", "thing.kind=plain",
        "f:1:27: thing.rate is 5, want a number from 0 to 1");
    bad("thing: {betas: [0, 0]}", NULL,
        "f:1:16: thing.betas applies only if thing.kind is rich; it is plain");
}

static void lists(void **state)
{
    const struct rich *o = good("thing:\n  kind: rich\n  betas: [0.5, 1e-1]\n"
                                "  parts: [norm, bias]\n"
                                "  groups:\n    - {match: \"a\\\"b\", frozen: true}\n"
                                "    - match: 'fc.*'\n      scale: 10\n      decay: 0\n",
                                NULL)
                               .options;
    const struct group *g = o->groups.v;

    (void)state;
    assert_int_equal(o->betas.n, 2);
    assert_true(o->betas.v[0] == 0.5 && o->betas.v[1] == 0.1);
    assert_int_equal(o->parts, 1u << 1 | 1u << 2);
    assert_int_equal(o->groups.n, 2);
    assert_string_equal(g[0].match, "a\"b");
    assert_true(g[0].scale == 1 && isnan(g[0].decay) && g[0].frozen == 1);
    assert_string_equal(g[1].match, "fc.*");
    assert_true(g[1].scale == 10 && g[1].decay == 0 && g[1].frozen == 0);
    o = good("thing: {kind: rich}", "thing.parts=embedding").options;
    assert_int_equal(o->parts, 1u << 3);
    o = good("{\"thing\": {\"kind\": \"rich\", \"parts\": [\"norm\"]}}", NULL).options; /* JSON */
    assert_int_equal(o->parts, 1u << 2);
    assert_true(o->groups.n == 0 && o->betas.v[1] == 0.999);
    o = good("thing: {kind: rich}", "thing.groups=[{match: x}]").options;
    assert_string_equal(((const struct group *)o->groups.v)->match, "x");
}

static void bad_lists(void **state)
{
#define RICH "thing: {kind: rich, "
#define GROUPS                                                                                 \
    "want a list of at most 64 mappings, each with match: text (must be given); scale: a "     \
    "number from 0 to 100 (1); decay: a number from 0 to 1 (none); frozen: true or false (fal" \
    "se)"
    static const char *const cases[][2] = {
        {"betas: [0.5]}", "thing.betas is 0.5, want a list of 2, each a number from 0 to below 1"},
        {"betas: [0.5, 1]}",
         "thing.betas is \"0.5, 1\", want a list of 2, each a number from 0 to below 1"},
        {"betas: [1, 2, 3, 4, 5, 6, 7, 8, 9]}", "thing.betas is \"1, 2, 3, 4, 5, 6, 7, 8, 9\", "
                                                "want a list of 2, each a number from 0 to below "
                                                "1"},
        {"parts: [none]}",
         "thing.parts is \"none\", want a list of some of bias, norm or embedding"},
        {"groups: 3}", "thing.groups is no list, " GROUPS},
        {"groups: [3]}", "thing.groups[0]: want a mapping, such as {match: ...}"},
        {"groups: [{match: a}, {scale: 3}]}", "thing.groups[1]: match is missing"},
        {"groups: [{match: a, match: b}]}", "thing.groups[0]: match is given twice"},
        {"groups: [{match: a, scale: 101}]}",
         "thing.groups[0]: scale is 101, want a number from 0 to 100"},
        {"groups: [{match: a, scale: [1]}]}",
         "thing.groups[0]: scale is a list or a mapping, want a number from 0 to 100"},
        {"groups: [{match: a, size: 1}]}",
         "thing.groups[0]: unknown key \"size\", want match, scale, decay or frozen"},
        {"groups: &a [*a]}", "thing.groups[0]: want a mapping, such as {match: ...}"},
        {"groups: &a [[*a, *a], *a]}", "thing.groups is longer, " GROUPS},
    };
    const struct rich *o;
    struct buf many = {0};

    (void)state;
    buf_printf(&many, RICH "groups: [{match: a}");
    for (int i = 1; i < OPT_MAX_ITEMS; i++)
        buf_printf(&many, ", {match: a}");
    buf_printf(&many, "]}");
    o = good(buf_cstr(&many), NULL).options;
    assert_int_equal(o->groups.n, OPT_MAX_ITEMS);
    many.len -= 2;
    buf_printf(&many, ", {match: a}]}");
    bad(buf_cstr(&many), NULL, "f:1:29: thing.groups is longer, " GROUPS);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];
        struct thing t;
        struct err err = {0};

        snprintf(text, sizeof text, RICH "%s", cases[i][0]);
        if (read_thing(text, NULL, &t, &err) != ERR_CONFIG)
            fail_msg("%s is taken", text);
        if (!strstr(err.msg, cases[i][1]))
            fail_msg("%s\n  says  %s\n  want  %s", text, err.msg, cases[i][1]);
    }
    buf_fini(&many);
}

/* A value that was written reads back as the same value. */
static void written(void **state)
{
    const struct rich *o = good("thing: {kind: rich, betas: [0.25, 0.5], parts: [norm], groups: "
                                "[{match: \"a\\\\\\\"\", decay: 1e-5}, {match: b, frozen: true}]}",
                                NULL)
                               .options;
    static const char *const want[] = {
        "2",
        "false",
        "7",
        "[0.25, 0.5]",
        "[norm]",
        ("[{match: \"a\\\\\\\"\", scale: 1, decay: 1.0e-05, frozen: false}, "
         "{match: \"b\", scale: 1, frozen: true}]")};
    struct buf text = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        union {
            double real;
            int flag;
            int64_t integer;
            struct option_reals reals;
            unsigned set;
            struct option_items items;
        } again;
        struct err err;

        memset(&again, 0xff, sizeof again); /* what was there before does not matter */
        buf_clear(&text);
        option_format(&rich_rows[i], (const char *)o + rich_rows[i].offset, &text);
        assert_string_equal(buf_cstr(&text), want[i]);
        assert_int_equal(
            option_parse(&rich_rows[i], &again, &arena, want[i], strlen(want[i]), 0, &err), 0);
        buf_clear(&text);
        option_format(&rich_rows[i], &again, &text);
        assert_string_equal(buf_cstr(&text), want[i]);
    }
    buf_fini(&text);
}

/* Entries that say different things of one key are told one by one. */
static void help(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    (void)state;
    table_help(&list, NULL, f);
    fclose(f);
    assert_non_null(strstr(text, "\nthing.kind: plain\n    Which.\n      plain  a plain one\n"
                                 "      rich   a rich one\n\n"));
    assert_non_null(strstr(text, "\nthing.rate: 0.5\n    A rate.\n    It is a number from 0 to 1, "
                                 "and applies only if thing.kind is plain.\n"));
    assert_non_null(strstr(text, "\nthing.rate: 2\n    A larger rate.\n    It is a number from 0 "
                                 "to 10, and applies only if thing.kind is rich.\n"));
    assert_non_null(
        strstr(text, "\nthing.same: false\n    The same in both.\n    It is true or false.\n"));
    assert_null(strstr(strstr(text, "\nthing.same: ") + 1, "\nthing.same: ")); /* told once */
    assert_non_null(
        strstr(text, "\nthing.size: 1\n    A size.\n    It is an integer from 0 to 9.\n"));
    free(text);
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena);
    table_init(&list, &table);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    table_fini(&list);
    arena_fini(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_keys), cmocka_unit_test(overridden_choices),
        cmocka_unit_test(lists),       cmocka_unit_test(bad_lists),
        cmocka_unit_test(written),     cmocka_unit_test(help),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
