/* Every row of the table can be set, is written, read back, explained and compared; and every entry
 * of a registry is complete. */
#include "../test.h"

#include "job/table.h"
#include "option_rows.h"

static struct option_list list; /* all rows, made once */

static struct job *load(const struct row *row, int with_value)
{
    const char *sets[5] = {row->before[0], row->before[1], row->before[2]};
    char value[128];
    size_t n = 0;
    struct job *job = NULL;
    struct err err;

    while (n < ARRAY_LEN(row->before) && row->before[n])
        n++;
    snprintf(value, sizeof value, "%s=%s", row->key, row->value);
    sets[n] = value;
    if (job_load(NULL, sets, n + (with_value ? 1 : 0), &job, &err) < 0)
        fail_msg("%s: %s", value, err.msg);
    return job;
}

/* "model:\n  init:\n    std: 0.02\n" holds model.init.std: 0.02 */
static int holds(const char *yaml, const char *key, const char *value)
{
    char line[256];
    size_t depth = 0, at = 0;

    for (const char *dot; (dot = strchr(key + at, '.')); depth++) {
        snprintf(line, sizeof line, "%*s%.*s:\n", (int)(2 * depth), "", (int)(dot - key - (long)at),
                 key + at);
        yaml = strstr(yaml, line);
        if (!yaml)
            return 0;
        at = (size_t)(dot - key) + 1;
    }
    snprintf(line, sizeof line, "%*s%s: %s\n", (int)(2 * depth), "", key + at, value);
    return strstr(yaml, line) != NULL;
}

static void test_rows_cover_the_table(void **state)
{
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < list.n; i++)
        if (list.ref[i].first == i) {
            const char *key = list.ref[i].o->key, *row = n < ARRAY_LEN(rows) ? rows[n].key : "";

            if (strcmp(row, key) != 0)
                fail_msg("option_rows.h has \"%s\" where the job's keys have \"%s\": add "
                         "a row for the key, or take the row out",
                         row, key);
            n++;
        }
    if (n < ARRAY_LEN(rows))
        fail_msg("option_rows.h has \"%s\", and the job's keys end before it", rows[n].key);
}

static void test_set_and_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *row = &rows[i];
        struct job *job = load(row, 1), *again = NULL;
        struct buf one = {0}, two = {0};
        struct err err;

        job_write(job, &one);
        if (!holds(buf_cstr(&one), row->key, row->written ? row->written : row->value))
            fail_msg("%s: %s is not in\n%s", row->key, row->value, buf_cstr(&one));
        assert_int_equal(job_parse((const char *)one.data, one.len, "job.yaml", NULL, &again, &err),
                         0);
        job_write(again, &two);
        assert_string_equal(buf_cstr(&one), buf_cstr(&two));
        assert_int_equal(job_compare_for_resume(job, again, &err), 0);
        job_free(again);
        job_free(job);
        buf_fini(&one);
        buf_fini(&two);
    }
}

/* Options that have only one value, or without which there is no job, cannot differ alone. */
static int cannot_differ(const char *key)
{
    return strcmp(key, "optimizer.name") == 0 || strcmp(key, "data.path") == 0 ||
           strcmp(key, "data.format") == 0 || strcmp(key, "model.init.path") == 0 ||
           strncmp(key, "schedule.every_", 15) == 0 || strncmp(key, "schedule.milestone_", 19) == 0;
}

static void test_what_may_change_on_resume(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct job *a, *b;
        struct err err = {0};
        int rc;

        if (cannot_differ(rows[i].key))
            continue;
        a = load(&rows[i], 0);
        b = load(&rows[i], 1);
        rc = job_compare_for_resume(a, b, &err);
        if (rc != (table_may_change(table_find(&list, rows[i].key)) ? 0 : ERR_REFUSED))
            fail_msg("%s: on resume another value gives %d", rows[i].key, rc);
        if (rc < 0)
            assert_memory_equal(err.msg, rows[i].key, strlen(rows[i].key));
        job_free(a);
        job_free(b);
    }
}

static char *help_text(const char *word, int want, struct err *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    assert_non_null(f);
    assert_int_equal(job_help(word, f, err), want);
    fclose(f);
    return text;
}

static void test_help_has_every_key(void **state)
{
    struct err err;
    char *help = help_text(NULL, 0, &err);

    (void)state;
    for (size_t i = 0; i < list.n; i++) {
        const struct option *o = list.ref[i].o;
        char line[128];

        snprintf(line, sizeof line, "\n%s: %s\n", o->key,
                 o->def                    ? o->def
                 : o->flags & OPT_REQUIRED ? "(must be given)"
                                           : "(none)");
        assert_non_null(strstr(help, line));
    }
    for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n"))
        assert_in_range(strlen(line), 1, 90);
    free(help);
}

static void check_row(const struct option_ref *ref)
{
    const struct option *o = ref->o;
    const struct option_ref *selector = o->only ? table_find(&list, o->only) : NULL;
    int number =
        o->type == OPT_INT || o->type == OPT_REAL || o->type == OPT_SECONDS || o->type == OPT_INTS;

    assert_ptr_equal(table_find(&list, o->key), &list.ref[ref->first]);
    assert_true(strlen(o->key) < 48 && strlen(o->help) > 10);
    assert_int_equal(o->help[strlen(o->help) - 1], '.');
    assert_true(!number || o->min < o->max);
    assert_true(o->type != OPT_INT || !o->choices || o->min >= 0);
    assert_int_equal(o->type == OPT_CHOICE || o->type == OPT_SET,
                     o->choices != NULL && o->type != OPT_INT && o->type != OPT_PATH);
    assert_int_equal(o->type == OPT_ENTRY, o->registry != NULL);
    assert_true(!o->only || (selector && selector < ref && selector->o->type == OPT_CHOICE));
    assert_true(!o->only == !o->only_values);
}

static void test_rows_are_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < list.n; i++)
        check_row(&list.ref[i]);
}

/* The default of a key as a job file has it; every field of an entry's options lies within. */
static void check_entry_row(const struct option_group *g, const struct option *o, const char *help)
{
    char line[128];

    snprintf(line, sizeof line, "\n%s: %s\n", o->key,
             o->def                    ? o->def
             : o->flags & OPT_REQUIRED ? "(must be given)"
                                       : "(none)");
    if (!strstr(help, line))
        fail_msg("--help-job does not tell %s of %s", o->key, g->name);
    if (o->offset >= g->size)
        fail_msg("%s: offset %zu is outside of the options of %s", o->key, o->offset, g->name);
}

static void check_entry(const char *key, const struct option_group *g, const char *word,
                        const char *help)
{
    char line[128];

    if (strcmp(g->name, word) != 0)
        fail_msg("%s: the entry %s calls itself \"%s\"", key, word, g->name);
    if (!g->help || !*g->help || g->help[strlen(g->help) - 1] == '.')
        fail_msg("%s %s: its help is \"%s\", want a phrase without a full stop", key, word,
                 g->help ? g->help : "");
    if ((g->n_options > 0) != (g->size > 0) || (g->n_options > 0) != (g->option != NULL))
        fail_msg("%s %s: keys without an options struct, or a struct without keys", key, word);
    snprintf(line, sizeof line, "\n      %s ", word);
    if (!strstr(help, line))
        fail_msg("--help-job does not tell %s %s", key, word);
    for (int i = 0; i < g->n_options; i++)
        check_entry_row(g, &g->option[i], help);
}

/* Of an entry the build sees only that it exists.  Here its name must be its word, and its help
 * must say what it is. */
static void test_entries_are_whole(void **state)
{
    struct err err;
    char *help = help_text(NULL, 0, &err);

    (void)state;
#define X(word) check_entry("model.arch", &arch_##word.group, #word, help);
    ARCH_LIST(X)
#undef X
#define X(word) check_entry("data.format", &format_##word.group, #word, help);
    FORMAT_LIST(X)
#undef X
#define X(word) check_entry("optimizer.name", &optimizer_##word.group, #word, help);
    OPTIMIZER_LIST(X)
#undef X
#define X(word) check_entry("schedule.name", &schedule_##word.group, #word, help);
    SCHEDULE_LIST(X)
#undef X
#define X(word) check_entry("strategy.name", &strategy_##word.group, #word, help);
    STRATEGY_LIST(X)
#undef X
    free(help);
}

/* A word shows the keys that have it in their name, help, words, or other names. */
static void test_help_about_a_word(void **state)
{
    static const struct {
        const char *word, *has, *has_not; /* keys; NULL: none is shown, and */
        const char *error;                /* this is said */
    } cases[] = {
        {"train.epochs", "train.epochs", "train.seed", NULL},
        {"EPOCHS", "train.epochs", "train.seed", NULL},
        {"random numbers follow", "train.seed", "train.epochs", NULL},
        {"architecture", "model.arch", "train.seed", NULL},
        {"batch_size", "train.global_batch", "train.seed", NULL},
        {"kaiming_uniform", "model.init.name", "train.seed", NULL},
        {"lion", "optimizer.name", "train.seed", NULL},
        {"resnet50", "model.arch", "data.path", NULL},
        {"train.epcohs", NULL, NULL, "has \"train.epcohs\" in its name"},
        {"train.epcohs", NULL, NULL, "; the closest is train.epochs; \"dpdriver keys\" lists all"},
        {"optimiser", NULL, NULL, "the closest is optimizer;"},
        {"zzyzzyzzy", NULL, NULL, "its values; \"dpdriver keys\""},
        {"a\nb", NULL, NULL, "no key of a job file has \"a?b\""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        char *help = help_text(cases[i].word, cases[i].error ? ERR_ARG : 0, &err), line[64];

        if (cases[i].error) {
            assert_string_equal(help, "");
            if (!strstr(err.msg, cases[i].error))
                fail_msg("%s: %s", cases[i].word, err.msg);
        } else {
            assert_int_not_equal(help[0], '\n');
            snprintf(line, sizeof line, "%s: ", cases[i].has);
            if (strncmp(help, line, strlen(line)) != 0) {
                snprintf(line, sizeof line, "\n%s: ", cases[i].has);
                if (!strstr(help, line))
                    fail_msg("%s: %s is not in: %s", cases[i].word, cases[i].has, help);
            }
            snprintf(line, sizeof line, "%s: ", cases[i].has_not);
            assert_null(strstr(help, line));
        }
        free(help);
    }
    for (size_t i = 0; i < list.n; i++)
        free(help_text(list.ref[i].o->key, 0, &(struct err){0}));
}

/* The settings by which data that are drawn give way to the user's own make a job, also in place of
 * the demo's. */
static void test_own_data_are_a_job(void **state)
{
    int n_own = 0;

    (void)state;
    for (int i = 0; data_formats[i]; i++) {
        const struct data_format *format = (const struct data_format *)data_formats[i];
        const char *sets[8];
        struct job *job = NULL;
        struct err err;
        size_t n = 0;
        int has_folder = 0;

        for (; format->own && format->own[n]; n++) {
            sets[n] = format->own[n];
            has_folder |= strstr(sets[n], "=FOLDER") != NULL;
        }
        if (n == 0)
            continue;
        n_own++;
        assert_true(has_folder && format->own_folder && *format->own_folder);
        if (job_load(NULL, sets, n, &job, &err) < 0)
            fail_msg("%s: %s", format->group.name, err.msg);
        assert_ptr_not_equal(job->data.kind, format);
        job_free(job);
    }
    assert_true(n_own > 0);
}

static void test_numbers_keep_every_bit(void **state)
{
    static const char *const numbers[] = {"0.1",    "0.30000000000000004", "1e-300",
                                          "4e-320", "123456.789e-3",       "999999.9999999999"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct row row = {"optimizer.lr", numbers[i], {NULL}, NULL};
        struct job *job = load(&row, 1), *again;
        struct buf yaml = {0};
        struct err err;

        assert_true(optimizer_lr(&job->optimizer) == strtod(numbers[i], NULL));
        job_write(job, &yaml);
        assert_int_equal(job_parse((const char *)yaml.data, yaml.len, "f", NULL, &again, &err), 0);
        assert_true(optimizer_lr(&again->optimizer) == optimizer_lr(&job->optimizer));
        job_free(again);
        job_free(job);
        buf_fini(&yaml);
    }
}

static int make_list(void **state)
{
    (void)state;
    table_init(&list, &job_table);
    return 0;
}

static int free_list(void **state)
{
    (void)state;
    table_fini(&list);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_cover_the_table),      cmocka_unit_test(test_rows_are_sound),
        cmocka_unit_test(test_entries_are_whole),         cmocka_unit_test(test_set_and_written),
        cmocka_unit_test(test_numbers_keep_every_bit),    cmocka_unit_test(test_help_has_every_key),
        cmocka_unit_test(test_what_may_change_on_resume), cmocka_unit_test(test_help_about_a_word),
        cmocka_unit_test(test_own_data_are_a_job),
    };

    return cmocka_run_group_tests(tests, make_list, free_list);
}
